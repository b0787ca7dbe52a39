"""Errors of merging: changes of two branches that cannot both be kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

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
    """

    entity_kind: str
    type_name: str
    entity_id: str | None
    kind: ConflictKind
    message: str

    def __str__(self) -> str:
        entity = "" if self.entity_id is None else f" '{cut(self.entity_id)}'"
        return f"{self.type_name}{entity}: {self.kind.value}: {self.message}"

    def to_json(self) -> dict[str, str | None]:
        """The conflict as every surface gives it."""
        return {
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "entity_id": self.entity_id,
            "kind": self.kind.value,
            "message": self.message,
        }


class MergeConflictsError(ConflictError):
    """Two branches disagree, and nobody has said which one is right. The target is as it was.

    Attributes:
        conflicts: what they disagree on, in a fixed order; of very many, the first.
        total: how many there are in all.
    """

    code = "merge_conflicts"

    def __init__(self, source: str, target: str, conflicts: Sequence[Conflict], total: int) -> None:
        named = "; ".join(str(conflict) for conflict in conflicts[:_SUMMARY])
        more = f"; and {total - _SUMMARY:,} more" if total > _SUMMARY else ""
        super().__init__(
            f"'{source}' cannot be merged into '{target}': {named}{more}",
            hint="nothing was written; choose for all (--strategy), for each (--resolve), or reconcile the branches",
        )
        self.source = source
        self.target = target
        self.conflicts = tuple(conflicts)
        self.total = total

    def render(self) -> str:
        """All conflicts that are kept, one a line."""
        lines = [f"'{self.source}' cannot be merged into '{self.target}':", *(f"  {one}" for one in self.conflicts)]
        if self.total > len(self.conflicts):
            lines.append(f"  … and {self.total - len(self.conflicts):,} more")
        return printable("\n".join([*lines, f"  help: {self.hint}"]))


class MergeSchemaError(ConflictError):
    """The branches have schemas between which rows cannot be carried. The target is as it was.

    Attributes:
        types: the types that are in the way; none where it is the schemas as a whole.
    """

    code = "merge_schema"

    def __init__(self, message: str, types: Sequence[str] = (), *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.types = tuple(types)
