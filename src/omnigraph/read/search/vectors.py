"""Vector distances.

Distances are computed in double precision and rounded to single precision, so that they do not depend on the order of
summation. To find the nearest of many vectors, most vectors are first excluded with dot products in single precision.
"""

# See docs/decisions/0081-the-nearest-are-exact.md

from __future__ import annotations

from dataclasses import field

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.budget.budget import checkpoint, note_read
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.columns.sorting import nth_least
from omnigraph.read.search.scores import ApproximateScores, Floats, PartialScores, Scores, below, rounded
from omnigraph.read.search.vector_sketch import Matrix, Vector, VectorSketch, products_of, width_of

_ROW_ID = "_rowid"
_CHUNK_ELEMENTS = 1 << 20
"""Number of vector elements that are converted to double precision at a time."""

MIN_SKETCHED_VECTORS = 5_000
"""With fewer vectors than this, sketches are not used."""

CANDIDATE_FACTOR = 4
"""The query is first compared with this many times the needed vectors. Their distances give a bound for all others."""

SKETCH_COST_PRODUCTS = 16
"""Sketches are computed after this number of dot products per vector, which cost about as much as a sketch."""

PARTIAL_COST_RATIO = 6
"""A fusion compares the vectors with the best sketches only if they are at most 1 / `PARTIAL_COST_RATIO` of all."""

MAX_SKIPPED_BITS = 8
"""If sketches do not help in fusions, one in 2 ** `MAX_SKIPPED_BITS` fusions uses them."""

