"""Errors of writing: input that cannot become rows, and rows that break a constraint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omnigraph.errors.family import InputError
from omnigraph.errors.source import cut, printable


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
        return _listed(self.problems, self.total, self.hint)


@dataclass(frozen=True, slots=True)
class Violation:
    """A constraint that a change breaks.

    Attributes:
        kind: `value`, `unique`, `endpoint` or `cardinality`.
        subject: the type and property or group of properties.
        entity_id: the entity that breaks it, or the node whose edges do.
        other_id: for `unique`, the entity that holds the same.
        described: what a person calls the entity, if it is new and its id was only just made.
        place: where the entity stands in the input, where that is known: `people.csv, line 3`.
    """

    kind: str
    subject: str
    entity_id: str
    message: str
    other_id: str = ""
    described: str = ""
    place: str = ""

    def __str__(self) -> str:
        entity = self.described or f"'{cut(self.entity_id)}'"
        return f"{self.place}: " * bool(self.place) + f"{self.subject}: {entity}: {self.message}"


class ConstraintError(InputError):
    """A change that breaks constraints. Nothing was written.

    Attributes:
        violations: the first hundred, in the order of checking.
        total: how many there are in all.
    """

    code = "constraint"

    def __init__(self, violations: tuple[Violation, ...], total: int) -> None:
        more = f" (and {total - 1} more)" if total > 1 else ""
        super().__init__(f"{violations[0]}{more}", hint="nothing was written; correct the input and send it again")
        self.violations = violations
        self.total = total

    def render(self) -> str:
        """All violations that are kept, one a line."""
        return _listed(self.violations, self.total, self.hint)


def _listed(items: Sequence[Problem | Violation], total: int, hint: str | None) -> str:
    lines = [str(item) for item in items]
    if total > len(lines):
        lines.append(f"… and {total - len(lines):,} more")
    return printable("\n".join([*lines, f"  help: {hint}"]))


class ResourceLimitError(InputError):
    """Input that is larger than what is taken. Nothing was written.

    Attributes:
        resource: what there is too much of.
        limit: how much is taken.
        actual: how much there is, or was when it became too much.
    """

    code = "resource_limit"

    def __init__(self, resource: str, limit: int, actual: int, *, place: str = "", hint: str | None = None) -> None:
        where = f"{place}: " if place else ""
        super().__init__(f"{where}{resource}: {actual:,} is more than the limit of {limit:,}", hint=hint)
        self.resource = resource
        self.limit = limit
        self.actual = actual
