"""Columns and single values: how constants look in Arrow, and how either looks in numpy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.types import Scalar, ValueType

Value: TypeAlias = pa.Array | pa.Scalar
"""A value per row, or one value for every row."""

Numbers: TypeAlias = npt.NDArray[Any]
"""Numbers of whatever width they have."""
Mask: TypeAlias = npt.NDArray[np.bool_]


def value_type(kind: ValueType) -> pa.DataType:
    """The Arrow type of computed values. A `Blob` is the text that says where its content is."""
    return pa.utf8() if kind.scalar is Scalar.BLOB else arrow_type(kind)


def constant(value: ir.ConstValue, kind: ValueType) -> pa.Scalar:
    """A value of the IR in Arrow."""
    if isinstance(value, tuple) and kind.list and kind.scalar is Scalar.DATETIME:
        items = pa.array(value, pa.int64()).view(pa.date64())
        return pa.ListArray.from_arrays(pa.array([0, len(value)], pa.int32()), items, type=value_type(kind))[0]
    return pa.scalar(value, value_type(kind))


def spread(value: Value, count: int) -> pa.Array:
    """A value as a column."""
    if not isinstance(value, pa.Scalar):
        return value
    return pa.repeat(value, count) if count else pa.nulls(0, value.type)  # Arrow repeats no list zero times


def gathered(column: pa.Array, *sources: Value) -> Value:
    """What was computed from single values only is a single value again."""
    return column[0] if all(isinstance(source, pa.Scalar) for source in sources) else column


def dense(value: Value) -> tuple[Numbers, Mask]:
    """Numbers or times in numpy, 0 where they are null, and where they are not. A single value has length 1."""
    column = spread(value, 1)
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return column.fill_null(0).to_numpy(zero_copy_only=False), valid


def sparse(numbers: Numbers, valid: Mask, kind: pa.DataType) -> pa.Array:
    """A column from numpy: what is not valid is null."""
    if pa.types.is_temporal(kind):
        plain = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return pa.array(numbers, plain, mask=~valid).view(kind)
    return pa.array(numbers, kind, mask=~valid)
