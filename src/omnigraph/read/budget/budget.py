"""Budgets: limits of a read for time, memory, rows and disk, checked while it runs; and cancellation."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, fields
from functools import lru_cache
from threading import Lock, get_ident

from omnigraph.dataclass import dataclass
from omnigraph.errors import BudgetExceededError, CancelledError, InputError, shown
from omnigraph.settings import QUERY_MEMORY, THREADS

DEFAULT_DISK = 16 << 30
_CELL = 8
"""Bytes per element of an array."""


def query_memory(environ: Mapping[str, str] | None = None) -> int:
    """Default memory budget of a read: from the environment, else 4 GiB, but at most half of the machine's memory.

    >>> query_memory({"OMNIGRAPH_QUERY_MEMORY": "64 MiB"})
    67108864

    Raises:
        InputError: the environment variable is not an amount of bytes.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return _query_memory(QUERY_MEMORY.get(environ), machine)


@lru_cache(maxsize=8)
def _query_memory(text: str | None, machine: int) -> int:
    """The budget, from `OMNIGRAPH_QUERY_MEMORY` and the memory of the machine. Cached, because every query needs it."""
    if text is not None:
        return QUERY_MEMORY.amount({QUERY_MEMORY.name: text})
    return min(QUERY_MEMORY.amount({}), machine // 2)


def query_threads(environ: Mapping[str, str] | None = None) -> int:
    """Number of threads that a read may use: from the environment, else the number of cores of this process.

    >>> query_threads({"OMNIGRAPH_THREADS": "3"})
    3

    Raises:
        InputError: the environment variable is not a number, or it is zero.
    """
    if THREADS.get(environ) is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = THREADS.number(environ)
    if threads == 0:
        raise InputError(f"{THREADS.name}: a query needs at least one thread", hint="write 1 or more")
    return threads


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a read; None means no limit.

    Attributes:
        seconds: run time.
        memory: bytes of intermediate rows. Caches that reads share are not included.
        rows: rows examined: the sum of table rows that conditions are evaluated on, walked edges, and intermediate rows
            of the match.
        returned: rows of the result.
        disk: bytes of spill files.

    Raises:
        InputError: a limit is not a number, or negative.
    """

    seconds: float | None = 60.0
    memory: int | None = field(default_factory=query_memory)
    rows: int | None = 200_000_000
    returned: int | None = 10_000_000
    disk: int | None = DEFAULT_DISK

    def __post_init__(self) -> None:
        for limit in fields(self):
            value: object = getattr(self, limit.name)
            if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0):
                continue
            hint = "give a number that is not negative, or None for no limit"
            raise InputError(f"the limit '{limit.name}' of a budget is {shown(value)}", hint=hint)


def default_budget() -> Budget:
    """The budget of a read without an explicit budget. It is cached while the environment variables do not change."""
    return _default_budget(query_memory(), THREADS.get())


@lru_cache(maxsize=8)
def _default_budget(memory: int, threads: str | None) -> Budget:
    if threads is not None:
        query_threads()  # so that an invalid number is an error of every read, not only of large ones
    return Budget(memory=memory)


class Cancellation:
    """Cancels reads from another thread. Pass the same object to one or several reads, and call `cancel`.

    Example:
        >>> cancel = Cancellation()
        >>> cancel.cancel()
        >>> cancel.cancelled
        True
    """

    def __init__(self) -> None:
        self._is_cancelled = False
        self._calls: tuple[Callable[[], None], ...] = ()
        self._lock = Lock()

    def cancel(self) -> None:
        """Cancel all reads, running and future, that were given this object. Each fails with a `CancelledError`."""
        self._is_cancelled = True
        for call in self._calls:  # without the lock, because a signal handler may cancel while its thread holds it
            call()

    @contextmanager
    def calling(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` once if the cancellation comes during the block, or came before it. For work that waits."""
        with self._lock:
            self._calls = (*self._calls, stop)
        try:
            if self.cancelled:
                stop()
            yield
        finally:
            with self._lock:
                self._calls = tuple(call for call in self._calls if call is not stop)

    @property
    def cancelled(self) -> bool:
        return self._is_cancelled


@dataclass(slots=True)
class Spending:
    """Budget usage of one read. Several threads of the read may use it at the same time.

    Attributes:
        rows: number of rows examined so far.
        kept: bytes of other buffers that are in memory now.
        peak: largest number of bytes in memory at any time so far.
        read: bytes read from tables.
        requests: number of read requests to tables.
        spilled_bytes: bytes written to spill files.
        most: the current memory limit in bytes; None for no limit.
        stopping: whether the threads of the read should stop, because one of them has failed.
        in_stage: whether a stage runs as a read of its own. Its rows are not rows of the result.
    """

    budget: Budget = field(default_factory=Budget)
    cancel: Cancellation = field(default_factory=Cancellation)
    started: float = field(default_factory=time.monotonic)
    rows: int = 0
    kept: int = 0
    peak: int = 0
    read: int = 0
    requests: int = 0
    spilled_bytes: int = 0
    most: int | None = field(init=False)
    stopping: bool = False
    in_stage: bool = False
    _held: dict[int, int] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.most = self.budget.memory

    @property
    def held(self) -> int:
        """Bytes of the intermediate rows that the match has in memory now, in all threads of the read."""
        # A copy, because other threads may add their entries meanwhile.
        return sum(self._held.copy().values())

    def spend(self, rows: int = 0, columns: int = 0) -> None:
        """Add to the number of examined rows. Call this method before arrays are allocated for these rows.

        Args:
            rows: number of rows.
            columns: number of array elements per row.

        Raises:
            BudgetExceededError: a limit is exceeded.
            CancelledError: the read was cancelled.
        """
        self.expect(rows, columns)
        with self._lock:
            self.rows += rows

    def expect(self, rows: int, columns: int) -> None:
        """Check that `spend` would succeed, without counting anything.

        Raises:
            BudgetExceededError: a limit would be exceeded.
            CancelledError: the read was cancelled.
        """
        self.check()
        most = self.budget.rows
        if most is not None and self.rows + rows > most:
            raise BudgetExceededError("rows", most, self.rows + rows)
        self.need_arrays(rows, columns)

    def need_arrays(self, rows: int, columns: int) -> None:
        """Check that new arrays fit the memory budget together with the current rows.

        Args:
            rows: length of each array.
            columns: number of arrays.

        Raises:
            BudgetExceededError: the arrays do not fit.
        """
        self.need(rows * columns * _CELL)

    def need(self, size: int) -> None:
        """Check that `size` more bytes fit the memory budget together with the current rows.

        Raises:
            BudgetExceededError: the bytes do not fit.
        """
        taken = self.kept + self.held + size
        if self.most is not None and taken > self.most:
            raise BudgetExceededError("bytes", self.most, taken)
        self.peak = max(self.peak, taken)

    def hold(self, size: int) -> None:
        """Set how many bytes the current rows of the match take in this thread.

        Raises:
            BudgetExceededError: the bytes exceed the memory budget.
        """
        self._held[get_ident()] = size
        self.need(0)

    def forget_thread(self) -> None:
        """Set that this thread has no rows in memory. A thread calls it when its work for the read is done."""
        self._held.pop(get_ident(), None)

    def keep(self, size: int) -> None:
        """Add the bytes of a buffer that stays in memory.

        Raises:
            BudgetExceededError: the bytes in memory exceed the memory budget.
        """
        with self._lock:
            self.kept += size
        self.need(0)

    def release(self, size: int) -> None:
        """Subtract the bytes of buffers that `keep` added and that are no longer in memory."""
        with self._lock:
            self.kept -= size

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """At the end of a `with` block, release the memory that `keep` reserved inside it."""
        before = self.kept
        try:
            yield
        finally:
            self.kept = before

    @contextmanager
    def within_stage(self) -> Iterator[None]:
        """Do not count rows as rows of the result during a `with` block."""
        before, self.in_stage = self.in_stage, True
        try:
            yield
        finally:
            self.in_stage = before

    def restart(self) -> None:
        """Reset the usage. Called when the read starts again, in chunks. The run time is not reset."""
        self.rows = self.kept = self.peak = 0
        self._held.clear()

    @contextmanager
    def at_most(self, size: int | None) -> Iterator[None]:
        """Use another memory limit, in bytes, during a `with` block."""
        before, self.most = self.most, size
        try:
            yield
        finally:
            self.most = before

    def note_spill(self, size: int) -> None:
        """Count bytes that are about to be spilled.

        Raises:
            BudgetExceededError: the spilled bytes exceed the disk budget.
        """
        self.check()
        self.spilled_bytes += size
        if self.budget.disk is not None and self.spilled_bytes > self.budget.disk:
            raise BudgetExceededError("bytes on disk", self.budget.disk, self.spilled_bytes)

    def note_returned(self, rows: int) -> None:
        """Check the number of rows of the result.

        Raises:
            BudgetExceededError: there are more rows than the read may return.
        """
        self.check()
        if self.budget.returned is not None and rows > self.budget.returned and not self.in_stage:
            raise BudgetExceededError("rows of result", self.budget.returned, rows, hint="add a limit")

    def check(self) -> None:
        """Stop the read if it is out of time or cancelled.

        Raises:
            BudgetExceededError: the read is out of time.
            CancelledError: the read was cancelled.
        """
        if self.stopping or self.cancel.cancelled:
            raise CancelledError("the query was cancelled")
        most = self.budget.seconds
        if most is not None:
            taken = time.monotonic() - self.started
            if taken > most:
                raise BudgetExceededError("seconds", most, taken)

    @contextmanager
    def running(self) -> Iterator[None]:
        """During a `with` block, `checkpoint` checks the limits of this read in the current thread."""
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)


