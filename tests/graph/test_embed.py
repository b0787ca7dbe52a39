"""`embed` updates vectors in one commit, keeps current vectors, and changes nothing if it fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.embed.provider import Provider, always, answer, hang, openai, running_provider
from tests.patience import until

import omnigraph
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.embed import Purpose, default_embedder
from omnigraph.errors import (
    CancelledError,
    EmbeddingError,
    EmbeddingModelError,
    EmbeddingUnavailableError,
    InputError,
    PreconditionFailedError,
)
from omnigraph.graph import Graph
from omnigraph.read.budget import Cancellation
from omnigraph.upkeep.vectors import Counts, EmbedProgress

SCHEMA = """
node Note {
    name: String @key
    title: String?
    text: String?
    size: I64?
    photo: Blob?
    title_vec: Vector(4)? @embed("title")
    text_vec: Vector(4)? @embed("text")
}
node Tag { name: String @key  vec: Vector(3) @embed("name") }
node Plain { name: String @key }
"""


class Model:
    """A model whose vectors depend on its name and the text."""

    def __init__(self, name: str = "one") -> None:
        self.name = name
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> np.ndarray:
        self.asked += texts
        return np.array([self.raw(text, dimension) for text in texts])

    def raw(self, text: str, dimension: int) -> list[float]:
        return [float(len(self.name)), float(len(text)), *(float(ord(text[0]) + n) for n in range(dimension - 2))]

    def vector(self, text: str, dimension: int = 4) -> np.ndarray:
        raw = np.array(self.raw(text, dimension))
        return np.asarray(raw / np.linalg.norm(raw), np.float32)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "graph")


def notes(names: Sequence[str], **columns: Sequence[Any]) -> dict[str, pa.Table]:
    made: dict[str, Any] = {"name": names, "title": [f"title {n}" for n in names], "text": [f"text {n}" for n in names]}
    return {"Note": pa.table(made | {name: pa.array(values) for name, values in columns.items()})}


def opened(place: str, model: Model | None = None) -> Graph:
    if not Path(place).exists():
        return omnigraph.init(place, SCHEMA, embedder=model or Model())
    return omnigraph.open(place, embedder=model or Model())


def stored(graph: Graph, name: str, prop: str = "text_vec", kind: str = "Note") -> list[float] | None:
    found = graph.entity(kind, name)
    assert found is not None
    return found[prop]  # type: ignore[return-value]


def test_another_model_recomputes_every_vector(place: str) -> None:
    with opened(place) as graph:
        graph.load(notes(["a", "b", "c"], size=[1, 2, 3], photo=[b"x", None, b"z"]), mode="append")
    other = Model("other")
    with opened(place, other) as graph:
        receipt = graph.embed(message="a new model")
        assert receipt.total == Counts(rows=3, changed=3, right=0, computed=6, cached=0)
        assert receipt.commit is not None
        assert (receipt.commit.message, receipt.commit.writer) == ("a new model", "Embed")
        assert dict(receipt.commit.labels) == {"model": "other"}
        assert len(list(graph.commits)) == 3
        assert stored(graph, "b") == other.vector("text b").tolist()
        assert stored(graph, "b", "title_vec") == other.vector("title b").tolist()
        assert graph.entity("Note", "c")["size"] == 3  # type: ignore[index]
        assert graph.blob("Note", "c", "photo").read() == b"z"
        assert graph.verify().total == 0


def test_current_vectors_are_not_recomputed(place: str) -> None:
    with opened(place) as graph:
        graph.load(notes(["a", "b"]), mode="append")
    model = Model()
    with opened(place, model) as graph:
        head = graph.snapshot().commit.id
        for which, asked in (("stale", 0), ("missing", 0), ("all", 4)):
            receipt = graph.embed(which=which)
            assert (receipt.commit, receipt.total.changed, receipt.total.right) == (None, 0, 2)
            assert len(model.asked) == asked
        assert graph.snapshot().commit.id == head


def test_missing_vectors_are_computed(place: str) -> None:
    model = Model()
    with opened(place, model) as graph:
        graph.load(notes(["a", "b", "c"]), mode="append", embed=False)
        graph.load(notes(["d", "e"], text=["   ", None]), mode="append")
        before = len(model.asked)
        receipt = graph.embed(which="missing")
        assert (receipt.total.changed, receipt.total.computed) == (3, 6)
        assert sorted(model.asked[before:]) == sorted(f"{what} {n}" for what in ("text", "title") for n in "abc")
        assert stored(graph, "d") is None
        assert stored(graph, "a") == model.vector("text a").tolist()
        assert graph.embed(which="missing").commit is None


def test_a_loaded_vector_is_replaced_only_if_all_are_requested(place: str) -> None:
    model = Model()
    given = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 0, 0, 0], pa.float32()), 4)
    with opened(place, model) as graph:
        graph.load({"Note": pa.table({"name": ["a"], "text": ["x"], "text_vec": given})}, mode="append")
        receipt = graph.embed()
        assert receipt.commit is None
        assert receipt.types[0].unknown == ("text_vec", "title_vec")
        receipt = graph.embed(which="all")
        assert receipt.types[0].unknown == ()
        assert stored(graph, "a") == model.vector("x").tolist()


def test_embedding_can_be_limited_to_types_and_properties(place: str) -> None:
    with opened(place) as graph:
        graph.load(notes(["a"]) | {"Tag": pa.table({"name": ["red"]})}, mode="append")
    other = Model("other")
    with opened(place, other) as graph:
        receipt = graph.embed(types="Note", properties=["title_vec"])
        assert [(each.type_name, each.properties) for each in receipt.types] == [("Note", ("title_vec",))]
        assert other.asked == ["title a"]
        assert stored(graph, "a") == Model().vector("text a").tolist()
        assert graph.embed(types=["Tag"]).total.changed == 1
        assert stored(graph, "red", "vec", "Tag") == other.vector("red", 3).tolist()
        assert graph.embed().total.changed == 1  # the remaining one
        assert graph.embed().total.changed == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"types": "Nte"}, "'Nte' is not a node type"),
        ({"types": "Plain"}, "'Plain' has no computed vector"),
        ({"properties": "text"}, "'text' is not a computed vector"),
        ({"types": "Tag", "properties": "text_vec"}, "'text_vec' is not a computed vector"),
        ({"which": "some"}, "which='some' does not select vectors"),
    ],
)
def test_unknown_types_properties_and_choices_are_refused(place: str, arguments: dict[str, Any], message: str) -> None:
    with opened(place) as graph, pytest.raises(InputError, match=message):
        graph.embed(**arguments)


def test_embedding_a_branch_changes_no_other_branch(place: str) -> None:
    with opened(place) as graph:
        graph.load(notes(["a", "b"]), mode="append")
        graph.branches.create("draft")
    other = Model("other")
    with opened(place, other) as graph:
        receipt = graph.embed(branch="draft")
        assert (receipt.branch, receipt.total.changed) == ("draft", 2)
        assert graph.branch("draft").entity("Note", "a")["text_vec"] == other.vector("text a").tolist()  # type: ignore[index]
        assert stored(graph, "a") == Model().vector("text a").tolist()
        assert graph.embed(branch="draft").commit is None
        assert graph.embed(check=True).total.changed == 2


def test_a_check_writes_nothing(place: str) -> None:
    with opened(place) as graph:
        graph.load(notes(["a", "b"]), mode="append", embed=False)
        head = graph.snapshot().commit.id
        receipt = graph.embed(check=True)
        assert (receipt.commit, receipt.total.changed) == (None, 2)
        assert graph.snapshot().commit.id == head
        assert stored(graph, "a") is None


def test_equal_texts_are_embedded_once_in_a_load(place: str) -> None:
    model = Model()
    rows = "".join(f'{{"type":"Note","data":{{"name":"{n}","text":"text {n % 7}"}}}}\n' for n in range(40_000))
    path = Path(place).with_suffix(".ndjson")
    path.write_text(rows)
    with opened(place, model) as graph:
        graph.load(path, mode="append", memory_budget=1 << 20)
    assert sorted(model.asked) == [f"text {n}" for n in range(7)]


def test_the_recorded_model_must_be_the_configured_one(tmp_path: Path) -> None:
    schema = 'node N { name: String @key  v: Vector(3)? @embed("name", model="acme") }'
    with omnigraph.init(tmp_path / "g", schema, embedder=Model("other")) as graph, pytest.raises(EmbeddingModelError):
        graph.embed()


def test_an_expected_head_is_checked(place: str) -> None:
    with opened(place) as graph:
        head = graph.snapshot().commit.id
        graph.load(notes(["a"]), mode="append", embed=False)
        with pytest.raises(PreconditionFailedError):
            graph.embed(expect_head=head)
        assert graph.embed(expect_head=graph.snapshot().commit.id).total.changed == 1


def test_embedding_reports_progress_and_can_be_cancelled(place: str) -> None:
    with opened(place) as graph:
        graph.load(notes([str(n) for n in range(10)]), mode="append", embed=False)
        told: list[EmbedProgress] = []
        stop = Cancellation()

        def progress(now: EmbedProgress) -> None:
            told.append(now)
            stop.cancel()

        with pytest.raises(CancelledError):
            graph.embed(progress=progress, cancel=stop)
        assert graph.embed(progress=told.append).total.changed == 10
        assert (told[-1].rows, told[-1].total, told[-1].counts.computed) == (10, 10, 20)


def test_vectors_that_exceed_the_memory_budget_are_spilled(place: str) -> None:
    with opened(place) as graph:
        graph.load(notes([str(n) for n in range(9000)]), mode="append", embed=False)
        assert graph.embed(memory_budget=10_000).total.changed == 9000
        assert graph.verify().total == 0
        assert stored(graph, "8765") == Model().vector("text 8765").tolist()


def test_rows_of_a_concurrent_commit_are_embedded(place: str) -> None:
    model = Model()
    with opened(place, model) as graph, opened(place) as another:
        graph.load(notes(["a", "b"]), mode="append", embed=False)
        done: list[object] = []

        def progress(now: EmbedProgress) -> None:
            if now.rows == 2 and not done:
                done.append(another.load(notes(["c"], size=[7]), mode="append", embed=False))

        receipt = graph.embed(progress=progress)
        assert done
        assert receipt.total.changed == 3
        assert {name: stored(graph, name) for name in "abc"} == {n: model.vector(f"text {n}").tolist() for n in "abc"}


# The recorded models of a table


def models(graph: Graph, branch: str = "main", key: str = "node:Tag") -> dict[str, set[str]]:
    return {name: {model for model, _ in pairs} for name, pairs in graph.snapshot(branch=branch).pin(key).models}


def test_every_write_records_the_models_of_its_vectors(place: str) -> None:
    tags = {"Tag": pa.table({"name": ["red"]})}
    with opened(place) as graph:
        graph.load(tags, mode="append")
        assert models(graph) == {"vec": {"one"}}
        graph.branches.create("draft")
    with opened(place, Model("second")) as graph:
        graph.mutate('query q() { insert Tag { name: "green" } }', branch="draft")
        assert (models(graph), models(graph, "draft")) == ({"vec": {"one"}}, {"vec": {"one", "second"}})
        assert graph.embed(branch="draft").total.changed == 1
        assert models(graph, "draft") == {"vec": {"second"}}
        with graph.branch("main").transaction() as work:
            work.mutate('query q() { insert Tag { name: "blue" } }')
        assert models(graph) == {"vec": {"one", "second"}}
        graph.mutate('query q() { delete Tag where name = "blue" }')
        assert models(graph) == {"vec": {"one", "second"}}
        graph.ensure_indexes()
        assert models(graph) == {"vec": {"one", "second"}}
        graph.load(tags, mode="overwrite")
        assert models(graph) == {"vec": {"second"}}
    with opened(place, Model("second")) as graph:  # like another process
        assert models(graph) == {"vec": {"second"}}
        assert models(graph, key="node:Note") == {}


# Failures and crashes


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with running_provider() as running:
        monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", running.url)
        monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "acme/small")
        monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", "1")
        monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_ATTEMPTS", "2")
        yield running


def texts_of(provider: Provider) -> list[str]:
    return [text for seen in provider.seen for text in seen.body["input"]]  # type: ignore[attr-defined]


def test_a_load_whose_provider_fails_changes_nothing(place: str, provider: Provider) -> None:
    busy = always(answer({"error": "busy"}, 503))
    provider.behaviours = [openai, openai, busy]
    with omnigraph.init(place, SCHEMA) as graph:
        head = graph.snapshot().commit.id
        with pytest.raises(EmbeddingUnavailableError, match=r"Note\.title_vec|Note\.text_vec") as caught:
            graph.load(notes([str(n) for n in range(200)]), mode="append")
        assert caught.value.retryable
        assert graph.snapshot().commit.id == head
        provider.behaviours = [openai]
        graph.load(notes([str(n) for n in range(200)]), mode="append")
        assert graph.verify().total == 0


def test_texts_with_cached_vectors_are_not_sent_to_the_provider(place: str, provider: Provider) -> None:
    names = [str(n) for n in range(100)]
    with omnigraph.init(place, SCHEMA) as graph:
        graph.load(notes(names), mode="append")
        assert sorted(texts_of(provider)) == sorted(f"{what} {n}" for what in ("text", "title") for n in names)
        graph.load(notes(names), mode="overwrite")
        assert len(texts_of(provider)) == 200
        receipt = graph.embed(which="all")
        assert (receipt.total.computed, receipt.total.cached, receipt.total.right) == (0, 200, 100)
        assert len(texts_of(provider)) == 200
    with omnigraph.init(place + "2", SCHEMA) as other:
        other.load(notes(names), mode="append", embed=False)
        assert other.embed().total == Counts(rows=100, changed=100, right=0, computed=0, cached=200)
    assert len(texts_of(provider)) == 200


def test_an_embed_whose_provider_fails_changes_nothing(place: str, provider: Provider) -> None:
    with omnigraph.init(place, SCHEMA) as graph:
        graph.load(notes([str(n) for n in range(100)]), mode="append", embed=False)
        head = graph.snapshot().commit.id
        provider.behaviours = [openai, always(answer({"error": {"message": "no such model"}}, 400))]
        with pytest.raises(EmbeddingError, match="no such model"):
            graph.embed()
        assert graph.snapshot().commit.id == head
        provider.behaviours = [openai]
        assert graph.embed().total.changed == 100


@pytest.mark.parametrize(
    ("point", "there"),
    [
        (Failpoint.STAGED, False),
        (Failpoint.SIDECAR_WRITTEN, False),
        (Failpoint.TABLES_COMMITTED, True),
        (Failpoint.PUBLISHED, True),
    ],
)
@pytest.mark.parametrize("branch", ["main", "draft"])
def test_a_crashed_embed_is_visible_completely_or_not_at_all(
    place: str, branch: str, point: Failpoint, there: bool
) -> None:
    with opened(place) as graph:
        graph.load(notes(["a", "b"]) | {"Tag": pa.table({"name": ["red"]})}, mode="append")
        graph.branches.create("draft")
    other = Model("other")
    with opened(place, other) as graph, armed(point, "crash"), pytest.raises(SimulatedCrashError):
        graph.embed(branch=branch)
    with opened(place, other) as graph:
        handle = graph.branch(branch)
        model = other if there else Model()
        assert handle.entity("Note", "a")["text_vec"] == model.vector("text a").tolist()  # type: ignore[index]
        assert handle.entity("Tag", "red")["vec"] == model.vector("red", 3).tolist()  # type: ignore[index]
        assert models(graph, branch) == {"vec": {model.name}}
        assert graph.embed(branch=branch).total.changed == (0 if there else 3)
        assert handle.entity("Note", "a")["text_vec"] == other.vector("text a").tolist()  # type: ignore[index]


@pytest.mark.slow
def test_an_embed_that_is_killed_while_it_waits_changes_nothing(place: str, provider: Provider) -> None:
    with omnigraph.init(place, SCHEMA) as graph:
        graph.load(notes(["a", "b"]), mode="append", embed=False)
        head = graph.snapshot().commit.id
    provider.behaviours = [hang]
    command = [sys.executable, "-m", "omnigraph.cli.main", "embed", place, "--quiet"]
    with subprocess.Popen(command, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(lambda: provider.seen)
        process.send_signal(signal.SIGKILL)
    provider.behaviours = [openai]
    with omnigraph.open(place) as graph:
        assert graph.snapshot().commit.id == head
        assert stored(graph, "a") is None
        assert graph.embedder.name == default_embedder().name == "acme/small"
        assert graph.embed().total.changed == 2
