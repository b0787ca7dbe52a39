"""Walking edges: from the rows of a frame to those of their neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from omnigraph.lang.query import ir
from omnigraph.read.context import Context
from omnigraph.read.match.frame import Binding, Frame, joined_frames
from omnigraph.read.space.space import NOTHING, Mask, Numbers, Space
from omnigraph.read.topology.topology import Edges

_TOGETHER = 1 << 19
"""How many edges are walked at a time: few enough that a read is stopped soon, many enough that nobody notices."""

_REACHED = 6
"""How many numbers there are about what was reached."""

_REVERSED = {
    ir.Direction.OUT: ir.Direction.IN,
    ir.Direction.IN: ir.Direction.OUT,
    ir.Direction.BOTH: ir.Direction.BOTH,
}


def reversed_steps(steps: Sequence[ir.Step]) -> tuple[ir.Step, ...]:
    """The same edges, walked the other way."""
    return tuple(ir.Step(s.edge, _REVERSED[s.direction], s.right_type, s.left_type) for s in steps)


@dataclass(frozen=True, slots=True)
class Reached:
    """What was reached from some rows.

    Attributes:
        row: the row that each came from.
        which: the type of the node, among those asked for.
        number: the node.
        edge_which: the type of the edge, among those walked.
        edge: the edge.
    """

    row: Numbers
    which: Numbers
    number: Numbers
    edge_which: Numbers
    edge: Numbers

    def filter(self, chosen: Mask | Numbers) -> Reached:
        return Reached(
            self.row[chosen], self.which[chosen], self.number[chosen], self.edge_which[chosen], self.edge[chosen]
        )


def adjacencies(context: Context, step: ir.Step) -> list[Edges]:
    """The edges to walk for a step: one way, or both."""
    sides = {ir.Direction.OUT: (False,), ir.Direction.IN: (True,)}.get(step.direction, (False, True))
    return [context.topologies.edges(step.edge, inward=inward, trace=context.trace) for inward in sides]


def neighbours(
    context: Context,
    start: Binding,
    steps: Sequence[ir.Step],
    types: Sequence[str],
    edges: Sequence[str],
) -> Reached:
    """All neighbours of the nodes of a binding, one for each edge, row by row.

    Args:
        context: the read.
        start: the nodes to walk from.
        steps: the edges to walk.
        types: the node types that may be reached.
        edges: the edge types that are told apart.
    """
    found: list[Reached] = []
    for step in steps:
        if step.right_type not in types:
            continue
        rows = _rows_of(start, step.left_type)
        for turn, adjacency in enumerate(adjacencies(context, step)):
            part = _gather(start, rows, adjacency, types.index(step.right_type), edges.index(step.edge))
            if turn:
                # A self-loop is one edge, though it is met from both ends.
                part = part.filter(part.number != start.numbers[part.row])
            context.budget.spend(len(part.row))
            found.append(part)
    return _joined(found)


def _rows_of(start: Binding, type_name: str) -> Numbers:
    """The rows that hold a node of a type."""
    for number, space in enumerate(start.spaces):
        if space.type_name == type_name:
            here = start.numbers != NOTHING
            return np.flatnonzero(here if start.which is None else here & (start.which == number))
    return np.array([], np.int64)


def _gather(start: Binding, rows: Numbers, adjacency: Edges, which: int, edge_which: int) -> Reached:
    degree, at = adjacency.walk(start.numbers[rows])
    return Reached(
        np.repeat(rows, degree),
        np.full(len(at), which, np.int64),
        adjacency.far(at),
        np.full(len(at), edge_which, np.int64),
        adjacency.edges(at),
    )


def _joined(parts: list[Reached]) -> Reached:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        nobody = np.array([], np.int64)
        return Reached(nobody, nobody, nobody, nobody, nobody)
    together = Reached(
        np.concatenate([p.row for p in parts]),
        np.concatenate([p.which for p in parts]),
        np.concatenate([p.number for p in parts]),
        np.concatenate([p.edge_which for p in parts]),
        np.concatenate([p.edge for p in parts]),
    )
    return together.filter(np.argsort(together.row, kind="stable"))


def distinct(reached: Reached, spaces: Sequence[Space]) -> Reached:
    """Each neighbour once for each row."""
    starts = np.cumsum([0, *(space.slots for space in spaces)])
    size = max(int(starts[-1]), 1)
    keys = reached.row * size + starts[reached.which] + reached.number
    if len(keys) and (np.diff(keys) > 0).all():
        return reached
    return reached.filter(np.unique(keys, return_index=True)[1])


def extend(
    context: Context,
    frame: Frame,
    expand: ir.Expand,
    *,
    forward: bool,
    spaces: tuple[Space, ...],
    allowed: Sequence[Mask | None],
) -> Frame:
    """A frame with the variable at the other end of an expand, and the edge variable if there is one.

    Args:
        context: the read.
        frame: has one end bound.
        expand: the edges.
        forward: whether it is the left end that is bound.
        spaces: what the other end ranges over.
        allowed: for each of those, the nodes that count; None for all.
    """
    steps = expand.steps if forward else reversed_steps(expand.steps)
    start = frame.bindings[expand.left if forward else expand.right]
    parts = []
    for portion in [None] if frame.paths else _portions(context, start, steps):
        part = frame if portion is None else frame.take(portion)
        parts.append(_extend(context, part, expand, steps, forward=forward, spaces=spaces, allowed=allowed))
    return parts[0] if len(parts) == 1 else joined_frames(parts)


def _portions(context: Context, start: Binding, steps: Sequence[ir.Step]) -> Iterator[Numbers | None]:
    """Rows to walk from at a time; None for all of them. Between portions, a read can be stopped."""
    rows = len(start.numbers)
    walked = [(step.left_type, adjacency) for step in steps for adjacency in adjacencies(context, step)]
    average = sum(adjacency.size / max(adjacency.nodes, 1) for _, adjacency in walked)
    if rows * average < _TOGETHER:
        yield None
        return
    degree = np.zeros(rows, np.int64)
    for type_name, adjacency in walked:
        mine = _rows_of(start, type_name)
        degree[mine] += adjacency.whole.degree.take(start.numbers[mine])
    ends = np.cumsum(degree)
    context.budget.expect(int(ends[-1]), _REACHED)
    bounds = np.unique(np.searchsorted(ends, np.arange(0, int(ends[-1]) + _TOGETHER, _TOGETHER), "right"))
    bounds = np.unique(np.concatenate([[0], bounds, [rows]]))
    for first, last in pairwise(bounds.tolist()):
        yield np.arange(first, last)


def _extend(
    context: Context,
    frame: Frame,
    expand: ir.Expand,
    steps: Sequence[ir.Step],
    *,
    forward: bool,
    spaces: tuple[Space, ...],
    allowed: Sequence[Mask | None],
) -> Frame:
    near, far = (expand.left, expand.right) if forward else (expand.right, expand.left)
    if _is_plain(expand, frame.bindings[near], spaces):
        return _extend_plainly(context, frame, steps[0], near, far, spaces, allowed[0])
    edges = expand.edge_var.types if expand.edge_var else tuple(dict.fromkeys(step.edge for step in steps))
    reached = neighbours(context, frame.bindings[near], steps, [space.type_name for space in spaces], edges)
    reached = _only(reached, allowed)
    if expand.edge_var is None:
        reached = distinct(reached, spaces)
    context.budget.room(len(reached.row), frame.width + _REACHED)
    wide = frame.take(reached.row).bind(far, node_binding(spaces, reached))
    return wide if expand.edge_var is None else wide.bind(expand.edge_var.name, edge_binding(context, edges, reached))


def _is_plain(expand: ir.Expand, start: Binding, spaces: tuple[Space, ...]) -> bool:
    """Whether edges of one type are walked one way between nodes of one type each, and nobody asks for the edges."""
    (step, *others) = expand.steps
    return (
        not others
        and expand.edge_var is None
        and step.direction is not ir.Direction.BOTH
        and len(spaces) == 1
        and len(start.spaces) == 1
    )


def _extend_plainly(
    context: Context,
    frame: Frame,
    step: ir.Step,
    near: str,
    far: str,
    spaces: tuple[Space, ...],
    allowed: Mask | None,
) -> Frame:
    start = frame.bindings[near].numbers
    there = start != NOTHING
    rows = np.arange(frame.count) if there.all() else np.flatnonzero(there)
    (adjacency,) = adjacencies(context, step)
    degree, places = adjacency.walk(start if len(rows) == len(start) else start.take(rows))
    context.budget.spend(len(places))
    numbers, row = adjacency.far(places), np.repeat(rows, degree)
    kept = None if allowed is None else allowed.take(numbers)
    again = (numbers[1:] == numbers[:-1]) & (row[1:] == row[:-1])
    if again.any():
        # Neighbours are a set: of several edges, one counts.
        kept = np.ones(len(numbers), bool) if kept is None else kept
        kept[1:][again] = False
    if kept is not None:
        places = np.flatnonzero(kept)
        numbers, row = numbers.take(places), row.take(places)
    context.budget.room(len(row), frame.width + _REACHED)
    return frame.take(row).bind(far, Binding(spaces, numbers))


def _only(reached: Reached, allowed: Sequence[Mask | None]) -> Reached:
    if all(mask is None for mask in allowed):
        return reached
    if len(allowed) == 1:
        assert allowed[0] is not None
        return reached.filter(allowed[0][reached.number])
    keep = np.ones(len(reached.row), bool)
    for number, mask in enumerate(allowed):
        if mask is not None:
            mine = reached.which == number
            keep[mine] = mask[reached.number[mine]]
    return reached.filter(keep)


def node_binding(spaces: tuple[Space, ...], reached: Reached) -> Binding:
    return Binding(spaces, reached.number, reached.which if len(spaces) > 1 else None)


def edge_binding(context: Context, edges: Sequence[str], reached: Reached) -> Binding:
    spaces = tuple(context.spaces.edges(name) for name in edges)
    return Binding(spaces, reached.edge, reached.edge_which if len(spaces) > 1 else None)


def meet(context: Context, frame: Frame, expand: ir.Expand) -> Frame:
    """The rows of a frame with both ends bound that an edge joins; with an edge variable, one for each edge."""
    left, right = frame.bindings[expand.left], frame.bindings[expand.right]
    edges = expand.edge_var.types if expand.edge_var else tuple(dict.fromkeys(step.edge for step in expand.steps))
    found: list[Reached] = []
    met = np.zeros(frame.count, bool)
    context.budget.spend(frame.count)
    for step in expand.steps:
        both = np.intersect1d(_rows_of(left, step.left_type), _rows_of(right, step.right_type), assume_unique=True)
        for turn, adjacency in enumerate(adjacencies(context, step)):
            rows = both
            if turn:
                rows = rows[left.numbers[rows] != right.numbers[rows]]
            degree, begin = adjacency.between(left.numbers[rows], right.numbers[rows])
            if expand.edge_var is None:
                met[rows[degree > 0]] = True
                continue
            at = np.repeat(begin - (np.cumsum(degree) - degree), degree) + np.arange(int(degree.sum()))
            nothing = np.zeros(len(at), np.int64)
            edge_which = np.full(len(at), edges.index(step.edge), np.int64)
            found.append(Reached(np.repeat(rows, degree), nothing, nothing, edge_which, adjacency.edges(at)))
    if expand.edge_var is None:
        return frame.filter(met)
    reached = _joined(found)
    context.budget.spend(len(reached.row))
    return frame.take(reached.row).bind(expand.edge_var.name, edge_binding(context, edges, reached))
