"""A load goes to Spark when it is large, when Spark can be had, and when it is asked to."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import InputError, SparkUnavailableError
from omnigraph.pipeline import engine
from omnigraph.pipeline.engine import Engine, choose, input_bytes
from omnigraph.settings import SPARK_THRESHOLD


@pytest.fixture(autouse=True)
def _available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "check_available", lambda: None)
    monkeypatch.setenv(SPARK_THRESHOLD.name, "1 KiB")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "people.ndjson"
    path.write_bytes(b"x" * 1024)
    return path


def test_by_size(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose("auto", str(file)).engine is Engine.SPARK
    assert choose("auto", [str(file)]).why == "0.0 MiB of input, and from 0.0 MiB on it goes to Spark"
    monkeypatch.setenv(SPARK_THRESHOLD.name, "1025")
    assert choose("auto", str(file)).engine is Engine.LOCAL
    assert choose("auto", [str(file), str(file)]).engine is Engine.SPARK
    monkeypatch.delenv(SPARK_THRESHOLD.name)
    assert choose("auto", str(tmp_path)).engine is Engine.LOCAL


def test_what_is_asked_for_is_done(file: Path) -> None:
    assert choose("local", str(file)).engine is Engine.LOCAL
    assert choose(Engine.SPARK, "x").engine is Engine.SPARK
    with pytest.raises(InputError, match="'sparc' is not an engine"):
        choose("sparc", str(file))


def test_where_spark_cannot_be_had(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise SparkUnavailableError("no Java here")

    monkeypatch.setattr(engine, "check_available", missing)
    found = choose("auto", str(file))
    assert (found.engine, found.amiss) == (Engine.LOCAL, True)
    assert found.why.endswith(" on it goes to Spark, but no Java here")
    assert choose("auto", str(file), started=True).engine is Engine.SPARK


def test_how_large_the_input_is(file: Path, tmp_path: Path) -> None:
    packed = tmp_path / "more.ndjson.gz"
    packed.write_bytes(b"x" * 10)
    table = pa.table({"n": pa.array([1, 2], pa.int64())})
    assert input_bytes(str(packed)) == 40
    assert input_bytes(str(tmp_path)) == 1064
    assert input_bytes({"Person": str(file), "Knows": table}) == 1024 + 16
    assert input_bytes(b"123") == 3
    assert input_bytes(iter([])) is None
    assert input_bytes([{"type": "Person"}]) is None
    assert choose("auto", iter([])).engine is Engine.LOCAL
