"""Shortest paths. Ties are broken by the ids of the nodes along the path, then by the ids of the edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.budget.budget import Spending, checkpoint
from omnigraph.read.budget.chunks import chunks
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers
from omnigraph.read.columns.sort_keys import ranks
from omnigraph.read.columns.sorting import groups_of, in_order, order_of
from omnigraph.read.columns.stoppable import array_chunks, changes, gather, join_arrays, scatter
from omnigraph.read.context.context import Context
from omnigraph.read.match.both_ways import Between, BothWays
from omnigraph.read.match.hops import Walk
from omnigraph.read.match.marks import mark_arrays
from omnigraph.read.rows.frame import Binding, Path

_NUMBERS = 8
"""Number of array elements per reached node in memory: in its layer, and in the set of visited nodes."""

_NUMBER = 8
"""Bytes of an array element."""

MAX_MARKED_PAIRS = 1 << 26
"""Visited nodes are marked in an array, if it has at most this number of elements: one per start and node."""

FIRST_STARTS = 8
"""Number of starts of the first search. The size of the next ones follows from the edges that it walked."""

LAYER_EDGES = 1 << 19
"""Paths are searched from so many starts at once that about this number of edges is walked in the largest layer."""

MAX_GROWTH = 8
"""The next search has at most this many times as many starts as the previous one."""

_NONE: Numbers = np.array([], np.int64)

_MARKS_MEMORY_RATIO = 8
"""Visited nodes are marked in an array, if it takes at most 1 / `_MARKS_MEMORY_RATIO` of the memory budget."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """The best paths of one length. Each array has one element per path.

    Attributes:
        start: index of the start of the path.
        node: last node of the path.
        parent: index, in the previous layer, of the path without its last edge.
        edge: last edge of the path.
        by_nodes: rank of the path by the ids of its nodes. It can be equal for different paths, because nodes of
            different types may have equal ids.
        by_edges: rank of the path by the ids of its edges.
    """

    start: Numbers
    node: Numbers
    parent: Numbers
    edge: Numbers
    by_nodes: Numbers
    by_edges: Numbers

    def filter(self, chosen: Numbers | Mask) -> _Layer:
        places = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64, copy=False)
        columns = (self.start, self.node, self.parent, self.edge, self.by_nodes, self.by_edges)
        return _Layer(*(gather(column, places) for column in columns))


@dataclass(frozen=True, slots=True)
class Found:
    """Shortest paths: for each path the index of its start, its last node, its nodes and its edges.

    Nodes and edges have the combined numbers of `Walk`. The nodes of path n are the elements `node_first[n]` to
    `node_first[n + 1]` (exclusive) of `nodes`. The edges are stored in the same way.
    """

    start: Numbers
    node: Numbers
    nodes: Numbers
    node_first: Numbers
    edges: Numbers
    edge_first: Numbers


def _joined(parts: Sequence[Found]) -> Found:
    """Concatenate paths."""
    if len(parts) == 1:
        return parts[0]
    return Found(
        join_arrays([_NONE, *(part.start for part in parts)]),
        join_arrays([_NONE, *(part.node for part in parts)]),
        join_arrays([_NONE, *(part.nodes for part in parts)]),
        _firsts(join_arrays([_NONE, *(np.diff(part.node_first) for part in parts)])),
        join_arrays([_NONE, *(part.edges for part in parts)]),
        _firsts(join_arrays([_NONE, *(np.diff(part.edge_first) for part in parts)])),
    )


class _Scope(Protocol):
    """Decides which paths a search extends and which ones it returns."""

    def extend(self, layer: _Layer, layers: int) -> _Layer:
        """All extensions of the paths of a layer by one edge to a node that no shorter path reaches.

        Args:
            layer: the paths.
            layers: number of layers so far.
        """
        ...

    def ending(self, layer: _Layer) -> _Layer:
        """The paths that end at a node to which paths are asked for."""
        ...


class PathSearch:
    """Breadth-first search for shortest paths from several starts at once."""

    def __init__(self, context: Context, walk: Walk, hops: ir.HopRange) -> None:
        self._context = context
        self._walk = walk
        self._hops = hops
        self._node_tables = tuple(context.tables.nodes(name) for name in walk.numbering.types)
        self._edge_tables = tuple(context.tables.edges(name) for name in walk.edge_types)

    def run(self, starts: Numbers) -> Found:
        """Shortest paths to all nodes within the hop range.

        Raises:
            BudgetExceededError: the paths exceed the memory budget.
            CancelledError: the read was cancelled.
        """
        with self._context.budget.keeping():
            return _joined(list(self._run_groups(starts)))

    def _run_groups(self, starts: Numbers) -> Iterator[Found]:
        """Search from some starts at a time, so that no operation on a layer takes long and the read can be stopped."""
        known = np.flatnonzero(starts != NOTHING)
        budget, first, count = self._context.budget, 0, FIRST_STARTS
        while first < len(known):
            group = known[first : first + count]
            index = np.arange(len(group))
            with budget.keeping(), _everywhere(self._walk, starts[group], budget) as scope:
                found = self._run(index, starts[group], scope)
            budget.keep(found.nodes.nbytes + found.edges.nbytes)
            yield replace(found, start=gather(group, found.start))
            first += count
            count = max(1, min(count * MAX_GROWTH, count * LAYER_EDGES // max(scope.most_edges, 1)))

    def run_pairs(self, starts: Numbers, ends: Numbers) -> Found:
        """A shortest path within the hop range for each pair of nodes that has one.

        `start` in the result is the index of the pair.

        Raises:
            BudgetExceededError: the paths exceed the memory budget.
            CancelledError: the read was cancelled.
        """
        both = self._walk.both_ways(self._hops)
        with self._context.budget.keeping():
            return _joined(list(self._run_parts(both, starts, ends)))

    def _run_parts(self, both: BothWays, starts: Numbers, ends: Numbers) -> Iterator[Found]:
        for between in both.between(starts, ends):
            known = np.flatnonzero(between.found)
            found = self._run(known, between.starts[known], _BetweenEnds(both, between, self._walk.numbering.size))
            self._context.budget.keep(found.nodes.nbytes + found.edges.nbytes)
            yield replace(found, start=found.start + between.first)

    def _run(self, known: Numbers, nodes: Numbers, scope: _Scope) -> Found:
        nothing = np.full(len(known), NOTHING, np.int64)
        equal = np.zeros(len(known), np.int64)
        layers = [_Layer(known, nodes, nothing, nothing, equal, equal)]
        kept: list[tuple[int, _Layer]] = []
        hops = self._hops
        while len(layers[-1].node) and (hops.max is None or len(layers) <= hops.max):
            last = layers[-1]
            if len(layers) == hops.min and self._walk.looping(last.node).any():
                # A node with a self-loop is reached again in this hop, although it was visited before.
                loops = _steps_from(self._walk, last)
                loops = scope.ending(loops.filter(last.node[loops.parent] == loops.node))
                kept.append((len(layers), self._best(loops)))
            layer = self._best(scope.extend(last, len(layers)))
            self._context.budget.keep(len(layer.node) * _NUMBERS * _NUMBER)
            checkpoint()
            if len(layers) >= hops.min:
                kept.append((len(layers), scope.ending(layer)))
            layers.append(layer)
        return self._paths(layers, kept)

    def _best(self, found: _Layer) -> _Layer:
        """Keep the best path from each start to each node, by the ids of its nodes, then by the ids of its edges."""
        if len(found.node) == 0:
            return found
        return self._best_of_one_type(found) if len(self._node_tables) == 1 else self._best_of_types(found)

    def _best_of_types(self, found: _Layer) -> _Layer:
        edge_ids = self._edge_ranks(found.edge)
        order = order_of(found.start, found.node, found.by_nodes, found.by_edges, edge_ids)
        checkpoint()
        found, edge_ids = found.filter(order), edge_ids[order]
        first = _are_first(found)
        found, edge_ids = found.filter(first), edge_ids[first]
        node_ids = ranks(self.node_binding(found.node).values("id"))
        return replace(found, by_nodes=_then(found.by_nodes, node_ids), by_edges=_then(found.by_edges, edge_ids))

    def _best_of_one_type(self, found: _Layer) -> _Layer:
        """Like `_best`. Nodes of one type have different ids, so paths with equal node ids differ in edges only.

        Of those, only paths whose last edges are parallel are compared here. So ids of other edges are not read.
        """
        if len(found.node) > 1:
            order = order_of(found.start, found.node, found.by_nodes)
            checkpoint()
            found = found.filter(order)
            first = _are_first(found)
            found = found if first.all() else self._by_last_edge(found, first)
        if not (found.start[1:] == found.start[:-1]).any():
            return found  # there is one path per start, and only paths with the same start are compared
        nodes = self.node_binding(found.node)
        known = nodes.id_ranks()
        node_ids = ranks(nodes.values("id")) if known is None else known.to_numpy()
        return replace(found, by_nodes=_then(found.by_nodes, node_ids))

    def _by_last_edge(self, found: _Layer, first: Mask) -> _Layer:
        """For each start and node, keep the path with the best nodes. Among parallel last edges, the smallest id wins.

        Args:
            found: the paths, sorted by start, node and the ids of the nodes.
            first: mask of the first path for each start and node.
        """
        group = np.cumsum(first) - 1
        best = found.by_nodes == found.by_nodes[first][group]
        found, group, first = found.filter(best), group[best], first[best]
        if first.all():
            return found
        parallel = ~first
        parallel[:-1] |= ~first[1:]
        edge_ids = np.zeros(len(group), np.int64)
        edge_ids[parallel] = self._edge_ranks(found.edge[parallel])
        checkpoint()
        return found.filter(order_of(group, edge_ids)).filter(first)

    def _edge_ranks(self, edges: Numbers) -> Numbers:
        return ranks(self.edge_binding(edges).values("id"))

    def node_binding(self, numbers: Numbers) -> Binding:
        return _binding(self._node_tables, self._walk.numbering.begins, numbers)

    def edge_binding(self, numbers: Numbers) -> Binding:
        return _binding(self._edge_tables, self._walk.edge_begins, numbers)

    def _paths(self, layers: list[_Layer], kept: list[tuple[int, _Layer]]) -> Found:
        """Assemble the nodes and edges of all paths, from the last node of each path back to its start.

        Args:
            layers: the paths of each length, from 0.
            kept: lengths and paths that are in the result, in ascending order of length.
        """
        start = join_arrays([_NONE, *(layer.start for _, layer in kept)])
        lengths = join_arrays([_NONE, *(np.full(len(layer.node), distance) for distance, layer in kept)])
        size = int(lengths.sum()) + len(lengths)
        self._context.budget.need(2 * size * _NUMBER)
        node_first, edge_first = _firsts(lengths + 1), _firsts(lengths)
        nodes, edges = np.empty(node_first[-1], np.int64), np.empty(edge_first[-1], np.int64)
        node = join_arrays([_NONE, *(layer.node for _, layer in kept)])
        scatter(nodes, node_first[1:] - 1, node)
        scatter(edges, edge_first[1:] - 1, join_arrays([_NONE, *(layer.edge for _, layer in kept)]))
        place = join_arrays([_NONE, *(layer.parent for _, layer in kept)])
        for step in range(int(lengths.max(initial=0)) - 1, -1, -1):
            # Paths are in ascending order of length, so those with more than `step` edges are at the end.
            longer, layer = int(np.searchsorted(lengths, step, "right")), layers[step]
            for first, last in array_chunks(len(place) - longer):
                some = slice(longer + first, longer + last)
                at = place[some]
                nodes[node_first[some] + step] = layer.node.take(at)
                if step:
                    edges[edge_first[some] + step - 1] = layer.edge.take(at)
                    place[some] = layer.parent.take(at)
        return Found(start, node, nodes, node_first, edges, edge_first)

    def path(self, found: Found) -> Path:
        return Path(self.node_binding(found.nodes), found.node_first, self.edge_binding(found.edges), found.edge_first)


def _binding(tables: tuple[EntityTable, ...], begins: Numbers, numbers: Numbers) -> Binding:
    """The entities with the given numbers, which count the entities of all tables.

    Args:
        tables: the tables.
        begins: the first number of each table, and then the end of the last one.
        numbers: the numbers.
    """
    if len(tables) == 1:
        return Binding(tables, numbers)
    type_index, own = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.int64)
    for first, last in array_chunks(len(numbers)):
        some = numbers[first:last]
        type_index[first:last] = np.searchsorted(begins, some, "right") - 1
        np.subtract(some, begins.take(type_index[first:last]), out=own[first:last])
    return Binding(tables, own, type_index)


def _firsts(lengths: Numbers) -> Numbers:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _are_first(found: _Layer) -> Mask:
    """Mask of the first path for each start and node. The paths are sorted by both."""
    first = np.ones(len(found.node), bool)
    first[1:] = (found.start[1:] != found.start[:-1]) | (found.node[1:] != found.node[:-1])
    return first


def _then(first: Numbers, second: Numbers) -> Numbers:
    """An integer for each pair of integers, in the order of the pairs. Equal pairs have equal integers."""
    pairs = first * (int(second.max()) + 1) + second
    return groups_of(pairs)[1]


def _steps_from(walk: Walk, layer: _Layer) -> _Layer:
    """Extend the paths of a layer by each edge of their last nodes."""
    source, node, edge = walk.edges_from(layer.node)
    return _extended(layer, source, node, edge)


def _extended(layer: _Layer, source: Numbers, node: Numbers, edge: Numbers) -> _Layer:
    """Extend paths of a layer, which are given by their index, by one edge each."""
    start, by_nodes, by_edges = (gather(column, source) for column in (layer.start, layer.by_nodes, layer.by_edges))
    return _Layer(start, node, source, edge, by_nodes, by_edges)


# Scopes


class _Keys(Protocol):
    """Visited pairs of a start and a node. The key of a pair is the index of the start times `size`, plus the node."""

    def contains(self, keys: Numbers) -> Mask: ...
    def add(self, keys: Numbers) -> None: ...


class _MarkedKeys:
    """Visited keys that are marked in an array."""

    def __init__(self, marks: Mask) -> None:
        self._marks = marks
        self._added: list[Numbers] = []

    def contains(self, keys: Numbers) -> Mask:
        return self._marks.take(keys)

    def add(self, keys: Numbers) -> None:
        self._marks[keys] = True
        self._added.append(keys)

    def clear(self) -> None:
        for keys in self._added:
            self._marks[keys] = False


class _SortedKeys:
    """Visited keys in a sorted array."""

    def __init__(self) -> None:
        self._keys: Numbers = np.array([-1], np.int64)

    def contains(self, keys: Numbers) -> Mask:
        at = np.searchsorted(self._keys, keys)
        found: Mask = self._keys.take(at, mode="clip") == keys
        return found

    def add(self, keys: Numbers) -> None:
        # The array consists of two sorted runs, which a stable sort merges.
        ordered = in_order(keys.astype(np.uint64)).view(np.int64)
        self._keys = np.concatenate([self._keys, ordered[changes(ordered)]])
        self._keys.sort(kind="stable")


@contextmanager
def _everywhere(walk: Walk, nodes: Numbers, budget: Spending) -> Iterator[_Everywhere]:
    """The scope of a search for the paths to all nodes.

    Args:
        walk: the edges.
        nodes: the node of each start.
        budget: the budget of the read.
    """
    size = max(walk.numbering.size, 1)
    count = len(nodes) * size
    keys = np.arange(0, count, size) + nodes
    visited: _Keys
    if count > MAX_MARKED_PAIRS or (budget.most is not None and count > budget.most // _MARKS_MEMORY_RATIO):
        visited = _SortedKeys()
        visited.add(keys)
        yield _Everywhere(walk, visited, size)
        return
    budget.keep(count)
    with mark_arrays(count) as (marks, _):
        visited = _MarkedKeys(marks)
        visited.add(keys)
        yield _Everywhere(walk, visited, size)
        visited.clear()


class _Everywhere:
    """Paths to all nodes.

    Attributes:
        most_edges: number of edges that were walked in the largest layer.
    """

    def __init__(self, walk: Walk, visited: _Keys, size: int) -> None:
        self.most_edges = 0
        self._walk = walk
        self._visited = visited
        self._size = size

    def extend(self, layer: _Layer, layers: int) -> _Layer:
        found = _steps_from(self._walk, layer)
        self.most_edges = max(self.most_edges, len(found.node))
        keys = found.start * self._size + found.node
        new = np.empty(len(keys), bool)
        for first, last in chunks(len(keys)):
            new[first:last] = ~self._visited.contains(keys[first:last])
        self._visited.add(keys[new])
        return found.filter(new)

    def ending(self, layer: _Layer) -> _Layer:
        return layer


class _BetweenEnds:
    """Paths between pairs of nodes. The nodes on their shortest paths are known, by their distance from the start."""

    def __init__(self, both: BothWays, between: Between, size: int) -> None:
        self._both = both
        self._between = between
        self._size = max(size, 1)

    def extend(self, layer: _Layer, layers: int) -> _Layer:
        if layers >= len(self._between.layers):
            return layer.filter(_NONE)
        upper = self._between.layers[layers]
        source, far, edge = self._both.links(layer.start * self._size + layer.node, upper)
        return _extended(layer, source, upper[far] % self._size, edge)

    def ending(self, layer: _Layer) -> _Layer:
        return layer.filter(layer.node == self._between.ends[layer.start])
