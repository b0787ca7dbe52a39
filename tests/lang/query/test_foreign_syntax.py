"""Syntax of other languages gets a hint with the syntax of this one."""

from __future__ import annotations

import pytest
from tests.lang.fixtures import nursery

from omnigraph.errors import CompileError
from omnigraph.lang.query import compile_query, parse_queries

COMMENTS = "comments begin with // or are enclosed in /* */"


@pytest.mark.parametrize(
    ("body", "help_"),
    [
        ("match { $s: Species } return { $s.taxon } order by $s.taxon", "write order { … }"),
        ("match { $s: Species } return { $s.taxon } skip 3", "write 'offset'"),
        ("match { $s: Species } return { $s.taxon } LIMIT 3", "write 'limit'"),
        ("match { $s: Species } return { $s.taxon } order { $s.taxon DESC }", "write 'desc'"),
        ('match { $s: Species  $s.taxon = "a" AND $s.label = "b" } return { $s }', "write 'and'"),
        ('match { $s: Species  $s.taxon CONTAINS "a" } return { $s }', "write 'contains'"),
        ("match { $s: Species  -- all of them\n } return { $s }", COMMENTS),
        ("match { $a: Accession  $a derivedFrom{3} $b } return { $b }", "write {3,3}"),
        ("match { $a: Accession  not $a isA $s } return { $a }", "write not { … }"),
        ("match { $s: Species } return { $s.taxon as x } order { $x }", "x is a column: write x"),
        ("match { $s: Species } return { $s.label, count(*) as n } order { $n }", "n is a column: write n"),
    ],
)
def test_syntax_of_other_languages_gets_a_hint(body: str, help_: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_query(f"query q() {{ {body} }}", nursery())
    assert (caught.value.hint or "").startswith(help_)


def test_an_sql_comment_before_the_first_query_gets_a_hint() -> None:
    with pytest.raises(CompileError) as caught:
        parse_queries("-- people\nquery q() { match { $s: Species } return { $s } }")
    assert caught.value.hint == COMMENTS


@pytest.mark.parametrize(
    "clauses",
    [
        "not $flag  $s.label = $s.taxon",
        "not $flag  optional { $a isA $s }",
        "not $flag  shortest $way: $s isA{1,1} $_",
        "not $text contains $text",
        "--abs($s.frost_min) > 3.0",
    ],
)
def test_valid_syntax_that_looks_similar_is_accepted(clauses: str) -> None:
    parse_queries(f"query q($flag: Bool, $text: String) {{ match {{ $s: Species  {clauses} }} return {{ $s }} }}")
