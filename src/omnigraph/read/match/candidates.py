"""Candidates: what each variable may hold by the conditions on it alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.query import ir
from omnigraph.read.context import Context
from omnigraph.read.match.frame import Binding, Frame, variables
from omnigraph.read.match.values import values_of
from omnigraph.read.plan.plan import Operator
from omnigraph.read.plan.remembered import remembered
from omnigraph.read.plan.shares import share
from omnigraph.read.plan.statistics import Held
from omnigraph.read.portions import true_of
from omnigraph.read.space.lookups import are_found_by_id, looked_up
from omnigraph.read.space.space import Mask, Numbers, Space


@remembered
def conjuncts(filters: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
    """Conditions of which each must hold by itself."""
    return tuple(_conjuncts(filters))


def _conjuncts(filters: tuple[ir.Expr, ...]) -> Iterator[ir.Expr]:
    for expr in filters:
        if isinstance(expr, ir.And):
            yield from _conjuncts(expr.terms)
        else:
            yield expr


_SPARSE = 16
"""With less than one row of so many, those are listed; else all are marked."""


def _chosen(numbers: Numbers, mask: pa.BooleanArray) -> Numbers:
    """The entities for which a condition holds."""
    if mask.true_count * _SPARSE < len(mask):
        found: Numbers = pc.indices_nonzero(mask).to_numpy().astype(np.int64)
        return numbers.take(found)
    marked: Mask = mask.to_numpy(zero_copy_only=False)
    places = np.flatnonzero(marked)
    # They ascend, so these are all from zero on.
    return places if len(numbers) and int(numbers[-1]) == len(numbers) - 1 else numbers.take(places)


@remembered
def _bounded(expr: ir.Expr) -> tuple[str, str] | None:
    """The property that a condition compares with a value; None for other conditions."""
    match expr:
        case ir.Compare(op, ir.Prop(var=var, name=name), ir.Const() | ir.Param()) if op in _BOUNDS:
            return var, name
    return None


_BOUNDS = frozenset({ir.CompareOp.LT, ir.CompareOp.LE, ir.CompareOp.GT, ir.CompareOp.GE})


_TRIED = 20_000
"""Up to so many nodes, the conditions on a variable are tried to find out how many satisfy them."""


class Candidates:
    """The nodes that the variables of a block may hold.

    Args:
        nodes: the variables.
        filters: conditions.
        context: the read.

    Attributes:
        others: the conditions that are about more than one of the variables, or about others, with their variables.
    """

    def __init__(self, nodes: Mapping[str, ir.NodeVar], filters: tuple[ir.Expr, ...], context: Context) -> None:
        self._nodes = nodes
        self._context = context
        self._spaces: dict[str, tuple[Space, ...]] = {}
        self._chosen: dict[str, tuple[Numbers, ...]] = {}
        self._own: dict[str, list[ir.Expr]] = {}
        self._found_by = Operator.WHERE
        self.others: list[tuple[ir.Expr, frozenset[str]]] = []
        for expr in conjuncts(filters):
            names = variables(expr)
            (name,) = names if len(names) == 1 else ("",)
            if name in nodes:
                self._own.setdefault(name, []).append(expr)
            else:
                self.others.append((expr, names))

    @classmethod
    def of_block(cls, block: ir.Block, context: Context) -> Candidates:
        """What the variables of a block may hold."""
        return cls({node.name: node for node in block.nodes}, block.filters, context)

    def spaces(self, name: str) -> tuple[Space, ...]:
        if name not in self._spaces:
            self._spaces[name] = tuple(self._context.spaces.nodes(t) for t in self._nodes[name].types)
        return self._spaces[name]

    def of(self, name: str) -> tuple[Numbers, ...]:
        """The nodes that a variable may hold, for each of its types."""
        if name not in self._own:
            return tuple(space.everything() for space in self.spaces(name))
        if name not in self._chosen:
            trace = self._context.trace
            if trace is None:
                self._choose(name)
            else:
                with trace.step(Operator.WHERE, self.text(name), self.expected(name)) as entry:
                    self._choose(name)
                entry.action = self._found_by
                entry.rows = sum(map(len, self._chosen[name]))
                entry.size = sum(numbers.nbytes for numbers in self._chosen[name])
        return self._chosen[name]

    def text(self, name: str) -> str:
        """A variable and the conditions on it alone, for people."""
        typed = f"${name}: {' | '.join(self._nodes[name].types) or 'nothing'}"
        conditions = " and ".join(map(ir.expression, self._own.get(name, ())))
        return f"{typed} where {conditions}" if conditions else typed

    def _choose(self, name: str) -> None:
        self._chosen[name] = tuple(self._where(name, space) for space in self.spaces(name))

    def _where(self, name: str, space: Space) -> Numbers:
        context = self._context
        numbers, conditions = looked_up(name, self._own[name], space, context)
        if len(conditions) < len(self._own[name]):
            self._found_by = Operator.LOOKUP
        else:
            self._found_by = Operator.WHERE if len(numbers) == space.count else Operator.INDEX
        return self._satisfying(name, space, numbers, conditions)

    def _satisfying(self, name: str, space: Space, numbers: Numbers, conditions: Sequence[ir.Expr]) -> Numbers:
        """Those of some nodes for which conditions hold."""
        context = self._context
        context.budget.spend(len(numbers))
        todo = list(conditions)
        while todo:
            frame = Frame(len(numbers), {name: Binding((space,), numbers)}, searching=context.search)
            expr = todo.pop(0)
            mask = true_of(expr, frame, context.request)
            while todo and (bounded := _bounded(expr)) is not None and _bounded(todo[0]) == bounded:
                # The other end of a range: the values are at hand.
                mask = pc.and_(mask, true_of(todo.pop(0), frame, context.request))
            numbers = _chosen(numbers, mask)
        return numbers

    def restricts(self, name: str) -> bool:
        """Whether there are conditions on a variable alone."""
        return name in self._own

    def narrow(self, name: str, allowed: Mask) -> None:
        """Leave out nodes of a variable that has one type."""
        (numbers,) = self.of(name)
        kept = allowed.take(numbers)
        if not kept.all():
            self.choose(name, numbers[kept])

    def choose(self, name: str, numbers: Numbers) -> None:
        """Leave out all but some of the nodes that a variable of one type may hold."""
        self._chosen[name] = (numbers,)
        self._own.setdefault(name, [])

    def only(self, name: str, chosen: tuple[Numbers, ...]) -> Candidates:
        """The same, where a variable may hold some of its nodes only. What is left out later is left out there only."""
        found = copy(self)
        found._chosen = {**self._chosen, name: chosen}
        found._own = {name: [], **self._own}
        return found

    def is_chosen(self, name: str) -> bool:
        """Whether the conditions on a variable were tried, or there are none."""
        return name not in self._own or name in self._chosen

    def held(self, name: str) -> Held:
        """How many nodes a variable may hold. Conditions are tried where that is quick."""
        there = sum(space.count for space in self.spaces(name))
        if name not in self._own:
            return Held(there, there)
        if name not in self._chosen and there > _TRIED and not self._are_found_by_id(name):
            return Held(there, self.expected(name), counted=False)
        return Held(there, sum(len(numbers) for numbers in self.of(name)))

    def _are_found_by_id(self, name: str) -> bool:
        own = self._own[name]
        return all(are_found_by_id(own, space, self._context) for space in self.spaces(name))

    def expected(self, name: str) -> float:
        """About how many nodes satisfy the conditions on a variable alone."""
        there = sum(space.count for space in self.spaces(name))
        kept = float(there)
        for expr in self._own.get(name, ()):
            kept *= share(expr, lambda _, prop: values_of(self.spaces(name), prop, self._context), self._params)
        return kept

    @property
    def _params(self) -> Mapping[str, ir.ConstValue]:
        return self._context.request.params

    def own(self, name: str) -> Sequence[ir.Expr]:
        """The conditions on a variable alone."""
        return self._own.get(name, ())

    def knows(self, name: str) -> bool:
        """Whether a variable is one of these."""
        return name in self._nodes

    def among(self, name: str, numbers: Numbers) -> Numbers:
        """Those of some nodes that a variable of one type may hold."""
        (space,) = self.spaces(name)
        return self._satisfying(name, space, numbers, self._own.get(name, ()))

    def narrow_to(self, name: str, numbers: Numbers) -> None:
        """Leave out all but some nodes, ascending, of a variable that has one type."""
        if self.is_chosen(name):
            kept = self.masks(name)[0]
            self._chosen[name] = (numbers if kept is None else numbers[kept.take(numbers)],)
        else:
            self._chosen[name] = (self.among(name, numbers),)
        self._own.setdefault(name, [])

    def size(self, name: str) -> int:
        if name not in self._own:
            return sum(space.count for space in self.spaces(name))
        return sum(len(numbers) for numbers in self.of(name))

    def masks(self, name: str) -> list[Mask | None]:
        """The same as masks; None where everything is allowed."""
        if name not in self._own:
            return [None for _ in self.spaces(name)]
        masks: list[Mask | None] = []
        for space, numbers in zip(self.spaces(name), self.of(name), strict=True):
            mask = np.zeros(space.slots, bool)
            mask[numbers] = True
            masks.append(mask)
        return masks
