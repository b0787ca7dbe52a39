"""Texts that are looked for are embedded when a query runs, by the provider and the model that made the vectors."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.embed.provider import Answer, Provider, always, openai

import omnigraph
from omnigraph.embed import default_embedder
from omnigraph.errors import EmbeddingModelError, EmbeddingUnavailableError
from omnigraph.graph import Graph

SCHEMA = """
node Doc {
    slug: String @key
    text: String
    place: Vector(4) @embed("text", model="m/small")
}
"""
NEAREST = """query near($text: String) {
    match { $d: Doc }
    return { $d.slug as slug }
    order { nearest($d.place, $text) }
    limit 1
}"""
DOCS = [{"slug": text, "text": text} for text in ("a", "a longer text", "zebra")]


def at(provider: Provider, place: Path, model: str = "m/small", **settings: object) -> Graph:
    """The graph, with an embedder that asks a provider."""
    variables = {
        "OMNIGRAPH_EMBED_PROVIDER": "openai",
        "OMNIGRAPH_EMBED_BASE_URL": provider.url,
        "OMNIGRAPH_EMBED_MODEL": model,
        "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS": "1",
        "OPENAI_API_KEY": "key",
    }
    given = {f"OMNIGRAPH_EMBED_{name}": str(value) for name, value in settings.items()}
    return omnigraph.open(place, embedder=default_embedder(variables | given))


@pytest.fixture
def place(tmp_path: Path, provider: Provider) -> Path:
    found = tmp_path / "g"
    omnigraph.init(found, SCHEMA).close()
    with at(provider, found) as graph:
        graph.load({"Doc": DOCS}, mode="append")
    provider.seen.clear()
    return found


def found(graph: Graph, text: str) -> list[str]:
    return [row["slug"] for row in graph.query(NEAREST, {"text": text})]


def test_the_provider_is_asked_once_for_each_query(provider: Provider, place: Path) -> None:
    with at(provider, place) as graph:
        assert found(graph, "zebra") == ["zebra"]
        assert [(seen.body["model"], seen.body["input"]) for seen in provider.seen] == [("m/small", ["zebra"])]


def test_a_passing_failure_is_not_one_of_the_query(provider: Provider, place: Path) -> None:
    provider.behaviours = [always(Answer(503)), always(Answer(429)), openai]
    with at(provider, place) as graph:
        assert found(graph, "a longer text") == ["a longer text"]
    assert len(provider.seen) == 3


def test_a_provider_that_does_not_answer_fails_the_query_and_nothing_else(provider: Provider, place: Path) -> None:
    provider.behaviours = [always(Answer(503))]
    with at(provider, place, RETRY_ATTEMPTS=2) as graph:
        with pytest.raises(EmbeddingUnavailableError, match="answered 503"):
            found(graph, "a")
        assert graph.query("query q() { match { $d: Doc } return { count($d) as n } }").to_pylist() == [{"n": 3}]


def test_another_model_is_refused_before_anybody_is_asked(provider: Provider, place: Path) -> None:
    with (
        at(provider, place, model="m/large") as graph,
        pytest.raises(EmbeddingModelError, match=r"m/small[\s\S]*m/large|m/large[\s\S]*m/small"),
    ):
        found(graph, "a")
    assert provider.seen == []
