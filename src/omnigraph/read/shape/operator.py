"""Shape operators convert the rows of a match to the result table: they group, sort and project."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.context.context import Context
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.rows.frame import Frame
from omnigraph.read.shape.result_columns import ResultColumns


@dataclass(frozen=True, slots=True)
class MatchRows:
    """Rows of a match.

    Attributes:
        frame: the rows.
        weights: number of rows of the match that each row stands for; None if each row stands for itself.
    """

    frame: Frame
    weights: Numbers | None = None


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """The rows of the result, in order. Rows before `offset` and after `limit` are not included.

    Attributes:
        rows: all rows.
        chosen: indices of the selected rows, in order.
    """

    rows: MatchRows | ResultColumns
    chosen: Numbers


ShapeRows: TypeAlias = MatchRows | ResultColumns | SelectedRows | pa.Table
"""The input or output of a shape operator."""


@dataclass(frozen=True, slots=True)
class ShapeRun:
    """The query that a shape operator executes, and the state of the running read."""

    query: ReadQuery
    context: Context


class ShapeOperator(Protocol):
    """A physical operator that runs after the match."""

    @property
    def name(self) -> OperatorName: ...

    @property
    def text(self) -> str:
        """The arguments of the operator, as `explain` prints them."""
        ...

    def execute(self, rows: ShapeRows, run: ShapeRun) -> ShapeRows:
        """Run the operator."""
        ...


def row_count(rows: ShapeRows) -> int:
    """Number of rows."""
    if isinstance(rows, MatchRows):
        return rows.frame.count
    if isinstance(rows, SelectedRows):
        return len(rows.chosen)
    return rows.count if isinstance(rows, ResultColumns) else int(rows.num_rows)


def row_bytes(rows: ShapeRows) -> int | None:
    """Number of bytes of the rows; None for `ResultColumns`, whose columns may not have been read yet."""
    if isinstance(rows, MatchRows):
        return rows.frame.nbytes
    if isinstance(rows, SelectedRows):
        return int(rows.chosen.nbytes)
    return None if isinstance(rows, ResultColumns) else int(rows.nbytes)
