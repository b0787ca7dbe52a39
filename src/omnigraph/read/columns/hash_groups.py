"""Group equal integers by hashing, in a few passes over arrays.

In each pass, the slot of a hash belongs to one of the keys with this hash, and all rows with this key form a group. The
other keys are left for the next pass, which uses another hash.
"""

# See docs/decisions/0272-many-duplicates-are-merged-by-hashing.md

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from omnigraph.read.budget.chunks import chunks
from omnigraph.read.columns.numbers import NOTHING, Numbers
from omnigraph.read.columns.stoppable import gather, join_arrays, scatter

SLOTS_PER_KEY = 2
"""Minimum number of slots per expected distinct key."""

MAX_PASSES = 4
"""Keys that are left after this number of passes are sorted."""

CHUNK_KEYS = 1 << 15
"""Number of keys per chunk. The arrays of a chunk fit the processor cache."""

SAMPLE_SHIFT = np.uint64(58)
"""The duplicates of one in 64 distinct keys are counted to estimate the number of distinct keys."""

_MULTIPLIERS = tuple(
    map(np.uint64, (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F))
)
"""Odd factors. The high bits of a key times a factor are its hash; each pass and the sample use another factor."""


def distinct_share(keys: Numbers) -> float:
    """Estimated number of distinct keys, as a fraction of the number of keys.

    Keys are sampled by their hash, so that either all duplicates of a key are in the sample or none.
    """
    parts = [keys[first:last] for first, last in chunks(len(keys), CHUNK_KEYS)]
    sample = np.concatenate([part[_hashes(part, _MULTIPLIERS[-1], SAMPLE_SHIFT) == 0] for part in parts])
    return len(np.unique(sample)) / len(sample) if len(sample) else 1.0


def hash_groups(keys: Numbers, expected: float) -> tuple[Numbers, Numbers]:
    """Group rows with equal keys.

    Args:
        keys: the key of each row.
        expected: expected number of distinct keys.

    Returns:
        One row of each group, and the group of each row.
    """
    group = np.empty(len(keys), np.int64)
    members: list[Numbers] = []
    rows: Numbers | None = None
    left, count = keys, 0
    bits = max(int(SLOTS_PER_KEY * expected), 1).bit_length() + 1
    for multiplier in _MULTIPLIERS[:MAX_PASSES]:
        owner, first, other = _one_pass(left, multiplier, bits)
        number = np.empty(len(left), np.int64)
        scatter(number, first, np.arange(count, count + len(first)))
        count += len(first)
        members.append(first if rows is None else gather(rows, first))
        if rows is None:
            group = gather(number, owner)
        else:
            scatter(group, rows, gather(number, owner))
        if len(other) == 0:
            return join_arrays(members), group
        rows = other if rows is None else gather(rows, other)
        left = gather(left, other)
    assert rows is not None
    _, first, found = np.unique(left, return_index=True, return_inverse=True)
    scatter(group, rows, found + count)
    return join_arrays([*members, gather(rows, first)]), group


def _one_pass(keys: Numbers, multiplier: np.uint64, bits: int) -> tuple[Numbers, Numbers, Numbers]:
    """Write the row of each key to the slot of its hash, unless the slot is taken.

    Returns:
        The row that has the slot of each key, the rows that have a slot, and the rows whose slot has another key.
    """
    slots_taken_by = np.full(1 << bits, NOTHING, np.int64)
    owner = np.empty(len(keys), np.int64)
    owners: list[Numbers] = []
    others: list[Numbers] = []
    for first, last in chunks(len(keys), CHUNK_KEYS):
        part = keys[first:last]
        slots = _hashes(part, multiplier, np.uint64(64 - bits)).view(np.int64)
        free = np.flatnonzero(slots_taken_by.take(slots) == NOTHING)
        slots_taken_by[slots.take(free)] = free + first
        owners.append(free[slots_taken_by.take(slots.take(free)) == free + first] + first)
        mine = owner[first:last]
        slots_taken_by.take(slots, out=mine, mode="clip")
        others.append(np.flatnonzero(keys.take(mine) != part) + first)
    nothing = np.array([], np.int64)
    return owner, join_arrays([nothing, *owners]), join_arrays([nothing, *others])


def _hashes(keys: Numbers, multiplier: np.uint64, shift: np.uint64) -> npt.NDArray[np.uint64]:
    found = keys.view(np.uint64) * multiplier
    found ^= found >> np.uint64(29)
    found *= multiplier
    found >>= shift
    return found
