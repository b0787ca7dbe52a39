"""Reading a type through `format("omnigraph")`, against Spark reading the same rows from Parquet.

Both are read in the same session, in turns: all rows with all columns, and one column of the few rows that a condition
lets through. Before anything is timed, both must give the same rows.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import omnigraph
from harness import Benchmark, duration
from omnigraph.graph import Graph
from omnigraph.pipeline.spark.session import Session, SparkSettings
from omnigraph.settings import FSYNC

SCHEMA = """\
node Person {
    name: String @key
    city: String?
    age: I32?
    visits: I64?
    badge: I64? @index
    score: F64?
    joined: DateTime?
}
"""
ROWS = 10_000_000
QUICK_ROWS = 200_000
FILE_ROWS = 1_000_000
DIFFERENT = 1_000_000
"""How many values there are to look for: a tenth of a million of the rows has each, at full size."""


def people(first: int, count: int, random: np.random.Generator) -> pa.Table:
    """Some of the rows. Nothing about them is sorted but their names."""
    numbers = pa.array(np.arange(first, first + count))
    names = pa.compute.binary_join_element_wise("person-", numbers.cast(pa.utf8()), "")
    cities = pa.array([f"city {i}" for i in range(500)]).take(pa.array(random.integers(0, 500, count)))
    joined = pa.array(random.integers(0, 1_700_000_000_000, count)).cast(pa.timestamp("ms", "UTC"))
    return pa.table(
        {
            "name": names,
            "city": cities,
            "age": pa.array(random.integers(0, 100, count), pa.int32()),
            "visits": pa.array(random.integers(0, DIFFERENT, count), pa.int64()),
            "badge": pa.array(random.integers(0, DIFFERENT, count), pa.int64()),
            "score": pa.array(random.random(count)),
            "joined": joined,
        }
    )


def tables(rows: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(7)
    for first in range(0, rows, FILE_ROWS):
        yield people(first, min(FILE_ROWS, rows - first), random)


def make(place: Path, rows: int) -> Graph:
    """The graph, and beside it the same rows as Parquet files of as many rows as the fragments have."""
    os.environ[FSYNC.name] = "0"
    graph = omnigraph.init(place / "graph", SCHEMA)
    (place / "parquet").mkdir()
    for number, table in enumerate(tables(rows)):
        graph.load(table, mode="append", type_name="Person")
        columns = {"id": table["name"], **{name: table[name] for name in sorted(table.column_names)}}
        pq.write_table(pa.table(columns), place / "parquet" / f"{number:03}.parquet")
    graph.ensure_indexes()
    return graph


def everything(frame: DataFrame) -> None:
    """Read all rows and columns, and do nothing with them."""
    frame.write.format("noop").mode("overwrite").save()


def digest(frame: DataFrame) -> tuple[object, ...]:
    """What all rows are together, in no order."""
    columns = sorted(frame.columns)
    hashed = sql.xxhash64(*columns).cast("decimal(38,0)")
    return tuple(frame.agg(sql.count("*"), sql.sum(hashed)).collect()[0])


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, help="how many rows")


def main(argv: Sequence[str] | None = None) -> None:
    bench = Benchmark("source", argv, flags=flags)
    root = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    session = Session(SparkSettings(memory="4g"))
    try:
        run(bench, root, session)
    finally:
        session.stop()
        shutil.rmtree(root)
    bench.finish()


def run(bench: Benchmark, root: Path, session: Session) -> None:
    rows = bench.options.rows or (QUICK_ROWS if bench.quick else ROWS)
    graph = make(root, rows)
    begun = time.perf_counter()
    spark = session.spark
    print(f"Spark started in {duration(time.perf_counter() - begun)}; {rows:,} rows")

    def ours(**options: str) -> DataFrame:
        return spark.read.format("omnigraph").options(type="Person", **options).load(graph.uri)

    def parquet() -> DataFrame:
        return spark.read.parquet(str(root / "parquet"))

    if digest(ours()) != digest(parquet()):
        raise SystemExit("the rows are not the same")
    rounds = 5
    full = bench.compare(
        f"all of {rows:,} rows",
        ours=lambda: everything(ours()),
        peers={"parquet": lambda: everything(parquet())},
        rounds=rounds,
    )
    few = {name: selective(bench, spark, ours, parquet, name, rounds) for name in ("visits", "badge")}
    bench.goal("a full read, against Parquet", 1 / full.speedup("parquet"), limit=1.3, unit="×")
    bench.goal("few rows by a condition, against Parquet", 1 / few["visits"], limit=1, unit="×")
    bench.goal("few rows by an index, against Parquet", 1 / few["badge"], limit=1, unit="×")


def selective(bench: Benchmark, spark: SparkSession, ours: object, parquet: object, name: str, rounds: int) -> float:
    """Read one column of the rows where it has one value; how many times as long Parquet takes."""
    assert callable(ours)
    assert callable(parquet)
    wanted = 4711

    def by_option() -> list[object]:
        return list(ours(columns=name, where=f"{name} = {wanted}").collect())

    def by_filter() -> list[object]:
        return list(parquet().where(sql.col(name) == wanted).select(name).collect())

    if len(by_option()) != len(by_filter()):
        raise SystemExit(f"{name}: not the same rows")
    how = "with an index" if name == "badge" else "without an index"
    result = bench.compare(f"one column, few rows, {how}", ours=by_option, peers={"parquet": by_filter}, rounds=rounds)
    return result.speedup("parquet")


if __name__ == "__main__":
    main()
