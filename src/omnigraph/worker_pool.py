"""A pool of threads for parts of a call, which works as long as the process does."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_ENDING = "shutdown"
"""Part of the error of a pool that its owner, or Python after the main thread has ended, has closed."""


class WorkerPool(ThreadPoolExecutor):
    """Like `ThreadPoolExecutor`, but it does its work in the calling thread after the main thread has ended.

    Python then lets no pool start threads. But other threads of the program go on until they end, and after them the
    functions of `atexit`. Their reads and writes must not fail.
    """

    _is_closed = False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse further work."""
        self._is_closed = True
        super().shutdown(wait, cancel_futures=cancel_futures)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in a thread of the pool; after the main thread has ended, before this method returns."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            if self._is_closed or _ENDING not in str(error):
                raise
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done
