"""`format("omnigraph")` reads a type at one commit, with exact values and the documented schema."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.errors import BranchNotFoundError, CompileError, InputError, NotFoundError
from omnigraph.graph import Graph
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.pipeline import fragment_groups
from omnigraph.pipeline.fragment_groups import balanced, grouped
from omnigraph.pipeline.source import reader
from omnigraph.pipeline.source.options import Options
from omnigraph.pipeline.source.pinned import pinned
from omnigraph.pipeline.source.reader import FragmentPartition, Reader, row_width
from omnigraph.pipeline.source.types import batch_schema
from omnigraph.storage.fragments import Fragment

SCHEMA = """\
node Thing {
    name: String @key
    b: Bool?
    i32: I32?
    i64: I64?
    u32: U32?
    u64: U64?
    f32: F32?
    f64: F64?
    d: Date?
    t: DateTime?
    kind: enum(big, small)?
    v: Vector(3)?
    tags: [String]?
    us: [U64]?
    ts: [DateTime]?
    photo: Blob?
}
node Place { name: String @key }
node Same { name: String @key }
edge Likes: Thing -> Thing { weight: F64? }
edge Other: Place -> Place
"""

FULL: dict[str, object] = {
    "name": "a",
    "b": True,
    "i32": -(2**31),
    "i64": 2**63 - 1,
    "u32": 2**32 - 1,
    "u64": 2**64 - 1,
    "f32": 0.1,
    "f64": -0.0,
    "d": "0001-01-01",
    "t": "2024-02-29T12:00:00.123Z",
    "kind": "big",
    "v": [1, 2.5, -3],
    "tags": ["x", ""],
    "us": [2**64 - 1, 0],
    "ts": ["1960-01-01T00:00:00.001Z"],
    "photo": "base64:aGVsbG8=",
}
ROWS = [
    {"type": "Thing", "data": FULL},
    {"type": "Thing", "data": {"name": "b"}},
    {"type": "Thing", "data": {"name": "ü", "u64": 0, "u32": 7, "tags": [], "photo": "base64:"}},
    {"edge": "Likes", "from": "a", "to": "ü", "data": {"id": "l", "weight": 2.5}},
]
DOCUMENTED = {
    "id": ("string", False, "String"),
    "b": ("boolean", True, "Bool"),
    "d": ("date", True, "Date"),
    "f32": ("float", True, "F32"),
    "f64": ("double", True, "F64"),
    "i32": ("int", True, "I32"),
    "i64": ("bigint", True, "I64"),
    "kind": ("string", True, "enum(big, small)"),
    "name": ("string", False, "String"),
    "photo": ("struct<data:binary,uri:string>", True, "Blob"),
    "t": ("timestamp", True, "DateTime"),
    "tags": ("array<string>", True, "[String]"),
    "ts": ("array<timestamp>", True, "[DateTime]"),
    "u32": ("bigint", True, "U32"),
    "u64": ("decimal(20,0)", True, "U64"),
    "us": ("array<decimal(20,0)>", True, "[U64]"),
    "v": ("array<float>", True, "Vector(3)"),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    made = omnigraph.init(tmp_path_factory.mktemp("source") / "g", SCHEMA)
    made.load(ROWS, mode="append")
    return made


def read(graph: Graph | Path, **options: str) -> pa.Table:
    """The rows of the tasks of a read, without Spark."""
    place = graph.uri if isinstance(graph, Graph) else str(graph)
    found = pinned(Options.read({"path": place, **options}))
    read = Reader(found, found.schema)
    batches = [batch for part in read.partitions() for batch in read.read(part)]
    return pa.Table.from_batches(batches, batch_schema(found.schema))


def ids(table: pa.Table) -> list[str]:
    return sorted(table["id"].to_pylist())


def test_the_schema_is_as_documented(graph: Graph) -> None:
    schema = pinned(Options.read({"path": graph.uri, "type": "Thing"})).schema
    found = {f.name: (f.dataType.simpleString(), f.nullable, f.metadata["omnigraph.type"]) for f in schema}
    assert found == DOCUMENTED
    assert list(found) == list(DOCUMENTED)
    edges = pinned(Options.read({"path": graph.uri, "type": "Likes"})).schema
    assert edges.simpleString() == "struct<id:string,from:string,to:string,weight:double>"


def test_every_value_is_exact(graph: Graph) -> None:
    first, second, third = sorted(read(graph, type="Thing").to_pylist(), key=lambda row: str(row["id"]))
    utc = dt.UTC
    assert first == {
        **FULL,
        "id": "a",
        "f32": pa.scalar(0.1, pa.float32()).as_py(),
        "u64": Decimal(2**64 - 1),
        "us": [Decimal(2**64 - 1), Decimal(0)],
        "d": dt.date(1, 1, 1),
        "t": dt.datetime(2024, 2, 29, 12, 0, 0, 123000, utc),
        "ts": [dt.datetime(1960, 1, 1, 0, 0, 0, 1000, utc)],
        "photo": {"data": b"hello", "uri": None},
    }
    assert str(first["f64"]) == "-0.0"
    assert second == {**dict.fromkeys(DOCUMENTED), "id": "b", "name": "b"}
    assert (third["u64"], third["u32"], third["tags"]) == (Decimal(0), 7, [])
    assert third["photo"] == {"data": b"", "uri": None}


def test_edges_have_endpoint_columns(graph: Graph) -> None:
    assert read(graph, type="Likes").to_pylist() == [{"id": "l", "from": "a", "to": "ü", "weight": 2.5}]
    assert read(graph, type="Likes", columns="to, from").to_pylist() == [{"to": "ü", "from": "a"}]


def test_only_selected_columns_are_read_in_their_order(graph: Graph) -> None:
    assert read(graph, type="Thing", columns="u32,id").column_names == ["u32", "id"]


def test_a_type_without_entities_has_no_rows(graph: Graph) -> None:
    found = pinned(Options.read({"path": graph.uri, "type": "Place"}))
    assert Reader(found, found.schema).partitions() == []
    assert read(graph, type="Place").num_rows == 0


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({}, InputError, "the option 'type' is missing"),
        ({"type": "Thingy"}, InputError, "there is no type 'Thingy'"),
        ({"type": "edge:Thing"}, InputError, "there is no type 'edge:Thing'"),
        ({"type": "Thing", "branch": "elsewhere"}, BranchNotFoundError, "there is no branch 'elsewhere'"),
        ({"type": "Thing", "columns": "id, nam"}, InputError, "Thing has no column 'nam'"),
        ({"type": "Thing", "columns": "id,,name"}, InputError, "empty name"),
        ({"type": "Thing", "columns": "id,id"}, InputError, "'id' twice"),
        ({"type": "Thing", "colums": "id"}, InputError, "there is no option 'colums'"),
        ({"type": "Thing", "version": "0"}, InputError, "an integer of at least 1, not '0'"),
        ({"type": "Thing", "version": "new"}, InputError, "an integer of at least 1, not 'new'"),
        ({"type": "Thing", "version": "99"}, NotFoundError, "no version 99"),
        ({"type": "Thing", "commit": "nothing"}, NotFoundError, "there is no commit or tag 'nothing'"),
        ({"type": "Thing", "commit": "x", "branch": "main"}, InputError, "give commit or branch, not both"),
        ({"type": "Thing", "version": "1", "timestamp": "2026-01-01"}, InputError, "give only one of"),
        ({"type": "Thing", "timestamp": "yesterday"}, InputError, "not a time"),
        ({"type": "Thing", "where": "agee > 3"}, CompileError, "agee"),
        (
            {"type": "Thing", "where": 'name = "a" } query x() { delete Thing where name = "a"'},
            InputError,
            "one condition",
        ),
        ({"type": "Thing", "where": 'name = "a" delete Thing where name = "b"'}, InputError, "one condition"),
    ],
)
def test_a_wrong_option_is_reported(
    graph: Graph, options: Mapping[str, str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        pinned(Options.read({"path": graph.uri, **options}))


def test_a_graph_in_memory_is_refused() -> None:
    with pytest.raises(InputError, match="Spark tasks cannot reach a graph in the memory of this process"):
        pinned(Options.read({"path": "memory://here", "type": "Thing"}))


def test_a_missing_graph_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no graph"):
        pinned(Options.read({"path": str(tmp_path), "type": "Thing"}))


def test_option_names_ignore_case_and_secrets_are_not_shown() -> None:
    options = Options.read({"PATH": "x", "Type": "Thing", "storage.secret_access_key": "hush"})
    assert (options.path, options.type) == ("x", "Thing")
    assert options.storage == {"secret_access_key": "hush"}
    assert "hush" not in repr(options)


def test_an_ambiguous_type_name_needs_its_kind(tmp_path: Path) -> None:
    place = tmp_path / "g"
    made = omnigraph.init(place, "node Visit { name: String @key } edge Visit: Visit -> Visit")
    made.load([{"type": "Visit", "data": {"name": "a"}}], mode="append")
    with pytest.raises(InputError, match="a node type and an edge type"):
        read(place, type="Visit")
    assert ids(read(place, type="node:Visit")) == ["a"]
    assert read(place, type="edge:Visit").num_rows == 0


# States


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, list[Any]]:
    made = omnigraph.init(tmp_path_factory.mktemp("history") / "g", "node P { name: String @key  n: I64? }")
    commits = []
    for name in "abc":
        made.load([{"type": "P", "data": {"name": name}}], mode="append")
        commits.append(made.snapshot().commit)
    made.branches.create("side")
    made.load([{"type": "P", "data": {"name": "d"}}], mode="append", branch="side")
    made.mutate('query x() { delete P where name = "a" }')
    made.tags.create("first", commit=commits[0].id)
    return made, commits


def test_branches_commits_tags_and_versions_can_be_read(history: tuple[Graph, list[Any]]) -> None:
    graph, commits = history
    assert ids(read(graph, type="P")) == ["b", "c"]
    assert ids(read(graph, type="P", branch="side")) == ["a", "b", "c", "d"]
    assert ids(read(graph, type="P", commit=commits[1].id)) == ["a", "b"]
    assert ids(read(graph, type="P", commit="first")) == ["a"]
    assert ids(read(graph, type="P", version=str(commits[1].manifest_version))) == ["a", "b"]
    when = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=commits[1].created_at)
    assert ids(read(graph, type="P", timestamp=when.isoformat())) == ["a", "b"]
    late = when + dt.timedelta(days=1)
    assert ids(read(graph, type="P", timestamp=late.isoformat())) == ["b", "c"]


# Partitions


def test_small_fragments_are_read_together() -> None:
    def sized(*rows: int) -> list[Fragment]:
        return [Fragment(i, count, count * 10) for i, count in enumerate(rows)]

    assert list(grouped([])) == []
    assert list(grouped(sized(1, 2, 3))) == [(0, 1, 2)]
    most = fragment_groups.PARTITION_ROWS
    assert list(grouped(sized(most, 1, most - 1, 2, 2))) == [(0,), (1, 2), (3, 4)]
    wide = [Fragment(i, 10, fragment_groups.PARTITION_BYTES // 2 + 1) for i in range(3)]
    assert list(grouped(wide)) == [(0,), (1,), (2,)]
    assert list(grouped(wide, 2 * wide[0].size)) == [(0, 1), (2,)]


def test_tasks_have_about_equal_sizes() -> None:
    def sizes(given: list[int], most: float, cores: int) -> list[int]:
        found = balanced([Fragment(i, 10, size) for i, size in enumerate(given)], most, cores)
        assert [number for group in found for number in group] == list(range(len(given)))
        return [sum(given[number] for number in group) for group in found]

    assert sizes([], 5, 2) == []
    assert sizes([1] * 10, 3, 2) == [3, 2, 3, 2]  # two cores take five each, where [3, 3, 3, 1] would take six
    assert sizes([1] * 10, 5, 2) == [5, 5]
    assert sizes([1] * 10, 4.99, 2) == [3, 2, 3, 2]
    assert sizes([1] * 3, 10, 8) == [3]
    assert sizes([1, 100], 60, 2) == [1, 100]
    assert sizes([100, 1], 60, 2) == [100, 1]
    assert sizes([10, *[1] * 10], 5, 2) == [10, 3, 4, 3]
    assert sizes([1] * 7, 1, 2) == [1] * 7
    unknown = [Fragment(i, fragment_groups.PARTITION_ROWS // 2, 0) for i in range(6)]
    assert balanced(unknown, 100, 3) == [(0, 1), (2, 3), (4, 5)]


def test_the_task_size_depends_on_the_selected_columns(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    fragments = [Fragment(i, 100, 40 << 20) for i in range(8)]
    monkeypatch.setattr("omnigraph.storage.table_view.fragments", lambda _: fragments)
    monkeypatch.setattr("os.cpu_count", lambda: 2)

    def tasks(**options: str) -> int:
        found = pinned(Options.read({"path": graph.uri, "type": "Likes", **options}))
        return len(Reader(found, found.schema).partitions())

    assert row_width([ValueType(Scalar.STRING), ValueType(Scalar.F64), ValueType(Scalar.VECTOR, dim=5)]) == 24 + 8 + 20
    assert tasks() == 4  # three of 40 MiB fit in 128 MiB, but with three tasks one core would be idle in the end
    assert tasks(columns="weight") == 2  # a tenth of the bytes, so one task per core
    assert tasks(columns="weight", where="weight > 5") == 1


def test_every_row_is_in_exactly_one_partition(tmp_path: Path, thresholds: Thresholds) -> None:
    thresholds(fragment_groups, PARTITION_ROWS=8)
    thresholds(reader, BATCH_ROWS=3)
    place = tmp_path / "g"
    made = omnigraph.init(place, "node P { name: String @key  n: I64? }")
    for first in range(0, 40, 8):
        rows = [{"type": "P", "data": {"name": f"{n:02}", "n": n}} for n in range(first, first + 8)]
        made.load(rows, mode="append")
    made.mutate("query x() { delete P where n = 9 }")
    found = pinned(Options.read({"path": str(place), "type": "P"}))
    parts = Reader(found, found.schema).partitions()
    assert [len(part.fragments) for part in parts if isinstance(part, FragmentPartition)] == [1, 1, 1, 1, 1]
    assert ids(read(place, type="P")) == [f"{n:02}" for n in range(40) if n != 9]


# On Spark


@pytest.mark.spark
def test_spark_reads_all_rows_and_types(spark: SparkSession, graph: Graph) -> None:
    frame = spark.read.format("omnigraph").option("type", "Thing").load(graph.uri)
    assert {f.name: f.dataType.simpleString() for f in frame.schema} == {n: t for n, (t, _, _) in DOCUMENTED.items()}
    expected = read(graph, type="Thing").sort_by("id")
    assert frame.orderBy("id").toArrow().cast(expected.schema) == expected
    edges = spark.read.format("omnigraph").options(path=graph.uri, type="Likes").load()
    assert [tuple(row) for row in edges.collect()] == [("l", "a", "ü", 2.5)]


@pytest.mark.spark
def test_a_frame_stays_at_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    made = omnigraph.init(tmp_path / "g", "node P { name: String @key }")
    made.load([{"type": "P", "data": {"name": "a"}}], mode="append")
    frame = spark.read.format("omnigraph").option("type", "P").load(made.uri)
    made.load([{"type": "P", "data": {"name": "b"}}], mode="append")
    assert [row.id for row in frame.collect()] == ["a"]
    assert frame.union(frame).count() == 2
    later = spark.read.format("omnigraph").option("type", "P").load(made.uri)
    assert sorted(row.id for row in later.collect()) == ["a", "b"]


@pytest.mark.spark
def test_sql_can_read_a_graph(spark: SparkSession, graph: Graph) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW things USING omnigraph OPTIONS (path '{graph.uri}', type 'Thing')")
    assert [row.id for row in spark.sql("SELECT id FROM things WHERE u64 > 5").collect()] == ["a"]


@pytest.mark.spark
def test_errors_are_shown_by_spark(spark: SparkSession, graph: Graph) -> None:
    with pytest.raises(AnalysisException, match="there is no type 'Thingy'"):
        spark.read.format("omnigraph").option("type", "Thingy").load(graph.uri)
    given = spark.read.format("omnigraph").option("type", "Thing").schema("u64 bigint")
    with pytest.raises(Exception, match=r"column 'u64' has type decimal\(20,0\), not bigint"):
        given.load(graph.uri).collect()
