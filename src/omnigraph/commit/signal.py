"""Signals between threads that may be interrupted (Ctrl-C).

Python raises `KeyboardInterrupt` between any two calls. The methods of `threading.Event` and `threading.Condition` are
written in Python: an interrupt at the wrong point leaves their lock taken for ever, and the next thread that needs it
waits for ever, too. A plain lock is taken and released in one step.
"""

# See docs/decisions/0367-an-interrupted-writer-gives-up-the-lease.md

from __future__ import annotations

from contextlib import suppress
from threading import TIMEOUT_MAX, Lock


class Signal:
    """Like `threading.Event`, but an interrupted `set` takes effect or not, and can be repeated."""

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Wake the threads that wait."""
        with suppress(RuntimeError):  # it is set already
            self._unset.release()

    def clear(self) -> None:
        """Let the next threads wait again."""
        self._unset.acquire(blocking=False)

    @property
    def is_set(self) -> bool:
        return not self._unset.locked()

    def wait(self, timeout: float = TIMEOUT_MAX) -> bool:
        """Wait until it is set. Returns False if it is not set within `timeout` seconds."""
        if not self._unset.acquire(timeout=max(0.0, min(timeout, TIMEOUT_MAX))):
            return False
        self.set()  # for the other threads that wait
        return True
