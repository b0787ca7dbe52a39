"""One entity as Python values."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.settings import FSYNC
from omnigraph.storage.blobs import BlobInfo


def test_values_have_native_python_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FSYNC.name, "0")
    schema = "node A { name: String @key  day: Date?  at: DateTime?  times: [DateTime]?  b: Blob?  v: Vector(2)? }"
    with omnigraph.init(tmp_path / "graph", schema) as graph:
        moment = datetime(2024, 3, 1, 12, 30, 0, 250_000, tzinfo=UTC)
        rows = {
            "name": ["full", "bare"],
            "day": [date(2024, 3, 1), None],
            "at": pa.array([moment, None], pa.timestamp("ms", "UTC")),
            "times": pa.array([[moment, moment], None], pa.list_(pa.timestamp("ms", "UTC"))),
            "b": pa.array([b"12345", None], pa.large_binary()),
            "v": pa.array([[1, 0.5], None], pa.list_(pa.float32(), 2)),
        }
        graph.load({"A": pa.table(rows)}, mode="append")
        assert graph.entity("A", "full") == {
            "id": "full",
            "at": moment,
            "b": BlobInfo(5),
            "day": date(2024, 3, 1),
            "name": "full",
            "times": [moment, moment],
            "v": [1.0, 0.5],
        }
        assert graph.entity("A", "bare") == dict.fromkeys(rows) | {"id": "bare", "name": "bare"}
        assert graph.entity("A", "nobody") is None
