"""The commands `lint`, `check` and `fmt`."""

# See docs/decisions/0004-check-and-lint-are-two-commands.md

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph.amounts import counted
from omnigraph.cli.files import SOURCE_FILE, STDIN, is_graph, read_bytes, read_schema, replace_text, source_files
from omnigraph.cli.output import print_json
from omnigraph.cli.scope import address_options, open_to_read, state_options
from omnigraph.cli.streams import read_stdin, write_data
from omnigraph.cli.target import Target
from omnigraph.dataclass import dataclass
from omnigraph.errors import CompileError, InputError, SourceText, cut

if TYPE_CHECKING:
    from omnigraph.lang.diagnostics import Finding
    from omnigraph.lang.query import LintReport
    from omnigraph.lang.schema import Catalog

_ANY = click.Path(exists=True, allow_dash=True, path_type=Path)


@dataclass(frozen=True, slots=True)
class _SchemaSource:
    """The schema that queries are checked against.

    Attributes:
        text: its source text.
        name: its name in messages.
        origin: the file or the graph, as the JSON output names it.
    """

    catalog: Catalog
    text: bytes
    name: str
    origin: dict[str, str]

    @classmethod
    def of_file(cls, path: Path) -> _SchemaSource:
        """The schema of a file.

        Raises:
            CompileError: the schema does not compile.
        """
        from omnigraph.lang.schema import compile_schema

        text = read_schema(path)
        return cls(compile_schema(text, str(path)), text, str(path), {"kind": "file", "path": str(path)})

    @classmethod
    def of_graph(cls, uri: str, branch: str | None, at: str | datetime | None) -> _SchemaSource:
        """The schema of a graph, as it was applied."""
        from omnigraph.lang.schema import compile_schema

        with open_to_read(uri) as graph:
            text, where = graph.schema.show(branch=branch, at=at), graph.uri
        name = f"the schema of {where}"
        return cls(compile_schema(text, name), text.encode(), name, {"kind": "graph", "uri": where})


@click.command()
@address_options(positional=True)
@click.option(
    "--schema", "schema_path", type=SOURCE_FILE, metavar="FILE", help="Schema file (.pg), instead of a graph."
)
@click.option("--query", "query_path", type=SOURCE_FILE, metavar="FILE", help="Query file (.gq).")
@state_options("Use the schema of")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def lint(
    target: Target,
    schema_path: Path | None,
    query_path: Path | None,
    branch: str | None,
    at: str | datetime | None,
    as_json: bool,
) -> None:
    """Report errors and likely mistakes in queries.

    Uses the schema of a graph, or of --schema. Without --query, checks the schema. The exit code is 1 if there is an
    error, but not for warnings and remarks.
    """
    schema = _schema_source(schema_path, target, branch, at)
    if query_path is None:
        _lint_schema(schema, as_json)
        return
    from omnigraph.lang.query import lint_queries

    report = lint_queries(read_bytes(query_path), schema.catalog, str(query_path))
    if as_json:
        print_json(report.to_json(schema.origin, str(query_path)))
    else:
        _print_report(report)
    if report.errors:
        raise SystemExit(1)


def _schema_source(path: Path | None, target: Target, branch: str | None, at: str | datetime | None) -> _SchemaSource:
    _refuse_source_file(target.uri, path)
    if path is None:
        if not target.is_given and not target.has_default:
            raise click.UsageError("name a schema: give the URI of a graph, or --schema FILE")
        return _SchemaSource.of_graph(target.storage(), branch, at)
    if target.is_given:
        raise click.UsageError("give a graph or --schema, not both")
    if branch is not None or at is not None:
        raise click.UsageError("--branch, --snapshot and --at select the schema of a graph, and --schema names a file")
    return _SchemaSource.of_file(path)


def _refuse_source_file(given: str | None, schema: Path | None) -> None:
    """Refuse a file of queries or a schema in the place of a graph.

    Raises:
        UsageError: the argument is such a file. The message says which option it belongs to.
    """
    option = {".gq": "--query", ".pg": "--schema"}.get(Path(given or "").suffix)
    if given is None or option is None or not Path(given).is_file():
        return
    more = ", and the URI of a graph or --schema FILE" if option == "--query" and schema is None else ""
    raise click.UsageError(f"'{cut(given)}' is a file, not a graph: give {option} {shlex.quote(given)}{more}")


def _lint_schema(schema: _SchemaSource, as_json: bool) -> None:
    from omnigraph.lang.schema import lint_schema
    from omnigraph.lang.tokens import read_source

    catalog = schema.catalog
    findings = lint_schema(catalog)
    if as_json:
        report = {
            "status": "ok",
            "schema_source": schema.origin,
            "errors": 0,
            **_counts(findings),
            "findings": [finding.to_json() for finding in findings],
        }
        print_json(report)
        return
    _print_findings(findings, read_source(schema.text, schema.name))
    counts = _counts(findings)
    types = f"{counted(len(catalog.nodes), 'node type')}, {counted(len(catalog.edges), 'edge type')}"
    click.echo(f"{types}: {counted(counts['warnings'], 'warning')}, {counted(counts['infos'], 'remark')}")


