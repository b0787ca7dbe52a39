"""Aggregates of a property that was folded: each row has the count, sum and ends of several values."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import AggregateFunction
from omnigraph.read.rows.folded_column import Folded, FoldedColumn
from omnigraph.read.shape.groups import Groups, aggregated, integer_average


def aggregated_folds(aggregate: ir.Aggregate, column: FoldedColumn, groups: Groups) -> pa.Array:
    """Compute an aggregate for each group.

    Args:
        aggregate: the aggregate. Its argument is the property.
        column: the folded values of the property in each row.
        groups: the groups.

    Raises:
        ExecutionError: a sum is too large for its type.
    """
    match aggregate.function:
        case AggregateFunction.COUNT:
            return groups.total(column.count)
        case AggregateFunction.AVG:
            return integer_average(column.total, groups, groups.total(column.count).to_numpy())
        case AggregateFunction.SUM:
            return aggregated(aggregate, column.total, groups)
        case AggregateFunction.MIN:
            return aggregated(aggregate, column.end(Folded.LEAST), groups)
        case AggregateFunction.MAX:
            return aggregated(aggregate, column.end(Folded.MOST), groups)
        case AggregateFunction.COLLECT:
            raise AssertionError("lists are not folded")
