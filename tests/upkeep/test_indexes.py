"""Indexes are built as declared in the schema, for rows that are not covered yet, and never change an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.read.searching import document_columns, library, read

import omnigraph
from omnigraph.commit.snapshots import Snapshot
from omnigraph.errors import ReadOnlyError
from omnigraph.graph import Graph
from omnigraph.upkeep.declared_indexes import declared
from omnigraph.upkeep.indexes import FEWEST_VECTORS, IndexReceipt, ensure_indexes

KINDS = """
node Thing {
    name: String @key
    text: String
    tags: [String]?
    color: enum(red, green)
    flag: Bool
    small: I32
    big: I64
    nat: U32
    huge: U64
    single: F32
    double: F64?
    day: Date
    time: DateTime
    vec: Vector(4)?
    spot: Vector(4)?
    @index(text, kind="fts", language="german", stem=false, positions=false)
    @index(text, kind="ngram")
    @index(text, kind="btree")
    @index(tags)
    @index(color)
    @index(color, kind="bitmap")
    @index(flag)
    @index(small)
    @index(big)
    @index(nat)
    @index(huge)
    @index(single)
    @index(double)
    @index(day)
    @index(time)
    @index(time, kind="bitmap")
    @index(vec, kind="vector", metric="cosine", method="ivf_pq", partitions=2, sub_vectors=2, bits=8)
    @index(spot, metric="dot")
    @index(day, time)
    @unique(big)
}
node Empty { name: String @key }
edge Near: Thing -> Thing {
    weight: F64?
    @index(weight, kind="btree")
}
"""


def things(count: int, first: int = 0) -> pa.Table:
    numbers = np.arange(first, first + count)
    random = np.random.default_rng(first)
    kind = pa.list_(pa.float32(), 4)
    return pa.table(
        {
            "name": [f"thing {number}" for number in numbers],
            "text": [f"Häuser und Gärten {number % 7}" for number in numbers],
            "tags": pa.array([["a", "b"][: number % 3] for number in numbers], pa.list_(pa.utf8())),
            "color": ["red" if number % 2 else "green" for number in numbers],
            "flag": numbers % 3 == 0,
            "small": pa.array(numbers, pa.int32()),
            "big": numbers,
            "nat": pa.array(numbers, pa.uint32()),
            "huge": pa.array(numbers, pa.uint64()),
            "single": pa.array(numbers, pa.float32()),
            "double": pa.array(numbers / 2, mask=numbers % 5 == 0),
            "day": pa.array(numbers, pa.int32()).cast(pa.date32()),
            "time": pa.array(numbers * 1000, pa.int64()).cast(pa.timestamp("ms", "UTC")),
            "vec": pa.array(random.standard_normal((count, 4)).astype(np.float32).tolist(), kind),
            "spot": pa.nulls(count, kind),
        }
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "g", KINDS) as graph:
        graph.load({"Thing": things(300), "Near": [{"from": "thing 1", "to": "thing 2"}]}, mode="append")
        yield graph


def ensure(graph: Graph, branch: str = "main", *, fewest_vectors: int = FEWEST_VECTORS) -> IndexReceipt:
    return ensure_indexes(graph.session.store, branch, lambda _: graph.catalog, fewest_vectors=fewest_vectors)


def covered(graph: Graph, branch: str = "main") -> dict[tuple[str, str, str], tuple[int, int]]:
    return {
        (index.type_key, index.property, index.kind): (index.covered, index.uncovered)
        for index in graph.indexes(branch=branch)
    }


THING = (
    *(("id", "btree"), ("name", "fts"), ("text", "fts"), ("text", "ngram"), ("text", "btree"), ("color", "btree")),
    *(("color", "bitmap"), ("flag", "btree"), ("small", "btree"), ("big", "btree"), ("nat", "btree")),
    *(("huge", "btree"), ("single", "btree"), ("double", "btree"), ("day", "btree"), ("time", "btree")),
    *(("time", "bitmap"), ("vec", "vector"), ("spot", "vector")),
)


def test_the_schema_declares_the_indexes(graph: Graph) -> None:
    """Ids and ends always; declared indexes on one property; none for lists, several properties and `@unique`."""
    wanted = declared(graph.catalog)
    assert {(index.property, index.kind.value) for index in wanted["node:Thing"]} == set(THING)
    ends = [(index.property, index.kind.value) for index in wanted["edge:Near"]]
    assert ends == [("id", "btree"), ("src", "btree"), ("dst", "btree"), ("weight", "btree")]
    assert [index.property for index in wanted["node:Empty"]] == ["id", "name"]


def test_all_kinds_of_indexes_are_built_in_one_commit(graph: Graph) -> None:
    before = graph.snapshot().commit
    receipt = graph.ensure_indexes()
    assert receipt.commit is not None
    assert receipt.commit.parent == before.id
    assert receipt.commit.writer == "EnsureIndexes"
    assert {pending.property for pending in receipt.pending} == {"vec", "spot"}
    for (key, name, kind), rows in covered(graph).items():
        total = {"node:Thing": 300, "edge:Near": 1, "node:Empty": 0}[key]
        assert rows == ((0, 300) if kind == "vector" else (total, 0)), (key, name, kind)
    assert {(index.property, index.kind) for index in receipt.built if index.type_key == "node:Thing"} == {
        pair for pair in THING if pair[1] != "vector"
    }


def test_covered_rows_are_not_indexed_again(graph: Graph) -> None:
    assert graph.ensure_indexes().commit is not None
    versions = {key: pin.ref for key, pin in graph.snapshot().tables.items()}
    again = graph.ensure_indexes()
    assert again.commit is None
    assert again.built == ()
    assert {key: pin.ref for key, pin in graph.snapshot().tables.items()} == versions


def test_new_rows_get_their_own_index_segment(graph: Graph) -> None:
    graph.ensure_indexes()
    graph.load({"Thing": things(50, 300)}, mode="append")
    assert covered(graph)["node:Thing", "big", "btree"] == (300, 50)
    receipt = graph.ensure_indexes()
    assert {index.type_key for index in receipt.built} == {"node:Thing"}
    assert covered(graph)["node:Thing", "big", "btree"] == (350, 0)
    assert graph.ensure_indexes().commit is None


def test_few_vectors_get_no_vector_index(graph: Graph) -> None:
    receipt = graph.ensure_indexes()
    reasons = {pending.property: pending.reason for pending in receipt.pending}
    assert reasons["vec"] == f"fewer than {FEWEST_VECTORS} vectors are searched exactly"
    built = ensure(graph, fewest_vectors=256)
    assert [(index.property, index.kind) for index in built.built] == [("vec", "vector")]
    # A column without any vector cannot have an index, even with many rows.
    assert [pending.property for pending in built.pending] == ["spot"]
    assert covered(graph)["node:Thing", "vec", "vector"] == (300, 0)


def test_invalid_index_parameters_are_reported(tmp_path: Path) -> None:
    schema = 'node Thing { name: String @key  vec: Vector(4) @index(vec, method="ivf_pq", sub_vectors=3) }'
    with omnigraph.init(tmp_path / "odd", schema) as graph:
        graph.load({"Thing": things(20).select(["name", "vec"])}, mode="append")
        (pending,) = (p for p in graph.ensure_indexes().pending if p.property == "vec")
        assert pending.reason == "3 sub_vectors do not divide 4 dimensions"


def test_changed_parameters_replace_an_index(tmp_path: Path) -> None:
    """Indexes that the schema no longer declares are dropped in the same commit."""
    place = tmp_path / "g"
    with omnigraph.init(place, 'node Doc { name: String @key  text: String @index(text, kind="fts") }') as graph:
        graph.load({"Doc": things(20).select(["name", "text"])}, mode="append")
        graph.ensure_indexes()
        german = omnigraph.init(
            tmp_path / "other",
            'node Doc { name: String @key  text: String @index(text, language="german", kind="fts") }',
        )
        receipt = ensure_indexes(graph.session.store, "main", lambda _: german.catalog)
        german.close()
        assert [(index.property, index.kind) for index in receipt.built] == [("text", "fts")]
        names = {index.name for index in _described(graph, "node:Doc")}
        assert len([name for name in names if name.startswith("text_fts")]) == 1


def _described(graph: Graph, key: str) -> list[Any]:
    ref = graph.snapshot().pin(key).ref
    return list(graph.session.store.tables.at(ref).dataset.describe_indices())


def test_indexes_of_a_branch_are_built_only_for_its_new_rows(graph: Graph) -> None:
    graph.ensure_indexes()
    graph.branches.create("work")
    before = {key: pin.ref for key, pin in graph.snapshot(branch="work").tables.items()}
    assert graph.ensure_indexes(branch="work").commit is None
    assert {key: pin.ref for key, pin in graph.snapshot(branch="work").tables.items()} == before
    graph.load({"Thing": things(50, 300)}, mode="append", branch="work")
    receipt = graph.ensure_indexes(branch="work")
    assert {index.type_key for index in receipt.built} == {"node:Thing"}
    assert covered(graph, "work")["node:Thing", "big", "btree"] == (350, 0)
    assert covered(graph)["node:Thing", "big", "btree"] == (300, 0)


def test_a_read_only_handle_builds_no_indexes(graph: Graph, tmp_path: Path) -> None:
    with omnigraph.open(tmp_path / "g", read_only=True) as reader:
        assert reader.indexes()
        with pytest.raises(ReadOnlyError):
            reader.ensure_indexes()


# Answers

QUERIES = (
    'match { $d: Doc search($d.text, "graphs naive") } return { $d.slug as slug, bm25($d.text, "graphs naive") as s }'
    " order { s desc, slug }",
    'match { $d: Doc search($d.text, "graph engine", all=true) } return { $d.slug as slug } order { slug }',
    'match { $d: Doc match_text($d.text, "state of the art") } return { $d.slug as slug } order { slug }',
    'match { $d: Doc fuzzy($d.text, "databse") } return { $d.slug as slug } order { slug }',
    'match { $d: Doc fuzzy($d.title, "quik", 1) } return { $d.slug as slug } order { slug }',
    'match { $d: Doc } return { $d.slug as slug, bm25($d.text, "graph join") as s }'
    ' order { bm25($d.text, "graph join") } limit 7',
    "match { $d: Doc } return { $d.slug as slug, nearest($d.near, [0.5, 0.5, 1.0]) as far }"
    " order { nearest($d.near, [0.5, 0.5, 1.0]) } limit 9",
    "match { $d: Doc { year: 2001 } } return { $d.slug as slug, nearest($d.angle, [0.5, 0.5, 1.0]) as far }"
    " order { nearest($d.angle, [0.5, 0.5, 1.0]) } limit 9",
    'match { $d: Doc } return { $d.slug as slug } order { rrf(nearest($d.inner, [1.0, 0.5, 0.0]), bm25($d.text, "fox"))'
    " } limit 9",
    'match { $t: Topic { slug: "t1" } $d about $t not { $d cites $o search($o.text, "graph") } }'
    ' return { $d.slug as slug } order { bm25($d.text, "engine") }',
    'match { $d: Doc { slug: "d003" } $d cites $o } return { $o.slug as slug } order { slug }',
)


def answers(graph: Graph, at: Snapshot | None = None) -> list[list[dict[str, Any]]]:
    return [read(graph, query, at=at) for query in QUERIES]


def test_an_index_never_changes_an_answer(tmp_path: Path) -> None:
    """The same rows without indexes, with full and partial coverage, and after rows were deleted and inserted again."""
    with library(tmp_path, docs=80) as graph:
        bare = graph.snapshot()
        without = answers(graph)
        assert all(without)
        graph.branches.create("bare")
        ensure(graph, fewest_vectors=1)
        assert covered(graph)["node:Doc", "angle", "vector"] == (80, 0)
        assert answers(graph) == without
        assert answers(graph, bare) == without
        uncovered = []
        steps = (
            lambda branch: graph.load(
                {"Doc": pa.table(document_columns(Random(5), [f"d{n:03}" for n in range(60, 110)]))},
                mode="merge",
                embed=False,
                branch=branch,
            ),
            lambda branch: graph.mutate("query q() { delete Doc where year = 2002 }", branch=branch),
        )
        for step in steps:
            for branch in ("main", "bare"):
                step(branch)
            uncovered.append(covered(graph)["node:Doc", "text", "fts"][1])
            expected = answers(graph, graph.snapshot(branch="bare"))
            assert expected != without
            assert answers(graph) == expected  # partly covered
            ensure(graph, fewest_vectors=1)
            assert covered(graph)["node:Doc", "text", "fts"][1] == 0
            assert answers(graph) == expected
        assert uncovered[0] > 0


def test_a_bitmap_index_does_not_find_rows_by_old_values(tmp_path: Path) -> None:
    """With a second segment beside the first, a row would be found by its old and its new value."""
    schema = 'node P { name: String @key  color: enum(red, green)  @index(color, kind="bitmap") }'
    with omnigraph.init(tmp_path / "g", schema) as graph:
        names = [f"p{i}" for i in range(20)]
        graph.load({"P": pa.table({"name": names, "color": ["red"] * 20})}, mode="append")
        graph.ensure_indexes()
        graph.load({"P": pa.table({"name": ["p3", "new"], "color": ["green"] * 2})}, mode="merge")
        graph.ensure_indexes()
        assert all(index.uncovered == 0 for index in graph.indexes())
        snapshot = graph.snapshot()
        found = {
            color: sorted(
                snapshot.scan("node:P", columns=["name"], filter=pc.field("color") == color)["name"].to_pylist()
            )
            for color in ("red", "green")
        }
        assert found == {"red": sorted(set(names) - {"p3"}), "green": ["new", "p3"]}
