"""What an expression is computed from: the rows, and what one call fixes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from omnigraph.lang.query import ir


@dataclass(frozen=True, slots=True)
class Request:
    """What one call fixes.

    Attributes:
        params: the bound parameters by name.
        now: the time of the request in milliseconds since 1970, the same at every occurrence.
    """

    params: Mapping[str, ir.ConstValue]
    now: int


class Rows(Protocol):
    """Columns of some rows. Every array has `count` values."""

    @property
    def count(self) -> int: ...

    def prop(self, var: str, name: str) -> pa.Array:
        """A property of a variable; null where the variable holds nothing, or its type does not declare it."""

    def ident(self, var: str, role: ir.Role) -> pa.Array:
        """The ids of a variable's entities, or of an end of its edges; null where the variable holds nothing."""

    def type_of(self, var: str) -> pa.Array:
        """The type names of a variable's entities; null where the variable holds nothing."""

    def path(self, var: str, part: ir.PathPart) -> pa.Array:
        """The length of a variable's paths, or the ids along them."""

    def column(self, name: str) -> pa.Array:
        """A column of the result so far."""

    def search(self, expr: ir.TextMatch | ir.Rank) -> pa.Array:
        """Whether texts have words, or the rank of entities; null for what has no rank."""


ROLE_COLUMNS = {ir.Role.ID: "id", ir.Role.FROM: "src", ir.Role.TO: "dst"}


@dataclass(frozen=True, slots=True)
class _TableRows:
    table: pa.Table
    type_name: str | None

    @property
    def count(self) -> int:
        return int(self.table.num_rows)

    def prop(self, var: str, name: str) -> pa.Array:
        assert var == ir.SELF, f"these are the rows of one table, not of ${var}"
        return whole(self.table.column(name))

    def ident(self, var: str, role: ir.Role) -> pa.Array:
        return self.prop(var, ROLE_COLUMNS[role])

    def type_of(self, var: str) -> pa.Array:
        assert var == ir.SELF
        assert self.type_name is not None, "the type of these rows was not given"
        return pa.repeat(pa.scalar(self.type_name), self.count)

    def path(self, var: str, part: ir.PathPart) -> pa.Array:
        raise AssertionError("a table has no paths")

    def column(self, name: str) -> pa.Array:
        raise AssertionError("a table is no result")

    def search(self, expr: ir.TextMatch | ir.Rank) -> pa.Array:
        raise AssertionError("only reads search")


def table_rows(table: pa.Table, type_name: str | None = None) -> Rows:
    """The rows of one table as the variable `self`.

    Args:
        table: rows with the columns that are asked for, as they are stored.
        type_name: what `type(…)` of a row is.
    """
    return _TableRows(table, type_name)


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
