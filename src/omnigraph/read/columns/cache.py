"""Cache of columns and derived arrays in memory, shared by all reads of the process, with a limit in bytes."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, Protocol, TypeVar

from omnigraph.read.budget.budget import checkpoint
from omnigraph.settings import CACHE_MEMORY

_REMEMBERED = 10_000
_PATIENCE = 0.05
"""Seconds between two checks of a read that waits for another."""


class Sized(Protocol):
    """A value that can be cached."""

    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=Sized)


class ColumnCache:
    """LRU cache of columns and derived arrays, safe for threads.

    Args:
        limit: size in bytes.
    """

    def __init__(self, limit: int = CACHE_MEMORY.amount({})) -> None:
        self._limit = limit
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._size = 0
        self._lock = Lock()
        self._paid: OrderedDict[Hashable, int] = OrderedDict()
        self._outsized: OrderedDict[Hashable, int] = OrderedDict()
        """Keys of values that were too large for the cache, with a lower bound of their size."""
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

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The cached value of a key, computed if it is missing. A key must identify an immutable value."""
        with self._lock:
            if (found := self._find(key)) is not None:
                return found  # type: ignore[no-any-return]
            building = self._building.setdefault(key, _Building())
            building.wanted += 1
        try:
            with _locked(building.lock):
                with self._lock:
                    if (found := self._find(key)) is not None:
                        return found  # type: ignore[no-any-return]
                made = make()
                with self._lock:
                    self._keep(key, made)
            return made
        finally:
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

    def keep(self, key: Hashable, made: Sized) -> None:
        """Cache a value, in place of an earlier one with the same key."""
        with self._lock:
            self._keep(key, made)

    def note_outsized(self, key: Hashable, size: int) -> None:
        """Record that a value is too large to be cached, with a lower bound of its size."""
        with self._lock:
            self._note_outsized(key, size)

    def outsized(self, key: Hashable) -> int:
        """Lower bound of the size of a value that was too large; 0 if nothing is known."""
        with self._lock:
            return self._outsized.get(key, 0)

    def holds(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._held

    def rents(self, key: Hashable, rent: int, price: int, size: int = 0) -> bool:
        """Whether to work without a missing value once more instead of computing it (the ski rental problem).

        Callers work without the value until that has cost as much as computing it. So the total cost is at most twice
        the optimum. A value that is too large for the cache would be computed each time; it is avoided whenever that is
        cheaper.

        Args:
            key: key of the missing value.
            rent: cost of working without it this time.
            price: cost of computing it.
            size: lower bound of its size in bytes, if known.
        """
        with self._lock:
            if size > self._limit or key in self._outsized:
                return rent <= price
            if self._paid.get(key, 0) + rent > price:
                return False
            self._pay(key, rent)
        return True

    def would_rent(self, key: Hashable, rent: int, price: int) -> bool:
        """The result of `rents`, without recording the cost."""
        with self._lock:
            return (0 if key in self._outsized else self._paid.get(key, 0)) + rent <= price

    def pay(self, key: Hashable, rent: int) -> None:
        """Record that working without a value cost more than was passed to `rents`."""
        with self._lock:
            self._pay(key, rent)

    def _pay(self, key: Hashable, rent: int) -> None:
        self._paid[key] = self._paid.get(key, 0) + rent
        self._paid.move_to_end(key)
        while len(self._paid) > _REMEMBERED:
            self._paid.popitem(last=False)

    def _find(self, key: Hashable) -> Any:
        found = self._held.get(key)
        if found is None:
            return None
        self._held.move_to_end(key)
        return found[0]

    def _keep(self, key: Hashable, made: Sized) -> None:
        size = made.nbytes
        self._size -= self._held.pop(key, (None, 0))[1]
        self._paid.pop(key, None)
        if size > self._limit:
            self._note_outsized(key, size)
            return
        self._held[key] = (made, size)
        self._size += size
        while self._size > self._limit:
            lost, (_, gone) = self._held.popitem(last=False)
            self._paid.pop(lost, None)
            self._size -= gone

    def _note_outsized(self, key: Hashable, size: int) -> None:
        self._outsized[key] = max(size, self._outsized.get(key, 0))
        self._outsized.move_to_end(key)
        while len(self._outsized) > _REMEMBERED:
            self._outsized.popitem(last=False)


class _Building:
    """A lock for computing one value, with the number of threads that use it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.wanted = 0


@contextmanager
def _locked(building: Lock) -> Iterator[None]:
    """Hold a lock. A read that waits for it can be stopped."""
    while not building.acquire(timeout=_PATIENCE):
        checkpoint()
    try:
        yield
    finally:
        building.release()


@cache
def process_cache() -> ColumnCache:
    """The cache of this process."""
    return ColumnCache(cache_memory(os.environ))


def cache_memory(environ: Mapping[str, str]) -> int:
    """Size of the cache from the environment.

    >>> cache_memory({"OMNIGRAPH_CACHE_MEMORY": "64 MiB"})
    67108864
    """
    return CACHE_MEMORY.amount(environ)
