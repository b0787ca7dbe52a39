"""The shape operators of a read (group, sort, project), and how many rows each is expected to return."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.lang.query import ir
from omnigraph.read.context.context import Context
from omnigraph.read.plan.property_statistics import property_statistics
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.shape.aggregate import Aggregate
from omnigraph.read.shape.distinct import Distinct
from omnigraph.read.shape.having import Having
from omnigraph.read.shape.operator import ShapeOperator
from omnigraph.read.shape.pass_on import PassOn
from omnigraph.read.shape.project import Project
from omnigraph.read.shape.sort import Sort

_GROUPS = 0.75
"""A grouping key without statistics is expected to have `rows ** _GROUPS` distinct values."""

_HAVING = 1 / 3
"""Default selectivity of a `having` condition."""


def shape_operators(query: ReadQuery, offset: int, limit: int | None) -> tuple[ShapeOperator, ...]:
    """The shape operators of a query, in order."""
    operators: list[ShapeOperator] = []
    if query.read.grouped:
        operators.append(Aggregate(query.aggregates, query.keys))
        if query.read.having:
            operators.append(Having(query.read.having))
    elif query.read.distinct:
        operators.append(Distinct(tuple(query.columns)))
    if not query.is_stage:
        return (*operators, Sort(query.read.order, query.read.ties, offset, limit), Project(tuple(query.columns)))
    if limit is not None or query.read.ranked is not None:
        # Rows of a stage have no order. So they are sorted only to find the first ones, or those with a rank.
        operators.append(Sort(query.read.order, query.read.ties, offset, limit))
    operators.append(PassOn(tuple(query.columns)))
    return tuple(operators)


def shape_estimates(
    query: ReadQuery,
    operators: Sequence[ShapeOperator],
    rows: float,
    context: Context,
) -> Iterator[float]:
    """Estimated number of output rows of each shape operator.

    Args:
        query: the query.
        operators: the operators.
        rows: estimated number of rows of the match.
        context: the state of the running read: snapshot, parameters and budget.
    """
    for operator in operators:
        match operator:
            case Aggregate(keys=keys):
                rows = _groups(rows, [key.expr for key in keys], query, context) if keys else 1.0
            case Having(conditions=conditions):
                rows *= _HAVING ** len(conditions)
            case Distinct():
                rows = distinct_estimate(query, rows, context)
            case Sort(offset=offset, limit=limit):
                rows = max(rows - offset, 0.0)
                rows = rows if limit is None else min(rows, limit)
        yield rows


def distinct_estimate(query: ReadQuery, rows: float, context: Context) -> float:
    """Estimated number of distinct result rows of a query, for a number of rows of the match."""
    return _groups(rows, [column.expr for column in query.columns.values()], query, context)


def _groups(rows: float, keys: Sequence[ir.Expr], query: ReadQuery, context: Context) -> float:
    groups = 1.0
    for key in keys:
        known = _distinct_values(key, query, context)
        groups *= max(rows, 1.0) ** _GROUPS if known is None else known
    return min(rows, groups)


def _distinct_values(expr: ir.Expr, query: ReadQuery, context: Context) -> float | None:
    """Number of distinct values of an expression; None if it is unknown."""
    node = query.match.nodes.get(expr.var) if isinstance(expr, ir.Prop) else None
    if node is None or not isinstance(expr, ir.Prop):
        return None
    found = property_statistics([context.tables.nodes(name) for name in node.types], expr.name, context)
    return None if found is None else found.distinct
