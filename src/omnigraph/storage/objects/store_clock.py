"""The difference between the clocks of this machine and an object store.

The store reports when an object was written, by its own clock. The process that wrote the object recorded the time by
the clock of this machine. Whenever the process reads the object again, the difference is measured without an extra
request.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import Lock

from omnigraph.dataclass import dataclass
from omnigraph.errors import ClockError, InputError
from omnigraph.settings import CLOCK_TOLERANCE
from omnigraph.storage.objects.contract import ObjectStore

_RECENT_SECONDS = 60.0
_REMEMBERED = 64
"""Number of written objects to remember. A small number suffices, because leases are read again soon."""


@dataclass(frozen=True, slots=True)
class _Written:
    """When this process wrote an object, by the clock of this machine."""

    began: float
    ended: float
    monotonic: float
    etag: str

    def is_recent(self) -> bool:
        """Whether the times can still be used: the write is recent, and the clock of this machine was not set since."""
        elapsed = time.monotonic() - self.monotonic
        return elapsed < _RECENT_SECONDS and abs(time.time() - self.ended - elapsed) < 1


class StoreClock:
    """The measured clock of one store. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._written: OrderedDict[str, _Written] = OrderedDict()
        self._ahead: float | None = None

    @property
    def ahead(self) -> float | None:
        """The smallest possible lead of the store's clock in seconds; negative if it is behind, None if unknown."""
        with self._lock:
            return self._ahead

    def is_off(self) -> bool:
        """Whether the clocks are known to differ by more than the tolerance."""
        ahead = self.ahead
        return ahead is not None and abs(ahead) > tolerance()

    @contextmanager
    def writing(self, key: str) -> Iterator[list[str]]:
        """Record when an object is written. Yields a list, to which the block adds the etag of the object."""
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
        """Measure the difference of the clocks. `modified` is the store's write time of the object, in seconds."""
        with self._lock:
            known = self._written.get(key)
            if known is None or known.etag != etag or not known.is_recent():
                return
            seconds = math.floor(modified.timestamp())
            self._ahead = max(seconds - known.ended, 0.0) + min(seconds + 1 - known.began, 0.0)


def tolerance() -> float:
    """The tolerance setting in seconds.

    Raises:
        InputError: it is not a number of seconds.
    """
    text = CLOCK_TOLERANCE.text()
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InputError(
            f"{CLOCK_TOLERANCE.name} is '{text}', which is not a number of seconds", hint="for example 300"
        )
    return seconds


def check_clock(store: ObjectStore, measure: Callable[[], object] | None = None) -> None:
    """Refuse to write if the clock is known to differ too much from that of the store.

    Args:
        store: the store.
        measure: reads an object that this process has just written. Called before a refusal, since the clock may have
            been set after the last measurement.

    Raises:
        ClockError: the difference is too large.
    """
    clock: StoreClock | None = getattr(store, "clock", None)  # only a remote store has its own clock
    if clock is None or not clock.is_off():
        return
    if measure is not None:
        measure()
    if clock.is_off():
        assert clock.ahead is not None
        raise ClockError(str(store.uri), clock.ahead, tolerance())
