"""Scores, exact and approximate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from omnigraph.dataclass import dataclass
from omnigraph.read.columns.numbers import Mask, Numbers
from omnigraph.read.columns.sorting import nth_least

Scores = npt.NDArray[np.float64]
"""Scores of entities. NaN means that an entity has no score."""

Floats = npt.NDArray[np.floating]


def rounded(values: Scores) -> Scores:
    """Round scores to single precision, unless they overflow. So they do not depend on the order of summation."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32).astype(np.float64)
    overflows = np.isinf(narrow)
    return np.where(overflows, values, narrow) if overflows.any() else narrow


def above(values: Floats, bound: float) -> np.floating:
    """The smallest number that has the precision of an array and is not below a bound.

    Comparing the array with this number is faster than comparing it with the bound, and gives the same result.
    """
    near = values.dtype.type(bound)
    return near if float(near) >= bound else np.nextafter(near, values.dtype.type(np.inf))


def below(values: Floats, bound: float) -> np.floating:
    """The largest number that has the precision of an array and is not above a bound."""
    return -above(values, -bound)


@dataclass(frozen=True, slots=True)
class ApproximateScores:
    """Approximate scores. A smaller score is better.

    Attributes:
        values: the approximate scores; NaN for an entity without a score.
        error: maximum difference from the exact score. If two approximate scores differ by more than twice this
            number, their order is certain.
    """

    values: Floats
    error: float

    def front(self, count: int) -> float:
        """An upper bound: entities with a larger score are certainly not among the first `count`.

        The result is infinity if no entity can be excluded.
        """
        if count >= len(self.values):
            return np.inf
        last = float(nth_least(self.values, count)) if count else -np.inf
        return np.inf if np.isnan(last) else last + 2 * self.error

    def candidates(self, count: int) -> Mask:
        """Mask of the entities that can be among the first `count`."""
        if count == 0:
            return np.zeros(len(self.values), bool)
        near: Mask = self.values <= below(self.values, self.front(count))
        return near


@dataclass(frozen=True, slots=True)
class PartialScores:
    """Approximate scores of the best entities. A smaller score is better.

    Attributes:
        there: mask of the entities that have a score.
        known: the entities whose scores are known, ascending.
        values: approximate scores of the known entities.
        error: see `ApproximateScores`.
        limit: an entity with an approximate score up to this number is certainly known.
        more: returns the approximate scores of other entities.
    """

    there: Mask
    known: Numbers
    values: Floats
    error: float
    limit: float
    more: Callable[[Numbers], Floats]
