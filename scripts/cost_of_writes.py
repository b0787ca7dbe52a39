"""The cost of writes against an earlier state of this project, both in the same run.

Two processes have graphs of their own, one with this code and one with that of another checkout, and write in turn.
Printed are medians and their ratio, for commits and single rows with and without fsync, and for a bulk load.

Usage: `git worktree add --detach ../before COMMIT; python scripts/cost_of_writes.py ../before`.
Flags: `--rounds N` for single writes, `--bulks N` for loads.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve()
ROWS = 20_000
BULK = 300_000
SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Lives: Person -> City
edge Knows: Person -> Person
"""
UPSERT = "query put($name: String, $age: I32) { insert Person { name: $name, age: $age } }"
CONNECT = "query connect($from: String, $to: String) { insert Knows { from: $from, to: $to } }"


def work(root: Path) -> None:
    """One contender: does what each line of stdin names, and prints how many seconds it took."""
    import pyarrow as pa

    import omnigraph
    from omnigraph.commit.table_writes import Append
    from omnigraph.commit.write_request import WriteRequest

    numbers = itertools.count()
    rows = {
        "node:Person": pa.table({"id": ["a"], "age": pa.array([1], pa.int32()), "name": ["a"]}),
        "node:City": pa.table({"id": ["a"], "name": ["a"]}),
        "edge:Lives": pa.table({"id": ["a"], "src": ["a"], "dst": ["a"]}),
    }

    def graph(name: str, fsync: bool) -> Any:
        os.environ["OMNIGRAPH_FSYNC"] = "1" if fsync else "0"
        return omnigraph.init(root / name, SCHEMA)

    def commit(target: Any, tables: int) -> Callable[[], None]:
        writes = [Append(key, some) for key, some in list(rows.items())[:tables]]
        return lambda: target.write_tables(WriteRequest(branch="main"), lambda _: writes)

    def single(target: Any, query: str) -> Callable[[], None]:
        def write() -> None:
            person = f"person-{next(numbers) * 7 % ROWS}"
            target.mutate(query, {"name": person, "age": 7} if query == UPSERT else {"from": person, "to": person})

        return write

    def tables(count: int) -> dict[str, pa.Table]:
        names = [f"person-{i}" for i in range(count)]
        return {"Person": pa.table({"name": names}), "Knows": pa.table({"from": names, "to": names[::-1]})}

    acts: dict[str, Callable[[], None]] = {}
    for fsync in (False, True):
        said = "with fsync" if fsync else "without fsync"
        for count in (1, 3):
            acts[f"one row in {count} table(s), {said}"] = commit(graph(f"commit-{count}-{fsync}", fsync), count)
        filled = graph(f"filled-{fsync}", fsync)
        filled.load(tables(ROWS), mode="append")
        acts[f"keyed upsert, {said}"] = single(filled, UPSERT)
        acts[f"edge insert, {said}"] = single(filled, CONNECT)
    bulk = tables(BULK)
    for act in acts.values():
        for _ in range(5):
            act()
    print(json.dumps(list(acts)), flush=True)
    for line in sys.stdin:
        name = line.strip()
        if name in acts:
            begun = time.perf_counter()
            acts[name]()
        else:
            target = graph(f"bulk-{next(numbers)}", name == "bulk load, with fsync")
            begun = time.perf_counter()
            target.load(bulk, mode="append")
        print(time.perf_counter() - begun, flush=True)


class Contender:
    """A process with the code of one checkout."""

    def __init__(self, checkout: Path, root: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        program = [sys.executable, str(HERE), "--work", str(root)]
        self._process = subprocess.Popen(
            program, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._ask: IO[str] = self._process.stdin
        self._answers: IO[str] = self._process.stdout
        self.acts: list[str] = json.loads(self._answers.readline())

    def seconds(self, act: str) -> float:
        self._ask.write(f"{act}\n")
        self._ask.flush()
        return float(self._answers.readline())

    def end(self) -> None:
        self._ask.close()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", type=Path, nargs="?", help="a checkout of the earlier state")
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--bulks", type=int, default=6)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.work)
        return
    if options.before is None:
        parser.error("name a checkout of the earlier state")
    root = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        before, now = Contender(options.before, root / "before"), Contender(HERE.parents[1], root / "now")
        print(f"{'':<40}{'before':>12}{'now':>12}{'ratio':>8}")
        for act in [*now.acts, "bulk load, without fsync", "bulk load, with fsync"]:
            taken: dict[Contender, list[float]] = {before: [], now: []}
            for number in range(options.bulks if act.startswith("bulk") else options.rounds):
                for contender in (before, now) if number % 2 else (now, before):
                    taken[contender].append(contender.seconds(act))
            old, new = (statistics.median(taken[contender]) * 1000 for contender in (before, now))
            print(f"{act:<40}{old:>9.2f} ms{new:>9.2f} ms{new / old:>7.2f}×", flush=True)
        before.end()
        now.end()
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
