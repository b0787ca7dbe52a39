"""How far the clock of this machine is from that of an object store.

The store says when an object was written. A process that wrote the object itself knows when that was by its own clock,
and the difference of the two is measured whenever such an object is read again: no request is made for it.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from threading import Lock

from omnigraph.errors import ClockError, InputError
from omnigraph.settings import CLOCK_TOLERANCE
from omnigraph.storage.objects.contract import ObjectStore

_RECENT_SECONDS = 60.0
_REMEMBERED = 64
"""How many objects that this process wrote are remembered. Of interest are those that it reads soon: leases."""


@dataclass(frozen=True, slots=True)
class _Written:
    """When this process wrote an object, by its own clocks."""

    began: float
    ended: float
    monotonic: float
    etag: str

    def is_recent(self) -> bool:
        """Whether it tells something about the clock as it is now: nobody has set it meanwhile."""
        elapsed = time.monotonic() - self.monotonic
        return elapsed < _RECENT_SECONDS and abs(time.time() - self.ended - elapsed) < 1


class StoreClock:
    """What is known about the clock of one store. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._written: OrderedDict[str, _Written] = OrderedDict()
        self._ahead: float | None = None

    @property
    def ahead(self) -> float | None:
        """By how many seconds at least the store's clock is ahead of ours; negative when behind, None when unknown."""
        with self._lock:
            return self._ahead

    def is_off(self) -> bool:
        """Whether the two clocks are known to differ by more than is allowed."""
        ahead = self.ahead
        return ahead is not None and abs(ahead) > tolerance()

    @contextmanager
    def writing(self, key: str) -> Iterator[list[str]]:
        """Note when an object is written. The block puts the etag that it has then into the list."""
        began = time.time()
        etags: list[str] = []
        yield etags
        if etags:
            with self._lock:
                self._written[key] = _Written(began, time.time(), time.monotonic(), etags[-1])
                self._written.move_to_end(key)
                while len(self._written) > _REMEMBERED:
                    self._written.popitem(last=False)

    def read(self, key: str, etag: str | None, modified: datetime) -> None:
        """Note when an object was written by the store's clock, which shows whole seconds only."""
        with self._lock:
            known = self._written.get(key)
            if known is None or known.etag != etag or not known.is_recent():
                return
            told = math.floor(modified.timestamp())
            self._ahead = max(told - known.ended, 0.0) + min(told + 1 - known.began, 0.0)


def tolerance() -> float:
    """The setting, in seconds.

    Raises:
        InputError: it is no number of seconds.
    """
    text = CLOCK_TOLERANCE.text()
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InputError(f"{CLOCK_TOLERANCE.name} is '{text}', which is no number of seconds", hint="for example 300")
    return seconds


def check_clock(store: ObjectStore, measure: Callable[[], object] | None = None) -> None:
    """Refuse to write with a clock that is far from that of the store, as far as that is known.

    Args:
        store: the store.
        measure: reads an object that this process has just written. It is called before the writer is refused: the
            clock may have been set since it was last measured.

    Raises:
        ClockError: it is too far.
    """
    clock: StoreClock | None = getattr(store, "clock", None)  # only a store with a clock of its own has one
    if clock is None or not clock.is_off():
        return
    if measure is not None:
        measure()
    if clock.is_off():
        assert clock.ahead is not None
        raise ClockError(str(store.uri), clock.ahead, tolerance())
