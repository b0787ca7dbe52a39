"""One row at a time, with fsync, on a graph with indexes: against bare commits, and on larger tables and histories.

An insert of a node, an upsert (an insert of a stored key), an update, and an insert of an edge. The peer puts the same
row into a bare Lance table of the same size and history, and commits a row to a small table, as the manifest is.
"""

from __future__ import annotations

import itertools
import os
import shutil
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

import omnigraph
from harness import Benchmark, Comparison, Timing, Work, figure, interleave
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC
from omnigraph.upkeep.status import Thresholds
from writing.bare import EDGE, MANIFEST, NODE, BareTable, names

SCHEMA = """\
node Person { name: String @key  age: I32? @index  city: String? @index }
edge Knows: Person -> Person { since: Date?  weight: F32? }
"""
INSERT = "query put($name: String, $age: I32) { insert Person { name: $name, age: $age } }"
UPDATE = "query set($name: String, $age: I32) { update Person set { age: $age } where name = $name }"
CONNECT = "query connect($from: String, $to: String) { insert Knows { from: $from, to: $to } }"

BARE = "two bare commits"
MOST_OF_BARE = 2
FLAT = 1.3
ROUNDS = 25
COMMITS_PER_UPKEEP = 100
DUE = Thresholds(fragments=20, versions=20, keep=20, older_than=timedelta(0))
"""The thresholds of an upkeep that watches the graph."""


@dataclass(frozen=True, slots=True)
class State:
    """A graph before the measured writes.

    Attributes:
        rows: the rows of each of its tables.
        commits: the commits of one row in its history.
    """

    rows: int
    commits: int

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.commits:,} commits"


def single(bench: Benchmark, root: Path) -> None:
    """Time single rows on a small and on a large table, and after few and after many commits."""
    every_rows = bench.options.rows or ([1_000, 20_000] if bench.quick else [1_000, 1_000_000])
    every_commits = bench.options.commits or ([10, 100] if bench.quick else [10, 5_000])
    by_size(bench, root / "sizes", [State(rows, every_commits[0]) for rows in every_rows])
    by_history(bench, root / "histories", [State(every_rows[0], commits) for commits in every_commits])


def by_size(bench: Benchmark, root: Path, states: list[State]) -> None:
    graphs = [make_graph(root / f"graph-{state.rows}", state) for state in states]
    bare = [Bare(root / f"bare-{state.rows}", state) for state in states]
    for what in WRITES:
        works = {f"ours {state}": write(graph, what, state.rows) for state, graph in zip(states, graphs, strict=True)}
        works |= {f"bare {state}": peer.write(what) for state, peer in zip(states, bare, strict=True)}
        timings = interleave(works, min(ROUNDS, 3) if bench.quick else ROUNDS)
        ours, theirs = ([timings[f"{who} {state}"] for state in states] for who in ("ours", "bare"))
        for state, mine, peer in zip(states, ours, theirs, strict=True):
            against(bench, f"one {what}, {state}", mine, peer)
        if len(states) > 1 and not bench.quick:
            growth(bench, what, states, [one.median for one in ours], [one.median for one in theirs])
    for graph in graphs:
        graph.close()
    shutil.rmtree(root)


def against(bench: Benchmark, name: str, mine: Timing, peer: Timing) -> None:
    bench.add(Comparison(name, Timing("ours", mine.samples), {BARE: Timing(BARE, peer.samples)}))
    if not bench.quick:
        bench.goal(f"{name}, against {BARE}", mine.median / peer.median, limit=MOST_OF_BARE, unit="×")


def growth(bench: Benchmark, what: str, states: list[State], ours: list[float], theirs: list[float]) -> None:
    """How the cost grows with the table. A replaced row costs Lance's commit a look at all row ids of its fragment."""
    sizes = f"{states[-1].rows:,} rows, compared with {states[0].rows:,}"
    print(f"  {what}: {figure(ours[-1] / ours[0])} × with {sizes}; bare {figure(theirs[-1] / theirs[0])} ×")
    if what in REPLACING:
        share = (ours[-1] - ours[0]) / max(theirs[-1] - theirs[0], 1e-9)
        print(f"  {what}: the larger table adds {figure(share)} × of the time that it adds to bare commits")
    bench.goal(f"one {what}, {sizes}", ours[-1] / ours[0], limit=FLAT, unit="×")


