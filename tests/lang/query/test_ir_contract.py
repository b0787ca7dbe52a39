"""The IR states the meaning of each feature of the language, for any executor."""

from __future__ import annotations

import dataclasses
import json
import typing

import pytest
from tests.lang.fixtures import ROOT, nursery
from tests.lang.query.checking import compiled, match, read, refused, steps_of, types_of, write

from omnigraph.errors import InputError
from omnigraph.lang.query import compile_queries, ir
from omnigraph.lang.query.ir import codec, expr, query
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.types import Scalar, ValueType

STRING = ir.STRING
NULLABLE_DATE = ValueType(Scalar.DATE, nullable=True)


# ---- traversals


@pytest.mark.parametrize(
    ("clauses", "direction", "types"),
    [
        # one end bound, asymmetric edge F -> T
        ("$x: Accession  $x grownIn $y", "out", {"x": ("Accession",), "y": ("Garden",)}),
        ("$x: Garden  $x grownIn $y", "in", {"x": ("Garden",), "y": ("Accession",)}),
        ("$y: Garden  $x grownIn $y", "out", {"x": ("Accession",), "y": ("Garden",)}),
        ("$y: Accession  $x grownIn $y", "in", {"x": ("Garden",), "y": ("Accession",)}),
        # both bound
        ("$x: Accession  $y: Garden  $x grownIn $y", "out", {"x": ("Accession",), "y": ("Garden",)}),
        ("$x: Garden  $y: Accession  $x grownIn $y", "in", {"x": ("Garden",), "y": ("Accession",)}),
        # neither bound
        ("$x grownIn $y", "out", {"x": ("Accession",), "y": ("Garden",)}),
        # F = T: left is always the source
        ("$x: Accession  $x derivedFrom $y", "out", {"x": ("Accession",), "y": ("Accession",)}),
        ("$y: Accession  $x derivedFrom $y", "out", {"x": ("Accession",), "y": ("Accession",)}),
        ("$x derivedFrom $y", "out", {"x": ("Accession",), "y": ("Accession",)}),
        # either direction
        ("$x <derivedFrom> $y", "both", {"x": ("Accession",), "y": ("Accession",)}),
        # the word is looked up exactly, then without regard to case
        ("$x grownin $y", "out", {"x": ("Accession",), "y": ("Garden",)}),
    ],
)
def test_the_direction_follows_from_the_known_types(
    clauses: str, direction: str, types: dict[str, tuple[str, ...]]
) -> None:
    block = match(clauses)
    (step,) = block.expands[0].steps
    assert step.direction.value == direction
    assert types_of(block) == types
    assert (step.left_type, step.right_type) == (types["x"][0], types["y"][0])
    assert (block.expands[0].left, block.expands[0].right) == ("x", "y")


@pytest.mark.parametrize("clauses", ["$x: Curator $x grownIn $y", "$y: Curator $x grownIn $y"])
def test_a_type_that_is_neither_endpoint_is_refused(clauses: str) -> None:
    refused(f"match {{ {clauses} }} return {{ 1 }}", "T5")


def test_directions_are_the_same_inside_blocks() -> None:
    block = match("$g: Garden  optional { $g grownIn $a }  not { $g curates $c }")
    assert steps_of(block.optionals[0]) == [("GrownIn", "in")]
    assert steps_of(block.negations[0]) == [("Curates", "in")]


def test_a_pattern_may_follow_the_traversal_that_introduces_its_variable() -> None:
    block = match('$a: Accession  $a grownIn $g  $g: Garden { code: "KEW" }')
    assert types_of(block) == {"a": ("Accession",), "g": ("Garden",)}
    assert len(block.filters) == 1


def test_alternatives_become_steps() -> None:
    block = match("$c: Curator  $c (curates | visit) $g")
    assert steps_of(block) == [("Curates", "out"), ("Visit", "out")]
    assert types_of(block)["g"] == ("Garden",)


def test_alternatives_are_reversed_individually() -> None:
    block = match("$g: Garden  $g (grownIn | curates) $x")
    assert steps_of(block) == [("GrownIn", "in"), ("Curates", "in")]
    assert types_of(block)["x"] == ("Accession", "Curator")


def test_a_star_stands_for_every_possible_edge_type() -> None:
    assert steps_of(match("$c: Curator  $c (*) $x")) == [("Curates", "out"), ("Knows", "out"), ("Visit", "out")]
    assert steps_of(match("$g: Garden  $g (*) $x")) == [("Curates", "in"), ("GrownIn", "in"), ("Visit", "in")]
    assert steps_of(match("$a: Accession  $a <(*)> $x")) == [("DerivedFrom", "both"), ("GraftedOn", "both")]
    both = match("$c: Curator  $g: Garden  $c (*) $g")
    assert steps_of(both) == [("Curates", "out"), ("Visit", "out")]


