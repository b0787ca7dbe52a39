"""The caller's choices for conflicts: the side that wins all conflicts, or the side that wins for single entities."""

# See docs/decisions/0115-a-side-has-a-row.md

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.errors import Conflict, InputError, cut, shown
from omnigraph.merge.classify import VERDICT, Verdict
from omnigraph.merge.equality import Mask

_NONE = pa.array([], pa.utf8())
_THEIRS = np.array([0, *(verdict.theirs for verdict in Verdict)], np.int8)
BY_THEIRS = "__theirs"
RESOLVED_DELETE_SCHEMA = pa.schema([("id", pa.utf8()), (VERDICT, pa.int8()), (BY_THEIRS, pa.bool_())])
"""Resolved conflicts in which one side deleted the row: the id, the classification, and whether the source won."""


class Strategy(StrEnum):
    """The side that wins a conflict."""

    OURS = "ours"
    """The target wins: its rows stay."""
    THEIRS = "theirs"
    """The source wins: its rows are taken."""

    @property
    def other(self) -> Strategy:
        """The opposite side: THEIRS for OURS, and OURS for THEIRS."""
        return Strategy.THEIRS if self is Strategy.OURS else Strategy.OURS


Resolutions = Mapping[Conflict | tuple[str, str], Strategy | str]
"""The side that wins each conflict. A conflict is an item of a preview, or a type name and an id."""


def strategy(name: Strategy | str) -> Strategy:
    """Parse the name of a strategy.

    Raises:
        InputError: there is no such strategy.
    """
    try:
        return Strategy(name)
    except ValueError:
        raise InputError(f"{shown(name)} is not a strategy", hint="use 'ours' or 'theirs'") from None


