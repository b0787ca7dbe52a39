"""Errors of merging: conflicts between two branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any

from omnigraph.dataclass import dataclass
from omnigraph.errors.family import ConflictError
from omnigraph.errors.source import cut, printable
from omnigraph.errors.values import plain_value, values_text

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
    SAME_CHANGE = "same_change"


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
        before = "undecided" if self.base_undecided else values_text(self.base)
        return f"base {before}, ours {values_text(self.ours)}, theirs {values_text(self.theirs)}"

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
            "base": plain_value(self.base),
            "ours": plain_value(self.ours),
            "theirs": plain_value(self.theirs),
            "base_undecided": self.base_undecided,
        }


_WITHOUT_SIDES = (ConflictKind.UNIQUE_VIOLATION, ConflictKind.CARDINALITY_VIOLATION)


def conflict_help(conflicts: Sequence[Conflict], valid: str = "ours", otherwise: str = "change a branch") -> str:
    """How to resolve conflicts, for the options of the command line.

    Args:
        conflicts: the conflicts.
        valid: the side whose values the schema allows, if a value violates it: `ours` or `theirs`.
        otherwise: the step if choosing a side cannot resolve a conflict.
    """
    kinds = {conflict.kind for conflict in conflicts}
    parts = []
    if any(_is_combinable(conflict) for conflict in conflicts):
        parts.append("combine changes of different properties with --level property")
    if kinds - {*_WITHOUT_SIDES, ConflictKind.VALUE_CONSTRAINT_VIOLATION}:
        parts.append("choose a side for all (--strategy) or for each (--resolve)")
    if ConflictKind.VALUE_CONSTRAINT_VIOLATION in kinds:
        other = "theirs" if valid == "ours" else "ours"
        parts.append(
            f"the schema does not allow the values of '{other}': choose '{valid}' for them (--strategy or --resolve), "
            "or first change them on their branch"
        )
    if kinds & {*_WITHOUT_SIDES}:
        parts.append(f"choosing a side cannot resolve a unique or cardinality violation: {otherwise} first")
    return "; ".join(parts)


def _is_combinable(conflict: Conflict) -> bool:
    """Whether the sides have changed different properties of an entity."""
    base, ours, theirs = conflict.base, conflict.ours, conflict.theirs
    if conflict.kind is not ConflictKind.DIVERGENT_UPDATE or base is None or ours is None or theirs is None:
        return False
    return all(base.get(name) in (ours[name], theirs.get(name)) for name in ours)


class MergeConflictsError(ConflictError):
    """A merge has conflicts that neither a strategy nor a resolution decides. The target is unchanged.

    Attributes:
        conflicts: the first conflicts, in a fixed order.
        total: the number of all conflicts.
    """

    code = "merge_conflicts"

    _hint: str | None = None
    _otherwise = "change one of the branches"

    def __init__(
        self, source: str, target: str, conflicts: Sequence[Conflict], total: int, *, valid: str = "ours"
    ) -> None:
        named = "; ".join(str(conflict) for conflict in conflicts[:_SUMMARY])
        more = f"; and {total - _SUMMARY:,} more" if total > _SUMMARY else ""
        self._summary = self._summarised(source, target)
        hint = self._hint or f"nothing was written; {conflict_help(conflicts, valid, self._otherwise)}"
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

    def __init__(self, branch: str, conflicts: Sequence[Conflict], total: int, expected: str, actual: str) -> None:
        super().__init__("the transaction", branch, conflicts, total)
        self.branch = branch
        self.table_key = conflicts[0].type_key
        self.expected = expected
        self.actual = actual

    def _summarised(self, source: str, target: str) -> str:
        return f"the transaction cannot be committed to '{target}'"


class PickConflictsError(MergeConflictsError):
    """A revert or cherry-pick has conflicts that neither a strategy nor a resolution decides. The branch is unchanged.

    Attributes:
        commit: the commit to revert or to pick.
    """

    _otherwise = "change the branch"

    def __init__(self, verb: str, commit: str, branch: str, conflicts: Sequence[Conflict], total: int) -> None:
        self.verb = verb
        self.commit = commit
        super().__init__(commit, branch, conflicts, total)

    def _summarised(self, source: str, target: str) -> str:
        return f"commit {source} cannot be {self.verb} on '{target}'"


class MergeSchemaError(ConflictError):
    """The schemas of the branches differ so that rows cannot be merged. The target is unchanged.

    Attributes:
        types: the incompatible types; empty if the problem is not in single types.
    """

    code = "merge_schema"

    def __init__(self, message: str, types: Sequence[str] = (), *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.types = tuple(types)
