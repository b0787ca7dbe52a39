"""Rows are partitioned by hash when they are read: equal values are in one partition, without a shuffle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.in_process import Frame, InProcess
from tests.pipeline.worlds import SCHEMA, Rows, graph_at, outcome, rows, write

from omnigraph.engine.engines import SparkOptions
from omnigraph.errors import KeyConflictError
from omnigraph.graph import Graph, init
from omnigraph.pipeline.load import compare_columns, partition_task
from omnigraph.pipeline.spark.shuffle import hash_partition
from omnigraph.pipeline.spark.staging import Staging
from omnigraph.write.receipt import LoadMode, LoadReceipt


def on_spark(graph: Graph, source: Any, mode: str) -> LoadReceipt:
    options = SparkOptions(InProcess(), split_bytes=6_000, part_rows=60)
    return graph.load(source, mode=mode, engine="spark", spark=options)


def test_equal_values_are_in_the_same_partition_of_every_table() -> None:
    names = [f"person {i}" for i in range(100)]
    first = pa.table({"a": pa.array(names), "b": range(100)})
    second = pa.table({"x": pa.chunked_array([names[50:], names[:60]])})
    left, right = list(hash_partition(first, ["a"], 7)), list(hash_partition(second, ["x"], 7))
    assert sorted(row["b"] for part in left for row in part.to_pylist()) == list(range(100))
    for mine, theirs in zip(left, right, strict=True):
        assert set(mine["a"].to_pylist()) == set(theirs["x"].to_pylist())
        assert mine["b"].to_pylist() == sorted(mine["b"].to_pylist()), "rows of a part stay in order"
    assert len([part for part in left if part.num_rows]) > 1


@pytest.mark.slow
def test_a_load_into_an_empty_graph_needs_no_shuffle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    repartition = Frame.repartitionById

    def noted(frame: Frame, count: int, column: str) -> Frame:
        moved.append(column)
        return repartition(frame, count, column)

    monkeypatch.setattr(Frame, "repartitionById", noted)
    graph = init(tmp_path / "graph", SCHEMA)
    source = write(tmp_path / "input", rows(3), "ndjson")
    assert on_spark(graph, source, "append").total == 60 + 40 + 180 + 80
    assert moved == []
    again = write(tmp_path / "again", rows(3, first=100), "ndjson")
    assert on_spark(graph, again, "append").total == 60 + 40 + 180 + 80
    assert moved, "rows that are stored are moved"
    assert graph.verify().ok


def test_a_small_load_into_a_large_graph_is_compared_in_many_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of input partitions does not depend on the stored rows."""
    counts: list[int] = []
    repartition = Frame.repartitionById

    def noted(frame: Frame, count: int, column: str) -> Frame:
        counts.append(count)
        return repartition(frame, count, column)

    monkeypatch.setattr(Frame, "repartitionById", noted)
    graph = init(tmp_path / "graph", SCHEMA)
    graph.load([{"type": "Person", "data": {"name": f"early {i}"}} for i in range(40)], mode="append")
    options = SparkOptions(InProcess(), part_rows=10)
    known = [{"type": "Person", "data": {"name": name}} for name in ("early 7", "late")]
    with pytest.raises(KeyConflictError, match="early 7"):
        graph.load(known, mode="append", engine="spark", spark=options)
    assert graph.load(known[1:], mode="append", engine="spark", spark=options).total == 1
    assert counts
    assert min(counts) >= 4


def test_an_append_on_spark_names_the_existing_ids_with_their_places_and_number(tmp_path: Path) -> None:
    graph = init(tmp_path / "graph", SCHEMA)
    graph.load([{"type": "Person", "data": {"name": f"early {i:03}"}} for i in range(0, 400, 2)], mode="append")
    source = tmp_path / "people.ndjson"
    lines = [f'{{"type": "Person", "data": {{"name": "early {i:03}"}}}}' for i in reversed(range(300))]
    source.write_text("\n".join(lines))
    with pytest.raises(KeyConflictError) as in_process:
        graph.load(str(source), mode="append")
    with pytest.raises(KeyConflictError) as in_tasks:
        on_spark(graph, str(source), "append")
    local, spark = in_process.value, in_tasks.value
    assert (spark.render(), spark.ids, spark.places, spark.total) == (
        local.render(),
        local.ids,
        local.places,
        local.total,
    )
    assert spark.total == 150
    assert spark.places[0] == "people.ndjson, line 102"
    assert spark.render().startswith("people.ndjson, line 102: node:Person: 'early 198' exists already")


def _as_it_is(content: Rows) -> None:
    pass


def _nowhere(content: Rows) -> None:
    content["Knows"][7]["to"] = "nobody"
    content["Knows"][90]["from"] = "nobody else"


def _shared(content: Rows) -> None:
    content["Person"][5]["email"] = content["Person"][55]["email"] = "same@x.org"
    content["Knows"] += [{"from": "person 100", "to": "person 101"} for _ in range(5)]


def _twins(content: Rows) -> None:
    content["Person"].append({"name": "person 100"})


def _same_ids(content: Rows) -> None:
    content["Note"].append({"id": "n101", "text": "again", "size": 900})


def _a_hub(content: Rows) -> None:
    """Nearly all edges have one endpoint in common, so endpoints are deduplicated before they are staged."""
    for i, each in enumerate(content["Wrote"]):
        each["from"] = "person 100" if i else "nobody"


CHANGES: list[Callable[[Rows], None]] = [_as_it_is, _nowhere, _shared, _twins, _same_ids, _a_hub]


def _few_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_task, "HASH_ROWS", 5)


def _all_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_columns, "MAX_DISTINCT_FRACTION", 2.0)


def _through_the_shuffle(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a graph in S3."""
    monkeypatch.setattr(Staging, "has_parts", False)


@pytest.mark.slow
@pytest.mark.parametrize("way", [_few_rows_at_once, _all_told_apart, _through_the_shuffle])
@pytest.mark.parametrize("change", CHANGES)
def test_partitioning_strategies_give_the_same_graph(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[pytest.MonkeyPatch], None],
    change: Callable[[Rows], None],
) -> None:
    content = rows(3, first=100)
    change(content)
    mode = [mode.value for mode in LoadMode][CHANGES.index(change) % 3]
    source = write(tmp_path / "input", content, "ndjson")
    here, there = graph_at(tmp_path / "here"), graph_at(tmp_path / "there")
    way(monkeypatch)
    assert outcome(there, lambda: on_spark(there, source, mode)) == outcome(here, lambda: here.load(source, mode=mode))
