"""Graph algorithms over NumPy arrays. Edges are processed in chunks, so intermediate results have a fixed size."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import numpy as np

from omnigraph.pipeline.analytics.network import CHUNK_EDGES, Floats, Neighbours, Network
from omnigraph.read.budget import checkpoint
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.topology.adjacency import firsts


class Direction(StrEnum):
    """The direction in which edges are followed."""

    OUT = "out"
    IN = "in"
    BOTH = "both"


def pagerank(network: Network, damping: float, iterations: int, tolerance: float) -> Floats:
    """PageRank of every node. The ranks sum to 1.

    Parallel edges count separately. Nodes without outgoing edges distribute their rank over all nodes.

    Args:
        network: the nodes and edges.
        damping: the probability that the random walk follows an edge. Otherwise it jumps to a random node.
        iterations: the maximum number of iterations.
        tolerance: stop when the average change of a rank in one iteration is less than this.
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
        for source, target in network.chunks():
            arriving += np.bincount(target, weights=passed.take(source), minlength=count)
        after = damping * (arriving + rank[dangling].sum() / count) + (1 - damping) / count
        change = float(np.abs(after - rank).sum())
        rank = after
        if change < tolerance * count:
            break
    return rank


def components(network: Network) -> Numbers:
    """For each node, the smallest node number in its weakly connected component."""
    root: Numbers = np.arange(network.nodes)
    while True:
        changed = False
        for source, target in network.chunks():
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
    """Label propagation: in each round, every node takes the most frequent label of its neighbours.

    Of equally frequent labels, a node takes the smallest. All nodes change at once, so the result depends only on the
    graph. At the start, each node has its own label. Edges count in both directions, and parallel edges count
    separately; a self-loop counts twice.

    Args:
        network: the nodes and edges.
        iterations: the maximum number of rounds. Some graphs never converge.
    """
    current: Numbers = np.arange(network.nodes)
    for _ in range(iterations):
        after = current.copy()
        for begin, end in network.both.node_ranges():
            _most_frequent(network.both, current, after, begin, end)
        if np.array_equal(after, current):
            break
        current = after
    return current


def _most_frequent(around: Neighbours, current: Numbers, after: Numbers, begin: int, end: int) -> None:
    """Write the new labels of a range of nodes to `after`."""
    low, high = int(around.first[begin]), int(around.first[end])
    if low == high:
        return
    size = len(current)
    degree = np.diff(around.first[begin : end + 1])
    keys = np.repeat(np.arange(end - begin), degree) * size + current.take(around.other[low:high])
    keys.sort()
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    counts = np.diff(np.append(starts, len(keys)))
    node, label = np.divmod(keys.take(starts), size)
    # Choose the label with the largest (count, -label): the smallest of the most frequent labels.
    best = np.maximum.reduceat(counts * size + (size - 1 - label), np.flatnonzero(np.diff(node, prepend=-1)))
    after[begin + np.unique(node)] = size - 1 - best % size


def triangles(network: Network) -> Numbers:
    """The number of triangles of each node. Ignores direction, parallel edges and self-loops."""
    count = network.nodes
    found: Numbers = np.zeros(count, np.int64)
    low, high = _simple(network)
    if len(low) == 0:
        return found
    # Direct every edge from the end with the lower degree to the other end, so that out-degrees stay small.
    degree = np.bincount(low, minlength=count) + np.bincount(high, minlength=count)
    order = np.argsort(degree, kind="stable")
    rank_of = np.empty(count, np.int64)
    rank_of[order] = np.arange(count)
    left, right = rank_of.take(low), rank_of.take(high)
    keys = np.minimum(left, right) * count + np.maximum(left, right)
    keys.sort()
    near, far = np.divmod(keys, count)
    first = firsts(near, count)
    later = first.take(near + 1) - np.arange(len(near)) - 1
    for begin, end in _chunks(later):
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
    """The pairs of adjacent nodes, each once, smaller node first. Self-loops are left out."""
    count = max(network.nodes, 1)
    parts = [np.empty(0, np.int64)]
    for source, target in network.chunks():
        low, high = np.minimum(source, target).astype(np.int64), np.maximum(source, target)
        apart = low != high
        parts.append(np.unique(low[apart] * count + high[apart]))
    low, high = np.divmod(np.unique(np.concatenate(parts)), count)
    return low, high


def _chunks(sizes: Numbers) -> Iterator[tuple[int, int]]:
    """Ranges of positions. The sum of the sizes in each range is about `CHUNK_EDGES`."""
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + CHUNK_EDGES, "right")))
        yield begin, end
        begin = end


def distances(network: Network, source: int, direction: Direction) -> Floats:
    """The distance of each node from a source: number of edges, or sum of weights. Infinite for unreachable nodes."""
    around = {Direction.OUT: "out", Direction.IN: "into", Direction.BOTH: "both"}[direction]
    neighbours: Neighbours = getattr(network, around)
    found = np.full(network.nodes, np.inf)
    found[source] = 0
    frontier: Numbers = np.array([source])
    while len(frontier):
        checkpoint()
        degree, positions = neighbours.of(frontier)
        length = 1.0 if neighbours.weight is None else neighbours.weight.take(positions)
        reached = neighbours.other.take(positions)
        before = found.take(reached)
        after = np.repeat(found.take(frontier), degree) + length
        nearer = after < before
        np.minimum.at(found, reached[nearer], after[nearer])
        frontier = np.unique(reached[nearer]).astype(np.int64)
    return found
