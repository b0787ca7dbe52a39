"""Finds the rows of a type that may differ between two states."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.changes.aligned_types import TypePair
from omnigraph.storage.difference import Part
from omnigraph.storage.row_pairs import ID, IDS, PAIRS, changed_rows, paired
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage


def candidates(tables: TableStorage, pair: TypePair, ids: pa.Array | None = None, part: Part | None = None) -> pa.Table:
    """The rows that may differ between two states, sorted by id. Some may have been rewritten with equal values.

    Args:
        tables: the table storage.
        pair: the type in both states.
        ids: if given, only rows with these ids are looked up.
        part: selects the rows to return; by default all. The other rows are dropped while they are read, so the memory
            depends on the size of the part.
    """
    if pair.is_same_version:
        return PAIRS.empty_table()
    if ids is not None:
        ids = ids if part is None else ids.filter(pa.array(part(ids)))
        sides = [_named(tables, state.pin.ref if state else None, ids) for state in (pair.before, pair.after)]
        return paired(*sides)
    if pair.before is None or pair.after is None:
        sides = [_all(tables, state.pin.ref if state else None, part) for state in (pair.before, pair.after)]
        return paired(*sides)
    before, after = pair.before.pin.ref, pair.after.pin.ref
    compared = [one for one in pair.compared if not one.is_computed]
    names = [(ID, ID), *((one.before, one.after) for one in compared)]
    found = changed_rows(tables, before, after, names, part)
    if found is not None:
        return paired(found.before, found.after)
    if any(one.before is None for one in compared):
        # The files of a fragment may be the same: a dropped column is still in its file.
        return paired(_all(tables, before, part), _all(tables, after, part))
    return paired(*_compared(tables, before, after, part))


def _compared(tables: TableStorage, before: TableRef, after: TableRef, part: Part | None) -> tuple[pa.Table, pa.Table]:
    """All rows of fragments that only one of the states has."""
    digests = [tables.at(ref).fragment_digests() for ref in (before, after)]
    common = set(digests[0]).intersection(digests[1]) if before.path == after.path else set()
    sides = []
    for ref, names in zip((before, after), digests, strict=True):
        numbers = [fragment.number for fragment in tables.at(ref).fragments()]
        chosen = {number for number, name in zip(numbers, names, strict=True) if name not in common}
        sides.append(tables.at(ref).row_ids(chosen, part))
    return sides[0], sides[1]


def _all(tables: TableStorage, ref: TableRef | None, part: Part | None) -> pa.Table:
    if ref is None:
        return IDS.empty_table()
    return tables.at(ref).row_ids({fragment.number for fragment in tables.at(ref).fragments()}, part)


def _named(tables: TableStorage, ref: TableRef | None, ids: pa.Array) -> pa.Table:
    if ref is None:
        return IDS.empty_table()
    found = tables.at(ref).lookup(ID, pa.chunked_array([ids.unique()], pa.utf8()), columns=IDS.names)
    return found.select(IDS.names).cast(IDS)
