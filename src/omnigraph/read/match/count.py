"""Counting without listing: what only has to be counted is counted from how many neighbours nodes have.

A grouped read looks at some variables: those that it groups by, or computes something from. All others only decide how
many rows there are. Where such a variable hangs on one other, the rows of its nodes are added up there, and it is
gone; and so on. What is left is listed, and each of its rows stands for as many as were added up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np

from omnigraph.errors import ExecutionError
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.expand import adjacencies, reversed_steps
from omnigraph.read.match.frame import Frame, variables
from omnigraph.read.match.hops import Walk
from omnigraph.read.match.match import solve
from omnigraph.read.space.space import Mask, Numbers
from omnigraph.read.topology.adjacency import Adjacency

_LARGEST = float(2**63 - 2**40)
"""The largest number of rows; a little less than what an I64 holds, since it is compared as a float."""

_FEW = 8
"""Where no more than one of so many nodes may stand at the other end, only the edges of those are looked at."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A variable that is counted.

    Attributes:
        name: the variable.
        onto: the one that it hangs on; None when it stands alone.
        expand: the edges between them.
    """

    name: str
    onto: str | None = None
    expand: ir.Expand | None = None


@dataclass(frozen=True, slots=True)
class Counting:
    """A match of which something is counted.

    Attributes:
        leaves: what is counted, one after another.
        block: what is left to be listed.
        candidates: what each variable of the whole match may hold.
    """

    leaves: tuple[Leaf, ...]
    block: ir.Block
    candidates: Candidates

    @property
    def text(self) -> str:
        """What is counted, for people."""
        return ", ".join(
            f"${leaf.name}" if leaf.onto is None else f"${leaf.name} for each ${leaf.onto}" for leaf in self.leaves
        )


def can_be_counted(read: ir.Read, context: Context) -> Counting | None:
    """What of a read can be counted; None when it has to list all its rows."""
    block = read.match
    if not read.grouped or block.outer:
        return None
    parts = (read.columns, read.having, read.order)
    if not all(_is_indifferent(part) for part in walk(parts) if isinstance(part, ir.Aggregate)):
        return None
    needed = {*_looked_at(parts)}
    candidates = Candidates({node.name: node for node in block.nodes}, block.filters, context)
    for _, names in candidates.others:
        needed |= names
    for inner in (*block.optionals, *block.negations):
        needed |= {*inner.outer}
    leaves = tuple(_leaves(block, needed, candidates, context))
    if not leaves:
        return None
    gone = {leaf.name for leaf in leaves}
    walked = [leaf.expand for leaf in leaves]
    rest = replace(
        block,
        nodes=tuple(node for node in block.nodes if node.name not in gone),
        expands=tuple(expand for expand in block.expands if not any(expand is leaf for leaf in walked)),
    )
    return Counting(leaves, rest, candidates)


def counted(counting: Counting, context: Context) -> tuple[Frame, Numbers]:
    """Rows that stand for several, and for how many each stands."""
    weights = _Weights(counting.candidates, context)
    for leaf in counting.leaves:
        weights.take_away(leaf)
    for name, weight in weights.of.items():
        counting.candidates.narrow(name, weight > 0)
    frame = solve(counting.block, Frame(1, searching=context.search), context, counting.candidates)
    total = np.full(frame.count, weights.factor, np.int64)
    for name, weight in weights.of.items():
        total = _times(total, weight.take(frame.bindings[name].numbers))
    _add_up(total)
    there = total > 0
    return frame.filter(there), total[there]


# What can be counted


def _is_indifferent(aggregate: ir.Aggregate) -> bool:
    """Whether rows that are listed once for several make no difference, or can be counted as several."""
    function = ir.AggregateFunction
    return aggregate.distinct or aggregate.function in (function.COUNT, function.MIN, function.MAX)


def _looked_at(part: object) -> Iterator[str]:
    """The variables that have to be there for something to be computed."""
    if isinstance(part, ir.Aggregate) and _counts_rows(part):
        return
    if isinstance(part, tuple):
        for inner in part:
            yield from _looked_at(inner)
    elif any(isinstance(inner, ir.Aggregate) for inner in walk(part)):
        assert is_dataclass(part)
        for field in fields(part):
            yield from _looked_at(getattr(part, field.name))
    else:
        yield from variables(part)


def _counts_rows(aggregate: ir.Aggregate) -> bool:
    """Whether an aggregate is the number of rows."""
    if aggregate.function is not ir.AggregateFunction.COUNT or aggregate.distinct:
        return False
    arg = aggregate.arg
    return arg is None or (isinstance(arg, ir.Ident | ir.Entity) and not arg.nullable)


def _leaves(block: ir.Block, needed: set[str], candidates: Candidates, context: Context) -> Iterator[Leaf]:
    """The variables to count, in an order in which each hangs on one other at most. What is cheap comes first."""
    left = {node.name: node for node in block.nodes if node.name not in needed}
    single = {node.name for node in block.nodes if len(node.types) == 1}
    expands = list(block.expands)
    weighted: set[str] = set()

    def leaf(name: str) -> Leaf | None:
        mine = [expand for expand in expands if name in (expand.left, expand.right)]
        if not mine:
            return Leaf(name)
        expand = mine[0]
        onto = expand.right if expand.left == name else expand.left
        alone = len(mine) == 1 and onto != name and onto in single
        return Leaf(name, onto, expand) if alone and _adds_up(expand, name, needed, left[name]) else None

    def cost(found: Leaf) -> tuple[int, str]:
        if found.expand is None:
            return 0, found.name
        if found.expand.hops is None and found.name not in weighted and not candidates.restricts(found.name):
            return 1, found.name
        edges = context.spaces.edges(found.expand.steps[0].edge).count
        return 2 + (2 * edges if found.name in weighted else edges), found.name

    while found := [leaf_ for name in left if (leaf_ := leaf(name)) is not None]:
        cheapest = min(found, key=cost)
        yield cheapest
        del left[cheapest.name]
        if cheapest.expand is not None:
            expands.remove(cheapest.expand)
            assert cheapest.onto is not None
            weighted.add(cheapest.onto)


def _adds_up(expand: ir.Expand, name: str, needed: set[str], node: ir.NodeVar) -> bool:
    """Whether the rows of a variable at one end can be added up at the other."""
    edge = None if expand.edge_var is None else expand.edge_var.name
    if edge in needed or expand.path_var in needed:
        return False
    if expand.hops is not None:
        # Distances are counted from the left.
        return name == expand.right
    return len(expand.steps) == 1 and len(node.types) == 1 and expand.steps[0].direction is not ir.Direction.BOTH


# Counting


class _Weights:
    """For each node that a variable may hold, how many rows of what was taken away it stands for.

    Attributes:
        of: by variable; none for one on which nothing hung.
        factor: how many rows there are of what stood alone.
    """

    def __init__(self, candidates: Candidates, context: Context) -> None:
        self._candidates = candidates
        self._context = context
        self.of: dict[str, Numbers] = {}
        self.factor = 1

    def take_away(self, leaf: Leaf) -> None:
        if leaf.onto is None:
            self.factor *= self._total(leaf.name)
            if self.factor > _LARGEST:
                raise _too_large()
            return
        assert leaf.expand is not None
        if leaf.expand.hops is not None:
            arriving = self._reached(leaf.name, leaf.onto, leaf.expand)
        else:
            forward = leaf.expand.left == leaf.onto
            (step,) = leaf.expand.steps if forward else reversed_steps(leaf.expand.steps)
            (adjacency,) = adjacencies(self._context, step)
            # Without a variable for the edge, neighbours are a set.
            distinct = leaf.expand.edge_var is None
            values = self._values(leaf.name)
            if values is None:
                arriving = adjacency.neighbours if distinct else adjacency.degree
            else:
                arriving = self._sums(adjacency, values, leaf.onto, distinct=distinct)
        before = self.of.get(leaf.onto)
        self.of[leaf.onto] = arriving if before is None else _times(before, arriving)

    def _total(self, name: str) -> int:
        """How many rows a variable that stands alone has."""
        weight = self.of.pop(name, None)
        if weight is None:
            return self._candidates.size(name)
        chosen = weight.take(self._candidates.of(name)[0]) if self._candidates.restricts(name) else weight
        _add_up(chosen)
        return int(chosen.sum())

    def _values(self, name: str) -> Numbers | Mask | None:
        """How many rows each node of a variable stands for; None when each stands for one."""
        weight, mask = self.of.pop(name, None), self._candidates.masks(name)[0]
        if weight is None or mask is None:
            return mask if weight is None else weight
        return np.where(mask, weight, 0)

    def _sums(self, adjacency: Adjacency, values: Numbers | Mask, onto: str, *, distinct: bool) -> Numbers:
        """For each node, the rows of all its neighbours together."""
        if values.dtype != np.bool_ and len(values) and float(values.max()) * len(adjacency.neighbour) > _LARGEST:
            about = np.bincount(adjacency.owners(), values.astype(np.float64).take(adjacency.neighbour))
            if float(about.max(initial=0)) > _LARGEST:
                raise _too_large()
        nodes = self._candidates.of(onto)[0] if self._candidates.restricts(onto) else None
        if nodes is None or len(nodes) * _FEW > adjacency.nodes:
            self._context.budget.spend(len(adjacency.neighbour))
            return adjacency.sums(values, distinct=distinct)
        degree, places = adjacency.walk(nodes)
        self._context.budget.spend(len(places))
        far, owner = adjacency.far(places), np.repeat(nodes, degree)
        arriving = values.take(far).astype(np.int64)
        if distinct:
            arriving[1:][(far[1:] == far[:-1]) & (owner[1:] == owner[:-1])] = 0
        found: Numbers = np.zeros(adjacency.nodes, np.int64)
        np.add.at(found, owner, arriving)
        return found

    def _reached(self, name: str, onto: str, expand: ir.Expand) -> Numbers:
        """For each node, the rows of all that it reaches together."""
        assert expand.hops is not None
        walk_ = Walk(self._context, expand.steps)
        world = walk_.world
        values: Numbers | None = None
        weight = self.of.pop(name, None)
        spaces = self._candidates.spaces(name)
        if weight is not None or self._candidates.restricts(name) or {s.type_name for s in spaces} != {*world.types}:
            values = np.zeros(world.size, np.int64)
            for space, numbers in zip(spaces, self._candidates.of(name), strict=True):
                if space.type_name in world.types:
                    counts = 1 if weight is None else weight.take(numbers)
                    values[world.begin(space.type_name) + numbers] = counts
        space = self._candidates.spaces(onto)[0]
        found: Numbers = np.zeros(space.slots, np.int64)
        if space.type_name in world.types:
            numbers = self._candidates.of(onto)[0]
            found[numbers] = walk_.totals(numbers + world.begin(space.type_name), expand.hops, values)
        return found


def _times(left: Numbers, right: Numbers) -> Numbers:
    if len(left) and float(left.max()) * float(right.max()) > _LARGEST:
        product = left.astype(np.float64) * right
        if float(product.max()) > _LARGEST:
            raise _too_large()
    return left * right


def _add_up(numbers: Numbers) -> None:
    """Make sure that numbers can be added."""
    if len(numbers) == 0 or float(numbers.max()) * len(numbers) <= _LARGEST:
        return
    if float(numbers.sum(dtype=np.float64)) > _LARGEST:
        raise _too_large()


def _too_large() -> ExecutionError:
    return ExecutionError("a count is too large for I64")
