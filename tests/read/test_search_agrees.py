"""Searches agree with the oracle: random searches in random matches, without an index, with a partial and a full one.

A pair is a query and a state of a graph. The three states of a library hold the same rows, and only their indexes
differ. A developer's run tries 120 pairs, CI (if `CI` is set) 500, `make soak` 20,000.
`OMNIGRAPH_SEARCHES=<number>` sets the number of pairs, `OMNIGRAPH_SEED=<number>` the first library.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.read import oracle
from tests.read.graphs import State, World
from tests.read.queries import Maker, Query, some_query
from tests.read.test_oracle_agrees import Reader, compare, explained, outcome, readers, too_large
from tests.read.thresholds import turned

import omnigraph
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema import Catalog, compile_schema
from omnigraph.upkeep.indexes import ensure_indexes

PAIRS = int(os.environ.get("OMNIGRAPH_SEARCHES") or (500 if os.environ.get("CI") else 120))
SEED = int(os.environ.get("OMNIGRAPH_SEED", "0"))
SHARES = 4
"""The number of tests among which the pairs are divided; they may run in parallel."""

QUERIES = 30
"""Queries per library; each runs on its three states."""

ENOUGH = 200
"""From this number of pairs on, a test checks its statistics."""

WORDS = (
    "red",
    "fox",
    "foxes",
    "fax",
    "dog",
    "dogs",
    "dug",
    "run",
    "running",
    "the",
    "is",
    "a",
    "é",
    "10",
    "Red",
    "FOX",
)
BETWEEN = (" ", ", ", " - ", "\n", " the ")
ANALYZERS = ("", ", stem=false", ", stop_words=false", ", positions=false", ', language="german"')
SCHEMA = """
interface Named {{ text: String? }}
node A implements Named {{
    small: I64?  vec: Vector(2)?  other: Vector(3)
    @index(text, kind="fts"{analyzer}) @index(small)
    @index(vec, kind="vector", metric="{metric}", partitions=1) @index(other, kind="vector", partitions=1)
}}
node B implements Named {{
    key: String @key  small: I64?  vec: Vector(2)?
    @index(text, kind="fts"{analyzer}) @index(vec, kind="vector", metric="{metric}", partitions=1)
}}
node C {{ word: String  small: I64? }}
edge Knows: A -> A {{ small: I64? }}
edge Likes: A -> B
edge Has: B -> C {{ text: String? }}
"""


class Library(World):
    """Texts and vectors with three kinds of indexes. It provides the states of a world."""

    def __init__(self, seed: int, place: Path) -> None:
        self.rng = Random(f"library {seed}")
        self.schema = SCHEMA.format(
            analyzer=self.rng.choice(ANALYZERS), metric=self.rng.choice(("l2", "cosine", "dot"))
        )
        self.catalog: Catalog = compile_schema(self.schema)
        self.graph = omnigraph.init(place, self.schema)
        self._nodes: dict[str, dict[str, oracle.Node]] = {name: {} for name in self.catalog.nodes}
        self._edges: dict[str, dict[str, oracle.Edge]] = {name: {} for name in self.catalog.edges}
        self.states = list(self._states())

    def _states(self) -> Iterator[State]:
        rows = self.rng.choice((4, 9, 14))
        self.graph.load(self._some(rows), mode="append", embed=False)
        self.graph.branches.create("bare")
        self._cover()
        later = self._some(rows // 2)
        for branch in ("main", "bare"):
            self.graph.load(later, mode="append", branch=branch, embed=False)
            self._change(branch)
        self._changed()
        yield self._state_of("no index", "bare")
        yield self._state_of("partial index", "main")
        self._cover()
        assert not any(index.uncovered for index in self.graph.indexes())
        yield self._state_of("full index", "main")

    def _cover(self) -> None:
        ensure_indexes(self.graph.session.store, "main", lambda _: self.catalog, fewest_vectors=1)

    def _state_of(self, name: str, branch: str) -> State:
        return State(
            name,
            self.graph.snapshot(branch=branch),
            oracle.Graph(
                {name: dict(rows) for name, rows in self._nodes.items()},
                {name: dict(rows) for name, rows in self._edges.items()},
            ),
        )

    def _change(self, branch: str) -> None:
        """Update and delete rows that an index covers."""
        self.graph.mutate('query q() { update A set { text: "a red dog" } where small = 1 }', branch=branch)
        self.graph.mutate("query q() { delete A where small = 2 }", branch=branch)

    def _changed(self) -> None:
        for id_, node in list(self._nodes["A"].items()):
            if node.values["small"] == 1:
                self._nodes["A"][id_] = replace(node, values={**node.values, "text": "a red dog"})
            if node.values["small"] == 2:
                del self._nodes["A"][id_]
        for name, rows in self._edges.items():
            declared = self.catalog.edges[name]
            ends = self._nodes[declared.from_type], self._nodes[declared.to_type]
            for id_, edge in list(rows.items()):
                if edge.source not in ends[0] or edge.target not in ends[1]:
                    del rows[id_]

    # Rows

    def _some(self, rows: int) -> list[dict[str, Any]]:
        """New nodes, and edges between all nodes, as lines to load."""
        lines: list[dict[str, Any]] = []
        for name, declared in self.catalog.nodes.items():
            for _ in range(rows):
                id_ = f"{self.rng.choice('zab')}{len(self._nodes[name])}"
                values = {
                    prop: None if kind.type.nullable and self.rng.random() < 0.15 else self._value(prop, id_)
                    for prop, kind in declared.properties.items()
                }
                self._nodes[name][id_] = oracle.Node(name, id_, values)
                lines.append({"type": name, "data": values if declared.key else {"id": id_, **values}})
        for name, edge in self.catalog.edges.items():
            for _ in range(rows * 2):
                source = self.rng.choice(list(self._nodes[edge.from_type]))
                target = self.rng.choice(list(self._nodes[edge.to_type]))
                id_ = f"{self.rng.choice('zab')}{len(self._edges[name])}"
                values = {prop: self._value(prop, id_) for prop in edge.properties}
                self._edges[name][id_] = oracle.Edge(name, id_, source, target, values)
                lines.append({"edge": name, "from": source, "to": target, "data": {"id": id_, **values}})
        return lines

    def _value(self, prop: str, id_: str) -> Any:
        rng = self.rng
        match prop:
            case "key":
                return id_
            case "small":
                return rng.randrange(4)
            case "vec":
                return tuple(rng.choice((0.0, 1.0, -0.5, 2.0)) for _ in range(2))
            case "other":
                return tuple(rng.choice((0.0, 1.0, 0.25)) for _ in range(3))
        return rng.choice(BETWEEN).join(rng.choices(WORDS, k=rng.randrange(7)))


class Ranking(Maker):
    """Generates reads with a rank, traversals and a small limit, so that nodes can be ranked first."""

    def query(self) -> str:
        clauses = self.chain()
        if self.chance(40):
            self.add(clauses, 1, "block")
        columns, aliases = self.columns(2)
        rank = self.rank()
        if rank is None:
            return super().query()
        order = rank
        if self.chance(50):
            columns.append(f"{rank} as rank")
            if self.chance(50):
                order = f"rank {'asc' if rank.startswith('nearest') else 'desc'} nulls last, {self.rng.choice(aliases)}"
        body = f"return {{ {'  '.join(columns)} }} order {{ {order} }} limit {self.count()}{self.skip()}"
        return self.written([clause for clause in clauses if clause], body)


def searches(rng: Random, catalog: Catalog) -> Iterator[Query]:
    """Random reads that search."""
    while True:
        query = some_query(rng, catalog, Ranking if rng.random() < 0.2 else None)
        if any(isinstance(part, ir.TextMatch | ir.Bm25 | ir.Nearest | ir.Fusion) for part in walk(query.read)):
            yield query


def pairs(library: Library, seed: int) -> Iterator[tuple[int, Query, Reader]]:
    states = readers(library)
    for number, query in enumerate(islice(searches(Random(f"searches {seed}"), library.catalog), QUERIES)):
        if number % 10 == 9:
            states = readers(library)  # empty caches, as in another process
        for reader in states:
            if not too_large(query, reader.state):
                yield number, query, reader


@pytest.mark.slow
@pytest.mark.parametrize("total", [PAIRS, pytest.param(20_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("share", range(SHARES))
def test_searching_agrees_with_the_oracle(share: int, total: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    done: Counter[str] = Counter()
    wanted = math.ceil(total / SHARES)
    for seed in count(SEED + share, SHARES):
        with TemporaryDirectory() as place, turned(Random(f"turned {seed}")) as numbers:
            library = Library(seed, Path(place) / "graph")
            for number, query, reader in islice(pairs(library, seed), wanted - done.total()):
                try:
                    done[compare(query, reader.state, outcome(query, reader))] += 1
                except Exception as error:
                    pytest.fail(f"{explained(error, seed, number, query, reader)}\n{numbers}", pytrace=False)
            library.close()
        if done.total() >= wanted:
            break
    if wanted >= ENOUGH:
        assert done["rows"] > wanted / 3, done
        assert done["unsure"] + done["error"] < wanted / 10, done
