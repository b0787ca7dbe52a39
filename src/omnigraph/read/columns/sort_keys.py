"""Sort rows by several keys, and find the first rows without sorting all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.budget.chunks import chunks
from omnigraph.read.columns.numbers import Mask, Numbers
from omnigraph.read.columns.sorting import dense_ranks, groups_of, nth_least, order_of
from omnigraph.read.columns.stoppable import changes, gather, running_counts, scatter

_NUMBERS_PER_ROW = 6
"""Number of array elements per row that sorting needs in memory."""

SELECTION_RATIO = 4
"""If at most one in `SELECTION_RATIO` rows is kept, candidates for the first rows are selected before sorting."""

SMALL_SORT_ROWS = 256
"""Up to this number of rows is sorted by all keys at once, if the values of the later keys are at hand."""


@dataclass(frozen=True, slots=True)
class Key:
    """A sort key.

    Attributes:
        values: function that returns the values of the given rows; the argument None means all rows.
        descending: whether large values come first.
        nulls_first: whether nulls come first.
        is_cheap: whether the values are integers that are available at almost no cost.
        is_stored: whether the values are in memory and small, so that getting them cannot fail, and costs little.
    """

    values: Callable[[Numbers | None], pa.Array]
    descending: bool = False
    nulls_first: bool = True
    is_cheap: bool = False
    is_stored: bool = False


def in_order(keys: Sequence[Key], count: int, offset: int, limit: int | None) -> Numbers:
    """The row numbers in sort order, from the offset up to the limit.

    The values of a later key are computed only for rows that are equal in all earlier keys. Rows that are certainly
    beyond the limit are not sorted.
    """
    end = count if limit is None else min(offset + limit, count)
    if end <= offset:
        return np.array([], np.int64)
    rows: Numbers | None = None
    if count <= SMALL_SORT_ROWS and all(key.is_stored for key in keys[1:]):
        return _in_order_by_all(keys, None, None, np.zeros(count, bool))[offset:end] if keys else np.arange(offset, end)
    begins = np.zeros(count, bool)
    """Mask of the rows that are greater than the previous row in the keys that are sorted so far."""
    for number, key in enumerate(keys):
        checkpoint(len(begins), _NUMBERS_PER_ROW)
        tied = None if rows is None else _tied(begins)
        if tied is not None and len(tied) == 0:
            break
        asked = rows if rows is None or tied is None else gather(rows, tied)
        if all(other.is_cheap for other in keys[number:]) and (rows is not None or end * SELECTION_RATIO > count):
            return _in_order_by_all(keys[number:], rows, tied, begins)[offset:end]
        values = key.values(asked)
        group: Numbers | None = None
        if rows is not None:
            assert tied is not None
            group = gather(running_counts(begins), tied)
        else:
            # Rows that have the same key as the last kept row are kept, too: a later key may sort them before that row.
            chosen = foremost(values, key, end) if end * SELECTION_RATIO <= count else None
            rows = np.arange(count) if chosen is None else chosen
            values = values if chosen is None else values.take(pa.array(chosen))
            tied = np.arange(len(rows))
            begins = begins[: len(rows)]
            asked = rows
            checkpoint()
        assert asked is not None
        assert tied is not None
        codes = _codes(values, key)
        checkpoint()
        order = order_of(codes) if group is None else order_of(group, codes)
        scatter(rows, tied, gather(asked, order))
        differs = changes(gather(codes, order))
        if group is not None:
            differs &= ~changes(gather(group, order))
        differs[:1] = False
        checkpoint()
        begins[tied[differs]] = True
        behind = np.flatnonzero(begins[end:])
        if len(behind):
            rows, begins = rows[: end + int(behind[0])], begins[: end + int(behind[0])]
    return (np.arange(count) if rows is None else rows)[offset:end]


def _in_order_by_all(keys: Sequence[Key], rows: Numbers | None, tied: Numbers | None, begins: Mask) -> Numbers:
    """Sort all rows by all remaining keys at once."""
    checkpoint(len(begins), _NUMBERS_PER_ROW + len(keys))
    if rows is None or tied is None:
        return order_of(*(_codes(key.values(None), key) for key in keys))
    asked = gather(rows, tied)
    group = gather(running_counts(begins), tied)
    order = order_of(group, *(_codes(key.values(asked), key) for key in keys))
    scatter(rows, tied, gather(asked, order))
    return rows


def _tied(begins: Mask) -> Numbers:
    """Positions of the rows that are equal to the row before or after them."""
    equal = np.zeros(len(begins) + 1, bool)
    equal[1:-1] = ~begins[1:]
    return np.flatnonzero(equal[1:] | equal[:-1])


def foremost(values: pa.Array, key: Key, count: int) -> Numbers | None:
    """The first `count` rows by one key, and all rows equal to the last of them, in row order; None for all rows."""
    if pa.types.is_nested(values.type) or pa.types.is_boolean(values.type):
        return None
    missing: Mask = values.is_null().to_numpy(zero_copy_only=False)
    if key.nulls_first:
        if values.null_count >= count:
            return np.flatnonzero(missing)
        wanted = count - values.null_count
    else:
        if len(values) - values.null_count < count:
            return None
        wanted = count
    inside = _within(values.drop_null(), key, wanted)
    if inside is None:
        return None
    if values.null_count == 0:
        return np.flatnonzero(inside)
    found = missing.copy() if key.nulls_first else np.zeros(len(missing), bool)
    found[~missing] = inside
    return np.flatnonzero(found)


def _within(values: pa.Array, key: Key, count: int) -> Mask | None:
    """Mask of the first `count` values, and of all values equal to the last of them. `values` contain no nulls."""
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        if numbers.dtype.kind == "f" and np.isnan(numbers).any():
            return None
        last = nth_least(numbers, count, largest=key.descending)
        found: Mask = numbers >= last if key.descending else numbers <= last
        return found
    direction = "descending" if key.descending else "ascending"
    best = values.slice(0, 0)
    for first, last in chunks(len(values)):
        best = pa.concat_arrays([best, values.slice(first, last - first)])
        best = best.take(pc.select_k_unstable(best, count, sort_keys=[("", direction)]))
    bound = best[-1]
    parts = [values.slice(first, last - first) for first, last in chunks(len(values))]
    within = pc.greater_equal if key.descending else pc.less_equal
    kept: Mask = np.concatenate([within(part, bound).to_numpy(zero_copy_only=False) for part in parts])
    return kept


def _codes(values: pa.Array, key: Key) -> npt.NDArray[Any]:
    """An integer for each value, in the sort order of a key. Equal values have equal integers."""
    if values.null_count == 0 and pa.types.is_integer(values.type):
        numbers: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return ~numbers if key.descending else numbers
    codes = ranks(values)
    if key.descending:
        codes = -codes
    missing: Mask = values.is_null().to_numpy(zero_copy_only=False)
    if missing.any():
        codes[missing] = np.iinfo(np.int64).min if key.nulls_first else np.iinfo(np.int64).max
    return codes


def ranks(values: pa.Array) -> Numbers:
    """An integer for each value, in the order of the values. Equal values have equal integers; null has the smallest.

    Lists are compared item by item.
    """
    if pa.types.is_nested(values.type):
        return list_codes(values, ranks)
    if pa.types.is_floating(values.type):
        # 0.0 and -0.0 are equal.
        values = pc.add(values, pa.scalar(0, values.type))
    return dense_ranks(values)


def list_codes(values: pa.Array, item_codes: Callable[[pa.Array], Numbers]) -> Numbers:
    """An integer for each list. Equal lists have equal integers.

    The integers are in the order of the lists if the item codes are in the order of the items.

    Args:
        values: lists or vectors.
        item_codes: returns an integer (0 or more) for each item; equal items have equal integers.
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
        checkpoint()
        codes = groups_of(codes)[1]
    return codes
