"""The cost of a diff follows the change: rows that were not written are neither looked up nor scanned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.graph import Graph
from omnigraph.storage import difference
from omnigraph.storage.table_view import TableView

ROWS = 30_000
CHANGED = [5, 700, 12_345, 29_999]


def people(numbers: Any, n: int) -> dict[str, pa.Table]:
    names = [f"p{number:06d}" for number in numbers]
    return {"P": pa.table({"k": names, "n": np.full(len(names), n)})}


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "g", "node P { k: String @key  n: I64? }") as graph:
        graph.load(people(range(ROWS // 2), 1), mode="append")
        graph.load(people(range(ROWS // 2, ROWS), 1), mode="append")
        yield graph


class Reads:
    """The numbers of rows that comparisons read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = 0
        self.found = 0
        taking, finding = TableView.take_rows, TableView.changed_row_ids

        def take_rows(view: TableView, row_ids: pa.Array, **options: Any) -> pa.Table:
            self.taken += len(row_ids)
            return taking(view, row_ids, **options)

        def changed_row_ids(view: TableView, *arguments: Any) -> Any:
            found = finding(view, *arguments)
            assert found is not None
            self.found += found.before.num_rows + found.after.num_rows
            return found

        def never(*_: object, **__: object) -> Any:
            raise AssertionError("a whole table is read")

        monkeypatch.setattr(TableView, "take_rows", take_rows)
        monkeypatch.setattr(TableView, "changed_row_ids", changed_row_ids)
        for name in ("row_ids", "rows_of", "scan", "lookup"):
            monkeypatch.setattr(TableView, name, never)
        monkeypatch.setattr(difference, "_compared_row_ids", never)


def check(graph: Graph, before: str, after: str, monkeypatch: pytest.MonkeyPatch, sides: int = 1) -> None:
    with monkeypatch.context() as patched:
        reads = Reads(patched)
        assert sum(batch.num_rows for batch in graph.diff(before, after)["P"].batches()) == len(CHANGED) * sides
        assert reads.taken == 2 * len(CHANGED) * sides
        assert graph.diff(before, after).stat().updates == len(CHANGED) * sides
        assert reads.taken == 4 * len(CHANGED) * sides, "one column is enough to see that they differ"
        assert reads.found == 2 * len(CHANGED) * sides, "the candidates are found once"


def test_only_written_rows_are_read(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    before = graph.snapshot().commit.id
    graph.load(people(CHANGED, 2), mode="merge")
    check(graph, before, "main", monkeypatch)
    check(graph, "main", before, monkeypatch)


def test_compactions_cost_nothing(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    before = graph.snapshot().commit.id
    graph.load(people(CHANGED[:2], 2), mode="merge")
    graph.optimize()
    graph.load(people(CHANGED[2:], 2), mode="merge")
    graph.optimize()
    with monkeypatch.context() as patched:
        scanned: list[int] = []
        scan = difference._scan

        def scanned_rows(*arguments: Any) -> Iterator[pa.RecordBatch]:
            for batch in scan(*arguments):
                scanned.append(batch.num_rows)
                yield batch

        patched.setattr(difference, "_scan", scanned_rows)
        check(graph, before, "main", patched)
        assert sum(scanned) == len(CHANGED)


def test_only_rows_written_since_the_fork_are_read(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.branches.create("side")
    graph.load(people(CHANGED, 2), mode="merge", branch="side")
    graph.load(people([number - 1 for number in CHANGED], 3), mode="merge")
    check(graph, "main", "side", monkeypatch, sides=2)


def test_a_page_reads_the_rows_of_the_page(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.load(people(range(10_000), 2), mode="merge")
    head = graph.snapshot().commit.id
    token = None
    with monkeypatch.context() as patched:
        reads = Reads(patched)
        for _ in range(5):
            page = graph.changes.of(head, limit=100, page_token=token)
            token = page.next_page_token
        assert reads.taken == 5 * 2 * 101
        assert reads.found == 2 * 10_000, "the candidates are found once"
