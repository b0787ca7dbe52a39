"""Every grammar production: texts it accepts, with their canonical form, and texts it rejects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.lang.fixtures import ROOT, Case, cases, compare_case

from omnigraph.errors import ParseError
from omnigraph.lang.schema import format_schema, parse_schema, print_schema

GRAMMAR = ROOT / "grammar/pg"
PAGE = Path(__file__).resolve().parents[3] / "docs/reference/schema-grammar.md"
FILES = sorted(GRAMMAR.glob("*.txt"))
CASES = [case for file in FILES for case in cases(file)]


def test_every_production_has_fixtures() -> None:
    block = PAGE.read_text(encoding="utf-8").split("```peg\n")[1].split("```")[0]
    productions = re.findall(r"^(\w+) *:=", block, re.MULTILINE)
    assert {file.stem for file in FILES} == set(productions)
    for file in FILES:
        stems = [case.stem for case in cases(file)]
        assert any(stem.startswith("accept") for stem in stems), file.stem
        assert any(stem.startswith("reject") for stem in stems) or file.stem in ("schema",), file.stem


@pytest.mark.parametrize("case", [c for c in CASES if c.stem.startswith("accept")], ids=lambda case: case.id)
def test_accepted_texts_have_their_canonical_form(case: Case) -> None:
    text = case.read(".pg")
    tree = parse_schema(text)
    compare_case(case, format_schema(text))
    assert parse_schema(print_schema(tree)) == tree
    assert parse_schema(format_schema(text)) == tree


@pytest.mark.parametrize("case", [c for c in CASES if c.stem.startswith("reject")], ids=lambda case: case.id)
def test_rejected_texts_have_the_expected_error(case: Case) -> None:
    with pytest.raises(ParseError) as raised:
        parse_schema(case.read(".pg"), case.name(".pg"))
    compare_case(case, raised.value.render() + "\n")
