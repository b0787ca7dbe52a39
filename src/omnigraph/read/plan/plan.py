"""Plans: in which steps a block is solved, and about how many rows there are after each.

A plan depends on the block, on what is bound before it, and on statistics. Sizes are rounded to powers of two, so that
a query that runs again with other values has its plan already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.lang.query import ir
from omnigraph.lang.query.ir.text import expansion, expression
from omnigraph.read.plan.order import Estimates, Move, Ordering, held
from omnigraph.read.plan.statistics import Statistics, rounded_rows

_WITHOUT = 1 / 2
"""The share of rows for which a block is taken to have no solution."""

_MOST = 4096
"""How many plans are kept."""


class Operator(StrEnum):
    """What a step does."""

    LOOKUP = "lookup"
    """Find nodes by id or key."""
    INDEX = "index lookup"
    """Find nodes by an index of a property."""
    WHERE = "where"
    """Find the nodes of a type for which conditions hold, before anything is walked."""
    SCAN = "scan"
    """Take every node that a variable may hold."""
    PRODUCT = "product"
    """The same for every row there is: nothing connects the variable with those before it."""
    EXPAND = "expand"
    """Walk from one end of edges to the other."""
    MEMBER = "membership"
    """Keep rows whose two nodes an edge joins."""
    REACH = "reach"
    """Walk several hops."""
    SHORTEST = "shortest"
    """The same, with the shortest path to each node."""
    FILTER = "filter"
    """Keep rows for which a condition holds."""
    LEFT = "left join"
    """Join the solutions of an optional block to each row, or nothing."""
    ANTI = "anti join"
    """Keep rows for which a block has no solution."""
    COUNT = "count"
    """Count by degree what need not be listed."""
    RANK = "rank"
    """Find the best nodes of a variable before their rows are listed."""
    PORTIONS = "portions"
    """Match a portion at a time, in the order of the result, until there are enough rows."""
    AGGREGATE = "aggregate"
    HAVING = "having"
    """Keep groups for which a condition holds."""
    DISTINCT = "distinct"
    SORT = "sort"
    TOP = "top"
    """Sort only what comes first."""
    PROJECT = "project"
    """Fetch the values of what is returned."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a plan.

    Attributes:
        part: what is done: a variable to be bound, edges to be walked, a condition, or a block.
        move: the move of the order that it is; None for blocks.
    """

    operator: Operator
    part: ir.NodeVar | ir.Expand | ir.Expr | ir.Block
    move: Move | None = None

    @property
    def reversed(self) -> bool:
        """Whether edges are walked from right to left."""
        return self.move is not None and not self.move.forward

    @property
    def late(self) -> bool:
        """Whether the conditions on the variable that is walked to are tried on what was reached."""
        return self.move is not None and self.move.late

    @property
    def text(self) -> str:
        """What is done, for people."""
        match self.part:
            case ir.NodeVar(name=name, types=types):
                return f"${name}: {' | '.join(types) or 'nothing'}"
            case ir.Expand():
                return expansion(self.part).removeprefix("expand ") + (" (from the right)" if self.reversed else "")
            case ir.Block(outer=outer):
                return f"for each {', '.join(f'${name}' for name in outer)}" if outer else ""
        return expression(self.part)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that solve a block.

    Attributes:
        steps: the steps, in order.
        rows: about how many rows there are in the end.
        cost: what the steps cost together, in edges that are walked.
    """

    steps: tuple[Step, ...]
    rows: float
    cost: float

    def estimates(self, rows: float, statistics: Statistics) -> list[float]:
        """About how many rows there are after each step, for so many before."""
        expected, found = Estimates(statistics), []
        for step in self.steps:
            if step.move is not None:
                rows = expected.after(step.move, rows)
            elif step.operator is Operator.ANTI:
                rows *= _WITHOUT
            found.append(rows)
        return found


Conditions = Sequence[tuple[ir.Expr, frozenset[str]]]
"""Conditions that are not about one variable of the block alone, with their variables."""

_made: dict[tuple[object, ...], tuple[ir.Block, Plan]] = {}


def planned(
    block: ir.Block, conditions: Conditions, bound: frozenset[str], rows: float, statistics: Statistics
) -> Plan:
    """The plan of a block; the one from before, when it is asked for again.

    Args:
        block: the block.
        conditions: those of its conditions that are not about one of its variables alone.
        bound: the variables that have a value before.
        rows: how many rows there are before.
        statistics: about what the block mentions.
    """
    key = (id(block), bound, rounded_rows(rows), statistics.key())
    known = _made.get(key)
    if known is not None and known[0] is block:
        return known[1]
    plan = _Planner(block, conditions, bound, rounded_rows(rows), statistics.rounded()).plan()
    if len(_made) >= _MOST:
        _made.clear()
    # The block is held too, so that no other gets its place in memory.
    _made[key] = (block, plan)
    return plan


