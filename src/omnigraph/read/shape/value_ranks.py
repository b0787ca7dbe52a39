"""Ranks of texts and lists: integers in the order of the values.

Ranks are computed once per entity, not once per row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.evaluate.rows import ROLE_COLUMNS
from omnigraph.lang.query import ir
from omnigraph.read.budget.budget import Spending
from omnigraph.read.columns.column_codes import column_ranks, ranks_from_one
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import NOTHING, Integers, Numbers
from omnigraph.read.rows.frame import Binding, Frame
from omnigraph.read.rows.size_estimates import column_bytes
from omnigraph.read.shape.group_codes import Codes
from omnigraph.read.shape.groups import Groups

MAX_DIRECT_ROWS = 512
"""With at most this number of rows, values are compared without ranks."""

WHOLE_COLUMN_RATIO = 4
"""If the number of rows is at least 1 / `WHOLE_COLUMN_RATIO` of the number of entities, ranks are computed for the
whole column and cached."""

_COPIES = 3
"""Number of copies of the values in memory while they are ranked."""

_NUMBERS_PER_ROW = 5
"""Number of array elements per row that are in memory while distinct entities are found."""


@dataclass(frozen=True, slots=True)
class ValueRanks:
    """Ranks of a column.

    Attributes:
        of_row: rank of the value in each row; null for null.
        values: function that returns the values with the given ranks; null for null.
    """

    of_row: pa.Array
    values: Callable[[pa.Array], pa.Array]


def plain_column(expr: ir.Expr, frame: Frame) -> tuple[Binding, str] | None:
    """If an expression only reads a property or id, its binding and column name; None for other expressions."""
    if not isinstance(expr, ir.Prop | ir.Ident) or expr.var not in frame.bindings:
        return None
    return frame.bindings[expr.var], expr.name if isinstance(expr, ir.Prop) else ROLE_COLUMNS[expr.role]


def value_ranks(binding: Binding, name: str, budget: Spending) -> ValueRanks | None:
    """Ranks of a column for the rows of a binding. None if they do not help, for example because values are numbers.

    Raises:
        BudgetExceededError: the distinct values exceed the memory budget.
    """
    rows = len(binding.numbers)
    tables = [table for table in binding.tables if table.has_column(name)]
    if rows <= MAX_DIRECT_ROWS or not tables:
        return None
    if not all(table.is_wide(name) for table in tables):
        return None
    budget.need_arrays(rows, _NUMBERS_PER_ROW)
    if binding.type_index is None and rows * WHOLE_COLUMN_RATIO >= binding.tables[0].count:
        table = binding.tables[0]
        if budget.most is None or _COPIES * table.column(name).nbytes <= budget.most:
            return _cached_ranks(table, name, binding.numbers)
    groups = Groups.of(Codes(*binding.keys()))
    if groups.count * 2 > rows:
        return None
    few = binding.take(groups.first)
    budget.need(_COPIES * column_bytes(few, name))
    values = few.values(name)
    found = ranks_from_one(values)
    return ValueRanks(
        _with_nulls(found.take(groups.of_row)),
        lambda numbers: values.take(_first_positions(found, numbers)),
    )


def _cached_ranks(table: EntityTable, name: str, numbers: Numbers) -> ValueRanks:
    kept = column_ranks(table, name)
    of_row = kept.take(numbers, mode="wrap").astype(np.int64)

    def values(wanted: pa.Array) -> pa.Array:
        return table.column(name).take(_first_positions(kept[:-1], wanted))

    return ValueRanks(_with_nulls(of_row), values)


def _with_nulls(found: Numbers) -> pa.Array:
    missing = found == 0
    return pa.array(found, mask=missing) if missing.any() else pa.array(found)


def _first_positions(found: Integers, wanted: pa.Array) -> pa.Array:
    """For each wanted rank, the first position at which it occurs in `found`; null for null."""
    places = np.full(int(found.max(initial=0)) + 1, NOTHING, np.int64)
    places[found[::-1]] = np.arange(len(found))[::-1]
    missing = wanted.is_null().to_numpy(zero_copy_only=False)
    return pa.array(places.take(wanted.fill_null(0).to_numpy(zero_copy_only=False)), mask=missing)
