"""Plans: in which order the parts of a block are solved, and about how many rows there are after each.

The order depends on the sizes of tables and on how many nodes satisfy the conditions on each variable alone, never on
the rows in between: it is known before the first step is taken, and the same for the same data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.lang.query import ir
from omnigraph.lang.query.ir.text import expansion, expression
from omnigraph.read.context import Context
from omnigraph.read.match.candidates import Candidates

_FAR = 8
"""Beyond so many hops, walking on is taken to find nothing new."""

_KEPT = 1 / 3
_KEPT_EQUAL = 1 / 10
"""The share of rows that a condition on several variables is taken to keep, and one that wants something equal."""

_WITHOUT = 1 / 2
"""The share of rows for which a block is taken to have no solution."""


class Action(StrEnum):
    """What a step does."""

    SCAN = "scan"
    """Take every node that a variable may hold."""
    PRODUCT = "product"
    """The same for every row there is: nothing connects the variable with those before it."""
    EXPAND = "expand"
    """Walk from one end of edges to the other."""
    MEET = "meet"
    """Keep rows whose two nodes an edge joins."""
    REACH = "reach"
    """Walk several hops."""
    FILTER = "filter"
    """Keep rows for which a condition holds."""
    OPTIONAL = "optional"
    """Join the solutions of a block to each row, or nothing."""
    NOT = "not"
    """Keep rows for which a block has no solution."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a plan.

    Attributes:
        part: what is done: a variable to be bound, edges to be walked, a condition, or a block.
        estimate: about how many rows there are after it.
        reversed: whether edges are walked from right to left.
    """

    action: Action
    part: ir.NodeVar | ir.Expand | ir.Expr | ir.Block
    estimate: float
    reversed: bool = False

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


class Plan:
    """The steps that solve a block.

    Args:
        block: the block.
        bound: the variables that have a value before.
        rows: how many rows there are before.
        candidates: what each variable of the block may hold.
        context: the read.
    """

    def __init__(
        self, block: ir.Block, bound: Iterable[str], rows: float, candidates: Candidates, context: Context
    ) -> None:
        self._block = block
        self._candidates = candidates
        self._context = context
        self._nodes = {node.name: node for node in block.nodes}
        self._filters = list(candidates.others)
        self._expands = list(block.expands)
        self.bound = set(bound)
        """The variables that have a value after the steps so far."""
        self.rows = rows
        """About how many rows there are after the steps so far."""

    def __iter__(self) -> Iterator[Step]:
        """The steps, in order. To be used once."""
        yield from self._bind(self._without_optionals())
        for optional in self._block.optionals:
            yield from self._bind([name for name in optional.outer if name in self._nodes])
            yield Step(Action.OPTIONAL, optional, self.rows)
            self.bound |= _introduced(optional)
        yield from self._bind(list(self._nodes))
        for negation in self._block.negations:
            self.rows *= _WITHOUT
            yield Step(Action.NOT, negation, self.rows)

    def _without_optionals(self) -> list[str]:
        """The variables that no chain of edges joins with one of an optional block: they can be bound at once."""
        joined = {e.left for e in self._expands} | {e.right for e in self._expands}
        waiting = joined - self._nodes.keys() - self.bound
        grown = True
        while grown:
            more = {name for e in self._expands for name in (e.left, e.right) if {e.left, e.right} & waiting}
            grown = not more <= waiting
            waiting |= more
        return [name for name in self._nodes if name not in waiting]

    def _bind(self, names: list[str]) -> Iterator[Step]:
        """Bind some variables at least, and walk every expand that can be walked from what is bound."""
        while True:
            yield from self._filter()
            expand = self._next()
            if expand is not None:
                self._expands.remove(expand)
                yield from self._expand(expand)
                continue
            missing = [name for name in names if name not in self.bound]
            if not missing:
                return
            yield self._scan(min(missing, key=self._candidates.size))

    def _filter(self) -> Iterator[Step]:
        """Every condition whose variables are all bound."""
        ready = [expr for expr, names in self._filters if names <= self.bound]
        self._filters = [(expr, names) for expr, names in self._filters if not names <= self.bound]
        for expr in ready:
            self.rows *= _share(expr)
            yield Step(Action.FILTER, expr, self.rows)

    def _scan(self, name: str) -> Step:
        action = Action.PRODUCT if self.bound else Action.SCAN
        self.bound.add(name)
        self.rows *= self._candidates.size(name)
        return Step(action, self._nodes[name], self.rows)

    def _next(self) -> ir.Expand | None:
        """The expand to walk next: one whose ends are both bound, else the one that leads to the fewest rows."""
        bound = self.bound
        closing = [e for e in self._expands if e.left in bound and e.right in bound]
        if closing:
            return min(closing, key=lambda e: e.hops is not None)
        ready = [
            e
            for e in self._expands
            if (e.left in bound and e.right in self._nodes) or (e.right in bound and e.left in self._nodes)
        ]
        return min(ready, key=self._growth, default=None)

    def _expand(self, expand: ir.Expand) -> Iterator[Step]:
        if expand.hops is not None and expand.left not in self.bound:
            # Distances are counted from the left.
            yield self._scan(expand.left)
        backwards = expand.left not in self.bound
        closes = not backwards and expand.right in self.bound
        self.rows *= self._meeting(expand) if closes else self._growth(expand)
        self.bound |= {expand.left, expand.right, *_held(expand)}
        action = Action.REACH if expand.hops is not None else Action.MEET if closes else Action.EXPAND
        yield Step(action, expand, self.rows, backwards)

    def _growth(self, expand: ir.Expand) -> float:
        """About how many rows an expand makes of one."""
        forward = expand.left in self.bound
        far = expand.right if forward else expand.left
        share = self._candidates.size(far) / max(sum(space.count for space in self._candidates.spaces(far)), 1)
        return self._degree(expand, forward=forward) * share

    def _degree(self, expand: ir.Expand, *, forward: bool) -> float:
        """About how many nodes an expand leads to from one."""
        total = 0.0
        for step in expand.steps:
            near_type = step.left_type if forward else step.right_type
            edges = self._context.spaces.edges(step.edge).count
            total += edges / max(self._context.spaces.nodes(near_type).count, 1)
        if expand.hops is not None:
            total = max(total, 1.0) ** min(expand.hops.max or _FAR, _FAR)
        return total

    def _meeting(self, expand: ir.Expand) -> float:
        """About the share of rows whose two nodes an expand joins."""
        there = sum(self._context.spaces.nodes(name).count for name in {step.right_type for step in expand.steps})
        return min(1.0, self._degree(expand, forward=True) / max(there, 1))


def _share(expr: ir.Expr) -> float:
    """About the share of rows for which a condition holds."""
    match expr:
        case ir.SameEntity(negated=negated):
            return 1 - _KEPT_EQUAL if negated else _KEPT_EQUAL
        case ir.Compare(op=ir.CompareOp.EQ):
            return _KEPT_EQUAL
        case ir.Compare(op=ir.CompareOp.NE):
            return 1 - _KEPT_EQUAL
    return _KEPT


def _held(expand: ir.Expand) -> Iterator[str]:
    """The edge and path variables of an expand."""
    if expand.edge_var is not None:
        yield expand.edge_var.name
    if expand.path_var is not None:
        yield expand.path_var


def _introduced(block: ir.Block) -> set[str]:
    """The variables that an optional block brings in."""
    found = {node.name for node in block.nodes}
    for expand in block.expands:
        found |= {*_held(expand)}
    for inner in block.optionals:
        found |= _introduced(inner)
    return found
