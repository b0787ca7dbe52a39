"""Scores, exact and approximate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from omnigraph.read.columns.numbers import Mask
from omnigraph.read.columns.sorting import nth_least

Scores = npt.NDArray[np.float64]
"""NaN means no score."""

Floats = npt.NDArray[np.floating]


def rounded(values: Scores) -> Scores:
    """Scores rounded to single precision, unless they overflow. Differences from the order of summation disappear."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32).astype(np.float64)
    return np.where(np.isinf(narrow), values, narrow)


def above(values: Floats, bound: float) -> np.floating:
    """The smallest number of an array's precision that is not below a bound.

    Comparing in the array's own precision is faster and gives the same result.
    """
    near = values.dtype.type(bound)
    return near if float(near) >= bound else np.nextafter(near, values.dtype.type(np.inf))


def below(values: Floats, bound: float) -> np.floating:
    """The largest number of an array's precision that is not above a bound."""
    return -above(values, -bound)


@dataclass(frozen=True, slots=True)
class ApproximateScores:
    """Approximate scores, smaller is better.

    Attributes:
        values: the scores; NaN without a score.
        error: error bound. If two scores differ by more than twice this, their order is certain.
    """

    values: Floats
    error: float

    def front(self, count: int) -> float:
        """Score beyond which entities are certainly not among the first `count`; infinity if all are among them."""
        if count >= len(self.values):
            return np.inf
        last = float(nth_least(self.values, count)) if count else -np.inf
        return np.inf if np.isnan(last) else last + 2 * self.error

    def candidates(self, count: int) -> Mask:
        """Mask of entities that can be among the first `count`."""
        if count == 0:
            return np.zeros(len(self.values), bool)
        near: Mask = self.values <= below(self.values, self.front(count))
        return near
