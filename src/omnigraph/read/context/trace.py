"""Trace of a read: the executed operators with row counts, times and bytes. Recorded only for `explain` and logging."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, TypeVar

from omnigraph.dataclass import dataclass
from omnigraph.read.budget.budget import read_so_far


@dataclass(slots=True)
class Entry:
    """One executed or planned operator.

    Attributes:
        action: name of the operator.
        text: the arguments of the operator.
        estimate: estimated number of output rows; None if there is no estimate.
        rows: actual number of output rows; None if the operator did not run.
        seconds: run time, including nested operators.
        size: bytes of the output rows.
        read: bytes read from tables, including nested operators.
        requests: number of read requests to tables, including nested operators.
        calls: how often the operator ran.
        edge_access: how edges are found: in a topology, with index lookups, or both.
        reason: why the planner chose the operator; empty if there was no choice.
        pushed: conditions that are evaluated inside the operator.
        columns: properties that the operator reads.
        steps: nested operators.
    """

    action: str
    text: str
    estimate: float | None = None
    rows: int | None = None
    seconds: float | None = None
    size: int | None = None
    read: int = 0
    requests: int = 0
    calls: int = 0
    edge_access: list[str] = field(default_factory=list)
    reason: str = ""
    pushed: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    steps: list[Entry] = field(default_factory=list)

    def to_json(self, *, counts_bytes: bool = True) -> dict[str, Any]:
        """The entry as a JSON object. Unknown values are left out.

        Args:
            counts_bytes: whether the bytes and read requests are shown.
        """
        members: dict[str, Any] = {"action": str(self.action), "what": self.text}
        if self.reason:
            members["reason"] = self.reason
        if self.pushed:
            members["pushed"] = list(self.pushed)
        if self.columns:
            members["columns"] = list(self.columns)
        if self.estimate is not None:
            members["estimated_rows"] = round(self.estimate, 3)
        if self.rows is not None:
            members["rows"] = self.rows
        if self.seconds is not None:
            members["milliseconds"] = round(self.seconds * 1000, 3)
        if self.size is not None and counts_bytes:
            members["bytes"] = self.size
        if self.calls:
            members["calls"] = self.calls
        if self.calls and counts_bytes:
            members |= {"bytes_read": self.read, "requests": self.requests}
        if self.edge_access:
            members["edges_by"] = list(map(str, self.edge_access))
        if self.steps:
            members["steps"] = [step.to_json(counts_bytes=counts_bytes) for step in self.steps]
        return members

    def forget_bytes(self) -> None:
        """Remove the bytes and read requests, also of nested operators."""
        self.size, self.read, self.requests = None, 0, 0
        for step in self.steps:
            step.forget_bytes()

    def is_like(self, other: Entry) -> bool:
        """Whether another entry records a run of the same operator."""
        return (self.action, self.text) == (other.action, other.text)

    def add(self, other: Entry) -> None:
        """Add the numbers of another run of the same operator to this entry."""
        self.rows = _sum(self.rows, other.rows)
        self.seconds = _sum(self.seconds, other.seconds)
        self.size = None if self.size is None or other.size is None else max(self.size, other.size)
        self.read += other.read
        self.requests += other.requests
        self.calls += other.calls
        self.edge_access += [path for path in other.edge_access if path not in self.edge_access]
        merge_entries(self.steps, other.steps)


T = TypeVar("T", int, float)


def _sum(left: T | None, right: T | None) -> T | None:
    return None if left is None or right is None else left + right


def merge_entries(steps: list[Entry], others: list[Entry]) -> None:
    """Merge new entries (`others`) into earlier entries (`steps`). Runs of the same operator become one entry."""
    for other in others:
        known = next((step for step in steps if step.is_like(other)), None)
        if known is None:
            steps.append(other)
        else:
            known.add(other)


class Trace:
    """Trace of one read.

    Attributes:
        steps: top-level entries.
    """

    def __init__(self) -> None:
        self.steps: list[Entry] = []
        self._open = [self.steps]
        self._running: list[Entry] = []

    @contextmanager
    def step(self, action: str, text: str, estimate: float | None = None) -> Iterator[Entry]:
        """Record an operator that runs during a `with` block.

        Entries that are recorded in the block are nested in its entry.
        """
        with self.running(Entry(action, text, estimate)) as entry:
            yield entry

    @contextmanager
    def running(self, entry: Entry) -> Iterator[Entry]:
        """Like `step`, but with an entry that already exists."""
        self._open[-1].append(entry)
        self._open.append(entry.steps)
        self._running.append(entry)
        entry.calls += 1
        read, requests = read_so_far()
        started = time.perf_counter()
        try:
            yield entry
        finally:
            entry.seconds = (entry.seconds or 0.0) + time.perf_counter() - started
            read_now, requests_now = read_so_far()
            entry.read += read_now - read
            entry.requests += requests_now - requests
            self._open.pop()
            self._running.pop()

    @contextmanager
    def merging(self) -> Iterator[None]:
        """Merge the entries of a `with` block into the entries of earlier runs of the same operators."""
        more: list[Entry] = []
        self._open.append(more)
        try:
            yield
        finally:
            self._open.pop()
            merge_entries(self._open[-1], more)

    @contextmanager
    def collecting(self) -> Iterator[list[Entry]]:
        """Collect the entries of a `with` block in a list, instead of the trace. `adopt` can record them later."""
        found: list[Entry] = []
        self._open.append(found)
        try:
            yield found
        finally:
            self._open.pop()

    def adopt(self, entries: Sequence[Entry]) -> None:
        """Record entries that `collecting` returned, nested in the entry of the running operator."""
        self._open[-1].extend(entries)
        for entry in self._running:
            entry.read += sum(adopted.read for adopted in entries)
            entry.requests += sum(adopted.requests for adopted in entries)

    def note_access(self, access: str) -> None:
        """Record how the running operator finds edges: in a topology (adjacency arrays) or with index lookups."""
        if self._running and access not in self._running[-1].edge_access:
            self._running[-1].edge_access.append(access)

    def log(self, logger: logging.Logger) -> None:
        """Log the estimated and actual number of output rows of each operator."""
        for entry in _all(self.steps):
            if entry.rows is None or entry.estimate is None:
                continue
            members = entry.to_json()
            members.pop("steps", None)
            logger.debug(
                "%s %s: %.4g rows expected, %d found",
                entry.action,
                entry.text,
                entry.estimate,
                entry.rows,
                extra={"step": members},
            )


def _all(steps: list[Entry]) -> Iterator[Entry]:
    for step in steps:
        yield step
        yield from _all(step.steps)
