"""From ids of nodes to their numbers, for whole columns of edge ends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.read.space import NOTHING, Mask, Numbers, Space

_ROOM = 4
"""Whole numbers that are ids are looked up in an array while it has at most so many places for each node."""

Find = Callable[[pa.Array], Numbers]


def finder(nodes: Space) -> Find:
    """What finds the numbers of nodes by id, for many ids at once. `NOTHING` for those that do not exist."""
    ids = nodes.column("id")
    whole = _whole_numbers(ids)
    return _by_text(ids) if whole is None else _by_number(ids, *whole)


def _by_text(ids: pa.Array) -> Find:
    def find(wanted: pa.Array) -> Numbers:
        places = pc.index_in(wanted, value_set=ids).fill_null(NOTHING)
        found: Numbers = places.to_numpy(zero_copy_only=False).astype(np.int64)
        return found

    return find


def _whole_numbers(ids: pa.Array) -> tuple[Numbers, Mask] | None:
    """Ids that are all whole numbers, written as such, and which of them there are; None when they are not.

    Ids of types with a whole number for a key are. To find those as numbers is many times quicker than as texts.
    """
    there = ids.is_valid()
    example = ids[pc.index(there, True).as_py()].as_py() if len(ids) > ids.null_count else ""
    if not example.lstrip("-").isdecimal():
        return None
    try:
        values = ids.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    if not values.cast(pa.utf8()).equals(ids):
        return None
    numbers: Numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    return numbers, there.to_numpy(zero_copy_only=False)


def _by_number(ids: pa.Array, values: Numbers, there: Mask) -> Find:
    lengths = pc.binary_length(ids).fill_null(0).to_numpy(zero_copy_only=False)
    numbers = np.flatnonzero(there)
    values = values[numbers]
    low, high = int(values.min()), int(values.max())
    by_text = _by_text(ids)
    if high - low < _ROOM * len(values) + 1024:
        table = np.full(high - low + 1, NOTHING, np.int64)
        table[values - low] = numbers
    else:
        table = None
        order = np.argsort(values)
        values, numbers = values[order], numbers[order]

    def find(wanted: pa.Array) -> Numbers:
        try:
            asked = wanted.cast(pa.int64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            return by_text(wanted)
        if table is not None:
            inside = (asked >= low) & (asked <= high)
            found = table.take(np.where(inside, asked - low, 0))
            found[~inside] = NOTHING
        else:
            at = np.minimum(np.searchsorted(values, asked), len(values) - 1)
            found = np.where(values.take(at) == asked, numbers.take(at), NOTHING)
        # The same number may be written in another way, which is another id.
        found[lengths.take(found, mode="wrap") != pc.binary_length(wanted).to_numpy(zero_copy_only=False)] = NOTHING
        return found

    return find
