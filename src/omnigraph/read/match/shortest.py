"""Shortest paths: of several that are as short, the one whose nodes come first by id, then whose edges do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from omnigraph.lang.query import ir
from omnigraph.read.budget import checkpoint
from omnigraph.read.context import Context
from omnigraph.read.match.frame import Binding, Path
from omnigraph.read.match.hops import Walk
from omnigraph.read.portions import portions
from omnigraph.read.shape.order import ranks
from omnigraph.read.sorting import groups_of, order_of
from omnigraph.read.space.space import NOTHING, Mask, Numbers

_NUMBERS = 8
"""How many numbers are kept for each node that is reached: those of a layer, and that it was seen."""

_NUMBER = 8
"""Bytes of a number."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """What is reached at one distance.

    Attributes:
        start: the place of the start that each belongs to.
        node: the node.
        parent: where it was reached from, in the layer before.
        edge: the edge that was walked.
        by_nodes: the order of paths by the ids of their nodes. Nodes of different types may have one id.
        by_edges: the order of paths by the ids of their edges.
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
    """Paths: the place of the start, the node at the end, and all nodes and edges between, both as world numbers."""

    start: Numbers
    node: Numbers
    nodes: Numbers
    node_first: Numbers
    edges: Numbers
    edge_first: Numbers


class Search:
    """A search for shortest paths from several starts at once."""

    def __init__(self, context: Context, walk: Walk, hops: ir.HopRange) -> None:
        self._context = context
        self._walk = walk
        self._hops = hops
        self._node_spaces = tuple(context.spaces.nodes(name) for name in walk.world.types)
        self._edge_spaces = tuple(context.spaces.edges(name) for name in walk.edge_types)

    def run(self, starts: Numbers) -> Found:
        """The shortest paths to all nodes within the range.

        Raises:
            BudgetExceededError: the paths would take more memory than the read may take.
            CancelledError: it was told to stop.
        """
        with self._context.budget.keeping():
            return self._run(starts)

    def _run(self, starts: Numbers) -> Found:
        size = max(self._walk.world.size, 1)
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
                # A loop is walked in this hop, and gives its node once more.
                loops = self._best(self._steps(last, loops=True))
                kept.append((len(layers), loops))
            found = self._steps(last, loops=False)
            keys = found.start * size + found.node
            found = found.filter(_are_new(keys, seen))
            layer = self._best(found)
            self._context.budget.keep(len(layer.node) * _NUMBERS * _NUMBER)
            checkpoint()
            # Two stretches that are in order already.
            seen = np.concatenate([seen, layer.start * size + layer.node])
            seen.sort(kind="stable")
            if len(layers) >= hops.min:
                kept.append((len(layers), layer))
            layers.append(layer)
        return self._paths(layers, kept)

    def _steps(self, layer: _Layer, *, loops: bool) -> _Layer:
        """Every edge from a layer, one entry each."""
        source, node, edge = self._walk.edges_from(layer.node)
        found = _Layer(layer.start[source], node, source, edge, layer.by_nodes[source], layer.by_edges[source])
        return found.filter((layer.node[source] == node) if loops else (layer.node[source] != node))

    def _best(self, found: _Layer) -> _Layer:
        """Of all ways to a node from a start the first, by the nodes so far and then by the edges."""
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
        which = np.searchsorted(self._walk.world.begins, numbers, "right") - 1
        return Binding(self._node_spaces, numbers - self._walk.world.begins[which], which)

    def edge_binding(self, numbers: Numbers) -> Binding:
        which = np.searchsorted(self._walk.edge_begins, numbers, "right") - 1
        return Binding(self._edge_spaces, numbers - self._walk.edge_begins[which], which)

    def _paths(self, layers: list[_Layer], kept: list[tuple[int, _Layer]]) -> Found:
        """The whole paths, from their ends back to their starts: all of them together, the longest from further away.

        Args:
            layers: what is reached at each distance.
            kept: what paths end with, by distance; ascending.
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
            # Paths are in the order of their lengths.
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
    """Numbers that sort as pairs do."""
    pairs = first * (int(second.max()) + 1) + second
    return groups_of(pairs)[1]


def _are_new(keys: Numbers, seen: Numbers) -> Mask:
    """Which of some numbers are not among those that were seen, which are in order."""
    found = np.ones(len(keys), bool)
    for first, last in portions(len(keys)):
        part = keys[first:last]
        at = np.searchsorted(seen, part)
        found[first:last] = seen[np.minimum(at, len(seen) - 1)] != part
    return found
