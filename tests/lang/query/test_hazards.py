"""Hazards of the language that the compiler detects before a query runs."""

from __future__ import annotations

import pytest
from tests.lang.fixtures import nursery
from tests.lang.query.checking import compiled, match, read, refused, steps_of, types_of, write

from omnigraph.errors import TypeCheckError
from omnigraph.lang.query import compile_queries, describe, ir, lint_queries
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.types import Scalar, ValueType

TEXT = "query q() { match { $s: Species } return { $s.taxon } }"


def test_h1_a_parameter_without_default_must_be_given() -> None:
    """The matcher stays in the IR, and the IR marks the parameter as required."""
    query = compiled("match { $s: Species { rank: $r } } return { $s.taxon }", "$r: String, $n: I64?, $d: I64 = 3")
    assert [param.required for param in query.params] == [True, False, False]
    assert isinstance(query.body, ir.Read)
    (matcher,) = query.body.match.filters
    assert matcher == ir.Compare(
        ir.CompareOp.EQ,
        ir.Prop("s", "rank", ValueType(Scalar.STRING, enum_values=("cultivar", "family", "genus", "species"))),
        ir.Param("r", ir.STRING),
    )


def test_h2_a_matcher_on_an_unknown_variable_is_refused() -> None:
    refused("match { $s: Species { taxon: $x } } return { $s }", "T26")


def test_h2_a_matcher_on_a_bound_variable_is_refused() -> None:
    refused("match { $s: Species  $t: Species { taxon: $s } } return { $s }", "T3")


@pytest.mark.parametrize("params", ["", "$v: Vector(3)"])
def test_h2_a_matcher_on_a_vector_is_refused(params: str) -> None:
    value = "$v" if params else "[1.0, 2.0, 3.0]"
    refused(f"match {{ $s: Species {{ notes_vec: {value} }} }} return {{ $s }}", "T3", params)


def test_h3_now_works_in_every_part_of_a_read() -> None:
    body = read("$c: Curator { joined: now() }  $c.joined <= now()", "$c, now()")
    equal, less = body.match.filters
    assert isinstance(equal, ir.Compare)
    assert isinstance(less, ir.Compare)
    assert (equal.op, equal.right) == (ir.CompareOp.EQ, ir.Now())
    assert less.right == ir.Now()
    assert body.columns[1].expr == ir.Now()


def test_h4_text_and_ranks_reach_variables_that_a_traversal_introduces() -> None:
    body = read('$a: Accession  $a isA $s  search($s.notes, "oak")', "$s.taxon", 'order { bm25($s.notes, "oak") }')
    (found,) = body.match.filters
    assert isinstance(found, ir.TextMatch)
    assert found.field.var == "s"
    assert isinstance(body.order[0].expr, ir.Bm25)
    assert body.order[0].expr.field.var == "s"


def test_h5_text_clauses_are_a_conjunction() -> None:
    clauses = 'search($s.notes, "oak")  search($s.label, "elm")  fuzzy($s.notes, "ash")  match_text($s.notes, "an ash")'
    body = read(f"$s: Species  {clauses}", "$s.taxon", 'order { bm25($s.notes, "oak") }')
    modes = [found.mode for found in body.match.filters if isinstance(found, ir.TextMatch)]
    assert modes == [ir.TextMode.ANY, ir.TextMode.ANY, ir.TextMode.FUZZY, ir.TextMode.PHRASE]


def test_h5_a_nullable_text_keeps_its_clause() -> None:
    (found,) = match("$s: Species  search($s.notes, $q)", "$q: String?").filters
    assert isinstance(found, ir.TextMatch)
    assert found.query == ir.Param("q", ir.STRING.with_nullable(True))


@pytest.mark.parametrize("function", ["search", "match_text", "fuzzy"])
@pytest.mark.parametrize("comparison", ["= false", "= true", "!= true", "is null", "in [true]"])
def test_h5_a_text_clause_cannot_be_compared(function: str, comparison: str) -> None:
    refused(f'match {{ $s: Species  {function}($s.notes, "oak") {comparison} }} return {{ $s }}', "T33")


def test_h7_a_reverse_traversal_inside_not_runs_in_reverse() -> None:
    (block,) = match("$g: Garden  not { $g grownIn $a }").negations
    assert steps_of(block) == [("GrownIn", "in")]
    assert types_of(block) == {"a": ("Accession",)}
    assert block.outer == ("g",)


def test_h7_direction_inside_not_does_not_depend_on_textual_order() -> None:
    (block,) = match("not { $g grownIn $a }  $g: Garden").negations
    assert steps_of(block) == [("GrownIn", "in")]


