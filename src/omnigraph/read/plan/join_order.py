"""Join order: the order in which variables are bound and edges are walked. Every order gives the same rows.

A state is the set of variables that are bound so far, the set of edges that are walked so far, and the variable whose
nodes the rows still are in order, if there is one. The estimated number of rows in a state does not depend on the order
that leads to it. It is the product of the cardinalities of the bound variables, the selectivities of the walked edges
and the selectivities of the evaluated conditions. So the search is dynamic programming over states: the cheapest order
for a state extends the cheapest order for an earlier state by one step. With up to eight variables the search is
exhaustive; with more, it is a beam search.
"""

# See docs/decisions/0086-a-plan-depends-on-statistics.md
# See docs/decisions/0282-walks-in-node-order-cost-less.md

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.match.meet import can_meet
from omnigraph.read.plan.statistics import Cardinality, Statistics
from omnigraph.read.query.block import bound_by_expand, side_at

_MAX_ESTIMATED_HOPS = 8
"""Estimates assume that more hops than this reach no new nodes."""

MAX_EXHAUSTIVE_VARIABLES = 8
"""Up to this number of variables, the search is exhaustive. With more variables, it is a beam search."""

BEAM_WIDTH = 24
"""Number of partial orders that the beam search keeps."""

OPERATOR_COST_ROWS = 50.0
"""Fixed cost of an operator. The unit is the cost of processing one row, or walking one edge."""

_SCAN_TEST_COST_EDGES = 0.2
"""Cost per node of evaluating conditions on all nodes of a type. The unit is the cost of walking one edge."""

_EDGE_TEST_COST_EDGES = 3.0
"""Cost of testing whether an edge joins two nodes. The unit is the cost of walking one edge."""

_COLUMN_TEST_COST_EDGES = 0.5
"""The same, if no node has more than one such edge (see `Adjacency.column`)."""

MEET_COST_EDGES = 6.0
"""Cost of counting a path of two edges, or of looking up the number of paths of a row (see `Meet`)."""

IN_ORDER_WALK_COST_EDGES = 0.6
"""Cost of walking an edge if the rows are all nodes of a type in order: then their edges are adjacent in memory."""

MIN_COST_PER_STATE_EDGES = 50_000.0
"""A second search is made if the order costs more than this per state of the first. A state takes about 30 µs."""

_CONDITION_SELECTIVITY = 1 / 3
"""Estimated selectivity of a condition of an inner block."""

LATE_TEST_COST_EDGES = 4.0
"""Cost per node of evaluating conditions only on reached nodes. The unit is the cost of walking one edge."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a join order. Exactly one of `scan`, `expand` and `condition` is set.

    Attributes:
        scan: variable that is bound to all its candidates.
        expand: traversal whose edges are walked; if both variables are bound, only the existence of an edge is tested.
        condition: join condition that is evaluated, as an index into the join conditions of the block.
        forward: whether edges are walked from the left variable to the right one.
        closing: whether both variables of `expand` are already bound before this step.
        late: whether the conditions on the reached variable are evaluated only on the nodes that are reached.
        end: the traversal from the variable that `expand` reaches to another bound variable, if the variable between
            them is eliminated (see `Meet`); else None.
        early: with `end`, the join conditions on the eliminated variable and the one that it is reached from.
        skew: factor by which more edges are walked than with even degrees, because nodes with many edges of earlier
            steps also have many edges of this step.
        in_order: whether the rows are all nodes of the type that `expand` is walked from, in order.
    """

    scan: str | None = None
    expand: ir.Expand | None = None
    condition: int | None = None
    forward: bool = True
    closing: bool = False
    late: bool = False
    end: ir.Expand | None = None
    early: tuple[int, ...] = ()
    skew: float = 1.0
    in_order: bool = False

    @property
    def ends(self) -> tuple[str, str]:
        """The variable that `expand` is walked from, and the variable that it reaches."""
        assert self.expand is not None
        names = (self.expand.left, self.expand.right)
        return names if self.forward else (names[1], names[0])


