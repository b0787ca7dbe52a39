"""Pending changes of one type: the effect of a query's statements before the commit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.write.rules.changes import column

_NONE = pa.array([], pa.utf8())


class Pending:
    """The pending rows and deletions of one type. The latest row of an id wins.

    Args:
        schema: the columns of the rows.

    Attributes:
        gone: ids that were deleted.
        known: whether some row certainly replaces a stored row.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.gone = _NONE
        self.known = False
        self._fresh = _NONE
        self._strict = _NONE
        self._taken = _NONE
        self._parts = [schema.empty_table()]

    @property
    def rows(self) -> pa.Table:
        """The latest row of each id."""
        if len(self._parts) > 1:
            self._parts = [latest(pa.concat_tables(self._parts))]
        return self._parts[0]

    @property
    def ids(self) -> pa.Array:
        return column(self.rows, "id")

    @property
    def unsure(self) -> pa.Array:
        """The ids of rows that may or may not be stored."""
        return without(self.ids, self._fresh)

    @property
    def strict(self) -> bool:
        """Whether some rows must be new."""
        return len(self._strict) > 0

    def put(self, rows: pa.Table, *, fresh: bool = False) -> None:
        """Add rows after the earlier ones.

        Args:
            rows: the rows; if an id repeats, the last row wins.
            fresh: whether their ids are certainly not stored.
        """
        if rows.num_rows:
            self._parts.append(rows)
        if fresh:
            self._fresh = pa.concat_arrays([self._fresh, column(rows, "id")])

    def create(self, ids: pa.Array) -> None:
        """Record ids that must be new. Call it before `put`."""
        counts = pc.value_counts(ids)
        twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        earlier = ids.filter(pc.is_in(ids, value_set=self.ids))
        self._taken = pa.concat_arrays([self._taken, twice, earlier])
        self._strict = pa.concat_arrays([self._strict, ids])

    def conflicts(self, stored: pa.Array) -> pa.Array:
        """Ids that must be new, but are stored or were written by an earlier statement."""
        return pa.concat_arrays([self._taken, self._strict.filter(pc.is_in(self._strict, value_set=stored))])

    def remove(self, ids: pa.Array) -> int:
        """Delete stored entities. Returns how many were not deleted before."""
        new = without(ids.unique(), self.gone)
        self.gone = pa.concat_arrays([self.gone, new])
        return len(new)


def latest(rows: pa.Table) -> pa.Table:
    """The last row of each id, in row order."""
    ids = column(rows, "id").dictionary_encode()
    if len(ids.dictionary) == rows.num_rows:
        return rows.combine_chunks()
    last = np.zeros(len(ids.dictionary), np.int64)
    last[ids.indices.to_numpy()] = np.arange(rows.num_rows)  # the last of several assignments wins
    return rows.take(pa.array(np.sort(last)))


def without(ids: pa.Array, others: pa.Array) -> pa.Array:
    """The ids that are not in `others`."""
    return ids.filter(pc.invert(pc.is_in(ids, value_set=others)))
