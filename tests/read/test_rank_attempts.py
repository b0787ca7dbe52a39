"""A search with a traversal first finds only as many nodes as likely have enough rows, and more if they have not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.graph import Graph
from omnigraph.lang.query import ir
from omnigraph.read.match import rank
from omnigraph.read.match.rank import node_counts
from omnigraph.read.plan import plan_rank
from omnigraph.read.rows.frame import Frame
from omnigraph.read.search.search import Search

SCHEMA = """
node Doc { slug: String @key
 text: String
 near: Vector(8) }
edge Cites: Doc -> Doc
"""
COUNT = 300


def test_the_first_attempt_is_for_few_nodes() -> None:
    assert node_counts(np.full(1_000, 3), 30) == [10, 30]  # certain
    assert node_counts(np.array([1] + [6] * 999), 30) == [10, 30]  # twice as many as needed with six rows each
    assert node_counts(np.full(1_000, 1), 30) == [30]
    assert node_counts(np.array([0] * 600 + [50] * 400), 30) == [30]
    assert node_counts(np.zeros(0, np.int64), 30) == [30]
    assert node_counts(np.full(5, 100), 30) == [1, 30]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, thresholds: Thresholds) -> list[int | None]:
    """How many nodes each fusion is asked for."""
    thresholds(plan_rank, MIN_FULL_MATCH_COST_EDGES=-1.0, MIN_GAIN=0.0)
    counts: list[int | None] = []
    best = Search.best

    def watched(self: Search, of: ir.Rank, frame: Frame, count: int | None) -> Frame:
        counts.append(count)
        return best(self, of, frame, count)

    monkeypatch.setattr(Search, "best", watched)
    return counts


def graph_of(place: Path, cited: list[int]) -> Graph:
    """Documents, the n-th of which cites `cited[n]` others; all match the text."""
    random = np.random.default_rng(4)
    slugs = [f"d{number:03}" for number in range(COUNT)]
    vectors = np.arange(COUNT, dtype=np.float32)[:, None] + np.zeros((1, 8), np.float32)
    near = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8)
    texts = [" ".join(["graph"] * int(number)) for number in random.integers(1, 5, COUNT)]
    ends = [(slug, slugs[(n + step + 1) % COUNT]) for n, slug in enumerate(slugs) for step in range(cited[n])]
    graph = omnigraph.init(place, SCHEMA)
    docs = pa.table({"slug": slugs, "text": texts, "near": near})
    cites = pa.table({"from": [one for one, _ in ends], "to": [other for _, other in ends]})
    graph.load({"Doc": docs, "Cites": cites}, mode="append")
    return graph


QUERY = """
query q($v: Vector(8), $t: String) { match { $d: Doc $e: Doc $d cites $e }
 return { $d.slug as slug, $e.slug as other } order { %s } limit %d }
"""
ORDERS = ["nearest($d.near, $v)", "bm25($d.text, $t)", "rrf(nearest($d.near, $v), bm25($d.text, $t))"]


@pytest.mark.parametrize("order", ORDERS)
def test_rows_do_not_depend_on_the_attempts(
    tmp_path: Path, order: str, asked: list[int | None], thresholds: Thresholds
) -> None:
    """The nearest documents cite only one document, most others eight: the first attempt finds too few rows."""
    cited = [1 if number < 100 else 8 for number in range(COUNT)]
    given = {"v": [0.0] * 8, "t": "graph"}
    with graph_of(tmp_path / "graph", cited) as graph:
        for limit in (1, 20, 90, 1_000, 3_000):
            found = []
            for factor in (0.01, 2, 10**6):
                thresholds(rank, SAFETY_FACTOR=factor)
                found.append(graph.query(QUERY % (order, limit), given).to_arrow().to_pylist())
            assert found[0] == found[1] == found[2]
        thresholds(rank, SAFETY_FACTOR=2)
        asked.clear()
        graph.query(QUERY % (order, 40), given).to_arrow()
        assert asked[0] == 10
        if "bm25" not in order:
            assert asked[1] == 40


def test_documents_with_equal_numbers_of_rows_need_one_attempt(tmp_path: Path, asked: list[int | None]) -> None:
    with graph_of(tmp_path / "graph", [3] * COUNT) as graph:
        found = graph.query(QUERY % (ORDERS[2], 30), {"v": [0.0] * 8, "t": "graph"}).to_arrow()
    assert len(found) == 30
    assert 30 not in asked[:1]
    assert asked[0] == 10
