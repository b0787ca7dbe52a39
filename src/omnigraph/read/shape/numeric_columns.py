"""Numeric properties of many rows, read from cached columns without Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import ir
from omnigraph.read.budget.chunks import chunks
from omnigraph.read.columns.numbers import NOTHING
from omnigraph.read.rows.frame import Frame


def cached_numbers(expr: ir.Expr, frame: Frame) -> pa.Array | None:
    """The values of a numeric property for each row.

    None for other expressions, for values that may be null, and for columns that are not cached.
    """
    if not isinstance(expr, ir.Prop) or expr.var not in frame.bindings:
        return None
    binding = frame.bindings[expr.var]
    if binding.type_index is not None:
        return None
    table, numbers = binding.tables[0], binding.numbers
    if len(numbers) == 0 or table.count == 0 or not table.is_cached(expr.name):
        return None
    column = table.column(expr.name)
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)) or column.null_count or numbers.min() == NOTHING:
        return None
    values = column.to_numpy()
    found = np.empty(len(numbers), values.dtype)
    for first, last in chunks(len(numbers)):
        # All numbers are valid. With this mode, the result is not buffered.
        values.take(numbers[first:last], out=found[first:last], mode="clip")
    return pa.array(found, kind)
