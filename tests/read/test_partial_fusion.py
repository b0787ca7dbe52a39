"""A fusion finds the exact top entities in order, though it compares few vectors and computes no scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.read.test_search_bounds import METRICS, column
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.search import fusion, vector_sketch, vectors
from omnigraph.read.search.fusion import fused, fused_order
from omnigraph.read.search.rankings import ArmValues
from omnigraph.read.search.scores import ApproximateScores, PartialScores, Scores
from omnigraph.read.search.vector_sketch import Vector
from omnigraph.read.search.vectors import LazySketch, Vectors

KINDS = ["clusters", "noise", "ties"]


@pytest.fixture(autouse=True)
def eager(thresholds: Thresholds) -> None:
    """Small tables take the code paths of large ones."""
    thresholds(vectors, SKETCH_COST_PRODUCTS=0, MIN_SKETCHED_VECTORS=0, PARTIAL_COST_RATIO=1, MAX_SKIPPED_BITS=0)
    thresholds(fusion, MAX_EARLY_ENTITIES=10**9)


def queries_of(found: Vectors) -> list[Vector]:
    random = np.random.default_rng(6)
    near = found.matrix[200] + np.float32(0.1)
    return [found.matrix[5], near, random.standard_normal(96).astype(np.float32), np.zeros(96, np.float32)]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_vector_up_to_the_limit_is_left_out(kind: str, metric: ir.Metric) -> None:
    found = Vectors.of(column(kind))
    for numbers in (np.arange(3_000), np.arange(0, 3_000, 3)):
        for query in queries_of(found):
            for count, depth in ((20, 1), (200, 5), (700, 5)):
                part = found.nearest_part(query, metric, numbers, count, depth)
                if part is None:
                    continue
                exact = found.distances(query, metric, numbers)
                assert np.array_equal(part.there, ~np.isnan(exact))
                sure = part.known[part.values + 2 * part.error <= part.limit]
                unknown = np.setdiff1d(np.flatnonzero(part.there), part.known)
                assert len(sure) >= depth
                assert len(unknown) == 0 or exact[sure].max() < exact[unknown].min()
                assert part.more(part.known).tolist() == part.values.tolist()


def test_sketches_that_do_not_help_are_tried_less_and_less(thresholds: Thresholds) -> None:
    thresholds(vectors, MAX_SKIPPED_BITS=3)
    sketches = LazySketch()
    tried = []
    for number in range(40):
        if not sketches.is_skipped():
            tried.append(number)
            sketches.note(False)
    assert tried == [0, 3, 8, 17, 26, 35]
    sketches.note(True)
    assert not sketches.is_skipped()


def relevance(total: int, share: float, seed: int) -> Scores:
    """Scores with many ties. Only a share of the entities has one."""
    random = np.random.default_rng(seed)
    values: Scores = -(random.integers(0, 300, total) / 100)
    values[random.random(total) >= share] = np.nan
    return values


def arms_of(
    found: Vectors, query: Vector, metric: ir.Metric, numbers: Numbers, scores: Scores, weights: tuple[float, float]
) -> list[ArmValues]:
    def near() -> ApproximateScores:
        return found.approximate(query, metric, numbers)

    def far(chosen: Numbers) -> Scores:
        return found.distances(query, metric, numbers[chosen])

    def part(count: int, depth: int) -> PartialScores | None:
        return found.nearest_part(query, metric, numbers, count, depth)

    text = ArmValues(lambda: ApproximateScores(scores, 0.0), scores.__getitem__, weights[1])
    return [ArmValues(near, far, weights[0], part), text]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_order_by_bounds_is_the_exact_order(kind: str, metric: ir.Metric, thresholds: Thresholds) -> None:
    found = Vectors.of(column(kind))
    thresholds(vectors, CANDIDATE_FACTOR=2)
    undecided = 0
    asked = [
        (numbers, query, share, case)
        for numbers in (np.arange(3_000), np.arange(0, 3_000, 3))
        for query in queries_of(found)
        for share in (0.02, 0.9)
        for case in ((1, 1, (1, 1), 1.25), (3, 5, (0.5, 2), 0.3), (3, 4, (1, 1), 1.25))
    ]
    for turn, (numbers, query, share, (k, count, weights, known)) in enumerate(asked):
        thresholds(fusion, KNOWN_FACTOR=known)
        ids = np.random.default_rng(9).permutation(len(numbers))
        arms = arms_of(found, query, metric, numbers, relevance(len(numbers), share, turn), weights)
        arms = arms[::-1] if turn % 2 else arms
        ordered = fused_order(arms, k, ids.__getitem__, count)
        if ordered is None:
            undecided += 1
            continue
        exact = fused(arms, k, ids.__getitem__, count)
        top = np.flatnonzero((exact.place >= 0) & (exact.place < count))
        assert ordered.place[top].tolist() == exact.place[top].tolist()
        assert np.count_nonzero((ordered.place >= 0) & (ordered.place < count)) == len(top)
    assert undecided < len(asked) / 2


def test_a_fusion_compares_few_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Vectors.of(column("clusters"))
    compared: list[int] = []
    products_of = vector_sketch.products_of

    def watched(matrix: vector_sketch.Matrix, query: Vector, chosen: Numbers | None) -> Vector:
        if matrix is found.matrix:
            compared.append(len(matrix) if chosen is None else len(chosen))
        return products_of(matrix, query, chosen)

    monkeypatch.setattr(vectors, "products_of", watched)
    scores = relevance(3_000, 0.1, 1)
    arms = arms_of(found, found.matrix[5], ir.Metric.L2, np.arange(3_000), scores, (1, 1))
    assert fused_order(arms, 3, lambda chosen: chosen, 3) is not None
    assert 0 < sum(compared) < 700


WORDS = ("graph", "join", "cost", "engine", "fox", "state")


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_a_query_gives_the_same_rows_with_and_without_scores(tmp_path: Path, metric: str) -> None:
    """With a score in a column, all vectors are compared."""
    random = np.random.default_rng(3)
    count = 900
    rows = random.standard_normal((30, 64))[random.integers(0, 30, count)] + 0.2 * random.standard_normal((count, 64))
    rows[::50], rows[1::50] = 0, rows[2]
    near = pa.FixedSizeListArray.from_arrays(
        pa.array(rows.astype(np.float32).ravel()), 64, mask=pa.array(np.arange(count) % 23 == 0)
    )
    texts = [" ".join(random.choice(WORDS, 4, p=[0.02, 0.08, 0.1, 0.2, 0.3, 0.3])) for _ in range(count)]
    slugs = [f"d{number:04}" for number in range(count)]
    docs = pa.table({"slug": slugs, "text": texts, "near": near, "year": pa.array(np.arange(count) % 10, pa.int64())})
    cites = pa.table({"from": slugs * 2, "to": [slugs[n] for n in random.integers(0, count, 2 * count)]})
    schema = (
        "node Doc { slug: String @key\n text: String\n near: Vector(64)?\n year: I64\n"
        f'@index(near, kind="vector", metric="{metric}") }}\nedge Cites: Doc -> Doc'
    )
    query = (
        "query q($v: Vector(64), $t: String) { match { %s } return { $d.slug as slug %s }"
        " order { rrf(nearest($d.near, $v), bm25($d.text, $t), k=%d) } limit %d }"
    )
    with omnigraph.init(tmp_path / "graph", schema) as graph:
        graph.load({"Doc": docs, "Cites": cites}, mode="append")
        for match in ("$d: Doc", "$d: Doc $d.year < 6", "$d: Doc $e: Doc $d cites $e"):
            for text in WORDS[:2]:
                for k, limit in ((2, 4), (60, 10), (60, 5_000)):
                    given = {"v": rows[7].tolist(), "t": text}
                    score = f", rrf(nearest($d.near, $v), bm25($d.text, $t), k={k}) as score"
                    plain = graph.query(query % (match, "", k, limit), given).to_arrow()
                    scored = graph.query(query % (match, score, k, limit), given).to_arrow()
                    assert plain["slug"].to_pylist() == scored["slug"].to_pylist()
                    assert all(0 < value < 1 for value in scored["score"].to_pylist())