_MAX_PRODUCT, _MIN_PRODUCT = 1e37, 1e-30
"""Dot products and squares between these bounds do not overflow or underflow in single precision."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of a property of one type, by entity number.

    Attributes:
        matrix: the vectors, one row per entity.
        lengths: Euclidean length of each vector; NaN for an entity without a vector.
        narrow: the lengths in single precision.
        longest: the largest length.
        shortest: the smallest length above 0.
        sketches: sketches of the vectors. They are computed after enough searches.
    """

    matrix: Matrix
    lengths: Scores
    narrow: Vector
    longest: float
    shortest: float
    sketches: LazySketch = field(default_factory=lambda: LazySketch(), compare=False)

    @classmethod
    def of(cls, column: pa.Array) -> Vectors:
        dimension = column.type.list_size
        values = column.values.slice(column.offset * dimension, len(column) * dimension)
        matrix = values.to_numpy(zero_copy_only=False).reshape(len(column), dimension)
        lengths = np.empty(len(column))
        for part in _chunks(len(column), dimension):
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
        sketches = 4 * len(self.matrix) * (width_of(self.matrix.shape[1]) + 1)
        return self.matrix.nbytes + self.lengths.nbytes + self.narrow.nbytes + sketches

    def distances(self, query: Vector, metric: ir.Metric, numbers: Numbers) -> Scores:
        """Distances of the given entities from a query vector; NaN for an entity without a vector.

        The cosine distance of a zero vector is NaN, too.
        """
        found = np.empty(len(numbers))
        wide = query.astype(np.float64)
        query_length = np.sqrt(np.square(wide).sum())
        for part in _chunks(len(numbers), len(query)):
            checkpoint()
            rows = self.matrix[numbers[part]].astype(np.float64)
            if metric is ir.Metric.L2:
                found[part] = np.sqrt(np.square(rows - wide).sum(axis=1))
                continue
            product = (rows * wide).sum(axis=1)
            if metric is ir.Metric.COSINE:
                with np.errstate(divide="ignore", invalid="ignore"):
                    product /= self.lengths[numbers[part]] * query_length
            found[part] = 1 - product
        return rounded(np.where(np.isfinite(self.lengths[numbers]) & np.isfinite(found), found, np.nan))

    def approximate(self, query: Vector, metric: ir.Metric, numbers: Numbers) -> ApproximateScores:
        """Approximate scores of the given entities. A smaller score means a smaller distance."""
        query_length = float(np.sqrt(np.square(query.astype(np.float64)).sum()))
        if not self._fits_single_precision(query_length):
            return ApproximateScores(self.distances(query, metric, numbers), 0.0)
        chosen = None if self._is_all(numbers) else numbers
        values = self._ordering(self._products(query, chosen), metric, chosen)
        # Upper bound of the rounding error of a dot product in single precision, for any order of summation. It
        # includes the error of rounding distances to single precision.
        sums = (len(query) + 4) * 2.0**-23
        if metric is ir.Metric.L2:
            error = 2 * sums * self.longest * query_length + 2.0**-21 * (self.longest + query_length) ** 2
            return ApproximateScores(values, error + 1e-30)
        if metric is ir.Metric.COSINE:
            return ApproximateScores(values, query_length * (sums + 2.0**-20) + 1e-30)
        return ApproximateScores(values, (sums + 2.0**-21) * self.longest * query_length + 2.0**-22)

    def approximate_top(self, query: Vector, metric: ir.Metric, numbers: Numbers, count: int) -> ApproximateScores:
        """Like `approximate`, but the score is infinite for entities that cannot be among the nearest `count`."""
        query_length = float(np.sqrt(np.square(query.astype(np.float64)).sum()))
        sketch = self._sketch(len(numbers), count)
        if sketch is None or not self._fits_single_precision(query_length):
            return self.approximate(query, metric, numbers)
        chosen = None if self._is_all(numbers) else numbers
        least = self._ordering(sketch.most(query, query_length, self.longest, chosen), metric, chosen)
        likely = np.flatnonzero(least <= below(least, ApproximateScores(least, 0.0).front(count * CANDIDATE_FACTOR)))
        some = self.approximate(query, metric, numbers[likely])
        if int(np.count_nonzero(~np.isnan(some.values))) < count:
            return self.approximate(query, metric, numbers)
        last = float(nth_least(some.values, count))
        near = np.flatnonzero(least <= below(least, last + 4 * some.error))
        if len(near) * CANDIDATE_FACTOR > len(numbers):
            return self.approximate(query, metric, numbers)
        values = np.where(np.isnan(least), least, np.float32(np.inf))
        found = self.approximate(query, metric, numbers[near])
        values[near] = found.values
        return ApproximateScores(values, found.error)

    def nearest_part(
        self, query: Vector, metric: ir.Metric, numbers: Numbers, count: int, depth: int
    ) -> PartialScores | None:
        """Approximate scores of the `count` entities with the best sketches, which include the nearest `depth`.

        Returns None if the sketches do not show this, or if it would not be faster than all scores. Entities are
        indices of `numbers`.
        """
        query_length = float(np.sqrt(np.square(query.astype(np.float64)).sum()))
        few = depth * CANDIDATE_FACTOR < count and count * PARTIAL_COST_RATIO < len(numbers)
        if not few or not self._fits_single_precision(query_length) or self.sketches.is_skipped():
            return None
        sketch = self._sketch(len(numbers), depth)
        if sketch is None:
            return None
        chosen = None if self._is_all(numbers) else numbers
        least = self._ordering(sketch.most(query, query_length, self.longest, chosen), metric, chosen)
        there = ~np.isnan(least)
        if metric is ir.Metric.COSINE:
            there &= (self.lengths if chosen is None else self.lengths[chosen]) > 0
        bound = float(nth_least(least, count))
        likely = np.flatnonzero(least <= below(least, float(nth_least(least, depth * CANDIDATE_FACTOR))))
        some = self.approximate(query, metric, numbers[likely])
        # Other entities than the `count` have a score above `bound`, except for rounding errors.
        limit = bound - 4 * some.error
        suffices = bool(np.count_nonzero(some.values <= below(some.values, limit - 2 * some.error)) >= depth)
        self.sketches.note(suffices)
        if not suffices:
            return None
        known = np.flatnonzero((least <= below(least, bound)) & there)
        values = self.approximate(query, metric, numbers[known]).values

        def more(entities: Numbers) -> Floats:
            return self.approximate(query, metric, numbers[entities]).values

        return PartialScores(there, known, values, some.error, limit, more)

    def _fits_single_precision(self, query_length: float) -> bool:
        """Whether dot products with a query vector of this length cannot overflow or underflow in single precision."""
        return (self.longest + query_length) ** 2 < _MAX_PRODUCT and self.shortest * query_length >= _MIN_PRODUCT

    def _sketch(self, asked: int, count: int) -> VectorSketch | None:
        """The sketches; None if they would not help, or if too few dot products have been computed so far."""
        if (
            asked < MIN_SKETCHED_VECTORS
            or count == 0
            or count * CANDIDATE_FACTOR**2 > asked
            or self.matrix.shape[1] < 2 * width_of(self.matrix.shape[1])
        ):
            return None
        return self.sketches.find(self.matrix, self.lengths, asked)

    def _is_all(self, numbers: Numbers) -> bool:
        total = len(self.matrix)
        return len(numbers) == total and (total == 0 or bool((numbers[1:] > numbers[:-1]).all()))

    def _ordering(self, product: Vector, metric: ir.Metric, chosen: Numbers | None) -> Vector:
        """Convert dot products to scores, which are smaller for nearer vectors; NaN for an entity without a vector."""
        narrow = self.narrow if chosen is None else self.narrow[chosen]
        if metric is ir.Metric.L2:
            return np.square(narrow) - 2 * product
        if metric is ir.Metric.COSINE:
            with np.errstate(divide="ignore", invalid="ignore"):
                return -product / narrow
        return np.where(np.isnan(narrow), narrow, -product)

    def _products(self, query: Vector, chosen: Numbers | None) -> Vector:
        """Dot products of a query vector with the chosen vectors; None means all vectors."""
        if chosen is not None and 3 * len(chosen) > len(self.matrix):
            # Multiplying all rows is faster than first copying many of them.
            return products_of(self.matrix, query, None)[chosen]
        return products_of(self.matrix, query, chosen)


