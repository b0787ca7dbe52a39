"""Distances of vectors from a query.

A distance is computed in double precision from the stored numbers and rounded to single precision. So what is equally
far is equally far, in whatever order a machine adds up. For the nearest of many, a product in single precision first
tells which vectors cannot be among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.lang.query import ir
from omnigraph.read.search.scores import Scores, rounded
from omnigraph.read.space import Mask, Numbers

Vector = npt.NDArray[np.float32]
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float32]]

_AT_ONCE = 1 << 20
"""About how many numbers are held in double precision at a time."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of a property of one type, by the number of the entity.

    Attributes:
        matrix: a row for each entity.
        lengths: the Euclidean length of each row; NaN where there is no vector.
    """

    matrix: Matrix
    lengths: Scores

    @classmethod
    def of(cls, column: pa.Array) -> Vectors:
        dimension = column.type.list_size
        values = column.values.slice(column.offset * dimension, len(column) * dimension)
        matrix = values.to_numpy(zero_copy_only=False).reshape(len(column), dimension)
        lengths = np.empty(len(column))
        for part in _portions(len(column), dimension):
            lengths[part] = np.sqrt(np.square(matrix[part].astype(np.float64)).sum(axis=1))
        if column.null_count:
            lengths[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
        return cls(matrix, lengths)

    @property
    def nbytes(self) -> int:
        return self.matrix.nbytes + self.lengths.nbytes

    def distances(self, query: Vector, metric: ir.Metric, numbers: Numbers) -> Scores:
        """The distance of each of some entities; NaN where there is none.

        Without a direction, which a vector of zeros has not, there is no cosine.
        """
        found = np.empty(len(numbers))
        wide = query.astype(np.float64)
        own = np.sqrt(np.square(wide).sum())
        for part in _portions(len(numbers), len(query)):
            rows = self.matrix[numbers[part]].astype(np.float64)
            if metric is ir.Metric.L2:
                found[part] = np.sqrt(np.square(rows - wide).sum(axis=1))
                continue
            found[part] = 1 - (rows * wide).sum(axis=1)
            if metric is ir.Metric.COSINE:
                with np.errstate(divide="ignore", invalid="ignore"):
                    found[part] = 1 - (rows * wide).sum(axis=1) / (self.lengths[numbers[part]] * own)
        return rounded(np.where(np.isfinite(self.lengths[numbers]) & np.isfinite(found), found, np.nan))

    def contenders(self, query: Vector, metric: ir.Metric, numbers: Numbers, count: int) -> Mask:
        """Which of some entities may be among the nearest, by distances that are nearly right.

        Every entity that is left out has a vector that is farther away than `count` others, or none.
        """
        everything = len(numbers) == len(self.matrix) and bool((np.diff(numbers) == 1).all())
        rows = self.matrix if everything else self.matrix[numbers]
        lengths = self.lengths if everything else self.lengths[numbers]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            product = (rows @ query).astype(np.float64)
            own = float(np.sqrt(np.square(query.astype(np.float64)).sum()))
            # No sum of this many products in single precision is further off, in whatever order it is made. What is
            # not further apart than this may be equal once it is rounded.
            doubt = (len(query) + 4) * 2.0**-23 * lengths * own + 1e-40
            if metric is ir.Metric.L2:
                nearly, doubt = np.square(lengths) - 2 * product, 2 * doubt + 2.0**-21 * np.square(lengths + own)
            elif metric is ir.Metric.DOT:
                nearly, doubt = -product, doubt + 2.0**-22 * (1 + np.abs(product))
            else:
                nearly, doubt = -product / (lengths * own), doubt / (lengths * own) + 2.0**-21
        sure = np.isfinite(nearly) & np.isfinite(doubt)
        there = np.flatnonzero(sure)
        # What single precision cannot hold is looked at again.
        unsure = ~sure & np.isfinite(lengths)
        if len(there) <= count:
            return sure | unsure
        farthest = nearly[there] + doubt[there]
        bound = np.partition(farthest, count - 1)[count - 1] if count else -np.inf
        unsure[there[nearly[there] - doubt[there] <= bound]] = True
        return unsure


def _portions(count: int, dimension: int) -> list[slice]:
    step = max(_AT_ONCE // max(dimension, 1), 1)
    return [slice(start, start + step) for start in range(0, count, step)]
