"""The option `where` is exact. Spark's own filter pushdown is not used, because of a bug."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import StructType
from tests.pipeline.test_source import ids, read

import omnigraph
from omnigraph.graph import Graph

SCHEMA = """\
node P {
    name: String @key
    n: I64?
    u: U64? @index
    x: F64?
    t: DateTime?
    tags: [String]?
}
edge Knows: P -> P { since: Date? }
"""
ROWS = [
    {"type": "P", "data": {"name": "a", "n": 1, "u": 2**64 - 1, "x": 0.0, "t": "2024-01-01T00:00:00Z"}},
    {"type": "P", "data": {"name": "b", "n": 2, "u": 5, "x": -0.0, "tags": ["x"]}},
    {"type": "P", "data": {"name": "c", "n": None, "u": 0, "x": 1.5}},
    {"edge": "Knows", "from": "a", "to": "b", "data": {"id": "k", "since": "2020-01-01"}},
    {"edge": "Knows", "from": "b", "to": "c", "data": {"id": "l"}},
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    made = omnigraph.init(tmp_path_factory.mktemp("where") / "g", SCHEMA)
    made.load(ROWS, mode="append")
    return made


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("n > 1", ["b"]),
        ("not n > 1", ["a"]),
        ("n is null or n = 1", ["a", "c"]),
        ("u = 18446744073709551615", ["a"]),
        ("u < 6", ["b", "c"]),
        ("x = 0.0", ["a", "b"]),
        ("x >= 0", ["a", "b", "c"]),
        ('name = "b"', ["b"]),
        ('name starts_with "c"', ["c"]),
        ('t < datetime("2024-01-02T00:00:00Z")', ["a"]),
        ('tags contains "x"', ["b"]),
        ("t < now()", ["a"]),
    ],
)
def test_a_where_option_selects_exactly_the_matching_rows(graph: Graph, where: str, found: list[str]) -> None:
    assert ids(read(graph, type="P", where=where)) == found
    assert read(graph, type="P", where=where, columns="id").column_names == ["id"]
    assert ids(read(graph, type="P", where=where, columns="id")) == found


def test_edges_can_be_selected_by_their_endpoints(graph: Graph) -> None:
    assert ids(read(graph, type="Knows", where='from = "b"')) == ["l"]
    assert ids(read(graph, type="Knows", where='to = "b" and since is not null', columns="id,to")) == ["k"]


def test_selected_rows_have_their_own_blobs(tmp_path: Path) -> None:
    made = omnigraph.init(tmp_path / "g", "node F { name: String @key  data: Blob? }")
    made.load(pa.table({"name": ["a", "b"], "data": [b"1", b"22"]}), mode="append", type_name="F")
    rows = read(made, type="F", where='name = "b"', columns="data").to_pylist()
    assert rows == [{"data": {"data": b"22", "uri": None}}]


@pytest.mark.spark
def test_conditions_of_data_frames_are_not_mixed_up(spark: SparkSession, graph: Graph) -> None:
    people = spark.read.format("omnigraph").option("type", "P").load(graph.uri)
    first, second = people.where("name = 'a'").select("id"), people.where("name = 'b'").select("id")
    assert sorted(row.id for row in first.union(second).collect()) == ["a", "b"]
    assert people.count() == 3
    chosen = spark.read.format("omnigraph").options(type="P", where="n > 1").load(graph.uri)
    assert [row.id for row in chosen.collect()] == ["b"]
    assert people.count() == 3


class _Part(InputPartition):
    pass


class _Numbers(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "n bigint"

    def reader(self, schema: StructType) -> _Reader:
        return _Reader()


class _Reader(DataSourceReader):
    def __init__(self) -> None:
        self.wanted = [1, 2, 3]

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (the name is Spark's)
        for filter in filters:
            if isinstance(filter, EqualTo):
                self.wanted = [filter.value]
            else:
                yield filter

    def partitions(self) -> Sequence[InputPartition]:
        return [_Part(None)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, ...]]:
        return iter([(n,) for n in self.wanted])


@pytest.mark.slow
@pytest.mark.spark
def test_spark_still_mixes_up_pushed_down_conditions(spark: SparkSession) -> None:
    """If this fails, Spark has fixed the bug, and conditions of a DataFrame can be pushed down."""
    spark = spark.newSession()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(_Numbers)
    numbers = spark.read.format("numbers").load()
    assert [row.n for row in numbers.where("n = 2").collect()] == [2]
    assert [row.n for row in numbers.collect()] == [2]
