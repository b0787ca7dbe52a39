"""Columns of a result while it is built.

Some are computed; others are read from the entity tables when they are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.context.context import Context
from omnigraph.read.query.expression import Expression
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.rows.evaluate import SliceableRows, evaluate_in_chunks
from omnigraph.read.rows.frame import Frame
from omnigraph.read.rows.size_estimates import materialized_bytes
from omnigraph.read.shape.value_ranks import plain_column, value_ranks

FETCHED = ir.Prop | ir.Ident | ir.Entity | ir.TypeOf
"""Expressions that only read a property, id or type.

They cannot fail, so they are read late, for the remaining rows.
"""


class ResultColumns:
    """Columns of groups, or of distinct rows. Each group has a representative row in the match.

    Args:
        count: number of rows.
        computed: columns with their values.
        fetched: columns whose values are read for the representative rows on first use.
        frame: the rows of the match.
        first: for each group, the index of its representative row in the match.
        context: the read.

    Attributes:
        aggregates: for each aggregate, the name of the column with its values.
    """

    def __init__(
        self,
        count: int,
        computed: Mapping[str, pa.Array],
        fetched: Mapping[str, Expression],
        frame: Frame,
        first: Numbers,
        context: Context,
    ) -> None:
        self.count = count
        self.aggregates: dict[ir.Aggregate, str] = {}
        self._computed = dict(computed)
        self._fetched = fetched
        self._frame = frame
        self._first = first
        self._context = context

    @cached_property
    def _rows(self) -> Frame:
        return self._frame.take(self._first)

    def __getitem__(self, name: str) -> pa.Array:
        if name not in self._computed:
            expression = self._fetched[name]
            self._context.budget.need(self.nbytes + materialized_bytes([expression], self._rows))
            self._computed[name] = evaluate_in_chunks(expression, self._rows, self._context.request)
        return self._computed[name]

    def ranks(self, name: str) -> pa.Array | None:
        """Integers in the order of the values of a column; None if the values were read already, or need no ranks."""
        source = None if name in self._computed else plain_column(self._fetched[name].expr, self._rows)
        found = None if source is None else value_ranks(*source, self._context.budget)
        return None if found is None else found.of_row

    @property
    def nbytes(self) -> int:
        return sum(values.nbytes for values in self._computed.values())

    def add(self, name: str, values: pa.Array) -> None:
        """Add a computed column."""
        self._computed[name] = values
        self._context.budget.check()
        self._context.budget.need(self.nbytes)

    def take(self, rows: Numbers) -> ResultColumns:
        """The columns for the given rows."""
        size = self.nbytes
        self._context.budget.need(size + size * len(rows) // max(self.count, 1))
        places = pa.array(rows)
        computed = {name: values.take(places) for name, values in self._computed.items()}
        first = self._first[rows] if self._fetched else self._first
        taken = ResultColumns(len(rows), computed, self._fetched, self._frame, first, self._context)
        taken.aggregates = self.aggregates
        return taken


ColumnSource = Mapping[str, pa.Array] | ResultColumns
"""Values of columns, by name."""


@dataclass(frozen=True, slots=True)
class _SlicedColumns:
    """Columns for the rows from `first` to `last` (exclusive)."""

    columns: ColumnSource | _SlicedColumns
    first: int
    last: int

    def __getitem__(self, name: str) -> pa.Array:
        return self.columns[name].slice(self.first, self.last - self.first)


@dataclass(frozen=True, slots=True)
class ResultRows:
    """Rows for expressions that refer to result columns and to variables of the match."""

    rows: SliceableRows
    columns: ColumnSource | _SlicedColumns

    @property
    def count(self) -> int:
        return self.rows.count

    def part(self, first: int, last: int) -> ResultRows:
        return ResultRows(self.rows.part(first, last), _SlicedColumns(self.columns, first, last))

    def prop(self, var: str, name: str) -> pa.Array:
        return self.rows.prop(var, name)

    def ident(self, var: str, role: ir.Role) -> pa.Array:
        return self.rows.ident(var, role)

    def type_of(self, var: str) -> pa.Array:
        return self.rows.type_of(var)

    def path(self, var: str, part: ir.PathPart) -> pa.Array:
        return self.rows.path(var, part)

    def column(self, name: str) -> pa.Array:
        return self.columns[name]

    def search(self, expr: ir.TextMatch | ir.Rank) -> pa.Array:
        return self.rows.search(expr)


@dataclass(frozen=True, slots=True)
class NoVariables:
    """Groups as rows without variables: after grouping, only result columns can be used in expressions."""

    count: int

    def part(self, first: int, last: int) -> NoVariables:
        return NoVariables(last - first)

    def prop(self, var: str, name: str) -> pa.Array:
        raise AssertionError(f"${var} cannot be used after grouping")

    def ident(self, var: str, role: ir.Role) -> pa.Array:
        raise AssertionError(f"${var} cannot be used after grouping")

    def type_of(self, var: str) -> pa.Array:
        raise AssertionError(f"${var} cannot be used after grouping")

    def path(self, var: str, part: ir.PathPart) -> pa.Array:
        raise AssertionError(f"${var} cannot be used after grouping")

    def column(self, name: str) -> pa.Array:
        raise AssertionError(f"there is no column {name}")

    def search(self, expr: ir.TextMatch | ir.Rank) -> pa.Array:
        raise AssertionError("search functions cannot be used after grouping")


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
