"""Errors of writing: records that cannot become rows, and rows that break a constraint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
        counts: the number of problems of each kind, by the subject and the form of the message; empty if unknown.
    """

    code = "bad_rows"

    def __init__(
        self,
        problems: tuple[Problem, ...],
        total: int,
        counts: Mapping[tuple[str, str], int] | None = None,
        *,
        hint: str = "nothing was written; correct the input and send it again",
    ) -> None:
        more = f" (and {total - 1} more)" if total > 1 else ""
        super().__init__(f"{problems[0]}{more}", hint=hint)
        self.problems = problems
        self.total = total
        self.counts = dict(counts or {})

    def render(self) -> str:
        """The problems of this error: a line for each, or for many of the same kind.

        That of an older server has only the first problem.
        """
        return super().render() if not self.problems else _listed(self.problems, self.total, self.counts, self.hint)


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
        counts: the number of violations of each kind, by the subject and the form of the message; empty if unknown.
    """

    code = "constraint"

    def __init__(
        self,
        violations: tuple[Violation, ...],
        total: int,
        *,
        hint: str | None = None,
        counts: Mapping[tuple[str, str], int] | None = None,
    ) -> None:
        more = f" (and {total - 1} more)" if total > 1 else ""
        hint = hint or "nothing was written; correct the input and send it again"
        super().__init__(f"{violations[0]}{more}", hint=hint)
        self.violations = violations
        self.total = total
        self.counts = dict(counts or {})

    def render(self) -> str:
        """The violations of this error: a line for each, or for many of the same kind.

        That of an older server has only the first violation.
        """
        return super().render() if not self.violations else _listed(self.violations, self.total, self.counts, self.hint)


class SchemaDataError(ConstraintError):
    """Stored rows do not fit a new schema. Nothing was changed."""

    code = "schema_data"

    def __init__(self, violations: tuple[Violation, ...], total: int, *, hint: str | None = None) -> None:
        super().__init__(
            violations,
            total,
            hint=hint or "the schema and the rows are unchanged; correct these rows, then apply the schema again",
        )


MOST_LISTED = 3
"""Problems of the same kind that are listed one by one. More of them are one line."""

_MORE_PLACES = 3
_SUGGESTION = re.compile(r"; (?:did you mean '[^']*'\?|known: [^;]*)")
_VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|[0-9][0-9.,]*")
_PLACE = re.compile(r"(?P<before>.*\b)(?P<word>line|row|record) (?P<number>[0-9]+)")


def kind_of(item: Problem | Violation) -> tuple[str, str]:
    """The kind of a problem: its subject, and its message without the values and the suggestion in it."""
    return item.subject, _VALUE.sub("", _SUGGESTION.sub("", item.message))


def _listed(
    items: Sequence[Problem | Violation], total: int, counts: Mapping[tuple[str, str], int], hint: str | None
) -> str:
    kinds: dict[tuple[str, str], list[Problem | Violation]] = {}
    for item in items:
        kinds.setdefault(kind_of(item), []).append(item)
    lines, covered, begun = [], 0, set()
    for item in items:
        kind = kind_of(item)
        alike = kinds[kind]
        count = max(counts.get(kind, 0), len(alike))
        if count <= MOST_LISTED:
            lines.append(str(item))
            covered += 1
        elif kind not in begun:
            lines.append(f"{item} (and {count - 1:,} more of this kind{_places(item, alike[1:], count)})")
            covered += count
        begun.add(kind)
    if total > covered:
        lines.append(f"… and {total - covered:,} more")
    return printable("\n".join([*lines, f"  help: {hint}"]))


def _places(first: Problem | Violation, others: Sequence[Problem | Violation], count: int) -> str:
    """The places of the next problems of the same kind, as in `: lines 4, 7, 9, …`."""
    start = _PLACE.fullmatch(first.place)
    found = [match for other in others if (match := _PLACE.fullmatch(other.place)) is not None]
    same = [match for match in found if start is not None and match["before"] == start["before"]]
    shown = list(dict.fromkeys(match["number"] for match in same))[:_MORE_PLACES]
    if start is None or not shown:
        return ""
    more = ", …" if count - 1 > len(shown) else ""
    return f": {start['word']}{'s' * (len(shown) > 1)} {', '.join(shown)}{more}"


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
