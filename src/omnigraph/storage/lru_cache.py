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

    def get(self, key: Hashable, load: Callable[[], V]) -> V:
        """The value of a key, loaded on a miss.

        Loads outside the lock, so slow storage does not block other threads.
        """
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
        """Remove the values whose key matches."""
        with self._lock:
            for key in [key for key in self._held if matches(key)]:
                del self._held[key]
