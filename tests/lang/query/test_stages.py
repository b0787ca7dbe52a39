"""Stages: what goes on, what ends, types, lint and descriptions."""

from __future__ import annotations

import pytest
from tests.lang.fixtures import nursery
from tests.lang.query.checking import compiled

from omnigraph.errors import CompileError
from omnigraph.lang.query import describe, ir, lint_queries
from omnigraph.lang.types import Scalar, ValueType


def read(text: str, params: str = "") -> ir.Read:
    body = compiled(text, params).body
    assert isinstance(body, ir.Read)
    return body


def test_variables_and_values_go_on() -> None:
    body = read(
        "match { $a $e:isA $s } with { $s, $e, count($a) as n } match { $b isA $s  $b.grams > n } return { $e.id }"
    )
    (stage,) = body.stages
    assert stage.carried == ("s", "e")
    assert [column.name for column in stage.values] == ["n"]
    assert body.match.outer == ("n", "s")
    assert [node.name for node in body.match.nodes] == ["b"]


def test_a_variable_that_goes_on_stays_nullable() -> None:
    body = read("match { $a: Accession  optional { $a isA $s } } with { $a, $s } return { $s.taxon }")
    assert body.columns[0].expr.type.nullable


def test_types_of_values() -> None:
    body = read("match { $a isA $s } with { $s, avg($a.grams) as m, collect($s.taxon) as all } return { m, all }")
    assert [column.expr.type for column in body.columns] == [
        ir.F64.with_nullable(True),
        ValueType(Scalar.STRING, list=True),
    ]


def test_a_column_wins_over_a_value_of_the_same_name() -> None:
    body = read("match { $a isA $s } with { $s, count($a) as n } return { n + 1 as n, n as m }")
    assert isinstance(body.columns[1].expr, ir.Column)


def test_a_match_may_be_left_out() -> None:
    body = read("match { $a isA $s } with { $s, count($a) as n } with { max(n) as most } return { most }")
    assert [stage.read.match.nodes for stage in body.stages][1] == ()
    assert body.match == ir.Block((), (), ())


def test_an_order_without_written_keys_is_total() -> None:
    body = read("match { $a isA $s } with { $s, $a.grams as g } match { $b isA $s } return { $b.grams }")
    assert [ir.expression(tie) for tie in body.ties] == ["$b.id", "$s.id", "value(g)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("match { $a isA $s } with { $s } return { $a.grams }", "$a ended at 'with'"),
        (
            "match { $a isA $s } with { $s } match { exists { $b isA $s  $b != $a } } return { $s }",
            "$a ended at 'with'",
        ),
        ("match { $a isA $s } with { $s, 1 as x } return { $x }", "x is a value, not a variable"),
        (
            "match { $a isA $s } with { $s, count($a) as n } having { $s.frost_min > 1 } return { n }",
            "'having' can use",
        ),
        ("match { $a isA $s } with { $s } having { $s.frost_min > 1 } return { $s }", "'having' filters groups"),
    ],
)
def test_what_ends_is_named(text: str, message: str) -> None:
    with pytest.raises(CompileError, match=message.replace("$", "[$]")):
        read(text)


def test_all_stages_are_described_and_linted() -> None:
    query = compiled("match { $a isA $s } with { $a } match { $a grownIn $g } return { $g.code }")
    assert {ref.type_name for ref in describe(query, nursery()).reads} >= {"IsA", "GrownIn", "Garden", "Species"}
    text = "query q() { match { $a: Accession  $a.grams > 1 } with { $a } return { $a.grams } }"
    codes = [finding.code for finding in lint_queries(text, nursery()).findings]
    assert "L206" in codes


def test_a_parameter_of_a_stage_is_used() -> None:
    text = "query q($n: I64, $m: I64) { match { $s: Species } with { $s, $m as m } limit $n return { $s.taxon, m } }"
    assert "L202" not in [finding.code for finding in lint_queries(text, nursery()).findings]