@dataclass(frozen=True, slots=True)
class JoinOrder:
    """A join order: its steps (`Move`), the estimated number of rows after the last step, and the estimated cost."""

    moves: tuple[Move, ...]
    rows: float
    cost: float


Conditions = Sequence[tuple[int, frozenset[str]]]
"""Join conditions of a block: for each, its index in the block, and the variables that it refers to."""


class Estimates:
    """Estimates the rows and the cost of the steps of a join order. The estimates depend only on the statistics."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    @property
    def nodes(self) -> frozenset[str]:
        """The node variables of the block."""
        return frozenset(self._statistics.variables)

    def held(self, name: str, steps: Sequence[ir.Step] = (), *, left: bool = True) -> Cardinality:
        """Cardinality of a variable.

        For a variable of an enclosing block, this is the number of all nodes of its types.
        """
        found = self._statistics.variables.get(name)
        if found is not None:
            return found
        nodes = self._statistics.nodes
        total = sum(nodes[t] for t in dict.fromkeys(s.left_type if left else s.right_type for s in steps))
        return Cardinality(total, total)

    def _ends(self, expand: ir.Expand) -> tuple[Cardinality, Cardinality]:
        return self.held(expand.left, expand.steps), self.held(expand.right, expand.steps, left=False)

    def _edges(self, expand: ir.Expand) -> float:
        """Number of pairs of nodes that one hop of a traversal connects."""
        edges = self._statistics.edges
        return float(sum(edges[s.edge].edges * (2 if s.direction is ir.Direction.BOTH else 1) for s in expand.steps))

    def walked(self, expand: ir.Expand, *, forward: bool = True) -> float:
        """Estimated number of edges that a traversal walks from one node."""
        left, right = self._ends(expand)
        degree = self._edges(expand) / max((left if forward else right).total, 1)
        if expand.hops is None:
            return degree * self._candidate_degree(expand, expand.left if forward else expand.right)
        hops = min(expand.hops.max or _MAX_ESTIMATED_HOPS, _MAX_ESTIMATED_HOPS)
        return min(sum(degree**n for n in range(1, hops + 1)), self._edges(expand))

    def joined(self, expand: ir.Expand) -> float:
        """Selectivity of a traversal: the fraction of all pairs of nodes that its edges connect."""
        left, right = self._ends(expand)
        if expand.hops is None:
            known = self._edge_share(expand)
            if known is not None:
                return known
            factor = self._candidate_degree(expand, expand.left) * self._candidate_degree(expand, expand.right)
            return factor * self._edges(expand) / max(left.total * right.total, 1)
        return min(self.walked(expand), self._arrivals(expand, right.total)) / max(right.total, 1)

    def _edge_share(self, expand: ir.Expand) -> float | None:
        """The counted fraction of the pairs of candidates that a traversal joins; None if it was not counted."""
        shares = self._statistics.edge_shares
        side = side_at(expand, expand.left) if shares else None
        return None if side is None else shares.get((expand.left, expand.right, side))

    def _candidate_degree(self, expand: ir.Expand, name: str) -> float:
        """How many times more edges of a traversal the candidates of a variable have than all nodes, on average."""
        known = self._statistics.candidate_degrees
        side = side_at(expand, name) if known and expand.left != expand.right else None
        return 1.0 if side is None else known.get((name, side), 1.0)

    def _arrivals(self, expand: ir.Expand, nodes: int) -> float:
        """Upper bound of the number of nodes that can be reached: the nodes with an incoming edge."""
        total = 0
        for step in expand.steps:
            degrees = self._statistics.edges[step.edge]
            into, out = degrees.targets, degrees.sources
            known = {
                ir.Direction.OUT: into,
                ir.Direction.IN: out,
                ir.Direction.BOTH: None if into is None or out is None else into + out,
            }[step.direction]
            total += nodes if known is None else known
        return min(total, nodes)

    def block(self, block: ir.Block, rows: float) -> tuple[float, float]:
        """Estimated cost and number of output rows of an inner block, for a number of input rows.

        The edges are walked from the variables of the outer block.
        """
        nodes, known = self._statistics.nodes, {*block.outer}
        cost, inside, expands = OPERATOR_COST_ROWS, rows, list(block.expands)
        while expands:
            expand = next((e for e in expands if e.left in known or e.right in known), expands[0])
            expands.remove(expand)
            left = sum(nodes[name] for name in dict.fromkeys(step.left_type for step in expand.steps))
            right = sum(nodes[name] for name in dict.fromkeys(step.right_type for step in expand.steps))
            forward = expand.left in known
            degree = self._edges(expand) / max(left if forward else right, 1)
            cost += inside * degree
            inside *= min(degree / max(right, 1), 1.0) if forward and expand.right in known else max(degree, 1.0)
            known |= {expand.left, expand.right}
        for inner in (*block.optionals, *block.negations):
            cost += self.block(inner, inside)[0]
        return cost, inside * _CONDITION_SELECTIVITY ** len(block.filters)

    def left_join(self, block: ir.Block, rows: float) -> float:
        """Estimated number of rows after a left join with an inner block."""
        return max(rows, self.block(block, rows)[1])

    def condition(self, place: int) -> float:
        """Selectivity of a join condition, by its index in the block."""
        return self._statistics.shares[place]

    def after(self, move: Move, rows: float) -> float:
        """Estimated number of rows after a step of a join order. `rows` is the number of rows before the step."""
        if move.scan is not None:
            return rows * self.held(move.scan).size
        if move.condition is not None:
            return rows * self.condition(move.condition)
        assert move.expand is not None
        joined = self.joined(move.expand)
        if move.closing:
            return rows * min(1.0, joined)
        if move.end is not None:
            paths = joined * self.held(move.ends[1]).size * self.joined(move.end) * move.skew
            return rows * min(1.0, paths * self._early_share(move))
        left, right = self._ends(move.expand)
        return rows * joined * (right if move.forward else left).size * move.skew

    def skew(self, expand: ir.Expand, near: str, walked: Iterable[ir.Expand]) -> float:
        """The largest correlation of the degrees of a traversal with those of earlier traversals from a variable."""
        side, found = side_at(expand, near), 1.0
        for other in walked if side is not None else ():
            known = side_at(other, near) if near in (other.left, other.right) else None
            if side is not None and known is not None:
                pair = (min(side, known), max(side, known))
                skew = self._statistics.candidate_skews.get((near, *pair))
                found = max(found, self._statistics.skews.get(pair, 1.0) if skew is None else skew)
        return found

    def _is_column(self, expand: ir.Expand) -> bool:
        """Whether at one end of a traversal, no node has more than one edge."""
        side = side_at(expand, expand.left)
        degrees = None if side is None else self._statistics.edges[side.edge]
        return degrees is not None and 1 in (degrees.most_out, degrees.most_in)

    def keeps_rows(self, move: Move) -> bool:
        """Whether a step keeps about one row for each row, because each node has at most one edge of a traversal."""
        if move.expand is None or move.closing or move.end is not None:
            return False
        near, far = move.ends
        side = side_at(move.expand, near)
        degrees = None if side is None else self._statistics.edges[side.edge]
        if degrees is None or self.is_restricted(far):
            return False
        assert side is not None
        return (degrees.most_in if side.inward else degrees.most_out) == 1

    def is_restricted(self, name: str) -> bool:
        """Whether some nodes of a variable of the block are not candidates."""
        found = self._statistics.variables.get(name)
        return found is None or found.size < found.total

    def cost(self, move: Move, rows: float, first: bool) -> float:
        """Estimated cost of a step of a join order. The unit is the cost of walking one edge.

        Args:
            move: the step.
            rows: number of rows before the step.
            first: whether no variable is bound before the step.
        """
        after = self.after(move, rows)
        if move.condition is not None:
            return OPERATOR_COST_ROWS + rows
        if move.scan is not None:
            held = self.held(move.scan)
            trying = 0.0 if held.counted else _SCAN_TEST_COST_EDGES * held.total
            return OPERATOR_COST_ROWS + trying + (held.size if first else after)
        assert move.expand is not None
        if move.end is not None:
            return self._meet_cost(move, rows)
        walked = rows * self.walked(move.expand, forward=move.forward) * move.skew
        if move.in_order:
            walked *= IN_ORDER_WALK_COST_EDGES
        if move.closing:
            test = _COLUMN_TEST_COST_EDGES if self._is_column(move.expand) else _EDGE_TEST_COST_EDGES
            return OPERATOR_COST_ROWS + (test * rows if move.expand.hops is None else walked + after)
        left, right = self._ends(move.expand)
        far = right if move.forward else left
        trying = 0.0
        if not far.counted:
            trying = self._late_cost(move.expand, walked) if move.late else _SCAN_TEST_COST_EDGES * far.total
        return OPERATOR_COST_ROWS + walked + trying + after

    def _meet_cost(self, move: Move, rows: float) -> float:
        """Estimated cost of counting the paths from each node of one variable through another to a third."""
        assert move.expand is not None
        assert move.end is not None
        near, middle = move.ends
        nodes = min(rows, self.held(near).size)
        walked = nodes * self.walked(move.expand, forward=move.forward)
        held = self.held(middle)
        reached = nodes * self.joined(move.expand) * held.size
        trying = 0.0
        if not held.counted:
            trying = self._late_cost(move.expand, walked) if move.late else _SCAN_TEST_COST_EDGES * held.total
        kept = reached * self._early_share(move)
        paths = kept * self.walked(move.end, forward=move.end.left == middle) * move.skew
        return OPERATOR_COST_ROWS + walked + reached + trying + MEET_COST_EDGES * (paths + rows)

    def _early_share(self, move: Move) -> float:
        return prod(map(self.condition, move.early))

    def _late_cost(self, expand: ir.Expand, walked: float) -> float:
        return LATE_TEST_COST_EDGES * walked

    def is_late(self, expand: ir.Expand, rows: float, *, forward: bool) -> bool:
        """Whether to evaluate the conditions on the reached variable only on reached nodes, if this is cheaper."""
        left, right = self._ends(expand)
        far = right if forward else left
        walked = rows * self.walked(expand, forward=forward)
        return not far.counted and self._late_cost(expand, walked) < _SCAN_TEST_COST_EDGES * far.total


class JoinOrderSearch:
    """Search for the cheapest join order that binds the given variables and walks all edges between them.

    Args:
        names: variables to bind.
        expands: traversals to walk.
        conditions: join conditions; each is evaluated as soon as its variables are bound.
        bound: variables that are already bound.
        estimates: the cost model.
        needed: the variables that are needed after the last step, if duplicate rows may be merged; else None.
        weighted: variables whose nodes have weights, which are multiplied when the variable is bound.
        searches: the conditions that are text searches. They are not evaluated while edges are walked.
        values: for each condition on the result of an inner block, the variables that it needs. It is evaluated by
            other steps, as soon as they are bound.
    """

    def __init__(
        self,
        names: Sequence[str],
        expands: Sequence[ir.Expand],
        conditions: Conditions,
        bound: frozenset[str],
        estimates: Estimates,
        needed: frozenset[str] | None = None,
        weighted: frozenset[str] = frozenset(),
        searches: frozenset[int] = frozenset(),
        values: Sequence[frozenset[str]] = (),
    ) -> None:
        self._needed = needed
        self._values = values
        self._names = names
        self._expands = expands
        self._conditions = conditions
        self._before = bound
        self._estimates = estimates
        self._between = {} if needed is None or bound else dict(self._eliminable(needed | weighted, searches))
        self._starts = frozenset[str]()

    def _eliminable(self, needed: frozenset[str], searches: frozenset[int]) -> Iterator[tuple[str, _Between]]:
        """The variables that `Meet` can eliminate: they have two traversals, and conditions with one variable."""
        for name in self._names:
            mine = [place for place, e in enumerate(self._expands) if name in (e.left, e.right)]
            used = name in needed or any(name in names for names in self._values)
            if used or len(mine) != 2 or not can_meet(*(self._expands[place] for place in mine)):
                continue
            conditions = [(place, names) for place, names in self._conditions if name in names]
            places = tuple(place for place, _ in conditions)
            others = frozenset[str]().union(*(names for _, names in conditions)) - {name}
            if len(others) <= 1 and searches.isdisjoint(places):
                yield name, _Between(mine[0], mine[1], places, others)

    def best(self, rows: float) -> JoinOrder:
        """The cheapest order for a number of input rows.

        Of several orders with the same cost, the first that was found is returned. If it is expensive, and a variable
        can be eliminated, the cheapest order is searched for each variable that may be bound first: the cheapest way to
        a state may start at another variable than the one that paths have to be walked from.
        """
        order, states = self._search(rows)
        if not self._between or order.cost < MIN_COST_PER_STATE_EDGES * states:
            return order
        walked = (self._expands[at] for between in self._between.values() for at in (between.one, between.other))
        self._starts = frozenset(end for expand in walked for end in (expand.left, expand.right))
        return min(order, self._search(rows)[0], key=_cost)

    def _search(self, rows: float) -> tuple[JoinOrder, int]:
        """The cheapest order that the search finds, and the number of states that it looked at."""
        start = self._reduced(_State(self._before, frozenset()), JoinOrder((), rows, 0.0))
        layer, ended, states = {start[0]: start[1]}, list[JoinOrder](), 0
        while layer:
            states += len(layer)
            following: dict[_State, JoinOrder] = {}
            for state, order in layer.items():
                checkpoint()  # with hundreds of variables, the search takes long
                ends = True
                for next_state, next_order in self._next_moves(state, order):
                    ends = False
                    known = following.get(next_state)
                    if known is None or next_order.cost < known.cost:
                        following[next_state] = next_order
                if ends:
                    ended.append(order)
            layer = following
            if len(self._names) > MAX_EXHAUSTIVE_VARIABLES and len(layer) > BEAM_WIDTH:
                layer = dict(sorted(layer.items(), key=lambda found: found[1].cost + found[1].rows)[:BEAM_WIDTH])
        return min(ended, key=_cost), states

    def all_orders(self, rows: float) -> Iterator[JoinOrder]:
        """All possible orders. Only tests use it."""

        def onward(state: _State, order: JoinOrder) -> Iterator[JoinOrder]:
            following = list(self._next_moves(state, order))
            if not following:
                yield order
            for found in following:
                yield from onward(*found)

        yield from onward(*self._reduced(_State(self._before, frozenset()), JoinOrder((), rows, 0.0)))

    def _next_moves(self, state: _State, order: JoinOrder) -> Iterator[tuple[_State, JoinOrder]]:
        """All states that the next step can lead to, with their join orders.

        The step binds a variable, or walks several hops between bound variables.
        """
        bound = state.bound
        for place, expand in enumerate(self._expands):
            if place in state.walked:
                continue
            left, right = expand.left in bound, expand.right in bound
            if (
                left and right
            ):  # this is a walk of several hops; `_reduced` tests single hops, as soon as both variables are bound
                yield self._after_move(state, order, Move(expand=expand, closing=True), place)
            elif left or (right and expand.hops is None):
                late = self._estimates.is_late(expand, order.rows, forward=left)
                walked = (self._expands[earlier] for earlier in state.walked)
                near = expand.left if left else expand.right
                skew = self._estimates.skew(expand, near, walked)
                in_order = expand.hops is None and state.in_order == near
                move = Move(expand=expand, forward=left, late=late, skew=skew, in_order=in_order)
                yield self._after_move(state, order, move, place)
        for name in self._names:
            if name not in bound:
                yield self._after_move(state, order, Move(scan=name))
        for name, between in self._between.items() if order.moves else ():
            if name not in bound:
                yield from self._meets(state, order, name, between)

    def _meets(
        self, state: _State, order: JoinOrder, name: str, between: _Between
    ) -> Iterator[tuple[_State, JoinOrder]]:
        """Eliminate a variable between two bound variables. Paths are walked from the variable that is bound first.

        Rows are grouped by this variable, so that parts of the rows do not walk the same paths (see `parts`).
        Conditions on both of them are evaluated on the first edges of the paths.
        """
        for first, last in ((between.one, between.other), (between.other, between.one)):
            walk, end = self._expands[first], self._expands[last]
            near = walk.left if walk.right == name else walk.right
            far = end.left if end.right == name else end.right
            if near != far and near == order.moves[0].scan and far in state.bound and between.variables <= {near}:
                late = self._estimates.is_late(walk, order.rows, forward=walk.left == near)
                skew = self._estimates.skew(end, name, (walk,))
                early = between.conditions
                move = Move(expand=walk, forward=walk.left == near, late=late, end=end, early=early, skew=skew)
                yield self._after_move(state, order, move, first, last)

    def _after_move(self, state: _State, order: JoinOrder, move: Move, *places: int) -> tuple[_State, JoinOrder]:
        after = self._next_state(state, move, *places)
        extended = self._extended(order, move, first=not state.bound)
        return self._merged(*self._reduced(after, extended, state, move.early))

    def _merged(self, state: _State, order: JoinOrder) -> tuple[_State, JoinOrder]:
        """Limit the number of rows to the number of different rows of the variables that are still needed."""
        if self._needed is None or self._before:
            return state, order
        live = {name for name in state.bound if name in self._needed}
        for place, expand in enumerate(self._expands):
            if place not in state.walked:
                live |= state.bound & {expand.left, expand.right}
        for names in (*(names for _, names in self._conditions), *self._values):
            if not names <= state.bound:
                live |= state.bound & names
        if not live < state.bound or not live <= self._estimates.nodes:
            return state, order
        held = [self._estimates.held(name) for name in live]
        rows = min(order.rows, max(prod(found.size for found in held), 1.0))
        return state, JoinOrder(order.moves, rows, order.cost)

    def _next_state(self, state: _State, move: Move, *places: int) -> _State:
        if move.scan is not None:
            in_order = None if state.bound or self._estimates.is_restricted(move.scan) else move.scan
            start = move.scan if not state.bound and move.scan in self._starts else state.start
            return _State(state.bound | {move.scan}, state.walked, in_order, start)
        assert move.expand is not None
        expand = move.expand
        bound = state.bound | {expand.left, expand.right, *bound_by_expand(expand)}
        in_order = state.in_order if state.in_order and self._estimates.keeps_rows(move) else None
        return _State(bound, state.walked.union(places), in_order, state.start)

    def _extended(self, order: JoinOrder, move: Move, *, first: bool = False) -> JoinOrder:
        cost = self._estimates.cost(move, order.rows, first)
        return JoinOrder((*order.moves, move), self._estimates.after(move, order.rows), order.cost + cost)

    def _reduced(
        self, state: _State, order: JoinOrder, before: _State | None = None, evaluated: Sequence[int] = ()
    ) -> tuple[_State, JoinOrder]:
        """Add all steps that only remove rows: evaluate conditions, and test single hops between bound variables."""
        tried = before
        while True:
            for place, names in self._conditions:
                is_known = tried is not None and names <= tried.bound
                if names <= state.bound and not is_known and place not in evaluated:
                    order = self._extended(order, Move(condition=place))
                    state = _State(state.bound, state.walked, start=state.start)
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
                return state, order
            place, expand = min(closing, key=lambda found: (self._estimates.joined(found[1]), found[0]))
            move = Move(expand=expand, closing=True)
            state, order = self._next_state(state, move, place), self._extended(order, move)


@dataclass(frozen=True, slots=True)
class _Between:
    """A variable that `Meet` can eliminate.

    Attributes:
        one: one of its two traversals, as an index.
        other: the other traversal.
        conditions: the join conditions on the variable, as indices.
        variables: the other variables of these conditions, at most one.
    """

    one: int
    other: int
    conditions: tuple[int, ...]
    variables: frozenset[str]


@dataclass(frozen=True, slots=True)
class _State:
    """A state of the search.

    Attributes:
        bound: the variables that are bound.
        walked: the edges that are walked, as indices.
        in_order: the variable of which the rows are all nodes in order; None if there is none.
        start: the variable that was bound first, if states are told apart by it; else None.
    """

    bound: frozenset[str]
    walked: frozenset[int]
    in_order: str | None = None
    start: str | None = None


def _cost(order: JoinOrder) -> float:
    return order.cost
