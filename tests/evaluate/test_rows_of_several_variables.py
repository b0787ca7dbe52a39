"""Entities, types, paths and earlier columns are read from the rows; invalid patterns are errors."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from omnigraph.errors import ExecutionError, ParameterError
from omnigraph.evaluate import Request, evaluate, holds, table_rows
from omnigraph.lang.query import ir
from omnigraph.lang.types import Scalar, ValueType

REQUEST = Request({"p": "("}, 0)
IDS = ValueType(Scalar.STRING, list=True)
TEXT = ir.STRING.with_nullable(True)
VECTOR = ValueType(Scalar.VECTOR, nullable=True, dim=2)


@dataclass
class Joined:
    """Rows of `$a`, which has one type, and `$b`, which has several types or is null."""

    count: int = 4
    ids: dict[str, list[str | None]] = field(
        default_factory=lambda: {"a": ["1", "2", "3", "3"], "b": ["1", "2", None, "4"]}
    )
    types: dict[str, list[str | None]] = field(
        default_factory=lambda: {"a": ["X", "X", "X", "X"], "b": ["X", "Y", None, "X"]}
    )

    def prop(self, var: str, name: str) -> pa.Array:
        assert (var, name) == ("a", "vec")
        return pa.array([[1.0, 2.0], None, [3.0, 4.0], None], pa.list_(pa.float32(), 2))

    def ident(self, var: str, role: ir.Role) -> pa.ChunkedArray:
        assert role is ir.Role.ID
        return pa.chunked_array([pa.array(self.ids[var][:1], pa.utf8()), pa.array(self.ids[var][1:], pa.utf8())])

    def type_of(self, var: str) -> pa.Array:
        return pa.array(self.types[var], pa.utf8())

    def path(self, var: str, part: ir.PathPart) -> pa.Array:
        if part is ir.PathPart.LENGTH:
            return pa.array([1, 2, None, 0], pa.int64())
        return pa.array([["1"], ["1", "2"], None, []], pa.list_(pa.utf8()))

    def column(self, name: str) -> pa.Array:
        return pa.array([10, 20, 30, 40])

    def value(self, name: str) -> pa.Array:
        return pa.array([True, False, None, True])

    def search(self, expr: ir.TextMatch | ir.Rank) -> pa.Array:
        return (
            pa.array([True, False, True, False]) if isinstance(expr, ir.TextMatch) else pa.array([0.5, None, 2.0, 1.0])
        )


def test_the_same_node_has_the_same_type_and_id() -> None:
    same = evaluate(ir.SameEntity("a", "b", False, True), Joined(), REQUEST)
    assert same.to_pylist() == [True, False, None, False]
    other = evaluate(ir.SameEntity("a", "b", True, True), Joined(), REQUEST)
    assert other.to_pylist() == [False, True, None, True]


def test_searches_use_the_results_of_the_rows() -> None:
    text = ir.Prop("a", "text", ir.STRING)
    found = ir.TextMatch(ir.TextMode.ANY, text, ir.Const("x", ir.STRING))
    assert holds(ir.Not(found), Joined(), REQUEST).to_pylist() == [False, True, False, True]
    score = ir.Bm25(text, ir.Const("x", ir.STRING))
    assert evaluate(score, Joined(), REQUEST).to_pylist() == [0.5, None, 2.0, 1.0]


def test_an_unbound_optional_variable_is_null() -> None:
    assert holds(ir.VarIsNull("b", False), Joined(), REQUEST).to_pylist() == [False, False, True, False]
    assert holds(ir.VarIsNull("b", True), Joined(), REQUEST).to_pylist() == [True, True, False, True]


def test_entities_types_paths_and_columns_can_be_evaluated() -> None:
    assert evaluate(ir.Entity("b", True), Joined(), REQUEST).to_pylist() == ["1", "2", None, "4"]
    assert evaluate(ir.TypeOf("b", True), Joined(), REQUEST).to_pylist() == ["X", "Y", None, "X"]
    assert evaluate(ir.PathValue("p", ir.PathPart.LENGTH, ir.I64), Joined(), REQUEST).to_pylist() == [1, 2, None, 0]
    assert evaluate(ir.PathValue("p", ir.PathPart.NODES, IDS), Joined(), REQUEST).to_pylist()[1] == ["1", "2"]
    doubled = ir.Arith(ir.ArithOp.MULTIPLY, ir.Column("n", ir.I64), ir.Const(2, ir.I64), ir.I64)
    assert evaluate(doubled, Joined(), REQUEST).to_pylist() == [20, 40, 60, 80]
    assert evaluate(ir.TypeOf(ir.SELF), table_rows(pa.table({"id": ["x"]}), "Thing"), REQUEST).to_pylist() == ["Thing"]


def test_coalesce_accepts_vectors() -> None:
    chosen = ir.Apply(ir.Function.COALESCE, (ir.Prop("a", "vec", VECTOR), ir.Const((0.5, 0.5), VECTOR)), VECTOR)
    found = evaluate(chosen, Joined(), REQUEST)
    assert found.type == pa.list_(pa.float32(), 2)
    assert found.to_pylist() == [[1.0, 2.0], [0.5, 0.5], [3.0, 4.0], [0.5, 0.5]]


def test_a_blob_parameter_stays_unchanged() -> None:
    blob = ir.Param("blob", ValueType(Scalar.BLOB))
    found = evaluate(blob, Joined(), Request({"blob": "base64:aGk="}, 0))
    assert found.to_pylist() == ["base64:aGk="] * 4


def test_an_invalid_pattern_parameter_is_named() -> None:
    matches = ir.Compare(ir.CompareOp.MATCHES, ir.Entity("b", True), ir.Param("p", ir.STRING))
    with pytest.raises(ParameterError, match=r"^\$p: '\(' is not a regular expression"):
        evaluate(matches, Joined(), REQUEST)


def test_patterns_may_be_values_of_rows() -> None:
    patterns = table_rows(pa.table({"id": ["ab", "ab", "ab", None], "p": ["^a", "^b", None, "^a"]}))
    matches = ir.Compare(ir.CompareOp.MATCHES, ir.Ident(ir.SELF, ir.Role.ID), ir.Prop(ir.SELF, "p", TEXT))
    assert evaluate(matches, patterns, REQUEST).to_pylist() == [True, False, False, False]
    broken = table_rows(pa.table({"id": ["ab"], "p": ["("]}))
    with pytest.raises(ExecutionError, match=r"'\(' is not a regular expression"):
        evaluate(matches, broken, REQUEST)


def test_list_items_behind_a_null_are_ignored() -> None:
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), pa.array([1, 2, 3]), mask=pa.array([True, False]))
    rows = table_rows(pa.table({"id": ["a", "b"], "n": pa.array([2, 3]), "l": lists}))
    contains = ir.Compare(
        ir.CompareOp.HAS_ITEM,
        ir.Prop(ir.SELF, "l", ValueType(Scalar.I64, nullable=True, list=True)),
        ir.Prop(ir.SELF, "n", ir.I64),
    )
    assert evaluate(contains, rows, REQUEST).to_pylist() == [False, True]


def test_aggregates_are_not_evaluated_row_by_row() -> None:
    with pytest.raises(AssertionError, match="Aggregate is not computed row by row"):
        evaluate(ir.Aggregate(ir.AggregateFunction.COUNT, None, False, ir.I64), Joined(), REQUEST)
