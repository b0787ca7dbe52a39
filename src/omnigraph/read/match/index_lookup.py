"""Find entities without a full scan: by id or key, or with an index of the table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from omnigraph.evaluate.prefilter import prefilter
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import NOTHING, Numbers
from omnigraph.read.context.context import Context
from omnigraph.read.match.key_lookup import ids_of
from omnigraph.read.query.expression import Expression

SMALL_TABLE_ROWS = 50_000
"""If a table has at most this number of rows, reading whole columns is as fast as an index lookup."""


def index_lookup(
    conditions: Sequence[Expression], table: EntityTable, context: Context
) -> tuple[Numbers, Sequence[Expression]]:
    """Entities that may satisfy all conditions, and the conditions that still have to be evaluated on them."""
    for place, condition in enumerate(conditions):
        ids = ids_of(condition, table, context)
        if ids is not None:
            found = table.find(pa.array(ids, pa.utf8()))
            found = found[found != NOTHING]
            return found if len(found) < 2 else np.unique(found), [*conditions[:place], *conditions[place + 1 :]]
    if table.count > SMALL_TABLE_ROWS and table.indexed:
        for condition in conditions:
            found_ = _by_index(condition, table, context)
            if found_ is not None:
                return found_, conditions
    return table.all_numbers(), conditions


def _by_index(condition: Expression, table: EntityTable, context: Context) -> Numbers | None:
    """Entities that may satisfy a condition, found with an index.

    Returns None if there is no index, or a full scan is cheaper.
    """
    columns = condition.properties
    if not columns or not columns <= table.indexed or all(table.is_cached(column) for column in columns):
        return None
    filter_ = prefilter(condition.as_table_filter, context.request)
    if filter_ is None:
        return None
    return table.scan(filter_, columns)
