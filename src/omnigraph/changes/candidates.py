"""Finds the rows of a type that may differ between two states, from the records of written rows.

The versions of a table form a tree: the first write of a graph branch to a table starts a new chain of versions (a
fork). A row that differs between two versions was written after their last common ancestor. Such rows are found by
their row ids, which stay the same along a chain of versions. So other rows are not read.
"""

# See docs/decisions/0160-one-source-of-changes.md

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.aligned_types import TypePair
from omnigraph.errors import VersionReclaimedError
from omnigraph.lang.arrow import PROPERTY_ID
from omnigraph.storage.files.scratch import spilled
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

_ID, ROW_ID = "id", "_rowid"
BEFORE, AFTER = "before", "after"
CANDIDATES = pa.schema([(_ID, pa.utf8()), (BEFORE, pa.uint64()), (AFTER, pa.uint64())])
"""A row that may differ: its id, and its Lance row id in each state; null if a state does not have the row."""

GATHER_ROWS = 1 << 20
"""Number of sorted rows that are paired at a time."""

_IDS = pa.schema([(_ID, pa.utf8()), (ROW_ID, pa.uint64())])


def candidates(tables: TableStorage, pair: TypePair, ids: pa.Array | None = None) -> pa.Table:
    """The rows that may differ between two states, sorted by id. Some may have been rewritten with equal values.

    Args:
        tables: the table storage.
        pair: the type in both states.
        ids: if given, only rows with these ids are looked up.
    """
    if pair.is_same_version:
        return CANDIDATES.empty_table()
    if ids is not None:
        sides = [_named(tables, state.pin.ref if state else None, ids) for state in (pair.before, pair.after)]
        return _paired(*sides)
    if pair.before is None or pair.after is None:
        sides = [_all(tables, state.pin.ref if state else None) for state in (pair.before, pair.after)]
        return _paired(*sides)
    found = _written(tables, pair)
    return _paired(*(_compared(tables, pair.before.pin.ref, pair.after.pin.ref) if found is None else found))


def _written(tables: TableStorage, pair: TypePair) -> tuple[pa.Table, pa.Table] | None:
    """The rows of each state that were written since the common ancestor. None if the history is incomplete."""
    assert pair.before is not None
    assert pair.after is not None
    before, after = pair.before.pin.ref, pair.after.pin.ref
    names = [(_ID, _ID), *((one.before, one.after) for one in pair.shared)]
    try:
        common = _common_ancestor(tables, before, after)
        if common is None:
            return None
        if common == before:
            found = tables.at(after).changed_row_ids(before, names)
            return None if found is None else (found.before, found.after)
        if common == after:
            found = tables.at(before).changed_row_ids(after, [(new, old) for old, new in names])
            return None if found is None else (found.after, found.before)
        older = _names_in(tables.at(common).schema(), pair)
        if older is None:
            return None
        left = tables.at(before).changed_row_ids(common, [(name, old) for name, (old, _) in older])
        right = tables.at(after).changed_row_ids(common, [(name, new) for name, (_, new) in older])
    except VersionReclaimedError:
        # If cleanup has removed only the ancestor, the caller compares fragments. If a state is missing, this fails.
        return None
    if left is None or right is None:
        return None
    # If only one side has written a row, the other side has it with the row id of the ancestor.
    left_ids, right_ids = (_distinct_ids(side.before, side.after) for side in (left, right))
    return (
        pa.concat_tables([left.after, _without(right.before, left_ids)]),
        pa.concat_tables([right.after, _without(left.before, right_ids)]),
    )


def _names_in(schema: pa.Schema, pair: TypePair) -> list[tuple[str, tuple[str, str]]] | None:
    """The names of the compared columns in an older version, and in both states. None if the version lacks a column."""
    assert pair.before is not None
    numbered = {(field.metadata or {}).get(PROPERTY_ID.encode(), b"").decode(): field.name for field in schema}
    found = [(_ID, (_ID, _ID))]
    for one in pair.shared:
        number = pair.before.numbers.get(one.before)
        name = one.before if number is None else numbered.get(str(number))
        if name is None:
            return None
        found.append((name, (one.before, one.after)))
    return found


