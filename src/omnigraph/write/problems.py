"""What is wrong with the input of a write: every problem with its place, the first hundred of them in full."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.errors import BadRowsError, Problem

SHOWN = 100


class Problems:
    """Collects problems. Cheap when there are none, bounded when there are millions."""

    def __init__(self) -> None:
        self._first: list[Problem] = []
        self.total = 0

    def add(self, problem: Problem) -> None:
        self.add_all([problem], 1)

    def add_all(self, problems: Iterable[Problem], count: int) -> None:
        """Take in some problems, of which only the first may be spelled out, and how many there are."""
        self.total += count
        self._first = sorted([*self._first, *problems])[:SHOWN]

    def __bool__(self) -> bool:
        return self.total > 0

    def check(self) -> None:
        """Raise what was collected.

        Raises:
            BadRowsError: there was something.
        """
        if self.total:
            raise BadRowsError(tuple(self._first), self.total)
