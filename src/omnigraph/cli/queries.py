"""The commands `queries list` and `queries validate`: stored queries of a directory or of a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.files import SOURCE_FILE, read_bytes, read_schema
from omnigraph.cli.output import JSON, print_json
from omnigraph.cli.scope import address_options, connect_to_read
from omnigraph.cli.target import Served, Target
from omnigraph.dataclass import dataclass
from omnigraph.errors import CompileError, InputError
from omnigraph.errors.source import one_line, printable

if TYPE_CHECKING:
    from omnigraph.lang.query.ast import Query
    from omnigraph.lang.schema import Catalog

_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    type: str
    nullable: bool

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "type": self.type, "nullable": self.nullable}

    def __str__(self) -> str:
        return f"${self.name}: {self.type}{'?' if self.nullable else ''}"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A stored query."""

    name: str
    tool_name: str
    mutation: bool
    params: tuple[_Parameter, ...]
    description: str | None
    instruction: str | None
    deprecated: str | None
    """The name of the query that replaces it, empty if none does; None if it is not deprecated."""

    def to_json(self) -> dict[str, Any]:
        members: dict[str, Any] = {"name": self.name, "mcp_expose": True, "tool_name": self.tool_name}
        members["mutation"] = self.mutation
        texts = {"description": self.description, "instruction": self.instruction}
        members |= {name: text for name, text in texts.items() if text is not None}
        if self.deprecated is not None:
            members["deprecated"] = True
        if self.deprecated:
            members["successor"] = self.deprecated
        return members | {"params": [param.to_json() for param in self.params]}

    @property
    def note(self) -> str:
        """The end of its line in the listing."""
        if self.deprecated is None:
            return ""
        return f" [deprecated: use {self.deprecated}]" if self.deprecated else " [deprecated]"

    def warnings(self) -> list[dict[str, str]]:
        return [
            {"query": self.name, "message": f"agents cannot give the vector ${param.name}"}
            for param in self.params
            if param.type.startswith("Vector(")
        ]


@click.group()
def queries() -> None:
    """List and check stored queries."""


@queries.command("list")
@click.argument("directory", type=_DIRECTORY, required=False)
@address_options(positional=False, served=True, profiles=False)
@JSON
def list_queries(directory: Path | None, target: Target, as_json: bool) -> None:
    """List the stored queries of a directory of .gq files, or of a graph of a server."""
    if directory is not None and target.is_given:
        raise click.UsageError("give a directory or a graph of a server, not both")
    entries = _of_server(target) if directory is None else [_entry(query) for _, query in _declared(directory)]
    entries.sort(key=lambda one: one.name)
    if as_json:
        print_json({"queries": [one.to_json() for one in entries]})
        return
    for one in entries:
        kind = "mutation" if one.mutation else "read"
        params = ", ".join(map(str, one.params))
        click.echo(printable(f"{kind:<8}  {one.name}({params}) [mcp: {one.tool_name}]{one.note}"))
        for text in (one.description, one.instruction):
            if text is not None:
                click.echo(printable(f"    {one_line(text)}"))
    if not entries:
        click.echo("(no stored queries)")


@queries.command()
@click.argument("directory", type=_DIRECTORY, required=False)
@address_options(positional=False, served=True, profiles=False)
@click.option(
    "--schema", "schema_path", type=SOURCE_FILE, metavar="FILE", help="Schema to check against, without a graph."
)
@JSON
def validate(directory: Path | None, target: Target, schema_path: Path | None, as_json: bool) -> None:
    """Check stored queries against a schema: that of a graph, or of a file.

    Without a directory, lists what a server has checked itself. The exit code is 1 if a query does not fit.
    """
    if schema_path is not None and target.is_given:
        raise click.UsageError("give --schema FILE or a graph, not both")
    breakages: list[dict[str, str]] = []
    warnings: list[dict[str, str]] = []
    if directory is None:
        if schema_path is not None:
            raise click.UsageError("give the directory of the queries")
        entries = _of_server(target)
        warnings += [warning for one in entries for warning in one.warnings()]
        count = len(entries)
    else:
        count = _check(directory, _catalog(target, schema_path), breakages, warnings)
    if as_json:
        print_json({"ok": not breakages, "breakages": breakages, "warnings": warnings})
    else:
        for word, found in (("ERROR", breakages), ("WARN ", warnings)):
            for one in found:
                click.echo(printable(f"{word} {one['query']}: {one['message']}"))
        number = "1 query" if count == 1 else f"{count} queries"
        click.echo(f"{number}: {'valid' if not breakages else f'{len(breakages)} do not fit the schema'}")
    if breakages:
        raise SystemExit(1)


