"""Weights of nodes: the number of matches of eliminated variables that each node stands for (see `Count`)."""

# See docs/decisions/0274-weights-are-multiplied-when-a-variable-is-bound.md

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers, positions
from omnigraph.read.context.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.expand import adjacencies, is_of_type, reversed_steps
from omnigraph.read.match.fold import (
    Fold,
    FoldValue,
    check_sums,
    empty_value,
    has_values,
    multiplied,
    node_values,
)
from omnigraph.read.match.hops import Walk
from omnigraph.read.match.row_counts import MAX_ROW_COUNT, count_too_large, products
from omnigraph.read.rows.folded_column import Folded, FoldedColumn
from omnigraph.read.rows.frame import Binding, Frame
from omnigraph.read.topology.topologies import Edges

_SAFE_SUM = float(2**62)
"""Sums up to this bound cannot overflow a 64-bit integer."""

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


class NodeWeights:
    """Weights of nodes. The weight of a node is the number of matches of eliminated variables that it stands for.

    Attributes:
        of: array of weights for each variable. If a variable has few candidates, element n is the weight of the n-th
            candidate; else it is the weight of node number n.
        factor: product of the numbers of matches of variables that are joined with no other variable.

    Args:
        candidates: the candidates of all variables.
        context: the state of the running read: snapshot, parameters and budget.
        at_most: larger weights are replaced by this number; None for exact counts.
        folds: properties of counted variables that are aggregated.
    """

    def __init__(
        self, candidates: Candidates, context: Context, at_most: int | None = None, folds: Sequence[Fold] = ()
    ) -> None:
        self._candidates = candidates
        self._context = context
        self._at_most = at_most
        self._folds = folds
        self._kinds: dict[Fold, pa.DataType] = {
            fold: candidates.tables(fold.var)[0].schema.field(fold.prop).type for fold in folds
        }
        # For each variable, the folded values that arrived at its nodes, in arrays like those of `of`. They are
        # combined over all matches of the eliminated variables.
        self._folded: dict[str, dict[FoldValue, npt.NDArray[Any]]] = {}
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

    def at(self, name: str, binding: Binding) -> Numbers:
        """For each row, the number of matches of eliminated variables that the node of a variable stands for."""
        return self.of[name].take(self._places(name, binding.numbers))

    def _places(self, name: str, numbers: Numbers) -> Numbers:
        """Positions of candidates of a variable in its array of weights."""
        nodes = self.few(name)
        return numbers if nodes is None else positions(nodes, numbers, self._candidates.tables(name)[0].slots)

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

    def folded(self, frame: Frame, total: Numbers) -> dict[tuple[str, str], FoldedColumn]:
        """The folded columns of the output rows.

        Args:
            frame: the rows.
            total: number of matches that each row stands for.
        """
        found: dict[Fold, dict[Folded, npt.NDArray[Any]]] = {}
        for name, values in self._folded.items():
            places = self._places(name, frame.bindings[name].numbers)
            # The folded values contain the weight of the node, so the rest of the matches is the quotient.
            others = total // self.of[name].take(places)
            for each, at_node in values.items():
                at_row = at_node.take(places)
                at_row = multiplied(at_row, others) if each.value.adds else at_row
                found.setdefault(each.fold, {})[each.value] = at_row
        return {(fold.var, fold.prop): FoldedColumn(values, self._kinds[fold]) for fold, values in found.items()}

    def multiply(self, name: str, frame: Frame, counts: Numbers) -> None:
        """Multiply the weights of the nodes of a variable with the numbers of matches of an optional block.

        The folded columns of its matches are folded values of the nodes.

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
        folded: dict[FoldValue, npt.NDArray[Any]] = {}
        for (var, prop), column in frame.folded.items():
            fold = Fold(var, prop, tuple(column.values))
            self._kinds[fold] = column.kind
            for value, at_match in column.values.items():
                values = np.full(table.slots, empty_value(value, at_match.dtype), at_match.dtype)
                values[binding.numbers] = at_match
                folded[FoldValue(fold, value)] = values if nodes is None else values.take(nodes)
        self._add(name, factors, folded)

    def eliminate(self, leaf: Leaf) -> None:
        if leaf.onto is None:
            self.factor *= self._total(leaf.name)
            if self._at_most is not None:
                self.factor = min(self.factor, self._at_most)
            if self.factor > MAX_ROW_COUNT:
                raise count_too_large()
            return
        assert leaf.expand is not None
        folded: dict[FoldValue, npt.NDArray[Any]] = {}
        if leaf.expand.hops is not None:
            arriving = self._reached(leaf.name, leaf.onto, leaf.expand)
        else:
            forward = leaf.expand.left == leaf.onto
            (step,) = leaf.expand.steps if forward else reversed_steps(leaf.expand.steps)
            (adjacency,) = adjacencies(self._context, step)
            # Parallel edges count once, unless the query has an edge variable.
            distinct = leaf.expand.edge_var is None and adjacency.may_repeat(self._expected(leaf.onto, adjacency))
            is_folded = leaf.name in self._folded or any(fold.var == leaf.name for fold in self._folds)
            if self._filters_late(leaf.name, leaf.onto, adjacency) and not is_folded:
                arriving = self._filtered_counts(adjacency, leaf, distinct=distinct)
            else:
                arriving, folded = self._arriving(leaf, step, adjacency, distinct=distinct, is_folded=is_folded)
        self._add(leaf.onto, arriving, folded)

    def _arriving(
        self, leaf: Leaf, step: ir.Step, adjacency: Edges, *, distinct: bool, is_folded: bool
    ) -> tuple[Numbers, dict[FoldValue, npt.NDArray[Any]]]:
        """For each node that a leaf is joined with, the sum of the weights of its neighbours, and the folded values."""
        assert leaf.onto is not None
        name, onto = leaf.name, leaf.onto
        values = self._values(name)
        from_leaf = values is not None and self._is_smaller(name, onto, values)
        folds = self._leaf_values(name, values) if is_folded else {}
        edges: _Edges | None = None
        if folds:
            edges = self._edges_from_leaf(step, name, onto) if from_leaf else self._edges(adjacency, onto)
        if values is None:
            arriving = self._counts(adjacency, onto, distinct=distinct)
        elif from_leaf:
            edges = edges or self._edges_from_leaf(step, name, onto)
            arriving = edges.reduce(np.add, values.astype(np.int64), 0, distinct=distinct)
        else:
            self._check_sums(adjacency, values)
            edges = edges or self._edges(adjacency, onto)
            arriving = edges.reduce(np.add, values, 0, distinct=distinct)
        found = {}
        for each, numbers in folds.items():
            assert edges is not None
            is_own_count = each.value is Folded.COUNT and each.fold.var == name
            if is_own_count and has_values(self._candidates.tables(name)[0], each):
                found[each] = arriving
                continue
            if each.value.adds:
                check_sums(numbers, edges.size)
            empty = empty_value(each.value, numbers.dtype)
            found[each] = edges.reduce(each.value.function, numbers, empty, distinct=distinct)
        return arriving, found

    def _add(self, onto: str, arriving: Numbers, folded: dict[FoldValue, npt.NDArray[Any]]) -> None:
        """Combine the weights and folded values that arrive at the nodes of a variable with those that they have."""
        before, known = self.of.get(onto), self._folded.get(onto)
        if known is not None:
            for each, values in known.items():
                known[each] = multiplied(values, arriving) if each.value.adds else values
        if folded:
            if before is not None:
                folded = {
                    each: multiplied(values, before) if each.value.adds else values for each, values in folded.items()
                }
            self._folded[onto] = {**(known or {}), **folded}
        together = arriving if before is None else products(before, arriving)
        # Weights are limited to `at_most` after each step. The final weights are the same as if they were limited only
        # once, at the end.
        self.of[onto] = together if self._at_most is None else np.minimum(together, self._at_most)

    def _leaf_values(self, name: str, weights: Numbers | Mask | None) -> dict[FoldValue, npt.NDArray[Any]]:
        """The folded values of each node of a variable that is eliminated, by node number.

        Args:
            name: the variable.
            weights: the result of `_values`.
        """
        (table,) = self._candidates.tables(name)
        found = {
            each: node_values(table, each, weights)
            for fold in self._folds
            if fold.var == name
            for each in (FoldValue(fold, value) for value in fold.values)
        }
        for each, values in self._folded.pop(name, {}).items():
            empty = empty_value(each.value, values.dtype)
            if (nodes := self.few(name)) is not None:
                at_nodes, values = values, np.full(table.slots, empty, values.dtype)
                values[nodes] = at_nodes
            found[each] = values if weights is None else np.where(weights > 0, values, empty)
        return found

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
        edges = _SomeEdges(far[back], _owners(degree), len(nodes))
        return _reduce_by_target(np.add, allowed[back].astype(np.int64), edges, 0, distinct=distinct)

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

    def _edges_from_leaf(self, step: ir.Step, name: str, onto: str) -> _Edges:
        """The edges of the few candidates of a leaf."""
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
        return _SomeEdges(sender, far, size)

    def _edges(self, adjacency: Edges, onto: str) -> _Edges:
        """The edges of the few candidates of the variable that a leaf is joined with, or all edges."""
        nodes = self.few(onto)
        if nodes is None:
            self._context.budget.spend(adjacency.size)
            return _AllEdges(adjacency)
        degree, places = adjacency.walk(nodes)
        self._context.budget.spend(len(places))
        return _SomeEdges(adjacency.far(places), _owners(degree), len(nodes))

    def _counts(self, adjacency: Edges, onto: str, *, distinct: bool) -> Numbers:
        """Degree of each node, or with `distinct` the number of its distinct neighbours."""
        nodes = self.few(onto)
        if nodes is None:
            return adjacency.whole.neighbours if distinct else adjacency.whole.degree
        return adjacency.counts(nodes, distinct=distinct)

    def _check_sums(self, adjacency: Edges, values: Numbers | Mask) -> None:
        """Raise an error if a sum of weights of neighbours is larger than the largest row count."""
        if values.dtype != np.bool_ and len(values) and float(values.max()) * adjacency.size > MAX_ROW_COUNT:
            whole = adjacency.whole
            about = np.bincount(whole.owners(), values.astype(np.float64).take(whole.neighbour))
            if float(about.max(initial=0)) > MAX_ROW_COUNT:
                raise count_too_large()

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


class _Edges(Protocol):
    """Edges between the nodes of a leaf and the nodes of the variable that it is joined with."""

    @property
    def size(self) -> int: ...
    def reduce(self, function: np.ufunc, values: npt.NDArray[Any], empty: Any, *, distinct: bool) -> npt.NDArray[Any]:
        """Combine, for each node of the variable, the values of its neighbours.

        Args:
            function: `np.add`, `np.minimum` or `np.maximum`.
            values: value of each node of the leaf, by node number.
            empty: result for a node without edges.
            distinct: whether parallel edges count once.
        """
        ...


@dataclass(frozen=True, slots=True)
class _AllEdges:
    """All edges of a type."""

    adjacency: Edges

    @property
    def size(self) -> int:
        return self.adjacency.size

    def reduce(self, function: np.ufunc, values: npt.NDArray[Any], empty: Any, *, distinct: bool) -> npt.NDArray[Any]:
        return self.adjacency.whole.reduce(function, values, empty, distinct=distinct)


@dataclass(frozen=True, slots=True)
class _SomeEdges:
    """Some edges.

    Attributes:
        leaf: the node of the leaf of each edge.
        onto: the node at the other end, as an index into the result. Parallel edges are adjacent.
        nodes: number of nodes at the other end.
    """

    leaf: Numbers
    onto: Numbers
    nodes: int

    @property
    def size(self) -> int:
        return len(self.leaf)

    def reduce(self, function: np.ufunc, values: npt.NDArray[Any], empty: Any, *, distinct: bool) -> npt.NDArray[Any]:
        adds = function is np.add
        arriving = values.take(self.leaf).astype(np.int64 if adds else values.dtype, copy=False)
        return _reduce_by_target(function, arriving, self, empty, distinct=distinct and adds)


def _owners(degree: Numbers) -> Numbers:
    """For edges that are grouped by node, the index of the node of each edge.

    `degree` is the number of edges per node.
    """
    return np.repeat(np.arange(len(degree)), degree)


def _reduce_by_target(
    function: np.ufunc, arriving: npt.NDArray[Any], edges: _SomeEdges, empty: Any, *, distinct: bool
) -> npt.NDArray[Any]:
    """For each target node, the values of its edges combined. `arriving`, the value of each edge, is overwritten."""
    if distinct:
        arriving[1:][(edges.leaf[1:] == edges.leaf[:-1]) & (edges.onto[1:] == edges.onto[:-1])] = 0
    found = np.full(edges.nodes, empty, arriving.dtype)
    function.at(found, edges.onto, arriving)
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
