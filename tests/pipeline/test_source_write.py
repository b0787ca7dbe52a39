"""A DataFrame becomes one commit, a stream one commit for each batch, also after retries."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.commit.work_records import read_records, watch
from omnigraph.errors import BadRowsError, InputError
from omnigraph.graph import Graph
from omnigraph.pipeline.source import writer as source_writer
from omnigraph.pipeline.source.source import OmnigraphSource
from omnigraph.pipeline.source.types import spark_schema
from omnigraph.pipeline.source.writer import StreamWriter, Target, Writer

SCHEMA = """\
node P { name: String @key  n: I64?  u: U64?  us: [U64]?  t: DateTime?  v: Vector(2)? }
edge Knows: P -> P { since: Date? }
"""
PEOPLE = pa.table(
    {
        "name": ["a", "b"],
        "u": pa.array([Decimal(2**64 - 1), None], pa.decimal128(20, 0)),
        "us": pa.array([[Decimal(2**64 - 1)], None], pa.list_(pa.decimal128(20, 0))),
        "t": pa.array([1_000_000, None], pa.timestamp("us", "UTC")),
        "v": pa.array([[1.0, 2.0], None], pa.list_(pa.float32())),
    }
)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return omnigraph.init(tmp_path / "g", SCHEMA)


def writer(graph: Graph, overwrite: bool = False, **options: str) -> Writer:
    return OmnigraphSource({"path": graph.uri, "type": "P", **options}).writer(spark_schema({}), overwrite)


def stream_writer(graph: Graph, **options: str) -> StreamWriter:
    source = OmnigraphSource({"path": graph.uri, "type": "P", "checkpointLocation": "/here", **options})
    return source.streamWriter(spark_schema({}), False)


def messages(writer: Writer | StreamWriter, *tables: pa.Table) -> list[WriterCommitMessage | None]:
    return [writer.write(iter(table.to_batches())) for table in tables]


def names(graph: Graph, branch: str = "main") -> list[str]:
    view = graph.snapshot(branch=branch)
    return sorted(view.scan("node:P", columns=["id"])["id"].to_pylist())


def history(graph: Graph) -> int:
    return len(list(graph.commits))


def staged(graph: Graph) -> list[Path]:
    return list((Path(graph.uri) / "__staging").rglob("*.arrow"))


def clean(graph: Graph) -> bool:
    """Whether no staged file or directory is left."""
    return not (Path(graph.uri) / "__staging").exists()


def test_all_tasks_are_one_commit_and_values_are_exact(graph: Graph) -> None:
    before = history(graph)
    writing = writer(graph, message="people")
    writing.commit(messages(writing, PEOPLE.slice(0, 1), PEOPLE.slice(0, 0), PEOPLE.slice(1)))
    assert history(graph) == before + 1
    assert graph.snapshot().commit.message == "people"
    found = graph.entity("P", "a")
    assert found is not None
    assert (found["u"], found["us"], found["v"]) == (2**64 - 1, [2**64 - 1], [1.0, 2.0])
    assert names(graph) == ["a", "b"]
    assert clean(graph)


def test_rows_are_staged_in_chunks(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(source_writer, OBJECT_BYTES=1)
    writing = writer(graph)
    parts = messages(writing, pa.concat_tables([PEOPLE.slice(0, 1), PEOPLE.slice(1)]))
    assert len(staged(graph)) == 2
    writing.commit(parts)
    assert names(graph) == ["a", "b"]


def test_every_write_mode_is_supported(graph: Graph) -> None:
    for overwrite, mode, table, expected in [
        (False, "append", PEOPLE.slice(0, 1), ["a"]),
        (False, "merge", PEOPLE, ["a", "b"]),
        (True, None, PEOPLE.slice(1), ["b"]),
        (False, "overwrite", PEOPLE.slice(0, 1), ["a"]),
        (True, None, PEOPLE.slice(0, 0), []),
    ]:
        options = {} if mode is None else {"mode": mode}
        writing = writer(graph, overwrite, **options)
        writing.commit(messages(writing, table))
        assert names(graph) == expected
    with pytest.raises(InputError, match="but the option 'mode' is 'merge'"):
        writer(graph, True, mode="merge")
    with pytest.raises(InputError, match="'replace' is not a load mode"):
        writer(graph, mode="replace")


def test_a_missing_branch_is_created_from_its_base(graph: Graph) -> None:
    writing = writer(graph, branch="new", base="main")
    writing.commit(messages(writing, PEOPLE))
    assert names(graph, "new") == ["a", "b"]
    assert names(graph) == []


def test_one_wrong_row_fails_the_whole_write(graph: Graph) -> None:
    before = history(graph)
    writing = writer(graph)
    wrong = PEOPLE.set_column(0, "name", pa.array(["x", None]))
    with pytest.raises(BadRowsError):
        writing.commit(messages(writing, PEOPLE.slice(0, 1), wrong))
    numbers = pa.array([Decimal("7"), Decimal("-1")], pa.decimal128(20, 0))
    parts = [pa.table({"name": [name], "u": numbers.slice(i, 1)}) for i, name in ((0, "v"), (0, "w"), (1, "x"))]
    with pytest.raises(BadRowsError, match=r"P, row 3: P\.u: out of range for U64"):
        writing.commit(messages(writing, *parts))
    assert history(graph) == before
    assert len(staged(graph)) == 5, "whoever tries again finds it"
    writing.abort([])
    assert clean(graph)


def test_a_failed_write_leaves_no_staged_rows(graph: Graph) -> None:
    for writing in (writer(graph), stream_writer(graph)):
        (done,) = messages(writing, PEOPLE.slice(0, 1))
        messages(writing, PEOPLE.slice(1))  # Spark does not report a task that failed after it staged rows
        assert len(staged(graph)) == 2
        writing.abort([done, None], *([] if isinstance(writing, Writer) else [0]))
        assert clean(graph)
    assert names(graph) == []


def test_an_abort_after_the_commit_keeps_the_commit(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    writing = writer(graph)
    parts = messages(writing, PEOPLE)

    def dies(target: Target, messages: object) -> None:
        raise RuntimeError("it dies")

    with monkeypatch.context() as failing:
        failing.setattr(Target, "clear", dies)
        with pytest.raises(RuntimeError, match="it dies"):
            writing.commit(parts)
    writing.abort(parts)
    assert clean(graph)
    assert names(graph) == ["a", "b"]
    assert b'"b"' in b"".join(graph.export())


def test_a_new_stream_writer_can_commit_staged_rows(graph: Graph) -> None:
    parts = messages(stream_writer(graph), PEOPLE.slice(0, 1))
    stream_writer(graph).commit(parts, 0)
    assert clean(graph)
    tasks = stream_writer(graph)
    (done,) = messages(tasks, PEOPLE.slice(1))
    messages(tasks, PEOPLE)
    stream_writer(graph).abort([done, None], 1)
    assert clean(graph)
    assert names(graph) == ["a"]


def test_a_running_write_has_a_work_record(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, bool]] = []
    load = Graph.load

    def looked(self: Graph, *given: Any, **named: Any) -> Any:
        records = read_records(graph.session.store.objects)
        seen.extend((each.writes, watch.is_alive(each, 30)) for each in records)
        return load(self, *given, **named)

    monkeypatch.setattr(Graph, "load", looked)
    writing = writer(graph)
    writing.commit(messages(writing, PEOPLE))
    assert seen == [(True, True)]
    assert clean(graph)


def test_a_repeated_batch_is_not_written_again(graph: Graph) -> None:
    first = stream_writer(graph)
    first.commit(messages(first, PEOPLE.slice(0, 1)), 0)
    after = history(graph)
    again = stream_writer(graph)
    again.commit(messages(again, PEOPLE.slice(0, 1)), 0)
    assert history(graph) == after
    again.commit(messages(again, PEOPLE.slice(1)), 1)
    again.commit(messages(again, PEOPLE.slice(0, 0)), 2)
    assert history(graph) == after + 1
    assert names(graph) == ["a", "b"]
    assert clean(graph)


def test_a_repeated_batch_in_another_order_is_recognised(graph: Graph) -> None:
    first = stream_writer(graph, branch="new", base="main")
    first.commit(messages(first, PEOPLE), 0)
    before = graph.snapshot(branch="new").commit
    again = stream_writer(graph, branch="new", base="main")
    again.commit(messages(again, PEOPLE.slice(1), PEOPLE.slice(0, 1)), 0)
    assert graph.snapshot(branch="new").commit == before
    assert clean(graph)


def test_batches_of_different_streams_are_distinct(graph: Graph) -> None:
    for place, table in (("/here", PEOPLE.slice(0, 1)), ("/there", PEOPLE.slice(1))):
        writing = stream_writer(graph, checkpointLocation=place)
        writing.commit(messages(writing, table), 0)
    assert names(graph) == ["a", "b"]
    with pytest.raises(InputError, match="the stream has neither a checkpoint location nor an idempotency key"):
        OmnigraphSource({"path": graph.uri, "type": "P"}).streamWriter(spark_schema({}), False)


def test_invalid_writes_are_refused(graph: Graph) -> None:
    with pytest.raises(InputError, match="there is no type 'Q'"):
        writer(graph, type="Q")
    with pytest.raises(InputError, match="'version' does not apply to a write"):
        writer(graph, version="1")


@pytest.mark.slow
@pytest.mark.spark
def test_spark_writes_a_data_frame(spark: SparkSession, graph: Graph) -> None:
    people = spark.createDataFrame([("a", 1), ("b", 2), ("c", 3)], "name string, n bigint").repartition(3)
    people.write.format("omnigraph").option("type", "P").mode("append").save(graph.uri)
    knows = spark.createDataFrame([("a", "b")], "`from` string, `to` string")
    knows.write.format("omnigraph").option("type", "Knows").mode("append").save(graph.uri)
    assert names(graph) == ["a", "b", "c"]
    assert graph.snapshot().pin("edge:Knows").row_count == 1
    assert clean(graph)
    with pytest.raises(Exception, match="key"):
        people.write.format("omnigraph").option("type", "P").mode("append").save(graph.uri)
    assert clean(graph)
    assert names(graph) == ["a", "b", "c"]


@pytest.mark.slow
@pytest.mark.spark
def test_a_stream_replicates_one_graph_to_another(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    copy = omnigraph.init(tmp_path / "copy", SCHEMA)

    def run() -> None:
        changes = spark.readStream.format("omnigraph").options(type="P", changes=True).load(graph.uri)
        rows = changes.where("_change != 'delete'").drop("_change", "_commit", "_committed")
        written = rows.writeStream.format("omnigraph").options(type="P", mode="merge", path=copy.uri)
        written = written.option("checkpointLocation", str(tmp_path / "checkpoint"))
        written.trigger(availableNow=True).start().awaitTermination()

    graph.load(PEOPLE.drop_columns(["u", "us"]), mode="append", type_name="P")
    run()
    graph.load([{"type": "P", "data": {"name": "c", "u": 2**64 - 1, "us": [7]}}], mode="append")
    run()
    commits = history(copy)
    run()
    assert history(copy) == commits
    assert b"".join(copy.export()) == b"".join(graph.export())
    assert clean(copy)
