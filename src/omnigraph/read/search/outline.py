"""Outlines of vectors: a few numbers of each, which tell of most vectors that they are not among the nearest.

An outline is what is left of a vector in the directions in which all vectors differ most. The rest of it has a length,
and the product of two rests is at most the product of their lengths. So an outline bounds the product of a vector with
a query, for a part of the numbers. Nothing depends on how good the directions are but the time that it takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from omnigraph.read.budget import checkpoint
from omnigraph.read.search.scores import Scores
from omnigraph.read.search.shared import shared
from omnigraph.read.space.space import Numbers

Vector = npt.NDArray[np.float32]
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float32]]

_SHARE, _LEAST = 6, 32
"""An outline has one of so many numbers of a vector, and so many at least."""

_SAMPLED = 10_000
"""From about so many vectors it is found out in which directions vectors differ."""

_BLOCK = 1 << 18
"""About how many numbers are picked out of a matrix at a time: they stay in the processor's cache."""


def width_of(dimension: int) -> int:
    """How many numbers the outline of a vector has."""
    return min(max(dimension // _SHARE, _LEAST), dimension)


@dataclass(frozen=True, slots=True)
class Outline:
    """The outlines of vectors.

    Attributes:
        directions: a row for each direction; they are of length 1, and at right angles.
        numbers: a row for each vector.
        rest: how long what is left of each vector is at most.
        slack: what products may be off by beside that, for vectors of length 1.
    """

    directions: Matrix
    numbers: Matrix
    rest: Vector
    slack: float

    @classmethod
    def of(cls, matrix: Matrix, lengths: Scores) -> Outline:
        """The outlines of some vectors of known lengths; NaN is the length of what is no vector."""
        dimension = matrix.shape[1]
        width = width_of(dimension)
        directions = _directions(matrix[np.isfinite(lengths)], width)
        numbers = np.empty((len(matrix), width), np.float32)
        rest = np.empty(len(matrix), np.float32)
        # No sum of so many products in single precision is further off, and there are so many sums.
        slack = float(np.sqrt(width)) * (dimension + 4) * 2.0**-22
        step = max(_BLOCK // dimension, 1)
        for start in range(0, len(matrix), step):
            checkpoint()
            part = slice(start, start + step)
            numbers[part] = matrix[part] @ directions.T
            whole = np.square(lengths[part])
            left = whole - np.square(numbers[part].astype(np.float64)).sum(axis=1)
            rest[part] = np.sqrt(np.maximum(left, 0) + 4 * slack * whole) * (1 + 2.0**-20)
        return cls(directions, numbers, rest, slack)

    def most(self, query: Vector, own: float, longest: float, chosen: Numbers | None) -> Vector:
        """What the products of vectors with a query are at most.

        Args:
            query: the query.
            own: its length.
            longest: the length of the longest vector.
            chosen: some vectors; None for all.
        """
        outline = self.directions @ query
        left = own**2 - float(np.square(outline.astype(np.float64)).sum())
        rest = np.float32(np.sqrt(max(left, 0.0) + 4 * self.slack * own**2))
        products = products_of(self.numbers, outline, chosen)
        products += rest * (self.rest if chosen is None else self.rest[chosen])
        products += np.float32(4 * self.slack * own * longest)
        return products


def products_of(matrix: Matrix, query: Vector, chosen: Numbers | None) -> Vector:
    """The products of rows with a query, or of some rows.

    Each row for itself: that is as quick as a product with the whole matrix, and gives the same whoever computes it.
    """
    count, step = len(matrix if chosen is None else chosen), max(_BLOCK // matrix.shape[1], 1)
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

    shared(work, count * matrix.shape[1])
    return found


def _directions(matrix: Matrix, width: int) -> Matrix:
    """The directions in which some vectors differ most, seen from zero."""
    sample = matrix[:: max(len(matrix) // _SAMPLED, 1)].astype(np.float64)
    _, vectors = np.linalg.eigh(sample.T @ sample)
    found: Matrix = np.ascontiguousarray(vectors[:, ::-1][:, :width].T.astype(np.float32))
    return found
