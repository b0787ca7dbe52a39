"""Look up the edges of a few nodes with the index of the edge table, as long as no topology exists."""

# See docs/decisions/0083-the-first-hops-are-looked-up.md

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cached_property

import numpy as np
import pyarrow.compute as pc

from omnigraph.lang.schema.catalog import IndexKind
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.columns.entity_table import EntityTable, as_one_array
from omnigraph.read.columns.numbers import NOTHING, Integers, Mask, Numbers
from omnigraph.read.topology.adjacency import Adjacency, EdgeLists
from omnigraph.storage.indexes import IndexSpec

_ROW_ID = "_rowid"
_ENDS = ("src", "dst")

LOOKUP_COST_EDGES = 10_000
"""Fixed cost of a lookup. The unit is the cost of adding one edge to a topology while it is built."""

LOOKUP_COST_EDGES_PER_NODE = 1_000
"""Additional cost of a lookup per node whose edges are looked up. The unit is the same as for `LOOKUP_COST_EDGES`."""

LOOKUP_COST_EDGES_PER_RESULT = 10
"""Additional cost of a lookup per edge that it finds. The unit is the same as for `LOOKUP_COST_EDGES`."""

MAX_UNINDEXED_EDGES = 20_000
"""If more edges than this are not in the index, edges are not looked up, because every lookup scans those edges."""

_LOOKUP_OFFSET = -(1 << 62)
"""Offset that is added to the positions of looked-up edges, so that they differ from positions in a topology."""

_NUMBERS_PER_EDGE = 5
_NONE: Numbers = np.array([], np.int64)


class EdgeAccess(StrEnum):
    """How edges are found."""

    TOPOLOGY = "topology"
    """In the CSR arrays of a topology. The topology is built if necessary."""
    LOOKUPS = "lookups"
    """With lookups in the index of the edge table."""
    BOTH_ENDS = "search from both ends"
    """By walking from both ends of each pair of nodes, until both walks meet. It adds to one of the others."""


