"""The Spark type for each type of the graph, and the conversion of stored columns to columns of a DataFrame.

No value is rounded. Spark has no unsigned integers, so a `U32` is a `bigint` and a `U64` a `decimal(20,0)`. Spark has
no fixed-size lists, so the metadata of each column contains its type in the graph, under the key `omnigraph.type`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from omnigraph.lang.arrow import readable
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.types import Scalar, ValueType

TYPE_METADATA = "omnigraph.type"
"""The key in the metadata of a column under which its type in the graph is stored, such as `U64` or `Vector(384)`."""

ENDS = {"from": "src", "to": "dst"}
"""The DataFrame columns of the two ends of an edge, with their names in the table."""

_ID = ValueType(Scalar.STRING)
_SCALARS: Mapping[Scalar, spark.DataType] = {
    Scalar.STRING: spark.StringType(),
    Scalar.BOOL: spark.BooleanType(),
    Scalar.I32: spark.IntegerType(),
    Scalar.I64: spark.LongType(),
    Scalar.U32: spark.LongType(),
    Scalar.U64: spark.DecimalType(20, 0),
    Scalar.F32: spark.FloatType(),
    Scalar.F64: spark.DoubleType(),
    Scalar.DATE: spark.DateType(),
    Scalar.DATETIME: spark.TimestampType(),
    Scalar.BLOB: spark.StructType(
        [spark.StructField("data", spark.BinaryType()), spark.StructField("uri", spark.StringType())]
    ),
}


def spark_type(type_: ValueType) -> spark.DataType:
    """The Spark type of a column. It does not contain whether the column is nullable."""
    if type_.is_vector:
        return spark.ArrayType(spark.FloatType(), containsNull=False)
    scalar = _SCALARS[type_.scalar]
    return spark.ArrayType(scalar) if type_.list else scalar


def value_types(kind: TypeKind, declared: NodeType | EdgeType) -> dict[str, ValueType]:
    """The columns of a type in their order: `id`, for edges `from` and `to`, and the properties by name."""
    ends = ENDS if kind is TypeKind.EDGE else ()
    properties = {name: prop.type for name, prop in declared.properties.items()}
    return {"id": _ID, **dict.fromkeys(ends, _ID), **properties}


def spark_schema(columns: Mapping[str, ValueType]) -> spark.StructType:
    """The schema of a DataFrame with these columns."""
    return spark.StructType([_field(name, type_) for name, type_ in columns.items()])


def _field(name: str, type_: ValueType) -> spark.StructField:
    graph_type = str(type_.with_nullable(False))
    return spark.StructField(name, spark_type(type_), type_.nullable, {TYPE_METADATA: graph_type})


def batch_schema(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema in which Spark expects the batches of a DataFrame."""
    return to_arrow_schema(schema, timezone="UTC")


def stored_name(name: str, kind: TypeKind) -> str:
    """The name of a DataFrame column in the table."""
    return ENDS.get(name, name) if kind is TypeKind.EDGE else name


def for_spark(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Convert stored columns to a batch of a DataFrame."""
    converted = [_converted(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(converted, schema=schema)


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else readable(column).cast(kind)
