"""What a small write reads: at most the one column that it looks something up in, and only once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lance import LanceDataset

import omnigraph
from omnigraph.graph import Graph
from omnigraph.graph.graph import FSYNC_VARIABLE
from omnigraph.storage.tables import TableStorage

SCHEMA = """
node Person { name: String @key  mail: String @unique  bio: String  weight: F64 }
edge Knows: Person -> Person @card(0..5) { since: Date?  note: String }
"""


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FSYNC_VARIABLE, "0")


def made(place: Path, count: int) -> Graph:
    graph = omnigraph.init(place, SCHEMA)
    random = np.random.default_rng(1)
    names = [f"person-{i:06}" for i in range(count)]
    # Texts that do not compress, so that reading a whole column costs what it looks like.
    bios = [random.bytes(100).hex() for _ in range(count)]
    graph.load(
        {
            "Person": pa.table({"name": names, "mail": bios, "bio": bios, "weight": random.random(count)}),
            "Knows": pa.table({"from": names, "to": names[::-1], "note": bios}),
        },
        mode="append",
    )
    return graph


@contextmanager
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """How many bytes all handles together have read since."""
    handles: list[LanceDataset] = []
    original = TableStorage._open

    def noted(self: TableStorage, ref: object) -> LanceDataset:
        dataset = original(self, ref)  # type: ignore[arg-type]
        if not any(dataset is handle for handle in handles):
            dataset.io_stats_incremental()
            handles.append(dataset)
        return dataset

    with monkeypatch.context() as patch:
        patch.setattr(TableStorage, "_open", noted)
        yield lambda: sum(handle.io_stats_incremental().read_bytes for handle in handles)


UPSERT = {"Person": pa.table({"name": ["person-000007"], "mail": ["m"], "bio": ["b"], "weight": [1.0]})}
INSERT = {"Person": pa.table({"name": ["new"], "mail": ["m"], "bio": ["b"], "weight": [1.0]})}
EDGE = {"Knows": pa.table({"from": ["person-000007"], "to": ["person-000008"], "note": ["n"]})}


def size_of(graph: Graph, key: str, *columns: str) -> int:
    return int(graph.snapshot().scan(key, columns=columns).nbytes)


@pytest.mark.parametrize(
    ("rows", "looked_at"),
    [
        (UPSERT, [("node:Person", "id"), ("node:Person", "mail")]),
        (INSERT, [("node:Person", "id"), ("node:Person", "mail")]),
        (EDGE, [("node:Person", "id"), ("edge:Knows", "src")]),
    ],
    ids=["upsert", "insert", "edge"],
)
def test_without_an_index_one_column_is_read_for_each_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: dict[str, pa.Table], looked_at: list[tuple[str, str]]
) -> None:
    with made(tmp_path / "graph", 20_000) as graph:
        allowed = sum(size_of(graph, key, name) for key, name in looked_at)
        everything = sum(size_of(graph, key, *graph.snapshot().scan(key).column_names) for key, _ in looked_at[:1])
        with bytes_read(monkeypatch) as read:
            graph.load(rows, mode="merge")
            assert 0 < read() < 1.1 * allowed + 50_000
        assert allowed < everything
