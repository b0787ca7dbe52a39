"""Matching: the rows for which everything in a block holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from omnigraph.lang.query import ir
from omnigraph.read.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.described import entry_of
from omnigraph.read.match.expand import extend, meet
from omnigraph.read.match.frame import Binding, Frame, joined_frames, true_rows
from omnigraph.read.match.gathered import gathered
from omnigraph.read.match.hops import Walk
from omnigraph.read.match.shortest import Search
from omnigraph.read.match.widths import made_at_once
from omnigraph.read.plan.plan import Operator, Step, planned
from omnigraph.read.portions import true_of
from omnigraph.read.sorting import order_of
from omnigraph.read.space.space import NOTHING, Mask, Numbers

_PATH = 6
"""How many times the bytes of nodes and edges along paths there are while these are put in order."""

_PATH_NUMBERS = 24
"""Bytes of a node or an edge along a path: its number, its type, and its place."""

_TOGETHER = 1 << 19
"""How many rows of a product are made at a time: between portions, a read can be stopped."""


def solutions(block: ir.Block, context: Context, candidates: Candidates | None = None) -> Frame:
    """The rows of a whole match."""
    return solve(block, Frame(1, searching=context.search), context, candidates)


def solve(block: ir.Block, frame: Frame, context: Context, candidates: Candidates | None = None) -> Frame:
    """The rows of a block, each made of a row of a frame.

    Args:
        block: what must hold.
        frame: binds the variables that the block takes from around it.
        context: the read.
        candidates: what the variables of the block may hold, if that is known.
    """
    nodes = {node.name: node for node in block.nodes}
    return _Solver(block, frame, context, candidates or Candidates(nodes, block.filters, context)).run()


class _Solver:
    def __init__(self, block: ir.Block, frame: Frame, context: Context, candidates: Candidates) -> None:
        self.block = block
        self.frame = frame
        self.context = context
        self.candidates = candidates

    def run(self) -> Frame:
        trace, count = self.context.trace, self.frame.count
        statistics = gathered(self.block, self.candidates, self.context)
        plan = planned(self.block, self.candidates.others, self.frame.variables, count, statistics)
        estimates: list[float] = []
        if trace is not None:
            trace.know(statistics)
            estimates = plan.estimates(count, statistics)
        for place, step in enumerate(plan.steps):
            if trace is None:
                self._take(step)
            else:
                with trace.taking(entry_of(step, estimates[place], self.candidates)) as entry:
                    self._take(step)
                entry.rows, entry.size = self.frame.count, self.frame.nbytes
            self.context.budget.hold(self.frame.nbytes)
        return self.frame

    def _take(self, step: Step) -> None:
        """Take one step."""
        match step.part:
            case ir.NodeVar(name=name):
                self._product(name)
            case ir.Expand():
                self._expand(step.part, late=step.late)
            case ir.Block():
                join = _left_join if step.operator is Operator.LEFT else _without
                self.frame = join(step.part, self.frame, self.context)
            case condition:
                self._require(condition)

    def _require(self, condition: ir.Expr) -> None:
        """Keep the rows for which a condition is true."""
        self.context.budget.need(made_at_once(condition, self.frame))
        self.frame = self.frame.filter(true_rows(true_of(condition, self.frame, self.context.request)))

    def _product(self, name: str) -> None:
        """Every row with every node that a variable may hold."""
        spaces, candidates = self.candidates.spaces(name), self.candidates.of(name)
        count = self.frame.count
        self.context.budget.spend(count * sum(map(len, candidates)), columns=2 * (self.frame.width + 2))
        if count == 1 and len(spaces) == 1 and not self.frame.variables and self.frame.origin is None:
            binding = Binding(spaces, candidates[0])
            self.frame = replace(self.frame, count=len(candidates[0]), bindings={name: binding}, _columns={})
            return
        numbers = np.concatenate([np.array([], np.int64), *candidates])
        which = np.repeat(np.arange(len(spaces)), [len(part) for part in candidates])
        together = count if self.frame.paths else max(1, _TOGETHER // max(len(numbers), 1))
        parts = []
        for first in range(0, max(count, 1), max(together, 1)):
            self.context.budget.check()
            rows = np.repeat(np.arange(first, min(first + together, count)), len(numbers))
            times = len(rows) // max(len(numbers), 1)
            binding = Binding(spaces, np.tile(numbers, times), np.tile(which, times) if len(spaces) != 1 else None)
            parts.append(self.frame.take(rows).bind(name, binding))
        self.frame = parts[0] if len(parts) == 1 else joined_frames(parts)

    def _expand(self, expand: ir.Expand, *, late: bool) -> None:
        """Walk edges. Conditions on what is walked to decide before, or late: on what was reached."""
        bound = self.frame.bindings
        far = next((name for name in (expand.right, expand.left) if name not in bound), None)
        late = late and far is not None and not self.candidates.is_chosen(far)
        if expand.hops is not None:
            self._reach(expand, late=late)
        elif expand.left in bound and expand.right in bound:
            self.frame = meet(self.context, self.frame, expand)
        else:
            assert far is not None
            self.frame = extend(
                self.context,
                self.frame,
                expand,
                forward=far == expand.right,
                spaces=self.candidates.spaces(far),
                allowed=self._allowed(far, late=late),
            )
        if late:
            assert far is not None
            for condition in self.candidates.own(far):
                self._require(condition)

    def _allowed(self, name: str, *, late: bool) -> list[Mask | None]:
        """The nodes that a variable may be bound to, for each of its types; None for all."""
        return [None for _ in self.candidates.spaces(name)] if late else self.candidates.masks(name)

    def _reach(self, expand: ir.Expand, *, late: bool) -> None:
        """Walk several hops, always from the left: distances are counted from there."""
        assert expand.hops is not None
        walk = Walk(self.context, expand.steps)
        starts = walk.world.numbers(self.frame.bindings[expand.left])
        distinct, back = np.unique(starts, return_inverse=True)
        search = Search(self.context, walk, expand.hops) if expand.path_var is not None else None
        paths = None
        if search is None:
            places, nodes = walk.reach(distinct, expand.hops)
        else:
            found = search.run(distinct)
            self.context.budget.need(_PATH * (found.nodes.nbytes + found.edges.nbytes))
            order = order_of(found.start, found.node)
            places, nodes, paths = found.start[order], found.node[order], search.path(found).take(order)
        # Rows that start at the same node reach the same nodes.
        first = np.searchsorted(places, np.arange(len(distinct) + 1))
        degree = np.diff(first)[back]
        total = int(degree.sum())
        self.context.budget.spend(total, columns=self.frame.width + 6)
        at = np.repeat(first[:-1][back] - (np.cumsum(degree) - degree), degree) + np.arange(total)
        rows, reached = np.repeat(np.arange(self.frame.count), degree), nodes[at]
        if expand.right in self.frame.bindings:
            kept = walk.world.numbers(self.frame.bindings[expand.right])[rows] == reached
            self.frame = self.frame.take(rows[kept])
        else:
            kept = self._land(expand.right, walk, rows, reached, self._allowed(expand.right, late=late))
        if paths is not None:
            assert expand.path_var is not None
            chosen = at[kept]
            length = int(np.diff(paths.node_first)[chosen].sum())
            self.context.budget.need(paths.nbytes + 2 * length * _PATH_NUMBERS)
            self.frame = self.frame.bind_path(expand.path_var, paths.take(chosen))

    def _land(self, name: str, walk: Walk, rows: Numbers, reached: Numbers, masks: Sequence[Mask | None]) -> Mask:
        """Bind a variable to what was reached, where it may hold that. Returns which those are."""
        spaces = self.candidates.spaces(name)
        which = np.full(len(reached), NOTHING, np.int64)
        numbers = np.zeros(len(reached), np.int64)
        for number, (space, allowed) in enumerate(zip(spaces, masks, strict=True)):
            if space.type_name not in walk.world.types:
                continue
            begin = walk.world.begin(space.type_name)
            mine = (reached >= begin) & (reached < begin + space.slots)
            if allowed is not None:
                mine[mine] = allowed[reached[mine] - begin]
            which[mine], numbers[mine] = number, reached[mine] - begin
        kept: Mask = which != NOTHING
        binding = Binding(spaces, numbers[kept], which[kept] if len(spaces) != 1 else None)
        self.frame = self.frame.take(rows[kept]).bind(name, binding)
        return kept


def _run_on(block: ir.Block, frame: Frame, context: Context) -> tuple[Frame, Numbers]:
    """The rows of a block, and which of them belong to each row of a frame.

    Rows that agree in all that the block mentions have the same solutions, which are found once.
    """
    has_path = any(name in frame.paths for name in block.outer)
    keys = np.arange(frame.count) if has_path else frame.keys(list(block.outer))
    _, first, back = np.unique(keys, return_index=True, return_inverse=True)
    few = frame.take(first)
    start = replace(few, origin=np.arange(few.count))
    return solve(block, start, context), back


def _without(block: ir.Block, frame: Frame, context: Context) -> Frame:
    """The rows for which a block has no solution."""
    found, back = _run_on(block, frame, context)
    assert found.origin is not None
    solved = np.zeros(int(back.max()) + 1 if len(back) else 0, bool)
    solved[found.origin] = True
    return frame.filter(~solved[back])


def _left_join(block: ir.Block, frame: Frame, context: Context) -> Frame:
    """Each row with every solution of a block, or with nothing when there is none."""
    found, back = _run_on(block, frame, context)
    assert found.origin is not None
    groups = int(back.max()) + 1 if len(back) else 0
    order = np.argsort(found.origin, kind="stable")
    first = np.searchsorted(found.origin[order], np.arange(groups + 1))
    degree = np.diff(first)[back] if groups else np.array([], np.int64)
    wide = np.maximum(degree, 1)
    context.budget.spend(int(wide.sum()), columns=frame.width + found.width + 4)
    rows = np.repeat(np.arange(frame.count), wide)
    at = np.repeat(first[:-1][back] - (np.cumsum(wide) - wide), wide) + np.arange(len(rows)) if groups else rows
    inner = np.where(np.repeat(degree == 0, wide), NOTHING, order[np.minimum(at, len(order) - 1)] if len(order) else 0)
    result = frame.take(rows)
    for name, binding in found.bindings.items():
        if name not in frame.bindings:
            result = result.bind(name, binding.take(inner))
    for name, path in found.paths.items():
        if name not in frame.paths:
            result = result.bind_path(name, path.take(inner))
    return result
