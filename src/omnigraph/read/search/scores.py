"""Scores: numbers that entities are ranked by."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]
"""NaN is no score."""


def rounded(values: Scores) -> Scores:
    """Scores in single precision, where that can hold them: what differs by how a machine adds up becomes equal."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32).astype(np.float64)
    return np.where(np.isinf(narrow), values, narrow)
