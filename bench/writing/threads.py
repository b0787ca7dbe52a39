"""One-row inserts from threads of one process: how many are acknowledged in a second, and how long each waits."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa

import omnigraph
from harness import Benchmark, duration, figure

SCHEMA = "node Person { name: String @key  age: I32? }"
INSERT = "query put($name: String, $age: I32) { insert Person { name: $name, age: $age } }"
THREADS = (1, 4, 16)
ROWS = 1_000
"""Rows of the table before the first insert."""

MOST_FOR_LAST = 6
LEAST_THROUGHPUT = 6


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the inserts in a second, the median and the 99th percentile of their times, and the commits made."""

    rate: float
    middle: float
    slow: float
    commits: float


def threads(bench: Benchmark, root: Path) -> None:
    """Time inserts from 1, 4 and 16 threads in turns, each on a new graph, with fsync."""
    calls, rounds = (48, 1) if bench.quick else (320, 5)
    runs: dict[int, list[Run]] = {count: [] for count in THREADS}
    for round_ in range(rounds):
        for count in THREADS:
            runs[count].append(insert(root / f"{round_}-{count}", count, calls))
    medians = {count: middle_of(found) for count, found in runs.items()}
    alone, together = medians[1], medians[THREADS[-1]]
    print(f"\n{calls} one-row inserts from threads of one process, medians of {rounds} runs")
    for count, run in medians.items():
        print(
            f"  {count:>3} threads{figure(run.rate):>8} inserts/s{figure(run.rate / alone.rate):>7} ×"
            f"   p50 {duration(run.middle):>9}   p99 {duration(run.slow):>9}"
            f"{figure(run.slow / alone.middle):>7} × of a lone commit{run.commits:>6.0f} commits"
        )
    if not bench.quick:
        ratio = together.rate / alone.rate
        bench.goal("inserts of 16 threads, against one", ratio, limit=LEAST_THROUGHPUT, unit="×", at_least=True)
        waiting = together.slow / alone.middle
        bench.goal("p99 of 16 threads, against a lone commit", waiting, limit=MOST_FOR_LAST, unit="×")


def middle_of(runs: list[Run]) -> Run:
    return Run(*(median(getattr(run, name) for run in runs) for name in ("rate", "middle", "slow", "commits")))


def insert(place: Path, count: int, calls: int) -> Run:
    """Insert rows from threads, into a new graph."""
    times: list[float] = []
    with omnigraph.init(place, SCHEMA) as graph:
        graph.load({"Person": pa.table({"name": [f"person-{i}" for i in range(ROWS)]})}, mode="append")
        graph.mutate(INSERT, {"name": "first", "age": 0})
        before = len(graph.commits.list().commits)

        def work(thread: int) -> None:
            for i in range(calls // count):
                began = time.perf_counter()
                graph.mutate(INSERT, {"name": f"new-{thread}-{i}", "age": i})
                times.append(time.perf_counter() - began)

        began = time.perf_counter()
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(work, range(count)))
        took = time.perf_counter() - began
        commits = len(graph.commits.list().commits) - before
        assert graph.snapshot().pin("node:Person").row_count == ROWS + 1 + len(times)
    shutil.rmtree(place)
    times.sort()
    return Run(len(times) / took, median(times), times[int(len(times) * 0.99)], commits)
