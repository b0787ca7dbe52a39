"""Walking several hops: who can be reached, counted by shortest distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from omnigraph.lang.query import ir
from omnigraph.read.context import Context
from omnigraph.read.expand import adjacencies
from omnigraph.read.frame import Binding
from omnigraph.read.space import NOTHING, Mask, Numbers

_BITS = 1 << 27
"""Up to so many pairs of a start and a node, those that were seen are marked in an array; starts beyond wait."""


@dataclass(frozen=True, slots=True)
class World:
    """The nodes of several types under one numbering.

    Attributes:
        types: the types.
        begins: the first number of each type, and the end.
    """

    types: tuple[str, ...]
    begins: Numbers

    @classmethod
    def of(cls, context: Context, steps: Sequence[ir.Step]) -> World:
        """The types that some steps lead from and to."""
        types = tuple(sorted({t for step in steps for t in (step.left_type, step.right_type)}))
        slots = [context.spaces.nodes(name).slots for name in types]
        return cls(types, np.cumsum([0, *slots]))

    @property
    def size(self) -> int:
        return int(self.begins[-1])

    def begin(self, type_name: str) -> int:
        """The first number of a type."""
        return int(self.begins[self.types.index(type_name)])

    def numbers(self, binding: Binding) -> Numbers:
        """The nodes of a binding; `NOTHING` for those of types that no step knows."""
        begins = np.array([self.begin(s.type_name) if s.type_name in self.types else NOTHING for s in binding.spaces])
        begin = begins[0] if binding.which is None else begins[binding.which]
        return np.where((binding.numbers == NOTHING) | (begin == NOTHING), NOTHING, binding.numbers + begin)


class Walk:
    """The edges of some steps between nodes of one numbering."""

    def __init__(self, context: Context, steps: Sequence[ir.Step]) -> None:
        self.world = World.of(context, steps)
        self._context = context
        self._parts = [
            (self.world.begin(step.left_type), self.world.begin(step.right_type), adjacency)
            for step in steps
            for adjacency in adjacencies(context, step)
        ]
        self.edge_types = tuple(dict.fromkeys(step.edge for step in steps))
        self.edge_begins: Numbers = np.cumsum([0, *(context.spaces.edges(name).slots for name in self.edge_types)])
        """The first number of each edge type, where edges of all types are numbered together."""
        self._edge_parts = [
            int(self.edge_begins[self.edge_types.index(step.edge)])
            for step in steps
            for _ in adjacencies(context, step)
        ]
        self.loops: Mask = np.zeros(self.world.size, bool)
        """Nodes that have an edge to themselves."""
        for left, right, adjacency in self._parts:
            if left == right:
                self.loops[left : left + len(adjacency.loops)] |= adjacency.loops

    def step(self, starts: Numbers, nodes: Numbers) -> tuple[Numbers, Numbers]:
        """All neighbours of some nodes, each with the start that its node has."""
        found_starts, found_nodes = [np.array([], np.int64)], [np.array([], np.int64)]
        for left, right, adjacency in self._parts:
            mine = (nodes >= left) & (nodes < left + adjacency.nodes)
            degree, place = adjacency.walk(nodes[mine] - left)
            self._context.budget.spend(len(place))
            found_starts.append(np.repeat(starts[mine], degree))
            found_nodes.append(adjacency.far(place) + right)
        return np.concatenate(found_starts), np.concatenate(found_nodes)

    def edges_from(self, nodes: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """All edges from some nodes: the place of the node, the node at the other end, and the edge."""
        sources, found, edges = ([np.array([], np.int64)] for _ in range(3))
        for (left, right, adjacency), begins in zip(self._parts, self._edge_parts, strict=True):
            mine = np.flatnonzero((nodes >= left) & (nodes < left + adjacency.nodes))
            degree, place = adjacency.walk(nodes[mine] - left)
            self._context.budget.spend(len(place))
            sources.append(np.repeat(mine, degree))
            found.append(adjacency.far(place) + right)
            edges.append(adjacency.edges(place) + begins)
        return np.concatenate(sources), np.concatenate(found), np.concatenate(edges)

    def reach(self, starts: Numbers, hops: ir.HopRange) -> tuple[Numbers, Numbers]:
        """What can be reached from each start within a range of shortest distances.

        Returns:
            Pairs: the place of a start in `starts`, and a node; ordered by both.
        """
        size = max(self.world.size, 1)
        together = max(1, _BITS // size)
        pairs = [
            self._reach(starts[first : first + together], hops) + first * size
            for first in range(0, len(starts), together)
        ]
        keys = np.concatenate([np.array([], np.int64), *pairs])
        return keys // size, keys % size

    def _reach(self, starts: Numbers, hops: ir.HopRange) -> Numbers:
        size = max(self.world.size, 1)
        known = starts != NOTHING
        frontier = (np.flatnonzero(known) * size + starts[known]).astype(np.int64)
        seen = np.zeros(len(starts) * size, bool)
        seen[frontier] = True
        found: list[Numbers] = []
        distance = 0
        while len(frontier) and (hops.max is None or distance < hops.max):
            if distance == hops.min - 1:
                # A loop is walked in this hop, and gives its node once more.
                found.append(frontier[self.loops[frontier % size]])
            distance += 1
            at, nodes = self.step(frontier // size, frontier % size)
            keys = at * size + nodes
            keys = keys[~seen[keys]]
            seen[keys] = True
            frontier = _distinct(keys, len(seen))
            if distance >= hops.min:
                found.append(frontier)
        keys = np.concatenate([np.array([], np.int64), *found])
        keys.sort()
        return keys


def _distinct(keys: Numbers, size: int) -> Numbers:
    """Each key once, ascending."""
    if len(keys) > size // 32:
        marked = np.zeros(size, bool)
        marked[keys] = True
        return np.flatnonzero(marked)
    return np.unique(keys)
