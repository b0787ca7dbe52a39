"""The tables of a graph as an actor sees them."""

from __future__ import annotations

from typing import cast

from omnigraph.errors import AccessDeniedError
from omnigraph.read.columns.cache import ColumnCache, process_cache
from omnigraph.restricted.refs import RestrictedRef
from omnigraph.restricted.table_view import RestrictedView
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.table_view import TableView
from omnigraph.storage.tables import TableStorage


class RestrictedTables:
    """The tables of a graph as an actor sees them. It reads restricted versions, and versions of open tables.

    Args:
        base: the tables.
        cache: caches the visible rows; by default the cache of the process.
    """

    def __init__(self, base: TableStorage, cache: ColumnCache | None = None) -> None:
        self.base = base
        self._cache = cache
        self._open: set[str] = set()

    def open_table(self, path: str) -> None:
        """Allow reads of all rows and columns of a table."""
        self._open.add(path)

    def at(self, ref: TableRef) -> TableView:
        """A table version as the actor sees it.

        Raises:
            AccessDeniedError: it is a stored version of a table that the actor may not read as a whole.
        """
        if isinstance(ref, RestrictedRef):
            view = RestrictedView(self, self.base.at(ref.base), ref, self._cache or process_cache())
            return cast(TableView, view)
        if ref.path not in self._open:
            raise AccessDeniedError(None, "read", hint="the actor may see only a part of this table")
        return self.base.at(ref)

    def fork_points(self, path: str) -> dict[str, TableRef]:
        """The version at which each branch of a table was created."""
        return self.base.fork_points(path)


def as_tables(tables: RestrictedTables) -> TableStorage:
    """The tables with the type of the stored ones. Methods that a reader does not need are missing."""
    return cast(TableStorage, tables)