def test_edges_of_several_hops_keep_their_first_direction() -> None:
    expected = {("Curates", "out"), ("GrownIn", "in"), ("IsA", "out")}
    for words in ("curates | grownIn | isA", "isA | grownIn | curates", "grownIn | isA | curates"):
        assert set(steps_of(match(f"$c: Curator  $c ({words}){{1,3}} $x"))) == expected
    backwards = match("$s: Species  $x (curates | grownIn | isA){1,3} $s")
    assert set(steps_of(backwards)) == expected


def test_the_order_of_alternatives_does_not_change_directions() -> None:
    schema = "node A { k: String @key } node B { k: String @key } node C { k: String @key }"
    catalog = compile_schema(schema + " edge X: C -> B  edge Y: A -> B  edge Z: C -> A")
    found = set()
    for words in ("x | y | z", "z | y | x", "y | x | z"):
        body = read(f"$c: C  $c ({words}){{1,3}} $d", catalog=catalog)
        found.add(frozenset(steps_of(body.match)))
    assert found == {frozenset({("X", "out"), ("Y", "out"), ("Z", "out")})}


@pytest.mark.parametrize(("written", "hops"), [("{1,1}", (1, 1)), ("{2,4}", (2, 4)), ("{3,}", (3, None))])
def test_hop_ranges_have_a_minimum_and_a_maximum(written: str, hops: tuple[int, int | None]) -> None:
    (expand,) = match(f"$a: Accession  $a derivedFrom{written} $b").expands
    assert expand.hops == ir.HopRange(*hops)
    assert expand.edge_var is None


def test_a_traversal_without_a_range_has_no_hops() -> None:
    assert match("$a derivedFrom $b").expands[0].hops is None


def test_an_edge_variable_has_its_types() -> None:
    block = match("$a $e:(derivedFrom | graftedOn) $b")
    assert block.expands[0].edge_var == ir.EdgeVar("e", ("DerivedFrom", "GraftedOn"))
    assert block.expands[0].hops is None


def test_an_anonymous_edge_variable_is_not_bound() -> None:
    assert match("$a $_:derivedFrom $b").expands[0].edge_var is None


def test_an_edge_variable_has_id_endpoints_type_and_properties() -> None:
    body = read("$a $e:(derivedFrom | graftedOn) $b", "$e.id, $e.from, $e.to, type($e), $e.note, $e.method")
    assert [column.expr for column in body.columns[:4]] == [
        ir.Ident("e", ir.Role.ID),
        ir.Ident("e", ir.Role.FROM),
        ir.Ident("e", ir.Role.TO),
        ir.TypeOf("e"),
    ]
    # DerivedFrom.note is nullable, GraftedOn.note is not: together they are nullable.
    assert body.columns[4].expr == ir.Prop("e", "note", STRING.with_nullable(True))


def test_a_traversal_between_bound_variables_is_a_join() -> None:
    block = match("$a derivedFrom $b  $b derivedFrom $a")
    assert [(expand.left, expand.right) for expand in block.expands] == [("a", "b"), ("b", "a")]
    assert len(block.nodes) == 2


def test_both_endpoints_can_be_one_variable() -> None:
    block = match("$a derivedFrom $a")
    assert len(block.nodes) == 1
    assert (block.expands[0].left, block.expands[0].right) == ("a", "a")


def test_shortest_binds_a_path() -> None:
    body = read("$a: Curator  shortest $p: $a knows{1,6} $b", "length($p), nodes($p), edges($p)")
    (expand,) = body.match.expands
    assert (expand.path_var, expand.hops) == ("p", ir.HopRange(1, 6))
    texts = ValueType(Scalar.STRING, list=True)
    assert [column.expr for column in body.columns] == [
        ir.PathValue("p", ir.PathPart.LENGTH, ir.I64),
        ir.PathValue("p", ir.PathPart.NODES, texts),
        ir.PathValue("p", ir.PathPart.EDGES, texts),
    ]


# ---- interfaces


def test_an_interface_is_a_range_of_types() -> None:
    body = read('$x: Labelled { label: "oak" }', "$x.label, type($x), $x.id")
    assert types_of(body.match) == {"x": ("Garden", "Poster", "Species")}
    assert body.columns[1].expr == ir.TypeOf("x")


def test_traversals_narrow_an_interface() -> None:
    assert types_of(match("$x: Labelled  $a isA $x"))["x"] == ("Species",)
    assert steps_of(match("$x: Labelled  $x (isA | grownIn) $a")) == [("IsA", "in"), ("GrownIn", "in")]


def test_several_interfaces_are_intersected() -> None:
    body = read("$x: Labelled  $x: Dated", "$x.label, $x.opened")
    assert types_of(body.match) == {"x": ("Garden",)}
    refused("match { $x: Labelled  $x: Dated } return { $x.area }", "T6")


def test_a_pattern_in_a_block_narrows_types_only_there() -> None:
    body = read('$x: Labelled  not { $x: Species { rank: "genus" } }', "$x.label")
    assert types_of(body.match) == {"x": ("Garden", "Poster", "Species")}
    (inner,) = body.match.negations
    assert inner.nodes == ()
    test, matcher = inner.filters
    names = ir.Const(("Species",), ValueType(Scalar.STRING, list=True))
    assert test == ir.InList(ir.TypeOf("x"), names, False)
    assert isinstance(matcher, ir.Compare)
    refused("match { $x: Labelled  not { $x: Species } } return { $x.rank }", "T6")


