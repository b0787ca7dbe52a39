"""In-process gates: threads of one process take turns on a branch, first come, first served.

A thread passes the gate before it stands in line for the lease. So a process is in the line once, however many
threads it has, and its threads cannot keep other processes waiting for longer than one process does.
"""

from __future__ import annotations

from collections import deque
from threading import Event, Lock


class FairLock:
    """A lock that is handed to whoever has waited longest."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._closed = False
        self._waiting: deque[Event] = deque()

    def acquire(self, timeout: float) -> bool:
        """Pass the gate, waiting for those who came first. False when that took longer than `timeout` seconds."""
        with self._lock:
            if not self._closed:
                self._closed = True
                return True
            if timeout <= 0:
                return False
            turn = Event()
            self._waiting.append(turn)
        try:
            if turn.wait(timeout):
                return True
        except BaseException:
            if not self._left(turn):
                self.release()
            raise
        return not self._left(turn)

    def _left(self, turn: Event) -> bool:
        """Stop waiting. False when the gate was handed over just now."""
        with self._lock:
            if turn.is_set():
                return False
            self._waiting.remove(turn)
            return True

    def release(self) -> None:
        """Hand the gate to whoever has waited longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._closed = False


_GATES: dict[tuple[str, str], FairLock] = {}
_REGISTRY = Lock()


def branch_lock(root_identity: str, branch: str) -> FairLock:
    """The gate of a branch. All handles of a process on one graph share it."""
    with _REGISTRY:
        return _GATES.setdefault((root_identity, branch), FairLock())