def _counts(findings: Sequence[Finding]) -> dict[str, int]:
    severities = [finding.severity.value for finding in findings]
    return {"warnings": severities.count("warning"), "infos": severities.count("info")}


def _print_report(report: LintReport) -> None:
    if report.parse_error is not None:
        click.echo(f"ERROR Q000 {report.parse_error.render()}")
    for result in report.results:
        if result.error is not None:
            click.echo(f"ERROR {result.name}: {result.error.render()}")
        else:
            click.echo(f"OK    {result.name} ({result.kind})")
        for warning in result.warnings:
            click.echo(f"WARN  {result.name}: {warning}")
    _print_findings([finding for finding in report.findings if finding.code != "Q000"], report.source)
    click.echo(
        f"{counted(len(report.results), 'query', 'queries')}: {counted(report.errors, 'error')}, "
        f"{counted(report.warnings, 'warning')}, {counted(report.infos, 'remark')}"
    )


def _print_findings(findings: Sequence[Finding], source: SourceText | None) -> None:
    words = {"error": "ERROR", "warning": "WARN ", "info": "INFO "}
    for finding in findings:
        click.echo(f"{words[finding.severity.value]} {finding.code} {finding.message}{_location(finding, source)}")


def _location(finding: Finding, source: SourceText | None) -> str:
    """The location of a finding: its line, or the names of the queries if the finding is about several queries."""
    if finding.span is not None and source is not None:
        line, column = source.locate(finding.span.start)
        return f" ({source.name}:{line}:{column})"
    return f" ({', '.join(finding.query_names)})" if finding.query_names else ""


