"""Tables as integers: the entities of a type at one version, numbered so that a match is arithmetic.

An entity's number is its stable row id, counted from the least one: it survives updates and compaction, so what is
computed from numbers stays true while only values change. Deleted entities leave holes. Where there are many more
holes than entities, the entities are numbered without them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshots import Snapshot
from omnigraph.storage.tables import TableRef

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NOTHING = -1
"""The number that a variable of an `optional` block has where the block found nothing."""

_SPARSE = 4
"""With more slots per entity than this, holes are left out."""

_CACHED_BYTES = 1 << 30
_FEW = 64


class ColumnCache:
    """Columns that were read, shared by all reads of a handle, up to a number of bytes."""

    def __init__(self, limit: int = _CACHED_BYTES) -> None:
        self._limit = limit
        self._held: OrderedDict[tuple[TableRef, str], Any] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def get(self, ref: TableRef, name: str, read: Callable[[], Any]) -> Any:
        """What is cached under a name of a version, or what is read now."""
        key = (ref, name)
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        found = read()
        with self._lock:
            if key not in self._held:
                self._held[key] = found
                self._size += found.nbytes
            while self._size > self._limit and len(self._held) > 1:
                _, gone = self._held.popitem(last=False)
                self._size -= gone.nbytes
        return found

    def holds(self, ref: TableRef, name: str) -> bool:
        with self._lock:
            return (ref, name) in self._held


class Space:
    """The entities of one type at one version, as the numbers from 0 to `slots`.

    Args:
        snapshot: what is read.
        key: the type key.
        cache: keeps columns.

    Attributes:
        count: how many entities there are.
        slots: how many numbers there are, holes included.
        live: which numbers are entities; None when all are.
    """

    def __init__(self, snapshot: Snapshot, key: str, cache: ColumnCache) -> None:
        self.key = key
        self.type_name = key.partition(":")[2]
        self.ref = snapshot.pin(key).ref
        self._snapshot = snapshot
        self._cache = cache
        self.schema = snapshot.schema(key)
        row_ids: Numbers = cache.get(self.ref, "_rowid", self._read_row_ids)
        self.count = len(row_ids)
        self._positions: Numbers | None = None
        """Where the entity of each number lies in the table; None when they lie in the order of their numbers."""
        self.live: Mask | None = None
        self._base = int(row_ids.min()) if self.count else 0
        self._row_ids: Numbers | None = None
        """The row ids by number, when holes are left out."""
        spread = int(row_ids.max()) - self._base + 1 if self.count else 0
        if spread > _SPARSE * self.count:
            order = np.argsort(row_ids, kind="stable")
            self._row_ids = row_ids[order]
            self.slots = self.count
            self._positions = None if np.array_equal(order, np.arange(self.count)) else order
        else:
            self.slots = spread
            numbers = row_ids - self._base
            if spread != self.count or not np.array_equal(numbers, np.arange(spread)):
                self._positions = np.full(spread, NOTHING, np.int64)
                self._positions[numbers] = np.arange(self.count)
            if spread != self.count:
                assert self._positions is not None
                self.live = self._positions != NOTHING

    def _read_row_ids(self) -> Numbers:
        reader = self._snapshot.batches(self.key, columns=["_rowid"])
        found: Numbers = reader.read_all()["_rowid"].to_numpy().astype(np.int64)
        return found

    def everything(self) -> Numbers:
        """The numbers of all entities, in order."""
        return np.arange(self.slots) if self.live is None else np.flatnonzero(self.live)

    def row_ids(self, numbers: Numbers) -> Numbers:
        """The row ids of entities."""
        return self._base + numbers if self._row_ids is None else self._row_ids[numbers]

    def numbers(self, row_ids: Numbers) -> Numbers:
        """The numbers of entities that are there, by row id."""
        if self._row_ids is None:
            return row_ids - self._base
        found: Numbers = np.searchsorted(self._row_ids, row_ids).astype(np.int64)
        return found

    def declares(self, name: str) -> bool:
        return bool(name in self.schema.names)

    def column(self, name: str) -> pa.Array:
        """A column by number; null in holes."""
        return self._cache.get(self.ref, name, lambda: self._read(name))

    def _read(self, name: str) -> pa.Array:
        values = self._snapshot.batches(self.key, columns=[name]).read_all()[name]
        if self._positions is None:
            return one_piece(values)
        places = pa.array(self._positions, mask=self._positions == NOTHING)
        return one_piece(one_piece(values).take(places))

    def take(self, name: str, numbers: Numbers) -> pa.Array:
        """Values of some entities; null for `NOTHING`."""
        return self.column(name).take(places(numbers))

    def find(self, ids: pa.Array) -> Numbers:
        """The numbers of entities by id; `NOTHING` for those that do not exist."""
        stored = self.column("id")
        if len(ids) <= _FEW:
            # Asking for each is quicker than preparing a table of all ids.
            return np.array([pc.index(stored, id_).as_py() for id_ in ids], np.int64)
        places_ = pc.index_in(ids, value_set=stored)
        numbers: Numbers = places_.fill_null(NOTHING).to_numpy(zero_copy_only=False).astype(np.int64)
        return numbers


class Spaces:
    """The spaces of one snapshot, each made when it is first asked for."""

    def __init__(self, snapshot: Snapshot, cache: ColumnCache) -> None:
        self._snapshot = snapshot
        self._cache = cache
        self._made: dict[str, Space] = {}
        self._lock = Lock()

    def nodes(self, name: str) -> Space:
        return self._of(f"node:{name}")

    def edges(self, name: str) -> Space:
        return self._of(f"edge:{name}")

    def _of(self, key: str) -> Space:
        with self._lock:
            found = self._made.get(key)
        if found is None:
            found = Space(self._snapshot, key, self._cache)
            with self._lock:
                found = self._made.setdefault(key, found)
        return found


def places(numbers: Numbers) -> pa.Array:
    """Numbers as places to take values from: nothing gives null."""
    missing = numbers == NOTHING
    return pa.array(numbers, mask=missing) if missing.any() else pa.array(numbers)


def one_piece(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
