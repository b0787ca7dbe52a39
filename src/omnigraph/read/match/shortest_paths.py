"""Shortest paths. Ties are broken by the ids of the nodes along the path, then by the ids of the edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.budget.chunks import chunks
from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers
from omnigraph.read.columns.sort_keys import ranks
from omnigraph.read.columns.sorting import groups_of, order_of
from omnigraph.read.context.context import Context
from omnigraph.read.match.hops import Walk
from omnigraph.read.rows.frame import Binding, Path

_NUMBERS = 8
"""Number of array elements per reached node in memory: in its layer, and in the set of visited nodes."""

_NUMBER = 8
"""Bytes of an array element."""


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
        columns = (self.start, self.node, self.parent, self.edge, self.by_nodes, self.by_edges)
        return _Layer(*(column[chosen] for column in columns))


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
            return self._run(starts)

    def _run(self, starts: Numbers) -> Found:
        size = max(self._walk.numbering.size, 1)
        known = np.flatnonzero(starts != NOTHING)
        nothing = np.full(len(known), NOTHING, np.int64)
        equal = np.zeros(len(known), np.int64)
        layers = [_Layer(known, starts[known], nothing, nothing, equal, equal)]
        seen = np.unique(known * size + starts[known])
        kept: list[tuple[int, _Layer]] = []
        hops = self._hops
        while len(layers[-1].node) and (hops.max is None or len(layers) <= hops.max):
            last = layers[-1]
            if len(layers) == hops.min:
                # A node with a self-loop is reached again in this hop, although it was visited before.
                loops = self._best(self._steps(last, loops=True))
                kept.append((len(layers), loops))
            found = self._steps(last, loops=False)
            keys = found.start * size + found.node
            found = found.filter(_are_new(keys, seen))
            layer = self._best(found)
            self._context.budget.keep(len(layer.node) * _NUMBERS * _NUMBER)
            checkpoint()
            # The array consists of two sorted runs, which a stable sort merges.
            seen = np.concatenate([seen, layer.start * size + layer.node])
            seen.sort(kind="stable")
            if len(layers) >= hops.min:
                kept.append((len(layers), layer))
            layers.append(layer)
        return self._paths(layers, kept)

    def _steps(self, layer: _Layer, *, loops: bool) -> _Layer:
        """Extend the paths of a layer by one edge. With `loops`, only by self-loops; else only by other edges."""
        source, node, edge = self._walk.edges_from(layer.node)
        found = _Layer(layer.start[source], node, source, edge, layer.by_nodes[source], layer.by_edges[source])
        return found.filter((layer.node[source] == node) if loops else (layer.node[source] != node))

    def _best(self, found: _Layer) -> _Layer:
        """Keep the best path from each start to each node, by the ids of its nodes, then by the ids of its edges."""
        if len(found.node) == 0:
            return found
        edge_ids = ranks(self.edge_binding(found.edge).values("id"))
        order = order_of(found.start, found.node, found.by_nodes, found.by_edges, edge_ids)
        checkpoint()
        found, edge_ids = found.filter(order), edge_ids[order]
        first = np.ones(len(order), bool)
        first[1:] = (np.diff(found.start) != 0) | (np.diff(found.node) != 0)
        found, edge_ids = found.filter(first), edge_ids[first]
        node_ids = ranks(self.node_binding(found.node).values("id"))
        return replace(found, by_nodes=_then(found.by_nodes, node_ids), by_edges=_then(found.by_edges, edge_ids))

    def node_binding(self, numbers: Numbers) -> Binding:
        type_index = np.searchsorted(self._walk.numbering.begins, numbers, "right") - 1
        return Binding(self._node_tables, numbers - self._walk.numbering.begins[type_index], type_index)

    def edge_binding(self, numbers: Numbers) -> Binding:
        type_index = np.searchsorted(self._walk.edge_begins, numbers, "right") - 1
        return Binding(self._edge_tables, numbers - self._walk.edge_begins[type_index], type_index)

    def _paths(self, layers: list[_Layer], kept: list[tuple[int, _Layer]]) -> Found:
        """Assemble the nodes and edges of all paths, from the last node of each path back to its start.

        Args:
            layers: the paths of each length, from 0.
            kept: lengths and paths that are in the result, in ascending order of length.
        """
        nothing = [np.array([], np.int64)]
        start = np.concatenate([*nothing, *(layer.start for _, layer in kept)])
        lengths = np.concatenate([*nothing, *(np.full(len(layer.node), distance) for distance, layer in kept)])
        size = int(lengths.sum()) + len(lengths)
        self._context.budget.need(2 * size * _NUMBER)
        node_first, edge_first = _firsts(lengths + 1), _firsts(lengths)
        nodes, edges = np.empty(node_first[-1], np.int64), np.empty(edge_first[-1], np.int64)
        node = np.concatenate([*nothing, *(layer.node for _, layer in kept)])
        nodes[node_first[1:] - 1] = node
        edges[edge_first[1:] - 1] = np.concatenate([*nothing, *(layer.edge for _, layer in kept)])
        place = np.concatenate([*nothing, *(layer.parent for _, layer in kept)])
        for step in range(int(lengths.max(initial=0)) - 1, -1, -1):
            checkpoint()
            # Paths are in ascending order of length, so those with more than `step` edges are at the end.
            longer = int(np.searchsorted(lengths, step, "right"))
            layer, at = layers[step], place[longer:]
            nodes[node_first[longer:-1] + step] = layer.node[at]
            if step:
                edges[edge_first[longer:-1] + step - 1] = layer.edge[at]
                place[longer:] = layer.parent[at]
        return Found(start, node, nodes, node_first, edges, edge_first)

    def path(self, found: Found) -> Path:
        return Path(self.node_binding(found.nodes), found.node_first, self.edge_binding(found.edges), found.edge_first)


def _firsts(lengths: Numbers) -> Numbers:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _then(first: Numbers, second: Numbers) -> Numbers:
    """An integer for each pair of integers, in the order of the pairs. Equal pairs have equal integers."""
    pairs = first * (int(second.max()) + 1) + second
    return groups_of(pairs)[1]


def _are_new(keys: Numbers, seen: Numbers) -> Mask:
    """Mask of keys that are not in the sorted array of visited keys."""
    found = np.ones(len(keys), bool)
    for first, last in chunks(len(keys)):
        part = keys[first:last]
        at = np.searchsorted(seen, part)
        found[first:last] = seen[np.minimum(at, len(seen) - 1)] != part
    return found