def test_an_interface_that_nothing_implements_matches_nothing() -> None:
    body = read("$x: Planned", "$x.title, $x.plan", 'order { nearest($x.plan, "x") } limit 3')
    assert types_of(body.match) == {"x": ()}
    assert body.match.filters == (ir.Const(False, ir.BOOL),)
    assert body.columns[1].expr.type.nullable


# ---- blocks


def test_optional_variables_are_nullable_everywhere() -> None:
    body = read("$a: Accession  optional { $a $e:grownIn $g }", "$g, $g.name, $e.id, $e.since, type($g), $a.serial")
    assert [column.expr.type.nullable for column in body.columns] == [True, True, True, True, True, False]
    assert types_of(body.match) == {"a": ("Accession",)}
    (inner,) = body.match.optionals
    assert types_of(inner) == {"g": ("Garden",)}
    assert inner.outer == ("a",)


def test_an_optional_path_is_nullable() -> None:
    body = read("$a: Curator  optional { shortest $p: $a knows{1,} $b }", "length($p)")
    assert body.columns[0].expr.type.nullable


def test_inside_its_block_an_optional_variable_is_not_null() -> None:
    (inner,) = match('$a: Accession  optional { $a grownIn $g  $g.code = "KEW" }').optionals
    (condition,) = inner.filters
    assert isinstance(condition, ir.Compare)
    assert not condition.left.type.nullable


def test_a_pattern_on_an_optional_variable_requires_it() -> None:
    block = match("$a: Accession  optional { $a grownIn $g }  $g: Garden")
    assert block.filters == (ir.VarIsNull("g", negated=True),)


def test_an_optional_variable_can_be_tested_for_null() -> None:
    (condition,) = match("$a: Accession  optional { $a grownIn $g }  $g is null").filters
    assert condition == ir.VarIsNull("g", negated=False)


def test_later_optional_blocks_see_earlier_ones() -> None:
    block = match("$a: Accession  optional { $a grownIn $g }  optional { $c curates $g }")
    assert block.optionals[1].outer == ("g",)


def test_nested_not_is_correlated_through_every_level() -> None:
    (outer,) = match("$s: Species  not { $a: Accession  not { $a isA $s } }").negations
    assert outer.outer == ("s",)
    (inner,) = outer.negations
    assert inner.outer == ("a", "s")
    assert inner.nodes == ()


def test_variables_of_two_blocks_are_independent() -> None:
    first, second = match("$g: Garden  not { $x grownIn $g }  not { $x curates $g }").negations
    assert types_of(first) == {"x": ("Accession",)}
    assert types_of(second) == {"x": ("Curator",)}


def test_filters_may_precede_the_patterns_of_their_variables() -> None:
    block = match('$g.code = "KEW"  not { $a grownIn $g }  $g: Garden')
    assert len(block.filters) == 1
    assert block.negations[0].outer == ("g",)


def test_a_block_inside_not_sees_outer_variables() -> None:
    (outer,) = match("$a: Accession  not { $a derivedFrom $b  optional { $b grownIn $g }  $g is null }").negations
    assert outer.optionals[0].outer == ("b",)
    assert outer.filters == (ir.VarIsNull("g", negated=False),)


# ---- values


def test_a_scalar_in_a_list_matcher_is_membership() -> None:
    (condition,) = match('$s: Species { traits: "evergreen" }').filters
    assert isinstance(condition, ir.Compare)
    assert condition.op is ir.CompareOp.HAS_ITEM
    (condition,) = match("$s: Species { heights: $h }", "$h: I64").filters
    assert isinstance(condition, ir.Compare)
    assert condition.op is ir.CompareOp.HAS_ITEM


def test_contains_is_an_operator_for_lists_and_one_for_texts() -> None:
    block = match('$s: Species  $s.traits contains "x"  $s.notes contains "x"')
    ops = [condition.op for condition in block.filters if isinstance(condition, ir.Compare)]
    assert ops == [ir.CompareOp.HAS_ITEM, ir.CompareOp.CONTAINS]


@pytest.mark.parametrize(
    ("clause", "node"),
    [
        ("$a != $b", ir.SameEntity("a", "b", True)),
        ("$a = $b", ir.SameEntity("a", "b", False)),
        (
            '$a.garden_code in ["K"]',
            ir.InList(
                ir.Prop("a", "garden_code", STRING),
                ir.Const(("K",), ValueType(Scalar.STRING, list=True)),
                False,
            ),
        ),
        ("$a.collected is not null", ir.IsNull(ir.Prop("a", "collected", NULLABLE_DATE), True)),
        ("not $a.alive", ir.Not(ir.Prop("a", "alive", ir.BOOL))),
        (
            'type($a) ends_with "n"',
            ir.Compare(ir.CompareOp.ENDS_WITH, ir.TypeOf("a"), ir.Const("n", STRING)),
        ),
    ],
)
def test_each_filter_has_its_ir(clause: str, node: ir.Expr) -> None:
    (condition,) = match(f"$a: Accession  $b: Accession  {clause}").filters
    assert condition == node


