"""What the reads of a handle share: the spaces and topologies of the snapshots that were read last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from threading import Lock

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.snapshots import Snapshot
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.read.space.cache import ColumnCache, process_cache
from omnigraph.read.space.space import Spaces
from omnigraph.read.topology.topology import Topologies

KEPT = 16
"""How many snapshots a handle remembers."""


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot, ready to be read."""

    spaces: Spaces
    topologies: Topologies


class Views:
    """The views of one graph. What a commit did not touch is taken over from the view before it.

    Args:
        cache: keeps columns and topologies; by default what the whole process shares.
    """

    def __init__(self, cache: ColumnCache | None = None) -> None:
        self._cache = cache
        self._views: OrderedDict[Hashable, View] = OrderedDict()
        self._newest: tuple[Manifest, View] | None = None
        self._lock = Lock()

    def of(self, snapshot: Snapshot, accepted: AcceptedSchema) -> View:
        """The view of a snapshot. Snapshots that have the same tables have the same one."""
        newest = self._newest
        if newest is not None and newest[0] is snapshot.manifest:
            return newest[1]
        key = (snapshot.schema_hash, *(pin.ref for pin in snapshot.tables.values()))
        with self._lock:
            found = self._views.get(key)
            if found is None:
                latest = next(reversed(self._views.values())).spaces if self._views else None
                spaces = Spaces(snapshot, self._cache or process_cache(), latest)
                found = View(spaces, Topologies(spaces, accepted.catalog))
                self._views[key] = found
                while len(self._views) > KEPT:
                    self._views.popitem(last=False)
            self._views.move_to_end(key)
            self._newest = (snapshot.manifest, found)
            for other in self._views.values():
                if other is not found:
                    # What is large is held by one view, and else by the cache as long as it has room.
                    other.topologies.let_go()
                    other.spaces.let_go(found.spaces)
        return found

    def clear(self) -> None:
        """Forget them."""
        with self._lock:
            self._views.clear()
            self._newest = None