def test_h7_a_pattern_on_an_outer_variable_inside_not_is_correlated() -> None:
    (block,) = match('$g: Garden  not { $g: Garden { code: "KEW" } }').negations
    assert block.nodes == ()
    assert block.outer == ("g",)
    assert len(block.filters) == 1


def test_h7_text_clauses_inside_not_are_kept() -> None:
    (block,) = match('$s: Species  not { search($s.notes, "oak") }').negations
    assert [type(condition) for condition in block.filters] == [ir.TextMatch]
    (block,) = match('$s: Species  not { $a isA $s  $n mentions $s  search($n.text, "oak") }').negations
    assert [type(condition) for condition in block.filters] == [ir.TextMatch]


def test_h8_a_match_without_a_pattern_scans_both_ends() -> None:
    assert types_of(match("$a derivedFrom $b")) == {"a": ("Accession",), "b": ("Accession",)}


def test_h8_a_repeated_pattern_adds_its_matchers() -> None:
    block = match('$s: Species { rank: "genus" }  $s: Species { traits: "evergreen" }')
    assert [node.name for node in block.nodes] == ["s"]
    assert len(block.filters) == 2


def test_h8_each_anonymous_variable_is_a_separate_variable() -> None:
    block = match("$a: Accession  $a isA $_  $a grownIn $_  $_: Garden")
    fresh = [node.name for node in block.nodes if not node.named]
    assert len(set(fresh)) == len(fresh) == 3
    assert [block.expands[0].right, block.expands[1].right] == fresh[:2]


def test_h9_numbers_are_compared_as_they_are_written() -> None:
    """No side is cast to the type of the other: the IR keeps both, and the comparison is exact."""
    block = match("$a: Accession { serial: 2.7 }  $b: Accession  $a.grams < $b.price  $a.serial = 18446744073709551615")
    kinds = [(c.left.type.scalar, c.right.type.scalar) for c in block.filters if isinstance(c, ir.Compare)]
    assert kinds == [(Scalar.U64, Scalar.F64), (Scalar.I32, Scalar.F64), (Scalar.U64, Scalar.U64)]


@pytest.mark.parametrize(("literal", "value"), [("3", 3.0), ("-60", -60.0), ("2.5", 2.5)])
def test_h10_an_integer_literal_becomes_a_float_property(literal: str, value: float) -> None:
    (update,) = write(f"update Species set {{ frost_min: {literal} }} where taxon = $p")
    assert isinstance(update, ir.Update)
    (assign,) = update.assigns
    assert assign.value == ir.Const(value, ValueType(Scalar.F32, nullable=True))
    assert isinstance(assign.value, ir.Const)
    assert isinstance(assign.value.value, float)


def test_h11_a_required_vector_is_embedded_on_write() -> None:
    (insert,) = write("insert Note { text: $p }")
    assert isinstance(insert, ir.InsertNode)
    assert insert.embeds == (ir.EmbedOnWrite("summary", "text", None),)


def test_h11_a_required_vector_without_its_text_is_refused() -> None:
    error = refused('insert Note { mood: "bad" }', "T12")
    assert "text" in error.message


def test_h11_changing_the_text_changes_the_vector() -> None:
    (update,) = write("update Species set { notes: $p } where taxon = $p")
    assert isinstance(update, ir.Update)
    assert update.embeds == (ir.EmbedOnWrite("notes_vec", "notes", "acme/embed-small"),)
    (update,) = write("update Species set { notes: $p, notes_vec: [1, 2, 3] } where taxon = $p")
    assert isinstance(update, ir.Update)
    assert update.embeds == ()


@pytest.mark.parametrize(
    ("returns", "tail", "code"),
    [
        ("$s.taxon as t", "order { missing }", "T30"),
        ("$s.taxon", "order { taxon }", "T30"),
        ("later as x, $s.taxon as later", "", "T30"),
        ("sum(count($s)) as n", "", "T30"),
        ("count($s) as n, sum(n) as m", "", "T30"),
        ("$s.taxon", "order { count($s) }", "T30"),
        ("$s.taxon", 'order { $s.taxon, bm25($s.notes, "x") }', "T32"),
        ('search($s.notes, "x") as hit', "", "T33"),
        ("$s.taxon", "order { 1 }", "T30"),
        ("$s.rank, count($s) as n", "order { $s.taxon }", "T30"),
    ],
)
def test_h13_expressions_that_cannot_be_computed_do_not_compile(returns: str, tail: str, code: str) -> None:
    refused(f"match {{ $s: Species }} return {{ {returns} }} {tail}", code)


