"""A transaction of some statements against one write of the same rows, with fsync."""

from __future__ import annotations

import itertools
import shutil
from functools import partial
from pathlib import Path

import pyarrow as pa

from harness import Benchmark
from omnigraph.graph import Graph
from writing.single import INSERT, ROUNDS, State, make_graph

STATEMENTS = (1, 8, 64)
MOST = 1.3
_numbers = itertools.count()


def transactions(bench: Benchmark, root: Path) -> None:
    """Time transactions of one-row inserts, and loads of as many rows, in turns."""
    graph = make_graph(root, State(1_000, 10))
    for count in STATEMENTS:
        result = bench.compare(
            f"a transaction of {count} inserts",
            ours=partial(insert, graph, count),
            peers={"one load": partial(load, graph, count)},
            rounds=ROUNDS,
        )
        if not bench.quick:
            ratio = 1 / result.speedup("one load")
            bench.goal(f"a transaction of {count} inserts, against one write", ratio, limit=MOST, unit="×")
    graph.close()
    shutil.rmtree(root)


def insert(graph: Graph, count: int) -> None:
    with graph.branch().transaction() as change:
        for name in new_names(count):
            change.mutate(INSERT, {"name": name, "age": 7})


def load(graph: Graph, count: int) -> None:
    rows = pa.table({"name": new_names(count), "age": pa.array([7] * count, pa.int32())})
    graph.load({"Person": rows}, mode="merge")


def new_names(count: int) -> list[str]:
    return [f"new-{next(_numbers)}" for _ in range(count)]
