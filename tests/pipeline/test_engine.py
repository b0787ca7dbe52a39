"""A load runs on Spark if it is large and Spark is available, or if it is requested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.in_process import InProcess

import omnigraph
from omnigraph.engine.engine_choice import choose_engine, input_bytes
from omnigraph.engine.engines import Choice, Engine, SparkOptions
from omnigraph.engine.requests import LoadRequest
from omnigraph.engine.session import Session
from omnigraph.errors import InputError, SparkUnavailableError
from omnigraph.pipeline import backend
from omnigraph.settings import SPARK_THRESHOLD


@pytest.fixture(autouse=True)
def _available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "check_available", lambda: None)
    monkeypatch.setenv(SPARK_THRESHOLD.name, "1 KiB")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with omnigraph.init(tmp_path / "graph", "node Person { name: String @key }") as graph:
        yield graph.session


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "input").mkdir()
    path = tmp_path / "input" / "people.ndjson"
    path.write_bytes(b"x" * 1024)
    return path


def chosen(session: Session, source: Any, engine: str = "auto", spark: SparkOptions | None = None) -> Choice:
    request = LoadRequest(mode="append", engine=engine, spark=spark)
    return choose_engine(session, request, lambda: input_bytes(source), "of input")


def test_the_engine_is_chosen_by_input_size(session: Session, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(session, str(file)).engine is Engine.SPARK
    assert chosen(session, [str(file)]).why == "0.0 MiB of input; Spark is used from 0.0 MiB"
    monkeypatch.setenv(SPARK_THRESHOLD.name, "1025")
    assert chosen(session, str(file)).engine is Engine.LOCAL
    assert chosen(session, [str(file), str(file)]).engine is Engine.SPARK
    monkeypatch.delenv(SPARK_THRESHOLD.name)
    assert chosen(session, str(file.parent)).engine is Engine.LOCAL


def test_a_graph_in_memory_is_loaded_locally(file: Path) -> None:
    with omnigraph.init("memory://engines", "node Person { name: String @key }") as graph:
        assert chosen(graph.session, str(file)).engine is Engine.LOCAL


def test_a_named_engine_is_used(session: Session, file: Path) -> None:
    assert chosen(session, str(file), "local").engine is Engine.LOCAL
    assert chosen(session, "x", Engine.SPARK).engine is Engine.SPARK
    with pytest.raises(InputError, match="'sparc' is not an engine"):
        chosen(session, str(file), "sparc")


def test_the_local_engine_is_used_without_spark(session: Session, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise SparkUnavailableError("no Java here")

    monkeypatch.setattr(backend, "check_available", missing)
    found = chosen(session, str(file), spark=SparkOptions(Stopped()))
    assert (found.engine, found.spark_missing) == (Engine.LOCAL, True)
    assert found.why.endswith(", but no Java here")
    assert chosen(session, str(file), spark=SparkOptions(Started())).engine is Engine.SPARK


class Stopped(InProcess):
    started = False


class Started(InProcess):
    started = True


def test_a_session_of_another_type_is_refused(session: Session, file: Path) -> None:
    with pytest.raises(InputError, match=r"spark\.session must not be a str"):
        chosen(session, str(file), spark=SparkOptions("local"))


def test_the_input_size_is_estimated(session: Session, file: Path) -> None:
    packed = file.parent / "more.ndjson.gz"
    packed.write_bytes(b"x" * 10)
    table = pa.table({"n": pa.array([1, 2], pa.int64())})
    assert input_bytes(str(packed)) == 40
    assert input_bytes(str(file.parent)) == 1064
    assert input_bytes({"Person": str(file), "Knows": table}) == 1024 + 16
    assert input_bytes(b"123") == 3
    assert input_bytes(iter([])) is None
    assert input_bytes([{"type": "Person"}]) is None
    assert chosen(session, iter([])).engine is Engine.LOCAL