def test_long_chains_of_or_are_flat() -> None:
    terms = " or ".join(f"$a.serial = {n}" for n in range(500))
    (condition,) = match(f"$a: Accession  {terms}").filters
    assert isinstance(condition, ir.Or)
    assert len(condition.terms) == 500


def test_operators_have_their_precedence() -> None:
    (condition,) = match("$a: Accession  $a.alive or not $a.alive and $a.serial + 2 * 3 = 7").filters
    assert isinstance(condition, ir.Or)
    conjunction = condition.terms[1]
    assert isinstance(conjunction, ir.And)
    assert isinstance(conjunction.terms[0], ir.Not)
    equal = conjunction.terms[1]
    assert isinstance(equal, ir.Compare)
    assert isinstance(equal.left, ir.Arith)
    assert equal.left.op is ir.ArithOp.ADD


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("$a.grams + 1", "I64?"),
        ("$a.serial + 1", "I64"),
        ("$a.serial / 2", "F64?"),
        ("$a.serial % 2", "I64?"),
        ("$a.price * 2", "F64?"),
        ("-$a.grams", "I64?"),
        ('$a.garden_code + "x"', "String"),
        ("coalesce($a.grams, 0)", "I64"),
        ("coalesce($a.grams, $a.price)", "F64?"),
        ("coalesce($a.grams, null, 1.5)", "F64"),
        ("coalesce($a.serial, 0)", "U64"),
        ("coalesce($a.serial, -1)", "I64"),
        ("coalesce($a.serial, $a.grams)", "I64"),
        ("length($a.garden_code)", "I64"),
        ("year($a.collected)", "I64?"),
        ('date_add("day", 1, $a.collected)', "Date?"),
        ('date_diff("day", $a.collected, $a.collected)', "I64?"),
        ("round($a.price, 2)", "F64?"),
        ("$a.grams > 3", "Bool?"),
        ("$a.grams is null", "Bool"),
        ("now()", "DateTime"),
        ("[1, 2.5]", "[F64]"),
        ("[1, 18446744073709551615]", "[U64]"),
        ("18446744073709551615", "U64"),
        ("count(*)", "I64"),
        ("count($a.grams)", "I64"),
        ("sum($a.grams)", "I64?"),
        ("sum($a.price)", "F64?"),
        ("avg($a.grams)", "F64?"),
        ("min($a.collected)", "Date?"),
        ("max($a.alive)", "Bool?"),
        ("collect($a.collected)", "[Date]"),
    ],
)
def test_expressions_have_their_types(expression: str, kind: str) -> None:
    (column,) = read("$a: Accession", f"{expression} as x").columns
    assert str(column.expr.type) == kind


def test_dates_are_numbers_in_the_ir() -> None:
    block = match(
        '$c: Curator  $c.joined > datetime("1970-01-02 01:00:00.5+01:00")  '
        '$a: Accession  $a.collected = date("1970-01-03")'
    )
    values = [c.right.value for c in block.filters if isinstance(c, ir.Compare) and isinstance(c.right, ir.Const)]
    assert values == [86_400_500, 2]


# ---- results


def test_columns_have_default_names() -> None:
    body = read(
        "$a: Accession  $a isA $s",
        '$s.taxon, $s, $p, "x", now(), $a.serial as n, lower($s.label), $a.grams + 1',
        params="$p: String",
    )
    names = [column.name for column in body.columns]
    assert names == ["s.taxon", "s", "p", "literal", "now", "n", "lower", "value"]


def test_a_node_is_its_id() -> None:
    (column,) = read("$s: Species", "$s").columns
    assert column.expr == ir.Ident("s", ir.Role.ID)


def test_a_star_is_every_property_that_can_be_read() -> None:
    body = read("$a: Accession", "$a.*")
    assert [column.name for column in body.columns] == [
        *("a.alive", "a.collected", "a.garden_code", "a.grams", "a.price", "a.serial"),
    ]
    edge = read("$a $e:(derivedFrom | graftedOn) $b", "$e.*")
    assert [column.name for column in edge.columns] == ["e.method", "e.note"]


def test_aliases_are_columns() -> None:
    body = read("$s: Species", "length($s.taxon) as n, n + 1 as m", "order { m }")
    assert body.columns[1].expr == ir.Arith(ir.ArithOp.ADD, ir.Column("n", ir.I64), ir.Const(1, ir.I64), ir.I64)
    assert body.order == (ir.SortKey(ir.Column("m", ir.I64)),)


