"""Pending changes of one type: the changes of a query's statements that are not yet committed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.write.rules.changes import column

_NONE = pa.array([], pa.utf8())


class Pending:
    """The pending rows and deletions of one type. If an id is written several times, the last row counts.

    Args:
        schema: the columns of the rows.

    Attributes:
        deleted: ids that were deleted.
        replaces_stored: whether at least one row is known to replace a stored row.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.deleted = _NONE
        self.replaces_stored = False
        self._fresh = _NONE
        self._new_ids = _NONE
        self._taken = _NONE
        self._schema = schema
        self._parts: list[pa.Table] = []
        self._is_merged = True

    @property
    def rows(self) -> pa.Table:
        """The latest row of each id."""
        if not self._parts:
            return self._schema.empty_table()
        if not self._is_merged:
            whole = pa.concat_tables(self._parts) if len(self._parts) > 1 else self._parts[0]
            self._parts, self._is_merged = [latest(whole)], True
        return self._parts[0]

    @property
    def ids(self) -> pa.Array:
        return column(self.rows, "id")

    @property
    def maybe_stored(self) -> pa.Array:
        """The ids of pending rows for which a stored row may exist."""
        return without(self.ids, self._fresh)

    @property
    def must_be_new(self) -> bool:
        """Whether there are ids that must be new."""
        return len(self._new_ids) > 0

    def put(self, rows: pa.Table, *, fresh: bool = False) -> None:
        """Add rows. They replace earlier rows with the same ids.

        Args:
            rows: the rows. If several have the same id, the last one counts.
            fresh: whether the ids are certainly new, so that no stored row has them.
        """
        if rows.num_rows:
            self._parts.append(rows)
            self._is_merged = False
        if fresh:
            self._fresh = pa.concat_arrays([self._fresh, column(rows, "id")])

    def create(self, ids: pa.Array) -> None:
        """Record ids that must be new. Call it before `put`."""
        counts = pc.value_counts(ids)
        repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        earlier = ids.filter(pc.is_in(ids, value_set=self.ids))
        self._taken = pa.concat_arrays([self._taken, repeated, earlier])
        self._new_ids = pa.concat_arrays([self._new_ids, ids])

    def conflicts(self, stored: pa.Array) -> pa.Array:
        """The ids that must be new, but are in `stored` or were written by an earlier statement."""
        if not self.must_be_new:
            return self._taken
        return pa.concat_arrays([self._taken, self._new_ids.filter(pc.is_in(self._new_ids, value_set=stored))])

    def remove(self, ids: pa.Array) -> int:
        """Delete stored entities. Returns how many of them were not deleted before."""
        new = without(ids.unique(), self.deleted)
        self.deleted = pa.concat_arrays([self.deleted, new])
        return len(new)


def latest(rows: pa.Table) -> pa.Table:
    """The last row of each id, in row order."""
    if rows.num_rows < 2:
        return rows
    ids = column(rows, "id").dictionary_encode()
    if len(ids.dictionary) == rows.num_rows:
        return rows.combine_chunks()
    last = np.zeros(len(ids.dictionary), np.int64)
    last[ids.indices.to_numpy()] = np.arange(rows.num_rows)  # numpy keeps the last value for a repeated index
    return rows.take(pa.array(np.sort(last)))


def without(ids: pa.Array, others: pa.Array) -> pa.Array:
    """The ids that are not in `others`."""
    if len(ids) == 0 or len(others) == 0:
        return ids
    return ids.filter(pc.invert(pc.is_in(ids, value_set=others)))
