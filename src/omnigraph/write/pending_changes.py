"""What the statements of a query have done to a type so far, none of it written yet."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.write.rules.changes import column

_NONE = pa.array([], pa.utf8())


class Pending:
    """The pending rows and removals of one type. Of an id, only the latest row counts.

    Args:
        schema: the columns of its rows.

    Attributes:
        gone: ids that were removed.
        known: whether some row is certain to replace a stored one.
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
        """The ids of rows of which nothing says yet whether they are stored."""
        return without(self.ids, self._fresh)

    @property
    def strict(self) -> bool:
        """Whether some rows must not be stored yet."""
        return len(self._strict) > 0

    def put(self, rows: pa.Table, *, fresh: bool = False) -> None:
        """Take in rows, later ones after earlier ones.

        Args:
            rows: the rows; ids may repeat, and then the last row counts.
            fresh: whether their ids are certain not to be stored.
        """
        if rows.num_rows:
            self._parts.append(rows)
        if fresh:
            self._fresh = pa.concat_arrays([self._fresh, column(rows, "id")])

    def create(self, ids: pa.Array) -> None:
        """Note ids that must be new, before their rows are put."""
        counts = pc.value_counts(ids)
        twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        earlier = ids.filter(pc.is_in(ids, value_set=self.ids))
        self._taken = pa.concat_arrays([self._taken, twice, earlier])
        self._strict = pa.concat_arrays([self._strict, ids])

    def conflicts(self, stored: pa.Array) -> pa.Array:
        """Ids that should have been new, and are stored or were written by an earlier statement."""
        return pa.concat_arrays([self._taken, self._strict.filter(pc.is_in(self._strict, value_set=stored))])

    def remove(self, ids: pa.Array) -> int:
        """Take away stored entities. Returns how many were there until now."""
        new = without(ids.unique(), self.gone)
        self.gone = pa.concat_arrays([self.gone, new])
        return len(new)


def latest(rows: pa.Table) -> pa.Table:
    """The last row of each id, in the order of those rows."""
    ids = column(rows, "id").dictionary_encode()
    if len(ids.dictionary) == rows.num_rows:
        return rows.combine_chunks()
    last = np.zeros(len(ids.dictionary), np.int64)
    last[ids.indices.to_numpy()] = np.arange(rows.num_rows)  # of several, the last assignment stays
    return rows.take(pa.array(np.sort(last)))


def without(ids: pa.Array, others: pa.Array) -> pa.Array:
    """The ids that are not among others."""
    return ids.filter(pc.invert(pc.is_in(ids, value_set=others)))
