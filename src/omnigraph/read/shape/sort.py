"""Sort: sort the rows of the result, and apply `offset` and `limit`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.columns.sort_keys import Key, in_order
from omnigraph.read.context.context import Context
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.rows.frame import Frame
from omnigraph.read.shape.operator import MatchRows, SelectedRows, ShapeRows, ShapeRun
from omnigraph.read.shape.query_sort_keys import group_keys, match_keys
from omnigraph.read.shape.result_columns import ResultColumns


@dataclass(frozen=True, slots=True)
class Sort:
    """Sort rows. With a limit, only the first rows are found and sorted.

    Attributes:
        keys: sort keys; empty if the query has none.
        ties: additional last sort keys, which make the order unique.
        offset: number of rows to skip.
        limit: maximum number of rows to return; None for all.
    """

    keys: tuple[ir.SortKey, ...]
    ties: tuple[ir.Expr, ...]
    offset: int
    limit: int | None

    @property
    def name(self) -> OperatorName:
        return OperatorName.SORT if self.limit is None else OperatorName.TOP

    @property
    def text(self) -> str:
        keys = [ir.expression(key.expr) + (" desc" if key.descending else "") for key in self.keys]
        by = keys or list(map(ir.expression, self.ties))
        parts = [f"by {', '.join(by)}"] if by else []
        parts += [f"offset {self.offset}"] if self.offset else []
        parts += [] if self.limit is None else [f"limit {self.limit}"]
        return ", ".join(parts)

    def execute(self, rows: ShapeRows, run: ShapeRun) -> SelectedRows:
        context = run.context
        if isinstance(rows, MatchRows):
            frame = top_ranked(run.query, rows.frame, context, self.offset, self.limit)
            rows, keys = MatchRows(frame, rows.weights), match_keys(run.query, frame, context)
            if rows.weights is None:
                chosen = in_order(keys, frame.count, self.offset, self.limit)
            else:
                chosen = self._repeated(keys, rows.weights)
        else:
            assert isinstance(rows, ResultColumns)
            chosen = in_order(group_keys(run.query, rows, context), rows.count, self.offset, self.limit)
        if not run.query.is_stage:
            context.budget.note_returned(len(chosen))
        return SelectedRows(rows, chosen)

    def _repeated(self, keys: Sequence[Key], weights: Numbers) -> Numbers:
        """The indices of the selected rows in order. A row that stands for several rows is selected several times."""
        assert self.limit is not None, "rows get weights only if there is a limit"
        end = self.offset + self.limit
        first = in_order(keys, len(weights), 0, end)
        return np.repeat(first, np.minimum(weights.take(first), end))[self.offset : end]


def top_ranked(query: ReadQuery, frame: Frame, context: Context, offset: int, limit: int | None) -> Frame:
    """Compute fused ranks, and remove rows that cannot be in the result if a rank is the first sort key."""
    end = None if limit is None else offset + limit
    rank = query.first_rank
    frame = context.search.fuse(query, frame, rank, end)
    if rank is None or (end is None and query.read.ranked is None):
        return frame
    best = context.search.best(rank, frame, end)
    # If the query sorts by a column that contains the rank, rows without a score come last. They are in the result if
    # there are too few rows with a score.
    return best if query.read.ranked is not None or (end is not None and best.count >= end) else frame
