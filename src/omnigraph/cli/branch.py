"""The commands `branch create`, `list`, `merge`, `update`, `reset` and `delete`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.conditions import condition_options, conditions
from omnigraph.cli.conflicts import conflict_count, conflict_options, print_changes, print_previewed, resolution
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.progress import ProgressDisplay
from omnigraph.cli.scope import (
    address_options,
    confirm,
    connect_to_read,
    connect_to_write,
    engine_options,
    execution,
    open_to_read,
    open_to_write,
    preview_option,
    write_options,
)
from omnigraph.cli.target import Target

if TYPE_CHECKING:
    from omnigraph.merge.receipt import MergeReceipt


@click.group()
def branch() -> None:
    """Create, list, merge, update, reset and delete branches of a graph."""


@branch.command()
@click.argument("name")
@address_options(positional=False, served=True)
@click.option(
    "--from",
    "start",
    metavar="BRANCH|COMMIT|TAG",
    default="main",
    help="Starting point. A branch takes precedence over a tag of the same name.  [default: main]",
)
@write_options()
@JSON
def create(name: str, target: Target, start: str, actor: str | None, quiet: bool, as_json: bool) -> None:
    """Create a branch. Copies no data."""
    from omnigraph.errors import NotFoundError
    from omnigraph.lang.names import did_you_mean

    with connect_to_write(target.place(), actor, quiet=quiet) as graph:
        if start in graph.branches:
            created = graph.branches.create(name, source=start)
        else:
            try:
                created = graph.branches.create(name, commit=start)
            except NotFoundError as error:
                known = [branch.name for branch in graph.branches] + [tag.name for tag in graph.tags]
                raise NotFoundError(
                    f"there is no branch, commit or tag '{start}'", hint=did_you_mean(start, known)
                ) from error
        uri, by = graph.uri, graph.actor
    if as_json:
        print_json({"uri": uri, "from": start, "name": created.name} | ({"actor_id": by} if by else {}))
    else:
        click.echo(f"created branch {created.name} from {start}")


@branch.command("list")
@address_options(positional=True, served=True)
@JSON
def list_branches(target: Target, as_json: bool) -> None:
    """List the branches by name."""
    with connect_to_read(target.place()) as graph:
        names = sorted(branch.name for branch in graph.branches)
    if as_json:
        print_json({"branches": names})
    else:
        click.echo("\n".join(names))


@branch.command()
@click.argument("name")
@address_options(positional=False, served=True)
@write_options(destructive=True)
@JSON
def delete(name: str, target: Target, actor: str | None, quiet: bool, yes: bool, as_json: bool) -> None:
    """Delete a branch, and the commits that no other branch has."""
    place = target.place()
    confirm(f"deleting branch '{name}'", place, yes=yes, as_json=as_json)
    with connect_to_write(place, actor, quiet=quiet) as graph:
        graph.branches.delete(name)
        uri, by = graph.uri, graph.actor
    name = name.strip()
    if as_json:
        print_json({"uri": uri, "name": name} | ({"actor_id": by} if by else {}))
    else:
        click.echo(f"deleted branch {name}")


@branch.command()
@click.argument("name")
@address_options(positional=False)
@click.option("--to", "commit_id", metavar="COMMIT|TAG", required=True, help="Commit that becomes the head.")
@click.option("--if-commit", metavar="ID", help="Reset only if this commit is the head of the branch.")
@preview_option("preview", "Show the result, and write nothing.")
@write_options()
@JSON
def reset(
    name: str,
    target: Target,
    commit_id: str,
    if_commit: str | None,
    preview: bool,
    actor: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Move a branch to another commit. A tag keeps its previous head readable.

    The branch `main` cannot be reset: undo its commits with 'omnigraph revert'.
    """
    given = target.storage()
    with open_to_read(given) if preview else open_to_write(given, actor, quiet=quiet) as graph:
        done = graph.branches.reset(name, commit_id, expect_head=if_commit, preview=preview)
        uri, by = graph.uri, graph.actor
    if as_json:
        print_json({"uri": uri, **done.to_json()} | ({"actor_id": by} if by else {}))
        return
    if not done.is_changed:
        click.echo(f"branch {done.name} already is at {done.head}")
        return
    click.echo(f"{'would reset' if preview else 'reset'} branch {done.name} to {done.head}")
    count = "1 commit leaves" if done.commits_removed == 1 else f"{done.commits_removed:,} commits leave"
    click.echo(f"  {count} the branch; tag {done.tag} keeps its previous head {done.previous_head}")


