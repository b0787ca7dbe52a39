"""Columns of a result while it is built.

Some columns are computed; others are read from the entity tables when they are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import pyarrow as pa

from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.context.context import Context
from omnigraph.read.query.expression import Expression
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.rows.evaluate import evaluate_in_chunks
from omnigraph.read.rows.frame import Binding, Frame
from omnigraph.read.rows.result_rows import ColumnSource, ResultRows
from omnigraph.read.rows.size_estimates import materialized_bytes
from omnigraph.read.shape.value_ranks import plain_column, value_ranks

FETCHED = ir.Prop | ir.Ident | ir.Entity | ir.TypeOf
"""Expressions that only read a property, id or type.

Reading them cannot fail. So they are read late, for the rows that remain after grouping, sorting and the limit.
"""


class ResultColumns:
    """Columns of groups, or of distinct rows. Each group has a representative row in the match.

    Args:
        count: number of rows.
        computed: values of the computed columns, by name.
        fetched: expressions of the other columns. Their values are read for the representative rows on first use.
        frame: the rows of the match.
        first: for each group, the index of its representative row in the match; None if each row is a group.
        context: the state of the running read: snapshot, parameters and budget.

    Attributes:
        aggregates: for each aggregate, the name of the column with its values.
    """

    def __init__(
        self,
        count: int,
        computed: Mapping[str, pa.Array],
        fetched: Mapping[str, Expression],
        frame: Frame,
        first: Numbers | None,
        context: Context,
    ) -> None:
        self.count = count
        self.aggregates: dict[ir.Aggregate, str] = {}
        self._computed = dict(computed)
        self._fetched = fetched
        self._frame = frame
        self._first = first
        self._context = context
        self._sizes: dict[str, int] = {}

    @cached_property
    def representatives(self) -> Frame:
        """The representative row of each group."""
        return self._frame if self._first is None else self._frame.take(self._first)

    def __getitem__(self, name: str) -> pa.Array:
        if name not in self._computed:
            expression = self._fetched[name]
            self._context.budget.need(self.nbytes + materialized_bytes([expression], self.representatives))
            self._computed[name] = evaluate_in_chunks(expression, self.representatives, self._context.request)
        return self._computed[name]

    def ranks(self, name: str) -> pa.Array | None:
        """For each value of a column, an integer in the same order; None if ranks are not needed."""
        source = self.source(name)
        found = None if source is None else value_ranks(*source, self._context.budget)
        return None if found is None else found.of_row

    def is_computed(self, name: str) -> bool:
        """Whether the values of a column are in memory."""
        return name in self._computed

    def source(self, name: str) -> tuple[Binding, str] | None:
        """The binding and the column name of a column that is read from an entity table; None for other columns."""
        return None if name in self._computed else plain_column(self._fetched[name].expr, self.representatives)

    @property
    def nbytes(self) -> int:
        for name in self._computed.keys() - self._sizes.keys():
            self._sizes[name] = self._computed[name].nbytes
        return sum(self._sizes.values())

    def add(self, name: str, values: pa.Array) -> None:
        """Add a computed column."""
        self._computed[name] = values
        self._sizes[name] = values.nbytes
        self._context.budget.check()
        self._context.budget.need(self.nbytes)

    def take(self, rows: Numbers) -> ResultColumns:
        """The columns for the given rows."""
        size = self.nbytes
        self._context.budget.need(size + size * len(rows) // max(self.count, 1))
        places = pa.array(rows)
        computed = {name: values.take(places) for name, values in self._computed.items()}
        first = rows if self._first is None else self._first[rows] if self._fetched else self._first
        taken = ResultColumns(len(rows), computed, self._fetched, self._frame, first, self._context)
        taken.aggregates = self.aggregates
        return taken


def compute_columns(columns: Mapping[str, Expression], rows: Frame, context: Context) -> dict[str, pa.Array]:
    """Compute columns in order. A column may refer to earlier ones."""
    computed: dict[str, pa.Array] = {}
    size = 0
    for name, expression in columns.items():
        context.budget.need(size + materialized_bytes([expression], rows))
        computed[name] = evaluate_in_chunks(expression, ResultRows(rows, computed), context.request)
        size += computed[name].nbytes
        context.budget.check()
        context.budget.need(size)
    return computed


def result_table(query: ReadQuery, columns: ColumnSource) -> pa.Table:
    """Build the result table of a query from its columns."""
    schema = query.schema
    return pa.table([cast_to(columns[field.name], field.type) for field in schema], schema)


def cast_to(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert values to an Arrow type, unless they have this type already."""
    return values if values.type == kind else values.cast(kind)
