"""Sketches and bounds select the possible top entities without exact scores for all, and they miss none."""

from __future__ import annotations

import subprocess
import sys
from itertools import repeat

import numpy as np
import pyarrow as pa
import pytest
from tests.patience import PATIENCE
from tests.thresholds import Thresholds

from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.columns.sorting import nth_least
from omnigraph.read.search import thread_pool, vector_sketch, vectors
from omnigraph.read.search.fusion import fused
from omnigraph.read.search.rankings import ArmValues
from omnigraph.read.search.scores import ApproximateScores, above, below
from omnigraph.read.search.vector_sketch import VectorSketch, products_of
from omnigraph.read.search.vectors import Vectors

METRICS = list(ir.Metric)


def column(kind: str, count: int = 3_000, dimension: int = 96) -> pa.Array:
    random = np.random.default_rng(5)
    if kind == "clusters":
        rows = random.standard_normal((40, dimension))[random.integers(0, 40, count)]
        rows = rows + 0.3 * random.standard_normal((count, dimension))
    elif kind == "noise":
        rows = random.standard_normal((count, dimension)) * random.lognormal(0, 1, (count, 1))
    else:  # many distances are equal, and some vectors are zero
        rows = random.integers(-1, 2, (60, dimension))[random.integers(0, 60, count)].astype(float)
        rows[::97] = 0
    mask = np.arange(count) % 31 == 0
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.astype(np.float32).ravel()), dimension, mask=pa.array(mask))


@pytest.fixture
def eager(thresholds: Thresholds) -> None:
    thresholds(vectors, SKETCH_COST_PRODUCTS=0, MIN_SKETCHED_VECTORS=0)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["clusters", "noise", "ties"])
def test_vector_sketches_miss_no_nearest_neighbour(kind: str, metric: ir.Metric) -> None:
    found = Vectors.of(column(kind))
    random = np.random.default_rng(6)
    for chosen in (np.arange(3_000), np.arange(0, 3_000, 3), np.arange(7, 900)):
        queries = (found.matrix[5], found.matrix[200] + np.float32(0.1), random.standard_normal(96), np.zeros(96))
        for query in np.array(queries, np.float32):
            for count in (1, 10):
                exact = found.distances(query, metric, chosen)
                order = found.approximate_top(query, metric, chosen, count)
                kept = order.candidates(count)
                last = np.sort(exact)[count - 1]
                assert kept[exact <= last].all()
                assert np.isnan(order.values[np.isnan(found.lengths[chosen])]).all()


@pytest.mark.usefixtures("eager")
def test_a_limit_of_zero_has_no_nearest_neighbours() -> None:
    found = Vectors.of(column("noise"))
    assert not found.approximate_top(found.matrix[5], ir.Metric.L2, np.arange(3_000), 0).candidates(0).any()


@pytest.mark.usefixtures("eager")
def test_vector_sketches_avoid_most_exact_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Vectors.of(column("clusters"))
    looked_at: list[int] = []
    nearly = Vectors.approximate

    def watched(self: Vectors, query: vector_sketch.Vector, metric: ir.Metric, numbers: Numbers) -> ApproximateScores:
        looked_at.append(len(numbers))
        return nearly(self, query, metric, numbers)

    monkeypatch.setattr(Vectors, "approximate", watched)
    found.approximate_top(found.matrix[5], ir.Metric.L2, np.arange(3_000), 10)
    assert sum(looked_at) < 500


@pytest.mark.parametrize("kind", ["clusters", "noise", "ties"])
def test_a_vector_sketch_bounds_dot_products(kind: str) -> None:
    found = Vectors.of(column(kind))
    there = np.isfinite(found.lengths)
    made = VectorSketch.of(found.matrix, found.lengths)
    for query in found.matrix[1:300:29]:
        own = float(np.linalg.norm(query.astype(np.float64)))
        most = made.most(query, own, found.longest, None)
        product = found.matrix.astype(np.float64) @ query.astype(np.float64)
        assert (most[there] >= product[there]).all()


