"""The `export` command."""

from __future__ import annotations

from datetime import datetime

import click

from omnigraph.cli.progress import ProgressDisplay
from omnigraph.cli.scope import address, address_options, engine_options, execution, open_to_read, state_options
from omnigraph.cli.streams import write_stdout

_FORMATS = ("ndjson", "parquet", "arrow")


@click.command()
@address_options(positional=True)
@state_options("Export")
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Export only this type. Repeatable.")
@click.option("--format", type=click.Choice(_FORMATS), default="ndjson", help="Output format.  [default: ndjson]")
@click.option(
    "--out",
    metavar="PATH",
    help="A file for ndjson, else a new directory: a path, s3://bucket/path, or - for stdout.  [default: -]",
)
@engine_options("the size of the tables")
@click.option("--jsonl", is_flag=True, hidden=True)
def export(
    uri: str | None,
    uri_option: str | None,
    store: str | None,
    branch: str | None,
    at: str | datetime | None,
    types: tuple[str, ...],
    format: str,
    out: str | None,
    engine: str,
    master: str | None,
    jsonl: bool,
) -> None:
    """Export one snapshot of a graph. The order of the rows depends only on their content.

    A file has a temporary name until it is complete; a directory in S3 has an object `_unfinished` until it is
    complete. Discard the output on stdout if the command fails.
    """
    if out == "-":
        out = None
    if out is None and format != "ndjson":
        raise click.UsageError(f"{format} writes one file per type: add --out with the name of a new directory")
    if out is None and engine == "spark":
        raise click.UsageError("--engine spark writes files: add --out PATH")
    with open_to_read(address(uri, uri_option, store)) as graph:
        chosen = list(types) or None
        if out is None:
            write_stdout(graph.export(types=chosen, branch=branch, at=at))
        else:
            with execution("exporting", engine, master, ProgressDisplay(notes=True)) as execute:
                graph.export(out, format=format, types=chosen, branch=branch, at=at, **execute)
