"""The sort keys of a query, for matched rows or for groups. Their values are computed when the sort needs them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from omnigraph.lang.query import ir
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.columns.sort_keys import Key
from omnigraph.read.context.context import Context
from omnigraph.read.query.expression import Expression, SortTerm
from omnigraph.read.query.read_query import ReadQuery, named_columns
from omnigraph.read.rows.evaluate import evaluate_in_chunks
from omnigraph.read.rows.frame import Binding, Frame
from omnigraph.read.rows.result_rows import NoVariables, ResultRows
from omnigraph.read.rows.size_estimates import materialized_bytes
from omnigraph.read.shape.grouping import type_column
from omnigraph.read.shape.result_columns import ResultColumns, compute_columns
from omnigraph.read.shape.value_ranks import plain_column, value_ranks

# Rows of a match


def match_keys(query: ReadQuery, frame: Frame, context: Context) -> list[Key]:
    """Sort keys of the rows of a match."""
    computed = compute_columns(query.ordering_columns, frame, context)
    if isinstance(query.read.ranked, ir.Fusion):
        places = frame.fused[query.read.ranked].place
        keys = [Key(lambda rows: pa.array(places if rows is None else places[rows]))]
    else:
        keys = [_match_key(term, frame, computed, context) for term in query.order]
    if frame.count > 1:
        ties = (term for term in query.ties if not _is_constant(term.expression.expr, frame))
        keys += [_match_key(term, frame, computed, context) for term in ties]
    return keys


def column_keys(columns: Mapping[str, Expression], frame: Frame, context: Context) -> list[Key]:
    """Sort keys that sort the rows of a match by the given columns."""
    named = named_columns([column.expr for column in columns.values()], columns)
    computed = compute_columns(
        {n: e for n, e in columns.items() if n in named or not isinstance(e.expr, ir.Prop | ir.Ident)}, frame, context
    )
    terms = (Expression(ir.Column(n, e.expr.type)) if n in computed else e for n, e in columns.items())
    return [_match_key(SortTerm(term), frame, computed, context) for term in terms]


def _is_constant(tie: ir.Expr, frame: Frame) -> bool:
    """Whether all rows have the same entity, so that sorting by its id has no effect."""
    binding = frame.bindings.get(tie.var) if isinstance(tie, ir.Ident) else None
    if binding is None or binding.type_index is not None:
        return False
    return bool((binding.numbers == binding.numbers[0]).all())


def _match_key(term: SortTerm, frame: Frame, columns: Mapping[str, pa.Array], context: Context) -> Key:
    expression = term.expression
    source = plain_column(expression.expr, frame)

    def values(rows: Numbers | None) -> pa.Array:
        if source is not None:
            binding, name = source
            of = binding if rows is None else binding.take(rows)
            places = of.id_ranks() if name == "id" else None
            if places is not None:
                return places
            found = value_ranks(of, name, context.budget)
            if found is not None:
                return found.of_row
        few = frame if rows is None else frame.take(rows)
        computed = sum(values.nbytes for values in columns.values()) * few.count // max(frame.count, 1)
        context.budget.need(computed + materialized_bytes([expression], few))
        if rows is None:
            return evaluate_in_chunks(expression, ResultRows(frame, columns), context.request)
        some = {name: values.take(pa.array(rows)) for name, values in columns.items()}
        return evaluate_in_chunks(expression, ResultRows(few, some), context.request)

    is_cheap = source is not None and source[1] == "id" and source[0].has_id_ranks
    return Key(values, term.descending, term.nulls_first, is_cheap, is_stored=_is_stored(source))


def _is_stored(source: tuple[Binding, str] | None) -> bool:
    """Whether a column has few bytes per value and is in memory, so that it may be read for rows without need."""
    if source is None:
        return False
    binding, name = source
    if name == "id" and binding.has_id_ranks:
        return True
    tables = [table for table in binding.tables if table.has_column(name)]
    return all(table.is_cached(name) and (name == "id" or not table.is_wide(name)) for table in tables)


# Groups


def group_keys(query: ReadQuery, columns: ResultColumns, context: Context) -> list[Key]:
    """Sort keys of groups or distinct rows."""
    entities = {n: e.expr for n, e in query.columns.items() if isinstance(e.expr, ir.Entity)}
    keys = [_group_key(key, columns, context) for key in query.read.order]
    for tie in query.read.ties:
        keys.append(_group_key(ir.SortKey(tie), columns, context))
        if isinstance(tie, ir.Column) and tie.name in entities:
            kind = ir.TypeOf(entities[tie.name].var).type
            keys.append(_group_key(ir.SortKey(ir.Column(type_column(tie.name), kind)), columns, context))
    return keys


def _group_key(key: ir.SortKey, columns: ResultColumns, context: Context) -> Key:
    expression = Expression(key.expr)

    def values(rows: Numbers | None) -> pa.Array:
        of = columns if rows is None else columns.take(rows)
        ranks = of.ranks(key.expr.name) if isinstance(key.expr, ir.Column) else None
        if ranks is not None:
            return ranks
        return evaluate_in_chunks(expression, ResultRows(NoVariables(of.count), of), context.request)

    is_stored = False
    if isinstance(key.expr, ir.Column):
        is_stored = columns.is_computed(key.expr.name) or _is_stored(columns.source(key.expr.name))
    return Key(values, key.descending, key.nulls_first, is_stored=is_stored)
