"""New names for values of an enum column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def renamed_values(column: pa.Array, renames: Sequence[tuple[str, str]]) -> pa.Array:
    """Replace values of a column, or of the lists in it.

    Args:
        column: texts, or lists of texts.
        renames: the old and the new name of each renamed value.
    """
    if not pa.types.is_list(column.type):
        return _renamed(column, renames)
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    items = _renamed(pc.list_flatten(column), renames)
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=column.type, mask=column.is_null())


def count_renamed(columns: Sequence[tuple[pa.Array, Sequence[tuple[str, str]]]]) -> int:
    """The number of rows that have a renamed value in at least one column. The columns have the same rows.

    >>> states = pa.array(["seed", "grown", None])
    >>> moods = pa.array([[], ["odd", "sad"], ["odd"]])
    >>> count_renamed([(states, [("seed", "new")]), (moods, [("sad", "low")])])
    2
    """
    rows = [_rows_with(column, pa.array([old for old, _ in renames], pa.utf8())) for column, renames in columns]
    return len(np.unique(np.concatenate(rows))) if rows else 0


def _rows_with(column: pa.Array, values: pa.Array) -> np.ndarray:
    """The positions of the rows that have one of the values."""
    if not pa.types.is_list(column.type):
        return np.flatnonzero(pc.is_in(column, value_set=values).to_numpy(zero_copy_only=False))
    found = pc.is_in(pc.list_flatten(column), value_set=values)
    return np.asarray(pc.list_parent_indices(column).filter(found))


def _renamed(values: pa.Array, renames: Sequence[tuple[str, str]]) -> pa.Array:
    old = pa.array([before for before, _ in renames], pa.utf8())
    new = pa.array([after for _, after in renames], pa.utf8())
    position = pc.index_in(values, value_set=old)
    return pc.if_else(position.is_valid(), new.take(position), values)
