"""How much a second thread helps: long random questions with one thread and with two, and triangles in little memory.

The questions are those of `unseen.py`, over the same four graphs. Only those that take more than 100 ms with one thread
are compared. Both run in this process, in turns, and the answers must be equal row by row.

Flags: `--seed N`, `--questions N` long questions for each graph, `--size SHARE` of the full graphs, and `--data FOLDER`
keeps the stored graphs for the next run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa

import omnigraph
from asking import gq
from asking.graphs import GRAPHS, MEMORY, Graph
from harness import Benchmark, Comparison, Timing
from omnigraph.errors import BudgetExceededError
from omnigraph.read.budget import Budget
from omnigraph.settings import THREADS
from unseen import OURS, possible, store

LONG_SECONDS = 0.1
DRAWN_SECONDS = 10.0
"""A question that takes longer with one thread is not compared."""
LIMIT = 60.0
"""Time limit of a measured call. Other processes may slow it down."""
QUESTIONS = 10
DRAWN = 120
"""Most questions that are drawn for each graph, to find long ones."""
ROUNDS = 5
TRIANGLES = "query triangles() { match { $a follows $b  $b follows $c  $c follows $a } return { count(*) as found } }"
LITTLE = 512 << 20
MUCH = Budget(memory=MEMORY, rows=None)


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=1, help="decides which questions are drawn")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="long questions for each graph")
    parser.add_argument("--size", type=float, help="a share of the full graphs")
    parser.add_argument("--data", type=Path, help="a folder that keeps the stored graphs for the next run")


def main(argv: list[str] | None = None) -> None:
    bench = Benchmark("threads", argv, flags)
    options = bench.options
    size = options.size or (0.01 if bench.quick else 1.0)
    root = options.data or Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    gains: list[float] = []
    try:
        for kind in GRAPHS.values():
            place = root / f"{kind.name}-{size}"
            store(kind, place, size, [OURS])
            with omnigraph.open(place / OURS.name, read_only=True) as graph:
                texts = map(gq.render, islice(possible(options.seed, kind, place, size), DRAWN))
                for text in islice(long_questions(graph, texts, bench.quick), options.questions):
                    gains.append(compare(bench, graph, kind, text))
                if kind.name == "social":
                    triangles(bench, graph)
    finally:
        if options.data is None:
            shutil.rmtree(root)
    if gains and not bench.quick:
        print(f"\n{len(gains)} questions over {LONG_SECONDS} s: two threads are faster by")
        print("  " + "  ".join(f"{gain:.2f}" for gain in sorted(gains)))
        if len(os.sched_getaffinity(0)) > 1:
            bench.goal("one thread / two threads, median", statistics.median(gains), limit=1.4, unit="×", at_least=True)
            # Repeated runs with the same number of threads differ by up to 10 %.
            bench.goal("one thread / two threads, lowest", min(gains), limit=0.9, unit="×", at_least=True)
    bench.finish()


def long_questions(graph: omnigraph.Graph, texts: Iterator[str], quick: bool) -> Iterator[str]:
    for text in texts:
        try:
            ask(graph, text, 1, DRAWN_SECONDS)
            taken = min(timed(graph, text, 1)[0] for _ in range(2))
        except BudgetExceededError:
            continue
        if taken > LONG_SECONDS or quick:
            yield text


def compare(bench: Benchmark, graph: omnigraph.Graph, kind: Graph, text: str) -> float:
    samples: dict[int, list[float]] = {1: [], 2: []}
    answers: dict[int, pa.Table] = {}
    for _ in range(ROUNDS):
        for threads, taken in samples.items():
            seconds, answers[threads] = timed(graph, text, threads)
            taken.append(seconds)
    assert answers[1].equals(answers[2]), f"the answer depends on the number of threads: {text}"
    two, one = (Timing(f"{threads} threads", tuple(samples[threads])) for threads in (2, 1))
    found = Comparison(f"{kind.name}: {' '.join(text.split())[:90]}", two, {"1 thread": one})
    bench.add(found)
    return found.speedup("1 thread")


def triangles(bench: Benchmark, graph: omnigraph.Graph) -> None:
    """Count triangles with a small memory budget, and compare with the result without one."""
    little = Budget(memory=LITTLE, rows=None)
    found = {
        name: graph.query(TRIANGLES, budget=budget).to_pylist() for name, budget in (("little", little), ("much", MUCH))
    }
    bench.compare(
        "triangles with 512 MiB of memory",
        ours=lambda: graph.query(TRIANGLES, budget=little),
        peers={"4 GiB": lambda: graph.query(TRIANGLES, budget=MUCH)},
        rounds=3,
    )
    bench.goal("triangles with 512 MiB: other answers", float(found["little"] != found["much"]), limit=0)


def timed(graph: omnigraph.Graph, text: str, threads: int) -> tuple[float, pa.Table]:
    start = time.perf_counter()
    found = ask(graph, text, threads)
    return time.perf_counter() - start, found


def ask(graph: omnigraph.Graph, text: str, threads: int, seconds: float = LIMIT) -> pa.Table:
    os.environ[THREADS.name] = str(threads)
    try:
        return graph.query(text, budget=Budget(seconds=seconds, memory=MEMORY, rows=None)).to_arrow()
    finally:
        del os.environ[THREADS.name]


if __name__ == "__main__":
    main()
