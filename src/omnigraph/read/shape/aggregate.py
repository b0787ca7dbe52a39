"""Aggregate: group rows by keys and compute aggregates."""

from __future__ import annotations

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.shape.grouping import grouped_rows
from omnigraph.read.shape.operator import MatchRows, ShapeRows, ShapeRun
from omnigraph.read.shape.result_columns import ResultColumns


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Group rows and compute aggregates.

    Attributes:
        aggregates: the aggregates of columns and `having`.
        keys: grouping keys; if there are none, all rows are one group.
    """

    aggregates: tuple[ir.Aggregate, ...]
    keys: tuple[ir.OutColumn, ...]

    @property
    def name(self) -> OperatorName:
        return OperatorName.AGGREGATE

    @property
    def text(self) -> str:
        by = f" by {', '.join(ir.expression(column.expr) for column in self.keys)}" if self.keys else ""
        return ", ".join(map(ir.expression, self.aggregates)) + by

    def execute(self, rows: ShapeRows, run: ShapeRun) -> ResultColumns:
        assert isinstance(rows, MatchRows)
        frame = run.context.search.fuse(run.query, rows.frame)
        return grouped_rows(run.query, frame, run.context, rows.weights)
