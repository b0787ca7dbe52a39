"""A small write reads the columns that it searches, and only the found rows of all others."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lance import LanceDataset

import omnigraph
from omnigraph.graph import Graph
from omnigraph.storage.datasets import Datasets

SCHEMA = """
node Person { name: String @key  mail: String @unique  bio: String  weight: F64 }
edge Knows: Person -> Person @card(0..5) { since: Date?  note: String }
"""
ROWS = 20_000
BIO = 200


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("cost") / "graph"
    random = np.random.default_rng(1)
    names = [f"person-{i:06}" for i in range(ROWS)]
    # Texts that do not compress, so that the size of a column is its read cost.
    bios = [random.bytes(BIO // 2).hex() for _ in range(ROWS)]
    with omnigraph.init(place, SCHEMA) as graph:
        graph.load(
            {
                "Person": pa.table({"name": names, "mail": names, "bio": bios, "weight": random.random(ROWS)}),
                "Knows": pa.table({"from": names, "to": names[::-1], "note": bios}),
            },
            mode="append",
        )
    return place


@contextmanager
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """The number of bytes that all table handles have read since."""
    handles: list[LanceDataset] = []
    original = Datasets.open

    def noted(self: Datasets, ref: object) -> LanceDataset:
        dataset = original(self, ref)  # type: ignore[arg-type]
        if not any(dataset is handle for handle in handles):
            dataset.io_stats_incremental()
            handles.append(dataset)
        return dataset

    with monkeypatch.context() as patch:
        patch.setattr(Datasets, "open", noted)
        yield lambda: sum(handle.io_stats_incremental().read_bytes for handle in handles)


def person(name: str) -> dict[str, pa.Table]:
    return {"Person": pa.table({"name": [name], "mail": [f"{name}@"], "bio": ["b"], "weight": [1.0]})}


EDGE = {"Knows": pa.table({"from": ["person-000007"], "to": ["person-000008"], "note": ["n"]})}
UPDATE = 'query q() { update Person set { weight: 2.0 } where name = "person-000011" }'
MERGE = 'query q() { merge Person { name: "person-000012", weight: 3.0 } }'

WRITES: dict[str, Callable[[Graph], object]] = {
    "upsert": lambda graph: graph.load(person("person-000007"), mode="merge"),
    "insert": lambda graph: graph.load(person("new"), mode="append"),
    "edge": lambda graph: graph.load(EDGE, mode="append"),
    "update": lambda graph: graph.mutate(UPDATE),
    "merge": lambda graph: graph.mutate(MERGE),
}


@pytest.mark.parametrize("write", WRITES)
def test_without_an_index_only_searched_columns_are_read_whole(
    place: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    with omnigraph.open(place) as graph, bytes_read(monkeypatch) as read:
        WRITES[write](graph)
        taken = read()
    # Ids, endpoints and mails are short. One of the long columns would be larger than all of them together.
    assert 0 < taken < ROWS * BIO / 4


def test_an_update_does_not_search_for_a_kept_unique_value(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`@unique` has no index, so a search reads the column of all mails. A new value is searched for."""
    shutil.copytree(place, tmp_path / "graph")
    with omnigraph.open(tmp_path / "graph") as graph:
        graph.optimize()
        column = graph.snapshot().scan("node:Person", columns=["mail"]).nbytes
        graph.mutate(UPDATE)
        with bytes_read(monkeypatch) as read:
            graph.mutate(UPDATE.replace("2.0", "3.0"))
            kept = read()
            graph.mutate(UPDATE.replace("weight: 2.0", 'mail: "other"'))
            searched = read()
    assert kept < column / 4 < searched
