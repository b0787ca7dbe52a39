"""Cache of columns and derived arrays in memory, shared by all reads of the process, with a limit in bytes."""

# See docs/decisions/0156-a-walk-goes-in-one-direction.md
# See docs/decisions/0373-few-versions-of-a-column-are-cached.md

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from functools import cache
from threading import Lock
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

from omnigraph.read.budget.budget import checkpoint
from omnigraph.settings import CACHE_MEMORY

_BYTES_PER_VALUE = 16 << 10
_LEAST_VALUES = 4_096
"""The cache has at most one value per 16 KiB of its limit, but at least this number of values may be in it.

A value takes about 2 KB beside its arrays, so very many small values would need more memory than the limit.
"""

_VERSIONS = 16
"""Maximum number of versions of a column or derived value. Each commit makes one, and old ones are hardly read."""

_REMEMBERED = 2_000
"""Number of missing values whose costs are recorded, and of values that were too large. Each commit adds some."""

_PATIENCE = 0.05
"""Seconds between two checks of the limits while a read waits until another read has computed a value."""


class Sized(Protocol):
    """A value that can be cached: its size in bytes is known."""

    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=Sized)


class ColumnCache:
    """LRU cache of columns and derived arrays. It is thread-safe.

    Args:
        limit: size limit in bytes.
    """

    def __init__(self, limit: int = CACHE_MEMORY.amount({})) -> None:
        self._limit = limit
        self._most = max(_LEAST_VALUES, limit // _BYTES_PER_VALUE)
        self._held: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._versions: dict[Hashable, OrderedDict[Hashable, None]] = {}
        """For each family, the keys of its cached versions, least recently used first."""
        self._size = 0
        self._lock = Lock()
        self._costs: OrderedDict[Hashable, int] = OrderedDict()
        self._outsized: OrderedDict[Hashable, int] = OrderedDict()
        """Keys of values that were too large for the cache, with a lower bound of their size in bytes."""
        self._building: dict[Hashable, _Building] = {}
        """Locks of missing keys: one thread computes the value, others wait for it."""

    @property
    def limit(self) -> int:
        """Size limit in bytes."""
        return self._limit

    @property
    def size(self) -> int:
        """Bytes in use."""
        return self._size

    def slot(self, key: Hashable, family: Hashable = None) -> Slot:
        """The cache entry of a key, for a `with` block that computes the value if it is missing.

        A key must identify an immutable value. While one thread computes it, other threads wait for it.

            with cache.slot(key) as slot:
                return slot.value if slot.value is not None else slot.keep(compute())

        Args:
            key: the key.
            family: the same for all versions of the value, of which the cache keeps a few.
        """
        return Slot(self, key, family)

    def _enter(self, key: Hashable) -> tuple[Any, _Building | None]:
        """The cached value; if it is missing, the lock of the key, which the caller now holds."""
        with self._lock:
            if (found := self._find(key)) is not None:
                return found, None
            building = self._building.setdefault(key, _Building())
            building.wanted += 1
        try:
            while not building.lock.acquire(timeout=_PATIENCE):
                checkpoint()
        except BaseException:
            self._leave(key, building)
            raise
        return self.find(key), building

    def _leave(self, key: Hashable, building: _Building) -> None:
        with self._lock:
            building.wanted -= 1
            if not building.wanted:
                del self._building[key]

    def fits(self, size: int) -> bool:
        """Whether a value of `size` bytes can be cached at all."""
        return size <= self._limit

    def find(self, key: Hashable) -> Any:
        """The cached value of a key, or None."""
        with self._lock:
            return self._find(key)

    def keep(self, key: Hashable, made: Sized, family: Hashable = None) -> None:
        """Cache a value. It replaces an earlier value with the same key. `family` is that of `slot`."""
        with self._lock:
            self._keep(key, made, family)

    def note_outsized(self, key: Hashable, size: int) -> None:
        """Record that a value is too large to be cached. `size` is a lower bound of its bytes."""
        with self._lock:
            self._note_outsized(key, size)

    def outsized(self, key: Hashable) -> int:
        """Lower bound of the bytes of a value that was too large for the cache; 0 if none is recorded for this key."""
        with self._lock:
            return self._outsized.get(key, 0)

    def holds(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._held

    def should_defer(self, key: Hashable, cost: int, build_cost: int, size: int = 0) -> bool:
        """Whether a read should work without a missing value this time, instead of computing and caching the value.

        The result is True until the recorded costs of working without the value add up to the cost of computing it. So
        the total cost is at most twice the optimum (the ski rental problem). If the result is True, the cost is
        recorded. A value that is too large for the cache would have to be computed each time. For such a value, only
        `cost` and `build_cost` are compared, and nothing is recorded.

        Args:
            key: key of the missing value.
            cost: cost of working without the value this time, in any unit.
            build_cost: cost of computing the value, in the same unit.
            size: lower bound of the size of the value in bytes; 0 if unknown.
        """
        with self._lock:
            if size > self._limit or key in self._outsized:
                return cost <= build_cost
            if self._costs.get(key, 0) + cost > build_cost:
                return False
            self._record_cost(key, cost)
        return True

    def would_defer(self, key: Hashable, cost: int, build_cost: int) -> bool:
        """The result that `should_defer` would return. The cost is not recorded."""
        with self._lock:
            return (0 if key in self._outsized else self._costs.get(key, 0)) + cost <= build_cost

    def record_cost(self, key: Hashable, cost: int) -> None:
        """Add to the recorded cost of working without a value. Call it if the cost for `should_defer` was too low."""
        with self._lock:
            self._record_cost(key, cost)

    def _record_cost(self, key: Hashable, cost: int) -> None:
        self._costs[key] = self._costs.get(key, 0) + cost
        self._costs.move_to_end(key)
        while len(self._costs) > _REMEMBERED:
            self._costs.popitem(last=False)

    def _find(self, key: Hashable) -> Any:
        found = self._held.get(key)
        if found is None:
            return None
        self._held.move_to_end(key)
        if found.family is not None:
            self._versions[found.family].move_to_end(key)
        return found.value

    def _keep(self, key: Hashable, made: Sized, family: Hashable) -> None:
        size = made.nbytes
        self._remove(key)
        if size > self._limit:
            self._note_outsized(key, size)
            return
        self._held[key] = _Entry(made, size, family)
        self._size += size
        if family is not None:
            versions = self._versions.setdefault(family, OrderedDict())
            versions[key] = None
            if len(versions) > _VERSIONS:
                self._remove(next(iter(versions)))
        while self._size > self._limit or len(self._held) > self._most:
            self._remove(next(iter(self._held)))

    def _remove(self, key: Hashable) -> None:
        """Remove a value, if it is cached, and its recorded cost."""
        self._costs.pop(key, None)
        entry = self._held.pop(key, None)
        if entry is None:
            return
        self._size -= entry.size
        if entry.family is not None:
            versions = self._versions[entry.family]
            del versions[key]
            if not versions:
                del self._versions[entry.family]

    def _note_outsized(self, key: Hashable, size: int) -> None:
        self._outsized[key] = max(size, self._outsized.get(key, 0))
        self._outsized.move_to_end(key)
        while len(self._outsized) > _REMEMBERED:
            self._outsized.popitem(last=False)


class _Entry(NamedTuple):
    """A cached value, its size in bytes, and its family."""

    value: Any
    size: int
    family: Hashable


class Slot:
    """One entry of the cache, as a context manager: see `ColumnCache.slot`.

    Attributes:
        value: the cached value; None if it is missing, so that the block has to compute it.
    """

    __slots__ = ("_building", "_cache", "_family", "_key", "value")

    def __init__(self, cache: ColumnCache, key: Hashable, family: Hashable) -> None:
        self._cache = cache
        self._key = key
        self._family = family
        self._building: _Building | None = None
        self.value: Any = None

    def __enter__(self) -> Slot:
        self.value, self._building = self._cache._enter(self._key)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._building is not None:
            self._building.lock.release()
            self._cache._leave(self._key, self._building)

    def keep(self, made: T) -> T:
        """Cache the computed value, and return it."""
        self._cache.keep(self._key, made, self._family)
        return made


class _Building:
    """A lock that is held while one value is computed, with the number of threads that hold it or wait for it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.wanted = 0


@cache
def process_cache() -> ColumnCache:
    """The column cache that all reads of this process share."""
    return ColumnCache(cache_memory(os.environ))


def cache_memory(environ: Mapping[str, str]) -> int:
    """Size limit of the column cache in bytes, from the environment.

    >>> cache_memory({"OMNIGRAPH_CACHE_MEMORY": "64 MiB"})
    67108864
    """
    return CACHE_MEMORY.amount(environ)
