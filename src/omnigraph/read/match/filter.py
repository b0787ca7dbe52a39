"""Filter: keep rows for which a condition is true."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.columns.column_codes import COMPARED, comparable_codes, compare_rows
from omnigraph.read.columns.numbers import NOTHING, Mask
from omnigraph.read.context.context import Context
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.pipeline import BlockRun, Operator
from omnigraph.read.query.expression import Expression
from omnigraph.read.rows.evaluate import is_true
from omnigraph.read.rows.frame import Binding, Frame, true_rows
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
    return frame.filter(true_mask(condition, frame, context, frame.count))


def true_mask(condition: Expression, frame: Frame, context: Context, rows: int) -> Mask:
    """Mask of the rows for which a condition is true.

    Args:
        condition: the condition.
        frame: the rows.
        context: the state of the running read: snapshot, parameters and budget.
        rows: number of rows for which the condition is evaluated, if `frame` is a part of them. With many rows, it is
            faster to prepare whole columns.
    """
    if isinstance(condition.expr, ir.Or | ir.And):
        # `a or b` is true where `a` or `b` is true, whether the other is false or null; in the same way `a and b`.
        masks = [true_mask(term, frame, context, rows) for term in condition.terms]
        both: Mask = (np.logical_or if isinstance(condition.expr, ir.Or) else np.logical_and).reduce(masks)
        return both
    found = None
    if isinstance(condition.expr, ir.SameEntity):
        found = _same_entity(condition.expr, frame)
    elif isinstance(condition.expr, ir.Compare):
        found = _compared(condition, condition.expr.op, frame, rows)
    if found is None and condition.is_value_test:
        found = _tested_values(condition, frame, context)
    if found is not None:
        return found
    context.budget.need(chunk_bytes(condition, frame))
    return true_rows(is_true(condition, frame, context.request))


def _compared(condition: Expression, op: ir.CompareOp, frame: Frame, rows: int) -> Mask | None:
    """Compare two columns by their codes. None if they have no codes (see `comparable_codes`)."""
    columns = condition.compared_columns
    if columns is None or op not in COMPARED:
        return None
    sides = [(frame.bindings.get(var), name) for var, name in columns]
    found = [(side.tables[0], side.numbers, name) for side, name in sides if side is not None and len(side.tables) == 1]
    if len(found) < len(sides):
        return None
    (left, left_numbers, left_name), (right, right_numbers, right_name) = found
    codes = comparable_codes((left, left_name), (right, right_name), rows)
    return None if codes is None else compare_rows(op, codes[0], left_numbers, codes[1], right_numbers)


def _tested_values(condition: Expression, frame: Frame, context: Context) -> Mask | None:
    """Test each entity of a variable once, and look up the result for each row. None if there are fewer rows."""
    (name,) = condition.variables
    binding = frame.bindings.get(name)
    if binding is None or len(binding.tables) != 1 or frame.count < binding.tables[0].count:
        return None
    table = binding.tables[0]
    numbers = table.all_numbers()
    entities = Frame(len(numbers), {name: Binding((table,), numbers)})
    context.budget.need(chunk_bytes(condition, entities))
    holds = np.zeros(table.slots + 1, bool)
    holds[numbers] = true_rows(is_true(condition, entities, context.request))
    # The additional last element is for `NOTHING` (-1), which stands for null.
    holds[-1] = isinstance(condition.expr, ir.IsNull) and not condition.expr.negated
    found: Mask = holds.take(binding.numbers, mode="wrap")
    return found


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
