"""Matching: the rows for which everything in a block holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from omnigraph.evaluate import holds
from omnigraph.lang.query import ir
from omnigraph.read.candidates import Candidates
from omnigraph.read.context import Context
from omnigraph.read.expand import extend, meet
from omnigraph.read.frame import Binding, Frame, true_rows
from omnigraph.read.hops import Walk
from omnigraph.read.shortest import Search
from omnigraph.read.space import NOTHING, Mask, Numbers


def solutions(block: ir.Block, context: Context) -> Frame:
    """The rows of a whole match."""
    return solve(block, Frame(1, searching=context.search), context)


def solve(block: ir.Block, frame: Frame, context: Context) -> Frame:
    """The rows of a block, each made of a row of a frame.

    Args:
        block: what must hold.
        frame: binds the variables that the block takes from around it.
        context: the read.
    """
    return _Solver(block, frame, context).run()


class _Solver:
    def __init__(self, block: ir.Block, frame: Frame, context: Context) -> None:
        self.block = block
        self.frame = frame
        self.context = context
        self.nodes = {node.name: node for node in block.nodes}
        self.candidates = Candidates(self.nodes, block.filters, context)
        self.filters = self.candidates.others
        self.expands = list(block.expands)

    def run(self) -> Frame:
        self._bind(self._without_optionals())
        for optional in self.block.optionals:
            self._bind([name for name in optional.outer if name in self.nodes])
            self.frame = _left_join(optional, self.frame, self.context)
        self._bind(list(self.nodes))
        for negation in self.block.negations:
            self.frame = _without(negation, self.frame, self.context)
        return self.frame

    def _without_optionals(self) -> list[str]:
        """The variables that no chain of edges joins with one of an optional block: they can be bound at once."""
        joined = {e.left for e in self.expands} | {e.right for e in self.expands}
        waiting = joined - self.nodes.keys() - self.frame.bindings.keys()
        grown = True
        while grown:
            more = {name for e in self.expands for name in (e.left, e.right) if {e.left, e.right} & waiting}
            grown = not more <= waiting
            waiting |= more
        return [name for name in self.nodes if name not in waiting]

    # One step after another

    def _bind(self, names: list[str]) -> None:
        """Bind some variables at least, and walk every expand that can be walked from what is bound."""
        while True:
            self._filter()
            expand = self._next()
            if expand is not None:
                self.expands.remove(expand)
                self._expand(expand)
                continue
            missing = [name for name in names if name not in self.frame.bindings]
            if not missing:
                return
            self._product(min(missing, key=self.candidates.size))

    def _filter(self) -> None:
        """Apply every condition whose variables are all bound."""
        bound = self.frame.variables
        left = []
        for expr, names in self.filters:
            if names <= bound:
                self.frame = self.frame.filter(true_rows(holds(expr, self.frame, self.context.request)))
            else:
                left.append((expr, names))
        self.filters = left

    def _next(self) -> ir.Expand | None:
        """The expand to walk next: one whose ends are both bound, else the one that leads to the fewest rows."""
        bound = self.frame.bindings
        closing = [e for e in self.expands if e.left in bound and e.right in bound]
        if closing:
            return min(closing, key=lambda e: e.hops is not None)
        ready = [
            e
            for e in self.expands
            if (e.left in bound and e.right in self.nodes) or (e.right in bound and e.left in self.nodes)
        ]
        return min(ready, key=self._growth, default=None)

    def _growth(self, expand: ir.Expand) -> float:
        """About how many rows an expand makes of one."""
        forward = expand.left in self.frame.bindings
        far = expand.right if forward else expand.left
        total = 0.0
        for step in expand.steps:
            near_type = step.left_type if forward else step.right_type
            edges = self.context.spaces.edges(step.edge).count
            total += edges / max(self.context.spaces.nodes(near_type).count, 1)
        share = self.candidates.size(far) / max(sum(space.count for space in self.candidates.spaces(far)), 1)
        if expand.hops is not None:
            total = max(total, 1.0) ** min(expand.hops.max or 8, 8)
        return total * share

    def _product(self, name: str) -> None:
        """Every row with every node that a variable may hold."""
        spaces, candidates = self.candidates.spaces(name), self.candidates.of(name)
        numbers = np.concatenate([np.array([], np.int64), *candidates])
        which = np.repeat(np.arange(len(spaces)), [len(part) for part in candidates])
        rows = np.repeat(np.arange(self.frame.count), len(numbers))
        self.context.budget.spend(len(rows))
        times = self.frame.count
        binding = Binding(spaces, np.tile(numbers, times), np.tile(which, times) if len(spaces) != 1 else None)
        self.frame = self.frame.take(rows).bind(name, binding)

    def _expand(self, expand: ir.Expand) -> None:
        bound = self.frame.bindings
        if expand.hops is not None:
            self._reach(expand)
        elif expand.left in bound and expand.right in bound:
            self.frame = meet(self.context, self.frame, expand)
        else:
            forward = expand.left in bound
            far = expand.right if forward else expand.left
            self.frame = extend(
                self.context,
                self.frame,
                expand,
                forward=forward,
                spaces=self.candidates.spaces(far),
                allowed=self.candidates.masks(far),
            )

    def _reach(self, expand: ir.Expand) -> None:
        """Walk several hops, always from the left: distances are counted from there."""
        assert expand.hops is not None
        if expand.left not in self.frame.bindings:
            self._product(expand.left)
        walk = Walk(self.context, expand.steps)
        starts = walk.world.numbers(self.frame.bindings[expand.left])
        distinct, back = np.unique(starts, return_inverse=True)
        search = Search(self.context, walk, expand.hops) if expand.path_var is not None else None
        paths = None
        if search is None:
            places, nodes = walk.reach(distinct, expand.hops)
        else:
            found = search.run(distinct)
            order = np.lexsort((found.node, found.start))
            places, nodes, paths = found.start[order], found.node[order], search.path(found).take(order)
        # Rows that start at the same node reach the same nodes.
        first = np.searchsorted(places, np.arange(len(distinct) + 1))
        degree = np.diff(first)[back]
        at = np.repeat(first[:-1][back] - (np.cumsum(degree) - degree), degree) + np.arange(int(degree.sum()))
        rows, reached = np.repeat(np.arange(self.frame.count), degree), nodes[at]
        self.context.budget.spend(len(rows))
        if expand.right in self.frame.bindings:
            kept = walk.world.numbers(self.frame.bindings[expand.right])[rows] == reached
            self.frame = self.frame.take(rows[kept])
        else:
            kept = self._land(expand.right, walk, rows, reached)
        if paths is not None:
            assert expand.path_var is not None
            self.frame = self.frame.bind_path(expand.path_var, paths.take(at[kept]))

    def _land(self, name: str, walk: Walk, rows: Numbers, reached: Numbers) -> Mask:
        """Bind a variable to what was reached, where it may hold that. Returns which those are."""
        spaces = self.candidates.spaces(name)
        which = np.full(len(reached), NOTHING, np.int64)
        numbers = np.zeros(len(reached), np.int64)
        for number, (space, allowed) in enumerate(zip(spaces, self.candidates.masks(name), strict=True)):
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
    if any(name in frame.paths for name in block.outer):
        keys = np.arange(frame.count)
    else:
        keys = frame.keys(list(block.outer))
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