class End:
    """One end of the edges of a type: the source nodes or the target nodes.

    Args:
        edges: the edge table.
        near: table of the nodes at this end.
        far: table of the nodes at the other end.
        inward: whether this is the target end; else it is the source end.
    """

    def __init__(self, edges: EntityTable, near: EntityTable, far: EntityTable, *, inward: bool) -> None:
        self.edges = edges
        self.near = near
        self.far = far
        self._by, self._other = _ENDS[::-1] if inward else _ENDS

    @property
    def is_indexed(self) -> bool:
        """Whether the edge table has an index on this end, and the index covers enough edges."""
        return self._uncovered <= MAX_UNINDEXED_EDGES

    @property
    def _uncovered(self) -> int:
        return self.edges.uncovered_by(IndexSpec(self._by, IndexKind.BTREE))

    def lookup_cost(self, nodes: float) -> int:
        """Cost of looking up the edges of a number of nodes. The unit is the same as for `LOOKUP_COST_EDGES`."""
        return LOOKUP_COST_EDGES + self._uncovered + int(LOOKUP_COST_EDGES_PER_NODE * nodes)

    def look_up(self, nodes: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Look up the edges of the given nodes.

        Returns near node, far node and row id of each edge, sorted by both nodes.
        """
        ids = self.near.take("id", nodes)
        rows = self.edges.having(self._by, ids, [self._by, self._other, _ROW_ID])
        checkpoint(rows.num_rows, _NUMBERS_PER_EDGE)
        if rows.num_rows == 0:
            return _NONE, _NONE, _NONE
        owner = nodes.take(pc.index_in(as_one_array(rows[self._by]), value_set=ids).to_numpy())
        far = self.far.find(as_one_array(rows[self._other]))
        row_ids: Numbers = rows[_ROW_ID].to_numpy().astype(np.int64)
        order = np.lexsort((row_ids, far, owner))
        order = order[far.take(order) != NOTHING]  # skip edges whose far node does not exist
        return owner.take(order), far.take(order), row_ids.take(order)


class _Few(EdgeLists):
    """The edges of the nodes that have been looked up.

    Adding more nodes does not change the positions of known edges.
    """

    def __init__(self) -> None:
        self.neighbour: Integers = _NONE
        self.row_ids = _NONE
        self._nodes, self._begin, self._end = _NONE, _NONE, _NONE

    def new(self, nodes: Numbers) -> Numbers:
        """The given nodes whose edges have not been looked up yet."""
        return np.setdiff1d(nodes, self._nodes)

    def add(self, nodes: Numbers, owner: Numbers, far: Numbers, row_ids: Numbers) -> None:
        """Add the edges of new nodes. `owner` is the near node of each edge, ascending."""
        degree = np.bincount(np.searchsorted(nodes, owner), minlength=len(nodes))
        end = len(self.neighbour) + np.cumsum(degree)
        known = np.concatenate([self._nodes, nodes])
        order = np.argsort(known)
        self._nodes = known.take(order)
        self._begin = np.concatenate([self._begin, end - degree]).take(order)
        self._end = np.concatenate([self._end, end]).take(order)
        self.neighbour = np.concatenate([self.neighbour, far])
        self.row_ids = np.concatenate([self.row_ids, row_ids])

    def ranges(self, nodes: Numbers) -> tuple[Numbers, Numbers]:
        at = np.searchsorted(self._nodes, nodes)
        return self._begin.take(at), self._end.take(at)


class IndexedEdges:
    """Provides the methods of `Adjacency`, but looks up the edges of a few nodes in the edge table.

    When further lookups would cost more than building the topology, it uses the topology. An object must be used by
    one read only, in one thread.

    Args:
        end: the edge table, and the end from which edges are walked.
        whole: returns the adjacency of all nodes, from the topology.
        is_cheaper: returns whether a lookup of this cost is cheaper than building the topology.
        record_cost: records an additional cost of a lookup.
        note: function that is called with the access method: topology or index lookups.
    """

    def __init__(
        self,
        end: End,
        whole: Callable[[], Adjacency],
        is_cheaper: Callable[[int], bool],
        record_cost: Callable[[int], None],
        note: Callable[[EdgeAccess], None],
    ) -> None:
        self._end = end
        self._make = whole
        self._is_cheaper = is_cheaper
        self._record_cost = record_cost
        self._note = note
        self._few = _Few()

    @cached_property
    def whole(self) -> Adjacency:
        """The adjacency of all nodes, from the topology."""
        self._note(EdgeAccess.TOPOLOGY)
        return self._make()

    @property
    def nodes(self) -> int:
        """Upper bound (exclusive) of the node numbers at this end."""
        return self._end.near.slots

    @property
    def size(self) -> int:
        """Number of edges."""
        return self._end.edges.count

    def _knows(self, nodes: Numbers) -> bool:
        """Look up the edges of the given nodes, if that is cheaper than using the topology.

        Returns whether the edges of all given nodes have been looked up.
        """
        if "whole" in self.__dict__:
            return False
        new = self._few.new(nodes)
        if len(new) == 0:
            return True
        if not self._is_cheaper(self._end.lookup_cost(len(new))):
            return False
        self._note(EdgeAccess.LOOKUPS)
        owner, far, row_ids = self._end.look_up(new)
        self._record_cost(LOOKUP_COST_EDGES_PER_RESULT * len(far))
        self._few.add(new, owner, far, row_ids)
        return True

    def walk(self, nodes: Numbers) -> tuple[Numbers, Numbers]:
        """Like `Adjacency.walk`: the degree of each given node, and the positions of the edges of all given nodes."""
        if not self._knows(nodes):
            return self.whole.walk(nodes)
        degree, places = self._few.walk(nodes)
        return degree, places + _LOOKUP_OFFSET

    def neighbours_of(self, nodes: Numbers) -> tuple[Numbers, Integers]:
        """The degree of each given node, and the nodes at the other end of the edges of all nodes, concatenated."""
        return (self._few if self._knows(nodes) else self.whole).neighbours_of(nodes)

    def far(self, places: Numbers) -> Numbers:
        """Nodes at the other end of the edges at the given positions."""
        return self._few.far(places - _LOOKUP_OFFSET) if _are_looked_up(places) else self.whole.far(places)

    def edges(self, places: Numbers) -> Numbers:
        """Edge numbers of the edges at the given positions."""
        if not _are_looked_up(places):
            return self.whole.edges(places)
        return self._end.edges.numbers(self._few.row_ids.take(places - _LOOKUP_OFFSET))

    def between(self, near: Numbers, far: Numbers) -> tuple[Numbers, Numbers]:
        """Like `Adjacency.between`: the number of edges of each pair of nodes, and the position of its first edge."""
        if not self._knows(near):
            return self.whole.between(near, far)
        count, place = self._few.between(near, far)
        return count, place + _LOOKUP_OFFSET

    def joins(self, near: Integers, far: Integers) -> Mask:
        """Like `Adjacency.joins`: mask of the pairs of nodes that at least one edge joins."""
        return (self._few if self._knows(near.astype(np.int64)) else self.whole).joins(near, far)

    def counts(self, nodes: Numbers, *, distinct: bool) -> Numbers:
        """Degree of each given node, or with `distinct` the number of its distinct neighbours."""
        return (self._few if self._knows(nodes) else self.whole).counts(nodes, distinct=distinct)

    def counts_where(self, nodes: Numbers, allowed: Mask, *, distinct: bool) -> Numbers:
        """Like `counts`, only for the neighbours that a mask allows, by node number."""
        return (self._few if self._knows(nodes) else self.whole).counts_where(nodes, allowed, distinct=distinct)

    def may_repeat(self, edges: float) -> bool:
        """Whether some of the edges may be parallel. Edges that are looked up are not examined."""
        return True

    def looping(self, nodes: Numbers) -> Mask:
        """Mask of the given nodes that have a self-loop. The nodes at both ends must have the same type."""
        return self.between(nodes, nodes)[0] > 0


def _are_looked_up(places: Numbers) -> bool:
    return len(places) == 0 or bool(places[0] < 0)
