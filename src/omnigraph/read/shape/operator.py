"""Shape operators: they turn the rows of a match into the result table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

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
        weights: how many rows of the match each row counts for; None if each counts for one.
    """

    frame: Frame
    weights: Numbers | None = None


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """Rows in the order of the result, without those before the offset and beyond the limit."""

    rows: MatchRows | ResultColumns
    chosen: Numbers


ShapeRows: TypeAlias = MatchRows | ResultColumns | SelectedRows | pa.Table
"""Input and output of shape operators."""


@dataclass(frozen=True, slots=True)
class ShapeRun:
    """The read that a shape operator runs for."""

    query: ReadQuery
    context: Context


class ShapeOperator(Protocol):
    """An operator after the match."""

    @property
    def name(self) -> OperatorName: ...

    @property
    def text(self) -> str:
        """Its arguments, for `explain`."""
        ...

    def execute(self, rows: ShapeRows, run: ShapeRun) -> ShapeRows:
        """Run the operator."""
        ...


def row_count(rows: ShapeRows) -> int:
    """How many rows there are."""
    if isinstance(rows, MatchRows):
        return rows.frame.count
    if isinstance(rows, SelectedRows):
        return len(rows.chosen)
    return rows.count if isinstance(rows, ResultColumns) else int(rows.num_rows)


def row_bytes(rows: ShapeRows) -> int | None:
    """How many bytes the rows take; None while columns are not fetched."""
    if isinstance(rows, MatchRows):
        return rows.frame.nbytes
    if isinstance(rows, SelectedRows):
        return int(rows.chosen.nbytes)
    return None if isinstance(rows, ResultColumns) else int(rows.nbytes)
