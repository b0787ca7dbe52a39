"""Fairness: one transaction loop, one updater, one conditional updater and `optimize` beside steady inserters.

Every contender and every inserter is a process of its own. For each number of inserters, and for inserts into the same
table and into another, all run for a while. Printed is how many requests of each succeeded and failed, how often one
was run again inside, and how long callers waited. A request that fails, or that takes longer than its deadline, is a
goal that is missed; so is a contender that makes no progress.

Flags: `--seconds N` for each configuration (60; 8 with `--quick`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import omnigraph
from harness import figure
from omnigraph.commit import attempts
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC

SCHEMA = """
node Person { name: String @key  age: I64? }
node City { name: String @key }
edge Lives: Person -> City
"""
QUERIES = """
query add($name: String) { insert Person { name: $name } }
query city($name: String) { insert City { name: $name } }
query lives($p: String, $c: String) { insert Lives { from: $p, to: $c } }
query age($name: String, $age: I64) { update Person set { age: $age } where name = $name }
"""
DEADLINE = 60.0
CONTENDERS = ("transaction", "update", "unchanged_since", "optimize")


def inserter(graph: Graph, number: int, name: str) -> None:
    graph.mutate(QUERIES, {"name": f"{name}-{number}"}, name="add" if name.startswith("same") else "city")


def transaction(graph: Graph, number: int, name: str) -> None:
    person, city = f"tx-{number}", f"tx-city-{number}"
    with graph.branch().transaction(timeout=DEADLINE) as tx:
        tx.mutate(QUERIES, {"name": person}, name="add")
        tx.mutate(QUERIES, {"name": city}, name="city")
        tx.mutate(QUERIES, {"p": person, "c": city}, name="lives")


def update(graph: Graph, number: int, name: str) -> None:
    graph.mutate(QUERIES, {"name": "ann", "age": number}, name="age", timeout=DEADLINE)


def unchanged_since(graph: Graph, number: int, name: str) -> None:
    """Read, think, write: nobody else changes this row."""
    seen = graph.query('query q() { match { $p: Person $p.name = "bob" } return { $p.age } }')
    age = {"name": "bob", "age": number}
    graph.mutate(QUERIES, age, name="age", unchanged_since=seen.graph_commit_id, timeout=DEADLINE)


def optimize(graph: Graph, number: int, name: str) -> None:
    graph.optimize()


WORK: dict[str, Callable[[Graph, int, str], None]] = {
    "transaction": transaction,
    "update": update,
    "unchanged_since": unchanged_since,
    "optimize": optimize,
}


def work(place: str, name: str, seconds: float, ready: Any, answers: Any) -> None:
    """Do one thing again and again, and say how it went."""
    os.environ[FSYNC.name] = "0"
    again = 0
    count = attempts._Write._retry

    def counted(self: Any, *arguments: Any) -> Any:
        nonlocal again
        again += 1
        return count(self, *arguments)

    attempts._Write._retry = counted  # type: ignore[method-assign, assignment]
    do = WORK.get(name, inserter)
    waits: list[float] = []
    failed: list[str] = []
    with omnigraph.open(place) as graph:
        ready.wait()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.perf_counter()
            try:
                do(graph, len(waits) + len(failed), name)
                waits.append(time.perf_counter() - began)
            except OmnigraphError as error:
                failed.append(type(error).__name__)
    answers.put((name, waits, failed, again))


def run(inserters: int, table: str, seconds: float) -> list[dict[str, Any]]:
    """One configuration."""
    place = Path(tempfile.mkdtemp(prefix="fairness-"))
    try:
        with omnigraph.init(place / "g", SCHEMA) as graph:
            for name in ("ann", "bob"):
                graph.mutate(QUERIES, {"name": name}, name="add")
        context = multiprocessing.get_context("spawn")
        answers = context.Queue()
        names = [*CONTENDERS, *(f"{table} {number}" for number in range(inserters))]
        ready = context.Barrier(len(names))
        jobs = [(str(place / "g"), name, seconds, ready, answers) for name in names]
        started = [context.Process(target=work, args=job) for job in jobs]
        for process in started:
            process.start()
        found = [answers.get() for _ in started]
        for process in started:
            process.join()
        with omnigraph.open(place / "g") as graph:
            assert graph.verify().total == 0
    finally:
        shutil.rmtree(place)
    rows = []
    for name in (*CONTENDERS, table):
        own = [answer for answer in found if answer[0] == name or (answer[0].startswith(f"{table} ") and name == table)]
        waits = sorted(wait for answer in own for wait in answer[1])
        failed = [error for answer in own for error in answer[2]]
        rows.append(
            {
                "inserters": inserters,
                "table": table,
                "who": "inserters" if name == table else name,
                "succeeded": len(waits),
                "failed": len(failed),
                "run_again": sum(answer[3] for answer in own),
                "p50": waits[len(waits) // 2] if waits else None,
                "p99": waits[min(len(waits) - 1, int(len(waits) * 0.99))] if waits else None,
                "longest": waits[-1] if waits else None,
                "errors": sorted(set(failed)),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seconds = options.seconds or (8.0 if options.quick else 60.0)
    rows: list[dict[str, Any]] = []
    print("| inserters | their table | who | succeeded | failed | run again | p50 | p99 | longest |")
    print("|---|---|---|---|---|---|---|---|---|")
    for table in ("other", "same"):
        for inserters in (1, 4):
            for row in run(inserters, table, seconds):
                rows.append(row)
                times = [figure(row[name] * 1e3) + " ms" if row[name] else "" for name in ("p50", "p99", "longest")]
                shown = [row[name] for name in ("inserters", "table", "who", "succeeded", "failed", "run_again")]
                print("| " + " | ".join(str(cell) for cell in [*shown, *times]) + " |", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2))
    missed = [row for row in rows if not row["succeeded"] or row["failed"] or (row["longest"] or 0) > DEADLINE]
    for row in missed:
        print(f"missed: {row['who']} beside {row['inserters']} ({row['table']} table): {row}", file=sys.stderr)
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
