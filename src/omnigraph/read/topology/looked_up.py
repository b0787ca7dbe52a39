"""The edges of a few nodes, looked up in the table: for reads that come before there is a topology."""

# See docs/decisions/0083-the-first-hops-are-looked-up.md

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cached_property

import numpy as np
import pyarrow.compute as pc

from omnigraph.lang.schema.catalog import IndexKind
from omnigraph.read.budget import checkpoint
from omnigraph.read.space.numbers import NOTHING, Integers, Mask, Numbers
from omnigraph.read.space.space import Space, one_piece
from omnigraph.read.topology.adjacency import Adjacency, Stretches
from omnigraph.storage.indexes import IndexSpec

_ROW_ID = "_rowid"
_ENDS = ("src", "dst")

_ASKING = 10_000
_EACH = 1_000
_FOUND = 10
"""Looking up costs as much as making a topology of so many edges: once, for each node, and for each edge found."""

_UNCOVERED = 20_000
"""How many edges may lie outside of the index: they are read with every lookup."""

_LOOKED_UP = -(1 << 62)
"""Places of edges that were looked up are counted from here, those in a topology from zero."""

_WALKED = 5
_NONE: Numbers = np.array([], np.int64)


class Way(StrEnum):
    """How edges are found."""

    TOPOLOGY = "topology"
    """In the arrays of a topology, which is made if there is none."""
    LOOKUPS = "lookups"
    """By the index of the edge table."""


