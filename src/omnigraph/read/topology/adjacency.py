"""Who is next to whom: the edges of a type as arrays of numbers, by the node at one of their ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from omnigraph.read.budget import checkpoint
from omnigraph.read.sorting import in_order, order_of
from omnigraph.read.space.numbers import Integers, Mask, Numbers

_WALKED = 5
"""How many numbers there are about an edge that is walked, at most."""


_PORTION = 1 << 18
"""About how many edges are looked at together."""

_LOOKING = 20_000
"""Looking for the loops of a few nodes takes as long as looking at so many edges."""


class Stretches:
    """Edges of nodes at one end: those of a node are a stretch, in which the nodes at the other end ascend.

    Attributes:
        neighbour: the nodes at the other end, stretch after stretch.
    """

    neighbour: Integers

    def stretches(self, nodes: Numbers) -> tuple[Numbers, Numbers]:
        """Where the stretches of some nodes begin and end. Both arrays belong to the caller."""
        raise NotImplementedError

    def walk(self, nodes: Numbers) -> tuple[Numbers, Numbers]:
        """The edges of some nodes, one after another.

        Returns:
            How many edges each node has, and their places.
        """
        begin, degree = self.stretches(nodes)
        degree -= begin
        ends = np.cumsum(degree)
        if len(ends):
            checkpoint(int(ends[-1]), _WALKED)
        begin += degree
        begin -= ends
        places = np.repeat(begin, degree)
        places += np.arange(len(places))
        return degree, places

    def far(self, places: Numbers) -> Numbers:
        """The nodes at the other end of edges."""
        return self.neighbour.take(places).astype(np.int64)

    def between(self, near: Numbers, far: Numbers) -> tuple[Numbers, Numbers]:
        """The edges from some nodes to others, pair by pair.

        Returns:
            How many edges each pair has, and the place of the first.
        """
        begin, end = self.stretches(near)
        low = self._search(begin, end, far)
        return self._search(low, end, far + 1) - low, low

    def _search(self, low: Numbers, high: Numbers, wanted: Numbers) -> Numbers:
        """The first place in each stretch whose neighbour is not less than what is wanted there."""
        low, high = low.copy(), high.copy()
        while (open_ := np.flatnonzero(low < high)).size:
            middle = (low[open_] + high[open_]) // 2
            less = self.neighbour.take(middle) < wanted[open_]
            low[open_[less]] = middle[less] + 1
            high[open_[~less]] = middle[~less]
        return low

    def counts(self, nodes: Numbers, *, distinct: bool) -> Numbers:
        """How many edges, or different neighbours, each of some nodes has."""
        degree, places = self.walk(nodes)
        if not distinct or len(places) == 0:
            return degree
        far, owner = self.far(places), np.repeat(np.arange(len(nodes)), degree)
        again = (far[1:] == far[:-1]) & (owner[1:] == owner[:-1])
        return degree - np.bincount(owner[1:][again], minlength=len(nodes))


class Adjacency(Stretches):
    """The edges of each node at one end.

    Args:
        first: the edges of node n are those from `first[n]` to `first[n + 1]`.
        neighbour: the nodes at the other end, ascending for each node.
        edge: the edges, or what gives them: many reads do not ask for them.
        others: how many numbers there are at the other end.
    """

    def __init__(
        self, first: Numbers, neighbour: Integers, edge: Integers | Callable[[], Integers], others: int
    ) -> None:
        self.first = first
        self.neighbour = neighbour
        self.others = others
        self._edge = edge
        self._asked_about_loops = 0

    @cached_property
    def edge(self) -> Integers:
        return self._edge() if callable(self._edge) else self._edge

    @property
    def nodes(self) -> int:
        """How many numbers there are at this end."""
        return len(self.first) - 1

    @property
    def size(self) -> int:
        """How many edges there are."""
        return len(self.neighbour)

    @property
    def whole(self) -> Adjacency:
        """The edges of all nodes: these."""
        return self

    def stretches(self, nodes: Numbers) -> tuple[Numbers, Numbers]:
        return self.first.take(nodes), self.first.take(nodes + 1)

    def edges(self, places: Numbers) -> Numbers:
        """Edges by place."""
        return self.edge.take(places).astype(np.int64)

    def sums(self, values: Numbers | Mask, *, distinct: bool) -> Numbers:
        """For each node, the sum over its neighbours of what each of them counts.

        Args:
            values: what each node at the other end counts.
            distinct: whether a neighbour counts once, whatever the number of edges to it.
        """
        found: Numbers = np.zeros(self.nodes, np.int64)
        some = np.flatnonzero(self.degree)
        begins = self.first.take(some)
        # A portion at a time, so that what lies between stays close at hand.
        bounds = np.searchsorted(begins, np.arange(_PORTION, len(self.neighbour), _PORTION))
        for first, last in pairwise(np.unique([0, *bounds, len(some)]).tolist()):
            checkpoint()
            low, high = int(begins[first]), int(begins[last]) if last < len(some) else len(self.neighbour)
            arriving = values.take(self.neighbour[low:high].astype(np.intp))
            found[some[first:last]] = np.add.reduceat(arriving, begins[first:last] - low, dtype=np.int64)
        if distinct:
            places, owners = self._repeated
            np.subtract.at(found, owners, values.take(self.far(places)).astype(np.int64))
        return found

    @cached_property
    def _repeated(self) -> tuple[Numbers, Numbers]:
        """The edges that lead to where the one before leads too, from the same node: their places, and those nodes."""
        again = np.zeros(len(self.neighbour), bool)
        np.equal(self.neighbour[1:], self.neighbour[:-1], out=again[1:])
        again[self.first[:-1][self.degree > 0]] = False
        places: Numbers = np.flatnonzero(again)
        return places, np.searchsorted(self.first, places, "right") - 1

    @cached_property
    def neighbours(self) -> Numbers:
        """How many different neighbours each node has."""
        found = self.degree.copy()
        np.subtract.at(found, self._repeated[1], 1)
        return found

    @cached_property
    def degree(self) -> Numbers:
        """How many edges each node has."""
        return np.diff(self.first)

    def owners(self) -> Integers:
        """The node of each edge."""
        return np.repeat(np.arange(self.nodes, dtype=self.neighbour.dtype), self.degree)

    def looping(self, nodes: Numbers) -> Mask:
        """Which of some nodes have an edge to themselves, where both ends are of one type."""
        if "loops" not in self.__dict__:
            self._asked_about_loops += _LOOKING + len(nodes)
            if self._asked_about_loops <= self.size:
                return self.between(nodes, nodes)[0] > 0
        return self.loops.take(nodes)

    @cached_property
    def loops(self) -> Mask:
        """Which nodes have an edge to themselves, where both ends are of one type."""
        owner = self.owners()
        found = np.zeros(self.nodes, bool)
        found[owner[owner == self.neighbour]] = True
        return found


def firsts(owner: Integers, nodes: int) -> Numbers:
    """Where the edges of each node begin, once they are sorted by node."""
    first = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=nodes), out=first[1:])
    return first


def by_both(near: Integers, far: Integers, nodes: int, others: int) -> Numbers:
    """The order of edges by their near end, then by their far end, then as they are."""
    a, b, c = _bits(nodes), _bits(others), _bits(len(near))
    if a + b + c <= _WORD:
        return _in_order(_joined(near, far, b), c)
    # First in portions by the highest digits of the near end, then each portion by itself.
    portions = (near >> max(a - _PORTION_BITS, 0)).astype(np.uint16)
    order = order_of(portions)
    ends = np.cumsum(np.bincount(portions))
    for first, last in pairwise([0, *ends.tolist()]):
        checkpoint()
        mine = order[first:last].copy()
        near_, far_ = near.take(mine), far.take(mine)
        low = int(near_.min()) if len(mine) else 0
        if _bits(int(near_.max(initial=0)) - low + 1) + b + _bits(len(mine)) <= _WORD:
            order[first:last] = mine.take(_in_order(_joined(near_ - low, far_, b), _bits(len(mine))))
        else:
            order[first:last] = mine.take(np.lexsort((far_, near_)))
    return order


def by_one(numbers: Integers, size: int) -> Numbers:
    """The order of numbers below a size; equal ones stay in their order."""
    c = _bits(len(numbers))
    if _bits(size) + c > _WORD:
        return order_of(numbers)
    return _in_order(numbers.astype(np.uint64), c)


_WORD = 64
_PORTION_BITS = 12


def _bits(size: int) -> int:
    return max(size - 1, 1).bit_length()


def _joined(near: Integers, far: Integers, bits: int) -> npt.NDArray[np.uint64]:
    """Two numbers as one, of which the second has so many bits."""
    keys = near.astype(np.uint64)
    keys <<= np.uint64(bits)
    keys |= far.astype(np.uint64)
    return keys


def _in_order(keys: npt.NDArray[np.uint64], bits: int) -> Numbers:
    """The order of keys, of which equal ones stay as they are; their places have so many bits.

    Each is sorted together with its place, which is quicker than sorting places. The keys are used up.
    """
    checkpoint()
    keys <<= np.uint64(bits)
    keys |= np.arange(len(keys), dtype=np.uint64)
    checkpoint()
    keys = in_order(keys)
    checkpoint()
    keys &= np.uint64((1 << bits) - 1)
    return keys.view(np.int64)
