"""Adjacency lists in CSR form: the edges of a type, grouped by the node at one end."""

# See docs/decisions/0271-one-filter-of-all-edges.md
# See docs/decisions/0262-parallel-edges-are-searched-for-once.md

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.columns.numbers import NOTHING, Integers, Mask, Numbers
from omnigraph.read.columns.sorting import in_order, order_of
from omnigraph.read.columns.stoppable import gather

_NUMBERS_PER_EDGE = 5
"""Maximum number of array elements in memory per walked edge."""


CHUNK_EDGES = 1 << 18
"""Number of edges per chunk when values are summed over edges."""

CHUNK_PAIRS = 1 << 18
"""Number of pairs of nodes per chunk when their edges are searched. The arrays of a chunk fit the processor cache."""

MAX_MATRIX_PAIRS = 1 << 25
"""If there are at most this many pairs of nodes, edges are tested in an array of all pairs."""

FILTER_BITS_PER_EDGE = 16
"""Minimum number of bits per edge of the filter of all edges (see `Adjacency.edge_filter`)."""

MAX_FILTER_BITS = 28
"""Maximum size of the filter: 2 to this power is the number of its bits."""

FILTER_PART_BITS = 25
"""The filter is made in parts: 2 to this power is the number of bits of a part."""

PAIRS_PER_EDGE_RATIO = 8
"""The matrix or the filter is made when one pair for every so many edges has been searched."""

COLUMN_RATIO = 8
"""Neighbours are read from a column if at least one in `COLUMN_RATIO` nodes is asked for (see `Adjacency.column`)."""

LOOP_SEARCH_COST_EDGES = 20_000
"""Fixed cost of one search for the self-loops of given nodes. The unit is the cost of scanning one edge."""


class EdgeLists:
    """Edges grouped by node. The edges of a node are a contiguous range, sorted by the node at the other end.

    Attributes:
        neighbour: the node at the other end of each edge.
    """

    neighbour: Integers

    def ranges(self, nodes: Numbers) -> tuple[Numbers, Numbers]:
        """Begin and end (exclusive) of the range of edges of each given node. The caller may modify both arrays."""
        raise NotImplementedError

    def walk(self, nodes: Numbers) -> tuple[Numbers, Numbers]:
        """Find all edges of the given nodes.

        Returns:
            The degree of each node, and the positions of the edges of all nodes, concatenated.
        """
        begin, degree = self.ranges(nodes)
        degree -= begin
        ends = np.cumsum(degree)
        if len(ends):
            checkpoint(int(ends[-1]), _NUMBERS_PER_EDGE)
        begin += degree
        begin -= ends
        places = np.repeat(begin, degree)
        places += np.arange(len(places))
        return degree, places

    def far(self, places: Numbers) -> Numbers:
        """Nodes at the other end of the edges at the given positions."""
        return gather(self.neighbour, places).astype(np.int64)

    def neighbours_of(self, nodes: Numbers) -> tuple[Numbers, Integers]:
        """The degree of each given node, and the nodes at the other end of the edges of all nodes, concatenated."""
        degree, places = self.walk(nodes)
        return degree, self.neighbour.take(places)

    def between(self, near: Numbers, far: Numbers) -> tuple[Numbers, Numbers]:
        """Find the edges between pairs of nodes.

        Returns:
            The number of edges of each pair, and the position of its first edge.
        """
        begin, end = self.ranges(near)
        low = self._search(begin, end, far)
        return self._search(low, end, far + 1) - low, low

    def _search(self, low: Numbers, high: Numbers, wanted: Numbers) -> Numbers:
        """In each range `low` to `high`, the first position whose neighbour is not less than the wanted node."""
        low, high = low.copy(), high.copy()
        while (open_ := np.flatnonzero(low < high)).size:
            middle = (low[open_] + high[open_]) // 2
            less = self.neighbour.take(middle) < wanted[open_]
            low[open_[less]] = middle[less] + 1
            high[open_[~less]] = middle[~less]
        return low

    def joins(self, near: Integers, far: Integers) -> Mask:
        """Mask of the pairs of nodes that at least one edge joins."""
        found: Mask = np.empty(len(near), bool)
        for first in range(0, len(near), CHUNK_PAIRS):
            checkpoint()
            part = slice(first, first + CHUNK_PAIRS)
            found[part] = self._joins(near[part], far[part])
        return found

    def _joins(self, near: Integers, far: Integers) -> Mask:
        """Like `joins`, for one chunk of pairs. Each pair is searched in the sorted edges."""
        return self.between(near.astype(np.int64), far.astype(np.int64))[0] > 0

    def counts(self, nodes: Numbers, *, distinct: bool) -> Numbers:
        """Degree of each given node, or with `distinct` the number of its distinct neighbours."""
        degree, places = self.walk(nodes)
        if not distinct or len(places) == 0:
            return degree
        far, owner = self.far(places), np.repeat(np.arange(len(nodes)), degree)
        again = (far[1:] == far[:-1]) & (owner[1:] == owner[:-1])
        return degree - np.bincount(owner[1:][again], minlength=len(nodes))

    def counts_where(self, nodes: Numbers, allowed: Mask, *, distinct: bool) -> Numbers:
        """Like `counts`, only for the neighbours that a mask allows, by node number."""
        degree, far = self.neighbours_of(nodes)
        kept = allowed.take(far)
        if distinct and len(far):
            owner = np.repeat(np.arange(len(nodes)), degree)
            kept[1:] &= (far[1:] != far[:-1]) | (owner[1:] != owner[:-1])
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
        last = np.cumsum(degree)
        found: Numbers = before.take(last) - before.take(last - degree)
        return found


