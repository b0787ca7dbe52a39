"""The `import` commands: graphs from the exports of other databases."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from omnigraph.amounts import counted
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import begin_write, print_target
from omnigraph.errors import (
    BadRowsError,
    ConstraintError,
    InputError,
    KeyConflictError,
    NotFoundError,
    OmnigraphError,
    OutcomeUnknownError,
)
from omnigraph.storage.uri import GraphUri, Scheme

if TYPE_CHECKING:
    from omnigraph.graph import Graph
    from omnigraph.importers.staged_types import StagedTypes
    from omnigraph.write.input.formats import RowFile

F = TypeVar("F", bound=Callable[..., object])


@click.group("import")
def import_data() -> None:
    """Create a graph from an export of another database, or from RDF.

    The types are inferred from the export, and all rows are loaded as one commit. Each command can also write the
    schema and Parquet files to a directory instead, so that you can change the schema before you load them.
    """


def _options(command: F) -> F:
    files = click.option(
        "--files", "directory", metavar="DIR", help="Write schema.pg and Parquet files here, and create no graph."
    )
    return click.argument("graph", required=False)(files(JSON(command)))


@import_data.command()
@_options
@click.argument("files", nargs=-1)
@click.option("--array-delimiter", default=";", metavar="CHAR", help="Separator in arrays and labels.  [default: ;]")
@click.option("--delimiter", metavar="CHAR", help="Separator of the cells; TAB is a tab.  [default: by the header]")
@click.option("--quote", default='"', metavar="CHAR", help='Quote character.  [default: "]')
def neo4j(
    graph: str | None,
    files: tuple[str, ...],
    directory: str | None,
    array_delimiter: str,
    delimiter: str | None,
    quote: str,
    as_json: bool,
) -> None:
    """Import CSV FILES with the headers of neo4j-admin: :ID, :LABEL, :START_ID, :END_ID, :TYPE, age:int.

    A file with a header alone describes the files whose names begin like its own. Files of apoc.export.csv are
    accepted, too.
    """
    from omnigraph.importers.neo4j import import_neo4j

    uri, paths = _target(graph, files, directory)
    found = _files(paths, "csv")
    arrays, cells = _character(array_delimiter), None if delimiter is None else _character(delimiter)
    _run(uri, directory, as_json, lambda staged: import_neo4j(found, staged, arrays, cells, _character(quote)))


@import_data.command()
@_options
@click.argument("export", nargs=-1)
def kuzu(graph: str | None, export: tuple[str, ...], directory: str | None, as_json: bool) -> None:
    """Import the directory EXPORT that EXPORT DATABASE of Kuzu or ladybug has written."""
    from omnigraph.importers.kuzu import import_kuzu

    uri, paths = _target(graph, export, directory)
    if len(paths) != 1:
        raise click.UsageError("name one directory, the export")
    _run(uri, directory, as_json, lambda staged: import_kuzu(Path(paths[0]), staged))


@import_data.command()
@_options
@click.argument("files", nargs=-1)
@click.option(
    "--format",
    type=click.Choice(["turtle", "nt", "n3", "xml", "json-ld"]),
    help="Format of the files.  [default: by the name: .ttl, .nt, .n3, .rdf, .jsonld]",
)
def rdf(graph: str | None, files: tuple[str, ...], directory: str | None, format: str | None, as_json: bool) -> None:
    """Import RDF FILES: types become node types, literals properties, and other triples edges.

    Needs the package rdflib: pip install 'omnigraph[rdf]'.
    """
    from omnigraph.importers.rdf import import_rdf, rdf_formats

    uri, paths = _target(graph, files, directory)
    found = rdf_formats(_files(paths, "ndjson"), format)
    _run(uri, directory, as_json, lambda staged: import_rdf(found, staged))


def _character(text: str) -> str:
    """A separator or quote, as `neo4j-admin` takes it."""
    text = "\t" if text.upper() in ("TAB", "\\T") else text
    if len(text) != 1 or not text.isascii() or text in "\r\n\0":
        raise click.UsageError(f"'{text}' is not one ASCII character")
    return text


def _target(graph: str | None, files: tuple[str, ...], directory: str | None) -> tuple[str | None, list[str]]:
    """The graph to create and the input. With `--files` there is no graph, so the first argument is an input, too."""
    paths = list(files)
    if directory is not None:
        paths = [*([graph] if graph is not None else []), *paths]
        graph = None
    if not paths or (graph is None and directory is None):
        path = click.get_current_context().command_path
        raise click.UsageError(f"name the graph to create, then the input: {path} GRAPH INPUT")
    return graph, paths


def _files(paths: list[str], format: str) -> list[RowFile]:
    """The files of paths, directories and patterns."""
    from omnigraph.write.input.row_files import row_files

    return [file for path in paths for file in row_files(path, None, format)]


def _run(uri: str | None, directory: str | None, as_json: bool, convert: Callable[[StagedTypes], None]) -> None:
    """Convert an export, and load it into a new graph."""
    if uri is not None:
        _check_new(uri)
    with _staging(directory) as place:
        schema = _convert(place, convert)
        if uri is not None:
            _load(uri, place, schema, as_json)
    if uri is None:
        assert directory is not None
        made = Path(directory)
        if as_json:
            print_json({"schema": str(made / "schema.pg"), "data": str(made / "data")})
            return
        click.echo(f"wrote {made / 'schema.pg'} and {made / 'data'}")
        click.echo(f"next: omnigraph init GRAPH --schema {shlex.quote(str(made / 'schema.pg'))}")
        click.echo(f"      omnigraph load GRAPH --data {shlex.quote(str(made / 'data' / '*'))} --mode append")


def _check_new(uri: str) -> None:
    """Refuse a place that has files: a failed import removes the directory of its graph.

    Raises:
        InputError: there is a graph already, or a directory that is not empty.
    """
    from omnigraph.graph import open

    try:
        open(uri, read_only=True).close()
    except NotFoundError:
        place = GraphUri.parse(uri)
        if place.scheme is Scheme.LOCAL and Path(place.path).is_dir() and any(Path(place.path).iterdir()):
            raise InputError(f"{uri} is not empty", hint="name a new directory for the graph") from None
        return
    raise InputError(
        f"{uri} is a graph already", hint="name a new one; or use --files DIR, and load the files into the graph"
    )


@contextmanager
def _staging(directory: str | None) -> Iterator[Path]:
    from omnigraph.storage.files.local_output import output_directory

    if directory is not None:
        with output_directory(directory) as place:
            yield place
        return
    with tempfile.TemporaryDirectory(prefix="omnigraph-import-") as name:
        yield Path(name)


def _convert(place: Path, convert: Callable[[StagedTypes], None]) -> str:
    from omnigraph.importers.staged_types import StagedTypes

    staged = StagedTypes(place)
    try:
        convert(staged)
        return staged.finish()
    finally:
        staged.close()


def _load(uri: str, place: Path, schema: str, as_json: bool) -> None:
    from omnigraph.graph import init

    begin_write()
    print_target(uri)
    with init(uri, schema) as graph:
        has_rows = any((place / "data").iterdir())
        with _nothing_left(graph):
            receipt = graph.load(str(place / "data" / "*"), mode="append") if has_rows else None
        nodes = dict(receipt.nodes) if receipt is not None else {}
        edges = dict(receipt.edges) if receipt is not None else {}
        if as_json:
            print_json({"uri": graph.uri, "nodes": nodes, "edges": edges})
            return
        click.echo(
            f"imported {counted(sum(nodes.values()), 'node', mark=',')} of {counted(len(nodes), 'type')} and "
            f"{counted(sum(edges.values()), 'edge', mark=',')} of {counted(len(edges), 'type')} into {graph.uri}"
        )


@contextmanager
def _nothing_left(graph: Graph) -> Iterator[None]:
    """Remove the new graph if the rows cannot be loaded, or Ctrl-C ends the load, so that the import can be repeated.

    If the outcome of the load is unknown, the graph stays: it may have the rows.
    """
    try:
        yield
    except OutcomeUnknownError:
        raise
    except BaseException as error:
        uri = GraphUri.parse(graph.uri)
        if isinstance(error, BadRowsError | ConstraintError | KeyConflictError):
            error.hint = "to see and correct the rows, write them to files: add --files DIR"
        if uri.scheme is Scheme.LOCAL:
            shutil.rmtree(uri.path, ignore_errors=True)
        elif isinstance(error, OmnigraphError):
            rest = f"remove {graph.uri} before you import again"
            error.hint = rest if error.hint is None else f"{error.hint}; {rest}"
        raise