@branch.command()
@click.argument("source")
@address_options(
    positional=False,
    served=True,
    stored_only=("if_commit", "unchanged_since", "reads", "timeout", "engine", "master"),
)
@click.option("--into", "into", metavar="BRANCH", default="main", help="Branch to merge into.  [default: main]")
@conflict_options("BRANCH", "SOURCE")
@click.option("--delete-branch", is_flag=True, help="Delete SOURCE after the merge.")
@click.option("--if-commit", metavar="ID", help="Merge only if this commit is the head of BRANCH.")
@condition_options
@click.option("--idempotency-key", metavar="KEY", help="Do nothing if BRANCH has a commit with this key.")
@click.option("--message", metavar="TEXT", help="Message of the commit.")
@engine_options("the size of the data to compare")
@write_options()
@JSON
def merge(
    source: str,
    target: Target,
    into: str,
    preview: bool,
    strategy: str | None,
    resolutions: tuple[str, ...],
    level: str | None,
    delete_branch: bool,
    if_commit: str | None,
    unchanged_since: str | None,
    reads: tuple[str, ...],
    timeout: float | None,
    idempotency_key: str | None,
    message: str | None,
    engine: str,
    master: str | None,
    actor: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Merge the branch SOURCE into another branch, as one commit.

    If there are conflicts, nothing is written and the exit code is 1, also for a preview. The exit code is 4 if the
    head is not the commit of --if-commit, or if the data changed since --unchanged-since.
    """
    options: dict[str, Any] = {
        "strategy": strategy,
        "resolutions": dict(resolution(text) for text in resolutions),
        "level": level,
        "preview": preview,
        "delete_branch": delete_branch,
        "message": message,
        "expect_head": if_commit,
        "idempotency_key": idempotency_key,
        **conditions(unchanged_since, reads, timeout),
    }
    place = target.place()
    shown = ProgressDisplay(notes=not quiet and not as_json)
    with (
        connect_to_read(place) if preview else connect_to_write(place, actor, quiet=quiet) as graph,
        execution("merging", engine, master, shown, place=place) as execute,
    ):
        receipt = graph.merge(source, into, **options, **execute)
        uri = graph.uri
    if receipt.branch_delete_error is not None:
        click.echo(f"branch '{receipt.source}' was not deleted: {receipt.branch_delete_error}", err=True)
    if as_json:
        print_json({"uri": uri, **receipt.to_json()})
    else:
        _print_receipt(receipt)
    if not receipt.is_clean:
        raise SystemExit(1)


@branch.command()
@click.argument("name")
@address_options(positional=False)
@conflict_options("NAME", "the parent")
@click.option("--if-commit", metavar="ID", help="Update only if this commit is the head of NAME.")
@condition_options
@click.option("--idempotency-key", metavar="KEY", help="Do nothing if NAME has a commit with this key.")
@click.option("--message", metavar="TEXT", help="Message of the commit.")
@engine_options("the size of the data to compare")
@write_options()
@JSON
def update(
    name: str,
    target: Target,
    preview: bool,
    strategy: str | None,
    resolutions: tuple[str, ...],
    level: str | None,
    if_commit: str | None,
    unchanged_since: str | None,
    reads: tuple[str, ...],
    timeout: float | None,
    idempotency_key: str | None,
    message: str | None,
    engine: str,
    master: str | None,
    actor: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Bring the schema and the rows of its parent into the branch NAME, as one commit.

    If there are conflicts, nothing is written and the exit code is 1, also for a preview.
    """
    given = target.storage()
    shown = ProgressDisplay(notes=not quiet and not as_json)
    with (
        open_to_read(given) if preview else open_to_write(given, actor, quiet=quiet) as graph,
        execution("comparing", engine, master, shown) as execute,
    ):
        receipt = graph.branches.update(
            name,
            strategy=strategy,
            resolutions=dict(resolution(text) for text in resolutions),
            level=level,
            preview=preview,
            message=message,
            expect_head=if_commit,
            idempotency_key=idempotency_key,
            **conditions(unchanged_since, reads, timeout),
            **execute,
        )
        uri = graph.uri
    if as_json:
        print_json({"uri": uri, **receipt.to_json()})
    else:
        _print_receipt(receipt, "theirs")
    if not receipt.is_clean:
        raise SystemExit(1)


def _print_receipt(receipt: MergeReceipt, valid: str = "ours") -> None:
    """Print a receipt. `valid` is the side whose values the new schema allows."""
    if receipt.conflicts:
        count = conflict_count(receipt.total_conflicts)
        click.echo(f"would not merge {receipt.source} into {receipt.target}: {count} no decision")
    else:
        click.echo(_outcome(receipt))
    for change in _schema_lines(receipt):
        click.echo(f"  {change}")
    print_changes(receipt, receipt.target, valid)
    print_previewed(receipt)
    if receipt.branch_deleted:
        click.echo(f"deleted branch {receipt.source}")


def _outcome(receipt: MergeReceipt) -> str:
    """One line about the result of a merge without conflicts."""
    if receipt.outcome.value == "already_up_to_date":
        return f"{receipt.target} is already up to date with {receipt.source}: nothing to merge"
    done = "would merge" if receipt.preview else "merged"
    return f"{done} {receipt.source} into {receipt.target}: {receipt.outcome.value}"


def _schema_lines(receipt: MergeReceipt) -> Iterator[str]:
    if receipt.schema_changes is not None:
        count = len(receipt.schema_changes)
        number = ": no differences" if count == 0 else ": 1 change" if count == 1 else f": {count} changes"
        yield f"schema of {receipt.source}{number}"
    for change in receipt.schema_changes or ():
        yield f"schema: {change}"
