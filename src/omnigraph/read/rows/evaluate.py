"""Evaluate expressions over many rows in chunks. A read can be stopped between two chunks."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from omnigraph.evaluate import Request, Rows, evaluate
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.budget.chunks import chunks, is_one_chunk
from omnigraph.read.query.expression import Expression


class SliceableRows(Rows, Protocol):
    """Rows that can be divided into ranges, which are evaluated separately."""

    def part(self, first: int, last: int) -> SliceableRows:
        """The rows from `first` to `last` (exclusive)."""


def evaluate_in_chunks(expression: Expression, rows: SliceableRows, request: Request) -> pa.Array:
    """Value of an expression for each row."""
    if is_one_chunk(rows.count) or expression.is_search:
        return evaluate(expression.expr, rows, request)
    parts = [evaluate(expression.expr, rows.part(first, last), request) for first, last in chunks(rows.count)]
    checkpoint()
    found = pa.concat_arrays(parts)
    checkpoint()
    return found


def is_true(condition: Expression, rows: SliceableRows, request: Request) -> pa.Array:
    """Mask of the rows for which a condition is true. Null counts as false."""
    return evaluate_in_chunks(condition, rows, request).fill_null(False)
