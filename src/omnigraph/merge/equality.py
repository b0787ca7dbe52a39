"""Equality of rows for a merge: two rows are equal if all their values and value types are equal."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


def identical(left: pa.Array, right: pa.Array) -> Mask:
    """Mask of the equal values of two columns.

    Null equals only null, not an empty text or list. Numbers are equal if their bits are equal. All NaNs are equal.
    """
    left_valid, right_valid = _valid(left), _valid(right)
    same = ~(left_valid | right_valid)
    both = left_valid & right_valid
    if both.all():
        return _equal(left, right)
    rows = pa.array(np.flatnonzero(both))
    same[both] = _equal(left.take(rows), right.take(rows))
    return same


def _valid(column: pa.Array) -> Mask:
    if column.null_count == 0:
        return np.ones(len(column), bool)
    found: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _equal(left: pa.Array, right: pa.Array) -> Mask:
    """Mask of the equal values of columns without nulls."""
    kind = left.type
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return _equal_lists(left, right)
    if pa.types.is_floating(kind):
        bits = pa.int32() if pa.types.is_float32(kind) else pa.int64()
        same: Mask = pc.equal(left.view(bits), right.view(bits)).to_numpy(zero_copy_only=False)
        both_nan: Mask = pc.and_(pc.is_nan(left), pc.is_nan(right)).to_numpy(zero_copy_only=False)
        return same | both_nan
    found: Mask = pc.equal(left, right).to_numpy(zero_copy_only=False)
    return found


def _equal_lists(left: pa.Array, right: pa.Array) -> Mask:
    lengths = pc.list_value_length(left).to_numpy(zero_copy_only=False)
    same: Mask = np.asarray(lengths == pc.list_value_length(right).to_numpy(zero_copy_only=False))
    if not same.all():
        rows = pa.array(np.flatnonzero(same))
        left, right, lengths = left.take(rows), right.take(rows), lengths[same]
    items = identical(left.flatten(), right.flatten())
    owners = np.repeat(np.arange(len(lengths)), lengths)
    wrong = np.zeros(len(lengths), bool)
    wrong[owners[~items]] = True
    same[same] = ~wrong
    return same
