"""Vector sketches: short projections of vectors, which exclude most vectors from a search for the nearest.

A sketch is the projection of a vector on a few principal directions. The residual is the part of the vector outside
these directions; its length is stored. By the Cauchy-Schwarz inequality, the dot product of two residuals is at most
the product of their lengths. So sketches give an upper bound of the dot product of a vector with a query, at a fraction
of the cost. The choice of directions affects only the speed, not the results.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from omnigraph.dataclass import dataclass
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.search.scores import Scores
from omnigraph.read.search.thread_pool import run_parallel

Vector = npt.NDArray[np.float32]
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float32]]

_DIMENSION_RATIO = 6
"""A sketch has 1 / `_DIMENSION_RATIO` as many dimensions as the vector."""

MIN_DIMENSIONS = 32
"""Minimum number of dimensions of a sketch, unless the vector has fewer."""

_SAMPLE_VECTORS = 10_000
"""Number of sampled vectors from which the directions are computed."""

BLOCK_ELEMENTS = 1 << 18
"""Number of matrix elements that are multiplied at a time. So many elements fit the processor cache."""


def width_of(dimension: int) -> int:
    """Number of dimensions of the sketch of a vector with this number of dimensions."""
    return min(max(dimension // _DIMENSION_RATIO, MIN_DIMENSIONS), dimension)


@dataclass(frozen=True, slots=True)
class VectorSketch:
    """The sketches of a set of vectors.

    Attributes:
        directions: orthonormal directions, one per row.
        numbers: the sketches: projections of the vectors on the directions, one row per vector.
        rest: upper bound of the length of the residual of each vector.
        slack: upper bound of the rounding error of a dot product, for vectors of length 1.
    """

    directions: Matrix
    numbers: Matrix
    rest: Vector
    slack: float

    @classmethod
    def of(cls, matrix: Matrix, lengths: Scores) -> VectorSketch:
        """Compute the sketches of vectors. `lengths` has the length of each vector; NaN for a missing vector."""
        dimension = matrix.shape[1]
        width = width_of(dimension)
        directions = _directions(matrix[np.isfinite(lengths)], width)
        numbers = np.empty((len(matrix), width), np.float32)
        rest = np.empty(len(matrix), np.float32)
        # Upper bound of the rounding error of a projection: the error of one dot product in single precision, times the
        # square root of the number of directions.
        slack = float(np.sqrt(width)) * (dimension + 4) * 2.0**-22
        step = max(BLOCK_ELEMENTS // dimension, 1)
        for start in range(0, len(matrix), step):
            checkpoint()
            part = slice(start, start + step)
            numbers[part] = matrix[part] @ directions.T
            whole = np.square(lengths[part])
            left = whole - np.square(numbers[part].astype(np.float64)).sum(axis=1)
            rest[part] = np.sqrt(np.maximum(left, 0) + 4 * slack * whole) * (1 + 2.0**-20)
        return cls(directions, numbers, rest, slack)

    def most(self, query: Vector, own: float, longest: float, chosen: Numbers | None) -> Vector:
        """Upper bounds of the dot products of vectors with a query vector.

        Args:
            query: the query vector.
            own: length of the query vector.
            longest: length of the longest vector.
            chosen: indices of the vectors; None for all.
        """
        projected = self.directions @ query
        left = own**2 - float(np.square(projected.astype(np.float64)).sum())
        rest = np.float32(np.sqrt(max(left, 0.0) + 4 * self.slack * own**2))
        products = products_of(self.numbers, projected, chosen)
        products += rest * (self.rest if chosen is None else self.rest[chosen])
        products += np.float32(4 * self.slack * own * longest)
        return products


def products_of(matrix: Matrix, query: Vector, chosen: Numbers | None) -> Vector:
    """Dot products of a query vector with the chosen rows of a matrix; None means all rows.

    Each row is multiplied separately. This is as fast as a matrix product, and the result for a row does not depend on
    the other rows.
    """
    count, step = len(matrix if chosen is None else chosen), max(BLOCK_ELEMENTS // matrix.shape[1], 1)
    found = np.empty(count, np.float32)
    starts = iter(range(0, count, step))

    def work() -> None:
        room = None if chosen is None else np.empty((min(step, count), matrix.shape[1]), np.float32)
        for start in starts:
            part = slice(start, start + step)
            if chosen is None or room is None:
                np.vecdot(matrix[part], query, out=found[part])
            else:
                rows = np.take(matrix, chosen[part], axis=0, out=room[: len(chosen[part])], mode="clip")
                np.vecdot(rows, query, out=found[part])

    run_parallel(work, count * matrix.shape[1])
    return found


def _directions(matrix: Matrix, width: int) -> Matrix:
    """Principal directions of a sample of vectors. The mean is not subtracted."""
    sample = matrix[:: max(len(matrix) // _SAMPLE_VECTORS, 1)].astype(np.float64)
    _, vectors = np.linalg.eigh(sample.T @ sample)
    found: Matrix = np.ascontiguousarray(vectors[:, ::-1][:, :width].T.astype(np.float32))
    return found
