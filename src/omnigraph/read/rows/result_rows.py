"""Rows for expressions over columns of a result."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.rows.evaluate import SliceableRows


class ColumnSource(Protocol):
    """Values of columns, by name."""

    def __getitem__(self, name: str, /) -> pa.Array: ...


@dataclass(frozen=True, slots=True)
class _SlicedColumns:
    """Values of columns for the rows from `first` to `last` (exclusive)."""

    columns: ColumnSource
    first: int
    last: int

    def __getitem__(self, name: str) -> pa.Array:
        return self.columns[name].slice(self.first, self.last - self.first)


@dataclass(frozen=True, slots=True)
class ResultRows:
    """Rows for expressions that refer to result columns and to variables of the match."""

    rows: SliceableRows
    columns: ColumnSource

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

    def value(self, name: str) -> pa.Array:
        return self.rows.value(name)

    def search(self, expr: ir.TextMatch | ir.Rank) -> pa.Array:
        return self.rows.search(expr)


@dataclass(frozen=True, slots=True)
class NoVariables:
    """Rows without variables, for groups: after grouping, expressions can use only result columns."""

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

    def value(self, name: str) -> pa.Array:
        raise AssertionError(f"the value {name} cannot be used after grouping")

    def search(self, expr: ir.TextMatch | ir.Rank) -> pa.Array:
        raise AssertionError("search functions cannot be used after grouping")
