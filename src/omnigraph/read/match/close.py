"""Close: walk edges, and keep only nodes that other edges join with nodes that are already bound.

An edge between two bound variables closes a cycle. If it is tested after all edges to the second variable are walked,
rows are produced for every path, and most of them are removed again. This operator tests the closing edges for each
chunk of reached nodes, before it produces rows.
"""

# See docs/decisions/0201-closing-edges-are-tested-before-rows-are-made.md

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir.text import expansion
from omnigraph.read.columns.numbers import Integers, Numbers
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.expand import Expand, adjacencies, are_joined, is_of_type, reversed_steps, walked_edges
from omnigraph.read.match.membership import Membership
from omnigraph.read.match.parts import is_one_part
from omnigraph.read.match.pipeline import BlockRun, Operator
from omnigraph.read.query.expression import Expression
from omnigraph.read.rows.frame import Binding, Frame, concat_frames
from omnigraph.read.topology.adjacency import Adjacency

MIN_SHORTER_GAIN = 1.5
"""Each row walks the traversal with the lowest cost if this saves more than this factor of the cost of all rows."""

_EDGE_TEST_COST_EDGES, _COLUMN_TEST_COST_EDGES = 2.0, 0.25
"""Cost of testing an edge; also if no node has more than one such edge. The unit is the cost of walking one edge."""

_ROW = " row"
"""Name of a temporary variable: the index of the input row. No variable of a query has a space in its name."""


