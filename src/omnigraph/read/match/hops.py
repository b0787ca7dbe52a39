"""Multi-hop walks: nodes within a range of shortest distances, by breadth-first search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers
from omnigraph.read.context.context import Context
from omnigraph.read.match.both_ways import BothWays, is_cheaper
from omnigraph.read.match.expand import adjacencies, reversed_steps
from omnigraph.read.match.marks import distinct_keys, mark_arrays
from omnigraph.read.rows.frame import Binding
from omnigraph.read.topology.adjacency import Adjacency
from omnigraph.read.topology.edge_lookup import EdgeAccess

MAX_MARKED_PAIRS = 1 << 26
"""Maximum length of a mark array, which marks visited nodes: it has one element per pair of start node and node.

If there are too many start nodes for one array, they are processed in several rounds.
"""

_MARKS_MEMORY_RATIO = 8
"""A mark array takes at most 1 / `_MARKS_MEMORY_RATIO` of the memory budget, unless one start node needs more."""

_COPIES = 3
"""Number of copies of the reached nodes in memory while the result is assembled."""

_MAX_ESTIMATED_HOPS = 6
"""Estimates assume that more hops than this reach no new nodes."""

MAX_BATCHED_EDGES_PER_START = 500.0
"""If a start node is expected to reach more edges than this, start nodes are processed one by one."""

_NO_NODES: Numbers = np.array([], np.int64)


@dataclass(frozen=True, slots=True)
class CombinedNumbering:
    """One numbering for the nodes of several types: each type has a range of numbers.

    Attributes:
        types: the types.
        begins: first number of each type, and then the end of the last range.
    """

    types: tuple[str, ...]
    begins: Numbers

    @classmethod
    def of(cls, context: Context, steps: Sequence[ir.Step]) -> CombinedNumbering:
        """The numbering for the node types at both ends of the given steps."""
        types = tuple(sorted({t for step in steps for t in (step.left_type, step.right_type)}))
        slots = [context.tables.nodes(name).slots for name in types]
        return cls(types, np.cumsum([0, *slots]))

    @property
    def size(self) -> int:
        return int(self.begins[-1])

    def begin(self, type_name: str) -> int:
        """First number of the nodes of a type."""
        return int(self.begins[self.types.index(type_name)])

    def numbers(self, binding: Binding) -> Numbers:
        """Combined numbers of the nodes of a binding; `NOTHING` for node types that the numbering does not include."""
        begins = np.array([self.begin(s.type_name) if s.type_name in self.types else NOTHING for s in binding.tables])
        begin = begins[0] if binding.type_index is None else begins[binding.type_index]
        return np.where((binding.numbers == NOTHING) | (begin == NOTHING), NOTHING, binding.numbers + begin)


class Walk:
    """The edges of several edge types, with a combined numbering of their nodes."""

    def __init__(self, context: Context, steps: Sequence[ir.Step], numbering: CombinedNumbering | None = None) -> None:
        self.numbering = CombinedNumbering.of(context, steps) if numbering is None else numbering
        self._context = context
        self._parts = [
            (self.numbering.begin(step.left_type), self.numbering.begin(step.right_type), adjacency)
            for step in steps
            for adjacency in adjacencies(context, step)
        ]
        self.edge_types = tuple(dict.fromkeys(step.edge for step in steps))
        self._steps = steps

    @cached_property
    def edge_begins(self) -> Numbers:
        """First number of each edge type, in a combined numbering of the edges."""
        return np.cumsum([0, *(self._context.tables.edges(name).slots for name in self.edge_types)])

    @cached_property
    def _edge_parts(self) -> list[int]:
        """For each adjacency, the first number of its edge type, in the combined numbering of the edges."""
        begins = {name: int(begin) for name, begin in zip(self.edge_types, self.edge_begins, strict=False)}
        return [begins[step.edge] for step in self._steps for _ in adjacencies(self._context, step)]

    def looping(self, nodes: Numbers) -> Mask:
        """Mask of the given nodes that have a self-loop."""
        found: Mask = np.zeros(len(nodes), bool)
        for left, right, adjacency in self._parts:
            if left == right:
                mine = np.flatnonzero((nodes >= left) & (nodes < left + adjacency.nodes))
                found[mine] |= adjacency.looping(nodes[mine] - left)
        return found

    def degrees(self, nodes: Numbers) -> Numbers:
        """Number of edges from each given node. Where no topology exists, it is the average number."""
        if self._only is not None:
            begin, found = self._only.ranges(nodes)
            found -= begin
            return found
        found = np.zeros(len(nodes), np.int64)
        for left, _, adjacency in self._parts:
            mine = np.flatnonzero((nodes >= left) & (nodes < left + adjacency.nodes))
            if isinstance(adjacency, Adjacency):
                begin, end = adjacency.ranges(nodes[mine] - left)
                found[mine] += end - begin
            else:
                found[mine] += -(-adjacency.size // max(adjacency.nodes, 1))
        return found

    def prefers_both_ways(self, pairs: int, starts: int, hops: ir.HopRange) -> bool:
        """Whether to search from both ends of pairs of nodes, instead of walking from each distinct start.

        Args:
            pairs: number of distinct pairs.
            starts: number of distinct starts.
            hops: range of shortest distances.
        """
        return is_cheaper(pairs, starts, self._average_degree, self._edge_count, hops)

    def both_ways(self, hops: ir.HopRange) -> BothWays:
        """A search from both ends of pairs of nodes."""
        self._context.note_access(EdgeAccess.BOTH_ENDS)
        backward = Walk(self._context, reversed_steps(self._steps), self.numbering)
        return BothWays(self, backward, self.numbering.size, hops, self._context.budget)

    @cached_property
    def _only(self) -> Adjacency | None:
        """The adjacency, if there is one for all nodes; else None."""
        adjacency = self._parts[0][2] if len(self._parts) == 1 and len(self.numbering.types) == 1 else None
        return adjacency if isinstance(adjacency, Adjacency) else None

    @cached_property
    def _edge_count(self) -> int:
        return sum(adjacency.size for _, _, adjacency in self._parts)

    @property
    def _average_degree(self) -> float:
        return self._edge_count / max(self.numbering.size, 1)

    def step(self, starts: Numbers, nodes: Numbers) -> tuple[Numbers, Numbers]:
        """All neighbours of the given nodes.

        `starts` has the start node of each given node. Returns the start node of each neighbour, and the neighbours.
        """
        if self._only is not None:
            degree, place = self._only.walk(nodes)
            self._context.budget.spend(len(place))
            return np.repeat(starts, degree), self._only.far(place)
        found_starts, found_nodes = [np.array([], np.int64)], [np.array([], np.int64)]
        for left, right, adjacency in self._parts:
            mine = (nodes >= left) & (nodes < left + adjacency.nodes)
            degree, place = adjacency.walk(nodes[mine] - left)
            self._context.budget.spend(len(place))
            found_starts.append(np.repeat(starts[mine], degree))
            found_nodes.append(adjacency.far(place) + right)
        return np.concatenate(found_starts), np.concatenate(found_nodes)

    def edges_from(self, nodes: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """All edges from the given nodes.

        Returns:
            For each edge, the index of the given node, the node at the other end, and the edge number.
        """
        if self._only is not None:
            degree, place = self._only.walk(nodes)
            self._context.budget.spend(len(place))
            return np.repeat(np.arange(len(nodes)), degree), self._only.far(place), self._only.edges(place)
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
        """Find the nodes whose shortest distance from a start node is within the hop range.

        Returns:
            Two arrays with one element per pair of start and reached node: index into `starts`, and reached node. The
            pairs are sorted.
        """
        size, budget = max(self.numbering.size, 1), self._context.budget
        found: list[Numbers] = []
        with budget.keeping():
            if self._reaches_many(hops):
                for parts in self._per_start(starts, hops):
                    found.append(_merged_sorted(parts))
                    budget.keep(_COPIES * found[-1].nbytes)
                lengths = [len(nodes) for nodes in found]
                return np.repeat(np.arange(len(starts)), lengths), np.concatenate([_NO_NODES, *found])
            pairs = MAX_MARKED_PAIRS
            if budget.most is not None:
                pairs = min(pairs, budget.most // _MARKS_MEMORY_RATIO)
            together = max(1, pairs // size)
            for first in range(0, len(starts), together):
                found.append(self._reach(starts[first : first + together], hops) + first * size)
                budget.keep(_COPIES * found[-1].nbytes)
            keys = np.concatenate([_NO_NODES, *found])
            return keys // size, keys % size

    def totals(self, starts: Numbers, hops: ir.HopRange, values: Numbers | Mask | None) -> Numbers:
        """For each start node, the sum of the values of the nodes that it reaches.

        Args:
            starts: the start nodes.
            hops: range of shortest distances.
            values: value of each node; None for 1.
        """
        if values is not None:
            ends = np.flatnonzero(values)
            if self.prefers_both_ways(len(starts) * len(ends), len(starts), hops):
                self._context.budget.need_arrays(len(starts) * len(ends), _COPIES)
                reached = self.both_ways(hops).reached(np.repeat(starts, len(ends)), np.tile(ends, len(starts)))
                weighted = np.where(reached.reshape(len(starts), len(ends)), values[ends], 0)
                totals: Numbers = weighted.sum(axis=1, dtype=np.int64)
                return totals
        if self._reaches_many(hops):
            found = self._per_start(starts, hops)
            if values is None:
                return np.array([sum(map(len, parts)) for parts in found], np.int64)
            return np.array([sum(int(values.take(part).sum()) for part in parts) for parts in found], np.int64)
        places, nodes = self.reach(starts, hops)
        if values is None:
            return np.bincount(places, minlength=len(starts))
        totals = np.zeros(len(starts), np.int64)
        np.add.at(totals, places, values.take(nodes))
        return totals

    def _reaches_many(self, hops: ir.HopRange) -> bool:
        """Whether a start node is expected to reach so many nodes that processing start nodes one by one is faster."""
        most = _MAX_ESTIMATED_HOPS if hops.max is None else min(hops.max, _MAX_ESTIMATED_HOPS)
        return self._average_degree**most > MAX_BATCHED_EDGES_PER_START

    def _per_start(self, starts: Numbers, hops: ir.HopRange) -> Iterator[list[Numbers]]:
        """For each start node, the distinct nodes that it reaches, as one array per distance."""
        with mark_arrays(self.numbering.size) as (seen, marked):
            for start in starts.tolist():
                found: list[Numbers] = []
                frontier: Numbers = np.array([] if start == NOTHING else [start], np.int64)
                touched: list[Numbers] = []
                distance = held = 0
                while len(frontier):
                    seen[frontier] = True
                    touched.append(frontier)
                    held += frontier.nbytes
                    self._context.budget.need(_COPIES * held)
                    if distance and distance >= hops.min:
                        found.append(frontier)
                    if distance == hops.max:
                        break
                    if distance == hops.min - 1:
                        # A node with a self-loop is reached again in this hop, although it was visited before.
                        found.append(frontier[self.looping(frontier)])
                    nodes = self.next(frontier)
                    frontier = distinct_keys(nodes[~seen.take(nodes)], marked)
                    distance += 1
                for nodes in touched:
                    seen[nodes] = False
                yield found

    def next(self, nodes: Numbers) -> Numbers:
        """All neighbours of the given nodes, with duplicates."""
        found: list[Numbers] = []
        for left, right, adjacency in self._parts:
            mine = nodes
            if adjacency.nodes != self.numbering.size:
                mine = nodes[(nodes >= left) & (nodes < left + adjacency.nodes)] - left
            _, places = adjacency.walk(mine)
            self._context.budget.spend(len(places))
            far = adjacency.far(places)
            found.append(far + right if right else far)
        return found[0] if len(found) == 1 else np.concatenate([_NO_NODES, *found])

    def _reach(self, starts: Numbers, hops: ir.HopRange) -> Numbers:
        size, budget = max(self.numbering.size, 1), self._context.budget
        budget.need(2 * len(starts) * size)
        known = starts != NOTHING
        frontier = (np.flatnonzero(known) * size + starts[known]).astype(np.int64)
        seen, marked = np.zeros(len(starts) * size, bool), np.zeros(len(starts) * size, bool)
        seen[frontier] = True
        found: list[Numbers] = []
        distance = held = 0
        while len(frontier) and (hops.max is None or distance < hops.max):
            if distance == hops.min - 1:
                # A node with a self-loop is reached again in this hop, although it was visited before.
                found.append(frontier[self.looping(frontier % size)])
            distance += 1
            at, nodes = self.step(frontier // size, frontier % size)
            keys = at * size + nodes
            keys = keys[~seen[keys]]
            seen[keys] = True
            frontier = distinct_keys(keys, marked)
            held += frontier.nbytes
            budget.need(2 * len(starts) * size + _COPIES * held)
            if distance >= hops.min:
                found.append(frontier)
        keys = np.concatenate([np.array([], np.int64), *found])
        keys.sort()
        return keys


def _merged_sorted(parts: list[Numbers]) -> Numbers:
    """Concatenate several arrays of nodes and sort the result."""
    if len(parts) == 1:
        return parts[0]
    nodes = np.concatenate([_NO_NODES, *parts])
    nodes.sort()
    return nodes
