"""An omitted vector with `@embed` is computed from its text before the write is staged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.embed import OfflineEmbedder, Purpose
from omnigraph.embed.mock import MockEmbedder
from omnigraph.errors import BadRowsError, EmbeddingError, EmbeddingModelError, EmbeddingUnavailableError
from omnigraph.graph import Graph

SCHEMA = """
node Note {
    name: String @key
    text: String?
    must: Vector(3) @embed(text)
}
node Page {
    name: String @key
    title: String?
    title_vec: Vector(4)? @embed(title)
    body: String?
    body_vec: Vector(2)? @embed(body, model="acme/embed-small")
}
"""


class Counting:
    """The mock embedder. It records its inputs, and fails on request."""

    def __init__(self) -> None:
        self.name = "acme/embed-small"
        self.asked: list[list[str]] = []
        self.error: EmbeddingError | None = None

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> np.ndarray:
        assert purpose is Purpose.DOCUMENT
        self.asked.append(list(texts))
        if self.error is not None:
            raise self.error
        return MockEmbedder().embed(texts, dimension, purpose=purpose)


@pytest.fixture
def embedder() -> Counting:
    return Counting()


@pytest.fixture
def graph(tmp_path: Path, embedder: Counting, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    with omnigraph.init(tmp_path / "g", SCHEMA, embedder=embedder) as graph:
        yield graph


def of(text: str, dimension: int) -> object:
    return pytest.approx(MockEmbedder().embed([text], dimension, purpose=Purpose.DOCUMENT)[0].tolist())


def ndjson(path: Path, *records: dict[str, object], type_name: str = "Page") -> Path:
    lines = [orjson.dumps({"type": type_name, "data": data}) for data in records]
    file = path / "input.ndjson"
    file.write_bytes(b"\n".join(lines) + b"\n")
    return file


def value(graph: Graph, name: str, prop: str, type_name: str = "Page") -> object:
    found = graph.entity(type_name, name)
    assert found is not None
    return found[prop]


# ---- loads


def test_a_load_computes_omitted_vectors(graph: Graph, embedder: Counting, tmp_path: Path) -> None:
    file = ndjson(
        tmp_path,
        {"name": "absent", "title": "one"},
        {"name": "null", "title": "two", "title_vec": None},
        {"name": "given", "title": "three", "title_vec": [0, 0, 0, 5]},
        {"name": "no text"},
        {"name": "blank", "title": " "},
        {"name": "same", "title": "one", "body": "long"},
    )
    graph.load(file, mode="append")
    assert value(graph, "absent", "title_vec") == of("one", 4)
    assert value(graph, "same", "title_vec") == of("one", 4)
    assert value(graph, "same", "body_vec") == of("long", 2)
    assert value(graph, "given", "title_vec") == [0, 0, 0, 5]
    for name in ("null", "no text", "blank"):
        assert value(graph, name, "title_vec") is None
    assert sorted(embedder.asked) == [["long"], ["one"]]


@pytest.mark.parametrize("awkward", ['a "title_vec": null', "a \\ b", "a \u00e9", "line\nline", '\\"title_vec\\":null'])
def test_an_explicit_null_is_not_confused_with_text_that_looks_like_it(
    graph: Graph, tmp_path: Path, awkward: str
) -> None:
    graph.load(
        ndjson(tmp_path, {"name": "a", "title": awkward}, {"name": "b", "title_vec": None, "title": awkward}),
        mode="append",
    )
    assert value(graph, "a", "title_vec") == of(awkward, 4)
    assert value(graph, "b", "title_vec") is None


def test_vectors_of_a_missing_column_are_computed(graph: Graph, embedder: Counting) -> None:
    graph.load({"Page": pa.table({"name": ["a", "b"], "title": ["one", None]})}, mode="append")
    assert value(graph, "a", "title_vec") == of("one", 4)
    nulls = pa.table({"name": ["c"], "title": ["one"], "title_vec": pa.nulls(1, pa.list_(pa.float32(), 4))})
    graph.load({"Page": nulls}, mode="append")
    assert value(graph, "c", "title_vec") is None
    assert embedder.asked == [["one"]]


def test_a_required_vector_is_computed_even_for_null(graph: Graph, embedder: Counting, tmp_path: Path) -> None:
    file = ndjson(
        tmp_path,
        {"name": "a", "text": "one"},
        {"name": "b", "text": "two", "must": None},
        {"name": "c", "text": "three", "must": [1, 2, 3]},
        {"name": "d", "must": [1, 2, 3]},
        type_name="Note",
    )
    graph.load(file, mode="append")
    assert value(graph, "a", "must", "Note") == of("one", 3)
    assert value(graph, "b", "must", "Note") == of("two", 3)
    assert value(graph, "d", "must", "Note") == [1, 2, 3]
    assert embedder.asked == [["one", "two"]]


def test_a_required_vector_needs_a_text(graph: Graph, embedder: Counting, tmp_path: Path) -> None:
    before = graph.snapshot().commit
    file = ndjson(tmp_path, {"name": "a"}, {"name": "b", "text": "\t"}, {"name": "c", "text": "x"}, type_name="Note")
    with pytest.raises(BadRowsError) as caught:
        graph.load(file, mode="append")
    missing = "Note.must: is required, and there is no text in 'text' to compute it from"
    assert [str(problem).partition(": ")[2] for problem in caught.value.problems] == [missing, missing]
    assert [problem.record for problem in caught.value.problems] == [1, 2]
    assert embedder.asked == []  # nothing will be written, so nothing is embedded
    assert graph.snapshot().commit == before


def test_a_load_can_skip_embedding(graph: Graph, embedder: Counting, tmp_path: Path) -> None:
    graph.load(ndjson(tmp_path, {"name": "a", "title": "one", "body": "long"}), mode="append", embed=False)
    assert value(graph, "a", "title_vec") is None
    with pytest.raises(BadRowsError, match=r"Note\.must: is required"):
        graph.load(ndjson(tmp_path, {"name": "a", "text": "one"}, type_name="Note"), mode="append", embed=False)
    assert embedder.asked == []


def test_bad_input_is_not_embedded(graph: Graph, embedder: Counting, tmp_path: Path) -> None:
    with pytest.raises(BadRowsError):
        graph.load(ndjson(tmp_path, {"name": 7, "title": "one"}), mode="append")
    with pytest.raises(BadRowsError):
        graph.load({"Page": pa.table({"name": [None], "title": ["one"]})}, mode="append")
    assert embedder.asked == []


@pytest.mark.parametrize("error", [EmbeddingError("no"), EmbeddingUnavailableError("busy")])
def test_a_failing_provider_fails_the_load(
    graph: Graph, embedder: Counting, tmp_path: Path, error: EmbeddingError
) -> None:
    embedder.error = error
    before = graph.snapshot()
    with pytest.raises(type(error), match=r"Page\.title_vec: "):
        graph.load(ndjson(tmp_path, {"name": "a", "title": "one"}), mode="append")
    assert graph.snapshot().commit == before.commit


def test_a_load_with_another_model_is_refused(graph: Graph, embedder: Counting, tmp_path: Path) -> None:
    embedder.name = "other"
    file = ndjson(tmp_path, {"name": "a", "body": "long"})
    with pytest.raises(EmbeddingModelError, match=r"Page\.body_vec: the schema records the model 'acme/embed-small'"):
        graph.load(file, mode="append")
    graph.load(ndjson(tmp_path, {"name": "a", "body": "long", "body_vec": None}), mode="append")
    assert value(graph, "a", "body_vec") is None


# ---- mutations


def test_an_insert_computes_omitted_vectors(graph: Graph, embedder: Counting) -> None:
    text = """
    query write($text: String) {
        insert Note { name: "a", text: $text }
        insert Note { name: "b", text: "two" }
        insert Page { name: "a", title: $text, title_vec: null }
        insert Page { name: "b", title: "two", body: "three" }
    }
    """
    graph.mutate(text, {"text": "one"})
    assert value(graph, "a", "must", "Note") == of("one", 3)
    assert value(graph, "b", "must", "Note") == of("two", 3)
    assert value(graph, "a", "title_vec") is None
    assert value(graph, "b", "title_vec") == of("two", 4)
    assert value(graph, "b", "body_vec") == of("three", 2)
    assert sorted(embedder.asked) == [["one", "two"], ["three"], ["two"]]


def test_an_update_of_a_text_recomputes_its_vector(graph: Graph) -> None:
    graph.mutate('query write() { insert Note { name: "a", text: "one" } }')
    graph.mutate('query write() { update Note set { text: "two" } where name = "a" }')
    assert value(graph, "a", "must", "Note") == of("two", 3)


def test_a_failing_provider_fails_the_mutation(graph: Graph, embedder: Counting) -> None:
    embedder.error = EmbeddingUnavailableError("busy")
    before = graph.snapshot().commit
    with pytest.raises(EmbeddingUnavailableError, match=r"Note\.must: busy"):
        graph.mutate('query write() { insert Note { name: "a", text: "one" } }')
    assert graph.snapshot().commit == before


# ---- the embedder of a handle


def test_without_an_embedder_the_offline_model_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMNIGRAPH_EMBED_PROVIDER", "OMNIGRAPH_EMBED_MODEL", "OMNIGRAPH_EMBED_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OMNIGRAPH_EMBEDDINGS_MOCK", raising=False)
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        assert isinstance(graph.embedder, OfflineEmbedder)
        graph.load({"Page": pa.table({"name": ["a"], "title": ["one"]})}, mode="append")
        expected = OfflineEmbedder().embed(["one"], 4, purpose=Purpose.DOCUMENT)[0].tolist()
        assert value(graph, "a", "title_vec") == expected


def test_wrong_settings_matter_only_if_a_vector_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNIGRAPH_EMBEDDINGS_MOCK", raising=False)
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "nobody")
    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        graph.load({"Page": pa.table({"name": ["a"]})}, mode="append")
        with pytest.raises(EmbeddingError, match="'nobody', which is not a provider"):
            graph.load({"Page": pa.table({"name": ["b"], "title": ["one"]})}, mode="append")
