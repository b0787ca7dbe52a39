"""Expand: walk edges from a bound variable to the variable at the other end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir.text import expansion
from omnigraph.read.budget.chunks import chunks
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import NOTHING, Integers, Mask, Numbers
from omnigraph.read.context.context import Context
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.filter import filter_rows, true_mask
from omnigraph.read.match.parts import is_one_part
from omnigraph.read.match.pipeline import BlockRun, Operator
from omnigraph.read.match.row_counts import products
from omnigraph.read.query.block import bound_by_expand
from omnigraph.read.query.expression import Expression
from omnigraph.read.rows.frame import Binding, Frame
from omnigraph.read.topology.adjacency import Adjacency
from omnigraph.read.topology.topologies import Edges

_NUMBERS_PER_NODE = 6
"""Number of array elements that each reached node needs in memory."""

KeepNodes = Callable[[Frame, Numbers, Integers], Numbers]
"""Chooses reached nodes. Gets the input rows, the row of each node, and the nodes; returns the positions to keep."""

_REVERSED = {
    ir.Direction.OUT: ir.Direction.IN,
    ir.Direction.IN: ir.Direction.OUT,
    ir.Direction.BOTH: ir.Direction.BOTH,
}


def reversed_steps(steps: Sequence[ir.Step]) -> tuple[ir.Step, ...]:
    """The same edge types, walked in the opposite direction."""
    return tuple(ir.Step(s.edge, _REVERSED[s.direction], s.right_type, s.left_type) for s in steps)


@dataclass(frozen=True, slots=True)
class Expand(Operator):
    """Walk edges from a bound variable. Binds the variable at the other end, and the edge variable if there is one.

    Attributes:
        expand: the traversal of the query.
        forward: whether edges are walked from the left variable to the right one; else from right to left.
        late: whether the conditions on the variable at the other end are evaluated only on the nodes that are reached.
        early: conditions on the variable at the other end and on bound variables. They are evaluated before rows are
            produced.
    """

    expand: ir.Expand
    forward: bool = True
    late: bool = False
    early: tuple[Expression, ...] = ()

    @property
    def name(self) -> OperatorName:
        return OperatorName.EXPAND

    @property
    def text(self) -> str:
        return expansion(self.expand).removeprefix("expand ") + ("" if self.forward else " (from the right)")

    @property
    def reason(self) -> str:
        if self.late:
            return "conditions are evaluated on reached nodes"
        return "" if self.forward else "fewer rows than from the left"

    @property
    def binds(self) -> frozenset[str]:
        return frozenset({self.expand.left, self.expand.right, *bound_by_expand(self.expand)})

    @property
    def edge_steps(self) -> Sequence[ir.Step]:
        return self.expand.steps if self.forward else reversed_steps(self.expand.steps)

    @property
    def far(self) -> str:
        """The variable at the other end, which this operator binds."""
        return self.expand.right if self.forward else self.expand.left

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.near}).union(*(condition.variables for condition in self.early)) - {self.far}

    def is_local(self, candidates: Candidates) -> bool:
        return not (self.late and any(condition.is_search for condition in candidates.own(self.far)))

    def work(self, frame: Frame, run: BlockRun) -> Numbers | None:
        return walked_edges(run.context, frame.bindings[self.near], self.edge_steps)

    def pushed(self, candidates: Candidates) -> Sequence[Expression]:
        return (*candidates.own(self.far), *self.early) if self.late else self.early

    def execute(self, frame: Frame, run: BlockRun) -> Frame:
        return self.execute_filtered(frame, run, None)

    def execute_for(self, frame: Frame, run: BlockRun, needed: frozenset[str] | None) -> Frame:
        return self.execute_filtered(frame, run, None, needed)

    def execute_filtered(
        self, frame: Frame, run: BlockRun, keep: KeepNodes | None, needed: frozenset[str] | None = None
    ) -> Frame:
        """Like `execute_for`. `keep` removes reached nodes before rows are produced for them.

        With `keep`, the traversal must be plain (see `is_plain`).
        """
        context, candidates, far = run.context, run.candidates, self.far
        late = self.late and not candidates.is_chosen(far)
        tables = candidates.tables(far)
        allowed = [None for _ in tables] if late else candidates.masks(far)
        found = self._extend(frame, tables, allowed, context, keep, needed)
        if late:
            for condition in candidates.own(far):
                found = filter_rows(condition, found, context)
        return found

    def execute_counting(self, frame: Frame, run: BlockRun) -> Frame | None:
        candidates, far = run.candidates, self.far
        start, tables = frame.bindings[self.near], candidates.tables(far)
        is_filtered = bool(self.early) or (self.late and not candidates.is_chosen(far))
        if is_filtered or not _is_plain(self.expand, self.edge_steps, start, tables):
            return None
        (adjacency,) = adjacencies(run.context, self.edge_steps[0])
        (allowed,) = candidates.masks(far)
        rows = np.flatnonzero(start.numbers != NOTHING)
        nodes = start.numbers.take(rows)
        if allowed is None:
            counts = adjacency.counts(nodes, distinct=True)
        else:
            counts = adjacency.counts_where(nodes, allowed, distinct=True)
        run.context.budget.spend(len(nodes))
        there = np.flatnonzero(counts)
        found = frame.take(rows.take(there))
        counts = counts.take(there)
        return replace(found, weight=counts if found.weight is None else products(found.weight, counts))

    @property
    def near(self) -> str:
        """The bound variable from which edges are walked."""
        return self.expand.left if self.forward else self.expand.right

    def is_plain(self, frame: Frame, run: BlockRun) -> bool:
        """Whether one edge type is walked in one direction, between two node types, without an edge variable."""
        return _is_plain(self.expand, self.edge_steps, frame.bindings[self.near], run.candidates.tables(self.far))

    def _extend(
        self,
        frame: Frame,
        tables: tuple[EntityTable, ...],
        allowed: Sequence[Mask | None],
        context: Context,
        keep: KeepNodes | None,
        needed: frozenset[str] | None,
    ) -> Frame:
        expand, steps, far, near = self.expand, self.edge_steps, self.far, self.near
        if _is_plain(expand, steps, frame.bindings[near], tables):
            return self._extend_plain(context, frame, tables, allowed[0], keep, needed)
        assert keep is None
        edges = edge_types(expand)
        reached = neighbours(context, frame.bindings[near], steps, [table.type_name for table in tables], edges)
        reached = _filter_candidates(reached, allowed)
        if expand.edge_var is None:
            reached = distinct(reached, tables)
        context.budget.need_arrays(len(reached.row), frame.width + _NUMBERS_PER_NODE)
        wide = frame.take(reached.row).bind(far, node_binding(tables, reached))
        if expand.edge_var is not None:
            wide = wide.bind(expand.edge_var.name, edge_binding(context, edges, reached))
        for condition in self.early:
            wide = filter_rows(condition, wide, context)
        return wide

    def _extend_plain(
        self,
        context: Context,
        frame: Frame,
        tables: tuple[EntityTable, ...],
        allowed: Mask | None,
        keep: KeepNodes | None,
        needed: frozenset[str] | None,
    ) -> Frame:
        start = frame.bindings[self.near].numbers
        there = start != NOTHING
        rows = np.arange(frame.count) if there.all() else np.flatnonzero(there)
        (adjacency,) = adjacencies(context, self.edge_steps[0])
        nodes = start if len(rows) == len(start) else start.take(rows)
        column = adjacency.column_for(len(nodes)) if isinstance(adjacency, Adjacency) else None
        if column is None:
            degree, numbers = adjacency.neighbours_of(nodes)
            context.budget.spend(len(numbers))
            row = np.repeat(rows, degree)
            kept = None if allowed is None else allowed.take(numbers)
            if adjacency.may_repeat(len(numbers)):
                again = np.flatnonzero(numbers[1:] == numbers[:-1])
                again = again[row.take(again) == row.take(again + 1)]
                if len(again):
                    # Parallel edges count once, because there is no edge variable.
                    kept = np.ones(len(numbers), bool) if kept is None else kept
                    kept[again + 1] = False
        else:
            context.budget.spend(len(nodes))
            numbers, row = column.take(nodes), rows
            has_edge = numbers != NOTHING
            kept = None if has_edge.all() else has_edge
            if allowed is not None:
                kept = has_edge & allowed.take(numbers) if len(allowed) else has_edge
        if kept is not None:
            places = np.flatnonzero(kept)
            numbers, row = numbers.take(places), row.take(places)
        if self.early:
            places = self._satisfying(frame, row, Binding(tables, numbers), context)
            numbers, row = numbers.take(places), row.take(places)
        if keep is not None:
            places = keep(frame, row, numbers)
            numbers, row = numbers.take(places), row.take(places)
        binding = Binding(tables, numbers.astype(np.int64))
        frame = frame if needed is None else frame.only(needed)
        if column is not None and len(row) == frame.count:
            return frame.bind(self.far, binding)
        context.budget.need_arrays(len(row), frame.width + _NUMBERS_PER_NODE)
        return frame.take(row).bind(self.far, binding)

    def _satisfying(self, frame: Frame, row: Numbers, reached: Binding, context: Context) -> Numbers:
        """Positions of the reached nodes that satisfy the early conditions.

        Only the variables of the conditions are copied to test them.
        """
        names = frozenset[str]().union(*(condition.variables for condition in self.early))
        few = Frame(
            frame.count,
            {name: binding for name, binding in frame.bindings.items() if name in names},
            {name: path for name, path in frame.paths.items() if name in names},
            searching=frame.searching,
            values={name: values for name, values in frame.values.items() if name in names},
        )
        found = []
        for first, last in chunks(len(row)):
            nodes = Binding(reached.tables, reached.numbers[first:last].astype(np.int64))
            pairs = few.take(row[first:last]).bind(self.far, nodes)
            places = np.arange(first, last)
            for place, condition in enumerate(self.early):
                kept = np.flatnonzero(true_mask(condition, pairs, context, len(row)))
                places = places.take(kept)
                if place < len(self.early) - 1:
                    pairs = pairs.take(kept)
            found.append(places)
        return np.concatenate(found)


def edge_types(expand: ir.Expand) -> tuple[str, ...]:
    """Edge types of a traversal. The `type_index` of an edge is an index into this tuple."""
    return expand.edge_var.types if expand.edge_var else tuple(dict.fromkeys(step.edge for step in expand.steps))


@dataclass(frozen=True, slots=True)
class Reached:
    """Nodes that were reached from rows, one element per walked edge.

    Attributes:
        row: the row that the edge was walked from.
        type_index: type of the reached node, as an index into the node types of the variable.
        number: number of the reached node.
        edge_type_index: type of the edge, as an index into the edge types of the traversal.
        edge: number of the edge.
    """

    row: Numbers
    type_index: Numbers
    number: Numbers
    edge_type_index: Numbers
    edge: Numbers

    def filter(self, chosen: Mask | Numbers) -> Reached:
        return Reached(
            self.row[chosen],
            self.type_index[chosen],
            self.number[chosen],
            self.edge_type_index[chosen],
            self.edge[chosen],
        )


def adjacencies(context: Context, step: ir.Step) -> list[Edges]:
    """Adjacency lists to walk for an edge type: one for each direction of the step."""
    sides = {ir.Direction.OUT: (False,), ir.Direction.IN: (True,)}.get(step.direction, (False, True))
    return [context.topologies.edges(step.edge, inward=inward, note=context.note_access) for inward in sides]


def are_joined(context: Context, step: ir.Step, near: Integers, far: Integers) -> Mask:
    """Mask of the pairs of nodes that at least one edge joins. The step must have one direction.

    Args:
        context: the state of the running read: snapshot, parameters and budget.
        step: edge type and direction, from the near to the far node.
        near: the near node of each pair.
        far: the far node of each pair.
    """
    (adjacency,) = adjacencies(context, step)
    if isinstance(adjacency, Adjacency) and adjacency.column_for(len(near)) is None:
        (back,) = adjacencies(context, *reversed_steps([step]))
        if isinstance(back, Adjacency) and back.column_for(len(near)) is not None:
            return back.joins(far, near)
    return adjacency.joins(near, far)


def neighbours(
    context: Context,
    start: Binding,
    steps: Sequence[ir.Step],
    types: Sequence[str],
    edges: Sequence[str],
) -> Reached:
    """Walk all edges from the nodes of a binding. The reached nodes are in row order.

    Args:
        context: the state of the running read: snapshot, parameters and budget.
        start: the nodes to walk from.
        steps: edge types and directions to walk.
        types: node types to reach. `type_index` in the result is an index into this sequence.
        edges: edge types. `edge_type_index` in the result is an index into this sequence.
    """
    found: list[Reached] = []
    for step in steps:
        if step.right_type not in types:
            continue
        rows = rows_of(start, step.left_type)
        for turn, adjacency in enumerate(adjacencies(context, step)):
            part = _walk(start, rows, adjacency, types.index(step.right_type), edges.index(step.edge))
            if turn:
                # A self-loop is found in both directions. It counts once, because it is one edge.
                part = part.filter(part.number != start.numbers[part.row])
            context.budget.spend(len(part.row))
            found.append(part)
    return joined(found)


def rows_of(start: Binding, type_name: str) -> Numbers:
    """Rows in which a binding has a node of the given type."""
    return np.flatnonzero(is_of_type(start, type_name))


def is_of_type(binding: Binding, type_name: str) -> Mask:
    """Mask of the rows in which a binding has a node of the given type."""
    for number, table in enumerate(binding.tables):
        if table.type_name == type_name:
            here: Mask = binding.numbers != NOTHING
            return here if binding.type_index is None else here & (binding.type_index == number)
    return np.zeros(len(binding.numbers), bool)


def _walk(start: Binding, rows: Numbers, adjacency: Edges, type_index: int, edge_type_index: int) -> Reached:
    degree, at = adjacency.walk(start.numbers[rows])
    return Reached(
        np.repeat(rows, degree),
        np.full(len(at), type_index, np.int64),
        adjacency.far(at),
        np.full(len(at), edge_type_index, np.int64),
        adjacency.edges(at),
    )


def joined(parts: list[Reached]) -> Reached:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        empty = np.array([], np.int64)
        return Reached(empty, empty, empty, empty, empty)
    together = Reached(
        np.concatenate([p.row for p in parts]),
        np.concatenate([p.type_index for p in parts]),
        np.concatenate([p.number for p in parts]),
        np.concatenate([p.edge_type_index for p in parts]),
        np.concatenate([p.edge for p in parts]),
    )
    return together.filter(np.argsort(together.row, kind="stable"))


def distinct(reached: Reached, tables: Sequence[EntityTable]) -> Reached:
    """Keep each reached node once per row."""
    starts = np.cumsum([0, *(table.slots for table in tables)])
    size = max(int(starts[-1]), 1)
    keys = reached.row * size + starts[reached.type_index] + reached.number
    if len(keys) and (np.diff(keys) > 0).all():
        return reached
    return reached.filter(np.unique(keys, return_index=True)[1])


def walked_edges(context: Context, start: Binding, steps: Sequence[ir.Step]) -> Numbers | None:
    """Number of edges that are walked from each row; None if there are few, and they are looked up with an index."""
    degree = np.zeros(len(start.numbers), np.int64)
    for step in steps:
        for adjacency in adjacencies(context, step):
            few = is_one_part(len(degree) * adjacency.size / max(adjacency.nodes, 1))
            if few and not isinstance(adjacency, Adjacency):
                return None
            rows = rows_of(start, step.left_type)
            if len(rows) == len(degree):
                degree += adjacency.whole.degree.take(start.numbers)
            else:
                degree[rows] += adjacency.whole.degree.take(start.numbers.take(rows))
    return degree


def _is_plain(expand: ir.Expand, steps: Sequence[ir.Step], start: Binding, tables: tuple[EntityTable, ...]) -> bool:
    """Whether one edge type is walked in one direction, between two node types, without an edge variable.

    A clause after an optional block may narrow the types of a variable, so that it has no edges of the block any more.

    Args:
        expand: the traversal.
        steps: its steps, in the direction of the walk.
        start: the nodes to walk from.
        tables: the tables of the variable that is reached.
    """
    (step, *others) = steps
    return (
        not others
        and expand.edge_var is None
        and step.direction is not ir.Direction.BOTH
        and len(tables) == 1
        and len(start.tables) == 1
        and (start.tables[0].type_name, tables[0].type_name) == (step.left_type, step.right_type)
    )


def _filter_candidates(reached: Reached, allowed: Sequence[Mask | None]) -> Reached:
    if all(mask is None for mask in allowed):
        return reached
    if len(allowed) == 1:
        assert allowed[0] is not None
        return reached.filter(allowed[0][reached.number])
    keep = np.ones(len(reached.row), bool)
    for number, mask in enumerate(allowed):
        if mask is not None:
            mine = reached.type_index == number
            keep[mine] = mask[reached.number[mine]]
    return reached.filter(keep)


def node_binding(tables: tuple[EntityTable, ...], reached: Reached) -> Binding:
    return Binding(tables, reached.number, reached.type_index if len(tables) > 1 else None)


def edge_binding(context: Context, edges: Sequence[str], reached: Reached) -> Binding:
    tables = tuple(context.tables.edges(name) for name in edges)
    return Binding(tables, reached.edge, reached.edge_type_index if len(tables) > 1 else None)
