"""What a commit costs: lease, intent, tables and manifest against bare Lance commits of the same rows.

The peer writes the same rows with the same Lance calls into tables of its own, one commit per table, and promises
nothing about more than one table. All but one comparison leave out fsync, which costs what the disk makes of it.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments

import omnigraph
from harness import Benchmark, Comparison, Timing, Work, duration
from omnigraph.commit import attempts, lease, recovery, table_writes
from omnigraph.commit.manifest import Commit, TableId, TablePin
from omnigraph.commit.manifest_rows import state_rows
from omnigraph.commit.store import Store
from omnigraph.commit.table_writes import Append, Overwrite
from omnigraph.commit.write_request import WriteRequest
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC
from omnigraph.storage.ledger import Ledger
from omnigraph.storage.objects.local import LocalObjectStore
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

SCHEMA = """\
node Person { name: String @key }
node City { name: String @key }
edge Lives: Person -> City
"""

NODE = pa.table({"id": ["a"], "name": ["a"]})
EDGE = pa.table({"id": ["a"], "src": ["a"], "dst": ["a"]})
TABLES = {"node:Person": NODE, "node:City": NODE, "edge:Lives": EDGE}

WRITERS = 4


def make_graph(place: Path, *, fsync: bool = False) -> Graph:
    os.environ[FSYNC.name] = "1" if fsync else "0"
    return omnigraph.init(place, SCHEMA)


def commit_to(graph: Graph, tables: int, operation: type[Append | Overwrite] = Append, branch: str = "main") -> Work:
    """A commit of one row to each of so many tables."""
    writes = [operation(key, rows) for key, rows in list(TABLES.items())[:tables]]
    request = WriteRequest(branch=branch)
    return lambda: graph.write_tables(request, lambda _: writes)


def bare_commits(place: Path, tables: int) -> Work:
    """The same rows into bare Lance tables: stage, commit, next table."""
    handles = []
    for name, rows in list(TABLES.items())[:tables]:
        empty = LanceOperation.Overwrite(rows.schema, [])
        handles.append(LanceDataset.commit(str(place / name[5:]), empty, enable_stable_row_ids=True))

    def work() -> None:
        for i, rows in enumerate(list(TABLES.values())[:tables]):
            transaction = write_fragments(rows, handles[i], return_transaction=True)
            handles[i] = LanceDataset.commit(handles[i], transaction, max_retries=0)

    return work


# ---- where the time goes

PHASES: list[tuple[str, object, str]] = [
    ("look for interrupted writes", attempts, "pending"),
    ("look for interrupted writes", recovery, "pending"),
    ("capture the view", Store, "capture"),
    ("stage the rows", table_writes, "stage_append"),
    ("take and give back the lease", lease, "acquire"),
    ("take and give back the lease", lease.Lease, "release"),
    ("check that nothing moved", TableStorage, "head"),
    ("check that nothing moved", lease.Lease, "check"),
    ("write and remove the intent", LocalObjectStore, "create"),
    ("write and remove the intent", LocalObjectStore, "delete"),
    ("commit the tables", TableStorage, "commit_staged"),
    ("publish the manifest", Store, "publish"),
    ("publish the manifest", Ledger, "publish"),
]
"""What a write calls, in order. Time inside another of these belongs to the inner one, but for what a lease writes."""


class Stopwatch:
    """Adds up the time that each phase takes for itself."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {phase: 0.0 for phase, _, _ in PHASES}
        self._inside: list[str] = []
        self._since = 0.0

    def wrap(self, phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def timed(*args: Any, **options: Any) -> Any:
            if self._inside and "lease" in self._inside[-1] and "intent" in phase:
                return call(*args, **options)
            self._turn()
            self._inside.append(phase)
            try:
                return call(*args, **options)
            finally:
                self._turn()
                self._inside.pop()

        return timed

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._inside:
            self.seconds[self._inside[-1]] += now - self._since
        self._since = now


@contextmanager
def watching() -> Iterator[Stopwatch]:
    watch = Stopwatch()
    originals = [(owner, name, getattr(owner, name)) for _, owner, name in PHASES]
    for (phase, owner, name), (_, _, original) in zip(PHASES, originals, strict=True):
        setattr(owner, name, watch.wrap(phase, original))
    try:
        yield watch
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def print_phases(work: Work, name: str, rounds: int) -> None:
    with watching() as watch:
        start = time.perf_counter()
        for _ in range(rounds):
            work()
        whole = time.perf_counter() - start
    print(f"\nwhere the time of {name} goes")
    rest = whole - sum(watch.seconds.values())
    for phase, seconds in [*watch.seconds.items(), ("everything else", rest)]:
        print(f"  {phase:<34}{duration(seconds / rounds):>10}{seconds / whole:>7.0%}")


# ---- many processes, long histories


def write_many(place: str, branch: str, commits: int, start: Any, times: Any) -> None:
    """One writer process: wait for the others, then commit."""
    graph = omnigraph.open(place)
    work = commit_to(graph, 1, branch=branch)
    work()
    start.wait()
    begun = time.time()
    for _ in range(commits):
        work()
    times.put((begun, time.time()))


def commits_per_second(graph: Graph, processes: int, commits: int) -> float:
    """How many commits so many processes make in a second, each on a branch of its own."""
    context = multiprocessing.get_context("spawn")
    start, times = context.Barrier(processes), context.SimpleQueue()
    branches = [f"p{processes}-{i}" for i in range(processes)]
    for branch in branches:
        graph.branches.create(branch)
    writers = [context.Process(target=write_many, args=(graph.uri, b, commits, start, times)) for b in branches]
    for process in writers:
        process.start()
    spans = [times.get() for _ in writers]
    for process in writers:
        process.join()
    seconds: float = max(end for _, end in spans) - min(begun for begun, _ in spans)
    return processes * commits / seconds


def alternate(bench: Benchmark, name: str, ours: Work, peer: str, peer_work: Work, rounds: int) -> Comparison:
    """Time single calls in turn, so that neither contender runs much more often than the other."""
    samples: dict[str, list[float]] = {"ours": [], peer: []}
    for _ in range(rounds):
        for contender, work in (("ours", ours), (peer, peer_work)):
            begun = time.perf_counter()
            work()
            samples[contender].append(time.perf_counter() - begun)
    timings = {contender: Timing(contender, tuple(taken)) for contender, taken in samples.items()}
    result = Comparison(name, timings["ours"], {peer: timings[peer]})
    bench.comparisons.append(result)
    print(f"\n{name}")
    for timing in timings.values():
        print(f"  {timing.name:<24}{duration(timing.median):>12}")
    return result


def repeat(work: Work, times: int) -> Work:
    for _ in range(times):
        work()
    return work


def merging_publish(place: Path, history: int) -> Work:
    """The way not taken: a manifest of rows that every publish merges into, by key."""
    versions = itertools.count(1)

    def rows() -> pa.Table:
        version = next(versions)
        pin = TablePin("node:Person", TableId(1, 2), TableRef("nodes/1-2", None, version), version)
        commit = Commit(f"{version:026d}", "main", version, None, None, None, version)
        return state_rows("main", "", [pin], (), [commit], commit, version)

    manifest = lance.write_dataset(rows(), str(place), enable_stable_row_ids=True)

    def work() -> None:
        merge = manifest.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(rows())

    return repeat(work, history)


def main() -> None:
    bench = Benchmark("commit")
    root = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        run(bench, root)
    finally:
        shutil.rmtree(root)
    bench.finish()


def run(bench: Benchmark, root: Path) -> None:
    results = []
    for tables in (1, 3):
        folder = root / f"{tables}"
        graph = make_graph(folder / "graph")
        result = bench.compare(
            f"one row in each of {tables} table{'s' * (tables > 1)}, one commit",
            ours=commit_to(graph, tables),
            peers={f"{tables} × bare append + commit": bare_commits(folder, tables)},
            rounds=25,
        )
        results.append(result)
        print_phases(commit_to(graph, tables), result.name, 20 if bench.quick else 60)

    rounds = 60 if bench.quick else 150
    fast, safe = make_graph(root / "fast"), make_graph(root / "safe", fsync=True)
    name = "one row in one table, forced to disk"
    disk = alternate(bench, name, repeat(commit_to(safe, 1), 5), "without fsync", repeat(commit_to(fast, 1), 5), rounds)
    print(f"  fsync adds {duration(disk.ours.median - disk.peers['without fsync'].median)}")

    # Every commit replaces the one row of a table, so that only the history grows and the table does not.
    short, long = (commit_to(make_graph(root / name), 1, Overwrite) for name in ("short", "long"))
    name = "one row replaced, after 500 commits"
    history = alternate(bench, name, repeat(long, 500), "after 10 commits", repeat(short, 10), rounds)
    if not bench.quick:
        late, early = (merging_publish(root / f"merging-{commits}", commits) for commits in (500, 10))
        alternate(bench, "a manifest by merge_insert alone, after 500 commits", late, "after 10 commits", early, 20)

    shared = make_graph(root / "shared")
    rates = {n: commits_per_second(shared, n, 40 if bench.quick else 150) for n in (1, WRITERS)}
    print("\ncommits per second, each process on a branch of its own")
    for processes, rate in rates.items():
        print(f"  {processes} process{'es' if processes > 1 else '':<10}{rate:>8.0f}")
    one, many = (Timing(f"{n} at once", (1 / rate,)) for n, rate in rates.items())
    bench.comparisons.append(
        Comparison("seconds per commit of processes on branches of their own", many, {one.name: one})
    )

    for tables, result in zip((1, 3), results, strict=True):
        (peer,) = result.peers.values()
        bench.goal(f"{tables} table(s), against bare", result.ours.median / peer.median, limit=8, unit="×")
    grown = history.ours.median / history.peers["after 10 commits"].median
    bench.goal("500 commits of history against 10", grown, limit=1.3, unit="×")


if __name__ == "__main__":
    main()
