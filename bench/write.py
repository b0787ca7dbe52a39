"""What writing costs: single rows against bare Lance commits, and loads in bulk against no checks at all.

A single row goes through `graph.mutate`: compile, look up, check, commit. The peer puts the same row into a bare Lance
table with as many rows and as much of a history. A bulk load is timed in a process of its own, for its peak memory; the
peers are the same files through pyarrow into bare Lance tables, and through the COPY of ladybug, another embedded graph
database. fsync is left out but where it is said.

Flags: `--nodes N --edges N` for the size of the bulk load, `--rows N,N` for that of the tables that single rows go to,
`--commits N,N` for the history, and `--only single|threads|bulk`. The inserts from threads always use fsync.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.fragment import write_fragments

import omnigraph
from bulk.data import SCHEMA, write_files
from harness import Benchmark, Comparison, Timing, Work, figure
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC
from writing.threads import threads

HERE = Path(__file__).resolve().parent
LADYBUG = HERE.parent / ".venv-bench" / "bin" / "python"
GIB = 1 << 30
FULL_NODES = 1_000_000
"""The size that the goals for time are set for: in a small load, what is there once for each load counts for most."""

UPSERT = "query put($name: String, $age: I32) { insert Person { name: $name, age: $age } }"
CONNECT = "query connect($from: String, $to: String) { insert Knows { from: $from, to: $to } }"


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, help="nodes of the bulk load")
    parser.add_argument("--edges", type=int, help="edges of the bulk load")
    parser.add_argument("--rows", type=sizes, help="rows of the tables that single rows go to")
    parser.add_argument("--commits", type=sizes, help="commits before a single row is written")
    parser.add_argument("--only", choices=["single", "threads", "bulk"], help="one part of the benchmark")


def sizes(text: str) -> list[int]:
    return [int(size) for size in text.split(",")]


def main(argv: list[str] | None = None) -> None:
    bench = Benchmark("write", argv, flags)
    os.environ[FSYNC.name] = "0"
    root = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        if bench.options.only in (None, "single"):
            single(bench, root)
        if bench.options.only in (None, "threads"):
            os.environ[FSYNC.name] = "1"
            threads(bench, root / "threads")
            os.environ[FSYNC.name] = "0"
        if bench.options.only in (None, "bulk"):
            bulk(bench, root)
    finally:
        shutil.rmtree(root)
    bench.finish()


# ---- single rows


def single(bench: Benchmark, root: Path) -> None:
    every_rows = bench.options.rows or ([1_000] if bench.quick else [1_000, 1_000_000])
    every_commits = bench.options.commits or ([10] if bench.quick else [10, 500])
    found: dict[tuple[str, int, int], float] = {}
    for commits, rows in itertools.product(every_commits, every_rows):
        place = root / f"{commits}-{rows}"
        graph = make_graph(place / "graph", commits, rows)
        node, edge = make_bare(place / "node", commits, rows, NODE), make_bare(place / "edge", commits, rows, EDGE)
        state = f"{rows:,} rows, {commits} commits"
        for what, ours, peer in (
            ("keyed upsert", upserts(graph, rows), bare_upserts(node, rows)),
            ("edge insert", connects(graph, rows), bare_appends(edge)),
        ):
            result = bench.compare(f"one {what}, {state}", ours=ours, peers={"bare Lance commit": peer}, rounds=15)
            found[what, commits, rows] = 1 / result.speedup("bare Lance commit")
        graph.close()
        shutil.rmtree(place)
    print("\nsingle rows, as a multiple of the bare commit")
    for (what, commits, rows), ratio in found.items():
        print(f"  {what:<14}{rows:>10,} rows {commits:>5} commits {figure(ratio):>8} ×")


def names(rows: int) -> pa.Array:
    return pc.binary_join_element_wise("person-", pa.array(np.arange(rows)).cast(pa.utf8()), "")


def make_graph(place: Path, commits: int, rows: int) -> Graph:
    """A graph with so many commits of one row, and then the bulk of its rows."""
    graph = omnigraph.init(place, SCHEMA)
    for i in range(commits // 2):
        graph.mutate(UPSERT, {"name": f"early-{i}", "age": 1})
        graph.mutate(CONNECT, {"from": f"early-{i}", "to": f"early-{i}"})
    people = names(rows)
    knows = pa.table({"from": people, "to": people.take(pa.array(np.arange(rows)[::-1]))})
    graph.load({"Person": pa.table({"name": people}), "Knows": knows}, mode="append")
    return graph


def upserts(graph: Graph, rows: int) -> Work:
    numbers = itertools.count()
    return lambda: graph.mutate(UPSERT, {"name": f"person-{next(numbers) * 7 % rows}", "age": 7})


def connects(graph: Graph, rows: int) -> Work:
    numbers = itertools.count()

    def connect() -> None:
        i = next(numbers)
        graph.mutate(CONNECT, {"from": f"person-{i * 7 % rows}", "to": f"person-{i * 11 % rows}"})

    return connect


NODE = pa.schema([("id", pa.utf8()), ("age", pa.int32()), ("city", pa.utf8()), ("name", pa.utf8())])
EDGE = pa.schema(
    [("id", pa.utf8()), ("src", pa.utf8()), ("dst", pa.utf8()), ("since", pa.date32()), ("weight", pa.float32())]
)


def make_bare(place: Path, commits: int, rows: int, schema: pa.Schema) -> LanceDataset:
    """A bare table with the same history."""
    dataset = lance.write_dataset(schema.empty_table(), str(place), enable_stable_row_ids=True)
    for i in range(commits // 2):
        dataset = append(dataset, one_row(schema, f"early-{i}"))
    ids = names(rows)
    columns = [ids if pa.types.is_string(field.type) else pa.nulls(rows, field.type) for field in schema]
    return append(dataset, pa.table(columns, schema=schema))


def one_row(schema: pa.Schema, name: str) -> pa.Table:
    return pa.table([[name if pa.types.is_string(f.type) else None] for f in schema], schema=schema)


def append(dataset: LanceDataset, rows: pa.Table) -> LanceDataset:
    return LanceDataset.commit(dataset, write_fragments(rows, dataset, return_transaction=True), max_retries=0)


def bare_upserts(dataset: LanceDataset, rows: int) -> Work:
    numbers = itertools.count()

    def upsert() -> None:
        nonlocal dataset
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        row = one_row(NODE, f"person-{next(numbers) * 7 % rows}")
        dataset = LanceDataset.commit(dataset, merge.execute_uncommitted(row)[0], max_retries=0)

    return upsert


def bare_appends(dataset: LanceDataset) -> Work:
    numbers = itertools.count()

    def insert() -> None:
        nonlocal dataset
        dataset = append(dataset, one_row(EDGE, f"edge-{next(numbers)}"))

    return insert


# ---- bulk


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to load: which Python runs which script, on which files, with fsync or without."""

    name: str
    script: str
    files: str
    python: Path = Path(sys.executable)
    fsync: bool = False


