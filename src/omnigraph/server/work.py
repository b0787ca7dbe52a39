"""Work of requests in threads: bounded pools, cancellation when the client leaves, and time limits."""

# See docs/decisions/0290-reads-and-writes-have-their-own-threads.md
# See docs/decisions/0371-large-json-is-sent-in-parts.md

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Generic, Protocol, TypeVar

from starlette.requests import ClientDisconnect

from omnigraph.errors import BudgetExceededError, OmnigraphError
from omnigraph.read.budget import Budget, Cancellation
from omnigraph.read.budget.budget import Spending
from omnigraph.server.options import Limits
from omnigraph.server.read_threads import ReadThreads

T = TypeVar("T")
Receive = Callable[[], Awaitable[object]]

UNLIMITED = Budget(seconds=None, memory=None, rows=None, returned=None, disk=None)
"""The budget of work that only a cancellation stops."""


class Threads(Protocol):
    """Threads that run work."""

    def submit(self, work: Callable[[], None], /) -> object:
        """Run work in a thread. The caller finds out by itself when it has ended."""
        ...


class Pools:
    """The threads of a worker."""

    def __init__(self, limits: Limits) -> None:
        self.reads = ReadThreads(limits.threads, "omnigraph-read")
        self.writes = ThreadPoolExecutor(limits.write_threads, "omnigraph-write")
        self.streams = ThreadPoolExecutor(limits.stream_threads, "omnigraph-stream")
        # The first part of an export may sort a whole table. Parts of other answers do not wait for it.
        self.exports = ThreadPoolExecutor(limits.streams, "omnigraph-export")

    def close(self) -> None:
        """Wait for running work. Queued work is dropped."""
        self.reads.close()
        for pool in (self.writes, self.streams, self.exports):
            pool.shutdown(wait=True, cancel_futures=True)


class Deadline:
    """The time limit of a read, with its wait for a thread.

    Args:
        seconds: the limit.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._started = time.monotonic()

    def left(self) -> float:
        """The remaining seconds.

        Raises:
            BudgetExceededError: no time is left.
        """
        taken = time.monotonic() - self._started
        if taken >= self._seconds:
            raise BudgetExceededError("seconds", self._seconds, taken, hint="the server is busy; send it again later")
        return self._seconds - taken


def limited(work: Callable[[], T], budget: Budget, cancel: Cancellation) -> T:
    """Run a read so that its checkpoints obey a budget and a cancellation."""
    spending = Spending(budget, cancel)
    spending.check()
    with spending.running():
        return work()


class _Job(Generic[T]):
    """Work that runs in a thread, with its answer as a future of the event loop.

    A future of `concurrent.futures` costs more, and another one for the event loop.

    Attributes:
        answer: the result or the error of the work. Cancelled if the work is dropped.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._taken = Lock()
        self._end: asyncio.Future[None] | None = None
        self._ended = False
        self.answer: asyncio.Future[T] = self._loop.create_future()

    def __call__(self) -> None:
        """Run the work, in a thread. A panic of a native library becomes an error, which fails one request only."""
        if not self._taken.acquire(blocking=False):
            return  # it was dropped
        try:
            result = self._work()
        except Exception as error:
            self._loop.call_soon_threadsafe(self._fail, error)
        except BaseException as error:
            panic = RuntimeError(f"{type(error).__name__}: {error}")
            panic.__cause__ = error
            self._loop.call_soon_threadsafe(self._fail, panic)
        else:
            self._loop.call_soon_threadsafe(self._succeed, result)

    def drop(self) -> None:
        """Drop the work if no thread has started it. Called in the event loop, as are the methods below."""
        if self._taken.acquire(blocking=False):
            self.answer.cancel()
            self._note_end()

    async def ended(self) -> None:
        """Wait until the work has ended or is dropped, even if the waiting task is cancelled again."""
        self._end = self._loop.create_future()
        while not self._ended:
            with suppress(asyncio.CancelledError):
                await asyncio.shield(self._end)

    def _succeed(self, result: T) -> None:
        self._open_answer().set_result(result)
        self._note_end()

    def _fail(self, error: Exception) -> None:
        self._open_answer().set_exception(error)
        self._note_end()

    def _open_answer(self) -> asyncio.Future[T]:
        """The answer, or another one if the task that waited for it was cancelled, which cancels the answer."""
        if self.answer.done():
            self.answer = self._loop.create_future()
        return self.answer

    def _note_end(self) -> None:
        self._ended = True
        if self._end is not None and not self._end.done():
            self._end.set_result(None)


async def run(pool: Threads, work: Callable[[], T], cancel: Cancellation, receive: Receive) -> T:
    """Run work in a pool. If the client disconnects, cancel it.

    The call returns only when the work has ended: what it holds, such as admission, is then free. If the server stops
    meanwhile, the work is cancelled, too; a write that is already past its last check is completed and answered.

    Args:
        pool: the threads.
        work: the work. It stops soon after `cancel`.
        cancel: cancels the work.
        receive: the ASGI channel of the request, whose body has been read.

    Raises:
        ClientDisconnect: the client has left.
    """
    job = _Job(work)
    pool.submit(job)
    watcher = asyncio.create_task(_leaving(receive, cancel, job))
    try:
        try:
            return await job.answer
        except asyncio.CancelledError:
            # Either the queued work was dropped, because the client has left, or the server stops.
            cancel.cancel()
            job.drop()
            await job.ended()
            if not job.answer.cancelled():
                return job.answer.result()
            if watcher.done() and not watcher.cancelled():
                raise ClientDisconnect from None
            raise
    except OmnigraphError:
        if cancel.cancelled and watcher.done():
            raise ClientDisconnect from None
        raise
    finally:
        watcher.cancel()


async def _leaving(receive: Receive, cancel: Cancellation, job: _Job[T]) -> None:
    """Wait until the client disconnects. Then cancel the work."""
    while True:
        message = await receive()
        if isinstance(message, dict) and message.get("type") == "http.disconnect":
            cancel.cancel()
            job.drop()
            return
