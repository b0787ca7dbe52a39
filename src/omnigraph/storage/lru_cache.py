"""A small thread-safe LRU cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


class LruCache(Generic[V]):
    """Keeps the most recently used values. Keys are exact versions, which never change, so no value gets stale.

    Args:
        size: maximum number of values.
        weight: maximum total weight of the values, in any unit; None for no limit.
    """

    def __init__(self, size: int, weight: int | None = None) -> None:
        self._size = size
        self._most = weight
        self._lock = Lock()
        self._held: OrderedDict[Hashable, V] = OrderedDict()
        self._weights: dict[Hashable, int] = {}
        """The weights of the values that have one."""
        self._weight = 0

    def get(self, key: Hashable) -> V | None:
        """The value of a key; None on a miss."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: Hashable, value: V, weight: int = 0) -> V:
        """Cache a value, and return it. A value that is heavier than all values may be is not cached."""
        with self._lock:
            self._remove(key)
            if self._most is not None and weight > self._most:
                return value
            self._held[key] = value
            if weight:
                self._weights[key] = weight
                self._weight += weight
            while len(self._held) > self._size or (self._most is not None and self._weight > self._most):
                self._remove(next(iter(self._held)))
        return value

    def trim(self, matches: Callable[[Hashable], bool], size: int) -> None:
        """Remove the least recently used of the values whose key matches, until at most `size` of them are left."""
        with self._lock:
            found = [key for key in self._held if matches(key)]
            for key in found[: max(0, len(found) - size)]:
                self._remove(key)

    def discard(self, matches: Callable[[Hashable], bool]) -> None:
        """Remove the values whose key matches."""
        with self._lock:
            for key in [key for key in self._held if matches(key)]:
                self._remove(key)

    def clear(self) -> None:
        """Remove all values."""
        self.discard(lambda key: True)

    def _remove(self, key: Hashable) -> None:
        self._held.pop(key, None)
        self._weight -= self._weights.pop(key, 0)
