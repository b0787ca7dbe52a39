"""Having: keep groups for which conditions are true."""

from __future__ import annotations

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.rows.evaluate import is_true
from omnigraph.read.rows.frame import true_rows
from omnigraph.read.rows.result_rows import NoVariables, ResultRows
from omnigraph.read.shape.grouping import over_groups
from omnigraph.read.shape.operator import ShapeRows, ShapeRun
from omnigraph.read.shape.result_columns import ResultColumns


@dataclass(frozen=True, slots=True)
class Having:
    """Keep groups for which all conditions are true."""

    conditions: tuple[ir.Expr, ...]

    @property
    def name(self) -> OperatorName:
        return OperatorName.HAVING

    @property
    def text(self) -> str:
        return " and ".join(map(ir.expression, self.conditions))

    def execute(self, rows: ShapeRows, run: ShapeRun) -> ResultColumns:
        assert isinstance(rows, ResultColumns)
        groups = ResultRows(NoVariables(rows.count), rows)
        kept = np.ones(rows.count, bool)
        for condition in self.conditions:
            kept &= true_rows(is_true(over_groups(condition, rows), groups, run.context.request))
        return rows.take(np.flatnonzero(kept))
