"""Errors of writing: records that cannot become rows, and rows that break a constraint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from omnigraph.dataclass import dataclass
from omnigraph.errors.family import InputError
from omnigraph.errors.source import cut, printable


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem of one input record.

    Attributes:
        record: the position of the record in its input, counted from 1.
        place: the location of the record, as text: `line 7`, `people.csv, row 3`.
        subject: the type and property, or the type.
    """

    record: int
    place: str
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.subject}: {self.message}" if self.place else f"{self.subject}: {self.message}"


class BadRowsError(InputError):
    """Records of the input are invalid. Nothing was written.

    Attributes:
        problems: the first hundred problems, in input order.
        total: the number of all problems.
    """

    code = "bad_rows"

    def __init__(self, problems: tuple[Problem, ...], total: int) -> None:
        more = f" (and {total - 1} more)" if total > 1 else ""
        super().__init__(f"{problems[0]}{more}", hint="nothing was written; correct the input and send it again")
        self.problems = problems
        self.total = total

    def render(self) -> str:
        """The problems of this error, one per line."""
        return _listed(self.problems, self.total, self.hint)


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken constraint.

    Attributes:
        kind: `value`, `required`, `unique`, `endpoint` or `cardinality`.
        subject: the type and property or group of properties.
        entity_id: the entity that breaks the constraint, or the node whose edges break it.
        other_id: for `unique`, the entity with the same value.
        described: the values of a new entity whose id was generated, because the user cannot know the id; else empty.
        place: the location of the entity in the input, if known: `people.csv, line 3`.
        row: for `value`, the position of the row among the rows of its type in the write, counted from 0, if known. It
            tells records with the same id apart.
    """

    kind: str
    subject: str
    entity_id: str
    message: str
    other_id: str = ""
    described: str = ""
    place: str = ""
    row: int | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        entity = self.described or f"'{cut(self.entity_id)}'"
        return f"{self.place}: " * bool(self.place) + f"{self.subject}: {entity}: {self.message}"


class ConstraintError(InputError):
    """A change breaks constraints. Nothing was written.

    Attributes:
        violations: the first hundred violations, in the order of checking.
        total: the number of all violations.
    """

    code = "constraint"

    def __init__(self, violations: tuple[Violation, ...], total: int, *, hint: str | None = None) -> None:
        more = f" (and {total - 1} more)" if total > 1 else ""
        hint = hint or "nothing was written; correct the input and send it again"
        super().__init__(f"{violations[0]}{more}", hint=hint)
        self.violations = violations
        self.total = total

    def render(self) -> str:
        """The violations of this error, one per line."""
        return _listed(self.violations, self.total, self.hint)


class SchemaDataError(ConstraintError):
    """Stored rows do not fit a new schema. Nothing was changed."""

    code = "schema_data"

    def __init__(self, violations: tuple[Violation, ...], total: int, *, hint: str | None = None) -> None:
        super().__init__(
            violations,
            total,
            hint=hint or "the schema and the rows are unchanged; correct these rows, then apply the schema again",
        )


def _listed(items: Sequence[Problem | Violation], total: int, hint: str | None) -> str:
    lines = [str(item) for item in items]
    if total > len(lines):
        lines.append(f"… and {total - len(lines):,} more")
    return printable("\n".join([*lines, f"  help: {hint}"]))


class ResourceLimitError(InputError):
    """An input exceeds a size limit. Nothing was written.

    Attributes:
        resource: the exceeded limit.
        limit: the allowed amount.
        actual: the amount in the input, or the amount at which reading stopped.
    """

    code = "resource_limit"

    def __init__(self, resource: str, limit: int, actual: int, *, place: str = "", hint: str | None = None) -> None:
        where = f"{place}: " if place else ""
        super().__init__(f"{where}{resource}: {actual:,} is more than the limit of {limit:,}", hint=hint)
        self.resource = resource
        self.limit = limit
        self.actual = actual
