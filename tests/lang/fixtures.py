"""Fixture files: input texts with the output that the languages must give for them.

One file per diagnostic code (`codes/T18.txt`) or grammar production (`grammar/gq/hops.txt`). A file is a list of
sections. A line `=== NAME.SUFFIX` starts a section, and everything up to the next such line is its content:

    === trigger.gq
    query q() { match { $s: Species } return { $s.taxon }
    === trigger.expected
    Q000
    ...

Sections with the same NAME form one case (`trigger.pg`, or `trigger.from.pg` and `trigger.to.pg`). The suffixes select
how the case is rendered, and `NAME.expected` holds the expected text. The files are read as bytes: one case of `Q000`
is invalid UTF-8 on purpose. `UPDATE_FIXTURES=1 pytest` rewrites the expected sections; do not combine it with `-n`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from omnigraph.errors import CompileError
from omnigraph.lang.diagnostics import Finding
from omnigraph.lang.query import LintReport, lint_queries
from omnigraph.lang.schema import Catalog, accept, check_contract, check_schema, compile_schema, lint_schema, load_ir
from omnigraph.lang.schema.migrate import plan

ROOT = Path(__file__).resolve().parents[1] / "fixtures"
UPDATE = bool(os.environ.get("UPDATE_FIXTURES"))
DOMAIN = "01J00000000000000000000000"


HEADER = re.compile(rb"^=== (\w+)(\.[\w.]+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Rendered:
    """The output for a case: the text that a user sees, and the diagnostic codes in it."""

    text: str
    codes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Case:
    """The sections of one fixture file with the same name, by suffix (`.pg`, `.from.pg`)."""

    stem: str
    file: Path
    inputs: dict[str, bytes]
    expected: bytes | None

    @property
    def id(self) -> str:
        return f"{self.file.stem}/{self.stem}"

    @property
    def suffixes(self) -> frozenset[str]:
        return frozenset(self.inputs)

    def read(self, suffix: str) -> bytes:
        return self.inputs[suffix]

    def name(self, suffix: str) -> str:
        return f"{self.stem}{suffix}"


def cases(file: Path) -> Iterator[Case]:
    """The cases of a fixture file, sorted by name."""
    groups: dict[str, dict[str, bytes]] = {}
    for stem, suffix, content in _sections(file):
        parts = groups.setdefault(stem, {})
        assert suffix not in parts, f"{file.name} has the section {stem}{suffix} twice"
        parts[suffix] = content
    for stem, parts in sorted(groups.items()):
        expected = parts.pop(".expected", None)
        yield Case(stem, file, parts, expected)


def _sections(file: Path) -> Iterator[tuple[str, str, bytes]]:
    before, *rest = HEADER.split(file.read_bytes())
    assert not before, f"{file.name} does not start with a section"
    for stem, suffix, content in zip(*[iter(rest)] * 3, strict=True):
        yield stem.decode(), suffix.decode(), content


def compare_case(case: Case, actual: str) -> None:
    """Fail unless the case expects exactly this text. With UPDATE_FIXTURES=1, write it as the expected text instead."""
    content = actual.encode()
    if UPDATE:
        _write_expected(case, content)
        return
    assert case.expected is not None, f"{case.id} expects nothing; run UPDATE_FIXTURES=1 pytest and read what it wrote"
    assert case.expected.decode() == actual


def _write_expected(case: Case, content: bytes) -> None:
    """Replace the expected section of a case, or add it behind the inputs of the case."""
    sections = [section for section in _sections(case.file) if section[:2] != (case.stem, ".expected")]
    last = max(place for place, (stem, _, _) in enumerate(sections) if stem == case.stem)
    sections.insert(last + 1, (case.stem, ".expected", content))
    case.file.write_bytes(b"".join(f"=== {stem}{suffix}\n".encode() + text for stem, suffix, text in sections))


def compare(path: Path, actual: str) -> None:
    """Fail unless a file holds exactly this text. With UPDATE_FIXTURES=1, write it first."""
    if UPDATE:
        path.write_text(actual, encoding="utf-8", newline="")
    assert path.is_file(), f"{path} is missing; run UPDATE_FIXTURES=1 pytest and read what it wrote"
    assert path.read_text(encoding="utf-8") == actual


def render(case: Case) -> Rendered:
    """The output for a case, by the suffixes of its sections."""
    renderer = RENDERERS.get(case.suffixes)
    if renderer is None:
        pytest.fail(f"{case.id}: nothing renders {sorted(case.suffixes)}")
    return renderer(case)


def _schema(case: Case) -> Rendered:
    """All errors of a schema, or its lint findings if there are none."""
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
    """The default schema of query cases: used when a case has no `.pg` section."""
    return compile_schema((ROOT / "nursery.pg").read_bytes(), "nursery.pg")


def _queries(case: Case) -> Rendered:
    """All errors and lint findings of a query file."""
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
