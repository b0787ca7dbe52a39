"""Walking several hops: who can be reached, counted by shortest distance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np

from omnigraph.lang.query import ir
from omnigraph.read.context import Context
from omnigraph.read.match.expand import adjacencies
from omnigraph.read.match.frame import Binding
from omnigraph.read.space.space import NOTHING, Mask, Numbers

_BITS = 1 << 26
"""Up to so many pairs of a start and a node, those that were seen are marked in an array; starts beyond wait."""

_MARKING = 8
"""Marks are for no more pairs than one for so many bytes of the memory, unless a single start has more."""

_COPIES = 3
"""How often what was reached is in memory while it is put together."""

_SPARSE = 32
"""With fewer keys than one of so many that there could be, they are sorted instead of marked."""

_FAR = 6
_MUCH = 500.0
"""Starts from which more edges than this are expected to be walked, within so many hops, are walked one by one."""

_KEPT_MARKS = 1 << 27
"""How many bytes of arrays wait for the next walk, at most."""

_NOBODY: Numbers = np.array([], np.int64)


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
        self._steps = steps

    @cached_property
    def edge_begins(self) -> Numbers:
        """The first number of each edge type, where edges of all types are numbered together."""
        return np.cumsum([0, *(self._context.spaces.edges(name).slots for name in self.edge_types)])

    @cached_property
    def _edge_parts(self) -> list[int]:
        """The first number of the edges of each part."""
        begins = {name: int(begin) for name, begin in zip(self.edge_types, self.edge_begins, strict=False)}
        return [begins[step.edge] for step in self._steps for _ in adjacencies(self._context, step)]

    def looping(self, nodes: Numbers) -> Mask:
        """Which of some nodes have an edge to themselves."""
        found: Mask = np.zeros(len(nodes), bool)
        for left, right, adjacency in self._parts:
            if left == right:
                mine = np.flatnonzero((nodes >= left) & (nodes < left + adjacency.nodes))
                found[mine] |= adjacency.looping(nodes[mine] - left)
        return found

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
        size, budget = max(self.world.size, 1), self._context.budget
        found: list[Numbers] = []
        with budget.keeping():
            if self._goes_far(hops):
                for parts in self._one_by_one(starts, hops):
                    found.append(_in_order(parts))
                    budget.keep(_COPIES * found[-1].nbytes)
                lengths = [len(nodes) for nodes in found]
                return np.repeat(np.arange(len(starts)), lengths), np.concatenate([_NOBODY, *found])
            bits = _BITS if budget.most is None else min(_BITS, budget.most // _MARKING)
            together = max(1, bits // size)
            for first in range(0, len(starts), together):
                found.append(self._reach(starts[first : first + together], hops) + first * size)
                budget.keep(_COPIES * found[-1].nbytes)
            keys = np.concatenate([_NOBODY, *found])
            return keys // size, keys % size

    def totals(self, starts: Numbers, hops: ir.HopRange, values: Numbers | Mask | None) -> Numbers:
        """The sum over what can be reached from each start.

        Args:
            starts: where to start.
            hops: the shortest distances that count.
            values: what each node counts; None when each counts one.
        """
        if self._goes_far(hops):
            found = self._one_by_one(starts, hops)
            if values is None:
                return np.array([sum(map(len, parts)) for parts in found], np.int64)
            return np.array([sum(int(values.take(part).sum()) for part in parts) for parts in found], np.int64)
        places, nodes = self.reach(starts, hops)
        if values is None:
            return np.bincount(places, minlength=len(starts))
        totals = np.zeros(len(starts), np.int64)
        np.add.at(totals, places, values.take(nodes))
        return totals

    def _goes_far(self, hops: ir.HopRange) -> bool:
        """Whether one start is expected to reach so much that starts are better walked from one by one."""
        edges = sum(adjacency.size for _, _, adjacency in self._parts)
        degree = edges / max(self.world.size, 1)
        return degree ** min(_FAR if hops.max is None else hops.max, _FAR) > _MUCH

    def _one_by_one(self, starts: Numbers, hops: ir.HopRange) -> Iterator[list[Numbers]]:
        """What can be reached from each start: distinct nodes, those of one distance after those of another."""
        with _marks(self.world.size) as (seen, marked):
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
                        # A loop is walked in this hop, and gives its node once more.
                        found.append(frontier[self.looping(frontier)])
                    nodes = self._next(frontier)
                    frontier = _distinct(nodes[~seen.take(nodes)], marked)
                    distance += 1
                for nodes in touched:
                    seen[nodes] = False
                yield found

    def _next(self, nodes: Numbers) -> Numbers:
        """All neighbours of some nodes."""
        found: list[Numbers] = []
        for left, right, adjacency in self._parts:
            mine = nodes
            if adjacency.nodes != self.world.size:
                mine = nodes[(nodes >= left) & (nodes < left + adjacency.nodes)] - left
            _, places = adjacency.walk(mine)
            self._context.budget.spend(len(places))
            far = adjacency.far(places)
            found.append(far + right if right else far)
        return found[0] if len(found) == 1 else np.concatenate([_NOBODY, *found])

    def _reach(self, starts: Numbers, hops: ir.HopRange) -> Numbers:
        size, budget = max(self.world.size, 1), self._context.budget
        budget.need(2 * len(starts) * size)
        known = starts != NOTHING
        frontier = (np.flatnonzero(known) * size + starts[known]).astype(np.int64)
        seen, marked = np.zeros(len(starts) * size, bool), np.zeros(len(starts) * size, bool)
        seen[frontier] = True
        found: list[Numbers] = []
        distance = held = 0
        while len(frontier) and (hops.max is None or distance < hops.max):
            if distance == hops.min - 1:
                # A loop is walked in this hop, and gives its node once more.
                found.append(frontier[self.looping(frontier % size)])
            distance += 1
            at, nodes = self.step(frontier // size, frontier % size)
            keys = at * size + nodes
            keys = keys[~seen[keys]]
            seen[keys] = True
            frontier = _distinct(keys, marked)
            held += frontier.nbytes
            budget.need(2 * len(starts) * size + _COPIES * held)
            if distance >= hops.min:
                found.append(frontier)
        keys = np.concatenate([np.array([], np.int64), *found])
        keys.sort()
        return keys


class _Idle:
    """Marks that no walk uses: of all threads together, up to a number of bytes."""

    def __init__(self) -> None:
        self._marks: list[tuple[Mask, Mask]] = []
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        return sum(seen.nbytes + marked.nbytes for seen, marked in self._marks)

    def take(self, size: int) -> tuple[Mask, Mask] | None:
        """Marks for so many nodes, the smallest that there are."""
        with self._lock:
            enough = [place for place, (seen, _) in enumerate(self._marks) if len(seen) >= size]
            return self._marks.pop(min(enough, key=lambda place: len(self._marks[place][0]))) if enough else None

    def give(self, marks: tuple[Mask, Mask]) -> None:
        """Marks for later walks. Those that were given first make room for them."""
        if marks[0].nbytes + marks[1].nbytes > _KEPT_MARKS:
            return
        with self._lock:
            self._marks.append(marks)
            while self.nbytes > _KEPT_MARKS:
                self._marks.pop(0)


_idle = _Idle()


@contextmanager
def _marks(size: int) -> Iterator[tuple[Mask, Mask]]:
    """Two arrays to mark so many nodes in, all False, and left so.

    Those of an earlier walk are taken again: for a small answer in a large graph, new ones cost more than the walk.
    """
    marks = _idle.take(size) or (np.zeros(size, bool), np.zeros(size, bool))
    # A walk that is stopped on the way leaves marks behind, and they are given up.
    yield marks[0][:size], marks[1][:size]
    _idle.give(marks)


def _distinct(keys: Numbers, marked: Mask) -> Numbers:
    """Each key once, ascending. `marked` is an array to work with: for every key False, and so again afterwards."""
    if len(keys) * _SPARSE < len(marked):
        return np.unique(keys)
    marked[keys] = True
    found: Numbers = np.flatnonzero(marked)
    marked[found] = False
    return found


def _in_order(parts: list[Numbers]) -> Numbers:
    """The nodes of several parts, ascending."""
    if len(parts) == 1:
        return parts[0]
    nodes = np.concatenate([_NOBODY, *parts])
    nodes.sort()
    return nodes
