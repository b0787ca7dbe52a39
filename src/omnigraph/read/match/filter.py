"""Filter: keep rows for which a condition is true."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import NOTHING, Mask
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
    if isinstance(condition.expr, ir.SameEntity) and (mask := _same_entity(condition.expr, frame)) is not None:
        return frame.filter(mask)
    context.budget.need(chunk_bytes(condition, frame))
    return frame.filter(true_rows(is_true(condition, frame, context.request)))


def _same_entity(expr: ir.SameEntity, frame: Frame) -> Mask | None:
    """Mask of the rows for which `$a = $b` or `$a != $b` is true; None if a variable has several types, or is a path.

    Entities of one type are compared by their numbers, without their ids.
    """
    if expr.left not in frame.bindings or expr.right not in frame.bindings:
        return None
    left, right = frame.bindings[expr.left], frame.bindings[expr.right]
    if len(left.tables) != 1 or len(right.tables) != 1:
        return None
    there: Mask = (left.numbers != NOTHING) & (right.numbers != NOTHING)
    if left.tables[0].type_name != right.tables[0].type_name:
        return there if expr.negated else np.zeros(frame.count, bool)
    same: Mask = left.numbers != right.numbers if expr.negated else left.numbers == right.numbers
    there &= same
    return there
