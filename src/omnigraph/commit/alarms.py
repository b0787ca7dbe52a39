"""Alarms: start a function on a thread of its own after some time, unless it is cancelled.

All alarms of a process share one thread that waits. A lease sets an alarm for its first heartbeat, and almost every
lease is released before: a thread for each of them would be started for nothing.
"""

# See docs/decisions/0240-small-writes-flush-three-times.md

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

_IDLE = 60.0
"""Seconds that the thread waits without an alarm."""

_AGAIN = 0.5
"""Seconds after which a call is tried again that could not be started."""


class Alarms:
    """The alarms of a process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all alarms. A forked process has none, and no thread that waits for them."""
        self._lock = threading.RLock()
        """To be taken itself: an interrupt in the methods of the condition would leave it taken."""
        self._changed = threading.Condition(self._lock)
        self._due: dict[Callable[[], None], float] = {}
        self._wakes = 0.0
        """The time at which the thread looks at the alarms, on the monotonic clock."""
        self._thread: threading.Thread | None = None

    def set(self, call: Callable[[], None], seconds: float) -> None:
        """Call a function after some seconds. A second alarm for the same function replaces the first."""
        due = time.monotonic() + seconds
        with self._lock:
            self._due[call] = due
            if self._thread is None:
                self._wakes = due
                self._thread = _started(self._run, "omnigraph alarms")
            elif due < self._wakes:
                self._changed.notify()

    def cancel(self, call: Callable[[], None]) -> None:
        """Cancel an alarm. Does nothing if it has gone off."""
        with self._lock:
            self._due.pop(call, None)

    def _run(self) -> None:
        while True:
            with self._lock:
                now = time.monotonic()
                called = [call for call, due in self._due.items() if due <= now]
                for call in called:
                    del self._due[call]
                if not called:
                    self._wakes = min(self._due.values(), default=now + _IDLE)
                    self._changed.wait(self._wakes - now)
            for call in called:
                try:
                    # A call may block, if a store does not answer. It must not delay the others.
                    _started(call, "omnigraph alarm")
                except RuntimeError:  # no more threads at the moment
                    self.set(call, _AGAIN)


def _started(call: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=call, name=name, daemon=True)
    thread.start()
    return thread


ALARMS = Alarms()
os.register_at_fork(after_in_child=ALARMS.forget)
