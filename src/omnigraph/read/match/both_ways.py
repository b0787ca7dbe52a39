"""Both ways: a search from both ends for the shortest distance between pairs of nodes, and for the nodes between them.

In each round, each pair of nodes advances its search by one hop, at the end from which there are fewer edges to walk.
The hops are complete: when a node has been reached from both ends, it lies on a shortest path, and all such nodes of
the pair are reached in the same round. A node of the search is identified by a key: the number of the pair times the
number of nodes, plus the node.
"""

# See docs/decisions/0228-paths-are-searched-from-both-ends.md

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field
from typing import Protocol

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.budget.budget import Spending, checkpoint
from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers
from omnigraph.read.columns.sorting import order_of
from omnigraph.read.match.marks import distinct_keys, mark_arrays

MAX_MARKED_PAIRS = 1 << 26
"""Maximum length of a mark array, which has one element per pair of nodes and node. More pairs take several rounds."""

_MARKS_MEMORY_RATIO = 16
"""A mark array takes at most 1 / `_MARKS_MEMORY_RATIO` of the memory budget, unless one pair of nodes needs more."""

_COPIES = 6
"""Number of copies of the reached nodes in memory while they are ordered by their distance."""

PAIR_COST_RATIO = 1.0
"""Cost of walking an edge in a search from both ends. The unit is the cost of walking an edge from one end."""

_MAX_HOPS = 12
"""Estimates assume that more hops than this reach no new nodes."""

_ROOT_EDGES = 4.0
"""A search from both ends is expected to walk at most the square root of the number of edges, times this number."""


class Steps(Protocol):
    """Edges that a search walks in one direction. All nodes have one numbering."""

    def next(self, nodes: Numbers) -> Numbers: ...
    def step(self, starts: Numbers, nodes: Numbers) -> tuple[Numbers, Numbers]: ...
    def edges_from(self, nodes: Numbers) -> tuple[Numbers, Numbers, Numbers]: ...
    def degrees(self, nodes: Numbers) -> Numbers: ...
    def looping(self, nodes: Numbers) -> Mask: ...


