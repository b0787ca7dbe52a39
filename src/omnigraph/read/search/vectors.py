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
from omnigraph.read.budget import checkpoint
from omnigraph.read.search.scores import Nearly, Scores, rounded
from omnigraph.read.space.space import Numbers

Vector = npt.NDArray[np.float32]
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float32]]

_AT_ONCE = 1 << 20
"""About how many numbers are held in double precision at a time."""

_LARGEST, _SMALLEST = 1e37, 1e-30
"""Products and squares between these are far from the largest and the smallest number of single precision."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of a property of one type, by the number of the entity.

    Attributes:
        matrix: a row for each entity.
        lengths: the Euclidean length of each row; NaN where there is no vector.
        narrow: the same in single precision.
        longest: the largest of them.
        shortest: the smallest that is not zero.
    """

    matrix: Matrix
    lengths: Scores
    narrow: Vector
    longest: float
    shortest: float

    @classmethod
    def of(cls, column: pa.Array) -> Vectors:
        dimension = column.type.list_size
        values = column.values.slice(column.offset * dimension, len(column) * dimension)
        matrix = values.to_numpy(zero_copy_only=False).reshape(len(column), dimension)
        lengths = np.empty(len(column))
        for part in _portions(len(column), dimension):
            checkpoint()
            lengths[part] = np.sqrt(np.square(matrix[part].astype(np.float64)).sum(axis=1))
        if column.null_count:
            lengths[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
        with np.errstate(over="ignore"):
            narrow = lengths.astype(np.float32)
        there = lengths > 0
        longest, shortest = np.max(lengths, where=there, initial=0.0), np.min(lengths, where=there, initial=np.inf)
        return cls(matrix, lengths, narrow, float(longest), float(shortest))

    @property
    def nbytes(self) -> int:
        return self.matrix.nbytes + self.lengths.nbytes + self.narrow.nbytes

    def distances(self, query: Vector, metric: ir.Metric, numbers: Numbers) -> Scores:
        """The distance of each of some entities; NaN where there is none.

        Without a direction, which a vector of zeros has not, there is no cosine.
        """
        found = np.empty(len(numbers))
        wide = query.astype(np.float64)
        own = np.sqrt(np.square(wide).sum())
        for part in _portions(len(numbers), len(query)):
            checkpoint()
            rows = self.matrix[numbers[part]].astype(np.float64)
            if metric is ir.Metric.L2:
                found[part] = np.sqrt(np.square(rows - wide).sum(axis=1))
                continue
            product = (rows * wide).sum(axis=1)
            if metric is ir.Metric.COSINE:
                with np.errstate(divide="ignore", invalid="ignore"):
                    product /= self.lengths[numbers[part]] * own
            found[part] = 1 - product
        return rounded(np.where(np.isfinite(self.lengths[numbers]) & np.isfinite(found), found, np.nan))

    def nearly(self, query: Vector, metric: ir.Metric, numbers: Numbers) -> Nearly:
        """Numbers in the order of distances, but for a little."""
        own = float(np.sqrt(np.square(query.astype(np.float64)).sum()))
        if not (self.longest + own) ** 2 < _LARGEST or self.shortest * own < _SMALLEST:
            return Nearly(self.distances(query, metric, numbers), 0.0)
        product, narrow = self._products(query, numbers)
        # No sum of this many products in single precision is further off, in whatever order it is made. And numbers
        # that are not further apart than this may be equal once they are rounded.
        sums = (len(query) + 4) * 2.0**-23
        with np.errstate(divide="ignore", invalid="ignore"):
            if metric is ir.Metric.L2:
                doubt = 2 * sums * self.longest * own + 2.0**-21 * (self.longest + own) ** 2
                return Nearly(np.square(narrow) - 2 * product, doubt + 1e-30)
            if metric is ir.Metric.COSINE:
                return Nearly(-product / narrow, own * (sums + 2.0**-20) + 1e-30)
        product = np.where(np.isnan(narrow), narrow, -product)
        return Nearly(product, (sums + 2.0**-21) * self.longest * own + 2.0**-22)

    def _products(self, query: Vector, numbers: Numbers) -> tuple[Vector, Vector]:
        """The products of some vectors with a query, and their lengths."""
        # Row by row: as quick as a product with the whole matrix, which waits for other threads on a busy machine.
        total = len(self.matrix)
        if len(numbers) == total and (total == 0 or bool((np.diff(numbers) == 1).all())):
            return np.vecdot(self.matrix, query), self.narrow
        if 3 * len(numbers) > total:
            # In one go over all of them is quicker than picking out many.
            return np.vecdot(self.matrix, query)[numbers], self.narrow[numbers]
        return np.vecdot(self.matrix[numbers], query), self.narrow[numbers]


def _portions(count: int, dimension: int) -> list[slice]:
    step = max(_AT_ONCE // max(dimension, 1), 1)
    return [slice(start, start + step) for start in range(0, count, step)]
