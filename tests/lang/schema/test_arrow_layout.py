"""The physical layout: Arrow types and the columns of node and edge tables."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.lang.arrow import arrow_schema, arrow_type
from omnigraph.lang.schema import TypeKind, accept, compile_schema
from omnigraph.lang.types import Scalar, ValueType


def test_scalar_types_have_their_arrow_types() -> None:
    expected = {
        Scalar.STRING: pa.utf8(),
        Scalar.BLOB: pa.large_binary(),
        Scalar.BOOL: pa.bool_(),
        Scalar.I32: pa.int32(),
        Scalar.I64: pa.int64(),
        Scalar.U32: pa.uint32(),
        Scalar.U64: pa.uint64(),
        Scalar.F32: pa.float32(),
        Scalar.F64: pa.float64(),
        Scalar.DATE: pa.date32(),
        Scalar.DATETIME: pa.date64(),
    }
    assert {scalar: arrow_type(ValueType(scalar)) for scalar in expected} == expected
    assert arrow_type(ValueType(Scalar.STRING, enum_values=("a",))) == pa.utf8()


def test_lists_and_vectors_have_nullable_items() -> None:
    listed = arrow_type(ValueType(Scalar.DATE, list=True))
    assert listed == pa.list_(pa.field("item", pa.date32(), nullable=True))
    vector = arrow_type(ValueType(Scalar.VECTOR, dim=3))
    assert pa.types.is_fixed_size_list(vector)
    assert (vector.list_size, vector.value_field) == (3, pa.field("item", pa.float32(), nullable=True))


def test_a_node_table_has_an_id_and_sorted_properties() -> None:
    accepted = accept(compile_schema("node A { z: I32  b: String?  k: String @key }"), "D")
    table = arrow_schema(accepted, TypeKind.NODE, "A")
    assert table.names == ["id", "b", "k", "z"]
    assert [field.nullable for field in table] == [False, True, False, False]
    assert table.field("id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    numbers = accepted.identity(TypeKind.NODE, "A").properties
    for name in ("b", "k", "z"):
        assert table.field(name).metadata == {b"omnigraph.stable_property_id": str(numbers[name]).encode()}


def test_an_edge_table_has_id_endpoints_and_properties() -> None:
    accepted = accept(compile_schema("node A {}\nedge E: A -> A { w: F32? }"), "D")
    table = arrow_schema(accepted, TypeKind.EDGE, "E")
    assert table.names == ["id", "src", "dst", "w"]
    assert [field.type for field in table] == [pa.utf8(), pa.utf8(), pa.utf8(), pa.float32()]
    assert [field.nullable for field in table] == [False, False, False, True]
