"""Membership: keep rows whose two bound nodes are joined by an edge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir.text import expansion
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.expand import Reached, adjacencies, are_joined, edge_binding, edge_types, is_of_type, joined
from omnigraph.read.match.pipeline import BlockRun, Operator
from omnigraph.read.query.block import bound_by_expand
from omnigraph.read.rows.frame import Frame


@dataclass(frozen=True, slots=True)
class Membership(Operator):
    """Keep rows whose two bound nodes are joined by an edge. With an edge variable, one row per edge.

    Attributes:
        expand: the traversal of the query.
        negated: whether to keep the rows whose nodes are not joined. Then there is no edge variable in the output.
    """

    expand: ir.Expand
    negated: bool = False

    @property
    def name(self) -> OperatorName:
        return OperatorName.ANTI if self.negated else OperatorName.MEMBER

    @property
    def text(self) -> str:
        return expansion(self.expand).removeprefix("expand ")

    @property
    def reason(self) -> str:
        return "both ends are bound"

    @property
    def binds(self) -> frozenset[str]:
        found = frozenset({self.expand.left, self.expand.right})
        return found if self.negated else found.union(bound_by_expand(self.expand))

    @property
    def edge_steps(self) -> Sequence[ir.Step]:
        return self.expand.steps

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.expand.left, self.expand.right})

    def is_local(self, candidates: Candidates) -> bool:
        return True

    def execute(self, frame: Frame, run: BlockRun) -> Frame:
        context, expand = run.context, self.expand
        left, right = frame.bindings[expand.left], frame.bindings[expand.right]
        edges = edge_types(expand)
        with_edge = expand.edge_var is not None and not self.negated
        found: list[Reached] = []
        met = np.zeros(frame.count, bool)
        context.budget.spend(frame.count)
        for step in expand.steps:
            both = np.flatnonzero(is_of_type(left, step.left_type) & is_of_type(right, step.right_type))
            if not with_edge and step.direction is not ir.Direction.BOTH:
                met[both[are_joined(context, step, left.numbers[both], right.numbers[both])]] = True
                continue
            for turn, adjacency in enumerate(adjacencies(context, step)):
                rows = both
                if turn:
                    # A self-loop is found in both directions. It counts once, because it is one edge.
                    rows = rows[left.numbers[rows] != right.numbers[rows]]
                near, far = left.numbers[rows], right.numbers[rows]
                if not with_edge:
                    met[rows[adjacency.joins(near, far)]] = True
                    continue
                degree, begin = adjacency.between(near, far)
                at = np.repeat(begin - (np.cumsum(degree) - degree), degree) + np.arange(int(degree.sum()))
                unused = np.zeros(len(at), np.int64)
                edge_type_index = np.full(len(at), edges.index(step.edge), np.int64)
                found.append(Reached(np.repeat(rows, degree), unused, unused, edge_type_index, adjacency.edges(at)))
        if not with_edge:
            return frame.filter(~met if self.negated else met)
        assert expand.edge_var is not None
        reached = joined(found)
        context.budget.spend(len(reached.row))
        return frame.take(reached.row).bind(expand.edge_var.name, edge_binding(context, edges, reached))
