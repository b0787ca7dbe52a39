"""The three-way comparison as one relation: classifies the rows of three versions of a table by id.

It only compares rows with the same id. So its input may be a partition, if it has all rows of its ids. A merge can
work partition by partition within its memory budget, or on many machines.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.merge.equality import Mask, identical

VERDICT = "__verdict"
DIFFERS = "__differs"
UNDECIDED = "__undecided"
ROW_ID = "_rowid"

Positions = np.ndarray[tuple[int], np.dtype[np.int64]]


class Verdict(IntEnum):
    """The classification of an entity. Entities that stay as in the target have none."""

    INSERT = 1
    """Only the source has it."""
    UPDATE = 2
    """The source changed it."""
    DELETE = 3
    """The source deleted it."""
    DIVERGENT_INSERT = 4
    """Both sides created it, with different values."""
    DIVERGENT_UPDATE = 5
    """Both sides changed it, in different ways."""
    DELETED_BY_SOURCE = 6
    """The source deleted it and the target changed it."""
    DELETED_BY_TARGET = 7
    """The target deleted it and the source changed it."""
    SAME_CHANGE = 8
    """Both sides made the same change. Only a conflict if each entity may be changed by one side alone."""

    @property
    def is_conflict(self) -> bool:
        return self >= Verdict.DIVERGENT_INSERT

    @property
    def theirs(self) -> Verdict:
        """The classification after the source wins the conflict."""
        return _THEIRS.get(self, self)


_THEIRS = {
    Verdict.DIVERGENT_INSERT: Verdict.UPDATE,
    Verdict.DIVERGENT_UPDATE: Verdict.UPDATE,
    Verdict.DELETED_BY_SOURCE: Verdict.DELETE,
    Verdict.DELETED_BY_TARGET: Verdict.INSERT,
}


@dataclass(frozen=True, slots=True)
class Taken:
    """The rows of a source with another schema, as a merge takes them.

    Attributes:
        rows: the rows, in the order of the rows that are compared. In columns that the source lacks, they have the
            values of the target.
        lacking: these columns. Changes of the target in them do not conflict with changes of the source.
        changed: ids of entities that the source has changed in columns that the target lacks. If the target has deleted
            one, this is a conflict.
    """

    rows: pa.Table
    lacking: frozenset[str]
    changed: pa.Array = field(default_factory=lambda: pa.array([], pa.utf8()))


def classify(
    base: pa.Table,
    source: pa.Table,
    target: pa.Table,
    undecided: pa.Array | None = None,
    *,
    unknown: bool = False,
    taken: Taken | None = None,
    exclusive: bool = False,
) -> pa.Table:
    """Compare some rows of a table by id.

    Args:
        base: the rows of the base. All three tables have the same columns and unique ids.
        source: the rows of the branch that is merged.
        target: the rows of the branch that it is merged into.
        undecided: ids whose base value is undecided: if the sides differ, they are conflicts.
        unknown: whether the base values of all rows are unknown.
        taken: the rows of the source as the merge takes them, if it has another schema.
        exclusive: whether an entity that both sides changed is a conflict, even if they made the same change.

    Returns:
        One row per entity that does not stay as in the target: the row of the source (only the id if the source has
        none) and the classification. A conflict also has the indexes of the columns that differ, and whether its base
        value is undecided.
    """
    whole = base.combine_chunks()
    sides = [whole, source.combine_chunks(), whole if target is base else target.combine_chunks()]
    taken_rows = sides[1] if taken is None else taken.rows.combine_chunks()
    ids, places = _aligned(sides)
    present = [place >= 0 for place in places]
    source_unchanged = _same(sides[0], sides[1], places[0], places[1])
    target_unchanged = _same(sides[0], sides[2], places[0], places[2])
    if taken is not None:
        target_unchanged |= _same_known(sides[0], taken_rows, sides[2], places, taken.lacking)
        if len(taken.changed):
            changed = pc.is_in(ids, value_set=taken.changed).to_numpy(zero_copy_only=False)
            source_unchanged &= ~(changed & present[1] & ~present[2])
    sides_equal = _same(taken_rows, sides[2], places[1], places[2])
    verdicts = np.zeros(len(ids), np.int8)
    in_base, in_source, in_target = present
    undecided_base = np.full(len(ids), unknown)
    if undecided is not None and len(undecided):
        undecided_base |= pc.is_in(ids, value_set=undecided).to_numpy(zero_copy_only=False)
    source_unchanged, target_unchanged, in_base = (
        source_unchanged & ~undecided_base,
        target_unchanged & ~undecided_base,
        in_base | undecided_base,
    )
    by_source = target_unchanged & ~source_unchanged
    verdicts[by_source & in_source & ~in_target] = Verdict.INSERT
    verdicts[by_source & in_source & in_target] = Verdict.UPDATE
    verdicts[by_source & ~in_source] = Verdict.DELETE
    conflicting = ~(source_unchanged | target_unchanged | sides_equal)
    verdicts[conflicting & ~in_base] = Verdict.DIVERGENT_INSERT
    verdicts[conflicting & in_base & in_source & in_target] = Verdict.DIVERGENT_UPDATE
    verdicts[conflicting & in_base & ~in_source] = Verdict.DELETED_BY_SOURCE
    verdicts[conflicting & in_base & ~in_target] = Verdict.DELETED_BY_TARGET
    if exclusive:
        verdicts[sides_equal & ~(source_unchanged | target_unchanged)] = Verdict.SAME_CHANGE
    chosen = np.flatnonzero(verdicts)
    answer = _answer(taken_rows, sides[2], ids, verdicts[chosen], [place[chosen] for place in places], chosen)
    return answer.append_column(UNDECIDED, pa.array(undecided_base[chosen]))


def _aligned(sides: list[pa.Table]) -> tuple[pa.Array, list[Positions]]:
    """All ids, and for each side the row of each id; -1 if the side does not have the id."""
    together = pa.chunked_array([chunk for side in sides for chunk in side["id"].chunks], pa.utf8()).combine_chunks()
    encoded = together.dictionary_encode()
    codes = encoded.indices.to_numpy()
    places = []
    first = 0
    for side in sides:
        place = np.full(len(encoded.dictionary), -1, np.int64)
        place[codes[first : first + side.num_rows]] = np.arange(side.num_rows)
        first += side.num_rows
        places.append(place)
    return encoded.dictionary, places


def _same(left: pa.Table, right: pa.Table, places: Positions, others: Positions) -> Mask:
    """Mask of the entities that are equal on two sides. Entities that neither side has are equal, too."""
    both = (places >= 0) & (others >= 0)
    same = (places < 0) & (others < 0)
    if left is right:
        return same | both
    rows = np.flatnonzero(both)
    for name in compared(left):
        if len(rows) == 0:
            break
        equal = identical(_column(left, name, places[rows]), _column(right, name, others[rows]))
        rows = rows[equal]
    same[rows] = True
    return same


def _same_known(
    base: pa.Table, taken: pa.Table, target: pa.Table, places: list[Positions], lacking: frozenset[str]
) -> Mask:
    """Mask of the entities of all sides that the target has not changed, except in columns that the source lacks.

    In such a column, the row that the merge takes must have the value of the target.
    """
    rows = np.flatnonzero(np.all([place >= 0 for place in places], axis=0))
    same = np.zeros(len(places[0]), bool)
    for name in compared(base):
        if len(rows) == 0:
            break
        left, own, right = (
            _column(side, name, place[rows]) for side, place in zip((base, taken, target), places, strict=True)
        )
        equal = identical(left, right)
        if name in lacking:
            equal |= identical(own, right)
        rows = rows[equal]
    same[rows] = True
    return same


def compared(rows: pa.Table) -> list[str]:
    """The columns to compare: all but the id and Lance's row id."""
    return [name for name in rows.column_names if name not in ("id", ROW_ID)]


