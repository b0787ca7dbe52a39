"""Arrow types of values, and Arrow schemas of tables."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.lang.schema.accepted import AcceptedSchema
from omnigraph.lang.schema.catalog import TypeKind
from omnigraph.lang.types import Scalar, ValueType

PRIMARY_KEY_METADATA = {"lance-schema:unenforced-primary-key": "true"}
PROPERTY_ID = "omnigraph.stable_property_id"
"""The key under which a field of an Arrow schema stores the number of its property. Renames keep the number."""

_MOMENT = pa.timestamp("ms", "UTC")
_SCALARS: dict[Scalar, pa.DataType] = {
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


def arrow_type(type_: ValueType) -> pa.DataType:
    """The Arrow type of a value. Nullability belongs to the field, not to the type.

    A `Blob` is binary here. The storage layer decides how its bytes are stored.
    """
    if type_.is_vector:
        return pa.list_(pa.field("item", pa.float32(), nullable=True), type_.dim)
    scalar = _SCALARS[type_.scalar]
    return pa.list_(pa.field("item", scalar, nullable=True)) if type_.list else scalar


def arrow_schema(accepted: AcceptedSchema, kind: TypeKind, name: str) -> pa.Schema:
    """The columns of a node or edge table: the ids, then the properties in the order of their names."""
    declaration = accepted.catalog.nodes[name] if kind is TypeKind.NODE else accepted.catalog.edges[name]
    numbers = accepted.identity(kind, name).properties
    fields = [pa.field("id", pa.utf8(), nullable=False, metadata=PRIMARY_KEY_METADATA)]
    if kind is TypeKind.EDGE:
        fields += [pa.field(end, pa.utf8(), nullable=False) for end in ("src", "dst")]
    for prop in declaration.properties.values():
        metadata = {PROPERTY_ID: str(numbers[prop.name])}
        fields.append(pa.field(prop.name, arrow_type(prop.type), nullable=prop.type.nullable, metadata=metadata))
    return pa.schema(fields)


def readable(column: pa.Array) -> pa.Array:
    """Convert `date64` values, also in lists, to timestamps, for people and other programs.

    Most programs read a `date64` as a day and drop the time.
    """
    kind = column.type
    if pa.types.is_date64(kind):
        return column.view(pa.int64()).view(_MOMENT)
    if pa.types.is_list(kind) and pa.types.is_date64(kind.value_type):
        items = column.values.view(pa.int64()).view(_MOMENT)
        return pa.ListArray.from_arrays(column.offsets, items, type=pa.list_(_MOMENT), mask=column.is_null())
    return column
