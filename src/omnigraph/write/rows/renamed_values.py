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


def _renamed(values: pa.Array, renames: Sequence[tuple[str, str]]) -> pa.Array:
    old = pa.array([before for before, _ in renames], pa.utf8())
    new = pa.array([after for _, after in renames], pa.utf8())
    position = pc.index_in(values, value_set=old)
    return pc.if_else(position.is_valid(), new.take(position), values)