def test_nulls_sort_lowest_by_default() -> None:
    keys = "$a.grams, $a.grams asc, $a.grams desc, $a.grams asc nulls last, $a.grams desc nulls first"
    body = read("$a: Accession", "$a", f"order {{ {keys} }}")
    assert [(key.descending, key.nulls_first) for key in body.order] == [
        (False, True),
        (False, True),
        (True, False),
        (False, False),
        (True, True),
    ]


def test_rows_without_a_rank_sort_last() -> None:
    body = read("$s: Species", 'nearest($s.notes_vec, "x") as d, d as e', "order { d, e desc, d nulls first } limit 3")
    assert [(key.descending, key.nulls_first) for key in body.order] == [(False, False), (True, False), (False, True)]


def test_ties_are_broken_by_the_ids_of_all_variables_in_name_order() -> None:
    body = read(
        "$z: Accession  $z $e:grownIn $g  optional { $c curates $g }  not { $n mentions $_  $n.text = $g.name }", "$z"
    )
    assert body.ties == (
        ir.Ident("c", ir.Role.ID, nullable=True),
        ir.Ident("e", ir.Role.ID),
        ir.Ident("g", ir.Role.ID),
        ir.Ident("z", ir.Role.ID),
    )


def test_ties_of_several_types_are_broken_by_type() -> None:
    assert read("$x: Labelled", "$x").ties == (ir.Ident("x", ir.Role.ID), ir.TypeOf("x"))


def test_ties_are_broken_without_an_order() -> None:
    body = read("$s: Species", "$s")
    assert body.order == ()
    assert body.ties == (ir.Ident("s", ir.Role.ID),)


def test_grouping_keys_are_the_columns_without_aggregates() -> None:
    body = read(
        "$s: Species", "$s.rank, lower($s.label) as l, count($s) as n, n * 2 as m, $s", "order { n desc, $s.rank }"
    )
    assert body.grouped
    assert [key.name for key in body.keys] == ["s.rank", "l", "s"]
    assert [tie.name for tie in body.ties if isinstance(tie, ir.Column)] == ["s.rank", "l", "s"]
    assert [key.expr for key in body.order] == [
        ir.Column("n", ir.I64),
        ir.Column("s.rank", body.columns[0].expr.type),
    ]


def test_without_an_aggregate_there_are_no_keys() -> None:
    body = read("$s: Species", "$s.rank")
    assert not body.grouped
    assert body.keys == ()


def test_having_sees_columns_and_aggregates() -> None:
    body = read("$s: Species", "$s.rank as r, count($s) as n", 'having { n > 1  max($s.frost_min) < 3 or r = "genus" }')
    first, second = body.having
    assert first == ir.Compare(ir.CompareOp.GT, ir.Column("n", ir.I64), ir.Const(1, ir.I64))
    assert any(isinstance(part, ir.Aggregate) for part in walk(second))


def test_distinct_rows_are_ordered_by_their_columns() -> None:
    query_ = compiled("match { $s: Species } return distinct { $s.rank, $s.label } order { $s.rank desc }")
    assert isinstance(query_.body, ir.Read)
    assert query_.body.distinct
    assert not query_.body.grouped
    assert isinstance(query_.body.order[0].expr, ir.Column)
    assert [tie.name for tie in query_.body.ties if isinstance(tie, ir.Column)] == ["s.rank", "s.label"]


def test_aggregates_can_be_distinct() -> None:
    (column,) = read("$s: Species", "count(distinct $s.rank) as n").columns
    assert isinstance(column.expr, ir.Aggregate)
    assert column.expr.distinct
    assert isinstance(column.expr.arg, ir.Prop)


def test_counting_a_node_counts_its_ids() -> None:
    count, star = (column.expr for column in read("$s: Species", "count($s) as a, count(*) as b").columns)
    assert count == ir.Aggregate(ir.AggregateFunction.COUNT, ir.Ident("s", ir.Role.ID), False, ir.I64)
    assert star == ir.Aggregate(ir.AggregateFunction.COUNT, None, False, ir.I64)


# ---- search


def test_nearest_has_metric_and_model_of_the_schema() -> None:
    body = read("$s: Species", "$s", 'order { nearest($s.notes_vec, "oak") } limit 3')
    (key,) = body.order
    assert isinstance(key.expr, ir.Nearest)
    assert (key.expr.metric, key.expr.model) == (ir.Metric.L2, "acme/embed-small")
    assert (key.descending, key.nulls_first) == (False, False)
    cosine = read("$p: Poster", "$p", "order { nearest($p.face, [1, 0, 0]) } limit 3").order[0].expr
    assert isinstance(cosine, ir.Nearest)
    assert (cosine.metric, cosine.model) == (ir.Metric.COSINE, None)
    assert cosine.query == ir.Const((1.0, 0.0, 0.0), ValueType(Scalar.VECTOR, dim=3))


