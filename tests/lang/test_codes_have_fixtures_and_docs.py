"""Every diagnostic code has texts that trigger it, texts that almost trigger it, and a row in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lang.fixtures import ROOT, UPDATE, Case, cases, compare_case, render

from omnigraph.lang.codes import all_codes

CODES = ROOT / "codes"
FILES = sorted(CODES.glob("*.txt"))
REFERENCE = Path(__file__).resolve().parents[2] / "docs/reference/diagnostics.md"

RESERVED = {"OG-DS-101", "OG-DS-105", "OG-BC-103"}
"""Codes that no text can trigger, listed so that the list stays short."""


def test_every_code_has_a_fixture() -> None:
    emitted = {code for code, diagnostic in all_codes().items() if not diagnostic.reserved}
    assert emitted == {file.stem for file in FILES}


def test_reserved_codes_are_listed() -> None:
    assert {code for code, diagnostic in all_codes().items() if diagnostic.reserved} == RESERVED


def test_every_code_is_documented() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    documented = [line.split("`")[1] for line in rows]
    assert sorted(documented) == sorted(all_codes())


def test_documentation_and_registry_agree() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    for diagnostic in all_codes().values():
        line = next(line for line in page.splitlines() if line.startswith(f"| `{diagnostic.code}`"))
        assert diagnostic.summary in line
        assert diagnostic.tier is None or f"| {diagnostic.tier} |" in line
        assert f"| {'reserved' if diagnostic.reserved else diagnostic.severity.value} |" in line


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_fixtures_trigger_their_code_and_near_misses_do_not(file: Path) -> None:
    found = {case.stem: case for case in cases(file)}
    triggers = [case for stem, case in found.items() if stem.startswith("trigger")]
    near_misses = [case for stem, case in found.items() if stem.startswith("near")]
    assert triggers
    assert near_misses
    assert len(triggers) + len(near_misses) == len(found)
    for case in triggers:
        _check_trigger(case, file.stem)
    for case in near_misses:
        rendered = render(case)
        assert file.stem not in rendered.codes, case.stem
        # A text that fails for another reason does not test this code.
        assert "error: " not in rendered.text, case.stem


def _check_trigger(case: Case, code: str) -> None:
    rendered = render(case)
    assert code in rendered.codes
    compare_case(case, rendered.text)


def test_a_run_that_rewrites_fixtures_is_not_a_pass() -> None:
    """A run that rewrites the expected texts must not look like a passing run."""
    assert not UPDATE or pytest.skip("UPDATE_FIXTURES is set: expected files were written, read them")
