"""Syntax of other languages gets a hint with the syntax of this one."""

from __future__ import annotations

import pytest
from tests.lang.fixtures import nursery

from omnigraph.errors import CompileError
from omnigraph.lang.query import compile_query, parse_queries
from omnigraph.lang.schema import compile_schema

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
        ('match { $s: Species } where $s.taxon = "a" return { $s }', "write the condition into 'match { … }'"),
        ("match { $s: Species } return { $s.label, count($s) as n } group by label", "rows are grouped by"),
        ("match { $s: Species } return { $s.label, count($s) as n } having n > 1", "write having { … }"),
        ("match { $s: Species } return { $s.taxon as t } order t", "write order { … }"),
        ("match { $s: Species } return { $s.taxon as t } order { t descending }", "write 'desc'"),
        ("match { $s: Species } return { * }", "$name.* returns all properties"),
        ("match { $s: Species } return { $s.traits[0] }", "a query cannot select one item of a list"),
        ('match { $s: Species } return { $s.taxon as "the taxon" }', "a column name begins with"),
        ("match { (s:Species) } return { s.taxon }", "a node is written without parentheses: $s: Type"),
        ("match { ($s:Species) } return { $s.taxon }", "a node is written without parentheses: $s: Type"),
        ("match { $s: Species } return $s.taxon", "write return { … }"),
        ("match { $s: Species } return distinct $s.taxon", "write return distinct { … }"),
        ("match { $s: Species } with $s match { $a isA $s } return { $a }", "write with { … }"),
        ("match { $s: Species return { $s.taxon } }", "'match { … }' ends with } before 'return'"),
        ("match { $a: Accession -[:IsA]-> $s } return { $s }", "a traversal names its edge"),
        ('match { $s: Species  $s.taxon in ("a", "b") } return { $s }', "a list is written in brackets"),
        ('match { $s: Species  $s.taxon in ("a") } return { $s }', "a list is written"),
        ('match { $s: Species  $s.taxon like "a%" } return { $s }', "compare it: "),
        ("match { $a: Accession  $a.collected > 2026-03-14 } return { $a }", "a date is written date("),
        ("match { $s: Species } return { toUpper($s.taxon) as t }", "did you mean 'upper'?"),
        ("match { $s: Species } return { size($s.taxon) as t }", "did you mean 'length'?"),
        ("match { $s: Species } return { substring($s.taxon, 1, 2) as t }", "known: count, sum"),
        ("match { $a: Accession  $b: Accession } return { shortestPath($a, $b) as p }", "a clause of 'match' finds"),
        ("match { $s: Species } return { case when true then 1 end as t }", "there are no conditional expressions"),
        ("match { $a: Accession  $a derivedFrom{1..3} $b } return { $b }", "write {1,3}"),
        ("match { $a: Accession  $a derivedFrom{3,1} $b } return { $b }", "write {1,3}"),
        ("match { $a: Accession } return { date_diff($a.collected, now()) as d }", "write date_diff(unit, start, end)"),
        ("upsert Species { taxon: $t }", "did you mean 'insert'?"),
        ("delete Species", "a condition is required"),
        ('insert Species (taxon) values ("a")', "write insert Species { name: value }"),
        ('update Species { taxon: "a" }', "write update Species set { name: value } where …"),
    ],
)
def test_syntax_of_other_languages_gets_a_hint(body: str, help_: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_query(f"query q() {{ {body} }}", nursery())
    assert (caught.value.hint or "").startswith(help_)


@pytest.mark.parametrize(
    ("text", "help_"),
    [
        ("mtach { $s: Species } return { $s }", "did you mean 'match'?"),
        ("SELECT * FROM Species", "a query looks like this: query adults()"),
        ("match { $s: Species } return { $s }", "a query looks like this: query adults()"),
        ("node Species { taxon: String }", "this is a schema"),
        (
            "query all { match { $s: Species } return { $s } }",
            "a query has parentheses, also without parameters: all()",
        ),
        ("query all(least: I32) { match { $s: Species } return { $s } }", "write $least"),
    ],
)
def test_a_file_that_begins_with_something_else_gets_a_hint(text: str, help_: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse_queries(text)
    assert (caught.value.hint or "").startswith(help_)


@pytest.mark.parametrize(
    ("schema", "help_"),
    [
        ("node P { age: I32? @range(0..1000) }", "name the property: @range(age, 0..100)"),
        ("type P { age: I32? }", "write node Name { … }"),
        ("enum State { on off }", "the values are written at the property"),
        ("CREATE TABLE p (x int)", "a schema looks like this"),
        ("relationship Knows: P -> P", "write edge Name: A -> B"),
        ("node P { age: I32 = 3 }", "a default is written @default(3)"),
        ("query q() { match { $p: P } return { $p } }", "a schema has no variables; is this a query?"),
        ("query q() { delete P where age = 3 }", "this is a query"),
    ],
)
def test_schemas_of_other_languages_get_a_hint(schema: str, help_: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_schema(schema)
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
