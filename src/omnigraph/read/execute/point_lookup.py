"""Point lookup: the properties of the one node with a given key, without a plan.

Planning and the operators cost several times as much as finding one row. The answer is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from omnigraph.errors import BudgetExceededError
from omnigraph.read.columns.entity_table import EntityTable, as_one_array
from omnigraph.read.columns.numbers import NOTHING
from omnigraph.read.context.context import Context
from omnigraph.read.match.key_lookup import ids_of
from omnigraph.read.query.read_query import ReadQuery


def point_lookup(query: ReadQuery, context: Context) -> pa.Table | None:
    """The result of a read that looks up one node by its key or id; None if the executor has to run the read.

    Raises:
        BudgetExceededError: the read is out of time.
        CancelledError: the read was cancelled.
    """
    pattern, spending = query.point, context.budget
    if pattern is None or context.trace is not None:
        return None
    if spending.budget.rows is not None or spending.budget.returned is not None:
        least = min(limit for limit in (spending.budget.rows, spending.budget.returned) if limit is not None)
        if least < 1:
            return None
    table = context.tables.nodes(pattern.type_name)
    ids = ids_of(pattern.condition, table, context)
    if ids is None or not all(map(table.has_column, pattern.columns)):
        return None
    spending.check()
    try:
        with spending.running():
            columns = _columns(ids[0], table, pattern.columns) if ids else None
            if columns is None:
                return query.schema.empty_table()
            spending.need(sum(column.nbytes for column in columns))
    except BudgetExceededError:
        return None  # the executor works in chunks, or fails with a hint
    fields = zip(columns, query.schema, strict=True)
    return pa.table([c if c.type == field.type else c.cast(field.type) for c, field in fields], query.schema)


def _columns(id_: str, table: EntityTable, names: Sequence[str]) -> list[pa.Array] | None:
    """Columns of the entity with an id; None if there is no such entity."""
    row = table.row_of(id_, names)
    if row is not None:
        return [as_one_array(row[name]) for name in names] if row.num_rows else None
    numbers = table.find(pa.array([id_], pa.utf8()))
    return None if numbers[0] == NOTHING else [table.take(name, numbers) for name in names]
