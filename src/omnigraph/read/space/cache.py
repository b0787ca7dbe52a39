"""What reads keep in memory for the next read: up to a number of bytes, shared by the whole process."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, Protocol, TypeVar

from omnigraph.read.amounts import amount
from omnigraph.read.budget import checkpoint

MEMORY_VARIABLE = "OMNIGRAPH_CACHE_MEMORY"
"""How much memory reads keep for the next ones: bytes, or a number with KiB, MiB or GiB."""

DEFAULT_MEMORY = 1 << 30

_REMEMBERED = 10_000
_PATIENCE = 0.05
"""How long a read waits for another at a time, in seconds."""


class Sized(Protocol):
    """What can be kept."""

    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=Sized)


class ColumnCache:
    """Columns, and what is computed from them, for reads in many threads. What was used last stays.

    Args:
        limit: how many bytes are kept.
    """

    def __init__(self, limit: int = DEFAULT_MEMORY) -> None:
        self._limit = limit
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._size = 0
        self._lock = Lock()
        self._paid: OrderedDict[Hashable, int] = OrderedDict()
        self._turns: dict[Hashable, Lock] = {}
        """Who makes something that is not there makes it alone; others that want it wait."""

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return self._size

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is kept under a key, or what is made now. A key must stand for something that never changes."""
        with self._lock:
            if (found := self._find(key)) is not None:
                return found  # type: ignore[no-any-return]
            turn = self._turns.setdefault(key, Lock())
        with _taken(turn):
            with self._lock:
                if (found := self._find(key)) is not None:
                    return found  # type: ignore[no-any-return]
            try:
                made = make()
                with self._lock:
                    self._keep(key, made)
            finally:
                with self._lock:
                    self._turns.pop(key, None)
        return made

    def fits(self, size: int) -> bool:
        """Whether so many bytes could be kept at all."""
        return size <= self._limit

    def find(self, key: Hashable) -> Any:
        """What is kept under a key, or None."""
        with self._lock:
            return self._find(key)

    def keep(self, key: Hashable, made: Sized) -> None:
        """Keep something in the place of what was kept under a key."""
        with self._lock:
            self._size -= self._held.pop(key, (None, 0))[1]
            self._keep(key, made)

    def holds(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._held

    def rents(self, key: Hashable, rent: int, price: int) -> bool:
        """Whether to do once more without what is not kept under a key, instead of making it.

        It is done without until that has cost as much as making it: then it never costs more than twice the best.

        Args:
            key: what is not kept.
            rent: what doing without costs this time.
            price: what making it costs.
        """
        with self._lock:
            if self._paid.get(key, 0) + rent > price:
                return False
            self._pay(key, rent)
        return True

    def would_rent(self, key: Hashable, rent: int, price: int) -> bool:
        """What `rents` would say."""
        with self._lock:
            return self._paid.get(key, 0) + rent <= price

    def pay(self, key: Hashable, rent: int) -> None:
        """Note that doing without has cost more than was said."""
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
        if size > self._limit:
            return
        self._held[key] = (made, size)
        self._size += size
        while self._size > self._limit:
            _, (_, gone) = self._held.popitem(last=False)
            self._size -= gone


@contextmanager
def _taken(turn: Lock) -> Iterator[None]:
    """Wait for a turn; a read that waits can be stopped."""
    while not turn.acquire(timeout=_PATIENCE):
        checkpoint()
    try:
        yield
    finally:
        turn.release()


@cache
def process_cache() -> ColumnCache:
    """The cache of this process."""
    return ColumnCache(cache_memory(os.environ))


def cache_memory(environ: Mapping[str, str]) -> int:
    """How many bytes the environment allows to keep in memory.

    >>> cache_memory({"OMNIGRAPH_CACHE_MEMORY": "64 MiB"})
    67108864
    """
    return amount(environ, MEMORY_VARIABLE, DEFAULT_MEMORY)
