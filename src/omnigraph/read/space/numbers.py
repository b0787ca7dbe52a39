"""Entities as numbers, and arrays of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Integers = npt.NDArray[np.signedinteger[Any]]
"""Numbers that are kept: half as wide where that is enough."""
Mask = npt.NDArray[np.bool_]

NOTHING = -1
"""The number of what is not there: what a variable of an `optional` block has where the block found nothing."""

_NARROW = 2**31


_SPREAD = 64
"""While there is less than one of so many numbers, they are sorted; else all that there could be are marked."""


def different(numbers: Numbers, size: int) -> Numbers:
    """Each of some numbers below a size once, ascending.

    >>> different(np.array([7, 2, 7]), 9).tolist()
    [2, 7]
    """
    if len(numbers) * _SPREAD < size:
        return np.unique(numbers)
    marked = np.zeros(size, bool)
    marked[numbers] = True
    return np.flatnonzero(marked)


def narrow(numbers: Integers, size: int) -> Integers:
    """Numbers below a size, half as wide where that is enough."""
    return numbers.astype(np.int32 if size < _NARROW else np.int64, copy=False)
