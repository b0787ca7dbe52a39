"""Scores: numbers that entities are ranked by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from omnigraph.read.space.space import Mask

Scores = npt.NDArray[np.float64]
"""NaN is no score."""

Floats = npt.NDArray[np.floating]


def rounded(values: Scores) -> Scores:
    """Scores in single precision, where that can hold them: what differs by how a machine adds up becomes equal."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32).astype(np.float64)
    return np.where(np.isinf(narrow), values, narrow)


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

    def contenders(self, count: int) -> Mask:
        """Which entities may be among the first `count`: all others come after so many, or have no number."""
        there = ~np.isnan(self.values)
        if count == 0:
            return np.zeros(len(there), bool)
        if int(there.sum()) <= count:
            return there
        last = np.float64(np.partition(self.values, count - 1)[count - 1])
        near: Mask = self.values <= last + 2 * self.doubt
        return near
