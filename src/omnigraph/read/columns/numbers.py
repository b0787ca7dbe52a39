"""Arrays of entity numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Integers = npt.NDArray[np.signedinteger[Any]]
"""Entity numbers in arrays that are cached: 32-bit integers if all numbers fit, else 64-bit integers."""
Mask = npt.NDArray[np.bool_]

NOTHING = -1
"""Stands for a missing entity, where an entity number is expected: the null of a variable of an `optional` block."""

_INT32_BOUND = 2**31


SPARSE_RATIO = 64
"""If there are fewer than bound / `SPARSE_RATIO` numbers, distinct numbers are found by sorting, else with a bitmap."""


def distinct_numbers(numbers: Numbers, size: int) -> Numbers:
    """The distinct values of an array of numbers below a bound, ascending.

    >>> distinct_numbers(np.array([7, 2, 7]), 9).tolist()
    [2, 7]
    """
    if len(numbers) * SPARSE_RATIO < size:
        return np.unique(numbers)
    marked = np.zeros(size, bool)
    marked[numbers] = True
    return np.flatnonzero(marked)


def narrow(numbers: Integers, size: int) -> Integers:
    """Convert numbers below a bound to 32-bit integers if the bound allows it, else to 64-bit integers."""
    return numbers.astype(np.int32 if size < _INT32_BOUND else np.int64, copy=False)
