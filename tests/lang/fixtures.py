"""Fixture directories: texts beside what the languages make of them.

A case is a group of files that share what stands before the first dot (`trigger.pg`, or `trigger.from.pg` and
`trigger.to.pg`). Their suffixes say how it is rendered. `UPDATE_FIXTURES=1 pytest` writes the expected files anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from omnigraph.errors import CompileError
from omnigraph.lang.diagnostics import Finding
from omnigraph.lang.query import LintReport, lint_queries
from omnigraph.lang.schema import (
    Catalog,
    accept,
    check_contract,
    check_schema,
    compile_schema,
    lint_schema,
    load_ir,
    plan,
)

ROOT = Path(__file__).resolve().parents[1] / "fixtures"
UPDATE = bool(os.environ.get("UPDATE_FIXTURES"))
DOMAIN = "01J00000000000000000000000"


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a case makes: the text that people see, and the codes in it."""

    text: str
    codes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Case:
    """Files of one directory with one stem, by suffix (`.pg`, `.from.pg`)."""

    stem: str
    directory: Path
    suffixes: frozenset[str]

    def read(self, suffix: str) -> bytes:
        return (self.directory / f"{self.stem}{suffix}").read_bytes()

    def name(self, suffix: str) -> str:
        return f"{self.stem}{suffix}"

    @property
    def expected(self) -> Path:
        return self.directory / f"{self.stem}.expected"


def cases(directory: Path) -> Iterator[Case]:
    """The cases of a directory, by stem."""
    groups: dict[str, set[str]] = {}
    for path in directory.iterdir():
        stem, dot, rest = path.name.partition(".")
        if rest != "expected":
            groups.setdefault(stem, set()).add(dot + rest)
    for stem, suffixes in sorted(groups.items()):
        yield Case(stem, directory, frozenset(suffixes))


def compare(path: Path, actual: str) -> None:
    """Fail unless the expected file says exactly this, or write it when asked to."""
    if UPDATE:
        path.write_text(actual, encoding="utf-8", newline="")
    assert path.is_file(), f"{path} is missing; run UPDATE_FIXTURES=1 pytest and read what it wrote"
    assert path.read_text(encoding="utf-8") == actual


def render(case: Case) -> Rendered:
    """What a case makes, by the kind of its files."""
    renderer = RENDERERS.get(case.suffixes)
    if renderer is None:
        pytest.fail(f"{case.directory}: nothing renders {sorted(case.suffixes)}")
    return renderer(case)


def _schema(case: Case) -> Rendered:
    """All errors of a schema, or what lint has to say when there are none."""
    text, name = case.read(".pg"), case.name(".pg")
    errors = check_schema(text, name)
    if errors:
        codes = frozenset(error.diagnostic for error in errors if error.diagnostic)
        return Rendered("\n\n".join(error.render() for error in errors) + "\n", codes)
    findings = lint_schema(compile_schema(text, name))
    lines = [f"{finding.severity.value} {finding.code}: {finding.message}\n" for finding in findings]
    return Rendered("".join(lines), frozenset(finding.code for finding in findings))


def _change(case: Case) -> Rendered:
    accepted = accept(compile_schema(case.read(".from.pg"), case.name(".from.pg")), DOMAIN)
    result = plan(accepted, compile_schema(case.read(".to.pg"), case.name(".to.pg")))
    codes = frozenset(step.code for step in result.steps if step.code)
    return Rendered("\n".join(result.lines()) + "\n", codes)


def _one_error(load: Callable[[], object]) -> Rendered:
    try:
        load()
    except CompileError as error:
        return Rendered(error.render() + "\n", frozenset({error.diagnostic or ""}))
    return Rendered("", frozenset())


def _stored(case: Case) -> Rendered:
    return _one_error(lambda: load_ir(case.read(".ir.json")))


def _contract(case: Case) -> Rendered:
    return _one_error(lambda: check_contract(case.read(".pg"), case.read(".ir.json"), case.read(".state.json")))


@cache
def nursery() -> Catalog:
    """The schema that queries are checked against when none stands beside them."""
    return compile_schema((ROOT / "nursery.pg").read_bytes(), "nursery.pg")


def _queries(case: Case) -> Rendered:
    """All errors of a query file and what lint has to say."""
    own = ".pg" in case.suffixes
    catalog = compile_schema(case.read(".pg"), case.name(".pg")) if own else nursery()
    report = lint_queries(case.read(".gq"), catalog, case.name(".gq"))
    if report.parse_error is not None:
        return Rendered(f"{report.findings[0].code}\n{report.parse_error.render()}\n", frozenset({"Q000"}))
    errors = [result.error for result in report.results if result.error is not None]
    blocks = [error.render() for error in errors] + [_finding(finding, report) for finding in report.findings]
    codes = {error.diagnostic or "" for error in errors} | {finding.code for finding in report.findings}
    return Rendered("\n\n".join(blocks) + "\n" if blocks else "", frozenset(codes))


def _finding(finding: Finding, report: LintReport) -> str:
    line = f"{finding.severity.value} {finding.code}: {finding.message}"
    if finding.span is None or report.source is None:
        return line
    return f"{line}\n{report.source.excerpt(finding.span)}"


RENDERERS: dict[frozenset[str], Callable[[Case], Rendered]] = {
    frozenset({".pg"}): _schema,
    frozenset({".from.pg", ".to.pg"}): _change,
    frozenset({".ir.json"}): _stored,
    frozenset({".pg", ".ir.json", ".state.json"}): _contract,
    frozenset({".gq"}): _queries,
    frozenset({".gq", ".pg"}): _queries,
}