def is_cheaper(pairs: int, starts: int, degree: float, edges: int, hops: ir.HopRange) -> bool:
    """Whether a search from both ends of each pair is expected to walk fewer edges than a walk from each start.

    Args:
        pairs: number of distinct pairs of nodes.
        starts: number of distinct nodes that the pairs start at.
        degree: average number of edges per node.
        edges: number of edges.
        hops: range of shortest distances.
    """
    most = _MAX_HOPS if hops.max is None else min(hops.max, _MAX_HOPS)
    walked = min(max(degree, 1.0) ** most, float(edges))
    from_both = min(2 * max(degree, 1.0) ** -(-most // 2), _ROOT_EDGES * math.sqrt(edges))
    return pairs * from_both * PAIR_COST_RATIO <= starts * walked


@dataclass(slots=True)
class _Side:
    """The search from one end of each pair.

    Attributes:
        steps: the edges, in the direction in which this side walks them.
        size: number of nodes.
        seen: marks of the keys that were reached.
        frontier: keys at the greatest distance so far, ascending. Pairs whose search has ended have none.
        depth: number of hops of each pair so far.
        cost: for each pair, the number of nodes and edges that its next hop walks; 0 if it cannot go on.
        reached: keys in the order in which they were reached, one array per round.
        hops: for each of these arrays, the distance of each key from the end of its pair.
    """

    steps: Steps
    size: int
    seen: Mask
    frontier: Numbers
    depth: Numbers
    cost: Numbers = field(init=False)
    reached: list[Numbers] = field(default_factory=list)
    hops: list[Numbers] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cost = np.zeros(len(self.depth), np.int64)
        self._note(self.frontier)

    def _note(self, keys: Numbers) -> None:
        """Note keys that are reached for the first time. The cost of their pairs is 0 before."""
        self.seen[keys] = True
        self.reached.append(keys)
        if len(self.depth) == 1:
            self.hops.append(np.full(len(keys), self.depth[0]))
            self.cost[0] = self.steps.degrees(keys).sum() + len(keys)
            return
        pairs, nodes = np.divmod(keys, self.size)
        self.hops.append(self.depth.take(pairs))
        np.add.at(self.cost, pairs, self.steps.degrees(nodes) + 1)

    def keep(self, open_: Mask) -> None:
        """End the search of the pairs that are not open."""
        self.frontier = self.frontier[open_.take(self.frontier // self.size)]

    def advance(self, chosen: Mask, marked: Mask) -> Numbers:
        """Walk one hop for the chosen pairs. Returns the keys that are reached for the first time, ascending."""
        others: Numbers | None = None
        if len(self.depth) == 1:
            keys = self.steps.next(self.frontier)
        else:
            pairs, nodes = np.divmod(self.frontier, self.size)
            mine = chosen.take(pairs)
            found_pairs, found = self.steps.step(pairs[mine], nodes[mine])
            keys, others = found_pairs * self.size + found, self.frontier[~mine]
        checkpoint()
        keys = distinct_keys(keys[~self.seen.take(keys)], marked)
        checkpoint()
        self.depth[chosen] += 1
        self.cost[chosen] = 0
        self._note(keys)
        self.frontier = keys
        if others is not None and len(others):
            # The array consists of two sorted runs, which a stable sort merges.
            self.frontier = np.concatenate([keys, others])
            self.frontier.sort(kind="stable")
        return keys

    def at(self, pairs: Mask, most: Numbers) -> tuple[Numbers, Numbers]:
        """The keys of the given pairs that are nearer than `most` hops (given for each pair), and their distances."""
        keys, hops = np.concatenate(self.reached), np.concatenate(self.hops)
        pair = keys // self.size
        kept = pairs.take(pair) & (hops < most.take(pair))
        return keys[kept], hops[kept]


@dataclass(frozen=True, slots=True)
class Between:
    """The nodes between some pairs of nodes.

    Attributes:
        first: index of the first of these pairs among all pairs.
        starts, ends: the nodes of each pair.
        found: mask of the pairs whose distance is within the hop range.
        layers: for each distance from the start, from 0 to the greatest one, the keys of all nodes on shortest paths,
            ascending. The nodes beyond the middle of a path may also be on a way to its end that does not begin at its
            start.
    """

    first: int
    starts: Numbers
    ends: Numbers
    found: Mask
    layers: list[Numbers]


class BothWays:
    """Searches from both ends of pairs of nodes.

    Args:
        forward: the edges, in the direction from the start of a pair to its end.
        backward: the same edges in the opposite direction.
        size: number of nodes.
        hops: range of shortest distances.
        budget: the budget of the read.
    """

    def __init__(self, forward: Steps, backward: Steps, size: int, hops: ir.HopRange, budget: Spending) -> None:
        self._forward = forward
        self._backward = backward
        self._size = max(size, 1)
        self._hops = hops
        self._budget = budget

    def reached(self, starts: Numbers, ends: Numbers) -> Mask:
        """Mask of the pairs whose shortest distance is within the hop range.

        A node with a self-loop is reached again one hop after it was reached first.

        Raises:
            BudgetExceededError: the reached nodes exceed the memory budget.
            CancelledError: the read was cancelled.
        """
        found = np.zeros(len(starts), bool)
        for part in self._parts(len(starts)):
            found[part] = self._found(self._search(starts[part], ends[part]), ends[part])
        return found

    def between(self, starts: Numbers, ends: Numbers) -> Iterator[Between]:
        """The nodes on all shortest paths, for some pairs at a time.

        Raises:
            BudgetExceededError: the reached nodes exceed the memory budget.
            CancelledError: the read was cancelled.
        """
        for part in self._parts(len(starts)):
            search = self._search(starts[part], ends[part])
            found = self._found(search, ends[part])
            layers = self._pruned(search.layers(found), search.from_start.depth) if found.any() else []
            yield Between(part.start, starts[part], ends[part], found, layers)

    def _parts(self, count: int) -> Iterator[slice]:
        most = MAX_MARKED_PAIRS
        if self._budget.most is not None:
            most = min(most, self._budget.most // _MARKS_MEMORY_RATIO)
        together = max(1, most // self._size)
        for first in range(0, count, together):
            yield slice(first, min(first + together, count))

    def _found(self, search: _Search, ends: Numbers) -> Mask:
        hops, distance = self._hops, search.distance
        found: Mask = distance >= max(hops.min, 1)
        if hops.max is None or hops.max >= hops.min:
            again = np.flatnonzero(distance == hops.min - 1)
            if len(again):
                found[again] = self._forward.looping(ends[again])
        return found

    def _search(self, starts: Numbers, ends: Numbers) -> _Search:
        count, size = len(starts), self._size
        known = np.flatnonzero((starts != NOTHING) & (ends != NOTHING))
        if count > 1:
            self._budget.need(4 * count * size)
        with mark_arrays(count * size) as (seen, seen_back), mark_arrays(count * size) as (marked, _):
            depths = np.zeros((2, count), np.int64)
            search = _Search(
                _Side(self._forward, size, seen, known * size + starts[known], depths[0]),
                _Side(self._backward, size, seen_back, known * size + ends[known], depths[1]),
            )
            search.run(self._hops.max, marked, self._budget)
            for side in (search.from_start, search.from_end):
                for keys in side.reached:
                    side.seen[keys] = False
        return search

    def _pruned(self, layers: list[Numbers], middle: Numbers) -> list[Numbers]:
        """Remove nodes before the middle of the paths from which the middle is not reached.

        Args:
            layers: keys by their distance from the start.
            middle: for each pair, the distance at which its nodes were reached from both ends.
        """
        for level in range(min(len(layers) - 1, int(middle.max())) - 1, -1, -1):
            checkpoint()
            keys = layers[level]
            leads = middle.take(keys // self._size) <= level
            leads[self.links(keys, layers[level + 1])[0]] = True
            layers[level] = keys[leads]
        return layers

    def links(self, lower: Numbers, upper: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Edges from nodes of one layer to nodes of the next one. They are walked from the side with fewer edges.

        Args:
            lower: keys of the nodes that edges come from, ascending.
            upper: keys of the nodes that edges lead to, ascending.

        Returns:
            For each edge, the index into `lower`, the index into `upper`, and the edge number.
        """
        pairs, nodes = np.divmod(lower, self._size)
        upper_pairs, upper_nodes = np.divmod(upper, self._size)
        if self._forward.degrees(nodes).sum() <= self._backward.degrees(upper_nodes).sum():
            low, far, edge = self._forward.edges_from(nodes)
            high, there = _find(upper, pairs[low] * self._size + far)
        else:
            high, near, edge = self._backward.edges_from(upper_nodes)
            low, there = _find(lower, upper_pairs[high] * self._size + near)
        return low[there], high[there], edge[there]


@dataclass(slots=True)
class _Search:
    """A search from both ends of several pairs.

    Attributes:
        from_start: the search from the start of each pair.
        from_end: the search from the end of each pair.
        distance: shortest distance of each pair; `NOTHING` if it is not found within the allowed number of hops.
        meeting: keys that were reached from both ends first.
    """

    from_start: _Side
    from_end: _Side
    distance: Numbers = field(init=False)
    meeting: list[Numbers] = field(default_factory=list)

    def run(self, most: int | None, marked: Mask, budget: Spending) -> None:
        """Search until each pair has met, cannot go on, or has walked `most` hops."""
        start, end = self.from_start, self.from_end
        self.distance = np.full(len(start.depth), NOTHING, np.int64)
        self._meet(start.frontier, end)
        held = 0
        while True:
            checkpoint()
            open_ = (self.distance == NOTHING) & (start.cost > 0) & (end.cost > 0)
            if most is not None:
                open_ &= start.depth + end.depth < most
            if not open_.any():
                return
            if not open_.all():
                start.keep(open_)
                end.keep(open_)
            forwards = open_ & (start.cost <= end.cost)
            for side, other, chosen in ((start, end, forwards), (end, start, open_ & ~forwards)):
                if chosen.any():
                    keys = side.advance(chosen, marked)
                    held += keys.nbytes
                    budget.need(_COPIES * held)
                    self._meet(keys, other)

    def _meet(self, keys: Numbers, other: _Side) -> None:
        """Note new keys of one side that the other side has reached, too. They are in the frontiers of both sides.

        If a key were nearer to the other end, the pair would have met in an earlier round.
        """
        common = keys[other.seen.take(keys)]
        if len(common):
            pairs = common // self.from_start.size
            self.distance[pairs] = self.from_start.depth[pairs] + self.from_end.depth[pairs]
            self.meeting.append(common)

    def layers(self, pairs: Mask) -> list[Numbers]:
        """The keys of the given pairs, which have met, by their distance from the start, each ascending."""
        start, end, size = self.from_start, self.from_end, self.from_start.size
        before, before_hops = start.at(pairs, start.depth)
        after, after_hops = end.at(pairs, end.depth)
        middle = np.concatenate(self.meeting)
        middle = middle[pairs.take(middle // size)]
        keys = np.concatenate([before, middle, after])
        hops = np.concatenate(
            [before_hops, start.depth.take(middle // size), self.distance.take(after // size) - after_hops]
        )
        order = order_of(hops, keys)
        bounds = np.searchsorted(hops[order], np.arange(1, int(hops.max()) + 1))
        return np.split(keys[order], bounds)


def _find(keys: Numbers, wanted: Numbers) -> tuple[Numbers, Mask]:
    """The positions of wanted numbers in an ascending array, and the mask of those that it contains."""
    places = np.searchsorted(keys, wanted)
    return places, keys.take(places, mode="clip") == wanted if len(keys) else np.zeros(len(wanted), bool)
