"""Counts changes. Reads no more columns of a row after one that differs.

Inserts and deletes are counted without reading rows. Rows that both states have are compared column by column; columns
of fixed width come first.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.changes.aligned_types import ComparedColumn, TypePair, TypeState
from omnigraph.changes.row_images import blob_hashes, differs, filled
from omnigraph.errors import CorruptionError
from omnigraph.storage.row_pairs import AFTER, BEFORE, ROW_ID, scans
from omnigraph.storage.tables import TableStorage

CHUNK_ROWS = 1 << 20
"""Maximum number of rows whose values of a column are compared at a time."""

Counted = tuple[int, int, int]
"""Numbers of inserts, updates and deletes."""


def count_changes(tables: TableStorage, pair: TypePair, candidates: pa.Table) -> Counted:
    """The numbers of inserts, updates and deletes among candidates.

    Args:
        tables: the table storage.
        pair: the type in both states.
        candidates: the rows that may differ.
    """
    inserts, deletes = candidates[BEFORE].null_count, candidates[AFTER].null_count
    both = np.asarray(candidates[BEFORE].is_valid()) & np.asarray(candidates[AFTER].is_valid())
    rows = candidates.select([BEFORE, AFTER]).filter(pa.array(both))
    updates = 0
    for first in range(0, rows.num_rows, CHUNK_ROWS):
        updates += _count_updates(tables, pair, rows.slice(first, CHUNK_ROWS))
    return inserts, updates, deletes


def _count_updates(tables: TableStorage, pair: TypePair, rows: pa.Table) -> int:
    assert pair.before is not None
    assert pair.after is not None
    undecided = rows
    for column in sorted((one for one in pair.compared if not one.is_computed), key=_cost):
        if undecided.num_rows == 0:
            break
        right = _values(tables, pair.after, column.after, undecided[AFTER].combine_chunks(), column)
        if column.before is None:
            left = filled(column, right)
        else:
            left = _values(tables, pair.before, column.before, undecided[BEFORE].combine_chunks(), column)
        undecided = undecided.filter(pa.array(~differs(left, right)))
    return int(rows.num_rows - undecided.num_rows)


def _cost(column: ComparedColumn) -> int:
    """A sort key for columns. Cheap ones are compared first: fixed width, then texts, lists and vectors, and blobs."""
    type_ = column.after_type
    if type_ is None:
        return 1
    if column.is_blob:
        return 3
    return 2 if type_.list or type_.is_vector else 1 if type_.scalar.value == "String" else 0


def _values(tables: TableStorage, state: TypeState, name: str, row_ids: pa.Array, column: ComparedColumn) -> pa.Array:
    """The values of a column in the order of the row ids; for a blob, a hash of its content.

    Raises:
        CorruptionError: the table does not have one of the rows.
    """
    view = tables.at(state.pin.ref)
    if column.is_blob:
        rows = pa.table({ROW_ID: row_ids})
        return blob_hashes(tables, state, name, rows)
    if scans(len(row_ids), state.pin.row_count):
        found = pa.Table.from_batches(list(view.rows_of(row_ids, columns=[name, ROW_ID])))
        places = np.argsort(found[ROW_ID].to_numpy())
        found = found.take(pa.array(places))
        order = np.searchsorted(found[ROW_ID].to_numpy(), row_ids.to_numpy())
        values = found[name].take(pa.array(np.minimum(order, max(found.num_rows - 1, 0)))).combine_chunks()
    else:
        found = view.take_rows(row_ids, columns=[name, ROW_ID])
        values = found[name].combine_chunks()
    if found.num_rows != len(row_ids):
        raise CorruptionError(
            f"the rows of {state.key} do not match the records of their changes", hint="check the graph with 'verify'"
        )
    return values
