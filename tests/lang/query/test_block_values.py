"""`exists { … }` and `count { … }`: scopes, types, lint and format."""

from __future__ import annotations

import pytest
from tests.lang.fixtures import nursery
from tests.lang.query.checking import compiled

from omnigraph.errors import TypeCheckError
from omnigraph.lang.query import describe, format_queries, ir, lint_queries


def read(text: str, params: str = "") -> ir.Read:
    body = compiled(text, params).body
    assert isinstance(body, ir.Read)
    return body


def test_a_block_knows_the_outer_variables_that_it_uses() -> None:
    (value,) = read("match { $a: Accession  $a isA $s  exists { $b isA $s  $b != $a } } return { $a }").match.values
    assert value.block.outer == ("a", "s")
    assert [node.name for node in value.block.nodes] == ["b"]


def test_a_nested_block_reaches_through_the_block_around_it() -> None:
    body = read("match { $s: Species  exists { $a isA $s  count { $b isA $s  $b != $a } > 1 } } return { $s }")
    (outer,) = body.match.values
    (inner,) = outer.block.values
    assert (outer.block.outer, inner.block.outer) == (("s",), ("a", "s"))


def test_values_are_never_null() -> None:
    body = read("match { $s: Species } return { count { $_ isA $s } as n, (exists { $_ isA $s }) as e }")
    assert [column.expr.type for column in body.columns] == [ir.I64, ir.BOOL]


def test_a_parameter_in_a_block_is_used() -> None:
    report = lint_queries(
        "query q($n: F64) { match { $s: Species  exists { $a isA $s  $a.grams > $n } } return { $s } }", nursery()
    )
    assert "L202" not in {finding.code for finding in report.findings}


def test_variables_of_a_block_are_not_visible_outside() -> None:
    with pytest.raises(TypeCheckError) as raised:
        read("match { $s: Species  exists { $a isA $s } } return { $a }")
    assert raised.value.hint == "variables of an 'exists' block are not visible outside of the block"


def test_two_blocks_may_use_the_same_name() -> None:
    text = "match { $s: Species  exists { $x isA $s }  exists { $x isA $s } or count { $x isA $s } > 2 } return { $s }"
    assert len(read(text).match.values) == 3


def test_a_block_connects_its_outer_variables() -> None:
    text = "query q() {{ match {{ $s: Species  $g: Garden  {} }} return {{ $s, $g }} }}"
    joined = text.format("exists { $a isA $s  $a grownIn $g } or $s.frost_min > 3")
    apart = text.format("exists { $a isA $s } or $s.frost_min > 3")
    found = [{f.code for f in lint_queries(query, nursery()).findings} for query in (joined, apart)]
    assert ["L204" in codes for codes in found] == [False, True]


def test_products_inside_a_block_are_found() -> None:
    text = "query q() { match { $s: Species  exists { $a isA $s  $g: Garden } } return { $s } }"
    assert "L204" in {finding.code for finding in lint_queries(text, nursery()).findings}


def test_types_of_a_block_are_read() -> None:
    query = compiled("match { $s: Species  exists { $a isA $s } } return { $s }")
    assert ("edge", "IsA") in {(ref.kind, ref.type_name) for ref in describe(query, nursery()).reads}


def test_comments_inside_a_block_are_kept() -> None:
    text = "query q() { match { $s: Species exists { $a isA $s // why\n $a.grams > 1 } } return { $s } }"
    formatted = format_queries(text)
    assert "// why" in formatted
    assert format_queries(formatted) == formatted
