"""Candidates: what each variable may hold by the conditions on it alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.evaluate import holds
from omnigraph.lang.query import ir
from omnigraph.read.context import Context
from omnigraph.read.match.frame import Binding, Frame, variables
from omnigraph.read.plan.remembered import remembered
from omnigraph.read.space.lookups import looked_up
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
    return numbers[marked]


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
        self.others: list[tuple[ir.Expr, frozenset[str]]] = []
        for expr in conjuncts(filters):
            names = variables(expr)
            (name,) = names if len(names) == 1 else ("",)
            if name in nodes:
                self._own.setdefault(name, []).append(expr)
            else:
                self.others.append((expr, names))

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
                conditions = " and ".join(map(ir.expression, self._own[name]))
                with trace.step("where", f"${name}: {' | '.join(self._nodes[name].types)} where {conditions}") as entry:
                    self._choose(name)
                entry.rows = sum(map(len, self._chosen[name]))
        return self._chosen[name]

    def _choose(self, name: str) -> None:
        self._chosen[name] = tuple(self._where(name, space) for space in self.spaces(name))

    def _where(self, name: str, space: Space) -> Numbers:
        context = self._context
        numbers, conditions = looked_up(name, self._own[name], space, context)
        context.budget.spend(len(numbers))
        for expr in conditions:
            frame = Frame(len(numbers), {name: Binding((space,), numbers)}, searching=context.search)
            numbers = _chosen(numbers, holds(expr, frame, context.request))
        return numbers

    def restricts(self, name: str) -> bool:
        """Whether there are conditions on a variable alone."""
        return name in self._own

    def narrow(self, name: str, allowed: Mask) -> None:
        """Leave out nodes of a variable that has one type."""
        (numbers,) = self.of(name)
        self._chosen[name] = (numbers[allowed.take(numbers)],)
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