OURS = {kind: Contender(f"ours from {kind}", "ours.py", kind) for kind in ("parquet", "ndjson")}
BARE = {kind: Contender(f"no checks from {kind}", "bare.py", kind) for kind in ("parquet", "ndjson")}
DURABLE = Contender("ours from parquet, forced to disk", "ours.py", "parquet", fsync=True)
COPY = Contender("ladybug COPY from parquet", "ladybug_copy.py", "parquet", LADYBUG)


def bulk(bench: Benchmark, root: Path) -> None:
    nodes = bench.options.nodes or (20_000 if bench.quick else FULL_NODES)
    edges = bench.options.edges or (100_000 if bench.quick else 5_000_000)
    files = root / "files"
    write_files(files, nodes, edges)
    peers = [COPY] if has_ladybug() else []
    contenders = [*OURS.values(), *BARE.values(), DURABLE, *peers]
    timings, peaks = race(contenders, files, root / "places", rounds=1 if bench.quick else 3)
    print(f"\n{nodes:,} nodes and {edges:,} edges in one load")
    for contender in contenders:
        timing = timings[contender.name]
        rate = (nodes + edges) / timing.median
        print(
            f"  {contender.name:<36}{figure(timing.median):>8} s  ±{timing.spread / 2:4.0%}"
            f"{rate:>14,.0f} rows/s{figure(peaks[contender.name] / GIB):>8} GiB at most"
        )
    full = nodes >= FULL_NODES
    for kind, limit in (("parquet", 3), ("ndjson", 4)):
        ours, bare = timings[OURS[kind].name], timings[BARE[kind].name]
        bench.add(Comparison(f"a load of {nodes + edges:,} rows from {kind}", ours, {bare.name: bare}))
        if full:
            bench.goal(f"load from {kind}, against no checks", ours.median / bare.median, limit=limit, unit="×")
        bench.goal(f"peak memory of a load from {kind}", peaks[ours.name] / GIB, limit=2, unit="GiB")
    for peer in peers:
        ours, theirs = timings[DURABLE.name], timings[peer.name]
        bench.add(Comparison("a load from parquet, forced to disk", ours, {theirs.name: theirs}))
        if full:
            bench.goal("load from parquet, against ladybug's COPY", ours.median / theirs.median, limit=1, unit="×")


def has_ladybug() -> bool:
    try:
        subprocess.run([str(LADYBUG), "-c", "import ladybug"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        print("\nladybug is not installed (make bench does it, where there is a network): not compared with its COPY")
        return False
    return True


def race(
    contenders: list[Contender], files: Path, places: Path, rounds: int
) -> tuple[dict[str, Timing], dict[str, int]]:
    """Each contender once a round, in turns. The timings, and the most memory that each came to take."""
    samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    peaks = dict.fromkeys(samples, 0)
    for round_ in range(rounds):
        first = round_ % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            figures = run(contender, files, places / f"{round_}")
            samples[contender.name].append(figures["seconds"])
            peaks[contender.name] = max(peaks[contender.name], int(figures["peak"]))
    return {name: Timing(name, tuple(taken)) for name, taken in samples.items()}, peaks


def run(contender: Contender, files: Path, place: Path) -> dict[str, float]:
    command = [str(contender.python), str(HERE / "bulk" / contender.script), str(files / contender.files), str(place)]
    environment = {**os.environ, FSYNC.name: "1" if contender.fsync else "0"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    shutil.rmtree(place)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    main()
