"""The algorithms, on arrays: whole columns at a time, and no more between them than a portion of the edges."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import numpy as np

from omnigraph.pipeline.analytics.network import PORTION, Floats, Neighbours, Network
from omnigraph.read.budget import checkpoint
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.topology.adjacency import firsts


class Direction(StrEnum):
    """Which way edges are walked."""

    OUT = "out"
    IN = "in"
    BOTH = "both"


def pagerank(network: Network, damping: float, iterations: int, tolerance: float) -> Floats:
    """How likely each node is where somebody ends up who follows edges at random. All together are 1.

    An edge counts as often as there are parallel ones. Who comes to a node without edges goes on anywhere.

    Args:
        network: the nodes and edges.
        damping: how likely the next step follows an edge, instead of going anywhere.
        iterations: how often ranks are passed on, at most.
        tolerance: stop when all ranks together change by less than this for each node.
    """
    count = network.nodes
    if count == 0:
        return np.empty(0)
    degree = np.bincount(network.source, minlength=count)
    share = np.divide(1.0, degree, out=np.zeros(count), where=degree > 0)
    dangling = degree == 0
    rank = np.full(count, 1 / count)
    for _ in range(iterations):
        passed = rank * share
        arriving = np.zeros(count)
        for source, target in network.portions():
            arriving += np.bincount(target, weights=passed.take(source), minlength=count)
        after = damping * (arriving + rank[dangling].sum() / count) + (1 - damping) / count
        change = float(np.abs(after - rank).sum())
        rank = after
        if change < tolerance * count:
            break
    return rank


def components(network: Network) -> Numbers:
    """The least node that each node is joined to, whichever way the edges lead."""
    root: Numbers = np.arange(network.nodes)
    while True:
        changed = False
        for source, target in network.portions():
            left, right = root.take(source), root.take(target)
            apart = left != right
            if apart.any():
                changed = True
                high, low = np.maximum(left[apart], right[apart]), np.minimum(left[apart], right[apart])
                np.minimum.at(root, high, low)
        if not changed:
            return root
        while True:
            further = root.take(root)
            if np.array_equal(further, root):
                break
            root = further
            checkpoint()


def labels(network: Network, iterations: int) -> Numbers:
    """Communities: in each round every node takes the label that most of its neighbours have, of equals the least.

    All nodes change at once, so that the result depends on nothing but the graph. In the beginning a node has its own
    label. Edges count both ways, and as often as there are parallel ones; an edge to itself counts twice.

    Args:
        network: the nodes and edges.
        iterations: how many rounds, at most. Some graphs never come to rest.
    """
    own: Numbers = np.arange(network.nodes)
    for _ in range(iterations):
        after = own.copy()
        for begin, end in network.both.stretches():
            _most_frequent(network.both, own, after, begin, end)
        if np.array_equal(after, own):
            break
        own = after
    return own


def _most_frequent(around: Neighbours, own: Numbers, after: Numbers, begin: int, end: int) -> None:
    """What the nodes of a stretch become."""
    low, high = int(around.first[begin]), int(around.first[end])
    if low == high:
        return
    size = len(own)
    degree = np.diff(around.first[begin : end + 1])
    keys = np.repeat(np.arange(end - begin), degree) * size + own.take(around.other[low:high])
    keys.sort()
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    counts = np.diff(np.append(starts, len(keys)))
    node, label = np.divmod(keys.take(starts), size)
    # Of the most frequent labels the least: the largest of (count, -label).
    best = np.maximum.reduceat(counts * size + (size - 1 - label), np.flatnonzero(np.diff(node, prepend=-1)))
    after[begin + np.unique(node)] = size - 1 - best % size


def triangles(network: Network) -> Numbers:
    """How many triangles each node is a corner of. Direction, parallel edges and edges to oneself do not matter."""
    count = network.nodes
    found: Numbers = np.zeros(count, np.int64)
    low, high = _simple(network)
    if len(low) == 0:
        return found
    # Every edge leads from the end with fewer edges, so that no node has many.
    degree = np.bincount(low, minlength=count) + np.bincount(high, minlength=count)
    order = np.argsort(degree, kind="stable")
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    left, right = place.take(low), place.take(high)
    keys = np.minimum(left, right) * count + np.maximum(left, right)
    keys.sort()
    near, far = np.divmod(keys, count)
    first = firsts(near, count)
    later = first.take(near + 1) - np.arange(len(near)) - 1
    for begin, end in _portions(later):
        checkpoint()
        edge = np.repeat(np.arange(begin, end), later[begin:end])
        ends = np.cumsum(later[begin:end])
        other = edge + 1 + np.arange(len(edge)) - np.repeat(ends - later[begin:end], later[begin:end])
        wanted = far.take(edge) * count + far.take(other)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        there = keys.take(at) == wanted
        corners = (near.take(edge[there]), far.take(edge[there]), far.take(other[there]))
        for corner in corners:
            found += np.bincount(order.take(corner), minlength=count)
    return found


def _simple(network: Network) -> tuple[Numbers, Numbers]:
    """The pairs of different nodes that have an edge, each once, the lesser first."""
    count = max(network.nodes, 1)
    parts = [np.empty(0, np.int64)]
    for source, target in network.portions():
        low, high = np.minimum(source, target).astype(np.int64), np.maximum(source, target)
        apart = low != high
        parts.append(np.unique(low[apart] * count + high[apart]))
    low, high = np.divmod(np.unique(np.concatenate(parts)), count)
    return low, high


def _portions(sizes: Numbers) -> Iterator[tuple[int, int]]:
    """Runs whose sizes are about a portion together."""
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + PORTION, "right")))
        yield begin, end
        begin = end


def distances(network: Network, source: int, direction: Direction) -> Floats:
    """How far each node is from one: so many edges, or the sum of their weights. Infinite where no path leads."""
    around = {Direction.OUT: "out", Direction.IN: "into", Direction.BOTH: "both"}[direction]
    neighbours: Neighbours = getattr(network, around)
    found = np.full(network.nodes, np.inf)
    found[source] = 0
    frontier: Numbers = np.array([source])
    while len(frontier):
        checkpoint()
        degree, places = neighbours.of(frontier)
        length = 1.0 if neighbours.weight is None else neighbours.weight.take(places)
        reached = neighbours.other.take(places)
        before = found.take(reached)
        after = np.repeat(found.take(frontier), degree) + length
        nearer = after < before
        np.minimum.at(found, reached[nearer], after[nearer])
        frontier = np.unique(reached[nearer]).astype(np.int64)
    return found
