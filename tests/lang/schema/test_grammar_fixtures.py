"""Every production of the grammar: texts that follow it, with their canonical form, and texts that do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.lang.fixtures import ROOT, Case, cases, compare

from omnigraph.errors import ParseError
from omnigraph.lang.schema import format_schema, parse_schema, print_schema

GRAMMAR = ROOT / "grammar/pg"
PAGE = Path(__file__).resolve().parents[3] / "docs/reference/schema-grammar.md"
DIRECTORIES = sorted(GRAMMAR.iterdir())
CASES = [case for directory in DIRECTORIES for case in cases(directory)]


def _id(case: Case) -> str:
    return f"{case.directory.name}/{case.stem}"


def test_every_production_has_fixtures() -> None:
    block = PAGE.read_text(encoding="utf-8").split("```peg\n")[1].split("```")[0]
    productions = re.findall(r"^(\w+) *:=", block, re.MULTILINE)
    assert {directory.name for directory in DIRECTORIES} == set(productions)
    for directory in DIRECTORIES:
        stems = [case.stem for case in cases(directory)]
        assert any(stem.startswith("accept") for stem in stems), directory.name
        assert any(stem.startswith("reject") for stem in stems) or directory.name in ("schema",), directory.name


@pytest.mark.parametrize("case", [c for c in CASES if c.stem.startswith("accept")], ids=_id)
def test_accepted(case: Case) -> None:
    text = case.read(".pg")
    tree = parse_schema(text)
    compare(case.expected, format_schema(text))
    assert parse_schema(print_schema(tree)) == tree
    assert parse_schema(format_schema(text)) == tree


@pytest.mark.parametrize("case", [c for c in CASES if c.stem.startswith("reject")], ids=_id)
def test_rejected(case: Case) -> None:
    with pytest.raises(ParseError) as raised:
        parse_schema(case.read(".pg"), case.name(".pg"))
    compare(case.expected, raised.value.render() + "\n")
