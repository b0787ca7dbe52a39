"""Work in portions: between two of them, a read can be stopped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from omnigraph.evaluate import Request, Rows, evaluate
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.budget import checkpoint
from omnigraph.read.plan.remembered import remembered

PORTION = 1 << 16
"""How many rows are handled at a time: few enough that a read is stopped soon, many enough that nobody notices."""


def portions(count: int, size: int | None = None) -> Iterator[tuple[int, int]]:
    """The first and the last place of each portion of so many rows, the last one excluded. There is always one.

    >>> list(portions(5, 2))
    [(0, 2), (2, 4), (4, 5)]

    Raises:
        BudgetExceededError: the time of the read that runs in this thread is over.
        CancelledError: it was told to stop.
    """
    size = PORTION if size is None else size
    for first in range(0, max(count, 1), size):
        checkpoint()
        yield first, min(first + size, count)


class Divisible(Rows, Protocol):
    """Rows of which some can be taken alone."""

    def part(self, first: int, last: int) -> Divisible:
        """The rows from one place to another, the last one excluded."""


def values_of(expr: ir.Expr, rows: Divisible, request: Request) -> pa.Array:
    """The values of an expression, one per row; `evaluate` says more."""
    if rows.count < 2 * PORTION or _searches(expr):
        return evaluate(expr, rows, request)
    parts = [evaluate(expr, rows.part(first, last), request) for first, last in portions(rows.count)]
    checkpoint()
    found = pa.concat_arrays(parts)
    checkpoint()
    return found


def true_of(expr: ir.Expr, rows: Divisible, request: Request) -> pa.Array:
    """Where a condition is true. Unknown is not true."""
    return values_of(expr, rows, request).fill_null(False)


@remembered
def _searches(expr: ir.Expr) -> bool:
    """Whether an expression looks for words or ranks, which is done for all rows at once."""
    return any(isinstance(part, ir.TextMatch | ir.Nearest | ir.Bm25 | ir.Fusion) for part in walk(expr))
