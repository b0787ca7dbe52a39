"""Vectors of `@embed` properties: computed for existing rows, and known under their new names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commit.graphs import assert_whole

import omnigraph
from omnigraph.embed import Purpose, embed_column
from omnigraph.embed.embedder import Vectors
from omnigraph.embed.mock import MockEmbedder
from omnigraph.errors import EmbeddingError, EmbeddingModelError
from omnigraph.graph import Graph

PLAIN = "node Doc { name: String @key  text: String?  other: String? }"
WITH = 'node Doc { name: String @key  text: String?  other: String?  vec: Vector(8)? @embed("text") }'
RENAMED = (
    'node Doc { name: String @key  body: String? @rename_from("text")  other: String?'
    '  place: Vector(8)? @embed("body") @rename_from("vec") }'
)
DROPPED = "node Doc { name: String @key  body: String?  other: String? }"
TEXTS = ["one", "two", None, "  ", "one"]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = omnigraph.init(tmp_path / "docs", PLAIN, embedder=MockEmbedder())
    rows = pa.table({"name": [f"d{i}" for i in range(5)], "text": TEXTS, "other": ["x"] * 5})
    for part in (rows.slice(0, 2), rows.slice(2)):
        graph.load({"Doc": part}, mode="append")
    graph.branches.create("dev")
    return graph


def vectors(graph: Graph, name: str) -> dict[str, object]:
    rows = graph.snapshot().scan("node:Doc", columns=["id", name])
    return dict(zip(rows["id"].to_pylist(), rows[name].to_pylist(), strict=True))


def expected(graph: Graph, schema: str, name: str) -> dict[str, object]:
    prop = omnigraph.compile_schema(schema).nodes["Doc"].properties[name]
    found = embed_column(graph.embedder, pa.array(TEXTS, pa.utf8()), prop, "Doc").to_pylist()
    return {f"d{i}": vector for i, vector in enumerate(found)}


def models(graph: Graph) -> dict[str, object]:
    return dict(graph.snapshot().pin("node:Doc").models)


def test_vectors_of_a_new_property_are_computed_in_the_same_commit(graph: Graph) -> None:
    before = graph.snapshot().commit.id
    done = graph.schema.apply(WITH)
    assert vectors(graph, "vec") == expected(graph, WITH, "vec")
    assert vectors(graph, "vec")["d2"] is None
    assert models(graph) == {"vec": ((graph.embedder.name, "text"),)}
    assert done.commit is not None
    assert done.commit.parent == before
    assert graph.embed().total.changed == 0, "all vectors are up to date"
    assert_whole(graph)


def test_a_renamed_vector_keeps_its_model_and_a_dropped_one_loses_it(graph: Graph) -> None:
    graph.schema.apply(WITH)
    before = vectors(graph, "vec")
    graph.schema.apply(RENAMED)
    assert vectors(graph, "place") == before
    assert models(graph) == {"place": ((graph.embedder.name, "body"),)}
    assert graph.embed().total.changed == 0
    graph.schema.apply(DROPPED)
    assert models(graph) == {}


def test_a_new_source_of_the_same_name_makes_vectors_stale(graph: Graph) -> None:
    """The old text property is dropped, and a new one has its name: the vectors belong to other texts."""
    graph.schema.apply(WITH)
    gone = 'node Doc { name: String @key  other: String?  vec: Vector(8)? @embed("other") }'
    graph.schema.apply(gone)
    again = 'node Doc { name: String @key  text: String?  other: String?  vec: Vector(8)? @embed("text") }'
    graph.schema.apply(again)
    assert models(graph)["vec"] != ((graph.embedder.name, "text"),), "so `embed` compares all vectors"


def test_a_new_vector_can_be_computed_from_a_new_text(graph: Graph) -> None:
    new = (
        'node Doc { name: String @key  text: String?  other: String?  kind: String @default("poem")'
        '  vec: Vector(8)? @embed("kind") }'
    )
    graph.schema.apply(new)
    found = vectors(graph, "vec")
    prop = omnigraph.compile_schema(new).nodes["Doc"].properties["vec"]
    (wanted,) = embed_column(graph.embedder, pa.array(["poem"]), prop, "Doc").to_pylist()
    assert list(found.values()) == [wanted] * 5


class Broken:
    """An embedder whose provider is down."""

    name = "broken"

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> Vectors:
        raise EmbeddingError("the provider is down")


def test_vectors_that_cannot_be_computed_stop_the_change(graph: Graph) -> None:
    head = graph.snapshot().commit.id
    graph.session._embedder = Broken()
    with pytest.raises(EmbeddingError, match="the provider is down"):
        graph.schema.apply(WITH.replace("Vector(8)", "Vector(16)"))
    with pytest.raises(EmbeddingModelError):
        graph.schema.apply(WITH.replace('@embed("text")', '@embed("text", model="other/model")'))
    assert graph.snapshot().commit.id == head
    assert graph.schema.source == PLAIN
    assert_whole(graph)


def test_an_empty_type_needs_no_embedder(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "empty", PLAIN, embedder=Broken()) as graph:
        assert graph.schema.apply(WITH).applied
        assert models(graph) == {}
