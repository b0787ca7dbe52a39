"""Counting without listing: what only has to be counted is counted from how many neighbours nodes have.

A grouped read looks at some variables: those that it groups by, or computes something from. All others only decide how
many rows there are. Where such a variable hangs on one other, the rows of its nodes are added up there, and it is
gone; and so on. What is left is listed, and each of its rows stands for as many as were added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np

from omnigraph.errors import ExecutionError
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.context import Context
from omnigraph.read.match.candidates import Candidates, conjuncts
from omnigraph.read.match.expand import adjacencies, reversed_steps
from omnigraph.read.match.frame import Frame, variables
from omnigraph.read.match.hops import Walk
from omnigraph.read.match.match import solve
from omnigraph.read.plan.plan import introduced
from omnigraph.read.plan.remembered import remembered
from omnigraph.read.space.numbers import different
from omnigraph.read.space.space import Mask, Numbers
from omnigraph.read.topology.topology import Edges

_LARGEST = float(2**63 - 2**40)
"""The largest number of rows; a little less than what an I64 holds, since it is compared as a float."""

_SMALL_SUM = float(2**62)
"""Sums that cannot be larger than this need no second look."""

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
    needed = _needed(read)
    if needed is None:
        return None
    block = read.match
    candidates = Candidates.of_block(block, context)
    leaves = tuple(_leaves(block, needed, candidates, context))
    return Counting(leaves, _rest(block, leaves), candidates) if leaves else None


@remembered
def _needed(read: ir.Read) -> frozenset[str] | None:
    """The variables that have to be listed; None when all have to."""
    if not read.grouped or read.match.outer:
        return None
    parts = (read.columns, read.having, read.order)
    if not all(is_indifferent(part) for part in walk(parts) if isinstance(part, ir.Aggregate)):
        return None
    return _related(read.match) | {*looked_at(parts)}


@remembered
def _related(block: ir.Block) -> frozenset[str]:
    """The variables that conditions and blocks look at together with others."""
    needed: set[str] = set()
    own = {node.name for node in block.nodes}
    for expr in conjuncts(block.filters):
        names = variables(expr)
        if len(names) != 1 or not names <= own:
            needed |= names
    for inner in (*block.optionals, *block.negations):
        needed |= {*inner.outer}
    return frozenset(needed)


def counting_for(name: str, block: ir.Block, candidates: Candidates, context: Context) -> Counting | None:
    """How to count, for each node of a variable, the rows that hold it; None when all rows have to be listed.

    An optional block that nothing else looks at is left out: each row stands for one at least, whatever is found there.

    Args:
        name: the variable.
        block: the match.
        candidates: what its variables may hold.
        context: the read.
    """
    bare = _bare(block)
    leaves = tuple(_leaves(bare, _related(bare) | {name}, candidates, context))
    return Counting(leaves, _rest(bare, leaves), candidates) if leaves or bare is not block else None


@remembered
def _bare(block: ir.Block) -> ir.Block:
    """A block without its optional ones, where nothing looks at what these bind."""
    inside = {name for optional in block.optionals for name in introduced(optional)}
    seen = {name for inner in block.negations for name in inner.outer} | variables(block.filters)
    seen |= {name for expand in block.expands for name in (expand.left, expand.right)}
    return replace(block, optionals=()) if inside and not inside & seen else block


_rests: dict[tuple[int, tuple[str, ...]], tuple[ir.Block, ir.Block]] = {}
_MOST = 4096


def _rest(block: ir.Block, leaves: Sequence[Leaf]) -> ir.Block:
    """A block without what is counted: the one from before, so that its plan is known."""
    names = tuple(leaf.name for leaf in leaves)
    key = (id(block), names)
    known = _rests.get(key)
    if known is not None and known[0] is block:
        return known[1]
    walked = [leaf.expand for leaf in leaves]
    rest = replace(
        block,
        nodes=tuple(node for node in block.nodes if node.name not in names),
        expands=tuple(expand for expand in block.expands if not any(expand is leaf for leaf in walked)),
    )
    if len(_rests) >= _MOST:
        _rests.clear()
    _rests[key] = (block, rest)
    return rest


def counted(counting: Counting, context: Context, most: int | None = None) -> tuple[Frame, Numbers]:
    """Rows that stand for several, and for how many each stands.

    Args:
        counting: what is counted.
        context: the read.
        most: up to how many it is counted: what stands for more is given as that.
    """
    weights = _Weights(counting.candidates, context, most)
    _narrow(counting, context)
    for leaf in counting.leaves:
        weights.take_away(leaf)
    weights.narrow()
    frame = solve(counting.block, Frame(1, searching=context.search), context, counting.candidates)
    total = np.full(frame.count, weights.factor, np.int64)
    for name in weights.of:
        total = _times(total, weights.at(name, frame.bindings[name].numbers))
        total = total if most is None else np.minimum(total, most)
    there = total > 0
    return frame.filter(there), total[there]


def _narrow(counting: Counting, context: Context) -> None:
    """Leave out nodes that no edge joins with the few that a variable beside them may hold."""
    candidates = counting.candidates
    leaves = [leaf.expand for leaf in counting.leaves if leaf.expand is not None]
    expands = [e for e in (*leaves, *counting.block.expands) if candidates.knows(e.left) and candidates.knows(e.right)]
    todo = [(expand, forward) for expand in expands for forward in (True, False)]
    while chosen := next((found for found in todo if _narrows(*found, candidates, context)), None):
        todo.remove(chosen)
        expand, forward = chosen
        (step,) = expand.steps if forward else reversed_steps(expand.steps)
        (adjacency,) = adjacencies(context, step)
        near, far = (expand.left, expand.right) if forward else (expand.right, expand.left)
        (nodes,) = candidates.of(near)
        _, places = adjacency.walk(nodes)
        context.budget.spend(len(places))
        candidates.narrow_to(far, different(adjacency.far(places), candidates.spaces(far)[0].slots))


def _narrows(expand: ir.Expand, forward: bool, candidates: Candidates, context: Context) -> bool:
    """Whether a variable may hold few nodes, and that leaves few for the one at the other end of edges."""
    near, far = (expand.left, expand.right) if forward else (expand.right, expand.left)
    if expand.hops is not None or len(expand.steps) != 1 or expand.steps[0].direction is ir.Direction.BOTH:
        return False
    if near == far or not (candidates.restricts(near) and candidates.is_chosen(near)):
        return False
    if len(candidates.spaces(near)) != 1 or len(candidates.spaces(far)) != 1:
        return False
    (here,), (there,) = candidates.spaces(near), candidates.spaces(far)
    edges = context.spaces.edges(expand.steps[0].edge).count
    expected = candidates.size(near) * max(edges / max(here.count, 1), 1.0)
    held = candidates.held(far)
    return expected * _FEW < (held.size if held.counted else there.count)


# What can be counted


def is_indifferent(aggregate: ir.Aggregate) -> bool:
    """Whether rows that are listed once for several make no difference, or can be counted as several."""
    function = ir.AggregateFunction
    return aggregate.distinct or aggregate.function in (function.COUNT, function.MIN, function.MAX)


def looked_at(part: object) -> Iterator[str]:
    """The variables that have to be there for something to be computed."""
    if isinstance(part, ir.Aggregate) and _counts_rows(part):
        return
    if isinstance(part, tuple):
        for inner in part:
            yield from looked_at(inner)
    elif any(isinstance(inner, ir.Aggregate) for inner in walk(part)):
        assert is_dataclass(part)
        for field in fields(part):
            yield from looked_at(getattr(part, field.name))
    else:
        yield from variables(part)


def _counts_rows(aggregate: ir.Aggregate) -> bool:
    """Whether an aggregate is the number of rows."""
    if aggregate.function is not ir.AggregateFunction.COUNT or aggregate.distinct:
        return False
    arg = aggregate.arg
    return arg is None or (isinstance(arg, ir.Ident | ir.Entity) and not arg.nullable)


def _leaves(block: ir.Block, needed: frozenset[str], candidates: Candidates, context: Context) -> Iterator[Leaf]:
    """The variables to count, in an order in which each hangs on one other at most. What is cheap comes first."""
    left = {node.name: node for node in block.nodes if node.name not in needed}
    if not left:
        return
    single = {node.name for node in block.nodes if len(node.types) == 1}
    expands = list(block.expands)
    weighted: set[str] = set()
    shares = _shares(block, candidates, context)

    def leaf(name: str) -> Leaf | None:
        mine = [expand for expand in expands if name in (expand.left, expand.right)]
        if not mine:
            return Leaf(name)
        expand = mine[0]
        onto = expand.right if expand.left == name else expand.left
        alone = len(mine) == 1 and onto != name and onto in single
        return Leaf(name, onto, expand) if alone and _adds_up(expand, name, needed, left[name]) else None

    def cost(found: Leaf) -> tuple[float, str]:
        if found.expand is None:
            return 0, found.name
        assert found.onto is not None
        plain = found.expand.hops is None
        if plain and found.name not in weighted and not candidates.restricts(found.name):
            return 1, found.name
        edges = context.spaces.edges(found.expand.steps[0].edge).count
        share = min(shares[found.onto], shares[found.name]) if plain else shares[found.onto]
        return 2 + share * (2 * edges if found.name in weighted else edges), found.name

    while found := [leaf_ for name in left if (leaf_ := leaf(name)) is not None]:
        cheapest = min(found, key=cost)
        yield cheapest
        del left[cheapest.name]
        if cheapest.expand is not None:
            expands.remove(cheapest.expand)
            assert cheapest.onto is not None
            weighted.add(cheapest.onto)


def _shares(block: ir.Block, candidates: Candidates, context: Context) -> dict[str, float]:
    """About the share of its nodes that each variable can hold, once what edges lead to from few others is known."""
    held = {node.name: candidates.held(node.name) for node in block.nodes}
    sizes = {name: found.size for name, found in held.items()}
    for _ in block.expands:
        for expand in block.expands:
            if expand.hops is None and expand.left in held and expand.right in held:
                edges = sum(context.spaces.edges(step.edge).count for step in expand.steps)
                for near, far in ((expand.left, expand.right), (expand.right, expand.left)):
                    sizes[far] = min(sizes[far], sizes[near] * edges / max(held[near].there, 1))
    return {name: sizes[name] / max(found.there, 1) for name, found in held.items()}


def _adds_up(expand: ir.Expand, name: str, needed: frozenset[str], node: ir.NodeVar) -> bool:
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
        of: by variable; none for one on which nothing hung. Where a variable may hold few nodes, it is those of these.
        factor: how many rows there are of what stood alone.
    """

    def __init__(self, candidates: Candidates, context: Context, most: int | None = None) -> None:
        self._candidates = candidates
        self._context = context
        self._most = most
        self.of: dict[str, Numbers] = {}
        self.factor = 1
        self._few: dict[str, Numbers | None] = {}

    def few(self, name: str) -> Numbers | None:
        """The nodes that a variable may hold, where those are few; else None."""
        if name not in self._few:
            nodes = self._candidates.of(name)[0] if self._candidates.restricts(name) else None
            slots = self._candidates.spaces(name)[0].slots
            self._few[name] = None if nodes is None or len(nodes) * _FEW > slots else nodes
        return self._few[name]

    def narrow(self) -> None:
        """Leave out nodes that stand for no rows."""
        for name, weight in self.of.items():
            nodes = self.few(name)
            if nodes is None:
                self._candidates.narrow(name, weight > 0)
            else:
                self._candidates.choose(name, nodes[weight > 0])

    def at(self, name: str, numbers: Numbers) -> Numbers:
        """How many rows some nodes of a variable stand for."""
        nodes = self.few(name)
        return self.of[name].take(numbers if nodes is None else np.searchsorted(nodes, numbers))

    def take_away(self, leaf: Leaf) -> None:
        if leaf.onto is None:
            self.factor *= self._total(leaf.name)
            if self._most is not None:
                self.factor = min(self.factor, self._most)
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
            if self._is_late(leaf.name, leaf.onto, adjacency):
                arriving = self._late_sums(adjacency, leaf, distinct=distinct)
            elif (values := self._values(leaf.name)) is None:
                arriving = self._counts(adjacency, leaf.onto, distinct=distinct)
            elif self._is_smaller(leaf.name, leaf.onto, values):
                arriving = self._sent(step, values, leaf.name, leaf.onto, distinct=distinct)
            else:
                arriving = self._sums(adjacency, values, leaf.onto, distinct=distinct)
        before = self.of.get(leaf.onto)
        together = arriving if before is None else _times(before, arriving)
        # Sums and products of what is cut off reach the same bound.
        self.of[leaf.onto] = together if self._most is None else np.minimum(together, self._most)

    def _total(self, name: str) -> int:
        """How many rows a variable that stands alone has."""
        weight = self.of.pop(name, None)
        if weight is None:
            return self._candidates.size(name)
        chosen = weight
        if self.few(name) is None and self._candidates.restricts(name):
            chosen = weight.take(self._candidates.of(name)[0])
        _add_up(chosen)
        return int(chosen.sum())

    def _values(self, name: str) -> Numbers | Mask | None:
        """How many rows each node of a variable stands for; None when each stands for one."""
        weight = self.of.pop(name, None)
        if weight is not None and (nodes := self.few(name)) is not None:
            values: Numbers = np.zeros(self._candidates.spaces(name)[0].slots, np.int64)
            values[nodes] = weight
            return values
        mask = self._candidates.masks(name)[0]
        if weight is None or mask is None:
            return mask if weight is None else weight
        return np.where(mask, weight, 0)

    def _is_late(self, name: str, onto: str, adjacency: Edges) -> bool:
        """Whether conditions on a leaf are better tried on the few nodes that edges lead to than on all."""
        if self._candidates.is_chosen(name) or name in self.of:
            return False
        nodes = self.few(onto)
        if nodes is None:
            return False
        expected = len(nodes) * adjacency.size / max(adjacency.nodes, 1)
        return expected * _FEW < self._candidates.spaces(name)[0].count

    def _late_sums(self, adjacency: Edges, leaf: Leaf, *, distinct: bool) -> Numbers:
        """For each of a few nodes, how many of its neighbours satisfy the conditions on them."""
        assert leaf.onto is not None
        nodes = self._candidates.of(leaf.onto)[0]
        degree, places = adjacency.walk(nodes)
        self._context.budget.spend(len(places))
        far, back = np.unique(adjacency.far(places), return_inverse=True)
        allowed = np.isin(far, self._candidates.among(leaf.name, far), assume_unique=True)
        return _gathered(allowed[back].astype(np.int64), far[back], _owners(degree), len(nodes), distinct=distinct)

    def _is_smaller(self, name: str, onto: str, values: Numbers | Mask) -> bool:
        """Whether a leaf may hold fewer nodes than what it hangs on, and few at all."""
        candidates = self._candidates
        if not candidates.restricts(name) or (len(values) and float(values.max()) * len(values) > _SMALL_SUM):
            return False
        size = candidates.size(name)
        if size * _FEW >= len(values):
            return False
        if not candidates.restricts(onto):
            return True
        # As many edges lead from all nodes at the one end as to all at the other.
        return size * candidates.spaces(onto)[0].count <= candidates.size(onto) * candidates.spaces(name)[0].count

    def _sent(self, step: ir.Step, values: Numbers | Mask, name: str, onto: str, *, distinct: bool) -> Numbers:
        """For each node, the rows of all its neighbours together, of which there are few."""
        (back,) = reversed_steps([step])
        (adjacency,) = adjacencies(self._context, back)
        nodes = self._candidates.of(name)[0]
        degree, places = adjacency.walk(nodes)
        self._context.budget.spend(len(places))
        far, sender = adjacency.far(places), np.repeat(nodes, degree)
        few = self.few(onto)
        if few is None:
            size = self._candidates.spaces(onto)[0].slots
        else:
            size, at = len(few), np.searchsorted(few, far)
            wanted = np.flatnonzero(few.take(at, mode="clip") == far) if size else np.array([], np.int64)
            far, sender = at.take(wanted), sender.take(wanted)
        return _gathered(values.take(sender).astype(np.int64), sender, far, size, distinct=distinct)

    def _counts(self, adjacency: Edges, onto: str, *, distinct: bool) -> Numbers:
        """For each node, how many edges or neighbours it has."""
        nodes = self.few(onto)
        if nodes is None:
            return adjacency.whole.neighbours if distinct else adjacency.whole.degree
        return adjacency.counts(nodes, distinct=distinct)

    def _sums(self, adjacency: Edges, values: Numbers | Mask, onto: str, *, distinct: bool) -> Numbers:
        """For each node, the rows of all its neighbours together."""
        if values.dtype != np.bool_ and len(values) and float(values.max()) * adjacency.size > _LARGEST:
            whole = adjacency.whole
            about = np.bincount(whole.owners(), values.astype(np.float64).take(whole.neighbour))
            if float(about.max(initial=0)) > _LARGEST:
                raise _too_large()
        nodes = self.few(onto)
        if nodes is None:
            self._context.budget.spend(adjacency.size)
            return adjacency.whole.sums(values, distinct=distinct)
        degree, places = adjacency.walk(nodes)
        self._context.budget.spend(len(places))
        far = adjacency.far(places)
        return _gathered(values.take(far).astype(np.int64), far, _owners(degree), len(nodes), distinct=distinct)

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
                    counts = 1 if weight is None else weight if self.few(name) is not None else weight.take(numbers)
                    values[world.begin(space.type_name) + numbers] = counts
        space = self._candidates.spaces(onto)[0]
        numbers = self._candidates.of(onto)[0]
        totals: Numbers = np.zeros(len(numbers), np.int64)
        if space.type_name in world.types:
            totals = _totals(walk_, numbers + world.begin(space.type_name), expand.hops, values)
        if self.few(onto) is not None:
            return totals
        found: Numbers = np.zeros(space.slots, np.int64)
        found[numbers] = totals
        return found


