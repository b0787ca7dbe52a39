"""Distinct: remove rows whose result columns are equal to those of another row."""

from __future__ import annotations

from omnigraph.dataclass import dataclass
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.shape.grouping import distinct_rows
from omnigraph.read.shape.operator import MatchRows, ShapeRows, ShapeRun
from omnigraph.read.shape.result_columns import ResultColumns


@dataclass(frozen=True, slots=True)
class Distinct:
    """Remove duplicate rows.

    Attributes:
        columns: names of the result columns.
    """

    columns: tuple[str, ...]

    @property
    def name(self) -> OperatorName:
        return OperatorName.DISTINCT

    @property
    def text(self) -> str:
        return ", ".join(self.columns)

    def execute(self, rows: ShapeRows, run: ShapeRun) -> ResultColumns:
        assert isinstance(rows, MatchRows)
        return distinct_rows(run.query, run.context.search.fuse(run.query, rows.frame), run.context)
