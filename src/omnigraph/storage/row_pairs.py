"""Finds the rows of a table that may differ between two versions, from the records of written rows.

The versions of a table form a tree: a graph branch that writes to a table forks it. A row that differs between two
versions was written after their last common ancestor. Rows are identified by their row ids, which stay the same along
a chain of versions, so no other row is read. Diffs, the change feed and merges use this module.
"""

# See docs/decisions/0160-one-source-of-changes.md
# See docs/decisions/0113-a-merge-compares-what-was-written.md

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import VersionReclaimedError
from omnigraph.storage.column_changes import former_columns, property_number
from omnigraph.storage.difference import ChangedRowIds, Part
from omnigraph.storage.files.scratch import RowCollector
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

ID, ROW_ID = "id", "_rowid"
BEFORE, AFTER = "before", "after"
PAIRS = pa.schema([(ID, pa.utf8()), (BEFORE, pa.uint64()), (AFTER, pa.uint64())])
"""A row that may differ: its id, and its row id in each version; null in a version that does not have it."""

IDS = pa.schema([(ID, pa.utf8()), (ROW_ID, pa.uint64())])
GATHER_ROWS = 1 << 20
"""Number of sorted rows that are paired at a time."""

SCAN_ROWS = 20_000
SCAN_RATIO = 30
"""With more rows than this number, and more than one per this number of rows, a table is scanned.

A lookup of a row costs about as much as a scan of 30 rows.
"""

Names = Sequence[tuple[str | None, str]]
"""The compared columns: their names in the first and in the second version; None if the first does not have it."""


def scans(count: int, rows: int) -> bool:
    """Whether a scan of a table is cheaper than lookups of so many rows by row id."""
    return count > max(SCAN_ROWS, rows // SCAN_RATIO)


def shared_names(before: pa.Schema, after: pa.Schema) -> list[tuple[str | None, str]]:
    """The columns that two versions have in common, by their property numbers."""
    return [(old, new) for new, old in former_columns(before, after).items()]


def changed_rows(
    tables: TableStorage, before: TableRef, after: TableRef, names: Names, part: Part | None = None
) -> ChangedRowIds | None:
    """The rows that may differ between two versions of a table, in no order.

    All other rows have the same row id in both versions, and equal values. A row that was rewritten with equal values
    is listed, too.

    Args:
        tables: the table storage.
        before: the first version.
        after: the second version. It may be older than the first, or on another branch.
        names: the compared columns, with the id. A column that the first version does not have is compared with null,
            or with the values that it had when it was added: all rows of its files are listed.
        part: selects the rows to list; by default all. Only rows of the part are kept in memory.

    Returns:
        None if the history is incomplete, or if a column of the second version was dropped before the first. Then all
        rows have to be compared.
    """
    if before == after:
        return ChangedRowIds(IDS.empty_table(), IDS.empty_table())
    try:
        common = common_ancestor(tables, before, after)
        if common is None:
            return None
        if common == before:
            return tables.at(after).changed_row_ids(before, names, part)
        if common == after:
            if any(old is None for old, _ in names):
                return None
            reverse = [(new, old) for old, new in names if old is not None]
            found = tables.at(before).changed_row_ids(after, reverse, part)
            return None if found is None else ChangedRowIds(found.after, found.before)
        schemas = [tables.at(ref).schema() for ref in (common, before, after)]
        older = _names_in(schemas[0], schemas[1], schemas[2], names)
        if older is None:
            return None
        sides = [(name, old) for name, old, _ in older if old is not None], [(name, new) for name, _, new in older]
        left = tables.at(before).changed_row_ids(common, sides[0], part)
        right = tables.at(after).changed_row_ids(common, sides[1], part)
    except VersionReclaimedError:
        # Only the ancestor may be missing. If one of the two versions is missing, the comparison fails.
        return None
    if left is None or right is None:
        return None
    # A row that only one side wrote has its old row id on the other side.
    left_ids, right_ids = (_distinct_ids(side.before, side.after) for side in (left, right))
    return ChangedRowIds(
        pa.concat_tables([left.after, _without(right.before, left_ids)]),
        pa.concat_tables([right.after, _without(left.before, right_ids)]),
    )


def _names_in(
    older: pa.Schema, before: pa.Schema, after: pa.Schema, names: Names
) -> list[tuple[str | None, str | None, str]] | None:
    """The names of the compared columns in an older version, before and after.

    None if it lacks one that both versions have, or if it has one that the first version lacks.
    """
    numbered = {number: field.name for field in older if (number := property_number(field)) is not None}
    found: list[tuple[str | None, str | None, str]] = []
    for old, new in names:
        name = None
        if old is not None:
            number = property_number(before.field(old))
            name = old if number is None else numbered.get(number)
            if name is None or name not in older.names:
                return None
        elif property_number(after.field(new)) in numbered:
            return None
        found.append((name, old, new))
    return found


def common_ancestor(tables: TableStorage, one: TableRef, other: TableRef) -> TableRef | None:
    """The last common ancestor of two versions of a table. None if a branch of the table is unknown."""
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


def _distinct_ids(*sides: pa.Table) -> pa.Array:
    return pa.chunked_array([chunk for side in sides for chunk in side[ID].chunks], pa.utf8()).unique()


def _without(rows: pa.Table, ids: pa.Array) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows[ID], value_set=ids)))


def paired(before: pa.Table, after: pa.Table) -> pa.Table:
    """Full outer join of the rows of two versions by id, sorted by id."""
    if before.num_rows + after.num_rows == 0:
        return PAIRS.empty_table()
    ids = pa.chunked_array([*before[ID].chunks, *after[ID].chunks], pa.utf8())
    rows = np.concatenate([before[ROW_ID].to_numpy(), after[ROW_ID].to_numpy()])
    order = np.asarray(pc.sort_indices(ids))

    with RowCollector(PAIRS) as pairs:
        # An id occurs at most once per side. So after sorting, the two rows of a pair are next to each other.
        first = 0
        while first < len(order):
            last = min(first + GATHER_ROWS, len(order))
            if last < len(order) and ids[int(order[last - 1])] == ids[int(order[last])]:
                last += 1
            pairs.add(_gathered(ids, rows, order[first:last], before.num_rows))
            first = last
        return pairs.table()


def _gathered(
    ids: pa.ChunkedArray,
    rows: np.ndarray[tuple[int], np.dtype[np.uint64]],
    order: np.ndarray[tuple[int], np.dtype[np.uint64]],
    split: int,
) -> pa.Table:
    """Pairs of a sorted range. Positions from `split` on belong to the second side."""
    names = ids.take(pa.array(order)).combine_chunks()
    if isinstance(names, pa.ChunkedArray):  # more than 2 GiB of ids
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
    return pa.table([names.filter(pa.array(is_new)), *columns], schema=PAIRS)
