"""What is wrong with the input of a write: every problem with its place, the first hundred of them in full."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omnigraph.errors import InputError

SHOWN = 100


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        record: the position of the record in its input, counted from 1.
        place: where that is for a person: `line 7`, `people.csv, row 3`.
        subject: the type and property, or the type.
    """

    record: int
    place: str
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.subject}: {self.message}" if self.place else f"{self.subject}: {self.message}"


class BadRowsError(InputError):
    """Input that cannot be written. Nothing was.

    Attributes:
        problems: the first hundred, in input order.
        total: how many there are in all.
    """

    code = "bad_rows"

    def __init__(self, problems: tuple[Problem, ...], total: int) -> None:
        more = f" (and {total - 1} more)" if total > 1 else ""
        super().__init__(f"{problems[0]}{more}", hint="nothing was written; correct the input and send it again")
        self.problems = problems
        self.total = total

    def render(self) -> str:
        """All problems that are kept, one a line."""
        lines = [str(problem) for problem in self.problems]
        if self.total > len(lines):
            lines.append(f"… and {self.total - len(lines)} more")
        return "\n".join([*lines, f"  help: {self.hint}"])


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
