"""Group rows by keys and compute aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.evaluate.rows import ROLE_COLUMNS
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import AggregateFunction
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.context.context import Context
from omnigraph.read.query.expression import Expression
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.rows.evaluate import SliceableRows, evaluate_in_chunks
from omnigraph.read.rows.folded_column import FoldedColumn
from omnigraph.read.rows.frame import Frame
from omnigraph.read.rows.result_rows import NoVariables, ResultRows
from omnigraph.read.rows.size_estimates import materialized_bytes
from omnigraph.read.shape.distinct_counts import EntityCodes
from omnigraph.read.shape.folded_aggregates import aggregated_folds
from omnigraph.read.shape.group_codes import has_table_codes, key_codes, table_codes
from omnigraph.read.shape.groups import Groups, aggregated, count_distinct, is_count
from omnigraph.read.shape.numeric_columns import cached_numbers
from omnigraph.read.shape.result_columns import FETCHED, ResultColumns, cast_to
from omnigraph.read.shape.value_ranks import ValueRanks, plain_column, value_ranks
from omnigraph.read.shape.weighted_sums import weighted_average, weighted_sum

_COMPARING = frozenset({AggregateFunction.COUNT, AggregateFunction.MIN, AggregateFunction.MAX})
"""Aggregates whose result depends only on the order and equality of their arguments."""

_COPIES = dict.fromkeys(AggregateFunction, 2) | {AggregateFunction.COLLECT: 3}
"""Copies of the argument of an aggregate in memory: all values, values without nulls, and for `collect` lists."""

_WEIGHTED = {AggregateFunction.SUM: weighted_sum, AggregateFunction.AVG: weighted_average}
"""Aggregates of integers that need the weights of rows."""

_RANK_TYPE = ValueType(Scalar.I64, nullable=True)


def type_column(name: str) -> str:
    """Name of the hidden column with the entity types of a column. It is needed, because ids are unique per type."""
    return f"#type of {name}"


def distinct_rows(query: ReadQuery, frame: Frame, context: Context) -> ResultColumns:
    """The distinct rows of the result."""
    columns, groups = _group_by(query.columns, frame, context)
    return columns.take(groups.first) if groups.count != frame.count else columns


def distinct_frame(query: ReadQuery, frame: Frame, context: Context) -> Frame:
    """The frame with one of the rows whose result columns are equal."""
    groups = _group_by(query.columns, frame, context)[1]
    return frame.take(groups.first) if groups.count != frame.count else frame


def grouped_rows(query: ReadQuery, frame: Frame, context: Context, weights: Numbers | None = None) -> ResultColumns:
    """One row per group, with all result columns and the aggregates of `having`."""
    keys = {column.name: query.columns[column.name] for column in query.keys}
    key_columns, groups = _group_by(keys, frame, context)
    rows = ResultRows(frame, key_columns)
    nothing = np.zeros(0, np.int64)
    result = key_columns.take(groups.first) if keys else ResultColumns(1, {}, {}, frame, nothing, context)
    group_rows = ResultRows(NoVariables(groups.count), result)
    for name, expression in query.columns.items():
        if name not in keys:
            over_groups = _add_aggregates(expression.expr, result, frame, rows, groups, weights, context)
            result.add(name, evaluate_in_chunks(Expression(over_groups), group_rows, context.request))
    for condition in query.read.having:
        _add_aggregates(condition, result, frame, rows, groups, weights, context)
    return result


def over_groups(expr: ir.Expr, columns: ResultColumns) -> Expression:
    """The expression, with each aggregate replaced by the column that has its values."""
    return Expression(_replace_aggregates(expr, columns.aggregates))


def _add_aggregates(
    expr: ir.Expr,
    result: ResultColumns,
    frame: Frame,
    rows: SliceableRows,
    groups: Groups,
    weights: Numbers | None,
    context: Context,
) -> ir.Expr:
    """Add a column to the result for each aggregate of an expression. Returns the expression over these columns."""
    known = len(result.aggregates)
    rewritten: ir.Expr = _replace_aggregates(expr, result.aggregates)
    for aggregate, name in list(result.aggregates.items())[known:]:
        result.add(name, _aggregate(aggregate, frame, rows, groups, weights, context))
    return rewritten


def _group_by(keys: Mapping[str, Expression], frame: Frame, context: Context) -> tuple[ResultColumns, Groups]:
    """Compute the key columns of all rows, and group rows with equal keys."""
    exprs = {name: key.expr for name, key in keys.items()}
    fetched = {name: key for name, key in keys.items() if isinstance(key.expr, FETCHED)}
    fetched |= {
        type_column(name): Expression(ir.TypeOf(expr.var))
        for name, expr in exprs.items()
        if isinstance(expr, ir.Entity)
    }
    columns = ResultColumns(frame.count, {}, fetched, frame, None, context)
    for name, key in keys.items():
        if name not in fetched:
            context.budget.need(materialized_bytes([key], frame))
            columns.add(name, evaluate_in_chunks(key, ResultRows(frame, columns), context.request))
    if not keys:
        return columns, Groups.one_group(frame.count)
    return columns, Groups.of(key_codes(exprs, frame, columns.__getitem__, context.accepted.catalog))


def _replace_aggregates(expr: Any, names: dict[ir.Aggregate, str]) -> Any:
    """The expression, with each aggregate replaced by a column. New aggregates are added to `names`."""
    if isinstance(expr, ir.Aggregate):
        return ir.Column(names.setdefault(expr, f"#{len(names)}"), expr.type)
    if isinstance(expr, tuple):
        replaced = tuple(_replace_aggregates(part, names) for part in expr)
        return replaced if any(a is not b for a, b in zip(replaced, expr, strict=True)) else expr
    if not is_dataclass(expr) or isinstance(expr, type | ValueType):
        return expr
    parts = {field.name: getattr(expr, field.name) for field in fields(expr)}
    found = {name: _replace_aggregates(part, names) for name, part in parts.items()}
    changed = {name: part for name, part in found.items() if part is not parts[name]}
    return replace(expr, **changed) if changed else expr


def _aggregate(
    aggregate: ir.Aggregate,
    frame: Frame,
    rows: SliceableRows,
    groups: Groups,
    weights: Numbers | None,
    context: Context,
) -> pa.Array:
    folded = _folded(aggregate.arg, frame)
    if folded is not None:
        return aggregated_folds(aggregate, folded, groups)
    if weights is not None and is_count(aggregate) and (aggregate.arg is None or not aggregate.arg.type.nullable):
        return groups.total(weights)
    if aggregate.arg is None or (is_count(aggregate) and _is_present(aggregate.arg)):
        return aggregated(aggregate, None, groups)
    if aggregate.function is AggregateFunction.COUNT and (codes := _argument_codes(aggregate, frame)) is not None:
        return count_distinct(groups, codes)
    argument = Expression(aggregate.arg)
    ranks = _argument_ranks(aggregate, frame, context)
    if ranks is None:
        context.budget.need(_COPIES[aggregate.function] * materialized_bytes([argument], frame))
    if weights is not None and is_count(aggregate):
        values = evaluate_in_chunks(argument, rows, context.request) if ranks is None else ranks.of_row
        return groups.total(np.where(values.is_valid().to_numpy(zero_copy_only=False), weights, 0))
    if ranks is not None:
        if aggregate.function is AggregateFunction.COUNT:
            return aggregated(aggregate, ranks.of_row, groups)
        over_ranks = replace(aggregate, type=_RANK_TYPE)
        return cast_to(ranks.values(aggregated(over_ranks, ranks.of_row, groups)), arrow_type(aggregate.type))
    kinds = rows.type_of(aggregate.arg.var) if isinstance(aggregate.arg, ir.Entity) else None
    values = cached_numbers(aggregate.arg, frame)
    if values is None:
        values = evaluate_in_chunks(argument, rows, context.request)
    if weights is not None and (weighted := _WEIGHTED.get(aggregate.function)) and not aggregate.distinct:
        if values.null_count:
            there = values.is_valid().to_numpy(zero_copy_only=False)
            groups, values, weights = groups.filter(there), values.drop_null(), weights[there]
        return weighted(values, weights, groups)
    return aggregated(aggregate, values, groups, kinds)


def _folded(argument: ir.Expr | None, frame: Frame) -> FoldedColumn | None:
    """The folded values of the argument of an aggregate; None if it was not folded."""
    if not frame.folded or not isinstance(argument, ir.Prop | ir.Ident):
        return None
    name = argument.name if isinstance(argument, ir.Prop) else ROLE_COLUMNS[argument.role]
    return frame.folded.get((argument.var, name))


def _is_present(expr: ir.Expr) -> bool:
    """Whether an expression has a value in every row, and reading it cannot fail."""
    return isinstance(expr, FETCHED) and not expr.type.nullable


def _argument_codes(aggregate: ir.Aggregate, frame: Frame) -> EntityCodes | None:
    """Codes of the argument of a distinct aggregate, if it identifies an entity or is a property of one; else None."""
    expr = aggregate.arg
    if not aggregate.distinct or not isinstance(expr, FETCHED) or expr.var not in frame.bindings:
        return None
    binding = frame.bindings[expr.var]
    if binding.type_index is not None:
        return None
    table, numbers = binding.tables[0], binding.numbers
    if isinstance(expr, ir.Entity) or (isinstance(expr, ir.Ident) and expr.role is ir.Role.ID):
        return EntityCodes(numbers, None, table.slots + 1, 0)
    if not isinstance(expr, ir.Prop) or not has_table_codes(table, expr.name, frame.count):
        return None
    codes = table_codes(table, expr.name)
    return EntityCodes(numbers, codes, int(codes.max()) + 1, int(codes[-1]))


def _argument_ranks(aggregate: ir.Aggregate, frame: Frame, context: Context) -> ValueRanks | None:
    """Ranks that replace the texts or lists of an argument, if the aggregate only compares them; else None."""
    if aggregate.arg is None or aggregate.function not in _COMPARING:
        return None
    source = plain_column(aggregate.arg, frame)
    return None if source is None else value_ranks(*source, context.budget)