class Adjacency(EdgeLists):
    """The edges of a type in CSR form, grouped by the node at one end (the near node).

    Args:
        first: the edges of node n are at positions `first[n]` to `first[n + 1]` (exclusive).
        neighbour: for each edge, the node at the other end. Ascending within the edges of a node.
        edge: the edge numbers, or a function that loads them, because many reads do not need them.
        others: upper bound (exclusive) of the node numbers at the other end.
    """

    def __init__(
        self, first: Numbers, neighbour: Integers, edge: Integers | Callable[[], Integers], others: int
    ) -> None:
        self.first = first
        self.neighbour = neighbour
        self.others = others
        self._edge = edge
        self._asked_about_loops = 0
        self._searched_pairs = 0
        self._asked_about_repeated = 0

    @cached_property
    def edge(self) -> Integers:
        return self._edge() if callable(self._edge) else self._edge

    @property
    def nodes(self) -> int:
        """Upper bound (exclusive) of the node numbers at this end."""
        return len(self.first) - 1

    @property
    def size(self) -> int:
        """Number of edges."""
        return len(self.neighbour)

    @property
    def whole(self) -> Adjacency:
        """The adjacency of all nodes, which is this object itself. `IndexedEdges` has the same attribute."""
        return self

    def ranges(self, nodes: Numbers) -> tuple[Numbers, Numbers]:
        return self.first.take(nodes), self.first.take(nodes + 1)

    def edges(self, places: Numbers) -> Numbers:
        """Edge numbers of the edges at the given positions."""
        return gather(self.edge, places).astype(np.int64)

    def column_for(self, nodes: int) -> npt.NDArray[np.signedinteger] | None:
        """`column`, if reading the neighbours of this number of nodes is worth making it; else None."""
        is_known = "column" in self.__dict__
        return self.column if is_known or nodes * COLUMN_RATIO >= self.nodes else None

    @cached_property
    def column(self) -> npt.NDArray[np.signedinteger] | None:
        """If no node has more than one edge: the neighbour of each node, by node number; `NOTHING` without an edge.

        None if some node has several edges. The numbers have as few bits as possible.
        """
        if self.size > self.nodes or int(self.degree.max(initial=0)) > 1:
            return None
        found = np.full(self.nodes, NOTHING, np.min_scalar_type(-max(self.others, 1)))
        found[self.degree > 0] = self.neighbour
        return found

    @cached_property
    def matrix(self) -> Mask | None:
        """Whether an edge joins two nodes, by `near node * others + far node`; None if there are too many pairs."""
        if self.nodes * self.others > MAX_MATRIX_PAIRS:
            return None
        found = np.zeros(self.nodes * self.others, bool)
        found[np.repeat(np.arange(0, len(found), self.others or 1), self.degree) + self.neighbour] = True
        return found

    def neighbours_of(self, nodes: Numbers) -> tuple[Numbers, Integers]:
        if len(nodes) > 1 and int(nodes[-1]) - int(nodes[0]) == len(nodes) - 1 and bool((np.diff(nodes) == 1).all()):
            # The edges of consecutive nodes are one range.
            begin = self.first[int(nodes[0]) : int(nodes[-1]) + 2]
            return np.diff(begin), self.neighbour[int(begin[0]) : int(begin[-1])]
        return super().neighbours_of(nodes)

    def _joins(self, near: Integers, far: Integers) -> Mask:
        """Like `joins`, for one chunk: in the column, in the matrix of all pairs, or in the filter of all edges."""
        column = self.column_for(len(near))
        if column is not None:
            same: Mask = column.take(near) == far
            return same
        self._searched_pairs += len(near)
        is_worth_it = self._searched_pairs * PAIRS_PER_EDGE_RATIO >= self.size > 0
        if is_worth_it and self.matrix is not None:
            return self.matrix.take(near * np.int64(self.others) + far)
        return self._filtered(near, far) if is_worth_it else super()._joins(near, far)

    def _filtered(self, near: Integers, far: Integers) -> Mask:
        """Like `joins`: pairs that pass the filter are searched in the sorted edges."""
        maybe = self._passing(near, far, second=False)
        maybe = maybe.take(self._passing(near.take(maybe), far.take(maybe), second=True))
        found: Mask = np.zeros(len(near), bool)
        found[maybe] = super()._joins(near.take(maybe), far.take(maybe))
        return found

    def _passing(self, near: Integers, far: Integers, *, second: bool) -> Numbers:
        """Positions of the pairs whose bit is set in the filter."""
        filter_ = self.edge_filter
        hashes = _hashes(near, far, self._filter_bits, second=second)
        bytes_ = filter_.take(hashes >> np.uint32(3))
        hashes &= np.uint32(7)
        bytes_ >>= hashes.astype(np.uint8)
        bytes_ &= np.uint8(1)
        return np.flatnonzero(bytes_)

    @cached_property
    def edge_filter(self) -> npt.NDArray[np.uint8]:
        """A Bloom filter of all edges: two hashes, eight bits in a byte. Pairs whose bits are not set have no edge."""
        bits = self._filter_bits
        # The bits are set in parts, because NumPy sets one byte per bit first.
        part_bits = min(bits, FILTER_PART_BITS)
        parts = [self._filter_part(bits, part_bits, part) for part in range(1 << (bits - part_bits))]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _filter_part(self, bits: int, part_bits: int, part: int) -> npt.NDArray[np.uint8]:
        """The bits of the filter for hashes from `part << part_bits` on."""
        marks = np.zeros(1 << part_bits, bool)
        for first in range(0, self.nodes, CHUNK_EDGES):
            checkpoint()
            last = min(first + CHUNK_EDGES, self.nodes)
            owners = np.repeat(np.arange(first, last), self.degree[first:last])
            far = self.neighbour[int(self.first[first]) : int(self.first[last])]
            for second in (False, True):
                hashes = _hashes(owners, far, bits, second=second)
                if bits > part_bits:
                    hashes = hashes[hashes >> np.uint32(part_bits) == part] & np.uint32((1 << part_bits) - 1)
                marks[hashes] = True
        return np.packbits(marks, bitorder="little")

    @property
    def _filter_bits(self) -> int:
        return min(max((FILTER_BITS_PER_EDGE * self.size).bit_length(), 3), MAX_FILTER_BITS)

    def counts_where(self, nodes: Numbers, allowed: Mask, *, distinct: bool) -> Numbers:
        if int(self.degree.take(nodes).sum()) < self.size:
            return super().counts_where(nodes, allowed, distinct=distinct)
        return self.sums(allowed, distinct=distinct).take(nodes)

    def sums(self, values: Numbers | Mask, *, distinct: bool) -> Numbers:
        """For each near node, the sum of the values of its neighbours (see `reduce`)."""
        return self.reduce(np.add, values, 0, distinct=distinct)

    def reduce(self, function: np.ufunc, values: npt.NDArray[Any], empty: Any, *, distinct: bool) -> npt.NDArray[Any]:
        """For each near node, the values of its neighbours, combined with a function. Sums are 64-bit integers.

        Args:
            function: `np.add`, `np.minimum` or `np.maximum`.
            values: value of each node at the other end, by node number.
            empty: result for a node without edges.
            distinct: whether parallel edges count once. This matters for sums only.
        """
        kind = np.dtype(np.int64) if function is np.add else values.dtype
        found = np.full(self.nodes, empty, kind)
        some = np.flatnonzero(self.degree)
        begins = self.first.take(some)
        # The edges are processed in chunks that fit the processor cache.
        bounds = np.searchsorted(begins, np.arange(CHUNK_EDGES, len(self.neighbour), CHUNK_EDGES))
        for first, last in pairwise(np.unique([0, *bounds, len(some)]).tolist()):
            checkpoint()
            low, high = int(begins[first]), int(begins[last]) if last < len(some) else len(self.neighbour)
            arriving = values.take(self.neighbour[low:high].astype(np.intp))
            found[some[first:last]] = function.reduceat(arriving, begins[first:last] - low, dtype=kind)
        if distinct and function is np.add:
            places, owners = self._repeated
            np.subtract.at(found, owners, values.take(self.far(places)).astype(np.int64))
        return found

    @cached_property
    def _repeated(self) -> tuple[Numbers, Numbers]:
        """Parallel edges, except the first edge between each pair of nodes. Returns their positions and near nodes."""
        again = np.zeros(len(self.neighbour), bool)
        np.equal(self.neighbour[1:], self.neighbour[:-1], out=again[1:])
        again[self.first[:-1][self.degree > 0]] = False
        places: Numbers = np.flatnonzero(again)
        return places, np.searchsorted(self.first, places, "right") - 1

    def may_repeat(self, edges: float) -> bool:
        """Whether some of the edges may be parallel.

        All edges are examined once, as soon as the reads together asked about as many edges. Until then it is True.

        Args:
            edges: number of edges that the caller would have to examine.
        """
        if "_repeated" not in self.__dict__:
            self._asked_about_repeated += math.ceil(edges)
            if self._asked_about_repeated <= self.size:
                return True
        return len(self._repeated[0]) > 0

    def counts(self, nodes: Numbers, *, distinct: bool) -> Numbers:
        begin, degree = self.ranges(nodes)
        degree -= begin
        return super().counts(nodes, distinct=True) if distinct and self.may_repeat(int(degree.sum())) else degree

    @cached_property
    def neighbours(self) -> Numbers:
        """Number of distinct neighbours of each node."""
        found = self.degree.copy()
        np.subtract.at(found, self._repeated[1], 1)
        return found

    @cached_property
    def degree(self) -> Numbers:
        """Degree of each node."""
        return np.diff(self.first)

    def owners(self) -> Integers:
        """The near node of each edge."""
        return np.repeat(np.arange(self.nodes, dtype=self.neighbour.dtype), self.degree)

    def looping(self, nodes: Numbers) -> Mask:
        """Mask of the given nodes that have a self-loop. The nodes at both ends must have the same type."""
        if "loops" not in self.__dict__:
            self._asked_about_loops += LOOP_SEARCH_COST_EDGES + len(nodes)
            if self._asked_about_loops <= self.size:
                return self.between(nodes, nodes)[0] > 0
        return self.loops.take(nodes)

    @cached_property
    def loops(self) -> Mask:
        """Mask of all nodes with a self-loop, by node number. The nodes at both ends must have the same type."""
        owner = self.owners()
        found = np.zeros(self.nodes, bool)
        found[owner[owner == self.neighbour]] = True
        return found


