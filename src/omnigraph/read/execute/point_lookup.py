"""Point lookup: the properties of the one node with a given key, without a plan.

Planning and the operators cost several times as much as finding one row. The answer is the same.
"""

from __future__ import annotations

import pyarrow as pa

from omnigraph.errors import BudgetExceededError
from omnigraph.read.columns.numbers import NOTHING
from omnigraph.read.context.context import Context
from omnigraph.read.match.index_lookup import ids_of
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.shape.result_columns import cast_to


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
            numbers = table.find(pa.array(ids, pa.utf8()))
            if len(numbers) == 0 or numbers[0] == NOTHING:
                return query.schema.empty_table()
            columns = [table.take(name, numbers) for name in pattern.columns]
            spending.need(sum(column.nbytes for column in columns))
    except BudgetExceededError:
        return None  # the executor works in chunks, or fails with a hint
    fields = zip(columns, query.schema, strict=True)
    return pa.table([cast_to(column, field.type) for column, field in fields], query.schema)