def test_fusion_has_weights_and_k() -> None:
    body = read(
        "$s: Species",
        "$s",
        'order { rrf(nearest($s.notes_vec, "x") * 2, 0.5 * bm25($s.notes, "x"), bm25($s.label, "x"), 30) } limit 3',
    )
    (key,) = body.order
    assert isinstance(key.expr, ir.Fusion)
    assert [arm.weight for arm in key.expr.arms] == [2.0, 0.5, 1.0]
    assert key.expr.k == ir.Const(30, ir.I64)
    assert (key.descending, key.nulls_first) == (True, False)
    default = read("$s: Species", "$s", 'order { rrf(bm25($s.notes, "x"), bm25($s.label, "x")) } limit 3').order[0].expr
    assert isinstance(default, ir.Fusion)
    assert default.k == ir.Const(60, ir.I64)


def test_each_text_search_has_its_mode() -> None:
    block = match(
        '$s: Species  search($s.notes, "x")  search($s.notes, "x", all=true)  match_text($s.notes, "x")  '
        'fuzzy($s.notes, "x")  fuzzy($s.notes, "x", 0)'
    )
    found = [(c.mode, c.edits) for c in block.filters if isinstance(c, ir.TextMatch)]
    assert found == [
        (ir.TextMode.ANY, None),
        (ir.TextMode.ALL, None),
        (ir.TextMode.PHRASE, None),
        (ir.TextMode.FUZZY, ir.Const(2, ir.I64)),
        (ir.TextMode.FUZZY, ir.Const(0, ir.I64)),
    ]


# ---- parameters


def test_limit_and_offset_take_parameters() -> None:
    body = read("$s: Species", "$s", "order { $s.taxon } limit $n offset 5", "$n: U32")
    assert body.limit == ir.Param("n", ValueType(Scalar.U32))
    assert body.offset == ir.Const(5, ir.I64)


def test_parameters_have_typed_defaults() -> None:
    params = (
        '$a: I64 = 10, $b: F32 = 3, $c: String? = null, $d: [Date] = [date("1970-01-02")], '
        "$e: Vector(2) = [1, 2], $f: Bool"
    )
    found = compiled("match { $s: Species } return { $s }", params).params
    assert [(param.default, param.has_default, param.required) for param in found] == [
        (10, True, False),
        (3.0, True, False),
        (None, True, False),
        ((1,), True, False),
        ((1.0, 2.0), True, False),
        (None, False, True),
    ]
    assert isinstance(found[1].default, float)


def test_enum_parameters_carry_their_values() -> None:
    single, several = compiled(
        "match { $s: Species { rank: $r } } return { $s }", "$r: Species.rank?, $m: Note.moods"
    ).params
    ranks = ("cultivar", "family", "genus", "species")
    assert single.type == ValueType(Scalar.STRING, nullable=True, enum_values=ranks)
    assert several.type == ValueType(Scalar.STRING, list=True, enum_values=("bad", "good"))


# ---- writes


@pytest.mark.parametrize(
    ("word", "mode"),
    [("insert", ir.InsertMode.REPLACE), ("create", ir.InsertMode.CREATE), ("merge", ir.InsertMode.MERGE)],
)
def test_insert_create_and_merge_have_their_mode(word: str, mode: ir.InsertMode) -> None:
    node, edge = write(
        f"{word} Garden {{ code: $p, name: $p, label: $p }}  {word} Curates {{ from: $p, to: $p, hours: 4 }}"
    )
    param = ir.Param("p", STRING)
    assert isinstance(node, ir.InsertNode)
    assert (node.mode, node.type_name) == (mode, "Garden")
    assert node.assigns == tuple(ir.Assign(name, param) for name in ("code", "name", "label"))
    hours = ir.Assign("hours", ir.Const(4, ValueType(Scalar.I32)))
    assert edge == ir.InsertEdge(mode, "Curates", param, param, (hours,))


def test_an_insert_has_its_defaults() -> None:
    (note,) = write("insert Note { text: $p }")
    assert isinstance(note, ir.InsertNode)
    mood = ir.Const("good", ValueType(Scalar.STRING, enum_values=("bad", "good")))
    assert note.defaults == (ir.Assign("mood", mood),)
    (curator,) = write("insert Curator { badge: $p, name: $p }")
    assert isinstance(curator, ir.InsertNode)
    assert curator.defaults == (ir.Assign("joined", ir.Now()),)
    (edge,) = write("insert Curates { from: $p, to: $p }")
    assert isinstance(edge, ir.InsertEdge)
    assert edge.defaults == (ir.Assign("hours", ir.Const(8, ValueType(Scalar.I32))),)


def test_an_update_has_no_defaults() -> None:
    (update,) = write("update Curator set { email: null } where badge = $p")
    assert update == ir.Update(
        ir.EntityKind.NODE,
        "Curator",
        (ir.Assign("email", ir.Const(None, STRING.with_nullable(True))),),
        ir.Compare(ir.CompareOp.EQ, ir.Prop(ir.SELF, "badge", STRING), ir.Param("p", STRING)),
    )


