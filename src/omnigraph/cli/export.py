"""The `export` command."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import click

from omnigraph.cli.progress import ProgressDisplay
from omnigraph.cli.scope import address_options, connect_to_read, engine_options, execution, state_options
from omnigraph.cli.served import ServedGraph
from omnigraph.cli.streams import write_stdout
from omnigraph.cli.target import Served, Target
from omnigraph.errors import InputError, cut

_FORMATS = ("ndjson", "csv", "parquet", "arrow")
_ENDINGS = {".ndjson": "ndjson", ".jsonl": "ndjson"} | {f".{name}": name for name in _FORMATS[1:]}


@click.command()
@address_options(positional=True, served=True, stored_only=("engine", "master"))
@state_options("Export")
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Export only this type. Repeatable.")
@click.option("--format", type=click.Choice(_FORMATS), help="Output format.  [default: ndjson]")
@click.option(
    "--out",
    metavar="PATH",
    help="A file for ndjson, else a new directory: a path, s3://bucket/path, or - for stdout.  [default: -]",
)
@engine_options("the size of the tables")
@click.option("--jsonl", is_flag=True, hidden=True)
def export(
    target: Target,
    branch: str | None,
    at: str | datetime | None,
    types: tuple[str, ...],
    format: str | None,
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
    if out is not None:
        _check_ending(out, format)
    format = format or "ndjson"
    if out is None and format != "ndjson":
        raise click.UsageError(f"{format} writes one file per type: add --out with the name of a new directory")
    if out is None and engine == "spark":
        raise click.UsageError("--engine spark writes files: add --out PATH")
    place = target.place()
    if format != "ndjson" and isinstance(place, Served):
        raise click.UsageError(f"a server exports ndjson only: omit --format {format}, or give --store URI")
    with connect_to_read(place) as graph:
        chosen = list(types) or None
        if out is None:
            write_stdout(graph.export(types=chosen, branch=branch, at=at))
        elif isinstance(graph, ServedGraph):
            _save(graph.export(types=chosen, branch=branch, at=at), out)
        else:
            with execution("exporting", engine, master, ProgressDisplay(notes=True)) as execute:
                graph.export(out, format=format, types=chosen, branch=branch, at=at, **execute)


def _check_ending(out: str, format: str | None) -> None:
    """Check that the output file has not the ending of another format.

    Raises:
        UsageError: it has.
    """
    named = next((name for ending, name in _ENDINGS.items() if out.lower().endswith(ending)), None)
    if named == "ndjson" and format not in (None, "ndjson"):
        raise click.UsageError(f"{format} writes a directory, but '{cut(out)}' has the ending of ndjson")
    if named not in (None, "ndjson") and format in (None, "ndjson"):
        what = f"add --format {named}, which writes one file per type into a new directory"
        raise click.UsageError(f"the format is ndjson, but '{cut(out)}' has the ending of {named}: {what}")


def _save(parts: Iterator[bytes], out: str) -> None:
    """Write an export to a local file.

    Raises:
        InputError: the file is in an object store, or cannot be written.
    """
    from omnigraph.storage.files.local_output import output_file

    if "://" in out:
        raise InputError(f"{out} is not a local file", hint="export to a local file, or give --store URI")
    with output_file(out) as file:
        file.writelines(parts)
