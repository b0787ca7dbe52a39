"""Arrays of entity numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Integers = npt.NDArray[np.signedinteger[Any]]
"""Numbers that are stored long-term, as 32-bit integers if they fit."""
Mask = npt.NDArray[np.bool_]

NOTHING = -1
"""The number of a missing entity: the null of an `optional` variable."""

_INT32_BOUND = 2**31


SPARSE_RATIO = 64
"""With fewer numbers than 1 / this of the possible ones, they are sorted. Otherwise a bitmap is used."""


def distinct_numbers(numbers: Numbers, size: int) -> Numbers:
    """Distinct numbers below a bound, ascending.

    >>> distinct_numbers(np.array([7, 2, 7]), 9).tolist()
    [2, 7]
    """
    if len(numbers) * SPARSE_RATIO < size:
        return np.unique(numbers)
    marked = np.zeros(size, bool)
    marked[numbers] = True
    return np.flatnonzero(marked)


def narrow(numbers: Integers, size: int) -> Integers:
    """Numbers below a bound, as 32-bit integers if they fit."""
    return numbers.astype(np.int32 if size < _INT32_BOUND else np.int64, copy=False)
