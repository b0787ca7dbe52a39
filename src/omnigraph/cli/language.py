"""The commands `lint`, `check` and `fmt`."""

# See docs/decisions/0004-check-and-lint-are-two-commands.md

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph.cli.files import read_bytes, read_schema, replace_text, source_files
from omnigraph.cli.output import print_json
from omnigraph.cli.streams import read_stdin, write_data
from omnigraph.errors import CompileError, InputError, SourceText

if TYPE_CHECKING:
    from omnigraph.lang.diagnostics import Finding
    from omnigraph.lang.query import LintReport
    from omnigraph.lang.schema import Catalog

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_ANY = click.Path(exists=True, allow_dash=True, path_type=Path)


@click.command()
@click.option("--schema", "schema_path", type=_FILE, required=True, metavar="FILE", help="Schema file (.pg).")
@click.option("--query", "query_path", type=_FILE, metavar="FILE", help="Query file (.gq).")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def lint(schema_path: Path, query_path: Path | None, as_json: bool) -> None:
    """Report errors and likely mistakes in queries.

    Without --query, checks the schema. The exit code is 1 if there is an error, but not for warnings and remarks.
    """
    from omnigraph.lang.query import lint_queries
    from omnigraph.lang.schema import compile_schema

    text = read_schema(schema_path)
    catalog = compile_schema(text, str(schema_path))
    if query_path is None:
        _lint_schema(catalog, text, schema_path, as_json)
        return
    report = lint_queries(read_bytes(query_path), catalog, str(query_path))
    if as_json:
        source = {"kind": "file", "path": str(schema_path)}
        print_json(report.to_json(source, str(query_path)))
    else:
        _print_report(report)
    if report.errors:
        raise SystemExit(1)


def _lint_schema(catalog: Catalog, text: bytes, path: Path, as_json: bool) -> None:
    from omnigraph.lang.schema import lint_schema
    from omnigraph.lang.tokens import read_source

    findings = lint_schema(catalog)
    if as_json:
        report = {
            "status": "ok",
            "schema_source": {"kind": "file", "path": str(path)},
            "errors": 0,
            **_counts(findings),
            "findings": [finding.to_json() for finding in findings],
        }
        print_json(report)
        return
    _print_findings(findings, read_source(text, str(path)))
    counts = _counts(findings)
    types = f"{_plural(len(catalog.nodes), 'node type')}, {_plural(len(catalog.edges), 'edge type')}"
    click.echo(f"{types}: {_plural(counts['warnings'], 'warning')}, {_plural(counts['infos'], 'remark')}")


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
        f"{_plural(len(report.results), 'query', 'queries')}: {_plural(report.errors, 'error')}, "
        f"{_plural(report.warnings, 'warning')}, {_plural(report.infos, 'remark')}"
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


def _plural(count: int, noun: str, nouns: str | None = None) -> str:
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[FILE|DIR]...")
@click.option("--schema", "schema_path", type=_FILE, metavar="FILE", help="Schema to check the queries against.")
@click.option("--query", "queries", type=_FILE, multiple=True, metavar="FILE", help="Same as a FILE argument.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def check(paths: tuple[Path, ...], schema_path: Path | None, queries: tuple[Path, ...], as_json: bool) -> None:
    """Compile schemas and queries, and report every error.

    A file that does not parse has one error. For each query, only its first error is reported. Queries are checked
    against --schema, or against the only schema among the files. The exit code is 1 if a file does not compile.
    """
    from omnigraph.lang.schema import check_schema, compile_schema

    named = [*paths, *queries]
    if schema_path is not None:
        read_schema(schema_path)
    if not named and schema_path is None:
        raise click.UsageError("name a file or a directory to check")
    files = source_files([*named, *([schema_path] if schema_path and schema_path not in named else [])])
    schemas = [file for file in files if file.suffix == ".pg"]
    errors = {file: check_schema(read_bytes(file), str(file)) for file in schemas}
    texts = [file for file in files if file.suffix == ".gq"]
    if texts:
        against = schema_path or (schemas[0] if len(schemas) == 1 else None)
        if against is None:
            found = "none was given" if not schemas else f"{len(schemas)} were given"
            raise InputError(f"queries need one schema, but {found}", hint="add --schema FILE")
        if not errors[against]:
            catalog = compile_schema(read_bytes(against), str(against))
            errors |= {file: _query_errors(file, catalog) for file in texts}
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
    click.echo(f"{_plural(len(outcomes), 'file')}, {changed} {verb}")
