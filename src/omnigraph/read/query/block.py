"""A block of a compiled query: its conditions by variable, the types it refers to, and its cached join orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import combinations, count
from typing import Any, NamedTuple, TypeVar

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.query.expression import Expression, variables

_MAX_JOIN_ORDERS = 256
"""Maximum number of join orders that are cached per block."""


T = TypeVar("T")


class Side(NamedTuple):
    """The edges of a type, grouped by target node if `inward`, else by source node."""

    edge: str
    inward: bool


@dataclass(frozen=True)
class QueryBlock:
    """A `match`, `optional`, `not`, `exists` or `count` block.

    Attributes:
        block: the block in the IR.
        number: identifies the block in its query. Reduced copies of the block (see `without`) have the same number.
        optionals: optional blocks inside it.
        negations: negated blocks inside it.
        values: `exists` and `count` blocks inside it.
    """

    block: ir.Block
    number: int = 0
    optionals: tuple[QueryBlock, ...] = ()
    negations: tuple[QueryBlock, ...] = ()
    values: tuple[ValueBlock, ...] = ()
    _join_orders: dict[tuple[object, ...], Any] = field(default_factory=dict, compare=False, repr=False)
    _reduced: dict[tuple[str, ...], QueryBlock] = field(default_factory=dict, compare=False, repr=False)
    _derived: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, block: ir.Block, numbers: Iterator[int] | None = None) -> QueryBlock:
        """Make query blocks of an IR block and of the blocks inside it."""
        numbers = count() if numbers is None else numbers
        number = next(numbers)
        optionals = tuple(cls.of(inner, numbers) for inner in block.optionals)
        negations = tuple(cls.of(inner, numbers) for inner in block.negations)
        values = tuple(ValueBlock(v.name, v.function, cls.of(v.block, numbers)) for v in block.values)
        return cls(block, number, optionals, negations, values)

    @property
    def inner_blocks(self) -> tuple[QueryBlock, ...]:
        """The blocks inside it."""
        return (*self.optionals, *self.negations, *(value.block for value in self.values))

    @cached_property
    def nodes(self) -> dict[str, ir.NodeVar]:
        """Node variables that the block introduces, by name."""
        return {node.name: node for node in self.block.nodes}

    @cached_property
    def conditions(self) -> tuple[Expression, ...]:
        """The conditions of the block. Filters that are joined with `and` are split into several conditions."""
        return tuple(map(Expression, _conjuncts(self.block.filters)))

    @cached_property
    def own_conditions(self) -> dict[str, tuple[Expression, ...]]:
        """For each node variable of the block, the conditions that refer to it and to no other variable."""
        found: dict[str, tuple[Expression, ...]] = {}
        for condition in self.conditions:
            name = self._only_variable(condition)
            if name is not None:
                found[name] = (*found.get(name, ()), condition)
        return found

    @cached_property
    def join_conditions(self) -> tuple[Expression, ...]:
        """All other conditions (not in `own_conditions`): on several variables, or on variables of an outer block."""
        return tuple(condition for condition in self.conditions if self._only_variable(condition) is None)

    def _only_variable(self, condition: Expression) -> str | None:
        (name,) = condition.variables if len(condition.variables) == 1 else (None,)
        return name if name in self.nodes else None

    @cached_property
    def node_types(self) -> tuple[str, ...]:
        """Node types at the ends of the traversals of this block and the blocks inside it."""
        return tuple(dict.fromkeys(name for step in self._steps for name in (step.left_type, step.right_type)))

    @cached_property
    def edge_types(self) -> tuple[str, ...]:
        """Edge types of the traversals of this block and the blocks inside it."""
        return tuple(dict.fromkeys(step.edge for step in self._steps))

    @cached_property
    def multi_hop_edge_types(self) -> frozenset[str]:
        """Edge types that this block walks for a range of hops."""
        expands = (expand for expand in self.block.expands if expand.hops is not None)
        return frozenset(step.edge for expand in expands for step in expand.steps)

    @cached_property
    def sides(self) -> dict[str, list[Side]]:
        """For each variable, the edge types that are walked from it for one hop in one direction."""
        at: dict[str, list[Side]] = {}
        for expand in self.block.expands:
            for name in (expand.left, expand.right):
                side = side_at(expand, name)
                if side is not None and expand.left != expand.right:
                    at.setdefault(name, []).append(side)
        return at

    @cached_property
    def meeting_sides(self) -> tuple[tuple[Side, Side], ...]:
        """Pairs of edge types that meet at a variable of this block: each is walked for one hop in one direction."""
        pairs = (tuple(sorted(pair)) for sides in self.sides.values() for pair in combinations(sides, 2))
        return tuple(dict.fromkeys((one, other) for one, other in pairs))

    @property
    def _steps(self) -> Iterator[ir.Step]:
        return (step for part in walk(self.block) if isinstance(part, ir.Expand) for step in part.steps)

    @cached_property
    def joined_variables(self) -> frozenset[str]:
        """Variables of this block that its join conditions and its inner blocks refer to."""
        found: set[str] = set()
        for condition in self.join_conditions:
            found |= condition.variables
        for inner in self.inner_blocks:
            found |= {*inner.block.outer}
        return frozenset(found)

    @cached_property
    def introduced(self) -> frozenset[str]:
        """Variables that a left join with this block adds to the rows.

        They are null in rows for which the block has no match.
        """
        found = {*self.nodes}
        for expand in self.block.expands:
            found |= {*bound_by_expand(expand)}
        for inner in self.optionals:
            found |= inner.introduced
        return frozenset(found)

    @cached_property
    def without_unused_optionals(self) -> QueryBlock:
        """The block without its optional blocks, if no other clause refers to their variables; else the block itself.

        An optional block never removes rows. The other variables have the same combinations of values without it.
        """
        inside = {name for optional in self.optionals for name in optional.introduced}
        inner_blocks = (*self.negations, *(value.block for value in self.values))
        used = {name for inner in inner_blocks for name in inner.block.outer} | variables(self.block.filters)
        used |= {name for expand in self.block.expands for name in (expand.left, expand.right)}
        if not inside or inside & used:
            return self
        return replace(
            self, block=replace(self.block, optionals=()), optionals=(), _join_orders={}, _reduced={}, _derived={}
        )

    @cached_property
    def with_outer_nodes(self) -> QueryBlock:
        """A copy of the block in which outer node variables are its own, if its traversals give them one node type.

        The block itself if there are none. Both have the same number.
        """
        found: dict[str, set[str]] = {}
        for expand in self.block.expands:
            for step in expand.steps:
                found.setdefault(expand.left, set()).add(step.left_type)
                found.setdefault(expand.right, set()).add(step.right_type)
        nodes = tuple(
            ir.NodeVar(name, tuple(found[name])) for name in self.block.outer if len(found.get(name, ())) == 1
        )
        if not nodes:
            return self
        outer = tuple(name for name in self.block.outer if name not in {node.name for node in nodes})
        block = replace(self.block, nodes=(*nodes, *self.block.nodes), outer=outer)
        return replace(self, block=block, _join_orders={}, _reduced={}, _derived={})

    def without(self, names: Sequence[str], expands: Sequence[ir.Expand]) -> QueryBlock:
        """A reduced copy of the block, without the given variables, their conditions and the given traversals.

        No other variable is in a condition with a removed one. Copies are cached by variables.
        """
        key = tuple(names)
        if key not in self._reduced:
            rest = replace(
                self.block,
                nodes=tuple(node for node in self.block.nodes if node.name not in key),
                expands=tuple(e for e in self.block.expands if not any(e is removed for removed in expands)),
                filters=tuple(c.expr for c in self.conditions if c.variables.isdisjoint(key)),
            )
            self._reduced[key] = replace(self, block=rest, _join_orders={}, _reduced={}, _derived={})
        return self._reduced[key]

    def derived(self, make: Callable[[QueryBlock], T]) -> T:
        """The result of a function of this block. It is computed once."""
        if make not in self._derived:
            self._derived[make] = make(self)
        found: T = self._derived[make]
        return found

    def without_negations(self, places: frozenset[int]) -> QueryBlock:
        """A copy of the block without the negated blocks at some indices. Copies are cached."""
        return self._without_inner(frozenset(), places)

    def without_optionals(self, places: frozenset[int]) -> QueryBlock:
        """A copy of the block without the optional blocks at some indices. Copies are cached."""
        return self._without_inner(places, frozenset())

    def without_value_conditions(self, conditions: frozenset[int], values: frozenset[int]) -> QueryBlock:
        """A copy of the block without some join conditions and `exists` or `count` blocks, by index.

        Copies are cached.
        """
        key = ("value conditions", conditions, values)
        if not conditions and not values:
            return self
        if key not in self._derived:
            removed = [self.join_conditions[place] for place in conditions]
            kept = [value for place, value in enumerate(self.values) if place not in values]
            self._derived[key] = replace(
                self,
                block=replace(
                    self.block,
                    filters=tuple(c.expr for c in self.conditions if not any(c is each for each in removed)),
                    values=tuple(v for place, v in enumerate(self.block.values) if place not in values),
                ),
                values=tuple(kept),
                _join_orders={},
                _reduced={},
                _derived={},
            )
        found: QueryBlock = self._derived[key]
        return found

    def _without_inner(self, optionals: frozenset[int], negations: frozenset[int]) -> QueryBlock:
        key = (optionals, negations)
        if not optionals and not negations:
            return self
        if key not in self._derived:
            kept = [inner for place, inner in enumerate(self.optionals) if place not in optionals]
            kept_negations = [inner for place, inner in enumerate(self.negations) if place not in negations]
            self._derived[key] = replace(
                self,
                block=replace(
                    self.block,
                    optionals=tuple(inner.block for inner in kept),
                    negations=tuple(inner.block for inner in kept_negations),
                ),
                optionals=tuple(kept),
                negations=tuple(kept_negations),
                _join_orders={},
                _reduced={},
                _derived={},
            )
        found: QueryBlock = self._derived[key]
        return found

    def join_order(self, key: tuple[object, ...]) -> Any:
        """A cached join order, or None."""
        return self._join_orders.get(key)

    def keep_join_order(self, key: tuple[object, ...], order: Any) -> None:
        """Cache a join order for later runs of the query."""
        if len(self._join_orders) >= _MAX_JOIN_ORDERS:
            self._join_orders.clear()
        self._join_orders[key] = order


@dataclass(frozen=True)
class ValueBlock:
    """An `exists` or `count` block, whose result is a value of the rows of the block around it.

    Attributes:
        name: the name of the value.
        function: which value: whether the block has a match, or the number of its matches.
        block: the block.
    """

    name: str
    function: ir.BlockFunction
    block: QueryBlock


def _conjuncts(filters: tuple[ir.Expr, ...]) -> Iterator[ir.Expr]:
    for expr in filters:
        if isinstance(expr, ir.And):
            yield from _conjuncts(expr.terms)
        else:
            yield expr


def side_at(expand: ir.Expand, name: str) -> Side | None:
    """The edges of a traversal, grouped by the node at one of its variables.

    None if the traversal walks several edge types, several hops, or both directions.
    """
    (step, *others) = expand.steps
    if others or expand.hops is not None or step.direction is ir.Direction.BOTH:
        return None
    return Side(step.edge, (step.direction is ir.Direction.IN) == (name == expand.left))


def bound_by_expand(expand: ir.Expand) -> Iterator[str]:
    """Edge and path variables of a traversal."""
    if expand.edge_var is not None:
        yield expand.edge_var.name
    if expand.path_var is not None:
        yield expand.path_var
