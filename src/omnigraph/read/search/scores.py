"""Scores: numbers that entities are ranked by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from omnigraph.read.sorting import nth_least
from omnigraph.read.space.space import Mask

Scores = npt.NDArray[np.float64]
"""NaN is no score."""

Floats = npt.NDArray[np.floating]


def rounded(values: Scores) -> Scores:
    """Scores in single precision, where that can hold them: what differs by how a machine adds up becomes equal."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32).astype(np.float64)
    return np.where(np.isinf(narrow), values, narrow)


def above(values: Floats, bound: float) -> np.floating:
    """The least number of the precision of some others that is not below a bound.

    Numbers are compared with others of their precision: that is quicker, and gives the same.
    """
    near = values.dtype.type(bound)
    return near if float(near) >= bound else np.nextafter(near, values.dtype.type(np.inf))


def below(values: Floats, bound: float) -> np.floating:
    """The largest number of the precision of some others that is not above a bound."""
    return -above(values, -bound)


@dataclass(frozen=True, slots=True)
class Nearly:
    """Numbers that put entities in order, the smallest first, but for a little.

    Attributes:
        values: the numbers; NaN for entities that have none.
        doubt: each may be off by so much. Of two entities whose numbers are more than twice that apart, the one with
            the smaller number certainly comes first.
    """

    values: Floats
    doubt: float

    def front(self, count: int) -> float:
        """Everybody with a larger number, or with none, comes after so many; infinity if there are not so many."""
        if count >= len(self.values):
            return np.inf
        last = float(nth_least(self.values, count)) if count else -np.inf
        return np.inf if np.isnan(last) else last + 2 * self.doubt

    def contenders(self, count: int) -> Mask:
        """Which entities may be among the first `count`: all others come after so many, or have no number."""
        if count == 0:
            return np.zeros(len(self.values), bool)
        near: Mask = self.values <= below(self.values, self.front(count))
        return near