@dataclass(frozen=True, slots=True)
class Close(Operator):
    """Walk edges from a bound variable, and keep the nodes that closing edges join with other bound variables.

    Attributes:
        walk: the traversal that reaches the new variable.
        closing: traversals between the new variable and variables that are already bound.
    """

    walk: Expand
    closing: tuple[ir.Expand, ...]

    @property
    def name(self) -> OperatorName:
        return OperatorName.CLOSE

    @property
    def text(self) -> str:
        edges = (expansion(expand).removeprefix("expand ") for expand in self.closing)
        return f"{self.walk.text} with {' and '.join(edges)}"

    @property
    def reason(self) -> str:
        return "closing edges are tested before rows are produced"

    @property
    def binds(self) -> frozenset[str]:
        return self.walk.binds

    @property
    def edge_steps(self) -> Sequence[ir.Step]:
        return (*self.walk.edge_steps, *(step for expand in self.closing for step in expand.steps))

    @property
    def needs(self) -> frozenset[str]:
        return self.walk.needs.union(map(self._bound, self.closing))

    def is_local(self, candidates: Candidates) -> bool:
        return self.walk.is_local(candidates)

    def work(self, frame: Frame, run: BlockRun) -> Numbers | None:
        degree = self.walk.work(frame, run)
        if degree is None or is_one_part(int(degree.sum())):
            return degree
        choices = self._costs(frame, run)
        return degree if choices is None else np.minimum.reduce([degree for degree, _ in choices])

    def pushed(self, candidates: Candidates) -> Sequence[Expression]:
        return self.walk.pushed(candidates)

    def execute(self, frame: Frame, run: BlockRun) -> Frame:
        return self.execute_for(frame, run, None)

    def execute_for(self, frame: Frame, run: BlockRun, needed: frozenset[str] | None) -> Frame:
        if self._is_plain(frame, run):
            choices = self._costs(frame, run)
            if choices is not None and frame.count:
                costs = [degree * cost for degree, cost in choices]
                if float(np.minimum.reduce(costs).sum()) * MIN_SHORTER_GAIN < float(costs[0].sum()):
                    return self._from_shortest(frame, run, np.argmin(costs, axis=0))
            return self.walk.execute_filtered(frame, run, partial(self._keep, run), needed)
        frame = self.walk.execute(frame, run)
        for expand in self.closing:
            frame = Membership(expand).execute(frame, run)
        return frame

    def _is_plain(self, frame: Frame, run: BlockRun) -> bool:
        one_type = all(len(frame.bindings[self._bound(expand)].tables) == 1 for expand in self.closing)
        return one_type and self.walk.is_plain(frame, run)

    def _costs(self, frame: Frame, run: BlockRun) -> list[tuple[Numbers, float]] | None:
        """For each traversal that can be walked, the number of its edges by row, and the cost per edge.

        None if some edges are not in memory.
        """
        if frame.paths or not self._is_plain(frame, run):
            return None
        found = []
        for choice in self._choices():
            if not choice.walk.is_plain(frame, run):
                return None
            degree = walked_edges(run.context, frame.bindings[choice.walk.near], choice.walk.edge_steps)
            if degree is None:
                return None
            found.append((degree, 1.0 + sum(_test_cost(expand, run) for expand in choice.closing)))
        return found

    def _choices(self) -> Sequence[Close]:
        """This operator with each of its traversals in turn as the one that is walked, first as it is."""
        found = [self]
        for place, expand in enumerate(self.closing):
            walk = Expand(expand, forward=expand.right == self.walk.far, late=self.walk.late, early=self.walk.early)
            rest = (*self.closing[:place], *self.closing[place + 1 :], self.walk.expand)
            found.append(Close(walk, rest))
        return found

    def _from_shortest(self, frame: Frame, run: BlockRun, best: Numbers) -> Frame:
        """Walk the edges of each row along the traversal with the fewest edges, and test the others."""
        parts = []
        for place, choice in enumerate(self._choices()):
            rows = np.flatnonzero(best == place)
            if len(rows):
                part = frame.take(rows).bind(_ROW, Binding((), rows))
                parts.append(choice.walk.execute_filtered(part, run, partial(choice._keep, run)))
        found = concat_frames(parts)
        order = np.argsort(found.bindings[_ROW].numbers, kind="stable")
        return found.only(found.variables - {_ROW}).take(order)

    def _bound(self, expand: ir.Expand) -> str:
        """The variable of a closing traversal that was bound before this operator."""
        return expand.left if expand.right == self.walk.far else expand.right

    def _keep(self, run: BlockRun, frame: Frame, row: Numbers, numbers: Integers) -> Numbers:
        """Positions of the reached nodes that all closing edges join with the bound nodes of their rows."""
        places: Numbers | None = None
        (table,) = run.candidates.tables(self.walk.far)
        for expand in self.closing:
            name = self._bound(expand)
            (step,) = expand.steps if expand.left == name else reversed_steps(expand.steps)
            binding = frame.bindings[name]
            if table.type_name != step.right_type:
                return np.array([], np.int64)
            there = is_of_type(binding, step.left_type)
            if not there.all():
                kept = np.flatnonzero(there.take(row))
                places = kept if places is None else places[there.take(row.take(places))]
            rows, far = (row, numbers) if places is None else (row.take(places), numbers.take(places))
            run.context.budget.spend(len(rows))
            met = np.flatnonzero(are_joined(run.context, step, binding.numbers.take(rows), far))
            places = met if places is None else places.take(met)
        assert places is not None
        return places


def _test_cost(expand: ir.Expand, run: BlockRun) -> float:
    """Cost of testing an edge between two nodes. The unit is the cost of walking one edge."""
    for steps in (expand.steps, reversed_steps(expand.steps)):
        for edges in adjacencies(run.context, steps[0]):
            if isinstance(edges, Adjacency) and edges.size <= edges.nodes and edges.column is not None:
                return _COLUMN_TEST_COST_EDGES
    return _EDGE_TEST_COST_EDGES


def can_close(walk: Expand, expand: ir.Expand) -> bool:
    """Whether a traversal between bound variables can be tested while another traversal binds its second variable."""
    return all(
        len(each.steps) == 1
        and each.hops is None
        and each.edge_var is None
        and each.steps[0].direction is not ir.Direction.BOTH
        and each.left != each.right
        for each in (walk.expand, expand)
    ) and walk.far in (expand.left, expand.right)