def _hashes(near: Integers, far: Integers, bits: int, *, second: bool) -> npt.NDArray[np.uint32]:
    """A hash of each pair of nodes, with the given number of bits. There are two hashes."""
    found = near.astype(np.uint32)
    found *= np.uint32(0xC2B2AE35 if second else 0x9E3779B1)
    other = far.astype(np.uint32)
    other *= np.uint32(0x27D4EB2F if second else 0x85EBCA77)
    found ^= other
    found ^= found >> np.uint32(15)
    found *= np.uint32(0x2C1B3C6D)
    found >>= np.uint32(32 - bits)
    return found


def firsts(owner: Integers, nodes: int) -> Numbers:
    """CSR offsets: for each node, the position of its first edge. `owner` is the node of each edge, ascending."""
    first = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=nodes), out=first[1:])
    return first


def by_both(near: Integers, far: Integers, nodes: int, others: int) -> Numbers:
    """Stable sort order of edges by near node, then by far node."""
    a, b, c = _bits(nodes), _bits(others), _bits(len(near))
    if a + b + c <= WORD_BITS:
        return _in_order(_joined(near, far, b), c)
    # Partition the edges by the highest bits of the near node, then sort each partition.
    partitions = (near >> max(a - PARTITION_BITS, 0)).astype(np.uint16)
    order = order_of(partitions)
    ends = np.cumsum(np.bincount(partitions))
    for first, last in pairwise([0, *ends.tolist()]):
        checkpoint()
        mine = order[first:last].copy()
        near_, far_ = near.take(mine), far.take(mine)
        low = int(near_.min()) if len(mine) else 0
        if _bits(int(near_.max(initial=0)) - low + 1) + b + _bits(len(mine)) <= WORD_BITS:
            order[first:last] = mine.take(_in_order(_joined(near_ - low, far_, b), _bits(len(mine))))
        else:
            order[first:last] = mine.take(np.lexsort((far_, near_)))
    return order


