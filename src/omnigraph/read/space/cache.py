"""What reads keep in memory for the next read: up to a number of bytes, shared by the whole process."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, Protocol, TypeVar

from omnigraph.read.budget import checkpoint
from omnigraph.storage.byte_sizes import size_setting

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
        self._outsized: OrderedDict[Hashable, int] = OrderedDict()
        """What was too large to be kept, and how large it is at least."""
        self._turns: dict[Hashable, _Turn] = {}
        """Who makes something that is not there makes it alone; others that want it wait."""

    @property
    def limit(self) -> int:
        """How many bytes are kept at most."""
        return self._limit

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return self._size

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is kept under a key, or what is made now. A key must stand for something that never changes."""
        with self._lock:
            if (found := self._find(key)) is not None:
                return found  # type: ignore[no-any-return]
            turn = self._turns.setdefault(key, _Turn())
            turn.wanted += 1
        try:
            with _taken(turn.lock):
                with self._lock:
                    if (found := self._find(key)) is not None:
                        return found  # type: ignore[no-any-return]
                made = make()
                with self._lock:
                    self._keep(key, made)
            return made
        finally:
            with self._lock:
                turn.wanted -= 1
                if not turn.wanted:
                    del self._turns[key]

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
            self._keep(key, made)

    def note_outsized(self, key: Hashable, size: int) -> None:
        """Note that something is too large to be made: it has at least so many bytes."""
        with self._lock:
            self._outgrows(key, size)

    def outsized(self, key: Hashable) -> int:
        """How large something is at least that was too large; 0 where nothing is known."""
        with self._lock:
            return self._outsized.get(key, 0)

    def holds(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._held

    def rents(self, key: Hashable, rent: int, price: int, size: int = 0) -> bool:
        """Whether to do once more without what is not kept under a key, instead of making it.

        It is done without until that has cost as much as making it: then it never costs more than twice the best. What
        is too large to be kept would have to be made each time, and is done without whenever that costs less.

        Args:
            key: what is not kept.
            rent: what doing without costs this time.
            price: what making it costs.
            size: how many bytes it has at least, as far as that is known.
        """
        with self._lock:
            if size > self._limit or key in self._outsized:
                return rent <= price
            if self._paid.get(key, 0) + rent > price:
                return False
            self._pay(key, rent)
        return True

    def would_rent(self, key: Hashable, rent: int, price: int) -> bool:
        """What `rents` would say."""
        with self._lock:
            return (0 if key in self._outsized else self._paid.get(key, 0)) + rent <= price

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
        self._size -= self._held.pop(key, (None, 0))[1]
        self._paid.pop(key, None)
        if size > self._limit:
            self._outgrows(key, size)
            return
        self._held[key] = (made, size)
        self._size += size
        while self._size > self._limit:
            lost, (_, gone) = self._held.popitem(last=False)
            self._paid.pop(lost, None)
            self._size -= gone

    def _outgrows(self, key: Hashable, size: int) -> None:
        self._outsized[key] = max(size, self._outsized.get(key, 0))
        self._outsized.move_to_end(key)
        while len(self._outsized) > _REMEMBERED:
            self._outsized.popitem(last=False)


class _Turn:
    """Whose turn it is to make something, and how many there are that make it or wait."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.wanted = 0


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
    return size_setting(environ, MEMORY_VARIABLE, DEFAULT_MEMORY)
