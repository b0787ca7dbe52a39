"""The change feed: every commit of a branch once, in order, with the change of each entity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.changes import row_images
from omnigraph.errors import InputError, NotFoundError, SchemaBoundaryError
from omnigraph.graph import Graph
from omnigraph.pipeline import fragment_groups
from omnigraph.pipeline.source.source import OmnigraphSource
from omnigraph.pipeline.source.stream import ChangePartition, StreamReader
from omnigraph.storage import difference, row_pairs
from omnigraph.storage.table_view import TableView

SCHEMA = """\
node P { name: String @key  n: I64?  x: F64?  tags: [String]?  data: Blob? }
node Q { name: String @key }
edge Knows: P -> P { since: Date? }
"""
ALL = ReadAllAvailable()


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return omnigraph.init(tmp_path / "g", SCHEMA)


def put(graph: Graph, mode: str = "append", branch: str = "main", **people: object) -> str:
    """Make one commit; a person is given by a number, or by all properties."""
    rows = [
        {"type": "P", "data": {"name": name, **(said if isinstance(said, Mapping) else {"n": said})}}
        for name, said in people.items()
    ]
    graph.load(rows, mode=mode, branch=branch)
    return graph.snapshot(branch=branch).commit.id


def drop(graph: Graph, name: str, branch: str = "main") -> str:
    graph.mutate(f'query x() {{ delete P where name = "{name}" }}', branch=branch)
    return graph.snapshot(branch=branch).commit.id


def stream(graph: Graph, **options: str) -> StreamReader:
    source = OmnigraphSource({"path": graph.uri, "type": "P", "changes": "true", **options})
    return source.streamReader(source.schema())


def delivered(stream: StreamReader, start: dict[str, str], end: dict[str, str]) -> list[dict[str, Any]]:
    batches = [batch for part in stream.partitions(start, end) for batch in stream.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def short(rows: list[dict[str, Any]], value: str = "n") -> list[tuple[str, str, Any]]:
    return sorted((row["_change"], row["id"], row.get(value)) for row in rows)


def everything(graph: Graph, **options: str) -> list[dict[str, Any]]:
    reading = stream(graph, **options)
    start = reading.initialOffset()
    return delivered(reading, start, reading.latestOffset(start, ALL))


def test_the_feed_has_the_changes_of_each_commit(graph: Graph) -> None:
    first = put(graph, a=1, b=2)
    second = put(graph, "merge", b=3, c=4)
    third = drop(graph, "a")
    rows = everything(graph, startingCommit="beginning")
    by_commit = {commit: short([r for r in rows if r["_commit"] == commit]) for commit in (first, second, third)}
    assert by_commit == {
        first: [("insert", "a", 1), ("insert", "b", 2)],
        second: [("insert", "c", 4), ("update", "b", 3)],
        third: [("delete", "a", 1)],
    }
    assert [row["_commit"] for row in rows] == sorted(
        (row["_commit"] for row in rows), key=[first, second, third].index
    )
    times = {commit.id: commit.created_at for commit in graph.commits}
    assert {row["_commit"]: int(row["_committed"].timestamp() * 1e6 + 0.5) for row in rows} == pytest.approx(
        {commit: times[commit] for commit in (first, second, third)}, abs=1
    )


@pytest.mark.parametrize("looked_up", [8192, 0])
def test_a_row_rewritten_with_equal_values_is_no_change(graph: Graph, thresholds: Thresholds, looked_up: int) -> None:
    thresholds(row_pairs, SCAN_ROWS=looked_up)
    said = {"n": 1, "x": 0.0, "tags": ["u", "v"], "data": "base64:aGVsbG8="}
    start = {"commit": put(graph, a=said, b=said, c=said, d={"n": 1}, e=said)}
    put(
        graph,
        "merge",
        a=said,
        b={**said, "x": -0.0},
        c={**said, "tags": ["u"]},
        d={"n": 1},
        e={**said, "data": "base64:aGVsbG9v"},
    )
    reading = stream(graph)
    rows = delivered(reading, start, reading.latestOffset(start, ALL))
    assert short(rows) == [("update", name, 1) for name in "bce"]
    assert {row["id"]: row["data"]["data"] for row in rows} == {"b": b"hello", "c": b"hello", "e": b"helloo"}


@pytest.mark.parametrize("looked_up", [1_000_000, 0])
def test_updates_and_inserts_of_large_commits_are_distinguished(
    graph: Graph, thresholds: Thresholds, looked_up: int
) -> None:
    thresholds(row_pairs, SCAN_ROWS=looked_up)
    thresholds(row_images, BATCH_ROWS=3)
    start = put(graph, **{f"p{i}": i for i in range(10)})  # type: ignore[arg-type]
    put(graph, "merge", **{f"p{i}": i + i % 2 for i in range(5, 15)})  # type: ignore[arg-type]
    rows = everything(graph, startingCommit=start, columns="id,n")
    assert short(rows) == sorted(
        [("update", f"p{i}", i + 1) for i in (5, 7, 9)] + [("insert", f"p{i}", i + i % 2) for i in range(10, 15)]
    )


def test_changes_of_unselected_columns_are_ignored(graph: Graph) -> None:
    start = {"commit": put(graph, a=1, b=2)}
    put(graph, "merge", a={"n": 1, "x": 5}, b={"n": 7})
    reading = stream(graph, columns="n")
    rows = delivered(reading, start, reading.latestOffset(start, ALL))
    assert [{k: v for k, v in row.items() if k in ("_change", "n", "id")} for row in rows] == [
        {"_change": "update", "n": 7}
    ]


def test_a_stream_begins_at_the_given_commit(graph: Graph) -> None:
    first = put(graph, a=1)
    graph.tags.create("one")
    put(graph, "merge", a=2, b=2)
    head = graph.snapshot().commit.id
    assert short(everything(graph)) == [("insert", "a", 2), ("insert", "b", 2)]
    assert {row["_commit"] for row in everything(graph)} == {head}
    for start in (first, "one"):
        assert short(everything(graph, startingCommit=start)) == [("insert", "b", 2), ("update", "a", 2)]
    assert everything(graph, startingCommit="latest") == []
    with pytest.raises(NotFoundError):
        everything(graph, startingCommit="nothing")


def test_the_number_of_commits_per_batch_is_limited(graph: Graph) -> None:
    commits = [put(graph, a=1), put(graph, b=1), put(graph, c=1), put(graph, d=1)]
    reading = stream(graph, maxCommitsPerTrigger="3", startingCommit=commits[0])
    limit = reading.getDefaultReadLimit()
    assert limit == ReadMaxFiles(3)
    start = reading.initialOffset()
    type_ = str(graph.snapshot().tables["node:P"].id)
    assert reading.latestOffset(start, ReadMaxFiles(2)) == {"commit": commits[2], "type": type_}
    assert reading.latestOffset({"commit": commits[2]}, ReadMaxFiles(2)) == {"commit": commits[3], "type": type_}
    assert reading.latestOffset({"commit": commits[3]}, ReadMaxFiles(2)) == {"commit": commits[3]}
    assert reading.partitions({"commit": commits[3]}, {"commit": commits[3]}) == []


def test_trigger_available_now_ignores_later_commits(graph: Graph) -> None:
    first = put(graph, a=1)
    reading = stream(graph)
    reading.prepareForTriggerAvailableNow()
    put(graph, b=1)
    assert reading.latestOffset(reading.initialOffset(), ALL)["commit"] == first
    assert reading.latestOffset({"commit": first}, ALL) == {"commit": first}
    assert reading.reportLatestOffset()["commit"] == graph.snapshot().commit.id


def test_the_feed_of_a_branch_begins_before_its_fork(graph: Graph) -> None:
    start = put(graph, a=1, b=1)
    graph.branches.create("side")
    put(graph, "merge", "side", a=2, c=1)
    drop(graph, "b", "side")
    put(graph, d=1)
    rows = everything(graph, branch="side", startingCommit=start)
    assert short(rows) == [("delete", "b", 1), ("insert", "c", 1), ("update", "a", 2)]
    assert short(everything(graph, branch="side", startingCommit="beginning"))[-1] == ("update", "a", 2)


def test_an_overwrite_gives_inserts_updates_and_deletes(graph: Graph) -> None:
    start = put(graph, a=1, b=1, c=1)
    put(graph, "overwrite", a=1, b=2, d=1)
    rows = everything(graph, startingCommit=start)
    assert short(rows) == [("delete", "c", 1), ("insert", "d", 1), ("update", "b", 2)]


def test_commits_that_do_not_change_the_type_give_no_rows(graph: Graph) -> None:
    start = put(graph, a=1)
    graph.load([{"type": "Q", "data": {"name": "q"}}], mode="append")
    graph.ensure_indexes()
    assert everything(graph, startingCommit=start) == []


def test_a_large_first_commit_is_read_in_several_partitions(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(fragment_groups, PARTITION_ROWS=1)
    put(graph, a=1)
    put(graph, b=1)
    reading = stream(graph)
    assert len(reading.partitions({"commit": ""}, {"commit": graph.snapshot().commit.id})) == 2


def fed(graph: Graph, after: str, type_: str = "P") -> list[tuple[str, str, str, Any]]:
    """The commit, operation, id and number of each change that the change feed has after a commit."""
    found = []
    for block in graph.changes.poll(start=f"after:{after}", types=type_, limit=8192).blocks:
        for change in block.changes:
            image = change.before if change.op == "delete" else change.after
            assert image is not None
            found.append((block.cause.commit.id, change.op.value, change.id, image["properties"].get("n")))
    return sorted(found)


def several_kinds_of_commits(graph: Graph) -> str:
    """Make commits that insert, update, delete and replace rows; return the commit before them."""
    start = put(graph, **{f"p{i}": i for i in range(20)})  # type: ignore[arg-type]
    put(graph, "merge", **{f"p{i}": i + i % 2 for i in range(10, 30)})  # type: ignore[arg-type]
    graph.mutate("query x() { delete P where n < 8 }")
    graph.optimize()
    put(graph, "merge", p10=100, q=1)
    # The rows of an overwrite are new, and some have the ids of removed rows.
    put(graph, "overwrite", **{f"p{i}": i for i in range(15, 35)})  # type: ignore[arg-type]
    return start


@pytest.mark.parametrize("looked_up", [20_000, 0])
def test_the_tasks_of_a_commit_deliver_each_change_of_the_feed_once(
    graph: Graph, thresholds: Thresholds, looked_up: int
) -> None:
    """A task compares only its part: no task finds more than the rows that belong to it."""
    start = several_kinds_of_commits(graph)
    thresholds(difference, LOOKUP_LIMIT=looked_up)
    thresholds(row_pairs, SCAN_ROWS=looked_up)
    reading = stream(graph, rowsPerTask="5", startingCommit=start)
    begin = reading.initialOffset()
    parts = reading.partitions(begin, reading.latestOffset(begin, ALL))
    tasks = Counter(part.commit for part in parts if isinstance(part, ChangePartition))
    assert len(parts) == sum(tasks.values())
    assert sorted(tasks.values()) == [1, 2, 6, 9]
    with pytest.MonkeyPatch.context() as patch:
        finding, found = TableView.changed_row_ids, Counter[str]()

        def changed_row_ids(view: TableView, *arguments: Any) -> Any:
            rows = finding(view, *arguments)
            assert rows is not None
            found[current] += rows.before.num_rows + rows.after.num_rows
            return rows

        patch.setattr(TableView, "changed_row_ids", changed_row_ids)
        rows = []
        for part in parts:
            assert isinstance(part, ChangePartition)
            current = part.commit
            rows += [row for batch in reading.read(part) for row in batch.to_pylist()]
    delivered_rows = sorted((row["_commit"], row["_change"], row["id"], row["n"]) for row in rows)
    assert delivered_rows == fed(graph, start)
    assert [op for _, op, _, _ in delivered_rows].count("update") == 14
    # Rows before and after the commits: 10 + 20 merged, 8 deleted, 1 + 2 merged, 23 + 20 overwritten.
    assert sorted(found.values()) == [3, 8, 30, 43]


def test_rows_per_task_is_a_positive_number(graph: Graph) -> None:
    with pytest.raises(InputError, match="'rowsPerTask' must be an integer of at least 1"):
        stream(graph, rowsPerTask="0")


def test_edges_have_a_change_feed(graph: Graph) -> None:
    start = put(graph, a=1, b=1)
    graph.load([{"edge": "Knows", "from": "a", "to": "b", "data": {"id": "k"}}], mode="append")
    drop(graph, "b")
    rows = everything(graph, type="Knows", startingCommit=start)
    assert [(row["_change"], row["id"], row["from"], row["to"]) for row in rows] == [
        ("insert", "k", "a", "b"),
        ("delete", "k", "a", "b"),
    ]


def test_a_renamed_type_stays_in_the_stream(graph: Graph) -> None:
    """A reader follows the type that it was started with, and a checkpoint belongs to this type."""
    put(graph, a=1)
    reading = stream(graph, startingCommit="latest")
    start = reading.initialOffset()
    renamed = SCHEMA.replace("node P {", 'node R @rename_from("P") {').replace("P -> P", "R -> R")
    graph.schema.apply(renamed)
    graph.load([{"type": "R", "data": {"name": "b", "n": 2}}], mode="append")
    middle = reading.latestOffset(start, ALL)
    assert short(delivered(reading, start, middle)) == [("insert", "b", 2)]
    graph.schema.apply(renamed + SCHEMA.splitlines()[0])  # another type with the old name
    graph.load([{"type": "P", "data": {"name": "other", "n": 9}}], mode="append")
    graph.load([{"type": "R", "data": {"name": "a", "n": 3}}], mode="merge")
    end = reading.latestOffset(middle, ALL)
    assert short(delivered(reading, middle, end)) == [("update", "a", 3)]
    restarted = stream(graph, type="R")
    assert short(delivered(restarted, start, end)) == [("insert", "b", 2), ("update", "a", 3)]
    assert short(delivered(restarted, {"commit": ""}, end)) == [("insert", "a", 3), ("insert", "b", 2)]
    another = stream(graph)
    for offset in (start, middle, end, {"commit": start["commit"]}, {"commit": "", "type": start["type"]}):
        with pytest.raises(InputError, match=r"does not belong to P, but to the type [PR] of commit"):
            another.latestOffset(offset, ALL)
        with pytest.raises(InputError, match="does not belong to P"):
            another.partitions(offset, {"commit": "any"})
    assert short(everything(graph, startingCommit="beginning")) == [("insert", "other", 9)]


def test_a_stream_ends_with_an_error_when_its_type_is_dropped(graph: Graph) -> None:
    graph.load([{"type": "Q", "data": {"name": "q"}}], mode="append")
    reading = stream(graph, type="Q", startingCommit="latest")
    start = reading.initialOffset()
    graph.schema.apply(SCHEMA.replace("node Q { name: String @key }", ""))
    graph.schema.apply(SCHEMA)
    graph.load([{"type": "Q", "data": {"name": "new"}}], mode="append")
    with pytest.raises(InputError, match="Q does not exist at commit"):
        reading.partitions(start, reading.latestOffset(start, ALL))
    with pytest.raises(InputError, match="does not belong to Q, but to the type Q of commit"):
        stream(graph, type="Q").latestOffset(start, ALL)


def test_a_property_that_gets_the_name_of_another_stops_the_stream(graph: Graph) -> None:
    start = put(graph, a={"n": 1, "x": 2.0})
    graph.schema.apply(SCHEMA.replace("n: I64?  ", ""))
    graph.schema.apply(SCHEMA)
    with pytest.raises(InputError, match="the columns of P differ at commit"):
        everything(graph, startingCommit=start)
    assert everything(graph, startingCommit=start, columns="id,x") == []


def test_a_renamed_property_stays_in_the_stream(graph: Graph) -> None:
    """A running stream keeps the names of its columns; after a restart, they have their new names."""
    start = put(graph, a={"n": 1, "x": 2.0}, b=2)
    reading = stream(graph, startingCommit=start)
    graph.schema.apply(SCHEMA.replace("n: I64?", 'm: I64? @rename_from("n")'))
    graph.load([{"type": "P", "data": {"name": "a", "m": 5, "x": 2.0}}], mode="merge")
    drop(graph, "b")
    begin = reading.initialOffset()
    end = reading.latestOffset(begin, ALL)
    assert short(delivered(reading, begin, end)) == [("delete", "b", 2), ("update", "a", 5)]
    assert short(delivered(stream(graph), begin, end), "m") == [("delete", "b", 2), ("update", "a", 5)]
    rows = everything(graph, startingCommit=start, columns="id,m")
    assert short(rows, "m") == [("delete", "b", 2), ("update", "a", 5)]


def test_a_dropped_type_without_rows_is_no_error(graph: Graph) -> None:
    reading = stream(graph, type="Q", startingCommit="latest")
    start = reading.initialOffset()
    graph.schema.apply(SCHEMA.replace("node Q { name: String @key }", ""))
    put(graph, a=1)
    assert fed(graph, start["commit"])[0][1:] == ("insert", "a", 1)
    assert reading.partitions(start, reading.latestOffset(start, ALL)) == []


def test_a_type_that_appears_with_rows_stops_the_stream_and_the_feed(graph: Graph) -> None:
    """An update of a branch brings a type of `main` with its rows."""
    graph.branches.create("side")
    start = graph.snapshot(branch="side").commit.id
    graph.schema.apply(SCHEMA + "node R { name: String @key }")
    graph.load([{"type": "R", "data": {"name": "r"}}], mode="append")
    graph.branches.update("side")
    with pytest.raises(SchemaBoundaryError):
        graph.changes.poll(branch="side", start=f"after:{start}")
    with pytest.raises(InputError, match="adds R with its rows"):
        everything(graph, type="R", branch="side", startingCommit=start)
    assert [row["id"] for row in everything(graph, type="R", branch="side")] == ["r"]


def test_invalid_streams_are_refused(graph: Graph) -> None:
    put(graph, a=1)
    plain = OmnigraphSource({"path": graph.uri, "type": "P"})
    with pytest.raises(InputError, match="a stream of a graph needs the option 'changes'"):
        plain.streamReader(plain.schema())
    with pytest.raises(InputError, match="'version' does not apply to a stream"):
        stream(graph, version="2")
    with pytest.raises(InputError, match="true or false"):
        OmnigraphSource({"path": graph.uri, "type": "P", "changes": "maybe"}).schema()
    reading = stream(graph)
    with pytest.raises(NotFoundError, match="not in the history"):
        reading.latestOffset({"commit": "elsewhere"}, ALL)


# On Spark


@pytest.mark.spark
def test_changes_can_be_read_without_a_stream(spark: SparkSession, graph: Graph) -> None:
    start = put(graph, a=1, b=2)
    middle = put(graph, "merge", b=3)
    drop(graph, "a")
    read = spark.read.format("omnigraph").options(type="P", changes=True, startingCommit=start, columns="id,n")
    assert sorted((r["_change"], r.id, r.n) for r in read.load(graph.uri).collect()) == [
        ("delete", "a", 1),
        ("update", "b", 3),
    ]
    assert [(r["_change"], r.id, r.n) for r in read.option("commit", middle).load(graph.uri).collect()] == [
        ("update", "b", 3)
    ]


@pytest.mark.slow
@pytest.mark.spark
def test_a_stream_delivers_every_change_once(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    put(graph, a=1, b=2)

    def run() -> None:
        changes = spark.readStream.format("omnigraph").options(type="P", changes=True, columns="id,n").load(graph.uri)
        written = changes.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        written.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()

    run()
    put(graph, "merge", b=3, c=4)
    drop(graph, "a")
    run()
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row["_change"], row.id, row.n) for row in rows) == [
        ("delete", "a", 1),
        ("insert", "a", 1),
        ("insert", "b", 2),
        ("insert", "c", 4),
        ("update", "b", 3),
    ]


@pytest.mark.slow
@pytest.mark.spark
def test_several_tasks_deliver_the_changes_of_the_feed_across_an_enum_extension(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = "node P { name: String @key  n: I64?  state: enum(old, new) }"
    graph = omnigraph.init(tmp_path / "g", schema)

    def people(numbers: range, state: str, mode: str = "merge") -> None:
        rows = [{"type": "P", "data": {"name": f"p{i}", "n": i, "state": state}} for i in numbers]
        graph.load(rows, mode=mode)

    def run() -> None:
        reading = spark.readStream.format("omnigraph").options(type="P", changes=True, rowsPerTask=10)
        changes = reading.option("startingCommit", "latest").load(graph.uri)
        with_task = changes.withColumn("task", spark_partition_id())
        written = with_task.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        written.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()

    people(range(40), "old")
    start = graph.snapshot().commit.id
    run()
    people(range(20, 60), "new")
    graph.schema.apply(schema.replace("(old, new)", "(old, new, gone)"))
    people(range(10, 40), "gone")
    people(range(30, 70), "gone", "overwrite")
    run()
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row["_commit"], row["_change"], row.id, row.n) for row in rows) == fed(graph, start)
    assert Counter((row["_change"], row.state) for row in rows) == {
        ("update", "new"): 20,
        ("insert", "new"): 20,
        ("update", "gone"): 30 + 20,
        ("delete", "old"): 10,
        ("delete", "gone"): 20,
        ("insert", "gone"): 10,
    }
    tasks: dict[str, set[int]] = {}
    for row in rows:
        tasks.setdefault(row["_commit"], set()).add(row.task)
    assert len(tasks) == 3
    assert all(len(of_commit) > 2 for of_commit in tasks.values())
    assert len(set().union(*tasks.values())) == sum(len(of_commit) for of_commit in tasks.values())
