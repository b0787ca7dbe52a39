"""Shortest paths: of several that are as short, the one whose nodes come first by id, then whose edges do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from omnigraph.lang.query import ir
from omnigraph.read.context import Context
from omnigraph.read.match.frame import Binding, Path
from omnigraph.read.match.hops import Walk
from omnigraph.read.shape.order import ranks
from omnigraph.read.space.space import NOTHING, Mask, Numbers


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
        """The shortest paths to all nodes within the range."""
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
            found = found.filter(~np.isin(keys, seen))
            layer = self._best(found)
            seen = np.union1d(seen, layer.start * size + layer.node)
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
        order = np.lexsort((edge_ids, found.by_edges, found.by_nodes, found.node, found.start))
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
        """The whole paths, from their ends back to their starts."""
        parts: list[tuple[Numbers, Numbers, Numbers, Numbers]] = []
        for distance, layer in kept:
            nodes = np.empty((len(layer.node), distance + 1), np.int64)
            edges = np.empty((len(layer.node), distance), np.int64)
            at, place = layer, np.arange(len(layer.node))
            for step in range(distance, 0, -1):
                nodes[:, step], edges[:, step - 1] = at.node[place], at.edge[place]
                at, place = layers[step - 1], at.parent[place]
            nodes[:, 0] = at.node[place]
            parts.append((layer.start, layer.node, nodes, edges))
        start = np.concatenate([np.array([], np.int64), *(p[0] for p in parts)])
        node = np.concatenate([np.array([], np.int64), *(p[1] for p in parts)])
        lengths = np.concatenate([np.array([], np.int64), *(np.full(len(p[0]), p[3].shape[1]) for p in parts)])
        all_nodes = np.concatenate([np.array([], np.int64), *(p[2].ravel() for p in parts)])
        all_edges = np.concatenate([np.array([], np.int64), *(p[3].ravel() for p in parts)])
        return Found(start, node, all_nodes, _firsts(lengths + 1), all_edges, _firsts(lengths))

    def path(self, found: Found) -> Path:
        return Path(self.node_binding(found.nodes), found.node_first, self.edge_binding(found.edges), found.edge_first)


def _firsts(lengths: Numbers) -> Numbers:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _then(first: Numbers, second: Numbers) -> Numbers:
    """Numbers that sort as pairs do."""
    pairs = first * (int(second.max()) + 1) + second
    found: Numbers = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    return found
