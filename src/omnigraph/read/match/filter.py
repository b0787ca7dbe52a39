"""Filter: keep rows for which a condition is true."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.dataclass import dataclass
from omnigraph.read.context.context import Context
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.pipeline import BlockRun, Operator
from omnigraph.read.query.expression import Expression
from omnigraph.read.rows.evaluate import is_true
from omnigraph.read.rows.frame import Frame, true_rows
from omnigraph.read.rows.size_estimates import chunk_bytes


@dataclass(frozen=True, slots=True)
class Filter(Operator):
    """Keep rows for which a condition is true."""

    condition: Expression

    @property
    def name(self) -> OperatorName:
        return OperatorName.FILTER

    @property
    def text(self) -> str:
        return self.condition.text

    @property
    def conditions(self) -> Sequence[Expression]:
        return (self.condition,)

    @property
    def needs(self) -> frozenset[str]:
        return self.condition.variables

    def is_local(self, candidates: Candidates) -> bool:
        return not self.condition.is_search

    def execute(self, frame: Frame, run: BlockRun) -> Frame:
        return filter_rows(self.condition, frame, run.context)


def filter_rows(condition: Expression, frame: Frame, context: Context) -> Frame:
    """The rows for which a condition is true."""
    context.budget.need(chunk_bytes(condition, frame))
    return frame.filter(true_rows(is_true(condition, frame, context.request)))
