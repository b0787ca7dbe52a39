"""The command `export`."""

from __future__ import annotations

import click

from omnigraph.cli.progress import Shown
from omnigraph.cli.scope import address, addressed, engines, execution, open_to_read
from omnigraph.cli.streams import write_stdout

_FORMATS = ("ndjson", "parquet", "arrow")


@click.command()
@addressed(positional=True)
@click.option("--branch", metavar="BRANCH", help="The newest state of a branch.  [default: main]")
@click.option("--snapshot", "at", metavar="ID", help="The state that a commit left: its id, or a tag.")
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Only this type; may be given several times.")
@click.option("--format", type=click.Choice(_FORMATS), default="ndjson", help="What to write.  [default: ndjson]")
@click.option(
    "--out",
    metavar="PATH",
    help="A file for ndjson, a new directory for the others: a path, s3://bucket/path or - for stdout.  [default: -]",
)
@engines("the size of the tables, and stdout needs none")
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
    engine: str,
    master: str | None,
    jsonl: bool,
) -> None:
    """Write out a graph: one snapshot, in an order that depends on its content alone.

    A file is under another name until it is whole; a directory in S3 has an object `_unfinished` until it is. What came
    out on stdout before a failure is to be thrown away.
    """
    one_view(branch, at)
    if out == "-":
        out = None
    if out is None and format != "ndjson":
        raise click.UsageError(f"{format} has a file for each type: add --out with the name of a new directory")
    if out is None and engine == "spark":
        raise click.UsageError("Spark writes files: add --out")
    with open_to_read(address(uri, uri_option, store)) as graph:
        chosen = list(types) or None
        if out is None:
            write_stdout(graph.export(types=chosen, branch=branch, at=at))
        else:
            with execution("exporting", engine, master, Shown(notes=True)) as execute:
                graph.export(out, format=format, types=chosen, branch=branch, at=at, **execute)


def one_view(branch: str | None, at: str | None) -> None:
    """A state is named once."""
    if branch is not None and at is not None:
        raise click.UsageError("name --branch or --snapshot, not both")
