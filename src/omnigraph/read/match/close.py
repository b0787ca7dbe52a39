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
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.expand import Expand, adjacencies, is_of_type, reversed_steps
from omnigraph.read.match.membership import Membership
from omnigraph.read.match.pipeline import BlockRun, Operator
from omnigraph.read.query.expression import Expression
from omnigraph.read.rows.frame import Frame


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

    def pushed(self, candidates: Candidates) -> Sequence[Expression]:
        return self.walk.pushed(candidates)

    def execute(self, frame: Frame, run: BlockRun) -> Frame:
        one_type = all(len(frame.bindings[self._bound(expand)].tables) == 1 for expand in self.closing)
        if one_type and self.walk.is_plain(frame, run):
            return self.walk.execute_filtered(frame, run, partial(self._keep, run))
        frame = self.walk.execute(frame, run)
        for expand in self.closing:
            frame = Membership(expand).execute(frame, run)
        return frame

    def _bound(self, expand: ir.Expand) -> str:
        """The variable of a closing traversal that was bound before this operator."""
        return expand.left if expand.right == self.walk.far else expand.right

    def _keep(self, run: BlockRun, frame: Frame, row: Numbers, numbers: Numbers) -> Numbers:
        """Positions of the reached nodes that all closing edges join with the bound nodes of their rows."""
        places = np.arange(len(row))
        tables = run.candidates.tables(self.walk.far)
        for expand in self.closing:
            name = self._bound(expand)
            (step,) = expand.steps if expand.left == name else reversed_steps(expand.steps)
            binding = frame.bindings[name]
            if tables[0].type_name != step.right_type:
                return places[:0]
            there = is_of_type(binding, step.left_type)
            if not there.all():
                places = places[there.take(row.take(places))]
            (adjacency,) = adjacencies(run.context, step)
            near = binding.numbers.take(row.take(places))
            run.context.budget.spend(len(places))
            places = places[adjacency.joins(near, numbers.take(places))]
        return places


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