@click.command()
@click.argument("given", nargs=-1, metavar="[GRAPH] [FILE|DIR]...")
@address_options(positional=False)
@click.option("--schema", "schema_path", type=SOURCE_FILE, metavar="FILE", help="Schema to check the queries against.")
@click.option("--query", "queries", type=SOURCE_FILE, multiple=True, metavar="FILE", help="Same as a FILE argument.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def check(
    given: tuple[str, ...],
    target: Target,
    schema_path: Path | None,
    queries: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Compile schemas and queries, and report every error.

    A file that does not parse has one error. For each query, only its first error is reported. Queries are checked
    against the schema of GRAPH, against --schema, or against the only schema among the files. The exit code is 1 if a
    file does not compile.
    """
    from omnigraph.lang.schema import check_schema, compile_schema

    target, paths = _graph_and_paths(given, target)
    named = [*paths, *queries]
    if target.is_given:
        _check_against_graph(target, schema_path, named, as_json)
        return
    if schema_path is not None:
        read_schema(schema_path)
    if not named and schema_path is None:
        raise click.UsageError("name a file or a directory to check")
    files = source_files([*named, *([schema_path] if schema_path and schema_path not in named else [])])
    schemas = [file for file in files if file.suffix == ".pg" or file is schema_path]
    errors = {file: check_schema(read_bytes(file), str(file)) for file in schemas}
    texts = [file for file in files if file.suffix == ".gq" or file in queries]
    if texts:
        against = schema_path or (schemas[0] if len(schemas) == 1 else None)
        if against is None:
            found = "none was given" if not schemas else f"{len(schemas)} were given"
            raise InputError(f"queries need one schema, but {found}", hint="add --schema FILE, or name a graph first")
        if not errors[against]:
            catalog = compile_schema(read_bytes(against), str(against))
            errors |= {file: _query_errors(file, catalog) for file in texts}
    _report_check(files, errors, as_json)
    if any(errors.values()):
        raise SystemExit(1)


def _graph_and_paths(given: Sequence[str], target: Target) -> tuple[Target, list[Path]]:
    """The graph and the files that the arguments of `check` name. The first argument may be a graph."""
    if given and is_graph(given[0]):
        target, given = replace(target, uri=given[0]), given[1:]
    for name in given:
        if not Path(name).exists():
            raise click.BadParameter(f"Path '{cut(name)}' does not exist.", param_hint="'[GRAPH] [FILE|DIR]...'")
    return target, [Path(name) for name in given]


def _check_against_graph(target: Target, schema_path: Path | None, named: Sequence[Path], as_json: bool) -> None:
    """Check queries against the schema of a graph."""
    if schema_path is not None:
        raise click.UsageError("give a graph or --schema, not both")
    if not named:
        raise click.UsageError("name a file or a directory to check")
    files = [file for file in source_files(named) if file.suffix == ".gq" or file is STDIN]
    if not files:
        raise InputError("there are no .gq files here", hint="a graph is the schema for queries: name a .gq file")
    catalog = _SchemaSource.of_graph(target.storage(), None, None).catalog
    errors = {file: _query_errors(file, catalog) for file in files}
    _report_check(files, errors, as_json)
    if any(errors.values()):
        raise SystemExit(1)


def _query_errors(path: Path, catalog: Catalog) -> list[CompileError]:
    from omnigraph.lang.query import lint_queries

    report = lint_queries(read_bytes(path), catalog, str(path))
    if report.parse_error is not None:
        return [report.parse_error]
    return [result.error for result in report.results if result.error is not None]


def _report_check(files: Sequence[Path], errors: dict[Path, list[CompileError]], as_json: bool) -> None:
    if as_json:
        listed = [
            {
                "path": str(file),
                "status": "skipped" if file not in errors else "error" if errors[file] else "ok",
                "errors": [error_json(error) for error in errors.get(file, ())],
            }
            for file in files
        ]
        status = "error" if any(errors.values()) else "ok"
        print_json({"status": status, "files": listed})
        return
    for file in files:
        if file not in errors:
            click.echo(f"SKIP  {file}: its schema does not compile")
        elif not errors[file]:
            click.echo(f"OK    {file}")
        for error in errors.get(file, ()):
            click.echo(f"ERROR {error.render()}")


def error_json(error: CompileError) -> dict[str, object]:
    """A compile error as JSON, without null members."""
    members: dict[str, object | None] = {
        "code": error.code,
        "diagnostic": error.diagnostic,
        "message": error.message,
        "span": list(error.span) if error.span else None,
        "line": error.location.line if error.location else None,
        "column": error.location.column if error.location else None,
        "hint": error.hint,
    }
    return {name: value for name, value in members.items() if value is not None}


@click.command()
@click.argument("paths", nargs=-1, type=_ANY, metavar="[FILE|DIR|-]...")
@click.option("--check", "check_only", is_flag=True, help="Change nothing; exit with 1 if a file would change.")
@click.option("--language", type=click.Choice(["pg", "gq"]), help="Language of standard input, if the file is '-'.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def fmt(paths: tuple[Path, ...], check_only: bool, language: str | None, as_json: bool) -> None:
    """Format schemas and queries. Keeps comments.

    Replaces files atomically. '-' formats standard input to standard output. A file that does not parse is reported and
    left unchanged, and the exit code is 1.
    """
    if not paths:
        raise click.UsageError("name a file or a directory, or '-' for standard input")
    if paths == (Path("-"),):
        _format_stdin(language, check_only, as_json)
        return
    outcomes: list[tuple[Path, str, CompileError | None]] = []
    for path in source_files(paths):
        before = read_bytes(path)
        try:
            after = _format(before, path.suffix[1:], str(path))
        except CompileError as error:
            outcomes.append((path, "error", error))
            continue
        changed = after.encode() != before
        if changed and not check_only:
            replace_text(path, after)
        outcomes.append((path, "changed" if changed else "unchanged", None))
    _report_format(outcomes, check_only, as_json)
    if any(status == "error" or (check_only and status == "changed") for _, status, _ in outcomes):
        raise SystemExit(1)


def _format_stdin(language: str | None, check_only: bool, as_json: bool) -> None:
    if language is None:
        raise click.UsageError("standard input has no file name: give --language pg or --language gq")
    if as_json and not check_only:
        raise click.UsageError("--json needs --check, because standard output receives the formatted text")
    before = read_stdin()
    after = _format(before, language, "<stdin>")
    if not check_only:
        write_data(after)
        return
    changed = after.encode() != before
    _report_format([(Path("<stdin>"), "changed" if changed else "unchanged", None)], check_only, as_json)
    if changed:
        raise SystemExit(1)


def _format(text: bytes, language: str, name: str) -> str:
    from omnigraph.lang.query import format_queries
    from omnigraph.lang.schema import format_schema

    return format_schema(text, name) if language == "pg" else format_queries(text, name)


def _report_format(outcomes: Sequence[tuple[Path, str, CompileError | None]], check_only: bool, as_json: bool) -> None:
    if as_json:
        listed = []
        for path, status, error in outcomes:
            entry: dict[str, object] = {"path": str(path), "status": status}
            listed.append(entry if error is None else entry | {"error": error_json(error)})
        print_json({"check": check_only, "files": listed})
        return
    for path, status, error in outcomes:
        if error is not None:
            click.echo(error.render(), err=True)
        elif status == "changed":
            click.echo(f"{'would format' if check_only else 'formatted'} {path}")
    changed = sum(status == "changed" for _, status, _ in outcomes)
    verb = "would change" if check_only else "changed"
    click.echo(f"{counted(len(outcomes), 'file')}, {changed} {verb}")
