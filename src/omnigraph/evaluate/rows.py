"""The inputs of an expression: rows, parameters and the time of the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir


@dataclass(frozen=True, slots=True)
class Request:
    """The constants of one request.

    Attributes:
        params: the bound parameters by name.
        now: the time of the request in milliseconds since 1970. It is the same for every `now()`.
    """

    params: Mapping[str, ir.ConstValue]
    now: int


class Rows(Protocol):
    """The values that expressions read from rows. Every array has `count` values, one per row."""

    @property
    def count(self) -> int: ...

    def prop(self, var: str, name: str) -> pa.Array:
        """A property of a variable. Null if the variable is unbound, or if its type does not declare the property."""

    def ident(self, var: str, role: ir.Role) -> pa.Array:
        """The ids of the entities of a variable; with role `FROM` or `TO`, the ids of the source or target of edges.

        Null if the variable is unbound.
        """

    def type_of(self, var: str) -> pa.Array:
        """The type names of the entities of a variable. Null if the variable is unbound."""

    def path(self, var: str, part: ir.PathPart) -> pa.Array:
        """The lengths of the paths of a path variable, or the ids of their nodes or edges."""

    def column(self, name: str) -> pa.Array:
        """A column of the current result."""

    def value(self, name: str) -> pa.Array:
        """A value that belongs to the rows of a match, see `ir.Value`."""

    def search(self, expr: ir.TextMatch | ir.Rank) -> pa.Array:
        """For each row, whether the text matches, or the rank of the entity. The rank is null if there is none."""


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
        return as_one_array(self.table.column(name))

    def ident(self, var: str, role: ir.Role) -> pa.Array:
        return self.prop(var, ROLE_COLUMNS[role])

    def type_of(self, var: str) -> pa.Array:
        assert var == ir.SELF
        assert self.type_name is not None, "the type of these rows was not given"
        return pa.repeat(pa.scalar(self.type_name), self.count)

    def path(self, var: str, part: ir.PathPart) -> pa.Array:
        raise AssertionError("a table has no paths")

    def column(self, name: str) -> pa.Array:
        raise AssertionError("the rows of a stored table have no result columns")

    def value(self, name: str) -> pa.Array:
        raise AssertionError("the rows of a stored table have no values")

    def search(self, expr: ir.TextMatch | ir.Rank) -> pa.Array:
        raise AssertionError("search is available in queries that read only")


def table_rows(table: pa.Table, type_name: str | None = None) -> Rows:
    """The rows of one table, for expressions on the variable `self`.

    Args:
        table: stored rows, with all columns that the expression reads.
        type_name: the value of `type(…)` for the rows.
    """
    return _TableRows(table, type_name)


def as_one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Combine the chunks of a column."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
