"""Many small commits: a commit and an open cost the same after 10,000 commits as after 100.

Each commit inserts one row. Every so many commits `upkeep` runs, as a watching process would: it compacts the tables
and removes old versions, also those of the manifest. The same measurement without upkeep is printed, without a goal.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import omnigraph
from harness import Benchmark
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC
from omnigraph.upkeep.status import Thresholds

SCHEMA = "node Person { name: String @key  age: I64? }"
TEXT = "query add($name: String) { insert Person { name: $name, age: 1 } }"
FEW, MANY = 100, 10_000
ROUND = 100
"""Number of commits between two rounds of upkeep."""

LIMIT = 1.3
ROUNDS = 41
DUE = Thresholds(fragments=20, versions=20, keep=20, older_than=timedelta(0))


def grown(place: Path, commits: int, *, upkeep: bool) -> Graph:
    """A graph after so many commits of one row."""
    graph = omnigraph.init(place, SCHEMA)
    for number in range(commits):
        graph.mutate(TEXT, {"name": f"p{number}"})
        if upkeep and (number + 1) % ROUND == 0:
            graph.upkeep(DUE)
    return graph


def opened(place: Path) -> None:
    with omnigraph.open(place) as graph:
        graph.snapshot()


def medians(works: list[Callable[[], object]], rounds: int) -> list[float]:
    """The median duration of each work. All are run in turns, so that noise of the machine hits all of them."""
    samples: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, found in zip(works, samples, strict=True):
            start = time.perf_counter()
            work()
            found.append(time.perf_counter() - start)
    return [statistics.median(found) for found in samples]


def compare(bench: Benchmark, few: int, many: int, *, upkeep: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        places = [Path(directory) / "few", Path(directory) / "many"]
        graphs = [grown(place, count, upkeep=upkeep) for place, count in zip(places, (few, many), strict=True)]
        numbers = iter(range(1 << 30))

        def commit(graph: Graph) -> Callable[[], object]:
            return lambda: graph.mutate(TEXT, {"name": f"more {next(numbers)}"})

        def reopen(place: Path) -> Callable[[], object]:
            return lambda: opened(place)

        for what, works in (("commit", [commit(g) for g in graphs]), ("open", [reopen(p) for p in places])):
            first, last = medians(works, ROUNDS)
            name = f"{what} after {many:,} commits, compared with {few:,}"
            if upkeep:
                bench.goal(name, last / first, LIMIT, "×")
            else:
                print(f"{name}, without upkeep: {last / first:.2f}×")
        files = [sum(len(names) for _, _, names in os.walk(place / "__manifest")) for place in places]
        print(f"files of the manifest: {files[0]} and {files[1]}{'' if upkeep else ', without upkeep'}")
        for graph in graphs:
            graph.close()


def many_commits(bench: Benchmark) -> None:
    os.environ[FSYNC.name] = "0"
    many = MANY // 10 if bench.quick else MANY
    compare(bench, FEW, many, upkeep=True)
    compare(bench, FEW, many // 5, upkeep=False)
