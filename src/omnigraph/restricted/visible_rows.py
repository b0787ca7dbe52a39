"""The visible rows of a table version, found by evaluating the condition of the actor on its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import AccessDeniedError, OmnigraphError
from omnigraph.evaluate import holds, table_rows
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.query.expression import Expression
from omnigraph.restricted.refs import RestrictedRef, Visible
from omnigraph.storage.row_id_set import RowIdSet

ID, ROW_ID = "id", "_rowid"
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


class VisibleRows:
    """The row ids of visible rows.

    Args:
        row_ids: the row ids, in table order.
    """

    def __init__(self, row_ids: pa.Array) -> None:
        self.row_ids = row_ids
        self._set = RowIdSet(row_ids)

    @property
    def nbytes(self) -> int:
        return int(self.row_ids.nbytes) * 2 + (int(pc.max(self.row_ids).as_py() or 0) if len(self.row_ids) else 0)

    def __len__(self) -> int:
        return len(self.row_ids)

    def among(self, row_ids: pa.Array) -> Mask:
        """Mask of the row ids that are visible."""
        return self._set.among(row_ids)


FindIds = Callable[[RestrictedRef, pa.ChunkedArray], pa.ChunkedArray]
"""Returns those of some ids that are visible in a table version; it may return more visible ids."""


def needed_columns(visible: Visible) -> list[str]:
    """The columns that decide whether a row is visible, and the row id."""
    columns = [ID, ROW_ID, *(column for column, _ in visible.ends)]
    if visible.condition is not None:
        columns += [name for _, name in Expression(visible.condition).columns]
    return list(dict.fromkeys(columns))


def mask_of(visible: Visible, rows: pa.Table, find_ids: FindIds) -> Mask:
    """Mask of visible rows. The rows have the columns that `needed_columns` returns.

    Raises:
        AccessDeniedError: the condition cannot be computed for a row.
    """
    mask = _holds(visible, rows)
    for column, ref in visible.ends:
        values = rows[column]
        found = find_ids(ref, values)
        mask &= pc.is_in(values, value_set=found).to_numpy()
    return mask


def visible_rows(visible: Visible, batches: Iterable[pa.RecordBatch], find_ids: FindIds) -> VisibleRows:
    """The visible rows of a whole table version.

    Args:
        visible: the condition.
        batches: all rows, with the columns that `needed_columns` returns.
        find_ids: finds the visible nodes at the ends of edges.

    Raises:
        AccessDeniedError: the condition cannot be computed for a row.
    """
    kept: list[pa.RecordBatch] = []
    columns = [ROW_ID, *(column for column, _ in visible.ends)]
    for batch in batches:
        checkpoint()
        rows = pa.Table.from_batches([batch])
        chosen = rows.filter(pa.array(_holds(visible, rows))).select(columns)
        kept += chosen.to_batches()
    if not kept:
        return VisibleRows(pa.array([], pa.uint64()))
    rows = pa.Table.from_batches(kept)
    for column, ref in visible.ends:
        checkpoint()
        found = find_ids(ref, rows[column])
        rows = rows.filter(pc.is_in(rows[column], value_set=found))
    return VisibleRows(rows[ROW_ID].combine_chunks().cast(pa.uint64()))


def _holds(visible: Visible, rows: pa.Table) -> Mask:
    if visible.condition is None or rows.num_rows == 0:
        return np.ones(rows.num_rows, bool)
    try:
        found = holds(visible.condition, table_rows(rows, visible.type_name), visible.request)
    except OmnigraphError:
        # The message may contain a value of a hidden row.
        raise AccessDeniedError(
            None, "read", hint="the row rule of a type cannot be computed for all rows; ask the operator"
        ) from None
    mask: Mask = found.to_numpy(zero_copy_only=False).copy()
    return mask