def test_many_threads_compute_the_same_products(thresholds: Thresholds) -> None:
    found = Vectors.of(column("noise"))
    alone = np.vecdot(found.matrix, found.matrix[3])
    thresholds(vector_sketch, BLOCK_ELEMENTS=5_000)
    thresholds(thread_pool, MIN_PARALLEL_ELEMENTS=0)
    for chosen in (None, np.arange(0, 3_000, 2)):
        several = products_of(found.matrix, found.matrix[3], chosen)
        assert np.array_equal(several, alone if chosen is None else alone[chosen], equal_nan=True)


_FORKS = """
import os, sys
import numpy as np
from omnigraph.read.search.vector_sketch import products_of

ones = np.ones((40_000, 64), np.float32)
products_of(ones, ones[0], None)
child = os.fork()
if child == 0:
    os._exit(0 if (products_of(ones, ones[0], None) == 64).all() else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_works_without_the_threads_of_its_parent() -> None:
    """Worker threads stay in the parent. It runs in a new process, since a large one cannot always be forked."""
    ended = subprocess.run(
        [sys.executable, "-c", _FORKS], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("count", [1, 5, 100, 4_000])
def test_nth_least_agrees_with_a_full_sort(count: int) -> None:
    random = np.random.default_rng(7)
    for values in (random.standard_normal(5_000), random.integers(0, 9, 5_000) / 8):
        for some in (values, values.astype(np.float32), np.where(values > 0.3, np.nan, values)):
            expected = np.sort(some)[count - 1]
            assert nth_least(some, count) == pytest.approx(expected, abs=0, nan_ok=True)


def test_f64_bounds_compare_exactly_with_f32_values() -> None:
    values = np.array([0.1, 0.2, 0.3], np.float32)
    for bound in (0.1, 0.2, float(values[1]), 0.25, -1.0):
        wide = values.astype(np.float64)
        assert (values < above(values, bound)).tolist() == (wide < bound).tolist()
        assert (values <= below(values, bound)).tolist() == (wide <= bound).tolist()


@pytest.mark.parametrize("count", [1, 10, 300, None])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (2.0, 0.5), (1.0, 1.0, 3.0)])
@pytest.mark.parametrize("error", [0.0, 0.001, 0.2])
def test_the_top_of_a_fusion_agrees_with_the_full_ranking(
    error: float, weights: tuple[float, ...], count: int | None
) -> None:
    random = np.random.default_rng(8)
    total = 3_000
    ids = random.permutation(total)
    exact = []
    for arm in range(len(weights)):
        values = random.standard_normal(total) if arm % 2 else random.integers(0, 400, total) / 100
        values[random.random(total) < (0.1, 0.9, 0.5)[arm]] = np.nan
        exact.append(values)
    scores = [ApproximateScores(values + random.uniform(-error, error, total), error) for values in exact]
    arms = [
        ArmValues(repeat(near).__next__, values.__getitem__, weight)
        for near, values, weight in zip(scores, exact, weights, strict=True)
    ]
    found = fused(arms, 60, ids.__getitem__, count)
    parts, orders = [], []
    for values, weight in zip(exact, weights, strict=True):
        there = np.flatnonzero(~np.isnan(values))
        order = there[np.lexsort((ids[there], values[there]))]
        place = np.full(total, total)
        place[order] = np.arange(len(order))
        parts.append(np.where(place < total, weight / (60 + place + 1.0), 0.0))
        orders.append(place)
    score = np.sort(np.array(parts), axis=0).sum(axis=0)
    best = np.lexsort((*reversed(orders), -score))[: np.count_nonzero(score)]
    wanted = len(best) if count is None else min(count, len(best))
    chosen = np.flatnonzero(found.place >= 0)
    assert chosen[np.argsort(found.place[chosen])][:wanted].tolist() == best[:wanted].tolist()
    assert found.score[best[:wanted]] == pytest.approx(score[best[:wanted]], rel=1e-15)