_current: ContextVar[Spending | None] = ContextVar("omnigraph_read", default=None)


def checkpoint(rows: int = 0, columns: int = 0) -> None:
    """Stop the read that runs in this thread if it exceeds a limit. Use this in code without a reference to the read.

    Args:
        rows: length of each array that is about to be allocated.
        columns: number of these arrays.

    Raises:
        BudgetExceededError: the arrays do not fit the memory budget, or the read is out of time.
        CancelledError: the read was cancelled.
    """
    spending = _current.get()
    if spending is not None:
        spending.check()
        spending.need_arrays(rows, columns)


def note_read(size: int, requests: int = 1) -> None:
    """Add bytes and requests to the usage of the read that runs in this thread, after it read from a table."""
    spending = _current.get()
    if spending is not None:
        spending.read += size
        spending.requests += requests


def read_so_far() -> tuple[int, int]:
    """Bytes that the read in this thread has read from tables so far, and the number of its requests."""
    spending = _current.get()
    return (0, 0) if spending is None else (spending.read, spending.requests)


def memory_of_read() -> int | None:
    """Memory budget, in bytes, of the read that runs in this thread; None without a limit."""
    spending = _current.get()
    return None if spending is None else spending.budget.memory


def note_spill(size: int) -> None:
    """Count bytes that the read in this thread is about to spill.

    Raises:
        BudgetExceededError: the spilled bytes exceed the disk budget.
    """
    spending = _current.get()
    if spending is not None:
        spending.note_spill(size)
