"""Every grammar production: texts it accepts, with their canonical form, and texts it rejects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.lang.fixtures import ROOT, Case, cases, compare_case

from omnigraph.errors import ParseError
from omnigraph.lang.query import format_queries, parse_queries, print_queries

GRAMMAR = ROOT / "grammar/gq"
FILES = sorted(GRAMMAR.glob("*.txt"))
CASES = [case for file in FILES for case in cases(file)]

PRODUCTIONS = {
    # files, queries and parameters
    *("query_file", "query", "note", "params", "param", "param_type", "enum_of", "default"),
    # reads
    *("read", "stages", "stage", "distinct", "clause", "negation", "optional", "pattern", "matcher", "value"),
    *("traversal", "shortest", "edge_var", "either_way", "edges", "edge_word", "hops", "filter", "text_clause"),
    *("projection", "alias", "having", "order", "sort", "nulls", "limit", "offset"),
    # expressions
    *("expr", "disjunction", "conjunction", "inversion", "op", "cmp", "membership", "null_test", "sum", "product"),
    *("minus", "access", "now", "nearest", "search", "fuzzy", "match_text", "bm25", "rrf", "aggregate", "call"),
    *("option", "block_value"),
    # writes
    *("write", "statement", "insert", "create", "merge", "kind", "update", "delete", "assign", "predicate"),
    # literals and tokens
    *("literal", "list", "Scalar", "Bool", "Null", "Var", "TypeName", "Name", "Int", "Float", "String"),
}


PAGE = Path(__file__).resolve().parents[3] / "docs/reference/query-grammar.md"


def test_the_grammar_page_has_every_production() -> None:
    block = PAGE.read_text(encoding="utf-8").split("```peg\n")[1].split("```")[0]
    assert set(re.findall(r"^(\w+) *:=", block, re.MULTILINE)) == PRODUCTIONS


def test_every_production_has_fixtures() -> None:
    assert {file.stem for file in FILES} == PRODUCTIONS
    for file in FILES:
        stems = [case.stem for case in cases(file)]
        assert any(stem.startswith("accept") for stem in stems), file.stem
        assert any(stem.startswith("reject") for stem in stems), file.stem
        assert all(stem.startswith(("accept", "reject")) for stem in stems), file.stem


@pytest.mark.parametrize("case", [c for c in CASES if c.stem.startswith("accept")], ids=lambda case: case.id)
def test_accepted_texts_have_their_canonical_form(case: Case) -> None:
    text = case.read(".gq")
    tree = parse_queries(text)
    formatted = format_queries(text)
    compare_case(case, formatted)
    assert parse_queries(print_queries(tree)) == tree
    assert parse_queries(formatted) == tree
    assert format_queries(formatted) == formatted


@pytest.mark.parametrize("case", [c for c in CASES if c.stem.startswith("reject")], ids=lambda case: case.id)
def test_rejected_texts_have_the_expected_error(case: Case) -> None:
    with pytest.raises(ParseError) as raised:
        parse_queries(case.read(".gq"), case.name(".gq"))
    compare_case(case, raised.value.render() + "\n")
