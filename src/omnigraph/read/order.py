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
    codes = ranks(values)
    if key.descending:
        codes = -codes
    missing: Mask = values.is_null().to_numpy(zero_copy_only=False)
    if missing.any():
        codes[missing] = np.iinfo(np.int64).min if key.nulls_first else np.iinfo(np.int64).max
    return codes


def ranks(values: pa.Array) -> Numbers:
    """Numbers that sort as values do and are equal where they are; null is the lowest. Lists go item by item."""
    if pa.types.is_nested(values.type):
        return list_codes(values, ranks)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    elif pa.types.is_floating(values.type):
        # Both zeros are equal.
        values = pc.add(values, pa.scalar(0, values.type))
    found = pc.rank(values, sort_keys="ascending", tiebreaker="dense")
    codes: Numbers = found.to_numpy(zero_copy_only=False).astype(np.int64)
    if values.null_count:
        codes[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return codes


def list_codes(values: pa.Array, item_codes: Callable[[pa.Array], Numbers]) -> Numbers:
    """Numbers that are equal where lists are, and sort as lists do when the numbers of items sort as items do.

    Args:
        values: lists or vectors.
        item_codes: gives numbers that are not negative.
    """
    if pa.types.is_fixed_size_list(values.type):
        values = values.cast(pa.list_(values.type.value_type))
    lengths = pc.list_value_length(values).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    items = item_codes(pc.list_flatten(values)) + 1
    size = int(items.max(initial=0)) + 1
    starts = np.cumsum(np.maximum(lengths, 0)) - np.maximum(lengths, 0)
    codes: Numbers = (lengths >= 0).astype(np.int64)
    for place in range(int(lengths.max(initial=0))):
        has = lengths > place
        codes = codes * size
        codes[has] += items[starts[has] + place]
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return codes
