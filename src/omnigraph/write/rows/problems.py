"""What is wrong with the input of a write, and what the lenient reader made of it.

Problems are kept with their places, the first hundred of them in full. Coercions are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from omnigraph.errors import BadRowsError, Problem, cut

SHOWN = 100
_FOUND = 40
"""How much of a value is shown that was changed."""


class Leniency(StrEnum):
    """What the lenient reader does with input that the strict one refuses."""

    IGNORED_MEMBER = "ignored_member"
    """A member of the envelope that means nothing."""
    DUPLICATE_MEMBER = "duplicate_member"
    """A member that is there twice: the last one counts."""
    IGNORED_PROPERTY = "ignored_property"
    """A property that the type does not have."""
    NULLED_VALUE = "nulled_value"
    """A value of the wrong type, which became null."""
    NULL_ITEM = "null_item"
    """An item of a list that is null, or of the wrong type and became null."""
    REWRITTEN_ID = "rewritten_id"
    """An id that is another spelling of the key: the canonical one is stored."""
    REWRITTEN_END = "rewritten_end"
    """An end of an edge that named a node by such an id."""


@dataclass(frozen=True, slots=True, order=True)
class Coercion:
    """One way in which input was changed to fit.

    Attributes:
        kind: what was done.
        subject: the type and property.
        count: how often.
        example: the first place.
        found: what stood there; empty when the receipt is of a request that was answered before, because data is not
            kept in commits.
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
    """Counts what the lenient reader changed. Past a hundred subjects, the others are counted together."""

    def __init__(self) -> None:
        self._found: dict[tuple[Leniency, str], tuple[int, str, str]] = {}

    def add(self, kind: Leniency, subject: str, example: str, count: int = 1, *, found: str = "") -> None:
        """Count something.

        Args:
            kind: what was done.
            subject: to what.
            example: the first place.
            count: how often.
            found: what stood there.
        """
        if (kind, subject) not in self._found and len(self._found) >= SHOWN:
            subject = "(others)"
        before, place, what = self._found.get((kind, subject), (0, example, cut(found, _FOUND)))
        self._found[kind, subject] = (before + count, place, what)

    def all(self) -> tuple[Coercion, ...]:
        """By kind and subject."""
        return tuple(Coercion(kind, subject, *said) for (kind, subject), said in sorted(self._found.items()))


class Problems:
    """Collects problems. Cheap when there are none, bounded when there are millions.

    Attributes:
        total: how many there are.
        coerced: what the lenient reader changed; None when the reader is strict.
    """

    def __init__(self) -> None:
        self._first: list[Problem] = []
        self.total = 0
        self.coerced: Coercions | None = None

    def add(self, problem: Problem) -> None:
        self.add_all([problem], 1)

    def add_all(self, problems: Iterable[Problem], count: int) -> None:
        """Take in some problems, of which only the first may be spelled out, and how many there are."""
        self.total += count
        self._first = sorted([*self._first, *problems])[:SHOWN]

    @property
    def first(self) -> tuple[Problem, ...]:
        """The first hundred, in input order."""
        return tuple(self._first)

    def __bool__(self) -> bool:
        return self.total > 0

    def check(self) -> None:
        """Raise what was collected.

        Raises:
            BadRowsError: there was something.
        """
        if self.total:
            raise BadRowsError(self.first, self.total)
