"""Conversions of columns and single values between the IR, Arrow and numpy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.types import Scalar, ValueType

Value: TypeAlias = pa.Array | pa.Scalar
"""A column with one value per row, or a single value for all rows."""

Numbers: TypeAlias = npt.NDArray[Any]
"""Numbers of any width."""
Mask: TypeAlias = npt.NDArray[np.bool_]


def value_type(kind: ValueType) -> pa.DataType:
    """The Arrow type of computed values. A `Blob` is represented by its text form."""
    return pa.utf8() if kind.scalar is Scalar.BLOB else arrow_type(kind)


def constant(value: ir.ConstValue, kind: ValueType) -> pa.Scalar:
    """Convert a constant of the IR to Arrow."""
    if isinstance(value, tuple) and kind.list and kind.scalar is Scalar.DATETIME:
        items = pa.array(value, pa.int64()).view(pa.date64())
        return pa.ListArray.from_arrays(pa.array([0, len(value)], pa.int32()), items, type=value_type(kind))[0]
    return pa.scalar(value, value_type(kind))


def broadcast(value: Value, count: int) -> pa.Array:
    """Repeat a single value as a column. A column is returned unchanged."""
    if not isinstance(value, pa.Scalar):
        return value
    return pa.repeat(value, count) if count else pa.nulls(0, value.type)  # Arrow cannot repeat a list zero times


def collapse_constant(column: pa.Array, *sources: Value) -> Value:
    """Return the column as a single value if all its sources are single values."""
    return column[0] if all(isinstance(source, pa.Scalar) for source in sources) else column


def to_numpy_values(value: Value) -> tuple[Numbers, Mask]:
    """Numbers or times as a numpy array with 0 for null, and the mask of valid values. A single value has length 1."""
    column = broadcast(value, 1)
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return column.fill_null(0).to_numpy(zero_copy_only=False), valid


def from_numpy_values(numbers: Numbers, valid: Mask, kind: pa.DataType) -> pa.Array:
    """Convert numpy values to a column. Values that are not valid become null."""
    if pa.types.is_temporal(kind):
        plain = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return pa.array(numbers, plain, mask=~valid).view(kind)
    return pa.array(numbers, kind, mask=~valid)
