"""Row keys: the numbers of a row of a frame, packed into one integer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.read.columns.numbers import Numbers

MIN_ROWS_PER_KEY = 2.0
"""Duplicates are merged by sorting if there are at least this many rows per different row, by estimate."""

_SAMPLE_ROWS = 2_048
"""Number of rows in a sample."""


def has_duplicates(keys: Numbers) -> bool:
    """Whether there are several rows per key, estimated from the number of equal keys in a sample."""
    some = np.sort(keys[:: -(-len(keys) // _SAMPLE_ROWS)])
    equal = int(np.count_nonzero(some[1:] == some[:-1]))
    # If n keys are drawn from k different keys, about n² / 2k pairs of them are equal.
    return 2 * equal * len(keys) >= MIN_ROWS_PER_KEY * len(some) ** 2


def decoded(keys: Numbers, parts: Sequence[tuple[Numbers, int, int]]) -> list[Numbers]:
    """The numbers that keys were made of: for each column its lowest number, and the size of its range."""
    found: list[Numbers] = []
    for place, (_, low, values) in enumerate(reversed(parts)):
        if place == len(parts) - 1:
            found.append(keys + low)
        else:
            above = keys // values
            found.append(keys - above * values + low)
            keys = above
    return found[::-1]
