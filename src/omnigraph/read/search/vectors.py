"""Distances of vectors from a query.

A distance is computed in double precision from the stored numbers and rounded to single precision. So what is equally
far is equally far, in whatever order a machine adds up. For the nearest of many, a product in single precision first
tells which vectors cannot be among them.
"""

# See docs/decisions/0081-the-nearest-are-exact.md

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import ir
from omnigraph.read.budget import checkpoint, note_read
from omnigraph.read.search.outline import Matrix, Outline, Vector, products_of, width_of
from omnigraph.read.search.scores import Nearly, Scores, below, rounded
from omnigraph.read.sorting import nth_least
from omnigraph.read.space.space import Numbers, Space

_ROW_ID = "_rowid"
_AT_ONCE = 1 << 20
"""About how many numbers are held in double precision at a time."""

_WORTHWHILE = 5_000
"""Among fewer vectors than this, each is looked at."""

_LIKELY = 4
"""So many times as many as are wanted are looked at first: whoever is further away than those is not."""

_PRICE = 16
"""Outlines are made once so many times as many products were computed as there are vectors: they cost about that."""

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
        outlines: tell of most vectors that they are not among the nearest.
    """

    matrix: Matrix
    lengths: Scores
    narrow: Vector
    longest: float
    shortest: float
    outlines: Outlines = field(default_factory=lambda: Outlines(), compare=False)

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
        outlines = 4 * len(self.matrix) * (width_of(self.matrix.shape[1]) + 1)
        return self.matrix.nbytes + self.lengths.nbytes + self.narrow.nbytes + outlines

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
        if not self._is_moderate(own):
            return Nearly(self.distances(query, metric, numbers), 0.0)
        chosen = None if self._are_all(numbers) else numbers
        values = self._ordering(self._products(query, chosen), metric, chosen)
        # No sum of this many products in single precision is further off, in whatever order it is made. And numbers
        # that are not further apart than this may be equal once they are rounded.
        sums = (len(query) + 4) * 2.0**-23
        if metric is ir.Metric.L2:
            doubt = 2 * sums * self.longest * own + 2.0**-21 * (self.longest + own) ** 2
            return Nearly(values, doubt + 1e-30)
        if metric is ir.Metric.COSINE:
            return Nearly(values, own * (sums + 2.0**-20) + 1e-30)
        return Nearly(values, (sums + 2.0**-21) * self.longest * own + 2.0**-22)

    def foremost(self, query: Vector, metric: ir.Metric, numbers: Numbers, count: int) -> Nearly:
        """The same for who may be among the first `count`; all others have infinity."""
        own = float(np.sqrt(np.square(query.astype(np.float64)).sum()))
        outline = self._outline(len(numbers), count)
        if outline is None or not self._is_moderate(own):
            return self.nearly(query, metric, numbers)
        chosen = None if self._are_all(numbers) else numbers
        least = self._ordering(outline.most(query, own, self.longest, chosen), metric, chosen)
        likely = np.flatnonzero(least <= below(least, Nearly(least, 0.0).front(count * _LIKELY)))
        some = self.nearly(query, metric, numbers[likely])
        if int(np.count_nonzero(~np.isnan(some.values))) < count:
            return self.nearly(query, metric, numbers)
        last = float(nth_least(some.values, count))
        near = np.flatnonzero(least <= below(least, last + 4 * some.doubt))
        if len(near) * _LIKELY > len(numbers):
            return self.nearly(query, metric, numbers)
        values = np.where(np.isnan(least), least, np.float32(np.inf))
        found = self.nearly(query, metric, numbers[near])
        values[near] = found.values
        return Nearly(values, found.doubt)

    def _is_moderate(self, own: float) -> bool:
        """Whether products with a query of some length are far from what single precision can hold."""
        return (self.longest + own) ** 2 < _LARGEST and self.shortest * own >= _SMALLEST

    def _outline(self, asked: int, count: int) -> Outline | None:
        """Outlines, where they help: once many products were computed without them."""
        if (
            asked < _WORTHWHILE
            or count * _LIKELY**2 > asked
            or self.matrix.shape[1] < 2 * width_of(self.matrix.shape[1])
        ):
            return None
        return self.outlines.find(self.matrix, self.lengths, asked)

    def _are_all(self, numbers: Numbers) -> bool:
        total = len(self.matrix)
        return len(numbers) == total and (total == 0 or bool((numbers[1:] > numbers[:-1]).all()))

    def _ordering(self, product: Vector, metric: ir.Metric, chosen: Numbers | None) -> Vector:
        """Products with a query as numbers that are smaller for what is nearer; NaN where there is no vector."""
        narrow = self.narrow if chosen is None else self.narrow[chosen]
        if metric is ir.Metric.L2:
            return np.square(narrow) - 2 * product
        if metric is ir.Metric.COSINE:
            with np.errstate(divide="ignore", invalid="ignore"):
                return -product / narrow
        return np.where(np.isnan(narrow), narrow, -product)

    def _products(self, query: Vector, chosen: Numbers | None) -> Vector:
        """The products of some vectors with a query, or of all."""
        if chosen is not None and 3 * len(chosen) > len(self.matrix):
            # In one go over all of them is quicker than picking out many.
            return products_of(self.matrix, query, None)[chosen]
        return products_of(self.matrix, query, chosen)


def streamed_distances(space: Space, name: str, query: Vector, metric: ir.Metric, numbers: Numbers) -> Scores:
    """The distance of each of some entities, of which no more vectors are in memory than are read at a time."""
    checkpoint(space.slots, 1)
    found = np.full(space.slots, np.nan)
    for batch in space.batches([name, _ROW_ID]):
        checkpoint()
        note_read(batch.nbytes)
        at = space.numbers(batch.column(_ROW_ID).to_numpy().astype(np.int64))
        found[at] = Vectors.of(batch.column(name)).distances(query, metric, np.arange(len(at)))
    return found[numbers]


class Outlines:
    """The outlines of some vectors, made when enough was asked for."""

    def __init__(self) -> None:
        self._asked = 0
        self._made: Outline | None = None

    def find(self, matrix: Matrix, lengths: Scores, asked: int) -> Outline | None:
        if self._made is None:
            self._asked += asked
            if self._asked > _PRICE * len(matrix):
                self._made = Outline.of(matrix, lengths)
        return self._made


def _portions(count: int, dimension: int) -> list[slice]:
    step = max(_AT_ONCE // max(dimension, 1), 1)
    return [slice(start, start + step) for start in range(0, count, step)]
