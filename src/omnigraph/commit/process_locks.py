"""In-process locks: the threads of one process take turns on a branch, first come, first served.

A thread takes this lock before it waits for the lease. So a process is in the queue for the lease at most once, however
many threads it has, and many threads of a process do not delay other processes longer than one.
"""

# See docs/decisions/0367-an-interrupted-writer-gives-up-the-lease.md

from __future__ import annotations

import os
from collections import deque
from threading import Lock, RLock
from weakref import WeakValueDictionary

from omnigraph.commit.signal import Signal


class FairLock:
    """A lock that is handed to the thread that has waited longest."""

    def __init__(self) -> None:
        # Reentrant: a turn that is garbage collected ends itself, also while this thread changes the queue.
        self._lock = RLock()
        self._holder: Signal | None = None
        self._waiting: deque[Signal] = deque()

    def turn(self) -> Turn:
        """A turn of the current thread. It has to be taken."""
        return Turn(self)


class Turn:
    """The turn of a thread at a fair lock. `end` passes the lock on, if the turn has it, and can be repeated.

    A thread that is interrupted (Ctrl-C) cannot lose a lock: the turn exists before it takes the lock, and a turn that
    is garbage collected ends.
    """

    def __init__(self, lock: FairLock) -> None:
        self._of = lock
        self._handed = Signal()

    def take(self, timeout: float) -> bool:
        """Take the lock. Returns False if it is not free within `timeout` seconds."""
        of = self._of
        with of._lock:
            if of._holder is None:
                of._holder = self._handed
                return True
            if timeout <= 0:
                return False
            of._waiting.append(self._handed)
        if self._handed.wait(timeout):
            return True
        with of._lock:
            if of._holder is self._handed:  # just now
                return True
            of._waiting.remove(self._handed)
            return False

    def end(self) -> None:
        """Leave the queue, and hand the lock to the thread that has waited longest."""
        of = self._of
        with of._lock:
            if self._handed in of._waiting:
                of._waiting.remove(self._handed)
            if of._holder is not self._handed:
                return
            if not of._waiting:
                of._holder = None
                return
            # The next thread is woken first. After an interrupt, the end of this turn can be repeated.
            following = of._waiting[0]
            following.set()
            of._holder = following
            del of._waiting[0]

    def __del__(self) -> None:
        self.end()


_GATES: WeakValueDictionary[tuple[str, str], FairLock] = WeakValueDictionary()
"""The locks that some thread uses. Each transaction has a branch of its own, so those of all branches would add up."""
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
