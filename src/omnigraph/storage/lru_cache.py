"""A small thread-safe LRU cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


class LruCache(Generic[V]):
    """Keeps the most recently used values. Keys are exact versions, which never change, so no value gets stale."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = Lock()
        self._held: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        """The value of a key; None on a miss."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: Hashable, value: V) -> V:
        """Cache a value, and return it."""
        with self._lock:
            self._held[key] = value
            self._held.move_to_end(key)
            while len(self._held) > self._size:
                self._held.popitem(last=False)
        return value

    def trim(self, matches: Callable[[Hashable], bool], size: int) -> None:
        """Remove the least recently used of the values whose key matches, until at most `size` of them are left."""
        with self._lock:
            found = [key for key in self._held if matches(key)]
            for key in found[: max(0, len(found) - size)]:
                del self._held[key]

    def discard(self, matches: Callable[[Hashable], bool]) -> None:
        """Remove the values whose key matches."""
        with self._lock:
            for key in [key for key in self._held if matches(key)]:
                del self._held[key]
