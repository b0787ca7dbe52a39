"""What a read did, step by step, for whoever asks. A read that nobody asks about keeps no trace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Entry:
    """One step.

    Attributes:
        action: what it did.
        text: with what.
        estimate: about how many rows were expected after it; None where nothing was.
        rows: how many rows there were after it; None when it was not taken.
        seconds: how long it took, with the steps inside of it.
        size: how many bytes the rows took.
        steps: those inside of it.
    """

    action: str
    text: str
    estimate: float | None = None
    rows: int | None = None
    seconds: float | None = None
    size: int | None = None
    steps: list[Entry] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The step as a mapping; what is not known is left out."""
        members: dict[str, Any] = {"action": self.action, "what": self.text}
        if self.estimate is not None:
            members["estimated_rows"] = round(self.estimate, 3)
        if self.rows is not None:
            members["rows"] = self.rows
        if self.seconds is not None:
            members["milliseconds"] = round(self.seconds * 1000, 3)
        if self.size is not None:
            members["bytes"] = self.size
        if self.steps:
            members["steps"] = [step.to_json() for step in self.steps]
        return members


class Trace:
    """The steps of a read.

    Attributes:
        steps: those that are inside of no other.
    """

    def __init__(self) -> None:
        self.steps: list[Entry] = []
        self._open = [self.steps]

    @contextmanager
    def step(self, action: str, text: str, estimate: float | None = None) -> Iterator[Entry]:
        """A step, for as long as a block. What is noted inside of the block is inside of it."""
        entry = Entry(action, text, estimate)
        self._open[-1].append(entry)
        self._open.append(entry.steps)
        started = time.perf_counter()
        try:
            yield entry
        finally:
            entry.seconds = time.perf_counter() - started
            self._open.pop()

    def note(self, entry: Entry) -> None:
        """A step that was not taken, or is over."""
        self._open[-1].append(entry)
