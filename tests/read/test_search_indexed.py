"""Nearest neighbours among more vectors than fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.read.searching import document_columns, library, read
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.graph import Graph
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.read.search import search
from omnigraph.read.search.vector_index import nearest_by_index
from omnigraph.read.search.word_store import load_inverted_index
from omnigraph.upkeep.indexes import ensure_indexes

COUNT, DIMENSION = 6_000, 16
SCHEMA = f"""
node Doc {{
    slug: String @key
    near: Vector({DIMENSION})? @index
    angle: Vector({DIMENSION})?
    group: I64
    @index(angle, metric="cosine", method="ivf_pq", sub_vectors=8)
}}
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    random = np.random.default_rng(11)
    centers = random.standard_normal((40, DIMENSION))
    with omnigraph.init(tmp_path_factory.mktemp("indexed") / "g", SCHEMA) as graph:
        for start in (0, COUNT):
            rows = (centers[random.integers(0, 40, COUNT)] + 0.5 * random.standard_normal((COUNT, DIMENSION))).tolist()
            for number in range(0, COUNT, 50):
                rows[number] = None
            vectors = pa.array(rows, pa.list_(pa.float32(), DIMENSION))
            slugs = [f"d{number}" for number in range(start, start + COUNT)]
            columns = {"slug": slugs, "near": vectors, "angle": vectors, "group": random.integers(0, 100, COUNT)}
            graph.load({"Doc": pa.table(columns)}, mode="append")
            if start == 0:
                # The other half is not covered by the index.
                ensure_indexes(graph.session.store, "main", lambda _: graph.catalog, fewest_vectors=1)
        yield graph


def vectors_of(graph: Graph, count: int) -> list[list[float]]:
    rows = graph.snapshot().scan("node:Doc", columns=["near"])["near"].to_pylist()
    return [row for row in rows if row is not None][: count * 97 : 97]


@pytest.mark.parametrize("name", ["near", "angle"])
@pytest.mark.parametrize("where", ["", "$d.group < 50", "$d.group < 1"])
def test_index_candidates_are_reranked_by_exact_distance(
    graph: Graph, name: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    by_index = nearest_by_index

    def watched(*arguments: Any) -> Any:
        found = by_index(*arguments)
        asked.append(found is not None)
        return found

    monkeypatch.setattr(search, "nearest_by_index", watched)
    text = (
        f"($v: Vector({DIMENSION})) match {{ $d: Doc {where} }} return {{ $d.slug as slug,"
        f" nearest($d.{name}, $v) as far }} order {{ nearest($d.{name}, $v) }} limit 10"
    )
    hits = total = 0
    for vector in vectors_of(graph, 20):
        few = read(graph, text, {"v": vector}, cache=ColumnCache(COUNT * DIMENSION))
        expected = read(graph, text, {"v": vector})
        distances = {row["slug"]: row["far"] for row in expected}
        assert len(few) == len(expected)
        assert [row["far"] for row in few] == sorted(row["far"] for row in few)
        assert all(row["far"] == distances[row["slug"]] for row in few if row["slug"] in distances)
        hits += sum(row["slug"] in distances for row in few)
        total += len(expected)
    assert hits / total >= 0.99
    # With few candidates, each distance is computed exactly.
    assert any(asked) is (where != "$d.group < 1")


def test_the_first_text_filters_of_a_large_table_use_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thresholds: Thresholds
) -> None:
    """A complete index answers filters until that has cost as much as reading the texts. The rows are the same."""
    thresholds(search, MIN_INDEXED_ENTITIES=1)
    made = 0
    make = load_inverted_index

    def watched(*arguments: Any) -> Any:
        nonlocal made
        made += 1
        return make(*arguments)

    monkeypatch.setattr(search, "load_inverted_index", watched)
    conditions = (
        *(
            'search($d.text, "graphs naive")',
            'search($d.text, "graph engine", all=true)',
            'search($d.title, "the fox")',
        ),
        *('match_text($d.text, "state of the art")', 'match_text($d.text, "of the")', 'not search($d.text, "cafe")'),
    )
    queries = [f"match {{ $d: Doc {condition} }} return {{ $d.slug as s }} order {{ s }}" for condition in conditions]
    with library(tmp_path, docs=90) as graph:
        graph.mutate("query q() { delete Doc where year = 2002 }")
        without = [read(graph, query, cache=ColumnCache()) for query in queries]
        assert made > 0
        graph.ensure_indexes()
        graph.mutate("query q() { delete Doc where year = 2001 }")
        made = 0
        covered = [read(graph, query, cache=ColumnCache()) for query in queries]
        assert made == 0
        kept = ColumnCache()
        for _ in range(40):
            assert [read(graph, query, cache=kept) for query in queries] == covered
        assert made == 2, "one for each property"
        years = {row["id"]: row["year"] for row in graph.snapshot(version=3).scan("node:Doc").to_pylist()}
        assert covered == [[row for row in rows if years[row["s"]] != 2001] for rows in without]
        # The index is not used if it does not cover all rows.
        graph.load({"Doc": pa.table(document_columns(Random(9), ["new"]))}, mode="append", embed=False)
        read(graph, queries[0], cache=ColumnCache())
        assert made == 3


def test_vectors_that_fit_in_memory_need_no_index(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.read.columns.entity_table.EntityTable.nearest", None)
    text = "($v: Vector(16)) match { $d: Doc } return { $d.slug as slug } order { nearest($d.near, $v) } limit 3"
    assert len(read(graph, text, {"v": [0.0] * DIMENSION})) == 3
