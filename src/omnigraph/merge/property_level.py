"""Merging by property: combines changes of different properties of one entity.

By default a merge takes whole rows. With the level `property`, an entity that both sides updated takes each property
from the side that changed it. Only a property that both sides changed in different ways is a conflict.

Properties that depend on each other come from the same side. These are the endpoints of an edge, and a text with the
vectors that are computed from it: a vector from one side does not fit the text from the other side.
"""

# See docs/decisions/0172-properties-merge-on-request.md

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, shown
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.choices import Choice, Resolved, Strategy, resolved
from omnigraph.merge.classify import DIFFERS, UNDECIDED, VERDICT, Taken, Verdict, classify, column_indexes, compared
from omnigraph.merge.equality import Mask, identical

Groups = tuple[tuple[str, ...], ...]
"""The properties of a type, in groups. Properties of one group come from the same side."""


class MergeLevel(StrEnum):
    """The unit that a merge takes from one side."""

    ROW = "row"
    """A whole entity. If both sides updated an entity in different ways, this is a conflict."""
    PROPERTY = "property"
    """A property. Changes of different properties of one entity are combined."""


def merge_level(name: MergeLevel | str | None) -> MergeLevel | None:
    """Parse the name of a merge level. None means that the schema sets the level of each type.

    Raises:
        InputError: there is no such level.
    """
    if name is None:
        return None
    try:
        return MergeLevel(name)
    except ValueError:
        raise InputError(f"{shown(name)} is not a merge level", hint="use 'row' or 'property'") from None


@dataclass(frozen=True, slots=True)
class Levels:
    """The merge level of each type.

    Attributes:
        accepted: the schema of the target. `@merge(property)` on a type sets its level.
        requested: the merge level of all types, if the caller chose one. It overrides the schema.
    """

    accepted: AcceptedSchema
    requested: MergeLevel | None = None

    def groups(self, key: str, columns: Sequence[str]) -> Groups | None:
        """The groups of columns of a type that is merged by property; None if whole rows are merged.

        Args:
            key: the type key.
            columns: the compared columns.
        """
        kind, name = TypeKey.parse(key)
        catalog = self.accepted.catalog
        declared = catalog.edges.get(name) if kind is TypeKind.EDGE else catalog.nodes.get(name)
        if declared is None or self.requested is MergeLevel.ROW:
            return None
        if self.requested is None and not declared.merges_by_property:
            return None
        leader = {column: column for column in columns}
        if kind is TypeKind.EDGE:
            leader |= dict.fromkeys(("src", "dst"), "src")
        for prop in declared.properties.values():
            if prop.embed is not None and prop.name in leader:
                leader[prop.name] = prop.embed.source
        groups: dict[str, list[str]] = {}
        for column in columns:
            groups.setdefault(leader[column], []).append(column)
        return tuple(map(tuple, groups.values()))


def compare_rows(
    base: pa.Table,
    source: pa.Table,
    target: pa.Table,
    choice: Choice,
    groups: Groups | None,
    undecided: pa.Array | None = None,
    *,
    unknown: bool = False,
    taken: Taken | None = None,
    exclusive: bool = False,
) -> Resolved:
    """Compare some rows of a table by id, and resolve the conflicts for which there is a choice.

    Args:
        base: the rows of the base. All three tables have the same columns and unique ids.
        source: the rows of the branch that is merged.
        target: the rows of the branch that it is merged into.
        choice: the choices for the type.
        groups: the groups of columns to merge by property; None merges whole rows.
        undecided: ids whose base value is undecided: if the sides differ, they are conflicts.
        unknown: whether the base values of all rows are unknown.
        taken: the rows of the source as the merge takes them, if the source lacks columns.
        exclusive: whether an entity that both sides changed is a conflict, even if they made the same change.
    """
    answer = classify(base, source, target, undecided, unknown=unknown, taken=taken, exclusive=exclusive)
    if groups is None:
        return resolved(answer, choice)
    divergent = (answer[VERDICT].to_numpy() == Verdict.DIVERGENT_UPDATE) & ~_mask(answer[UNDECIDED])
    if not divergent.any():
        return resolved(answer, choice)
    combined, kept, partial = _combined(answer.filter(pa.array(divergent)), (base, source, target), choice, groups)
    others = answer.filter(pa.array(~divergent))
    rows = pa.concat_tables([others, combined.filter(pa.array(kept))])
    both_sides = np.concatenate([np.zeros(others.num_rows, bool), partial[kept]])
    return resolved(rows, choice, both_sides)


def _combined(
    answer: pa.Table, sides: tuple[pa.Table, pa.Table, pa.Table], choice: Choice, groups: Groups
) -> tuple[pa.Table, Mask, Mask]:
    """Combine entities that both sides updated in different ways.

    Returns:
        A row for each entity: the combined values, the classification, and the properties that conflict; a mask of the
        entities that the merge changes in the target; and a mask of those that it changes even if the target wins.
    """
    ids = answer["id"].combine_chunks()
    base, source, target = (_aligned(side, ids) for side in sides)
    names = compared(source)
    place = {name: i for i, name in enumerate(names)}
    ours = choice.of(ids, Strategy.OURS)
    differs = {name: ~identical(_column(source, name), _column(target, name)) for name in names}
    conflicts = np.zeros((len(ids), len(names)), bool)
    taken, partial = np.zeros(len(ids), bool), np.zeros(len(ids), bool)
    columns = {name: answer[name].combine_chunks() for name in answer.column_names}
    for group in groups:
        in_source, in_target, differ = (np.zeros(len(ids), bool) for _ in range(3))
        for name in group:
            in_source |= ~identical(_column(base, name), _column(source, name))
            in_target |= ~identical(_column(base, name), _column(target, name))
            differ |= differs[name]
        both = in_source & in_target & differ
        for name in group:
            conflicts[:, place[name]] = both & differs[name]
        only_source = in_source & ~in_target
        from_source = only_source | (both & ~ours)
        partial |= only_source
        taken |= from_source
        for name in group:
            columns[name] = _chosen(_column(source, name), _column(target, name), from_source)
    conflicting: Mask = np.asarray(conflicts.any(axis=1))
    verdicts = np.where(conflicting, np.int8(Verdict.DIVERGENT_UPDATE), np.int8(Verdict.UPDATE))
    columns[VERDICT] = pa.array(verdicts, pa.int8())
    columns[DIFFERS] = column_indexes(conflicts)
    return pa.table(columns, schema=answer.schema), taken | conflicting, partial


def _aligned(rows: pa.Table, ids: pa.Array) -> pa.Table:
    """The rows of some ids, in the order of the ids."""
    rows = rows.combine_chunks()
    return rows.take(pc.index_in(ids, value_set=rows["id"].combine_chunks()))


def _column(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()


def _chosen(source: pa.Array, target: pa.Array, from_source: Mask) -> pa.Array:
    """For each row the value of the source or of the target."""
    if from_source.all():
        return source
    rows = np.arange(len(source))
    return pa.concat_arrays([source, target]).take(pa.array(np.where(from_source, rows, rows + len(source))))


def _mask(column: pa.ChunkedArray) -> Mask:
    found: Mask = column.to_numpy(zero_copy_only=False)
    return found