def test_an_edge_is_updated_by_its_endpoints() -> None:
    (update,) = write("update Knows set { since: null } where from = $p and to != id")
    assert isinstance(update, ir.Update)
    assert update.entity is ir.EntityKind.EDGE
    source, target, own = (ir.Ident(ir.SELF, role) for role in (ir.Role.FROM, ir.Role.TO, ir.Role.ID))
    assert update.where == ir.And(
        (
            ir.Compare(ir.CompareOp.EQ, source, ir.Param("p", STRING)),
            ir.Compare(ir.CompareOp.NE, target, own),
        )
    )


def test_keywords_can_be_property_names_in_where() -> None:
    catalog = compile_schema("node A { k: String @key  not: I64?  true: Bool?  in: I64?  count: I64?  date: Date? }")
    body = compiled(
        'delete A where not = 1 and true = false and in > 2 and count < 3 and date = date("1970-01-02")', "", catalog
    ).body
    assert isinstance(body, ir.Write)
    (delete,) = body.statements
    assert isinstance(delete, ir.Delete)
    assert [part.name for part in walk(delete.where) if isinstance(part, ir.Prop)] == [
        "not",
        "true",
        "in",
        "count",
        "date",
    ]


def test_deleting_a_node_cascades_to_its_edges() -> None:
    (delete,) = write("delete Accession where garden_code = $p")
    assert isinstance(delete, ir.Delete)
    assert delete.cascades == ("DerivedFrom", "GraftedOn", "GrownIn", "IsA")
    (delete,) = write("delete GrownIn where bed = $p")
    assert isinstance(delete, ir.Delete)
    assert delete.cascades == ()


def test_statements_keep_their_order() -> None:
    statements = write(
        "insert Garden { code: $p, name: $p, label: $p }  "
        "update Garden set { name: $p } where code = $p  merge Garden { code: $p }"
    )
    assert [type(statement) for statement in statements] == [ir.InsertNode, ir.Update, ir.InsertNode]


# ---- the IR as a value

GERMAN = compile_schema("""
interface Written { text: String }
node Note implements Written { @index(text, kind="fts", language="german", stem=false) }
node Page implements Written { @index(text, ascii_folding=true) }
""")

MANY = [
    *(
        query_
        for path in sorted(ROOT.glob("spec/*.gq"))
        for query_ in compile_queries(path.read_bytes(), compile_schema(path.with_suffix(".pg").read_bytes())).values()
    ),
    compiled("match { $a: Accession  optional { $a isA $s }  $s is null } return { -$a.grams as g, now() }"),
    compiled("match { $x: Labelled } return { count(distinct $x) as n }"),
    compiled("match { $a isA $s } with { $s, count($a) as n } match { $s.frost_min > n } return { $s }"),
    compiled("match { $s: Species  not exists { $_ isA $s } or $s.frost_min > 0 } return { count { $_ isA $s } as n }"),
    compiled('match { $n: Note  search($n.text, "x") } return { $n }', catalog=GERMAN),
    compiled("insert Note { text: $p }", "$p: String"),
]
"""Queries that use every class of the IR, which is checked below."""


@pytest.mark.parametrize("query_", MANY, ids=lambda query_: query_.name)
def test_json_round_trip(query_: ir.Query) -> None:
    text = ir.dumps(query_)
    assert ir.from_json(json.loads(text)) == query_
    assert hash(ir.from_json(json.loads(text))) == hash(query_)
    assert ir.dumps(ir.from_json(json.loads(text))) == text


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"kind": "Nothing"},
        {"kind": "Const", "value": 1, "type": {"kind": "ValueType", "scalar": "I64"}},
        {"kind": "Query", "name": "q"},
        {"kind": "Query", "name": 1, "params": [], "body": {"kind": "Write", "statements": []}},
        {"kind": "Query", "name": "q", "params": 5, "body": {"kind": "Write", "statements": []}},
        {"kind": "Query", "name": "q", "params": [{"kind": "Now"}], "body": {"kind": "Write", "statements": []}},
        {"kind": "Query", "name": "q", "params": [], "body": {"kind": "Now"}},
        {"kind": "Query", "name": "q", "params": [], "body": {"kind": "Write", "statements": []}, "more": 1},
        {"kind": "Query", "name": "q", "params": [], "body": {"kind": "Ident", "var": "a", "role": "nothing"}},
    ],
)
def test_invalid_json_is_refused(data: codec.JsonValue) -> None:
    with pytest.raises(InputError):
        ir.from_json(data)


PLAIN = (
    'query q($n: I64) { match { $s: Species { rank: "genus", }  $s.frost_min > -1 } '
    "return { $s.taxon } order { $s.taxon } limit $n }"
)


def test_layout_does_not_change_the_fingerprint() -> None:
    spread = PLAIN.replace(" ", "\n\t ").replace("match", "/* read */ match // now\n")
    first, second = (compile_queries(text, nursery())["q"] for text in (PLAIN, spread))
    assert ir.fingerprint(first) == ir.fingerprint(second)
    assert first == second


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("genus", "family"),
        ("-1", "-2"),
        ("limit $n", "limit 3"),
        ("order { $s.taxon", "order { $s.rank"),
        ("query q", "query p"),
    ],
)
def test_meaning_changes_the_fingerprint(old: str, new: str) -> None:
    (first,), (second,) = (compile_queries(text, nursery()).values() for text in (PLAIN, PLAIN.replace(old, new)))
    assert ir.fingerprint(first) != ir.fingerprint(second)


