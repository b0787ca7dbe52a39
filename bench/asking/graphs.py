"""Four graphs of two million edges: a skewed social network, a uniform one, a bipartite one with hubs, a hierarchy.

All node types have the same properties, so that a question can filter anything by anything. `rank` is uniform; `score`
is large for the nodes with the most edges, and most scores are small; `kind` is one of a few texts, some of them rare;
`mark` is sometimes missing. No edge is there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Numbers: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
Random: TypeAlias = np.random.Generator
Pairs: TypeAlias = tuple[Numbers, Numbers]

RANKS = 10_000
SCORES = 1_000_000
KINDS = tuple(f"kind {number}" for number in range(24))
MARKS = 100
MEMORY = 4 << 30
"""What each engine may use, in bytes."""


@dataclass(frozen=True, slots=True)
class EdgeType:
    name: str
    source: str
    target: str
    draw: Callable[[Random, int, int], Pairs]
    """Takes how many sources and targets there are."""
    single: bool = False
    """Whether a source has at most one edge."""


@dataclass(frozen=True, slots=True)
class Graph:
    name: str
    nodes: Mapping[str, int]
    edges: tuple[EdgeType, ...]

    def edge(self, name: str) -> EdgeType:
        return next(edge for edge in self.edges if edge.name == name)

    def count(self, node: str, size: float) -> int:
        return max(int(self.nodes[node] * size), 5)


def skewed(each: float, power: float, *, both: bool = False) -> Callable[[Random, int, int], Pairs]:
    """Targets with low numbers are hubs, and with `both` sources with low numbers have the most edges."""

    def draw(random: Random, sources: int, targets: int) -> Pairs:
        count = int(sources * each)
        one = _low(random, sources, power, count) if both else random.integers(0, sources, count)
        return one, _low(random, targets, power, count)

    return draw


def uniform(each: float) -> Callable[[Random, int, int], Pairs]:
    def draw(random: Random, sources: int, targets: int) -> Pairs:
        count = int(sources * each)
        return random.integers(0, sources, count), random.integers(0, targets, count)

    return draw


def one_each(power: float = 1.0) -> Callable[[Random, int, int], Pairs]:
    def draw(random: Random, sources: int, targets: int) -> Pairs:
        return np.arange(sources), _low(random, targets, power, sources)

    return draw


def parents(random: Random, nodes: int, _: int) -> Pairs:
    """Each node but the first has a parent with a lower number: a tree of logarithmic depth."""
    children = np.arange(1, nodes)
    return children, (children * random.power(1.5, nodes - 1)).astype(np.int64)


def nearby(each: float, width: int) -> Callable[[Random, int, int], Pairs]:
    """Edges between nodes with near numbers, so that there are many triangles."""

    def draw(random: Random, sources: int, targets: int) -> Pairs:
        one = random.integers(0, sources, int(sources * each))
        return one, (one + random.integers(1, width, len(one))) % targets

    return draw


def _low(random: Random, count: int, power: float, size: int) -> Numbers:
    """Numbers below a count. The smaller the power, the more of them are low."""
    return (count * random.power(power, size)).astype(np.int64)


GRAPHS = {
    graph.name: graph
    for graph in (
        Graph(
            "social",
            {"Person": 100_000, "City": 2_000, "Topic": 300},
            (
                EdgeType("Follows", "Person", "Person", skewed(18, 0.55, both=True)),
                EdgeType("LivesIn", "Person", "City", one_each(0.5), single=True),
                EdgeType("Likes", "Person", "Topic", skewed(4, 0.5)),
            ),
        ),
        Graph(
            "uniform",
            {"Item": 200_000, "Part": 50_000},
            (
                EdgeType("Links", "Item", "Item", uniform(6)),
                EdgeType("Needs", "Item", "Part", uniform(3)),
                EdgeType("Joins", "Part", "Part", uniform(5)),
            ),
        ),
        Graph(
            "bipartite",
            {"Buyer": 120_000, "Product": 30_000, "Maker": 500},
            (
                EdgeType("Buys", "Buyer", "Product", skewed(9, 0.45)),
                EdgeType("Rates", "Buyer", "Product", skewed(3, 0.6, both=True)),
                EdgeType("MadeBy", "Product", "Maker", one_each(0.6), single=True),
            ),
        ),
        Graph(
            "hierarchy",
            {"Folder": 100_000, "Doc": 300_000, "Owner": 5_000},
            (
                EdgeType("Inside", "Folder", "Folder", parents, single=True),
                EdgeType("FiledIn", "Doc", "Folder", one_each(0.7), single=True),
                EdgeType("OwnedBy", "Folder", "Owner", one_each(0.5), single=True),
                EdgeType("Cites", "Doc", "Doc", nearby(4, 60)),
            ),
        ),
    )
}


def tables(graph: Graph, size: float = 1.0) -> dict[str, pa.Table]:
    """The tables of a graph, always the same. Edges have the columns `from` and `to`, sorted by both."""
    random = np.random.default_rng([int.from_bytes(graph.name.encode()[:6], "big"), 14])
    made = {node: _nodes(random, graph.count(node, size)) for node in graph.nodes}
    for edge in graph.edges:
        ends = (graph.count(edge.source, size), graph.count(edge.target, size))
        sources, targets = edge.draw(random, *ends)
        pairs = np.unique(sources * ends[1] + targets)
        made[edge.name] = pa.table({"from": pairs // ends[1], "to": pairs % ends[1]})
    return made


def _nodes(random: Random, count: int) -> pa.Table:
    # Low numbers have the most edges, and the largest scores.
    scores = SCORES / (1 + np.arange(count)) + random.integers(0, 50, count)
    kinds = (len(KINDS) * random.random(count) ** 3).astype(np.int64)
    marks = pa.array(random.integers(0, MARKS, count), mask=random.random(count) < 0.15)
    return pa.table(
        {
            "num": np.arange(count),
            "rank": random.integers(0, RANKS, count),
            "score": scores.astype(np.int64),
            "kind": pa.array(KINDS).take(pa.array(kinds)),
            "mark": marks,
        }
    )


def write_files(graph: Graph, folder: Path, size: float) -> None:
    """A Parquet file for each type."""
    folder.mkdir(parents=True)
    for name, table in tables(graph, size).items():
        pq.write_table(table, folder / f"{name}.parquet")
