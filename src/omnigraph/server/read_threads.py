"""Threads of reads: one runs short reads in turn, and others start only when it takes long."""

# See docs/decisions/0342-short-reads-run-in-turn.md

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

SHORT_SECONDS = 0.005
"""A read that takes longer lets another one start beside it."""


class ReadThreads:
    """Runs work in a few threads. Work starts if all other running work is older than `SHORT_SECONDS`.

    Two threads that run short reads hand the interpreter lock to each other all the time, and get less done than one.
    So short reads run one after the other, in the order of their arrival, and a long one does not stop the others.

    Args:
        threads: number of threads.
        name: start of their names.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}_{number}", daemon=True) for number in range(threads)
        ]
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[Callable[[], None]] = deque()
        self._started: dict[threading.Thread, float] = {}
        """When each thread has started the work that it runs."""
        self._next = False
        """Whether a thread waits until the running work is no longer short."""
        self._closed = False

    def submit(self, work: Callable[[], None], /) -> None:
        """Add work, which handles its errors itself.

        Raises:
            RuntimeError: the threads have ended.
        """
        with self._changed:
            if self._closed:
                raise RuntimeError("the threads have ended")
            if self._threads[0].ident is None:
                for thread in self._threads:
                    thread.start()
            self._waiting.append(work)
            if not self._started or not self._next:
                self._changed.notify()

    def close(self) -> None:
        """Drop the work that waits, and wait until the running work has ended."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _run(self) -> None:
        thread = threading.current_thread()
        while (work := self._take(thread)) is not None:
            work()
            del work  # it refers to the request

    def _take(self, thread: threading.Thread) -> Callable[[], None] | None:
        """Wait for work that may start now. Returns None at the end."""
        with self._changed:
            self._started.pop(thread, None)
            while True:
                if not self._waiting:
                    if self._closed:
                        self._changed.notify_all()
                        return None
                    self._changed.wait()
                    continue
                now = time.monotonic()
                early = max(self._started.values(), default=0.0) + SHORT_SECONDS - now
                if early <= 0:
                    self._started[thread] = now
                    if len(self._waiting) > 1 and not self._next and len(self._started) < len(self._threads):
                        self._changed.notify()
                    return self._waiting.popleft()
                if self._next:
                    self._changed.wait()
                    continue
                self._next = True
                self._changed.wait(early)
                self._next = False
