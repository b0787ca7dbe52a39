"""Order: which parts of a match are solved first. Every order gives the same rows; some pass through many more.

About how many rows there are once some variables are bound and some edges walked does not depend on how one got
there: nodes that variables may hold, times the shares of pairs that edges join, times the shares that conditions keep.
So the cheapest way to a state is the cheapest way to one before it, and a step. Of up to eight variables, every way is
looked at; of more, those that look best after each step.
"""

# See docs/decisions/0086-a-plan-depends-on-statistics.md

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from omnigraph.lang.query import ir
from omnigraph.read.plan.statistics import Held, Statistics

_FAR = 8
"""Beyond so many hops, walking on is taken to find nothing new."""

_ALL_WAYS = 8
_KEPT = 24
"""Up to so many variables, every order is looked at. With more, so many are followed."""

_STEP = 50.0
"""What a step costs by itself, in rows."""

_TRYING = 0.2
"""What trying the conditions on one node costs, of a whole column, beside walking one edge."""

_MEETING = 10.0
"""What finding out costs whether an edge joins two nodes."""

_LATE = 4.0
"""What trying the conditions on one node costs that was walked to: its values are fetched one by one."""


@dataclass(frozen=True, slots=True)
class Move:
    """A step of an order.

    Attributes:
        scan: the variable that is bound to every node that it may hold.
        expand: else the edges that are walked, or looked for between two bound variables.
        condition: else the condition that is tried, by its place.
        forward: whether edges are walked from left to right.
        closing: whether both ends are bound before.
        late: whether the conditions on the variable that is walked to are tried on what was reached.
    """

    scan: str | None = None
    expand: ir.Expand | None = None
    condition: int | None = None
    forward: bool = True
    closing: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """Some moves, about how many rows there are after them, and what they cost."""

    moves: tuple[Move, ...]
    rows: float
    cost: float


Conditions = Sequence[tuple[int, frozenset[str]]]
"""Conditions on several variables, by place, with their variables."""


