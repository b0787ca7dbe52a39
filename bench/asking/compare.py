"""Whether two answers are the same, and how answers are brought into a form that can be compared."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

RELATIVE = 1e-9


def same(one: pa.Table, other: pa.Table) -> bool:
    """Whether two answers have the same rows, in whatever order. Averages may differ in their last digits."""
    if one.num_rows != other.num_rows or sorted(one.column_names) != sorted(other.column_names):
        return False
    floats = {name for table in (one, other) for name in table.column_names if pa.types.is_floating(table[name].type)}
    mine, theirs = (_in_order(table, floats) for table in (one, other))
    return all(_equal(mine[name], theirs[name], near=name in floats) for name in mine.column_names)


def _in_order(table: pa.Table, floats: set[str]) -> pa.Table:
    """The rows by their exact columns, and then by the others."""
    names = sorted(table.column_names, key=lambda name: (name in floats, name))
    plain = pa.table({name: _plain(table[name], near=name in floats) for name in names})
    return plain.sort_by([(name, "ascending") for name in names])


def _plain(column: pa.ChunkedArray, *, near: bool) -> pa.ChunkedArray:
    """In types that do not tell which engine made the column."""
    if near:
        return column.cast(pa.float64())
    if pa.types.is_integer(column.type) or pa.types.is_decimal(column.type) or pa.types.is_null(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.utf8())


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray, *, near: bool) -> bool:
    if not near:
        return bool(one.combine_chunks().equals(other.combine_chunks()))
    left, right = (column.to_numpy().astype(np.float64) for column in (one, other))
    return bool(np.allclose(left, right, rtol=RELATIVE, atol=0, equal_nan=True))
