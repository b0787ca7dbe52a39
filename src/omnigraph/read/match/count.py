"""Count: count matches from the degrees of nodes, instead of producing one row per match.

A grouped read needs the values of some variables: its keys and the arguments of aggregates. All other variables only
change how many rows there are. Such a variable is eliminated if it is joined with only one other variable: for each
node of the other variable, the number of matches becomes a weight of the node. Rows are produced only for the remaining
variables. Each of these rows has a weight, the number of rows of the match that it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers, distinct_numbers, positions
from omnigraph.read.context.context import Context
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.expand import adjacencies, is_of_type, reversed_steps
from omnigraph.read.match.hops import Walk
from omnigraph.read.match.pipeline import MatchRun, Pipeline
from omnigraph.read.match.row_counts import MAX_ROW_COUNT, count_too_large, products
from omnigraph.read.query.block import QueryBlock
from omnigraph.read.rows.frame import Binding, Frame
from omnigraph.read.topology.topologies import Edges

_SAFE_SUM = float(2**62)
"""Sums up to this bound cannot overflow a 64-bit integer."""

MIN_REPLANNED_COST_EDGES = 20_000.0
"""If the estimated cost of a pipeline is lower than this, it is not planned again before it runs."""

SPARSE_RATIO = 8
"""If at most one in `SPARSE_RATIO` nodes is a candidate, only the edges of candidates are walked."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A variable whose matches are counted. The output rows do not contain it.

    Attributes:
        name: the variable.
        onto: the other variable that it is joined with; None if it is joined with none.
        expand: the traversal between both variables.
    """

    name: str
    onto: str | None = None
    expand: ir.Expand | None = None


@dataclass(frozen=True, slots=True)
class OptionalCount:
    """Counts the matches of an optional block that refers to one variable.

    Attributes:
        name: the variable that gets the counts as weights.
        count: counts the matches for each node of the variable of the block.
    """

    name: str
    count: Count


@dataclass(frozen=True, slots=True)
class Count:
    """Count the matches of some variables, and produce rows for the others.

    Attributes:
        leaves: variables to count, in the order in which they are eliminated.
        rest: the pipeline that produces the rows of the other variables.
        at_most: larger weights are replaced by this number; None for exact counts.
        optionals: optional blocks whose matches are counted.
        weighted: whether the result depends on the weights. If not, rows are returned without weights.
        input_variables: node variables of the rows of the stage before the match. They can have weights, too.
    """

    leaves: tuple[Leaf, ...]
    rest: Pipeline
    at_most: int | None = None
    optionals: tuple[OptionalCount, ...] = ()
    weighted: bool = True
    input_variables: tuple[str, ...] = ()

    @property
    def name(self) -> OperatorName:
        return OperatorName.COUNT

    @property
    def text(self) -> str:
        leaves = (
            f"${leaf.name}" if leaf.onto is None else f"${leaf.name} for each ${leaf.onto}" for leaf in self.leaves
        )
        optionals = (f"optional {each.count.text}" for each in self.optionals)
        return ", ".join((*leaves, *optionals))

    @property
    def reason(self) -> str:
        return "matches of these variables are counted without producing rows"

    @property
    def rows(self) -> float:
        """Estimated number of output rows."""
        return self.rest.rows

    def execute(self, match: MatchRun) -> tuple[Frame, Numbers | None]:
        """Rows of the remaining variables, and the weight of each row: how many rows of the match it stands for."""
        frame, weights = self.count(match)
        return frame, weights if self.weighted else None

    def count(self, match: MatchRun) -> tuple[Frame, Numbers]:
        """Like `execute`, always with weights."""
        trace = match.context.trace
        if trace is None or not (self.leaves or self.optionals):
            return self._execute(match)
        with trace.step(self.name, self.text) as entry:
            frame, weights = self._execute(match)
        entry.reason = self.reason
        entry.rows, entry.size = frame.count, frame.nbytes + weights.nbytes
        return frame, weights

    def _execute(self, match: MatchRun) -> tuple[Frame, Numbers]:
        start = match.start()
        if self.input_variables:
            match = self._with_input_candidates(start, match)
        candidates = match.candidates(self.rest.block)
        weights = _Weights(candidates, match.context, self.at_most)
        narrow(self.leaves, self.rest.block, candidates, match.context)
        for each in self.optionals:
            weights.multiply(each.name, *each.count.count(match))
        for leaf in self.leaves:
            weights.eliminate(leaf)
        weights.narrow()
        # Now that candidates have been removed, another join order may be better.
        is_cheap = len(self.rest.operators) < 2 or self.rest.cost < MIN_REPLANNED_COST_EDGES
        rest = self.rest if is_cheap else match.replan(self.rest, self.rest.input_rows)
        frame = rest.execute(start, match)
        total = np.full(frame.count, weights.factor, np.int64)
        if frame.weight is not None:
            total, frame = products(total, frame.weight), replace(frame, weight=None)
        for name in weights.of:
            binding = frame.bindings[name]
            if name in self.input_variables:
                found = weights.at_input(name, binding)
            else:
                found = weights.at(name, binding.numbers)
            total = products(total, found)
            total = total if self.at_most is None else np.minimum(total, self.at_most)
        there = total > 0
        return frame.filter(there), total[there]

    def _with_input_candidates(self, start: Frame, match: MatchRun) -> MatchRun:
        """The state of the match, in which only nodes of the input rows are candidates of the input variables."""
        candidates = match.candidates(self.rest.block)
        for name in self.input_variables:
            binding, (table,) = start.bindings[name], candidates.tables(name)
            numbers = binding.numbers[is_of_type(binding, table.type_name)]
            candidates = candidates.only(name, (distinct_numbers(numbers, table.slots),))
        return match.with_candidates(self.rest.block, candidates)


def narrow(leaves: Sequence[Leaf], rest: QueryBlock, candidates: Candidates, context: Context) -> None:
    """If a variable has few candidates, remove the candidates of a neighbouring variable that have no edge to them.

    Args:
        leaves: variables that are counted, with their traversals.
        rest: the block of the other variables.
        candidates: the candidates of all variables.
        context: the state of the running read: snapshot, parameters and budget.
    """
    counted = [leaf.expand for leaf in leaves if leaf.expand is not None]
    expands = [e for e in (*counted, *rest.block.expands) if candidates.knows(e.left) and candidates.knows(e.right)]
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
        candidates.narrow_to(far, distinct_numbers(adjacency.far(places), candidates.tables(far)[0].slots))
        candidates.note_edges(expand, len(places))


def _narrows(expand: ir.Expand, forward: bool, candidates: Candidates, context: Context) -> bool:
    """Whether to walk the edges of a traversal from one end, to remove candidates at the other end.

    This is useful if the first end has few candidates, and few nodes are expected to be reached from them.
    """
    near, far = (expand.left, expand.right) if forward else (expand.right, expand.left)
    if expand.hops is not None or len(expand.steps) != 1 or expand.steps[0].direction is ir.Direction.BOTH:
        return False
    if near == far or not candidates.restricts(near):
        return False
    if len(candidates.tables(near)) != 1 or len(candidates.tables(far)) != 1:
        return False
    if candidates.cheap_size(near) is None:
        return False
    (here,), (there,) = candidates.tables(near), candidates.tables(far)
    edges = context.tables.edges(expand.steps[0].edge).count
    expected = candidates.size(near) * max(edges / max(here.count, 1), 1.0)
    size = candidates.cheap_size(far)
    return expected * SPARSE_RATIO < (there.count if size is None else size)


class _Weights:
    """Weights of nodes. The weight of a node is the number of matches of eliminated variables that it stands for.

    Attributes:
        of: array of weights for each variable. If a variable has few candidates, element n is the weight of the n-th
            candidate; else it is the weight of node number n.
        factor: product of the numbers of matches of variables that are joined with no other variable.
    """

    def __init__(self, candidates: Candidates, context: Context, at_most: int | None = None) -> None:
        self._candidates = candidates
        self._context = context
        self._at_most = at_most
        self.of: dict[str, Numbers] = {}
        self.factor = 1
        self._few: dict[str, Numbers | None] = {}

    def few(self, name: str) -> Numbers | None:
        """The candidates of a variable if there are only a few; else None."""
        if name not in self._few:
            nodes = self._candidates.of(name)[0] if self._candidates.restricts(name) else None
            slots = self._candidates.tables(name)[0].slots
            self._few[name] = None if nodes is None or len(nodes) * SPARSE_RATIO > slots else nodes
        return self._few[name]

    def narrow(self) -> None:
        """Remove candidates with weight 0."""
        for name, weight in self.of.items():
            nodes = self.few(name)
            if nodes is None:
                self._candidates.narrow(name, weight > 0)
            else:
                self._candidates.choose(name, nodes[weight > 0])

    def at(self, name: str, numbers: Numbers) -> Numbers:
        """For given nodes of a variable, the number of matches of eliminated variables that each node stands for."""
        nodes = self.few(name)
        if nodes is not None:
            numbers = positions(nodes, numbers, self._candidates.tables(name)[0].slots)
        return self.of[name].take(numbers)

    def at_input(self, name: str, binding: Binding) -> Numbers:
        """Like `at`, for nodes of the input rows. They can be null, of another type, or no candidates: weight 0."""
        (table,) = self._candidates.tables(name)
        weights, nodes = self.of[name], self.few(name)
        rows = np.flatnonzero(is_of_type(binding, table.type_name))
        places = binding.numbers.take(rows)
        if nodes is not None:
            places = positions(nodes, places, table.slots)
            there = places != NOTHING
            rows, places = rows[there], places[there]
        found: Numbers = np.zeros(len(binding.numbers), np.int64)
        found[rows] = weights.take(places)
        return found

    def multiply(self, name: str, frame: Frame, counts: Numbers) -> None:
        """Multiply the weights of the nodes of a variable with the numbers of matches of an optional block.

        Args:
            name: the variable.
            frame: the nodes for which the block has a match, one per row. All others keep their weights.
            counts: the number of matches of each of these nodes.
        """
        (table,) = self._candidates.tables(name)
        # Unused numbers (holes) stand for no match.
        factors = np.ones(table.slots, np.int64) if table.live is None else table.live.astype(np.int64)
        (binding,) = frame.bindings.values()
        factors[binding.numbers] = counts
        nodes = self.few(name)
        factors = factors if nodes is None else factors.take(nodes)
        before = self.of.get(name)
        self.of[name] = factors if before is None else products(before, factors)

    def eliminate(self, leaf: Leaf) -> None:
        if leaf.onto is None:
            self.factor *= self._total(leaf.name)
            if self._at_most is not None:
                self.factor = min(self.factor, self._at_most)
            if self.factor > MAX_ROW_COUNT:
                raise count_too_large()
            return
        assert leaf.expand is not None
        if leaf.expand.hops is not None:
            arriving = self._reached(leaf.name, leaf.onto, leaf.expand)
        else:
            forward = leaf.expand.left == leaf.onto
            (step,) = leaf.expand.steps if forward else reversed_steps(leaf.expand.steps)
            (adjacency,) = adjacencies(self._context, step)
            # Parallel edges count once, unless the query has an edge variable.
            distinct = leaf.expand.edge_var is None and adjacency.may_repeat(self._expected(leaf.onto, adjacency))
            if self._filters_late(leaf.name, leaf.onto, adjacency):
                arriving = self._filtered_counts(adjacency, leaf, distinct=distinct)
            elif (values := self._values(leaf.name)) is None:
                arriving = self._counts(adjacency, leaf.onto, distinct=distinct)
            elif self._is_smaller(leaf.name, leaf.onto, values):
                arriving = self._sums_from_leaf(step, values, leaf.name, leaf.onto, distinct=distinct)
            else:
                arriving = self._sums(adjacency, values, leaf.onto, distinct=distinct)
        before = self.of.get(leaf.onto)
        together = arriving if before is None else products(before, arriving)
        # Weights are limited to `at_most` after each step. The final weights are the same as if they were limited only
        # once, at the end.
        self.of[leaf.onto] = together if self._at_most is None else np.minimum(together, self._at_most)

    def _total(self, name: str) -> int:
        """Number of matches of a variable that is joined with no other variable."""
        weight = self.of.pop(name, None)
        if weight is None:
            return self._candidates.size(name)
        chosen = weight
        if self.few(name) is None and self._candidates.restricts(name):
            chosen = weight.take(self._candidates.of(name)[0])
        _check_sum(chosen)
        return int(chosen.sum())

    def _values(self, name: str) -> Numbers | Mask | None:
        """For each node of a variable, its weight: the number of matches that it stands for. None if all are 1."""
        weight = self.of.pop(name, None)
        if weight is not None and (nodes := self.few(name)) is not None:
            values: Numbers = np.zeros(self._candidates.tables(name)[0].slots, np.int64)
            values[nodes] = weight
            return values
        mask = self._candidates.masks(name)[0]
        if weight is None or mask is None:
            return mask if weight is None else weight
        return np.where(mask, weight, 0)

    def _filters_late(self, name: str, onto: str, adjacency: Edges) -> bool:
        """Whether to evaluate the conditions on a leaf only on nodes that edges lead to, because this is cheaper."""
        if self._candidates.is_chosen(name) or name in self.of:
            return False
        if self.few(onto) is None:
            return False
        return self._expected(onto, adjacency) * SPARSE_RATIO < self._candidates.tables(name)[0].count

    def _expected(self, name: str, adjacency: Edges) -> float:
        """Expected number of edges of the candidates of a variable."""
        nodes = self.few(name)
        return adjacency.size if nodes is None else len(nodes) * adjacency.size / max(adjacency.nodes, 1)

    def _filtered_counts(self, adjacency: Edges, leaf: Leaf, *, distinct: bool) -> Numbers:
        """For each candidate of the other variable, count the neighbours that satisfy the conditions on the leaf."""
        assert leaf.onto is not None
        nodes = self._candidates.of(leaf.onto)[0]
        degree, places = adjacency.walk(nodes)
        self._context.budget.spend(len(places))
        far, back = np.unique(adjacency.far(places), return_inverse=True)
        allowed = np.isin(far, self._candidates.among(leaf.name, far), assume_unique=True)
        return _sum_by_target(allowed[back].astype(np.int64), far[back], _owners(degree), len(nodes), distinct=distinct)

    def _is_smaller(self, name: str, onto: str, values: Numbers | Mask) -> bool:
        """Whether a leaf has few candidates, and fewer than the variable that it is joined with."""
        candidates = self._candidates
        if not candidates.restricts(name) or (len(values) and float(values.max()) * len(values) > _SAFE_SUM):
            return False
        size = candidates.size(name)
        if size * SPARSE_RATIO >= len(values):
            return False
        if not candidates.restricts(onto):
            return True
        # The expected number of edges of the candidates is the number of all edges times the fraction of candidates.
        return size * candidates.tables(onto)[0].count <= candidates.size(onto) * candidates.tables(name)[0].count

    def _sums_from_leaf(
        self, step: ir.Step, values: Numbers | Mask, name: str, onto: str, *, distinct: bool
    ) -> Numbers:
        """For each node, the sum of the weights of its neighbours.

        Edges are walked from the few candidates of the leaf.
        """
        (back,) = reversed_steps([step])
        (adjacency,) = adjacencies(self._context, back)
        nodes = self._candidates.of(name)[0]
        degree, places = adjacency.walk(nodes)
        self._context.budget.spend(len(places))
        far, sender = adjacency.far(places), np.repeat(nodes, degree)
        few = self.few(onto)
        size = self._candidates.tables(onto)[0].slots
        if few is not None:
            at = positions(few, far, size)
            wanted = np.flatnonzero(at != NOTHING)
            size, far, sender = len(few), at.take(wanted), sender.take(wanted)
        return _sum_by_target(values.take(sender).astype(np.int64), sender, far, size, distinct=distinct)

    def _counts(self, adjacency: Edges, onto: str, *, distinct: bool) -> Numbers:
        """Degree of each node, or with `distinct` the number of its distinct neighbours."""
        nodes = self.few(onto)
        if nodes is None:
            return adjacency.whole.neighbours if distinct else adjacency.whole.degree
        return adjacency.counts(nodes, distinct=distinct)

    def _sums(self, adjacency: Edges, values: Numbers | Mask, onto: str, *, distinct: bool) -> Numbers:
        """For each node, the sum of the weights of its neighbours."""
        if values.dtype != np.bool_ and len(values) and float(values.max()) * adjacency.size > MAX_ROW_COUNT:
            whole = adjacency.whole
            about = np.bincount(whole.owners(), values.astype(np.float64).take(whole.neighbour))
            if float(about.max(initial=0)) > MAX_ROW_COUNT:
                raise count_too_large()
        nodes = self.few(onto)
        if nodes is None:
            self._context.budget.spend(adjacency.size)
            return adjacency.whole.sums(values, distinct=distinct)
        degree, places = adjacency.walk(nodes)
        self._context.budget.spend(len(places))
        far = adjacency.far(places)
        return _sum_by_target(values.take(far).astype(np.int64), far, _owners(degree), len(nodes), distinct=distinct)

    def _reached(self, name: str, onto: str, expand: ir.Expand) -> Numbers:
        """For each node, the sum of the weights of all nodes that it reaches within the hop range."""
        assert expand.hops is not None
        walk_ = Walk(self._context, expand.steps)
        numbering = walk_.numbering
        values: Numbers | None = None
        weight = self.of.pop(name, None)
        tables = self._candidates.tables(name)
        if (
            weight is not None
            or self._candidates.restricts(name)
            or {s.type_name for s in tables} != {*numbering.types}
        ):
            values = np.zeros(numbering.size, np.int64)
            for table, numbers in zip(tables, self._candidates.of(name), strict=True):
                if table.type_name in numbering.types:
                    counts = 1 if weight is None else weight if self.few(name) is not None else weight.take(numbers)
                    values[numbering.begin(table.type_name) + numbers] = counts
        table = self._candidates.tables(onto)[0]
        numbers = self._candidates.of(onto)[0]
        totals: Numbers = np.zeros(len(numbers), np.int64)
        if table.type_name in numbering.types:
            totals = _totals(walk_, numbers + numbering.begin(table.type_name), expand.hops, values)
        if self.few(onto) is not None:
            return totals
        found: Numbers = np.zeros(table.slots, np.int64)
        found[numbers] = totals
        return found


def _owners(degree: Numbers) -> Numbers:
    """For edges that are grouped by node, the index of the node of each edge.

    `degree` is the number of edges per node.
    """
    return np.repeat(np.arange(len(degree)), degree)


def _sum_by_target(arriving: Numbers, leaf: Numbers, onto: Numbers, size: int, *, distinct: bool) -> Numbers:
    """For each target node, the sum of the values of its edges.

    Args:
        arriving: value of each edge. It is overwritten.
        leaf: source of each edge.
        onto: target of each edge. Parallel edges are adjacent.
        size: number of target nodes.
        distinct: whether parallel edges count once.
    """
    if distinct:
        arriving[1:][(leaf[1:] == leaf[:-1]) & (onto[1:] == onto[:-1])] = 0
    found: Numbers = np.zeros(size, np.int64)
    np.add.at(found, onto, arriving)
    return found


def _totals(walk_: Walk, starts: Numbers, hops: ir.HopRange, values: Numbers | None) -> Numbers:
    """For each start, the sum of the values of the nodes within the hop range. Large sums do not overflow."""
    if values is None or float(values.sum(dtype=np.float64)) <= MAX_ROW_COUNT:
        return walk_.totals(starts, hops, values)
    # The upper and lower 32 bits of the values are summed separately, so that no sum overflows.
    high, low = walk_.totals(starts, hops, values >> 32), walk_.totals(starts, hops, values & (2**32 - 1))
    high += low >> 32
    if int(high.max(initial=0)) >= 2**31:
        raise count_too_large()
    return (high << 32) + (low & (2**32 - 1))


def _check_sum(numbers: Numbers) -> None:
    """Raise an error if the sum of the numbers is larger than the largest row count."""
    if len(numbers) == 0 or float(numbers.max()) * len(numbers) <= MAX_ROW_COUNT:
        return
    if float(numbers.sum(dtype=np.float64)) > MAX_ROW_COUNT:
        raise count_too_large()
