"""The commands `backup` and `relocate`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address_options, begin_write, open_to_read, open_to_write
from omnigraph.cli.target import Target

if TYPE_CHECKING:
    from omnigraph.upkeep.backup import CopyReceipt

_QUIET = click.option("--quiet", is_flag=True, help="Hide the line about the target of the write.")


@click.command()
@click.argument("dest")
@address_options(positional=False)
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Copy only the newest N commits of each branch.")
@click.option("--read-only", is_flag=True, help="Write nothing to the graph. Do not run cleanup at the same time.")
@_QUIET
@JSON
def backup(dest: str, target: Target, keep: int | None, read_only: bool, quiet: bool, as_json: bool) -> None:
    """Copy a graph to DEST: all branches, tags and history of one moment. Writers may continue.

    DEST is an empty directory, s3://bucket/prefix, or an earlier backup of the same graph, which is updated. A backup
    is itself a graph. An interrupted backup continues when it is started again. The graph can be given before DEST.
    """
    uri = target.storage()
    with open_to_read(uri) if read_only else open_to_write(uri, None, quiet=quiet) as graph:
        receipt = graph.backup(dest, keep=keep)
    if as_json:
        print_json(asdict(receipt))
    else:
        print_copy("backup", receipt)


@click.command()
@address_options(positional=True)
@JSON
def relocate(target: Target, as_json: bool) -> None:
    """Adjust a graph to its new location after it was copied or moved.

    Opening the graph for writing does this once. This command checks every version file of every branch again.
    """
    from omnigraph.graph import relocate as relocate_graph

    uri = target.storage()
    begin_write()
    done = relocate_graph(uri)
    if as_json:
        print_json(asdict(done))
        return
    click.echo(f"relocate {done.uri} — {done.rewritten} of {done.manifests} version files named another location")
    for path in done.unreadable:
        click.echo(f"  unreadable, left unchanged: {path}")


def print_copy(what: str, receipt: CopyReceipt) -> None:
    """Print the result of a backup, or of a copy of one."""
    click.echo(
        f"{what} {receipt.source} → {receipt.uri} — "
        f"{receipt.files_copied} files ({receipt.bytes_copied} bytes) copied, {receipt.files_present} already there"
    )
    for branch, head in receipt.branches.items():
        click.echo(f"  {branch} at commit {head}")
