"""A small cache of open tables that many threads may use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


class LruCache(Generic[V]):
    """Keeps the handles that were used last. An exact version never changes, so a handle never goes stale."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = Lock()
        self._held: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable, load: Callable[[], V]) -> V:
        """The handle for a key. Loading happens outside the lock, so that slow storage blocks nobody else."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
                return found
        loaded = load()
        self.put(key, loaded)
        return loaded

    def put(self, key: Hashable, handle: V) -> None:
        with self._lock:
            self._held[key] = handle
            self._held.move_to_end(key)
            while len(self._held) > self._size:
                self._held.popitem(last=False)

    def discard(self, matches: Callable[[Hashable], bool]) -> None:
        """Forget the handles whose key matches."""
        with self._lock:
            for key in [key for key in self._held if matches(key)]:
                del self._held[key]
