"""The command `restore`: copies a backup, or brings single entities back to an earlier state."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING

import click

from omnigraph.cli.conditions import condition_options, conditions
from omnigraph.cli.conflicts import print_left_out, print_previewed
from omnigraph.cli.copies import print_copy
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import (
    address_options,
    begin_write,
    looks_like_time,
    open_to_read,
    open_to_write,
    preview_option,
    write_options,
)
from omnigraph.cli.target import Target

if TYPE_CHECKING:
    from omnigraph.graph import Graph
    from omnigraph.merge.restore_receipt import RestoreReceipt

_ENTITY_OPTIONS = (
    "--id",
    "--at",
    "--snapshot",
    "--branch",
    "--edges",
    "--dry-run",
    "--if-commit",
    "--idempotency-key",
    "--message",
)


@click.command()
@click.argument("source", required=False)
@click.argument("dest", required=False)
@address_options(positional=False)
@click.option("--type", "type_name", metavar="TYPE", help="Restore entities of this node or edge type.")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Id of an entity to restore. Repeatable.")
@click.option("--at", metavar="COMMIT|TAG|TIME", help="State to take the rows from. A time refers to the branch.")
@click.option("--snapshot", metavar="ID", help="State to take the rows from: a commit or tag, as in other commands.")
@click.option("--branch", metavar="BRANCH", help="Branch that gets the commit.  [default: main]")
@click.option("--edges", is_flag=True, help="Also give the nodes the edges that they have in that state.")
@preview_option("preview", "Show the changes, and write nothing.")
@click.option("--if-commit", metavar="ID", help="Write only if this commit is the head of the branch.")
@condition_options
@click.option("--idempotency-key", metavar="KEY", help="Do nothing if the branch has a commit with this key.")
@click.option("--message", metavar="TEXT", help="Message of the commit.")
@write_options()
@JSON
def restore(
    source: str | None,
    dest: str | None,
    target: Target,
    type_name: str | None,
    ids: tuple[str, ...],
    at: str | None,
    snapshot: str | None,
    branch: str | None,
    edges: bool,
    preview: bool,
    if_commit: str | None,
    unchanged_since: str | None,
    reads: tuple[str, ...],
    timeout: float | None,
    idempotency_key: str | None,
    message: str | None,
    actor: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Copy the backup at SOURCE to DEST; or, with --type, bring single entities back to an earlier state.

    To restore entities, give the graph as SOURCE: omnigraph restore URI --type TYPE --id ID --at COMMIT

    DEST is an empty directory or s3://bucket/prefix. It becomes a graph when the copy is complete. An interrupted copy
    continues when it is started again.

    Entities get the rows that they have in the given state, as one commit. Entities that do not exist there are
    deleted, nodes with their edges.
    """
    if type_name is None:
        given = (ids, at, snapshot, branch, edges, preview, if_commit, idempotency_key, message)
        given_names = [name for name, value in zip(_ENTITY_OPTIONS, given, strict=True) if value]
        if given_names:
            raise click.UsageError(f"{given_names[0]} restores single entities: give --type, too")
        if source is None or dest is None or target.is_given:
            raise click.UsageError("give the backup and the new graph: SOURCE DEST; or --type, to restore entities")
        _copy(source, dest, as_json=as_json)
        return
    if dest is not None:
        raise click.UsageError("entities are restored in one graph: omit DEST")
    if at is not None and snapshot is not None:
        raise click.UsageError("give --snapshot or --at, not both")
    wanted = snapshot if at is None else at
    if not ids or wanted is None:
        raise click.UsageError("give the entities (--id) and the state to take their rows from (--at or --snapshot)")
    options = {
        "branch": branch,
        "edges": edges,
        "preview": preview,
        "expect_head": if_commit,
        "idempotency_key": idempotency_key,
        "message": message,
        **conditions(unchanged_since, reads, timeout),
    }
    uri = replace(target, uri=source).storage()
    with open_to_read(uri) if preview else open_to_write(uri, actor, quiet=quiet) as graph:
        state = _state(graph, wanted) if snapshot is None else snapshot
        receipt = graph.restore(type_name, list(ids), state, **options)
        uri = graph.uri
    if as_json:
        print_json({"uri": uri, **receipt.to_json()})
    else:
        _print_receipt(type_name, len(ids), receipt)


def _copy(source: str, dest: str, *, as_json: bool) -> None:
    from omnigraph.graph import restore as copy

    begin_write()
    done = copy(source, dest)
    if as_json:
        print_json(asdict(done))
    else:
        print_copy("restore", done)


def _state(graph: Graph, text: str) -> str | datetime:
    """A time if the text is one and not the name of a tag, else a commit or tag."""
    try:
        found = datetime.fromisoformat(text) if looks_like_time(text) else None
    except ValueError:
        found = None
    return text if found is None or text in [tag.name for tag in graph.tags] else found


def _print_receipt(type_name: str, count: int, receipt: RestoreReceipt) -> None:
    done = "would restore" if receipt.preview else "restored"
    if receipt.is_changed:
        click.echo(f"{done} {count:,} {type_name} on {receipt.branch} from commit {receipt.from_commit}")
    elif receipt.left_out or receipt.edges_omitted:
        click.echo(f"nothing to restore on {receipt.branch}: the rest is the same as in commit {receipt.from_commit}")
    else:
        click.echo(f"nothing to restore: {receipt.branch} has the same rows as commit {receipt.from_commit}")
    for key, changes in receipt.changes.items():
        click.echo(f"  {key}: {changes.inserted} inserted, {changes.updated} updated, {changes.deleted} deleted")
    if receipt.left_out:
        print_left_out(receipt.left_out, receipt.branch)
    if receipt.edges_omitted:
        click.echo(f"  {receipt.edges_omitted:,} edges not restored, because one of their nodes does not exist")
    print_previewed(receipt)
