"""Project: fetch the result columns of the selected rows."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.read.budget.chunks import chunks
from omnigraph.read.context.context import Context
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.rows.frame import Frame
from omnigraph.read.shape.operator import MatchRows, SelectedRows, ShapeRows, ShapeRun
from omnigraph.read.shape.result_columns import compute_columns, result_table


@dataclass(frozen=True, slots=True)
class Project:
    """Fetch the result columns. Columns that are not sort keys are computed for the selected rows only.

    Attributes:
        columns: names of the result columns.
    """

    columns: tuple[str, ...]

    @property
    def name(self) -> OperatorName:
        return OperatorName.PROJECT

    @property
    def text(self) -> str:
        return ", ".join(self.columns)

    def execute(self, rows: ShapeRows, run: ShapeRun) -> pa.Table:
        assert isinstance(rows, SelectedRows)
        if not isinstance(rows.rows, MatchRows):
            return result_table(run.query, rows.rows.take(rows.chosen))
        frame, chosen, budget = rows.rows.frame, rows.chosen, run.context.budget
        parts = []
        with budget.keeping():
            for first, last in chunks(len(chosen)):
                alone = frame.count == 1 and len(chosen) == 1
                part = frame if alone else frame.take(chosen[first:last])
                parts.append(project_frame(run.query, part, run.context))
                budget.keep(parts[-1].nbytes)
        return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


def project_frame(query: ReadQuery, frame: Frame, context: Context) -> pa.Table:
    """The result columns for all rows of a frame. The order of rows does not change."""
    return result_table(query, compute_columns(query.columns, frame, context))