class _Planner:
    def __init__(
        self, block: ir.Block, conditions: Conditions, bound: frozenset[str], rows: float, statistics: Statistics
    ) -> None:
        self._block = block
        self._conditions = conditions
        self._nodes = {node.name: node for node in block.nodes}
        self._expands = list(block.expands)
        self._left = [(place, names) for place, (_, names) in enumerate(conditions)]
        self._estimates = Estimates(statistics)
        self._bound = set(bound)
        self._rows = rows
        self._cost = 0.0

    def plan(self) -> Plan:
        return Plan(tuple(self._steps()), self._rows, self._cost)

    def _steps(self) -> Iterator[Step]:
        yield from self._bind(self._without_optionals())
        for optional in self._block.optionals:
            yield from self._bind([name for name in optional.outer if name in self._nodes])
            self._cost += self._estimates.block(optional, self._rows)
            yield Step(Operator.LEFT, optional)
            self._bound |= introduced(optional)
        yield from self._bind(list(self._nodes))
        for negation in self._block.negations:
            self._cost += self._estimates.block(negation, self._rows)
            self._rows *= _WITHOUT
            yield Step(Operator.ANTI, negation)

    def _without_optionals(self) -> list[str]:
        """The variables that no chain of edges joins with one of an optional block: they can be bound at once."""
        waiting = _closure(
            ({e.left for e in self._expands} | {e.right for e in self._expands}) - self._nodes.keys() - self._bound,
            self._expands,
        )
        return [name for name in self._nodes if name not in waiting]

    def _bind(self, names: Sequence[str]) -> Iterator[Step]:
        """Bind some variables at least, and walk every expand that can be walked from what is bound."""
        known = self._bound | self._nodes.keys()
        possible = [e for e in self._expands if e.left in known and e.right in known]
        reached = _closure(self._bound | set(names), possible)
        expands = [e for e in possible if e.left in reached]
        wanted = [name for name in self._nodes if name in reached and name not in self._bound]
        ordering = Ordering(wanted, expands, self._left, frozenset(self._bound), self._estimates)
        way = ordering.best(self._rows)
        self._rows, self._cost = way.rows, self._cost + way.cost
        self._expands = [e for e in self._expands if not any(e is walked for walked in expands)]
        first = not self._bound
        for move in way.moves:
            yield self._step(move, first=first)
            first = False
        self._bound |= {*wanted, *(name for e in expands for name in held(e))}
        tried = {move.condition for move in way.moves}
        self._left = [(place, names_) for place, names_ in self._left if place not in tried]

    def _step(self, move: Move, *, first: bool) -> Step:
        if move.condition is not None:
            return Step(Operator.FILTER, self._conditions[move.condition][0], move)
        if move.scan is not None:
            return Step(Operator.SCAN if first else Operator.PRODUCT, self._nodes[move.scan], move)
        assert move.expand is not None
        if move.expand.path_var is not None:
            return Step(Operator.SHORTEST, move.expand, move)
        if move.expand.hops is not None:
            return Step(Operator.REACH, move.expand, move)
        return Step(Operator.MEMBER if move.closing else Operator.EXPAND, move.expand, move)


def _closure(names: set[str], expands: Sequence[ir.Expand]) -> set[str]:
    """Some variables, and all that chains of edges join with them."""
    found = set(names)
    grown = True
    while grown:
        more = {name for e in expands if {e.left, e.right} & found for name in (e.left, e.right)} - found
        found |= more
        grown = bool(more)
    return found


def binds(step: Step) -> frozenset[str]:
    """The variables that have a value after a step."""
    match step.part:
        case ir.NodeVar(name=name):
            return frozenset({name})
        case ir.Expand() as expand:
            return frozenset({expand.left, expand.right, *held(expand)})
        case ir.Block() as block if step.operator is Operator.LEFT:
            return frozenset(introduced(block))
    return frozenset()


def introduced(block: ir.Block) -> set[str]:
    """The variables that an optional block brings in."""
    found = {node.name for node in block.nodes}
    for expand in block.expands:
        found |= {*held(expand)}
    for inner in block.optionals:
        found |= introduced(inner)
    return found
