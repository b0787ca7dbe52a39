"""Commands that copy a whole graph, or settle one that was copied: `backup`, `restore`, `relocate`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import begin_write, open_to_read, open_to_write

if TYPE_CHECKING:
    from omnigraph.upkeep.backup import CopyReceipt

_QUIET = click.option("--quiet", is_flag=True, help="Leave out the line about the write's target.")


@click.command()
@click.argument("uri")
@click.argument("dest")
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Copy the newest N commits of each branch only.")
@click.option("--read-only", is_flag=True, help="Write nothing to the graph. Do not run cleanup meanwhile.")
@_QUIET
@JSON
def backup(uri: str, dest: str, keep: int | None, read_only: bool, quiet: bool, as_json: bool) -> None:
    """Copy the graph at URI to DEST, beside writers: all branches, tags and history, as they are at one moment.

    DEST is an empty directory or s3://bucket/prefix, or an earlier backup of the graph, which gets what is new. It is a
    graph itself. A backup that was interrupted goes on where it stopped.
    """
    with open_to_read(uri) if read_only else open_to_write(uri, None, quiet=quiet) as graph:
        receipt = graph.backup(dest, keep=keep)
    _tell("backup", receipt, as_json=as_json)


@click.command()
@click.argument("source")
@click.argument("dest")
@JSON
def restore(source: str, dest: str, as_json: bool) -> None:
    """Copy the backup at SOURCE to DEST, an empty directory or s3://bucket/prefix.

    There is no graph at DEST before all of it is there. A restore that was interrupted goes on where it stopped.
    """
    from omnigraph.graph import restore as copy

    begin_write()
    _tell("restore", copy(source, dest), as_json=as_json)


@click.command()
@click.argument("uri")
@JSON
def relocate(uri: str, as_json: bool) -> None:
    """Settle a graph that was copied or moved in its new place.

    Opening it for writing does this once, by itself. This looks at every version file of every branch again.
    """
    from omnigraph.graph import relocate as settle

    begin_write()
    done = settle(uri)
    if as_json:
        print_json(asdict(done))
        return
    click.echo(f"relocate {done.uri} — {done.rewritten} of {done.manifests} version files named another place")
    for path in done.unreadable:
        click.echo(f"  cannot be read, and was left as it is: {path}")


def _tell(what: str, receipt: CopyReceipt, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(receipt))
        return
    click.echo(
        f"{what} {receipt.source} → {receipt.uri} — "
        f"{receipt.files_copied} files ({receipt.bytes_copied} bytes) copied, {receipt.files_present} were there"
    )
    for branch, head in receipt.branches.items():
        click.echo(f"  {branch} at commit {head}")
