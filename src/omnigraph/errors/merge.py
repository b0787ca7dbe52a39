"""Errors of merging: changes of two branches that cannot both be kept."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any

from omnigraph.errors.family import ConflictError
from omnigraph.errors.source import cut, printable

_SUMMARY = 3
"""So many conflicts are in the message itself."""


class ConflictKind(StrEnum):
    """Ways for two branches to disagree."""

    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    ORPHAN_EDGE = "orphan_edge"
    UNIQUE_VIOLATION = "unique_violation"
    CARDINALITY_VIOLATION = "cardinality_violation"
    VALUE_CONSTRAINT_VIOLATION = "value_constraint_violation"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Something on which two branches disagree.

    Attributes:
        entity_kind: `node` or `edge`.
        type_name: the type.
        entity_id: the entity; None where it is about a number of edges.
        kind: in what way they disagree.
        base: the values that the properties in question had when the branches parted; None when the entity was not
            there, or is undecided. Long texts and lists are cut, and a blob is given by a digest.
        ours: those that the target has; None when it does not have the entity.
        theirs: those that the source has.
        base_undecided: whether nobody can say what the entity was when the branches parted.
    """

    entity_kind: str
    type_name: str
    entity_id: str | None
    kind: ConflictKind
    message: str
    base: Mapping[str, Any] | None = field(default=None, compare=False)
    ours: Mapping[str, Any] | None = field(default=None, compare=False)
    theirs: Mapping[str, Any] | None = field(default=None, compare=False)
    base_undecided: bool = False

    def __str__(self) -> str:
        entity = "" if self.entity_id is None else f" '{cut(self.entity_id)}'"
        return f"{self.type_name}{entity}: {self.kind.value}: {self.message}"

    @property
    def values(self) -> str:
        """The values of all sides, on one line."""
        before = "undecided" if self.base_undecided else _shown(self.base)
        return f"base {before}, ours {_shown(self.ours)}, theirs {_shown(self.theirs)}"

    def to_json(self) -> dict[str, Any]:
        """The conflict as every surface gives it."""
        return {
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "entity_id": self.entity_id,
            "kind": self.kind.value,
            "message": self.message,
            "base": _plain(self.base),
            "ours": _plain(self.ours),
            "theirs": _plain(self.theirs),
            "base_undecided": self.base_undecided,
        }


def _shown(values: Mapping[str, Any] | None) -> str:
    if values is None:
        return "none"
    return cut(json.dumps(_plain(values), ensure_ascii=False), 200)


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


_WITHOUT_SIDES = (ConflictKind.UNIQUE_VIOLATION, ConflictKind.CARDINALITY_VIOLATION)


class MergeConflictsError(ConflictError):
    """Two branches disagree, and nobody has said which one is right. The target is as it was.

    Attributes:
        conflicts: what they disagree on, in a fixed order; of very many, the first.
        total: how many there are in all.
    """

    code = "merge_conflicts"

    _hint_without_sides = "nothing was written; there is no side to choose: change one of the branches, and merge again"
    _hint = "nothing was written; choose for all (--strategy), for each (--resolve), or reconcile the branches"

    def __init__(self, source: str, target: str, conflicts: Sequence[Conflict], total: int) -> None:
        named = "; ".join(str(conflict) for conflict in conflicts[:_SUMMARY])
        more = f"; and {total - _SUMMARY:,} more" if total > _SUMMARY else ""
        self._summary = self._summarised(source, target)
        chosen = any(conflict.kind not in _WITHOUT_SIDES for conflict in conflicts)
        hint = self._hint if chosen else self._hint_without_sides
        super().__init__(f"{self._summary}: {named}{more}", hint=hint)
        self.source = source
        self.target = target
        self.conflicts = tuple(conflicts)
        self.total = total

    def _summarised(self, source: str, target: str) -> str:
        return f"'{source}' cannot be merged into '{target}'"

    @property
    def merge_conflicts(self) -> tuple[Conflict, ...]:
        """The conflicts, under the name that every surface gives them."""
        return self.conflicts

    def render(self) -> str:
        """All conflicts that are kept, one a line."""
        lines = [f"{self._summary}:", *(f"  {one} ({one.values})" for one in self.conflicts)]
        if self.total > len(self.conflicts):
            lines.append(f"  … and {self.total - len(self.conflicts):,} more")
        return printable("\n".join([*lines, f"  help: {self.hint}"]))


class TransactionConflictError(MergeConflictsError):
    """Another commit changed rows that a transaction changed too, or both together break a constraint.

    Nothing of the transaction is visible.

    Attributes:
        table_key: the type of the first conflict.
        expected: the commit that the transaction began at.
        actual: the head of the branch.
    """

    code = "transaction_conflict"
    _hint = "nothing of it is visible; run the whole block again, so that it reads what is there now"
    _hint_without_sides = _hint

    def __init__(self, branch: str, conflicts: Sequence[Conflict], total: int, expected: str, actual: str) -> None:
        super().__init__("the transaction", branch, conflicts, total)
        self.branch = branch
        self.table_key = f"{conflicts[0].entity_kind}:{conflicts[0].type_name}"
        self.expected = expected
        self.actual = actual

    def _summarised(self, source: str, target: str) -> str:
        return f"the transaction cannot be committed to '{target}'"


class MergeSchemaError(ConflictError):
    """The branches have schemas between which rows cannot be carried. The target is as it was.

    Attributes:
        types: the types that are in the way; none where it is the schemas as a whole.
    """

    code = "merge_schema"

    def __init__(self, message: str, types: Sequence[str] = (), *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.types = tuple(types)
