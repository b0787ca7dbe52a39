"""Tasks compute the new columns of a schema change as one process does, and the driver commits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commit.graphs import assert_whole
from tests.migrate.cases import CASES
from tests.migrate.garden import SCHEMA, content, create, modelled
from tests.migrate.test_vectors import PLAIN, TEXTS, WITH, Broken, expected, models, vectors
from tests.pipeline.in_process import InProcess

import omnigraph
from omnigraph.commit.work_records import read_records
from omnigraph.embed.mock import MockEmbedder
from omnigraph.engine.engines import Choice, SparkOptions
from omnigraph.errors import EmbeddingError
from omnigraph.graph import Graph
from omnigraph.pipeline.spark.session import Session
from omnigraph.settings import SPARK_THRESHOLD

WRITING = ["everything at once", "widen I32, U32 and F32", "rename enum values in a list"]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with create(tmp_path / "garden") as made:
        yield made


def _check(graph: Graph, session: Session, name: str) -> None:
    case = CASES[name]
    before, busy = content(graph), content(graph, branch="busy")
    done = graph.schema.apply(case.schema(SCHEMA), engine="spark", spark=SparkOptions(session))
    assert (done.applied, done.engine) == (True, "spark")
    assert content(graph) == modelled(before, case.model)
    assert content(graph, branch="busy") == busy
    assert graph.verify().ok
    assert_whole(graph)
    assert read_records(graph.session.store.leases) == []


@pytest.mark.parametrize("name", WRITING)
def test_columns_by_tasks_have_the_same_values(graph: Graph, name: str) -> None:
    _check(graph, InProcess(), name)


@pytest.mark.spark
@pytest.mark.slow
def test_columns_by_tasks_on_spark_have_the_same_values(graph: Graph, session: Session) -> None:
    _check(graph, session, "everything at once")


def test_vectors_are_computed_by_tasks(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "docs", PLAIN, embedder=MockEmbedder()) as graph:
        rows = pa.table({"name": [f"d{i}" for i in range(5)], "text": TEXTS})
        graph.load({"Doc": rows.slice(0, 2)}, mode="append")
        graph.load({"Doc": rows.slice(2)}, mode="append")
        graph.schema.apply(WITH, engine="spark", spark=SparkOptions(InProcess()))
        assert vectors(graph, "vec") == expected(graph, WITH, "vec")
        assert models(graph) == {"vec": (("mock", "text"),)}


def test_the_error_of_a_task_is_raised_as_it_is(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "docs", PLAIN, embedder=Broken()) as graph:
        graph.load({"Doc": pa.table({"name": ["d0"], "text": ["a text that no cache has"]})}, mode="append")
        with pytest.raises(EmbeddingError, match="the provider is down"):
            graph.schema.apply(WITH, engine="spark", spark=SparkOptions(InProcess()))
        assert graph.schema.source == PLAIN
        assert_whole(graph)


def test_the_engine_is_chosen_by_the_size_of_the_columns(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Choice] = []
    graph.schema.apply(CASES["rename a property"].schema(SCHEMA), chosen=chosen.append)
    assert chosen[0].engine.value == "local"
    assert "of columns" in chosen[0].why
    monkeypatch.setenv(SPARK_THRESHOLD.name, "1")
    new = CASES["rename a property"].schema(SCHEMA).replace("size: I64?", "size: I64?  depth: I64 @default(1)")
    done = graph.schema.apply(new, chosen=chosen.append, spark=SparkOptions(InProcess()))
    assert (chosen[1].engine.value, done.engine) == ("spark", "spark")
