"""Who is next to whom: the edges of a type as arrays of numbers, by source and by target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.schema import Catalog
from omnigraph.read.space import NOTHING, Mask, Numbers, Space, Spaces


@dataclass(frozen=True)
class Adjacency:
    """The edges of each node at one end.

    Attributes:
        first: the edges of node n are those from `first[n]` to `first[n + 1]`.
        neighbour: the nodes at the other end, ascending for each node.
        edge: the edges.
        others: how many numbers there are at the other end.
    """

    first: Numbers
    neighbour: Numbers
    edge: Numbers
    others: int

    @cached_property
    def repeats(self) -> bool:
        """Whether some node has the same neighbour twice."""
        return bool((self.pairs[1:] == self.pairs[:-1]).any())

    @cached_property
    def distinct(self) -> Adjacency:
        """The same with each neighbour once; of several edges to it, the first."""
        if not self.repeats:
            return self
        kept = np.ones(len(self.pairs), bool)
        kept[1:] = self.pairs[1:] != self.pairs[:-1]
        first = np.concatenate([[0], np.cumsum(kept)])[self.first]
        return Adjacency(first, self.neighbour[kept], self.edge[kept], self.others)

    @cached_property
    def pairs(self) -> Numbers:
        """Each edge as one number made of both ends, ascending."""
        return np.repeat(np.arange(len(self.first) - 1), self.degree) * self.others + self.neighbour

    @cached_property
    def degree(self) -> Numbers:
        return np.diff(self.first)

    @cached_property
    def loops(self) -> Mask:
        """Which nodes have an edge to themselves, where both ends are of one type."""
        nodes = np.repeat(np.arange(len(self.first) - 1), self.degree)
        found = np.zeros(len(self.first) - 1, bool)
        found[nodes[nodes == self.neighbour]] = True
        return found


@dataclass(frozen=True)
class Topology:
    """The edges of one type."""

    source: Numbers
    target: Numbers
    edge: Numbers
    sources: int
    targets: int

    @cached_property
    def out(self) -> Adjacency:
        """By source."""
        return _adjacency(self.source, self.target, self.edge, self.sources, self.targets)

    @cached_property
    def into(self) -> Adjacency:
        """By target."""
        return _adjacency(self.target, self.source, self.edge, self.targets, self.sources)


def _adjacency(near: Numbers, far: Numbers, edge: Numbers, nodes: int, others: int) -> Adjacency:
    order = np.argsort(near * others + far, kind="stable")
    first = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(near, minlength=nodes), out=first[1:])
    return Adjacency(first, far[order], edge[order], others)


class Topologies:
    """The topologies of one snapshot, each made when it is first asked for."""

    def __init__(self, spaces: Spaces, catalog: Catalog) -> None:
        self._spaces = spaces
        self._catalog = catalog
        self._made: dict[str, Topology] = {}
        self._lock = Lock()

    def of(self, edge: str) -> Topology:
        with self._lock:
            found = self._made.get(edge)
        if found is None:
            found = self._make(edge)
            with self._lock:
                found = self._made.setdefault(edge, found)
        return found

    def _make(self, edge: str) -> Topology:
        declared = self._catalog.edges[edge]
        sources, targets = self._spaces.nodes(declared.from_type), self._spaces.nodes(declared.to_type)
        edges = self._spaces.edges(edge)
        source, target = _ends(edges, "src", sources), _ends(edges, "dst", targets)
        return Topology(source, target, edges.everything(), sources.slots, targets.slots)


def _ends(edges: Space, end: str, nodes: Space) -> Numbers:
    ids = edges.column(end)
    if edges.live is not None:
        ids = ids.filter(pa.array(edges.live))
    found: Numbers = pc.index_in(ids, value_set=nodes.column("id")).fill_null(NOTHING).to_numpy().astype(np.int64)
    return found
