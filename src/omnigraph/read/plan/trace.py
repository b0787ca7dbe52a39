"""What a read did, step by step, for whoever asks. A read that nobody asks about keeps no trace."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from omnigraph.read.budget import read_so_far
from omnigraph.read.plan.statistics import Statistics


@dataclass(slots=True)
class Entry:
    """One step.

    Attributes:
        action: what it did: an operator.
        text: with what.
        estimate: about how many rows were expected after it; None where nothing was.
        rows: how many rows there were after it; None when it was not taken.
        seconds: how long it took, with the steps inside of it.
        size: how many bytes the rows took.
        read: how many bytes were read from tables, with the steps inside of it.
        requests: how often tables were asked for something.
        calls: how often it was taken.
        ways: how edges were found, or would be.
        reason: why it is done so; nothing where there is no other way.
        pushed: conditions that are tried in it, and not by themselves.
        columns: properties that it looks at.
        steps: those inside of it.
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
    ways: list[str] = field(default_factory=list)
    reason: str = ""
    pushed: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    steps: list[Entry] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The step as a mapping; what is not known is left out."""
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
        if self.size is not None:
            members["bytes"] = self.size
        if self.calls:
            members |= {"calls": self.calls, "bytes_read": self.read, "requests": self.requests}
        if self.ways:
            members["edges_by"] = list(map(str, self.ways))
        if self.steps:
            members["steps"] = [step.to_json() for step in self.steps]
        return members

    def is_like(self, other: Entry) -> bool:
        """Whether another is the same step, taken at another time."""
        return (self.action, self.text) == (other.action, other.text)

    def add(self, other: Entry) -> None:
        """Take in the same step, taken once more."""
        self.rows = _sum(self.rows, other.rows)
        self.seconds = _sum(self.seconds, other.seconds)
        self.size = None if self.size is None or other.size is None else max(self.size, other.size)
        self.read += other.read
        self.requests += other.requests
        self.calls += other.calls
        self.ways += [way for way in other.ways if way not in self.ways]
        add_up(self.steps, other.steps)


T = TypeVar("T", int, float)


def _sum(left: T | None, right: T | None) -> T | None:
    return None if left is None or right is None else left + right


def add_up(steps: list[Entry], others: list[Entry]) -> None:
    """Add steps to some from before: what is the same step becomes one."""
    for other in others:
        known = next((step for step in steps if step.is_like(other)), None)
        if known is None:
            steps.append(other)
        else:
            known.add(other)


class Trace:
    """The steps of a read.

    Attributes:
        steps: those that are inside of no other.
        statistics: what the plan of each block was made from.
        expected: steps that will be taken by name, as they are expected.
    """

    def __init__(self) -> None:
        self.steps: list[Entry] = []
        self.statistics: list[Statistics] = []
        self.expected: dict[str, Entry] = {}
        self._open = [self.steps]
        self._entries: list[Entry] = []

    @contextmanager
    def step(self, action: str, text: str, estimate: float | None = None) -> Iterator[Entry]:
        """A step, for as long as a block. What is noted inside of the block is inside of it."""
        with self.taking(Entry(action, text, estimate)) as entry:
            yield entry

    @contextmanager
    def taking(self, entry: Entry) -> Iterator[Entry]:
        """The same for a step that is described already."""
        self._open[-1].append(entry)
        self._open.append(entry.steps)
        self._entries.append(entry)
        entry.calls += 1
        read, requests = read_so_far()
        started = time.perf_counter()
        try:
            yield entry
        finally:
            entry.seconds = time.perf_counter() - started
            read_now, requests_now = read_so_far()
            entry.read, entry.requests = read_now - read, requests_now - requests
            self._open.pop()
            self._entries.pop()

    @contextmanager
    def named(self, action: str) -> Iterator[Entry]:
        """A step that was expected."""
        with self.taking(self.expected.get(action) or Entry(action, "")) as entry:
            yield entry

    @contextmanager
    def again(self) -> Iterator[None]:
        """Steps that were taken before, for as long as a block: they become one with those."""
        more: list[Entry] = []
        self._open.append(more)
        try:
            yield
        finally:
            self._open.pop()
            add_up(self._open[-1], more)

    def walked(self, way: str) -> None:
        """How edges were found in the step that is being taken."""
        if self._entries and way not in self._entries[-1].ways:
            self._entries[-1].ways.append(way)

    def know(self, statistics: Statistics) -> None:
        """What a plan was made from."""
        self.statistics.append(statistics)

    def note(self, entry: Entry) -> None:
        """A step that was not taken, or is over."""
        self._open[-1].append(entry)

    def log(self, logger: logging.Logger) -> None:
        """Tell a logger of each step how many rows were expected after it, and how many there were."""
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