def _common_ancestor(tables: TableStorage, one: TableRef, other: TableRef) -> TableRef | None:
    """The last common ancestor of two versions of a table. None if a branch of the table no longer exists."""
    if one.path != other.path:
        return None
    if one.branch == other.branch:
        return one if one.version <= other.version else other
    forks = tables.fork_points(one.path)

    def path(ref: TableRef) -> dict[str | None, TableRef] | None:
        found = {ref.branch: ref}
        while ref.branch is not None:
            if ref.branch not in forks:
                return None
            ref = forks[ref.branch]
            found[ref.branch] = ref
        return found

    left, right = path(one), path(other)
    if left is None or right is None:
        return None
    trunk = next(branch for branch in left if branch in right)
    return min(left[trunk], right[trunk], key=lambda ref: ref.version)


def _compared(tables: TableStorage, before: TableRef, after: TableRef) -> tuple[pa.Table, pa.Table]:
    """All rows of fragments that only one of the states has."""
    digests = [tables.at(ref).fragment_digests() for ref in (before, after)]
    common = set(digests[0]).intersection(digests[1]) if before.path == after.path else set()
    sides = []
    for ref, names in zip((before, after), digests, strict=True):
        numbers = [part.number for part in tables.at(ref).fragments()]
        chosen = {number for number, name in zip(numbers, names, strict=True) if name not in common}
        sides.append(tables.at(ref).row_ids(chosen))
    return sides[0], sides[1]


def _all(tables: TableStorage, ref: TableRef | None) -> pa.Table:
    if ref is None:
        return _IDS.empty_table()
    return tables.at(ref).row_ids({part.number for part in tables.at(ref).fragments()})


def _named(tables: TableStorage, ref: TableRef | None, ids: pa.Array) -> pa.Table:
    if ref is None:
        return _IDS.empty_table()
    found = tables.at(ref).lookup(_ID, pa.chunked_array([ids.unique()], pa.utf8()), columns=_IDS.names)
    return found.select(_IDS.names).cast(_IDS)


def _distinct_ids(*sides: pa.Table) -> pa.Array:
    return pa.chunked_array([chunk for side in sides for chunk in side[_ID].chunks], pa.utf8()).unique()


def _without(rows: pa.Table, ids: pa.Array) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows[_ID], value_set=ids)))


def _paired(before: pa.Table, after: pa.Table) -> pa.Table:
    """Full outer join of two sides by id, sorted by id."""
    if before.num_rows + after.num_rows == 0:
        return CANDIDATES.empty_table()
    ids = pa.chunked_array([*before[_ID].chunks, *after[_ID].chunks], pa.utf8())
    rows = np.concatenate([before[ROW_ID].to_numpy(), after[ROW_ID].to_numpy()])
    order = np.asarray(pc.sort_indices(ids))

    def gathered() -> Iterator[pa.Table]:
        # An id occurs at most once per side. So after sorting, the two rows of a pair are next to each other.
        first = 0
        while first < len(order):
            last = min(first + GATHER_ROWS, len(order))
            if last < len(order) and ids[int(order[last - 1])] == ids[int(order[last])]:
                last += 1
            yield _gathered(ids, rows, order[first:last], before.num_rows)
            first = last

    return spilled(gathered(), CANDIDATES)


def _gathered(
    ids: pa.ChunkedArray,
    rows: np.ndarray[tuple[int], np.dtype[np.uint64]],
    order: np.ndarray[tuple[int], np.dtype[np.uint64]],
    split: int,
) -> pa.Table:
    """The candidates of a range of the sorted rows. Positions from `split` on belong to the second side."""
    names = ids.take(pa.array(order)).combine_chunks()
    if isinstance(names, pa.ChunkedArray):  # Arrow returns chunks if there are more than 2 GiB of ids
        names = pa.concat_arrays(names.chunks)
    is_new = np.ones(len(order), bool)
    if len(order) > 1:
        is_new[1:] = pc.not_equal(names.slice(1), names.slice(0, len(names) - 1)).to_numpy(zero_copy_only=False)
    place = np.cumsum(is_new) - 1
    count = int(place[-1]) + 1
    columns = []
    for chosen in (order < split, order >= split):
        values, known = np.zeros(count, np.uint64), np.zeros(count, bool)
        values[place[chosen]] = rows[order[chosen]]
        known[place[chosen]] = True
        columns.append(pa.array(values, mask=~known))
    return pa.table([names.filter(pa.array(is_new)), *columns], schema=CANDIDATES)