@dataclass(frozen=True, slots=True)
class Choice:
    """The choices for the entities of one type.

    Attributes:
        default: the side that wins for all other entities; None leaves their conflicts unresolved.
        ours: the ids for which the target wins.
        theirs: the ids for which the source wins.
    """

    default: Strategy | None = None
    ours: pa.Array = field(default_factory=lambda: _NONE)
    theirs: pa.Array = field(default_factory=lambda: _NONE)

    def named(self, ids: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The ids for which the caller chose a side individually."""
        sides_by_id = pa.concat_arrays([self.ours, self.theirs])
        found = ids.filter(pc.is_in(ids, value_set=sides_by_id))
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    def of(self, ids: pa.Array | pa.ChunkedArray, wanted: Strategy) -> Mask:
        """Mask of the entities for which the side `wanted` wins."""
        chosen, other = (self.ours, self.theirs) if wanted is Strategy.OURS else (self.theirs, self.ours)
        found = np.full(len(ids), self.default is wanted)
        if len(other):
            found[_is_in(ids, other)] = False
        if len(chosen):
            found[_is_in(ids, chosen)] = True
        return found


def _is_in(ids: pa.Array | pa.ChunkedArray, others: pa.Array) -> Mask:
    found: Mask = pc.is_in(ids, value_set=others).to_numpy(zero_copy_only=False)
    return found


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices for all types."""

    default: Strategy | None = None
    by_type: Mapping[str, Mapping[str, Strategy]] = field(default_factory=dict)

    def swapped(self) -> Choices:
        """The same choices for a merge with source and target exchanged."""
        return Choices(
            None if self.default is None else self.default.other,
            {key: {name: side.other for name, side in sides.items()} for key, sides in self.by_type.items()},
        )

    @classmethod
    def given(
        cls, default: Strategy | str | None, resolutions: Resolutions | None, type_key: Callable[[str], str]
    ) -> Choices:
        """Parse the choices of a caller.

        Args:
            default: the side that wins all other conflicts; None leaves them unresolved.
            resolutions: the side that wins each single conflict.
            type_key: returns the type key of a type name.

        Raises:
            InputError: a side is neither 'ours' nor 'theirs', a conflict has no entity id, or the resolutions are not a
                mapping.
        """
        if resolutions is not None and not isinstance(resolutions, Mapping):
            raise InputError(
                f"resolutions: {shown(resolutions)} is not a mapping", hint="give {(type, id): 'ours' or 'theirs'}"
            )
        by_type: dict[str, dict[str, Strategy]] = {}
        for about, side in (resolutions or {}).items():
            if isinstance(about, Conflict):
                key, entity = about.type_key, about.entity_id
            else:
                name, entity = _pair(about)
                key = type_key(name)
            if not isinstance(entity, str):
                raise InputError(f"a conflict about {cut(key)} without an id cannot be resolved by choosing a side")
            by_type.setdefault(key, {})[entity] = strategy(side)
        return cls(None if default is None else strategy(default), by_type)

    def __bool__(self) -> bool:
        return self.default is not None or bool(self.by_type)

    def of(self, key: str) -> Choice:
        """The choices for one type."""
        sides_by_id = self.by_type.get(key, {})
        sides = {side: [entity for entity, chosen in sides_by_id.items() if chosen is side] for side in Strategy}
        return Choice(
            self.default, pa.array(sides[Strategy.OURS], pa.utf8()), pa.array(sides[Strategy.THEIRS], pa.utf8())
        )

    def unused(self, used: Mapping[str, set[str]]) -> Choices:
        """The individual choices for entities that are not in `used`."""
        left = {
            key: {e: s for e, s in sides_by_id.items() if e not in used.get(key, ())}
            for key, sides_by_id in self.by_type.items()
        }
        return Choices(None, {key: sides_by_id for key, sides_by_id in left.items() if sides_by_id})

    def refuse(self) -> None:
        """Refuse all individual choices, because their entities have no conflict.

        Raises:
            InputError: there is at least one individual choice.
        """
        for key, sides_by_id in sorted(self.by_type.items()):
            for entity in sorted(sides_by_id):
                raise InputError(
                    f"there is no conflict about {key.partition(':')[2]} '{cut(entity)}'",
                    hint="a preview lists the conflicts",
                )


def _pair(about: object) -> tuple[str, str]:
    if isinstance(about, tuple) and len(about) == 2 and all(isinstance(part, str) for part in about):
        return about
    raise InputError(f"{shown(about)} is not a conflict", hint="give a conflict, or a type and an id")


@dataclass(frozen=True, slots=True)
class Resolved:
    """The result of a comparison after conflicts are resolved.

    Attributes:
        done: the entities that the merge changes in the target.
        conflict_rows: the conflicts without a choice.
        count: the number of resolved conflicts.
        named: the entities with resolved conflicts for which the caller chose a side individually.
        resolved_deletes: the resolved conflicts in which one side deleted the row.
    """

    done: pa.Table
    conflict_rows: pa.Table
    count: int = 0
    named: pa.Array = field(default_factory=lambda: _NONE)
    resolved_deletes: pa.Table = field(default_factory=RESOLVED_DELETE_SCHEMA.empty_table)


def resolved(answer: pa.Table, choice: Choice, both_sides: Mask | None = None) -> Resolved:
    """Resolve the conflicts for which there is a choice.

    Args:
        answer: the classified rows: the result of `classify`.
        choice: the choices for the type.
        both_sides: mask of the conflicts whose row combines properties of both sides. Such a row is written even if the
            target wins the conflict, because it also has changes of the source.
    """
    verdicts = answer[VERDICT].to_numpy()
    conflicting = verdicts >= Verdict.DIVERGENT_INSERT
    if not conflicting.any():
        return Resolved(answer, answer.slice(0, 0))
    theirs, ours = (
        conflicting & choice.of(answer["id"], Strategy.THEIRS),
        conflicting & choice.of(answer["id"], Strategy.OURS),
    )
    left = conflicting & ~theirs & ~ours
    updated = theirs if both_sides is None else theirs | (ours & both_sides)
    new_verdicts = np.where(updated, _THEIRS[verdicts], verdicts)
    place = answer.schema.get_field_index(VERDICT)
    done = answer.set_column(place, VERDICT, pa.array(new_verdicts)).filter(pa.array(updated | ~conflicting))
    used = answer["id"].filter(pa.array(theirs | ours))
    one_sided = pa.array((theirs | ours) & (verdicts >= Verdict.DELETED_BY_SOURCE))
    resolved_deletes = answer.select(["id", VERDICT]).append_column(BY_THEIRS, pa.array(theirs)).filter(one_sided)
    return Resolved(
        done,
        answer.filter(pa.array(left)),
        len(used),
        choice.named(used),
        resolved_deletes.cast(RESOLVED_DELETE_SCHEMA),
    )
