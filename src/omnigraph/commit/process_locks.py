"""In-process locks: the threads of one process take turns on a branch, first come, first served.

A thread takes this lock before it waits for the lease. So a process is in the queue for the lease at most once, however
many threads it has, and many threads of a process do not delay other processes longer than one.
"""

from __future__ import annotations

import os
from collections import deque
from threading import Event, Lock


class FairLock:
    """A lock that is handed to the thread that has waited longest."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._closed = False
        self._waiting: deque[Event] = deque()

    def acquire(self, timeout: float) -> bool:
        """Take the lock. Returns False if it is not free within `timeout` seconds."""
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
        """Stop waiting. Returns False if the lock was already handed to this thread."""
        with self._lock:
            if turn.is_set():
                return False
            self._waiting.remove(turn)
            return True

    def release(self) -> None:
        """Hand the lock to the thread that has waited longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._closed = False


_GATES: dict[tuple[str, str], FairLock] = {}
_REGISTRY = Lock()


def _forget() -> None:
    """Forget all locks in a forked process: the threads that hold them stay in the parent."""
    global _REGISTRY
    _REGISTRY = Lock()
    _GATES.clear()


os.register_at_fork(after_in_child=_forget)


def branch_lock(root_identity: str, branch: str) -> FairLock:
    """The lock of a branch. All handles of a process on one graph share it."""
    with _REGISTRY:
        return _GATES.setdefault((root_identity, branch), FairLock())
