"""Budgets: what a read may take of time, memory and rows, checked while it runs, and how it is told to stop."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from threading import Event

from omnigraph.errors import BudgetExceededError, CancelledError, InputError, shown
from omnigraph.storage.byte_sizes import size_setting

MEMORY_VARIABLE = "OMNIGRAPH_QUERY_MEMORY"
"""How much memory one read may take: bytes, or a number with KiB, MiB or GiB."""

DEFAULT_MEMORY = 4 << 30
DEFAULT_DISK = 16 << 30
_CELL = 8
"""Bytes of a number."""


def query_memory(environ: Mapping[str, str] = os.environ) -> int:
    """The memory that a read may take: what the environment says, else 4 GiB, or half of what a small machine has.

    >>> query_memory({"OMNIGRAPH_QUERY_MEMORY": "64 MiB"})
    67108864

    Raises:
        InputError: the environment does not name an amount.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return size_setting(environ, MEMORY_VARIABLE, min(DEFAULT_MEMORY, machine // 2))


@dataclass(frozen=True, slots=True)
class Budget:
    """What a read may take; None is no limit.

    Attributes:
        seconds: time.
        memory: bytes of rows on their way to the result. What the process keeps for all reads is not part of it.
        rows: rows that are looked at: those of tables whose values decide, those of edges that are walked, and those
            that a match passes through.
        returned: rows of the result.
        disk: bytes of rows that wait in temporary files where memory does not suffice.

    Raises:
        InputError: a limit is no number, or below zero.
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
            raise InputError(f"'{limit.name}' of a budget is {shown(value)}", hint=hint)


class Cancellation:
    """Stops reads from another thread: give it to them, and call `cancel`.

    Example:
        >>> cancel = Cancellation()
        >>> cancel.cancel()
        >>> cancel.cancelled
        True
    """

    def __init__(self) -> None:
        self._event = Event()

    def cancel(self) -> None:
        """Stop every read that was given this, now or later: each ends with a `CancelledError`."""
        self._event.set()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()


@dataclass(slots=True)
class Spending:
    """What a read has used of its budget.

    Attributes:
        rows: rows that were looked at.
        held: bytes of the rows of the match so far.
        kept: bytes of what waits in memory beside the match.
        peak: the most bytes that there were at a time.
        read: bytes that were read from tables.
        requests: how often tables were asked for something.
        aside: bytes that were written to temporary files.
        most: how many bytes there may be now.
    """

    budget: Budget = field(default_factory=Budget)
    cancel: Cancellation = field(default_factory=Cancellation)
    started: float = field(default_factory=time.monotonic)
    rows: int = 0
    held: int = 0
    kept: int = 0
    peak: int = 0
    read: int = 0
    requests: int = 0
    aside: int = 0
    most: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.most = self.budget.memory

    def spend(self, rows: int = 0, columns: int = 0) -> None:
        """Note rows that are looked at, before arrays are made for them.

        Args:
            rows: how many.
            columns: how many numbers each of them takes.

        Raises:
            BudgetExceededError: that is more than the read may take.
            CancelledError: it was told to stop.
        """
        self.expect(rows, columns)
        self.rows += rows

    def expect(self, rows: int, columns: int) -> None:
        """Look ahead: what `spend` would say.

        Raises:
            BudgetExceededError: that is more than the read may take.
            CancelledError: it was told to stop.
        """
        self.check()
        most = self.budget.rows
        if most is not None and self.rows + rows > most:
            raise BudgetExceededError("rows", most, self.rows + rows)
        self.room(rows, columns)

    def room(self, rows: int, columns: int) -> None:
        """Note arrays that are needed beside the rows so far.

        Args:
            rows: how long they are.
            columns: how many there are.

        Raises:
            BudgetExceededError: that is more than the read may take.
        """
        self.need(rows * columns * _CELL)

    def need(self, size: int) -> None:
        """Note bytes that are needed beside those of the rows so far.

        Raises:
            BudgetExceededError: that is more than the read may take.
        """
        taken = self.kept + self.held + size
        if self.most is not None and taken > self.most:
            raise BudgetExceededError("bytes", self.most, taken)
        self.peak = max(self.peak, taken)

    def hold(self, size: int) -> None:
        """Note how many bytes the rows of the match take now.

        Raises:
            BudgetExceededError: that is more than the read may take.
        """
        self.held = size
        self.need(0)

    def keep(self, size: int) -> None:
        """Note more bytes that wait beside the match.

        Raises:
            BudgetExceededError: that is more than the read may take.
        """
        self.kept += size
        self.need(0)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Forget at the end of a block what was kept in it."""
        before = self.kept
        try:
            yield
        finally:
            self.kept = before

    def start_again(self) -> None:
        """Forget what was noted: it is done in another way. The time goes on."""
        self.rows = self.held = self.kept = self.peak = 0

    @contextmanager
    def at_most(self, size: int | None) -> Iterator[None]:
        """Allow so many bytes for the time of a block."""
        before, self.most = self.most, size
        try:
            yield
        finally:
            self.most = before

    def put_aside(self, size: int) -> None:
        """Note bytes that are about to be written to a temporary file.

        Raises:
            BudgetExceededError: that is more than the read may take.
        """
        self.check()
        self.aside += size
        if self.budget.disk is not None and self.aside > self.budget.disk:
            raise BudgetExceededError("bytes on disk", self.budget.disk, self.aside)

    def give(self, rows: int) -> None:
        """Note rows of the result.

        Raises:
            BudgetExceededError: that is more than the read may return.
        """
        self.check()
        if self.budget.returned is not None and rows > self.budget.returned:
            raise BudgetExceededError("rows of result", self.budget.returned, rows, hint="add a limit")

    def check(self) -> None:
        """Stop here if the read has to.

        Raises:
            BudgetExceededError: its time is over.
            CancelledError: it was told to stop.
        """
        if self.cancel.cancelled:
            raise CancelledError("the query was cancelled")
        most = self.budget.seconds
        if most is not None:
            taken = time.monotonic() - self.started
            if taken > most:
                raise BudgetExceededError("seconds", most, taken)

    @contextmanager
    def running(self) -> Iterator[None]:
        """What `checkpoint` checks in this thread, for the time of a block."""
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)


_current: ContextVar[Spending | None] = ContextVar("omnigraph_read", default=None)


def checkpoint(rows: int = 0, columns: int = 0) -> None:
    """Stop here if the read that runs in this thread has to: for what many reads share, and that knows none of them.

    Args:
        rows: how long arrays are that are about to be made.
        columns: how many there are.

    Raises:
        BudgetExceededError: they are more than the read may take, or its time is over.
        CancelledError: it was told to stop.
    """
    spending = _current.get()
    if spending is not None:
        spending.check()
        spending.room(rows, columns)


def note_read(size: int, requests: int = 1) -> None:
    """Note bytes that were read from a table, for the read that runs in this thread."""
    spending = _current.get()
    if spending is not None:
        spending.read += size
        spending.requests += requests


def read_so_far() -> tuple[int, int]:
    """How many bytes the read that runs in this thread has read from tables, and how often it has asked them."""
    spending = _current.get()
    return (0, 0) if spending is None else (spending.read, spending.requests)


def memory_of_read() -> int | None:
    """How much memory the read may take that runs in this thread; None when there is no limit."""
    spending = _current.get()
    return None if spending is None else spending.budget.memory


def put_aside(size: int) -> None:
    """Note bytes that are about to be written to a temporary file, for the read that runs in this thread.

    Raises:
        BudgetExceededError: that is more than the read may take.
    """
    spending = _current.get()
    if spending is not None:
        spending.put_aside(size)