def _classes() -> list[type]:
    found = [cls for module in (expr, query) for cls in vars(module).values() if dataclasses.is_dataclass(cls)]
    return sorted({cls for cls in found if isinstance(cls, type)}, key=lambda cls: cls.__name__)


def test_every_ir_class_is_used() -> None:
    """The examples use every class, so the tests of rendering and JSON cover all of them."""
    reached = {type(part) for query_ in MANY for part in walk(query_)}
    assert [cls.__name__ for cls in _classes() if cls not in reached] == []


def test_every_expression_can_be_rendered() -> None:
    rendered = set()
    for query_ in MANY:
        for part in walk(query_):
            if isinstance(part, ir.Expr):
                assert ir.expression(part)
                rendered.add(type(part))
    assert rendered == set(typing.get_args(ir.Expr))


@pytest.mark.parametrize("query_", MANY, ids=lambda query_: query_.name)
def test_rendering_names_every_variable_column_and_property(query_: ir.Query) -> None:
    text = ir.render(query_)
    for part in walk(query_):
        match part:
            case ir.NodeVar() | ir.EdgeVar() | ir.OutColumn() | ir.Prop() | ir.Param() | ir.Column() | ir.Parameter():
                assert part.name in text
            case ir.Step():
                assert part.edge in text
            case ir.Assign():
                assert part.property in text
            case ir.EmbedOnWrite():
                assert part.target in text


def test_fusion_and_fuzzy_accept_parameters_for_their_numbers() -> None:
    body = read(
        "$s: Species  fuzzy($s.notes, $q, $edits)",
        "$s",
        "order { rrf(nearest($s.notes_vec, $q), bm25($s.notes, $q), $k) } limit 3",
        params="$q: String, $edits: I32, $k: I64",
    )
    (key,) = body.order
    assert isinstance(key.expr, ir.Fusion)
    assert isinstance(key.expr.k, ir.Param)
    (condition,) = body.match.filters
    assert isinstance(condition, ir.TextMatch)
    assert isinstance(condition.edits, ir.Param)


def test_a_search_in_null_is_false_and_not_unknown() -> None:
    body = read('$s: Species  not ($s.notes contains "x")  not ($s.frost_min > 1)', "$s")
    found, compared = body.match.filters
    assert not found.type.nullable
    assert compared.type.nullable


def test_a_variable_of_several_types_is_counted_by_entity() -> None:
    """Ids are unique only per type: two nodes of different types may share one."""
    (several,) = read("$x: Labelled", "count(distinct $x) as n").columns
    (one,) = read("$s: Species", "count(distinct $s) as n").columns
    assert isinstance(several.expr, ir.Aggregate)
    assert several.expr.arg == ir.Entity("x")
    assert isinstance(one.expr, ir.Aggregate)
    assert one.expr.arg == ir.Ident("s", ir.Role.ID)


def test_a_variable_of_several_types_can_be_a_grouping_key() -> None:
    body = read("$x: Labelled", "$x, count(*) as n", "order { n desc, $x }")
    assert [key.expr for key in body.keys] == [ir.Entity("x")]


def test_text_search_has_the_analyzer_of_the_schema() -> None:
    """The words of a text do not depend on its index, so the analyzer is part of the IR."""
    german = ir.Analyzer(language="german", stem=False)
    body = read('$n: Note  search($n.text, "x")', "$n", 'order { bm25($n.text, "x") }', catalog=GERMAN)
    (found,) = body.match.filters
    assert isinstance(found, ir.TextMatch)
    assert isinstance(body.ranked, ir.Bm25)
    assert (found.analyzer, body.ranked.analyzer) == (german, german)
    assert ir.expression(found) == 'text_any($n.text, "x", language=german, stem=false)'
    (usual,) = read('$p: Page  fuzzy($p.text, "x")', "$p", catalog=GERMAN).match.filters
    assert isinstance(usual, ir.TextMatch)
    assert usual.analyzer == ir.Analyzer()
    refused('match { $x: Written  search($x.text, "x") } return { $x }', "T19", catalog=GERMAN)


def test_a_default_is_a_value_of_its_property() -> None:
    """The schema stores dates and times as texts; a literal and a default of the same day are equal here."""
    catalog = compile_schema(
        'node N { k: String @key  d: Date @default("1970-01-03")  t: DateTime @default("1970-01-01") }'
    )
    (query_,) = compile_queries('query q() { insert N { k: "a" } }', catalog).values()
    assert isinstance(query_.body, ir.Write)
    (insert,) = query_.body.statements
    assert isinstance(insert, ir.InsertNode)
    assert [(assign.property, assign.value) for assign in insert.defaults] == [
        ("d", ir.Const(2, ValueType(Scalar.DATE))),
        ("t", ir.Const(0, ir.DATETIME)),
    ]
