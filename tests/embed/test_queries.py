"""Texts that are looked for are embedded when a query runs, by the provider and the model that made the vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from tests.embed.provider import Answer, Provider, always, openai
from tests.patience import PATIENCE

import omnigraph
from omnigraph.embed import Purpose, default_embedder
from omnigraph.errors import BudgetExceededError, CancelledError, EmbeddingModelError, EmbeddingUnavailableError
from omnigraph.graph import Graph
from omnigraph.read.budget import Budget, Cancellation

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
        with pytest.raises(EmbeddingUnavailableError, match="HTTP status 503"):
            found(graph, "a")
        assert graph.query("query q() { match { $d: Doc } return { count($d) as n } }").to_pylist() == [{"n": 3}]


def test_another_model_is_refused_before_anybody_is_asked(provider: Provider, place: Path) -> None:
    with (
        at(provider, place, model="m/large") as graph,
        pytest.raises(EmbeddingModelError, match=r"m/small[\s\S]*m/large|m/large[\s\S]*m/small"),
    ):
        found(graph, "a")
    assert provider.seen == []


def test_all_texts_of_a_query_are_embedded_at_once(provider: Provider, place: Path) -> None:
    near = 'nearest($d.place, "zebra")'
    text = f"""query near($text: String) {{
        match {{ $d: Doc }}
        return {{ $d.slug as slug, {near} as far }}
        order {{ rrf(nearest($d.place, $text), {near}) }}
        limit 2
    }}"""
    with at(provider, place) as graph:
        assert graph.query(text, {"text": "a"}).to_pylist()[0]["slug"] in ("a", "zebra")
    assert [seen.body["input"] for seen in provider.seen] == [["zebra", "a"]]


class Slow:
    """An embedder that takes its time over a query: until it is told, or half a minute."""

    name = "m/small"

    def __init__(self) -> None:
        self.begun, self.finish, self.ended = Event(), Event(), Event()
        self.asked: list[list[str]] = []

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> np.ndarray:
        if purpose is Purpose.QUERY:
            self.asked.append(list(texts))
            self.begun.set()
            self.finish.wait(30)
            self.ended.set()
        return np.array([[1.0, len(text), ord(text[-1]), 1.0] for text in texts])[:, :dimension]


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.finish.set()


def test_a_query_that_is_being_embedded_can_be_cancelled(place: Path, slow: Slow) -> None:
    cancel = Cancellation()
    with omnigraph.open(place, embedder=slow) as graph, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(graph.query, NEAREST, {"text": "a"}, cancel=cancel)
        assert slow.begun.wait(PATIENCE)
        cancel.cancel()
        with pytest.raises(CancelledError):
            reading.result(PATIENCE)
        assert not slow.ended.is_set()


def test_embedding_takes_no_longer_than_the_query_may(place: Path, slow: Slow) -> None:
    with omnigraph.open(place, embedder=slow) as graph:
        with pytest.raises(BudgetExceededError, match="seconds"):
            graph.query(NEAREST, {"text": "a"}, budget=Budget(seconds=0.2))
        assert not slow.ended.is_set()


def test_an_analysis_in_blocks_embeds_once(place: Path, slow: Slow) -> None:
    slow.finish.set()
    text = """query q($text: String) {
        match { $a: Doc $b: Doc $c: Doc }
        return { $a.slug as a, $b.slug as b, $c.slug as c }
        order { nearest($a.place, $text) }
        limit 20000
    }"""
    with omnigraph.open(place, embedder=slow) as graph:
        graph.load({"Doc": [{"slug": f"d{i}", "text": f"text {i}"} for i in range(30)]}, mode="append")
        found = graph.explain(text, {"text": "a"}, analyze=True, budget=Budget(memory=128 * 1024))
    assert [step.action for step in found.steps] == ["blocks"]
    assert slow.asked == [["a"]]