def _of_server(target: Target) -> list[_Entry]:
    place = target.place()
    if not isinstance(place, Served):
        raise click.UsageError("stored queries belong to a server: give a directory, or --server NAME|URL")
    with place.connect() as client:
        found = client.queries.list()
    return [
        _Entry(
            one.name,
            one.tool_name,
            one.mutation,
            tuple(
                _Parameter(param["name"], str(param.get("type", param["kind"])), bool(param["nullable"]))
                for param in one.params
            ),
            one.description,
            one.instruction,
            (one.successor or "") if one.deprecated else None,
        )
        for one in found
    ]


def _declared(directory: Path) -> list[tuple[Path, Query]]:
    """The queries of a directory, each with its file.

    Raises:
        ParseError: a file does not parse.
        InputError: a name is declared twice.
    """
    from omnigraph.lang.query import parse_queries

    found: dict[str, tuple[Path, Query]] = {}
    for path in sorted(directory.glob("*.gq")):
        for query in parse_queries(read_bytes(path), str(path)).queries:
            if query.name in found:
                raise InputError(
                    f"{path}: the stored query '{query.name}' is declared twice", hint="rename one of them"
                )
            found[query.name] = (path, query)
    return list(found.values())


def _entry(query: Query) -> _Entry:
    from omnigraph.lang.query.ast import Read
    from omnigraph.lang.query.printer import parameter_type

    params = tuple(
        _Parameter(one.name, parameter_type(one).removesuffix("?"), one.type.nullable or one.default is not None)
        for one in query.params
    )
    mutation = not isinstance(query.body, Read)
    return _Entry(query.name, query.name, mutation, params, query.description, query.instruction, query.deprecated)


def _catalog(target: Target, schema_path: Path | None) -> Catalog:
    """The schema to check against."""
    from omnigraph.lang.schema import compile_schema

    if schema_path is not None:
        return compile_schema(read_schema(schema_path), str(schema_path))
    with connect_to_read(target.place()) as graph:
        return compile_schema(graph.schema.show(branch=None, at=None))


def _check(directory: Path, catalog: Catalog, breakages: list[dict[str, str]], warnings: list[dict[str, str]]) -> int:
    """Check the files of a directory. Returns the number of queries."""
    from omnigraph.lang.query import lint_queries, parse_queries
    from omnigraph.lang.query.versions import successor_problem

    seen: dict[str, Path] = {}
    entries: list[_Entry] = []
    for path in sorted(directory.glob("*.gq")):
        text = read_bytes(path)
        report = lint_queries(text, catalog, str(path))
        if report.parse_error is not None:
            breakages.append({"query": path.name, "message": _message(report.parse_error)})
            continue
        for result in report.results:
            if result.error is not None:
                breakages.append({"query": result.name, "message": _message(result.error)})
            elif seen.setdefault(result.name, path) != path:
                message = f"{path.name}: the name is declared in {seen[result.name].name}, too"
                breakages.append({"query": result.name, "message": message})
        entries += map(_entry, parse_queries(text).queries)
    count = len(seen) + len(breakages)
    writes = {one.name: one.mutation for one in entries}
    for one in entries:
        warnings += one.warnings()
        problem = successor_problem(one.name, one.deprecated, writes) if one.deprecated else None
        if problem is not None:
            breakages.append({"query": one.name, "message": problem})
    return count


def _message(error: CompileError) -> str:
    """The first line of an error, with its place."""
    return error.render().partition("\n")[0]
