"""How long a cancelled call goes on: heavy queries are cancelled at random points.

Each question runs once to warm the caches and to learn how long it takes. Then it is started again and again, and
cancelled after a random part of this time. The latency is the time from `cancel()` until the call raises.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import omnigraph
from harness import Benchmark
from omnigraph import Budget, Cancellation
from omnigraph.errors import CancelledError

PERSONS, EDGES = 200_000, 1_000_000
ROUNDS, QUICK_ROUNDS = 40, 5
SPILLING = Budget(memory=48 << 20, seconds=None, rows=None, returned=None)
FREE = Budget(seconds=None, rows=None, returned=None)

SCHEMA = """
node Person {
    name: String @key  age: I64  score: F64  city: String  about: String  face: Vector(32)
    @index(about, kind="fts")
}
edge Follows: Person -> Person { since: I64  weight: F64 }
"""
VECTOR = f"[{', '.join(['0.5'] * 32)}]"
EDGE = "$a $e: follows $b"
PATHS = "$a follows $b  $b follows $c"
QUESTIONS = {
    "triangles": f"match {{ {PATHS}  $a follows $c }} return {{ count(*) as n }}",
    "paths, filter": f"match {{ {PATHS}  $a.score < $c.score }} return {{ sum($c.age) as n }}",
    "sort": f"match {{ {EDGE} }} return {{ $b.city as c, $e.since as s, $a.name as a }} order {{ c, s desc }}",
    "group": f"match {{ {EDGE} }} return {{ $a.city as c, $b.age as x, count(*) as n, avg($e.weight) as w }}",
    "group by float": f"match {{ {EDGE} }} return {{ $e.weight as w, count(*) as n }} order {{ n, w }} limit 5",
    "distinct": "match { $a follows $b } return distinct { $a.name as a, $b.city as c }",
    "count distinct": f"match {{ {PATHS} }} return {{ $a.city as c, count(distinct $c) as n }}",
    "two hops, distinct": f"match {{ {PATHS}  $a.age < 20 }} return distinct {{ $a.name as a, $c.city as c }}",
    "not": f"match {{ {PATHS}  not {{ $a follows $c }} }} return {{ $a.age as x, count(*) as n }}",
    "shortest": "match { $a: Person  $a.age < 1  shortest $p: $a follows{1,4} $b } return { max(length($p)) as n }",
    "reach": "match { $a: Person  $a.age < 1  $a follows{1,4} $b } return { count(*) as n }",
    "stages": f"match {{ {EDGE} }} with {{ $b, count(*) as n }} match {{ $b follows $c }} "
    "return { $c.city as c, avg(n) as m }",
    "hybrid search": "match { $a: Person } return { $a.name as n } "
    f'order {{ rrf(bm25($a.about, "w1 w2 w77"), nearest($a.face, {VECTOR})) }} limit 10',
    "all rows": f"match {{ {EDGE} }} return {{ $a.name as a, $b.about as b, $e.since as s }}",
}
SPILLED = ("sort", "group", "two hops, distinct", "all rows")


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=1, help="the seed of the points of cancellation")


def main() -> None:
    bench = Benchmark("cancel", flags=flags)
    rounds = QUICK_ROUNDS if bench.quick else ROUNDS
    draw = random.Random(bench.options.seed)
    with tempfile.TemporaryDirectory() as scratch, filled(Path(scratch) / "graph") as graph:
        every: list[float] = []
        for name, call in calls(graph):
            found = latencies(call, rounds, draw)
            every += found
            print(f"  {name:28}{len(found):4} cancelled, worst {max(found, default=0.0) * 1e3:7.1f} ms", flush=True)
    every.sort()
    bench.goal("99 of 100 cancelled calls return", 1e3 * every[int(0.99 * (len(every) - 1))], limit=100, unit="ms")
    bench.goal("every cancelled call returns", 1e3 * every[-1], limit=200, unit="ms")
    bench.finish()


Call = Callable[[Cancellation], object]


def calls(graph: omnigraph.Graph) -> Iterator[tuple[str, Call]]:
    """Every question with enough memory, and some of them with spill files."""

    def ask(name: str, budget: Budget) -> Call:
        return lambda cancel: graph.query(f"query q() {{ {QUESTIONS[name]} }}", budget=budget, cancel=cancel)

    for name in QUESTIONS:
        yield name, ask(name, FREE)
    for name in SPILLED:
        yield f"{name}, spilled", ask(name, SPILLING)


def latencies(call: Call, rounds: int, draw: random.Random) -> list[float]:
    """Seconds from the cancellation until the call raises, for each round in which it was cancelled."""
    began = time.perf_counter()
    call(Cancellation())
    whole = time.perf_counter() - began
    found: list[float] = []
    for _ in range(rounds):
        cancel, cancelled_at = Cancellation(), [0.0]

        def stop(cancel: Cancellation = cancel, cancelled_at: list[float] = cancelled_at) -> None:
            cancelled_at[0] = time.perf_counter()
            cancel.cancel()

        timer = threading.Timer(draw.uniform(0, whole), stop)
        timer.start()
        try:
            call(cancel)
        except CancelledError:
            found.append(time.perf_counter() - cancelled_at[0])
        timer.cancel()
        timer.join()
    return found


def filled(address: Path) -> omnigraph.Graph:
    """Persons that follow others, some of whom many follow."""
    numbers = np.random.default_rng(5)
    names = pa.array([f"p{number}" for number in range(PERSONS)])
    words = pa.array([f"w{number}" for number in range(2000)])
    texts = np.array(words.take(pa.array(numbers.integers(0, 2000, PERSONS * 8))).to_pylist()).reshape(PERSONS, 8)
    graph = omnigraph.init(address, SCHEMA)
    persons = {
        "name": names,
        "age": numbers.integers(0, 90, PERSONS),
        "score": numbers.random(PERSONS),
        "city": pa.array([f"city {number}" for number in numbers.integers(0, 1000, PERSONS).tolist()]),
        "about": pa.array([" ".join(row) for row in texts.tolist()]),
        "face": pa.FixedSizeListArray.from_arrays(pa.array(numbers.standard_normal(PERSONS * 32).astype("f4")), 32),
    }
    popular = (numbers.pareto(1.2, EDGES) * PERSONS / 50).astype(np.int64) % PERSONS
    follows = {
        "from": names.take(pa.array(numbers.integers(0, PERSONS, EDGES))),
        "to": names.take(pa.array(popular)),
        "since": numbers.integers(0, 10**9, EDGES),
        "weight": numbers.random(EDGES),
    }
    graph.load({"Person": pa.table(persons), "Follows": pa.table(follows)}, mode="append")
    return graph


if __name__ == "__main__":
    main()
