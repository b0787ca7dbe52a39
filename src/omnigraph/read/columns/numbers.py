"""Arrays of entity numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
Integers = npt.NDArray[np.signedinteger[Any]]
"""Integers in cached arrays: 32-bit integers if all numbers fit, else 64-bit integers."""
Mask = npt.NDArray[np.bool_]

NOTHING = -1
"""In an array of entity numbers, stands for null: for example for a variable of an `optional` block without match."""

_INT32_BOUND = 2**31


SPARSE_RATIO = 64
"""With fewer than `size` / `SPARSE_RATIO` numbers, distinct numbers are found by sorting, else with a bitmap."""


def distinct_numbers(numbers: Numbers, size: int) -> Numbers:
    """The distinct values of an array, ascending. All values must be below `size`.

    >>> distinct_numbers(np.array([7, 2, 7]), 9).tolist()
    [2, 7]
    """
    if len(numbers) * SPARSE_RATIO < size:
        return np.unique(numbers)
    marked = np.zeros(size, bool)
    marked[numbers] = True
    return np.flatnonzero(marked)


SEARCH_RATIO = 16
"""With fewer than `size` / `SEARCH_RATIO` numbers, their positions are found by binary search, else with a table."""


def positions(known: Numbers, wanted: Numbers, size: int) -> Numbers:
    """Position of each wanted number among the known numbers; `NOTHING` for others. All numbers must be below `size`.

    Args:
        known: the known numbers, ascending.
        wanted: the numbers to find.
        size: upper bound (exclusive) of all numbers.

    >>> positions(np.array([2, 7]), np.array([7, 3, 2]), 9).tolist()
    [1, -1, 0]
    """
    if len(wanted) * SEARCH_RATIO < size:
        found = np.searchsorted(known, wanted)
        if len(known):
            found[known.take(found, mode="clip") != wanted] = NOTHING
        else:
            found[:] = NOTHING
        return found
    table: Numbers = np.full(size, NOTHING, np.int64)
    table[known] = np.arange(len(known))
    return table.take(wanted)


def narrow(numbers: Integers, size: int) -> Integers:
    """Convert numbers to 32-bit integers if `size` allows it, else to 64-bit. All numbers must be below `size`."""
    return numbers.astype(np.int32 if size < _INT32_BOUND else np.int64, copy=False)


def as_row_ids(numbers: Numbers) -> pa.Array:
    """Row ids as an Arrow array, without copying.

    `pa.array` would import `numpy.ma` at its first call with a numpy array, which takes longer than a lookup.

    >>> as_row_ids(np.array([7, 2])).to_pylist()
    [7, 2]
    """
    values = np.ascontiguousarray(numbers, np.int64)
    return pa.Array.from_buffers(pa.uint64(), len(values), [None, pa.py_buffer(values)])