class Estimates:
    """About how many rows steps make of others, and what they cost: from statistics alone."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def held(self, name: str, steps: Sequence[ir.Step] = (), *, left: bool = True) -> Held:
        """What a variable may hold; one from outside of the block anything that edges join."""
        found = self._statistics.variables.get(name)
        if found is not None:
            return found
        nodes = self._statistics.nodes
        there = sum(nodes[t] for t in dict.fromkeys(s.left_type if left else s.right_type for s in steps))
        return Held(there, there)

    def _ends(self, expand: ir.Expand) -> tuple[Held, Held]:
        return self.held(expand.left, expand.steps), self.held(expand.right, expand.steps, left=False)

    def _edges(self, expand: ir.Expand) -> float:
        """How many pairs of nodes edges of one hop join."""
        edges = self._statistics.edges
        return float(sum(edges[s.edge].edges * (2 if s.direction is ir.Direction.BOTH else 1) for s in expand.steps))

    def walked(self, expand: ir.Expand, *, forward: bool = True) -> float:
        """How many edges are walked from one node."""
        left, right = self._ends(expand)
        degree = self._edges(expand) / max((left if forward else right).there, 1)
        if expand.hops is None:
            return degree
        hops = min(expand.hops.max or _FAR, _FAR)
        return min(sum(degree**n for n in range(1, hops + 1)), self._edges(expand))

    def joined(self, expand: ir.Expand) -> float:
        """The share of all pairs of nodes at both ends that an expand joins."""
        left, right = self._ends(expand)
        if expand.hops is None:
            return self._edges(expand) / max(left.there * right.there, 1)
        return min(self.walked(expand), self._arrivals(expand, right.there)) / max(right.there, 1)

    def _arrivals(self, expand: ir.Expand, there: int) -> float:
        """How many nodes can be reached at most: those that edges arrive at."""
        total = 0
        for step in expand.steps:
            degrees = self._statistics.edges[step.edge]
            into, out = degrees.targets, degrees.sources
            known = {
                ir.Direction.OUT: into,
                ir.Direction.IN: out,
                ir.Direction.BOTH: None if into is None or out is None else into + out,
            }[step.direction]
            total += there if known is None else known
        return min(total, there)

    def block(self, block: ir.Block, rows: float) -> float:
        """What solving a block inside of another costs, for so many rows."""
        cost, inside = _STEP, rows
        for expand in block.expands:
            nodes = self._statistics.nodes
            there = sum(nodes[name] for name in dict.fromkeys(step.left_type for step in expand.steps))
            degree = self._edges(expand) / max(there, 1)
            cost += inside * degree
            inside *= max(degree, 1.0)
        return cost + sum(self.block(inner, inside) for inner in (*block.optionals, *block.negations))

    def condition(self, place: int) -> float:
        """The share of rows that a condition keeps."""
        return self._statistics.shares[place]

    def after(self, move: Move, rows: float) -> float:
        """About how many rows there are after a move."""
        if move.scan is not None:
            return rows * self.held(move.scan).size
        if move.condition is not None:
            return rows * self.condition(move.condition)
        assert move.expand is not None
        joined = self.joined(move.expand)
        if move.closing:
            return rows * min(1.0, joined)
        left, right = self._ends(move.expand)
        return rows * joined * (right if move.forward else left).size

    def cost(self, move: Move, rows: float, first: bool) -> float:
        """What a move costs, in edges that are walked.

        Args:
            move: the move.
            rows: how many rows there are before.
            first: whether nothing is bound before.
        """
        after = self.after(move, rows)
        if move.condition is not None:
            return _STEP + rows
        if move.scan is not None:
            held = self.held(move.scan)
            trying = 0.0 if held.counted else _TRYING * held.there
            return _STEP + trying + (held.size if first else after)
        assert move.expand is not None
        walked = rows * self.walked(move.expand, forward=move.forward)
        if move.closing:
            return _STEP + (_MEETING * rows if move.expand.hops is None else walked + after)
        left, right = self._ends(move.expand)
        far = right if move.forward else left
        trying = 0.0
        if not far.counted:
            trying = self._late(move.expand, walked) if move.late else _TRYING * far.there
        return _STEP + walked + trying + after

    def _late(self, expand: ir.Expand, walked: float) -> float:
        return _LATE * walked

    def is_late(self, expand: ir.Expand, rows: float, *, forward: bool) -> bool:
        """Whether conditions on what is walked to are better tried there than on all nodes."""
        left, right = self._ends(expand)
        far = right if forward else left
        walked = rows * self.walked(expand, forward=forward)
        return not far.counted and self._late(expand, walked) < _TRYING * far.there


class Ordering:
    """The moves that bind some variables and walk all edges between them and what is bound.

    Args:
        names: the variables to bind.
        expands: the edges to walk.
        conditions: what to try as soon as its variables are bound.
        bound: what is bound already.
        estimates: what is expected.
    """

    def __init__(
        self,
        names: Sequence[str],
        expands: Sequence[ir.Expand],
        conditions: Conditions,
        bound: frozenset[str],
        estimates: Estimates,
    ) -> None:
        self._names = names
        self._expands = expands
        self._conditions = conditions
        self._before = bound
        self._estimates = estimates

    def best(self, rows: float) -> Way:
        """The cheapest way; of several, the one that comes first."""
        start = self._settled(_State(self._before, frozenset()), Way((), rows, 0.0))
        layer, ended = {start[0]: start[1]}, []
        while layer:
            following: dict[_State, Way] = {}
            for state, way in layer.items():
                ends = True
                for next_state, next_way in self._onward(state, way):
                    ends = False
                    known = following.get(next_state)
                    if known is None or next_way.cost < known.cost:
                        following[next_state] = next_way
                if ends:
                    ended.append(way)
            layer = following
            if len(self._names) > _ALL_WAYS and len(layer) > _KEPT:
                layer = dict(sorted(layer.items(), key=lambda found: found[1].cost + found[1].rows)[:_KEPT])
        return min(ended, key=_cost)

    def every(self, rows: float) -> Iterator[Way]:
        """Every way there is: for comparison."""

        def onward(state: _State, way: Way) -> Iterator[Way]:
            following = list(self._onward(state, way))
            if not following:
                yield way
            for found in following:
                yield from onward(*found)

        yield from onward(*self._settled(_State(self._before, frozenset()), Way((), rows, 0.0)))

    def _onward(self, state: _State, way: Way) -> Iterator[tuple[_State, Way]]:
        """Every step that can be taken: each binds a variable, or walks several hops between bound ones."""
        bound = state.bound
        for place, expand in enumerate(self._expands):
            if place in state.walked:
                continue
            left, right = expand.left in bound, expand.right in bound
            if left and right:  # otherwise it was looked for as soon as both were bound
                yield self._taken(state, way, Move(expand=expand, closing=True), place)
            elif left or (right and expand.hops is None):
                late = self._estimates.is_late(expand, way.rows, forward=left)
                yield self._taken(state, way, Move(expand=expand, forward=left, late=late), place)
        for name in self._names:
            if name not in bound:
                yield self._taken(state, way, Move(scan=name))

    def _taken(self, state: _State, way: Way, move: Move, place: int | None = None) -> tuple[_State, Way]:
        after = self._done(state, move, place)
        return self._settled(after, self._with(way, move, first=not state.bound), state)

    def _done(self, state: _State, move: Move, place: int | None) -> _State:
        if move.scan is not None:
            return _State(state.bound | {move.scan}, state.walked)
        assert move.expand is not None
        assert place is not None
        expand = move.expand
        return _State(state.bound | {expand.left, expand.right, *held(expand)}, state.walked | {place})

    def _with(self, way: Way, move: Move, *, first: bool = False) -> Way:
        cost = self._estimates.cost(move, way.rows, first)
        return Way((*way.moves, move), self._estimates.after(move, way.rows), way.cost + cost)

    def _settled(self, state: _State, way: Way, before: _State | None = None) -> tuple[_State, Way]:
        """A state with everything done that only leaves out rows: conditions, then edges between bound variables."""
        tried = before
        while True:
            for place, names in self._conditions:
                if names <= state.bound and not (tried is not None and names <= tried.bound):
                    way = self._with(way, Move(condition=place))
            tried = state
            closing = [
                (place, expand)
                for place, expand in enumerate(self._expands)
                if place not in state.walked
                and expand.hops is None
                and expand.left in state.bound
                and expand.right in state.bound
            ]
            if not closing:
                return state, way
            place, expand = min(closing, key=lambda found: (self._estimates.joined(found[1]), found[0]))
            move = Move(expand=expand, closing=True)
            state, way = self._done(state, move, place), self._with(way, move)


@dataclass(frozen=True, slots=True)
class _State:
    bound: frozenset[str]
    walked: frozenset[int]


def _cost(way: Way) -> float:
    return way.cost


def held(expand: ir.Expand) -> Iterator[str]:
    """The edge and path variables of an expand."""
    if expand.edge_var is not None:
        yield expand.edge_var.name
    if expand.path_var is not None:
        yield expand.path_var