def streamed_distances(table: EntityTable, name: str, query: Vector, metric: ir.Metric, numbers: Numbers) -> Scores:
    """Distances of the given entities from a query vector. The vectors are streamed from the table."""
    checkpoint(table.slots, 1)
    found = np.full(table.slots, np.nan)
    for batch in table.batches([name, _ROW_ID]):
        checkpoint()
        note_read(batch.nbytes)
        at = table.numbers(batch.column(_ROW_ID).to_numpy().astype(np.int64))
        found[at] = Vectors.of(batch.column(name)).distances(query, metric, np.arange(len(at)))
    return found[numbers]


class LazySketch:
    """Sketches that are computed only after enough searches."""

    def __init__(self) -> None:
        self._asked = 0
        self._made: VectorSketch | None = None
        self._failures = 0
        self._skipped = 0

    def is_skipped(self) -> bool:
        """Whether not to use sketches for a fusion, because they did not help the last times."""
        self._skipped -= 1
        return self._skipped >= 0

    def note(self, helped: bool) -> None:
        """Note whether sketches helped in a fusion. After n failures, they are not used 2 ** n times."""
        self._failures = 0 if helped else min(self._failures + 1, MAX_SKIPPED_BITS)
        self._skipped = 0 if helped else 1 << self._failures

    def find(self, matrix: Matrix, lengths: Scores, asked: int) -> VectorSketch | None:
        if self._made is None:
            self._asked += asked
            if self._asked > SKETCH_COST_PRODUCTS * len(matrix):
                self._made = VectorSketch.of(matrix, lengths)
        return self._made


def _chunks(count: int, dimension: int) -> list[slice]:
    step = max(_CHUNK_ELEMENTS // max(dimension, 1), 1)
    return [slice(start, start + step) for start in range(0, count, step)]