def _column(rows: pa.Table, name: str, places: Positions) -> pa.Array:
    column = rows[name].combine_chunks()
    whole = len(places) == len(column) and bool(np.all(places == np.arange(len(column))))
    return column if whole else column.take(pa.array(places))


def _answer(
    source: pa.Table,
    target: pa.Table,
    ids: pa.Array,
    verdicts: np.ndarray[tuple[int], np.dtype[np.int8]],
    places: list[Positions],
    chosen: Positions,
) -> pa.Table:
    rows = pa.array(places[1], mask=places[1] < 0)
    columns = {name: source[name].combine_chunks().take(rows) for name in source.column_names if name != "id"}
    differs = _differing(source, target, verdicts, places[1], places[2])
    return pa.table({"id": ids.take(pa.array(chosen)), **columns, VERDICT: pa.array(verdicts), DIFFERS: differs})


def _differing(
    source: pa.Table,
    target: pa.Table,
    verdicts: np.ndarray[tuple[int], np.dtype[np.int8]],
    places: Positions,
    others: Positions,
) -> pa.Array:
    """For each conflict in which both sides have a row, the indexes of the columns that differ."""
    conflicting = np.flatnonzero((verdicts == Verdict.DIVERGENT_INSERT) | (verdicts == Verdict.DIVERGENT_UPDATE))
    names = compared(source)
    found = np.zeros((len(verdicts), len(names)), bool)
    if len(conflicting):
        for i, name in enumerate(names):
            left, right = _column(source, name, places[conflicting]), _column(target, name, others[conflicting])
            found[conflicting, i] = ~identical(left, right)
    return column_indexes(found)


def column_indexes(found: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> pa.Array:
    """For each row of a mask, the indexes of the columns that are set."""
    offsets = np.concatenate([[0], np.cumsum(found.sum(axis=1))]).astype(np.int32)
    numbers = np.nonzero(found)[1].astype(np.int16)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(numbers, pa.int16()))