def by_history(bench: Benchmark, root: Path, states: list[State]) -> None:
    """Few and many commits: with upkeep, as a user would run it, and without it."""
    for upkeep in (True, False):
        graphs = [make_graph(root / f"{upkeep}-{state.commits}", state, upkeep=upkeep) for state in states]
        for what in WRITES:
            works = {str(state): write(graph, what, state.rows) for state, graph in zip(states, graphs, strict=True)}
            timings = interleave(works, min(ROUNDS, 3) if bench.quick else ROUNDS)
            few, many = (timings[str(state)].median for state in (states[0], states[-1]))
            name = f"one {what} after {states[-1].commits:,} commits, compared with {states[0].commits:,}"
            if upkeep and not bench.quick:
                bench.goal(name, many / few, limit=FLAT, unit="×")
            else:
                print(f"{name}{'' if upkeep else ', without upkeep'}: {figure(many / few)} ×")
        for graph in graphs:
            graph.close()
        shutil.rmtree(root)


def make_graph(place: Path, state: State, *, upkeep: bool = False) -> Graph:
    """A graph with rows, indexes, and then commits of one row. Only the measured writes use fsync."""
    os.environ[FSYNC.name] = "0"
    people = names(state.rows)
    knows = pa.table({"from": people, "to": people.take(pa.array(np.arange(state.rows)[::-1]))})
    with omnigraph.init(place, SCHEMA) as graph:
        graph.load({"Person": pa.table({"name": people}), "Knows": knows}, mode="append")
        graph.optimize()
        for number in range(state.commits // 2):
            graph.mutate(INSERT, {"name": f"early-{number}", "age": 1})
            graph.mutate(CONNECT, {"from": f"early-{number}", "to": "person-0"})
            if upkeep and (number + 1) % (COMMITS_PER_UPKEEP // 2) == 0:
                graph.upkeep(DUE)
    os.environ[FSYNC.name] = "1"
    return omnigraph.open(place)


WRITES = ("insert", "upsert", "update", "edge insert")
REPLACING = ("upsert", "update")
"""Writes that replace a stored row."""

_numbers = itertools.count()


def write(graph: Graph, what: str, rows: int) -> Work:
    """One write of a kind; every call writes another row."""

    def stored(step: int) -> str:
        return f"person-{next(_numbers) * step % rows}"

    match what:
        case "insert":
            return lambda: graph.mutate(INSERT, {"name": f"new-{next(_numbers)}", "age": 7})
        case "upsert":
            return lambda: graph.mutate(INSERT, {"name": stored(7), "age": 7})
        case "update":
            return lambda: graph.mutate(UPDATE, {"name": stored(7), "age": 8})
        case _:
            return lambda: graph.mutate(CONNECT, {"from": stored(7), "to": stored(11)})


class Bare:
    """The bare tables of a state: nodes, edges, and a small one in place of the manifest."""

    def __init__(self, place: Path, state: State) -> None:
        self._rows = state.rows
        self._nodes = BareTable(place / "nodes", NODE, state.rows, state.commits // 2)
        self._edges = BareTable(place / "edges", EDGE, state.rows, state.commits // 2)
        self._manifest = BareTable(place / "manifest", MANIFEST, 1)

    def write(self, what: str) -> Work:
        def commit() -> None:
            number = next(_numbers)
            if what in REPLACING:
                self._nodes.merge(f"person-{number * 7 % self._rows}")
            else:
                (self._edges if what == "edge insert" else self._nodes).append(f"new-{number}")
            self._manifest.append(f"commit-{number}")

        return commit
