"""Errors of merging: conflicts between two branches."""

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
"""Maximum number of conflicts in the message."""


class ConflictKind(StrEnum):
    """Kinds of merge conflicts."""

    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    ORPHAN_EDGE = "orphan_edge"
    UNIQUE_VIOLATION = "unique_violation"
    CARDINALITY_VIOLATION = "cardinality_violation"
    VALUE_CONSTRAINT_VIOLATION = "value_constraint_violation"


@dataclass(frozen=True, slots=True)
class Conflict:
    """One conflict between two branches.

    Attributes:
        entity_kind: `node` or `edge`.
        type_name: the type.
        entity_id: the entity; None for a conflict about the number of edges.
        kind: the kind of conflict.
        base: the values of the conflicting properties in the merge base; None if the entity does not exist there, or
            if its base is undecided. Long texts and lists are truncated. A blob is shown as a digest.
        ours: the values in the target; None if the entity does not exist there.
        theirs: the values in the source; None if the entity does not exist there.
        base_undecided: whether the value in the merge base is unknown: there are several bases with different values,
            or the value cannot be read.
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
        """The values in base, target and source, on one line."""
        before = "undecided" if self.base_undecided else _shown(self.base)
        return f"base {before}, ours {_shown(self.ours)}, theirs {_shown(self.theirs)}"

    @property
    def type_key(self) -> str:
        """The key of the type: `node:<Type>` or `edge:<Type>`."""
        return f"{self.entity_kind}:{self.type_name}"

    def to_json(self) -> dict[str, Any]:
        """The conflict as JSON, the same for CLI and HTTP."""
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
    """Convert a value to a JSON value."""
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
    """A merge has conflicts that neither a strategy nor a resolution decides. The target is unchanged.

    Attributes:
        conflicts: the first conflicts, in a fixed order.
        total: the number of all conflicts.
    """

    code = "merge_conflicts"

    _hint_without_sides = (
        "nothing was written; choosing a side cannot solve this: change one of the branches, and merge again"
    )
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
        """The conflicts, under the name that JSON output uses."""
        return self.conflicts

    def render(self) -> str:
        """The conflicts of this error, one per line."""
        lines = [f"{self._summary}:", *(f"  {one} ({one.values})" for one in self.conflicts)]
        if self.total > len(self.conflicts):
            lines.append(f"  … and {self.total - len(self.conflicts):,} more")
        return printable("\n".join([*lines, f"  help: {self.hint}"]))


class TransactionConflictError(MergeConflictsError):
    """A concurrent commit changed the same rows as a transaction, or both together break a constraint.

    Nothing of the transaction is visible.

    Attributes:
        table_key: the type of the first conflict.
        expected: the commit at which the transaction began.
        actual: the head of the branch.
    """

    code = "transaction_conflict"
    _hint = "nothing of it is visible; run the whole block again, so that it reads the current state"
    _hint_without_sides = _hint

    def __init__(self, branch: str, conflicts: Sequence[Conflict], total: int, expected: str, actual: str) -> None:
        super().__init__("the transaction", branch, conflicts, total)
        self.branch = branch
        self.table_key = conflicts[0].type_key
        self.expected = expected
        self.actual = actual

    def _summarised(self, source: str, target: str) -> str:
        return f"the transaction cannot be committed to '{target}'"


class MergeSchemaError(ConflictError):
    """The schemas of the branches differ so that rows cannot be merged. The target is unchanged.

    Attributes:
        types: the incompatible types; empty if the problem is not in single types.
    """

    code = "merge_schema"

    def __init__(self, message: str, types: Sequence[str] = (), *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.types = tuple(types)