def test_h13_ranks_and_aliases_are_supported() -> None:
    body = read("$s: Species", 'nearest($s.notes_vec, "x") as d, d * 2 as e', "order { d } limit 3")
    assert isinstance(body.columns[0].expr, ir.Nearest)
    assert body.columns[1].expr == ir.Arith(
        ir.ArithOp.MULTIPLY, ir.Column("d", ir.F64.with_nullable(True)), ir.Const(2, ir.I64), ir.F64.with_nullable(True)
    )
    assert body.order[0].expr == ir.Column("d", ir.F64.with_nullable(True))


def test_h14_duplicate_columns_are_refused() -> None:
    refused("match { $s: Species } return { $s.taxon, $s.taxon }", "T29")
    refused("match { $s: Species } return { $s.taxon as x, $s.rank as x }", "T29")


def test_h14_duplicate_queries_are_refused_and_reported() -> None:
    with pytest.raises(TypeCheckError, match="T40"):
        compile_queries(TEXT + TEXT, nursery())
    report = lint_queries(TEXT + TEXT, nursery())
    assert [result.status for result in report.results] == ["ok", "error"]


def test_h14_duplicate_and_reserved_parameters_are_refused() -> None:
    refused("match { $s: Species { taxon: $a } } return { $s }", "T27", "$a: String, $a: String")
    refused("match { $s: Species } return { $s }", "T27", "$__nanograph_now: DateTime")


def test_h14_a_parameter_does_not_shadow_a_variable() -> None:
    refused("match { $s: Species } return { $s }", "T27", "$s: String")
    refused("match { $s: Species  not { $a isA $s } } return { $s }", "T27", "$a: String")


def test_h15_describe_and_the_ir_have_the_same_columns() -> None:
    query = compiled("match { $a isA $s } return { $s.taxon, $s, $p, count($a), sum($a.grams) }", "$p: String")
    assert isinstance(query.body, ir.Read)
    names = [column.name for column in query.body.columns]
    assert names == ["s.taxon", "s", "p", "a", "a.grams"]
    fields = describe(query, nursery()).result
    assert [field.name for field in fields] == names
    assert fields[1].kind.value == "string"


def test_h15_constant_columns_have_names() -> None:
    assert [column.name for column in read("$s: Species", '"x", now()').columns] == ["literal", "now"]


def test_h16_tied_groups_are_ordered_by_their_keys() -> None:
    body = read("$s: Species", "$s.rank as r, count($s) as n, n + 1 as m", "order { n desc }")
    assert [tie.name for tie in body.ties if isinstance(tie, ir.Column)] == ["r"]
    assert [key.name for key in body.keys] == ["r"]


def test_h16_a_sort_key_after_a_rank_is_refused() -> None:
    refused('match { $s: Species } return { $s } order { bm25($s.notes, "x"), $s.taxon }', "T32")
    refused('match { $s: Species } return { $s } order { nearest($s.notes_vec, "x") desc } limit 3', "T32")
    assert read("$s: Species", "$s", 'order { bm25($s.notes, "x") desc }').order[0].descending


def test_h17_an_edge_that_shares_a_node_name_can_be_written() -> None:
    node, edge = write(
        'insert Visit { day: date("2026-03-14") }  insert edge Visit { from: $p, to: $p, day: date("2026-03-14") }'
    )
    assert isinstance(node, ir.InsertNode)
    assert isinstance(edge, ir.InsertEdge)
    (deleted,) = write("delete edge Visit where from = $p")
    assert isinstance(deleted, ir.Delete)
    assert (deleted.entity, deleted.cascades) == (ir.EntityKind.EDGE, ())


def test_h23_null_for_a_required_property_is_refused() -> None:
    """A compile error for a literal. A nullable parameter keeps its type, so that binding can refuse null."""
    refused("update Garden set { name: null } where code = $p", "T3", "$p: String")
    (update,) = write("update Garden set { name: $n } where code = $p", "$p: String, $n: String?")
    assert isinstance(update, ir.Update)
    assert update.assigns[0].value.type.nullable


def test_h24_key_members_cannot_be_updated() -> None:
    refused("update Garden set { code: $p } where code = $p", "T16", "$p: String")
    refused("update Accession set { serial: 7 } where garden_code = $p", "T16", "$p: String")
    refused("update Curates set { to: $p } where from = $p", "T16", "$p: String")
    catalog = compile_schema("node A { a: I64 @key } edge E: A -> A { b: Date  @key(src, dst, b) }")
    refused('update E set { b: date("2026-03-14") } where from = $p', "T16", "$p: String", catalog)
