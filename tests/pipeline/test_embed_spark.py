"""Tasks compute the same vectors as one process, embed each text once, and fail as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread

import numpy as np
import orjson
import pytest
from tests.embed.provider import Answer, Provider, Seen, always, answer, hang, openai, running_provider
from tests.patience import until
from tests.pipeline.in_process import InProcess

import omnigraph
from omnigraph.embed import Purpose
from omnigraph.engine.engines import Choice, Engine, SparkOptions
from omnigraph.errors import (
    BadRowsError,
    CancelledError,
    EmbeddingError,
    EmbeddingModelError,
    EmbeddingUnavailableError,
    InputError,
)
from omnigraph.graph import Graph
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.pipeline.spark.session import Session
from omnigraph.read.budget import Cancellation
from omnigraph.upkeep.vectors import EmbedProgress

SCHEMA = """
node Note {
    name: String @key
    text: String?
    size: I64?
    vec: Vector(4)? @embed("text")
}
node Tag { name: String @key  vec: Vector(3) @embed("name") }
"""
_SPLIT = 3_000


class Model:
    """A model that can be sent to tasks."""

    def __init__(self, name: str = "one") -> None:
        self.name = name

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> np.ndarray:
        return np.array([[len(self.name), len(text), *range(1, dimension - 1)] for text in texts], np.float64)


class Failing(Model):
    """A model that fails for one text."""

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> np.ndarray:
        if "text 150" in texts:
            raise EmbeddingUnavailableError("the model is away", hint="wait for it")
        return super().embed(texts, dimension, purpose=purpose)


def rows(path: Path, count: int, **changed: object) -> Path:
    lines = [{"type": "Note", "data": {"name": f"n{n}", "text": f"text {n}", "size": n}} for n in range(count)]
    lines += [{"type": "Tag", "data": {"name": f"tag {n}"}} for n in range(20)]
    for name, value in changed.items():
        lines[int(name[1:])]["data"]["size"] = value  # type: ignore[index]
    path.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    return path


def made(place: Path, embedder: Model | None = None) -> Graph:
    return omnigraph.init(place, SCHEMA, embedder=embedder)


def exported(graph: Graph, branch: str = "main") -> bytes:
    return b"".join(graph.export(branch=branch))


def files(graph: Graph) -> set[str]:
    root = Path(graph.uri)
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and "__lease" not in path.parts and ".og-" not in path.name
    }


# Without Spark: the same code, in this process


def test_a_partitioned_load_computes_the_same_vectors(tmp_path: Path) -> None:
    source = rows(tmp_path / "in.ndjson", 300)
    here, there = made(tmp_path / "here", Model()), made(tmp_path / "there", Model())
    here.load(source, mode="append")
    Pipeline(there, InProcess()).load(source, mode="append", split_bytes=_SPLIT)
    assert exported(there) == exported(here)
    assert b'"vec":null' not in exported(there)
    for key in ("node:Note", "node:Tag"):
        assert there.snapshot().pin(key).models == here.snapshot().pin(key).models != ()


def test_a_model_failure_in_one_partition_fails_the_load(tmp_path: Path) -> None:
    source = rows(tmp_path / "in.ndjson", 300)
    graph = made(tmp_path / "graph", Failing())
    before = files(graph)
    with pytest.raises(EmbeddingUnavailableError, match=r"Note\.vec: the model is away") as caught:
        Pipeline(graph, InProcess()).load(source, mode="append", split_bytes=_SPLIT)
    assert (caught.value.hint, caught.value.retryable) == ("wait for it", True)
    assert exported(graph) == b""
    assert {path for path in files(graph) - before if not path.endswith(".lance")} == set()  # only unreferenced files


def test_bad_rows_are_reported_before_embedding_errors(tmp_path: Path) -> None:
    graph = made(tmp_path / "graph", Failing())
    source = rows(tmp_path / "in.ndjson", 300, n20="large", n280="larger")
    with pytest.raises(BadRowsError) as caught:
        Pipeline(graph, InProcess()).load(source, mode="append", split_bytes=_SPLIT)
    assert [problem.record for problem in caught.value.problems] == [21]
    source = rows(tmp_path / "late.ndjson", 300, n280="larger")
    with pytest.raises(EmbeddingUnavailableError):
        Pipeline(graph, InProcess()).load(source, mode="append", split_bytes=_SPLIT)


def test_wrong_settings_are_reported_if_a_vector_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "acme")
    graph = made(tmp_path / "graph")
    source = rows(tmp_path / "in.ndjson", 30)
    with pytest.raises(EmbeddingError, match="OMNIGRAPH_EMBED_PROVIDER is 'acme'"):
        Pipeline(graph, InProcess()).load(source, mode="append")
    (tmp_path / "bare.ndjson").write_bytes(orjson.dumps({"type": "Note", "data": {"name": "x"}}))
    assert Pipeline(graph, InProcess()).load(tmp_path / "bare.ndjson", mode="append").total == 1


@pytest.mark.parametrize("branch", ["main", "draft"])
def test_re_embedding_by_tasks_gives_the_same_vectors(tmp_path: Path, branch: str) -> None:
    source = rows(tmp_path / "in.ndjson", 300)
    receipts = []
    for name in ("here", "there"):
        with made(tmp_path / name, Model()) as graph:
            graph.load(source, mode="append")
            graph.branches.create("draft")
            graph.load([{"type": "Note", "data": {"name": "later", "text": None}}], mode="append", branch="draft")
        with omnigraph.open(tmp_path / name, embedder=Model("another")) as graph:
            told: list[EmbedProgress] = []
            on = graph if name == "here" else Pipeline(graph, InProcess())
            receipts.append(on.embed(branch=branch, progress=told.append))
            assert told[-1].counts.changed == 320
            assert on.embed(branch=branch).commit is None
            assert not [path for path in files(graph) if path.startswith("__staging")]
    assert receipts[0].total == receipts[1].total
    with omnigraph.open(tmp_path / "here") as here, omnigraph.open(tmp_path / "there") as there:
        for each in ("main", "draft"):
            assert exported(here, each) == exported(there, each)
            assert (
                here.snapshot(branch=each).pin("node:Tag").models == there.snapshot(branch=each).pin("node:Tag").models
            )


def test_a_failing_model_leaves_the_branch_unchanged(tmp_path: Path) -> None:
    source = rows(tmp_path / "in.ndjson", 300)
    graph = made(tmp_path / "graph", Failing("failing"))
    with omnigraph.open(tmp_path / "graph", embedder=Model()) as other:
        other.load(source, mode="append")
    before, said = files(graph), exported(graph)
    with pytest.raises(EmbeddingUnavailableError, match=r"Note\.vec: the model is away"):
        Pipeline(graph, InProcess()).embed()
    assert (files(graph), exported(graph)) == (before, said)


def test_invalid_embed_requests_are_refused(tmp_path: Path) -> None:
    graph = omnigraph.init("memory://x", SCHEMA, embedder=Model())
    with pytest.raises(InputError, match="memory of this process"):
        Pipeline(graph, InProcess()).embed()
    recorded = omnigraph.init(
        tmp_path / "g", 'node N { name: String @key  v: Vector(2)? @embed("name", model="m") }', embedder=Model()
    )
    with pytest.raises(EmbeddingModelError):
        Pipeline(recorded, InProcess()).embed()


def test_the_engine_is_chosen_by_the_size_of_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = made(tmp_path / "graph", Model())
    graph.load(rows(tmp_path / "in.ndjson", 300), mode="append")

    def way(engine: str = "auto", types: str | tuple[str, ...] = ()) -> Engine:
        chosen: list[Choice] = []
        options = SparkOptions(InProcess())
        with suppress(InputError):  # if the type does not exist
            graph.embed(engine=engine, types=types, spark=options, chosen=chosen.append, check=True)
        return chosen[0].engine

    assert way() is Engine.LOCAL
    monkeypatch.setenv("OMNIGRAPH_SPARK_THRESHOLD", "1 KiB")
    assert way() is Engine.SPARK
    assert way(types="Nothing") is Engine.LOCAL
    assert way("local") is Engine.LOCAL
    with pytest.raises(InputError, match="not an engine"):
        graph.embed(engine="flink")


# With Spark


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with running_provider() as running:
        monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", running.url)
        monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "openai")
        monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "acme/small")
        monkeypatch.setenv("OPENAI_API_KEY", "k-1")  # tasks do not have it in their environment
        monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", "1")
        yield running


def large(_: Provider, seen: Seen, __: BaseHTTPRequestHandler) -> Answer:
    """A model with other vectors than the first one."""
    texts, dimension = seen.body["input"], seen.body["dimensions"]
    data = [{"index": n, "embedding": [1.0 + n, *[2.0] * (dimension - 1)]} for n in range(len(texts))]  # type: ignore[operator, arg-type]
    return answer({"data": data})


@pytest.mark.slow
@pytest.mark.spark
def test_tasks_send_each_text_to_the_provider_once(tmp_path: Path, session: Session, provider: Provider) -> None:
    source = rows(tmp_path / "in.ndjson", 300)
    expected = sorted([f"text {n}" for n in range(300)] + [f"tag {n}" for n in range(20)])
    graph = made(tmp_path / "graph")
    on_spark = Pipeline(graph, session)
    busy = always(answer({"error": "busy"}, 503))
    provider.behaviours = [busy, openai]  # it is retried
    on_spark.load(source, mode="append", split_bytes=_SPLIT)
    once = [text for seen in provider.seen[1:] for text in seen.body["input"]]  # type: ignore[attr-defined]
    assert sorted(once) == expected
    assert all(seen.headers["authorization"] == "Bearer k-1" for seen in provider.seen)
    assert all(1 <= len(seen.body["input"]) <= 32 for seen in provider.seen)  # type: ignore[arg-type]
    before = len(provider.seen)
    assert before < 60  # texts are sent in batches

    # The same texts again, by every engine: no request.
    on_spark.load(source, mode="overwrite", split_bytes=_SPLIT)
    assert on_spark.embed(which="all").total.cached == 320
    with made(tmp_path / "here") as here:
        here.load(source, mode="append")
        assert exported(here) == exported(graph)
    assert len(provider.seen) == before

    # Another model, on a branch.
    graph.branches.create("draft")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_EMBED_MODEL", "acme/large")
        provider.behaviours = [large]
        with omnigraph.open(tmp_path / "graph") as other:
            receipt = Pipeline(other, session).embed(branch="draft")
            assert (receipt.model, receipt.total.computed, receipt.total.changed) == ("acme/large", 320, 320)
            assert dict(other.snapshot(branch="draft").pin("node:Tag").models) == {"vec": (("acme/large", "name"),)}


@pytest.mark.slow
@pytest.mark.spark
def test_a_provider_that_fails_or_hangs_changes_nothing(tmp_path: Path, session: Session, provider: Provider) -> None:
    source = rows(tmp_path / "in.ndjson", 200)
    graph = made(tmp_path / "graph")
    on_spark = Pipeline(graph, session)
    provider.behaviours = [openai, openai, always(answer({"error": {"message": "no such model"}}, 404))]
    with pytest.raises(EmbeddingError, match="HTTP status 404: no such model"):
        on_spark.load(source, mode="append", split_bytes=_SPLIT)
    assert exported(graph) == b""
    provider.behaviours = [openai]
    on_spark.load(source, mode="append", split_bytes=_SPLIT)
    head, said = graph.snapshot().commit.id, exported(graph)

    provider.behaviours = [hang]
    stop = Cancellation()
    seen = len(provider.seen)

    def cancel() -> None:
        until(lambda: len(provider.seen) > seen)
        stop.cancel()

    os.environ["OMNIGRAPH_EMBED_MODEL"] = "acme/large"
    canceller = Thread(target=cancel)
    canceller.start()
    with omnigraph.open(tmp_path / "graph") as other, pytest.raises(CancelledError):
        Pipeline(other, session).embed(cancel=stop)
    canceller.join()
    assert (graph.snapshot().commit.id, exported(graph)) == (head, said)