def by_one(numbers: Integers, size: int) -> Numbers:
    """Stable sort order of numbers that are smaller than `size`."""
    c = _bits(len(numbers))
    if _bits(size) + c > WORD_BITS:
        return order_of(numbers)
    return _in_order(numbers.astype(np.uint64), c)


WORD_BITS = 64
"""Number of bits of a sort key."""

PARTITION_BITS = 12
"""The edges of a node are in the partition that is given by this number of leading bits of the node number."""


def _bits(size: int) -> int:
    return max(size - 1, 1).bit_length()


def _joined(near: Integers, far: Integers, bits: int) -> npt.NDArray[np.uint64]:
    """Pack two numbers into one. The second number is in the lowest `bits` bits."""
    keys = near.astype(np.uint64)
    keys <<= np.uint64(bits)
    keys |= far.astype(np.uint64)
    return keys


def _in_order(keys: npt.NDArray[np.uint64], bits: int) -> Numbers:
    """Stable sort order of keys. The keys are overwritten.

    The keys are sorted with their positions in the lowest `bits` bits. This is faster than an indirect sort.
    """
    checkpoint()
    keys <<= np.uint64(bits)
    keys |= np.arange(len(keys), dtype=np.uint64)
    checkpoint()
    keys = in_order(keys)
    checkpoint()
    keys &= np.uint64((1 << bits) - 1)
    return keys.view(np.int64)
