"""Order: rows sorted by several keys, and the first few of them without sorting everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.read.space import Mask, Numbers


@dataclass(frozen=True, slots=True)
class Key:
    """A sort key. Its values are computed when an earlier key does not decide."""

    values: Callable[[], pa.Array]
    descending: bool = False
    nulls_first: bool = True


def in_order(keys: Sequence[Key], count: int, offset: int, limit: int | None) -> Numbers:
    """The rows in order, without those that are skipped or beyond the limit.

    Rows that some keys leave equal are told apart by the next ones, for as long as it matters: what certainly lies
    behind the limit is not sorted.
    """
    end = count if limit is None else min(offset + limit, count)
    if end <= offset:
        return np.array([], np.int64)
    rows = np.arange(count)
    group = np.zeros(count, np.int64)
    for key in keys:
        codes = _codes(key.values(), key)[rows]
        order = np.lexsort((codes, group))
        rows, group, codes = rows[order], group[order], codes[order]
        changes = (np.diff(group) != 0) | (np.diff(codes) != 0)
        group = np.concatenate([[0], np.cumsum(changes)]) if len(rows) else group
        if end < len(rows):
            # Rows that are equal to the last that is kept may still come before it.
            inside = int(np.searchsorted(group, group[end - 1], "right"))
            rows, group = rows[:inside], group[:inside]
        if len(rows) == 0 or group[-1] + 1 == len(rows):
            break
    return rows[offset:end]


def _codes(values: pa.Array, key: Key) -> Numbers:
    """Numbers that sort as the values of a key do."""
    ranks = pc.rank(_sortable(values), sort_keys="ascending", tiebreaker="dense")
    codes: Numbers = ranks.to_numpy(zero_copy_only=False).astype(np.int64)
    if key.descending:
        codes = -codes
    missing: Mask = values.is_null().to_numpy(zero_copy_only=False)
    if missing.any():
        codes[missing] = np.iinfo(np.int64).min if key.nulls_first else np.iinfo(np.int64).max
    return codes


def _sortable(values: pa.Array) -> pa.Array:
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if pa.types.is_floating(values.type):
        # Both zeros are equal.
        return pc.add(values, pa.scalar(0, values.type))
    return values