class End:
    """One end of the edges of a table.

    Args:
        edges: the edges.
        near: the nodes at this end.
        far: those at the other.
        inward: whether this end is where edges lead to.
    """

    def __init__(self, edges: Space, near: Space, far: Space, *, inward: bool) -> None:
        self.edges = edges
        self.near = near
        self.far = far
        self._by, self._other = _ENDS[::-1] if inward else _ENDS

    @property
    def is_indexed(self) -> bool:
        """Whether edges can be looked up by this end."""
        return self._uncovered <= _UNCOVERED

    @property
    def _uncovered(self) -> int:
        return self.edges.uncovered_by(IndexSpec(self._by, IndexKind.BTREE))

    def rent(self, nodes: float) -> int:
        """What it costs to look up the edges of so many nodes, where making a topology costs one for each edge."""
        return _ASKING + self._uncovered + int(_EACH * nodes)

    def look_up(self, nodes: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """The edges of some nodes, by node, then by the node at the other end: both nodes, and the row id."""
        ids = self.near.take("id", nodes)
        rows = self.edges.having(self._by, ids, [self._by, self._other, _ROW_ID])
        checkpoint(rows.num_rows, _WALKED)
        if rows.num_rows == 0:
            return _NONE, _NONE, _NONE
        owner = nodes.take(pc.index_in(one_piece(rows[self._by]), value_set=ids).to_numpy())
        far = self.far.find(one_piece(rows[self._other]))
        row_ids: Numbers = rows[_ROW_ID].to_numpy().astype(np.int64)
        order = np.lexsort((row_ids, far, owner))
        order = order[far.take(order) != NOTHING]  # an edge without an end joins nothing
        return owner.take(order), far.take(order), row_ids.take(order)


class _Few(Stretches):
    """The edges of some nodes, more of which may come. What has come keeps its place."""

    def __init__(self) -> None:
        self.neighbour: Integers = _NONE
        self.row_ids = _NONE
        self._nodes, self._begin, self._end = _NONE, _NONE, _NONE

    def new(self, nodes: Numbers) -> Numbers:
        """Those nodes whose edges are not known."""
        return np.setdiff1d(nodes, self._nodes)

    def add(self, nodes: Numbers, owner: Numbers, far: Numbers, row_ids: Numbers) -> None:
        """Edges of nodes that are new, by node."""
        degree = np.bincount(np.searchsorted(nodes, owner), minlength=len(nodes))
        end = len(self.neighbour) + np.cumsum(degree)
        known = np.concatenate([self._nodes, nodes])
        order = np.argsort(known)
        self._nodes = known.take(order)
        self._begin = np.concatenate([self._begin, end - degree]).take(order)
        self._end = np.concatenate([self._end, end]).take(order)
        self.neighbour = np.concatenate([self.neighbour, far])
        self.row_ids = np.concatenate([self.row_ids, row_ids])

    def stretches(self, nodes: Numbers) -> tuple[Numbers, Numbers]:
        at = np.searchsorted(self._nodes, nodes)
        return self._begin.take(at), self._end.take(at)


class LookedUp:
    """The edges of each node at one end, as `Adjacency` has them. Those of a few nodes are looked up in the table.

    Who asks for more than that gets the topology. For one read, in one thread.

    Args:
        end: the edges, and which end.
        whole: gives the topology.
        rents: whether to look up for so much, instead of making the topology.
        pays: takes note of what looking up has cost beyond that.
        note: is told which way is taken.
    """

    def __init__(
        self,
        end: End,
        whole: Callable[[], Adjacency],
        rents: Callable[[int], bool],
        pays: Callable[[int], None],
        note: Callable[[Way], None],
    ) -> None:
        self._end = end
        self._make = whole
        self._rents = rents
        self._pays = pays
        self._note = note
        self._few = _Few()

    @cached_property
    def whole(self) -> Adjacency:
        """The edges of all nodes."""
        self._note(Way.TOPOLOGY)
        return self._make()

    @property
    def nodes(self) -> int:
        """How many numbers there are at this end."""
        return self._end.near.slots

    @property
    def size(self) -> int:
        """How many edges there are."""
        return self._end.edges.count

    def _knows(self, nodes: Numbers) -> bool:
        """Whether the edges of some nodes are looked up now."""
        if "whole" in self.__dict__:
            return False
        new = self._few.new(nodes)
        if len(new) == 0:
            return True
        if not self._rents(self._end.rent(len(new))):
            return False
        self._note(Way.LOOKUPS)
        owner, far, row_ids = self._end.look_up(new)
        self._pays(_FOUND * len(far))
        self._few.add(new, owner, far, row_ids)
        return True

    def walk(self, nodes: Numbers) -> tuple[Numbers, Numbers]:
        """The edges of some nodes, one after another: how many each node has, and their places."""
        if not self._knows(nodes):
            return self.whole.walk(nodes)
        degree, places = self._few.walk(nodes)
        return degree, places + _LOOKED_UP

    def far(self, places: Numbers) -> Numbers:
        """The nodes at the other end of edges."""
        return self._few.far(places - _LOOKED_UP) if _are_looked_up(places) else self.whole.far(places)

    def edges(self, places: Numbers) -> Numbers:
        """Edges by place."""
        if not _are_looked_up(places):
            return self.whole.edges(places)
        return self._end.edges.numbers(self._few.row_ids.take(places - _LOOKED_UP))

    def between(self, near: Numbers, far: Numbers) -> tuple[Numbers, Numbers]:
        """The edges from some nodes to others, pair by pair: how many each pair has, and the place of the first."""
        if not self._knows(near):
            return self.whole.between(near, far)
        count, place = self._few.between(near, far)
        return count, place + _LOOKED_UP

    def counts(self, nodes: Numbers, *, distinct: bool) -> Numbers:
        """How many edges, or different neighbours, each of some nodes has."""
        return (
            self._few.counts(nodes, distinct=distinct)
            if self._knows(nodes)
            else self.whole.counts(nodes, distinct=distinct)
        )

    def looping(self, nodes: Numbers) -> Mask:
        """Which of some nodes have an edge to themselves, where both ends are of one type."""
        return self.between(nodes, nodes)[0] > 0


def _are_looked_up(places: Numbers) -> bool:
    return len(places) == 0 or bool(places[0] < 0)
