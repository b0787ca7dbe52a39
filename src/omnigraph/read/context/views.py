"""Views: entity tables and topologies of recent snapshots, shared by all reads of a graph handle."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.snapshots import Snapshot
from omnigraph.lang.schema import AcceptedSchema, Catalog
from omnigraph.read.columns.cache import ColumnCache, process_cache
from omnigraph.read.columns.entity_table import EntityTables

if TYPE_CHECKING:
    from omnigraph.read.topology.topologies import Topologies

KEPT = 16
"""Number of recent snapshots whose views a graph handle keeps."""


class View:
    """Entity tables and topologies of one snapshot."""

    def __init__(self, tables: EntityTables, catalog: Catalog) -> None:
        self.tables = tables
        self._catalog = catalog

    @cached_property
    def topologies(self) -> Topologies:
        from omnigraph.read.topology.topologies import Topologies

        return Topologies(self.tables, self._catalog)

    def release(self, others: EntityTables) -> None:
        """Drop the references to arrays, except for those of tables that are shared with `others`."""
        if "topologies" in vars(self):
            self.topologies.release()
        self.tables.release(others)


class Views:
    """The open snapshots (views) of one graph. A new view shares the entity tables whose version did not change.

    Args:
        cache: caches columns and topologies; by default the cache of the process.
    """

    def __init__(self, cache: ColumnCache | None = None) -> None:
        self._cache = cache
        self._views: OrderedDict[Hashable, View] = OrderedDict()
        self._newest: tuple[Manifest, View] | None = None
        self._lock = Lock()

    def of(self, snapshot: Snapshot, accepted: AcceptedSchema) -> View:
        """The view of a snapshot. Snapshots with the same table versions have the same view."""
        newest = self._newest
        if newest is not None and newest[0] is snapshot.manifest:
            return newest[1]
        key = (snapshot.schema_hash, *(pin.ref for pin in snapshot.tables.values()))
        with self._lock:
            found = self._views.get(key)
            if found is None:
                latest = next(reversed(self._views.values())).tables if self._views else None
                tables = EntityTables(snapshot, self._cache or process_cache(), latest)
                found = View(tables, accepted.catalog)
                self._views[key] = found
                while len(self._views) > KEPT:
                    self._views.popitem(last=False)
            self._views.move_to_end(key)
            self._newest = (snapshot.manifest, found)
            for other in self._views.values():
                if other is not found:
                    # Only the current view refers to large arrays. Arrays of other views stay in the cache until they
                    # are evicted.
                    other.release(found.tables)
        return found

    def clear(self) -> None:
        """Drop all views."""
        with self._lock:
            self._views.clear()
            self._newest = None
