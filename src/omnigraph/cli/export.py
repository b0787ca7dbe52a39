"""The command `export`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from omnigraph.cli.scope import address, addressed, open_to_read

_FORMATS = ("ndjson", "parquet", "arrow")


@click.command()
@addressed(positional=True)
@click.option("--branch", metavar="BRANCH", help="The newest state of a branch.  [default: main]")
@click.option("--snapshot", "at", metavar="ID", help="The state that a commit left: its id, or a tag.")
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Only this type; may be given several times.")
@click.option("--format", type=click.Choice(_FORMATS), default="ndjson", help="What to write.  [default: ndjson]")
@click.option("--out", metavar="PATH", help="A file for ndjson, a new directory for the others.  [default: stdout]")
@click.option("--jsonl", is_flag=True, hidden=True)
def export(
    uri: str | None,
    uri_option: str | None,
    store: str | None,
    branch: str | None,
    at: str | None,
    types: tuple[str, ...],
    format: str,
    out: str | None,
    jsonl: bool,
) -> None:
    """Write out a graph: one snapshot, in an order that depends on its content alone.

    A file is under another name until it is whole. What came out on stdout before a failure is to be thrown away.
    """
    one_view(branch, at)
    if out is None and format != "ndjson":
        raise click.UsageError(f"{format} has a file for each type: add --out with the name of a new directory")
    with open_to_read(address(uri, uri_option, store)) as graph:
        chosen = list(types) or None
        if out is not None:
            graph.export(out, format=format, types=chosen, branch=branch, at=at)
            return
        to_stdout(graph.export(types=chosen, branch=branch, at=at))


def to_stdout(pieces: Iterable[bytes]) -> None:
    """Write bytes as they are."""
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def one_view(branch: str | None, at: str | None) -> None:
    """A state is named once."""
    if branch is not None and at is not None:
        raise click.UsageError("name --branch or --snapshot, not both")
