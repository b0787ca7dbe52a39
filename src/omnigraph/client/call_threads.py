"""The threads that run the calls of asynchronous clients."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from omnigraph.errors import ConfigurationError

T = TypeVar("T")

THREADS = 32
"""Maximum number of calls of an asynchronous client that run at the same time."""


class CallThreads:
    """A pool of threads, which start with the first calls. A forked process gets threads of its own."""

    def __init__(self) -> None:
        self._pool = _new_pool()
        self._process = os.getpid()
        self._closed = False

    def submit(self, work: Callable[..., T], *args: object) -> Future[T]:
        """Run work in a thread.

        Raises:
            ConfigurationError: the client is closed.
        """
        if self._process != os.getpid():
            self._pool, self._process = _new_pool(), os.getpid()
        if self._closed:
            raise ConfigurationError("the client is closed", hint="connect again")
        return self._pool.submit(work, *args)

    def close(self) -> None:
        """Refuse more calls. Those that run end by themselves."""
        self._closed = True
        self._pool.shutdown(wait=False)


def _new_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, "omnigraph-client")