def _owners(degree: Numbers) -> Numbers:
    """For the edges of some nodes, one after another, the place of the node that each is of."""
    return np.repeat(np.arange(len(degree)), degree)


def _gathered(arriving: Numbers, leaf: Numbers, onto: Numbers, size: int, *, distinct: bool) -> Numbers:
    """Sums of what arrives along edges, by node.

    Args:
        arriving: what each edge brings. It is written to.
        leaf: where each edge comes from.
        onto: where it arrives. Edges between the same two nodes stand beside each other.
        size: how many nodes there are.
        distinct: whether one edge counts between two nodes.
    """
    if distinct:
        arriving[1:][(leaf[1:] == leaf[:-1]) & (onto[1:] == onto[:-1])] = 0
    found: Numbers = np.zeros(size, np.int64)
    np.add.at(found, onto, arriving)
    return found


def _totals(walk_: Walk, starts: Numbers, hops: ir.HopRange, values: Numbers | None) -> Numbers:
    """The sum over what can be reached from each start, of numbers that may be large."""
    if values is None or float(values.sum(dtype=np.float64)) <= _LARGEST:
        return walk_.totals(starts, hops, values)
    # In halves, which can be added whatever is reached.
    high, low = walk_.totals(starts, hops, values >> 32), walk_.totals(starts, hops, values & (2**32 - 1))
    high += low >> 32
    if int(high.max(initial=0)) >= 2**31:
        raise _too_large()
    return (high << 32) + (low & (2**32 - 1))


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
