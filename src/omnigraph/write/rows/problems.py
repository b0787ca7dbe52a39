"""Problems of the input of a write, and coercions: the changes that the lenient reader makes to the input.

A problem has the location of the wrong input. The first hundred problems are kept; all problems and coercions are
counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum

from omnigraph.dataclass import dataclass
from omnigraph.errors import BadRowsError, Problem, cut
from omnigraph.errors.write import kind_of

SHOWN = 100
_FOUND = 40
"""Maximum length of a wrong value in a message, in characters."""


class Leniency(StrEnum):
    """How the lenient reader treats input that the strict reader refuses."""

    IGNORED_MEMBER = "ignored_member"
    """Ignores an unknown member of an input record, next to `data`."""
    DUPLICATE_MEMBER = "duplicate_member"
    """Keeps the last of duplicate members."""
    IGNORED_PROPERTY = "ignored_property"
    """Ignores a property that the type does not have."""
    NULLED_VALUE = "nulled_value"
    """Replaces a value of the wrong type by null."""
    NULL_ITEM = "null_item"
    """Keeps a null item of a list, or replaces an item of the wrong type by null."""
    REWRITTEN_ID = "rewritten_id"
    """Replaces an alias, which is another text for the same key, by the canonical id of a node."""
    REWRITTEN_END = "rewritten_end"
    """Replaces an alias by the canonical id in an endpoint of an edge."""


@dataclass(frozen=True, slots=True, order=True)
class Coercion:
    """One kind of change that the lenient reader made to the input.

    Attributes:
        kind: the kind of change.
        subject: the type and property.
        count: the number of values.
        example: the location of the first value.
        found: the first value before the change. It is empty in the receipt of a repeated request: that receipt is read
            from the commit, which stores no data.
    """

    kind: Leniency
    subject: str
    count: int
    example: str
    found: str = field(default="", compare=False)

    def __str__(self) -> str:
        found = f": {self.found}" if self.found else ""
        return f"{self.subject}: {self.kind.replace('_', ' ')} ({self.count}), first at {self.example}{found}"


class Coercions:
    """Counts the changes of the lenient reader by kind and subject. Subjects beyond a hundred are counted together."""

    def __init__(self) -> None:
        self._found: dict[tuple[Leniency, str], tuple[int, str, str]] = {}

    def add(self, kind: Leniency, subject: str, example: str, count: int = 1, *, found: str = "") -> None:
        """Count a change.

        Args:
            kind: the kind of change.
            subject: the type and property.
            example: the location of the first value.
            count: the number of values.
            found: the first value before the change.
        """
        if (kind, subject) not in self._found and len(self._found) >= SHOWN:
            subject = "(others)"
        before, place, what = self._found.get((kind, subject), (0, example, cut(found, _FOUND)))
        self._found[kind, subject] = (before + count, place, what)

    def all(self) -> tuple[Coercion, ...]:
        """All coercions, by kind and subject."""
        return tuple(Coercion(kind, subject, *counted) for (kind, subject), counted in sorted(self._found.items()))


class Problems:
    """Collects problems. Keeps the first hundred, and counts all.

    Attributes:
        total: the number of problems.
        counts: the number of problems by kind, for the first hundred kinds.
        coerced: counts the changes of the lenient reader; None when the reader is strict.
    """

    def __init__(self) -> None:
        self._first: list[Problem] = []
        self.total = 0
        self.coerced: Coercions | None = None
        self.counts: dict[tuple[str, str], int] = {}

    def add(self, problem: Problem) -> None:
        self.add_all([problem], 1)

    def add_all(self, problems: Iterable[Problem], count: int) -> None:
        """Add `count` problems of one kind. It is enough if `problems` contains the first hundred of them."""
        problems = list(problems)
        self.merge(problems, {kind_of(problem): count for problem in problems[:1]}, count)

    def merge(self, problems: Iterable[Problem], counts: Mapping[tuple[str, str], int], total: int) -> None:
        """Add the problems of a part of the input.

        Args:
            problems: the first hundred of them, or none if they come after the first hundred of the input.
            counts: their number by kind.
            total: their number.
        """
        self.total += total
        for kind, count in counts.items():
            if len(self.counts) < SHOWN or kind in self.counts:
                self.counts[kind] = self.counts.get(kind, 0) + count
        kept = [problem for problem in problems if self.keeps(problem.record, problem.subject)]
        if kept:
            self._first = sorted([*self._first, *kept])[:SHOWN]

    def keeps(self, record: int, subject: str) -> bool:
        """Whether a problem would be among the first hundred. The message of another problem is not shown."""
        if len(self._first) < SHOWN:
            return True
        last = self._first[-1]
        return (record, subject) <= (last.record, last.subject)

    @property
    def first(self) -> tuple[Problem, ...]:
        """The first hundred problems, in input order."""
        return tuple(self._first)

    def __bool__(self) -> bool:
        return self.total > 0

    def check(self) -> None:
        """Raise the collected problems of a write.

        Raises:
            BadRowsError: there are problems.
        """
        if self.total:
            raise BadRowsError(self.first, self.total, self.counts)

    def check_read(self) -> None:
        """Raise the collected problems of an input that is read only.

        Raises:
            BadRowsError: there are problems.
        """
        if self.total:
            raise BadRowsError(self.first, self.total, self.counts, hint="correct the input")
