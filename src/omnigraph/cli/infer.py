"""The `infer` command."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.streams import write_data

if TYPE_CHECKING:
    from omnigraph.inference import Inferred


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option("--out", metavar="DIR", help="Write schema.pg and mapping.yaml into this directory.  [default: stdout]")
@click.option(
    "--columns",
    "columns",
    multiple=True,
    metavar="FILE=A,B",
    help="Names of the columns of a CSV file without a header. Repeatable.",
)
@click.option(
    "--format",
    type=click.Choice(["ndjson", "csv", "tsv", "parquet", "arrow"]),
    help="Format of the files, whatever their names are.  [default: by the name]",
)
@JSON
def infer(files: tuple[str, ...], out: str | None, columns: tuple[str, ...], format: str | None, as_json: bool) -> None:
    """Infer a schema and a mapping from CSV, Parquet, Arrow or NDJSON files.

    FILES are files, directories, patterns or s3:// addresses; - is stdin. Keys, types and edges come from the names
    and the values of columns; comments give the reasons. All rows are read.
    """
    from omnigraph.inference import infer as infer_types

    places = ["/dev/stdin" if file == "-" else file for file in files]
    found = infer_types(places, columns=dict(map(_columns, columns)), format=format)
    paths = [] if out is None else [str(path) for path in found.write(out)]
    if as_json:
        members = {"nodes": found.nodes, "edges": found.edges, "mode": found.mode, "files": paths}
        print_json(members | ({"schema": found.schema, "mapping": found.mapping} if out is None else {}))
    elif out is None:
        mapping = "" if found.mapping is None else f"\n# mapping.yaml\n{found.mapping}"
        write_data(f"// schema.pg\n{found.schema}{mapping}")
    else:
        click.echo(f"inferred {_counted(found)}: {', '.join(paths)}")
        click.echo("next: omnigraph init GRAPH --schema " + shlex.quote(paths[0]))
        mapping = f" --mapping {shlex.quote(paths[1])}" if len(paths) > 1 else ""
        data = " ".join(f"--data {shlex.quote(file)}" for file in files)
        given = "" if format is None else f" --format {format}"
        click.echo(f"      omnigraph load GRAPH {data}{given}{mapping} --mode {found.mode}")


def _counted(found: Inferred) -> str:
    nodes, edges = len(found.nodes), len(found.edges)
    return f"{nodes} node type{'' if nodes == 1 else 's'} and {edges} edge type{'' if edges == 1 else 's'}"


def _columns(text: str) -> tuple[str, list[str]]:
    name, equals, listed = text.partition("=")
    names = [each.strip() for each in listed.split(",")]
    if not equals or not name or not all(names):
        raise click.BadParameter(f"'{text}' is not FILE=A,B", param_hint="--columns")
    return name, names
