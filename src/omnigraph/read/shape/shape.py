"""The result of a read: columns, groups, order and limit over the rows of its match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import InputError
from omnigraph.evaluate import Rows, evaluate, holds
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.context import Context
from omnigraph.read.match.frame import Frame, true_rows
from omnigraph.read.shape.aggregate import Groups, aggregated, is_count
from omnigraph.read.shape.codes import key_codes
from omnigraph.read.shape.order import Key, in_order
from omnigraph.read.space.space import Numbers

_LATE = ir.Prop | ir.Ident | ir.Entity | ir.TypeOf
"""Columns that are just looked up: nothing can go wrong, so they are looked up for what is kept only."""


class _Columns:
    """Columns of a result, for rows that each have some row of a match: the first of a group.

    Args:
        count: how many rows there are.
        made: columns that are there.
        late: columns that are looked up when they are asked for.
        frame: the match.
        first: the row of the match that each row has, if there are late columns.
        context: the read.
    """

    def __init__(
        self,
        count: int,
        made: Mapping[str, pa.Array],
        late: Mapping[str, ir.Expr],
        frame: Frame,
        first: Numbers,
        context: Context,
    ) -> None:
        self.count = count
        self._made = dict(made)
        self._late = late
        self._frame = frame
        self._first = first
        self._context = context

    @cached_property
    def _rows(self) -> Frame:
        return self._frame.take(self._first)

    def __getitem__(self, name: str) -> pa.Array:
        if name not in self._made:
            self._made[name] = evaluate(self._late[name], self._rows, self._context.request)
        return self._made[name]

    def add(self, name: str, values: pa.Array) -> None:
        self._made[name] = values
        self._context.budget.check()
        self._context.budget.need(sum(made.nbytes for made in self._made.values()))

    def take(self, rows: Numbers) -> _Columns:
        """The same for other rows, made of these."""
        places = pa.array(rows)
        made = {name: values.take(places) for name, values in self._made.items()}
        first = self._first[rows] if self._late else self._first
        return _Columns(len(rows), made, self._late, self._frame, first, self._context)


@dataclass(frozen=True, slots=True)
class _Results:
    """Rows that have the columns of a result beside what they are made of."""

    rows: Rows
    columns: Mapping[str, pa.Array] | _Columns

    @property
    def count(self) -> int:
        return self.rows.count

    def prop(self, var: str, name: str) -> pa.Array:
        return self.rows.prop(var, name)

    def ident(self, var: str, role: ir.Role) -> pa.Array:
        return self.rows.ident(var, role)

    def type_of(self, var: str) -> pa.Array:
        return self.rows.type_of(var)

    def path(self, var: str, part: ir.PathPart) -> pa.Array:
        return self.rows.path(var, part)

    def column(self, name: str) -> pa.Array:
        return self.columns[name]

    def search(self, expr: ir.TextMatch | ir.Rank) -> pa.Array:
        return self.rows.search(expr)


def shape(read: ir.Read, frame: Frame, context: Context, weights: Numbers | None = None) -> pa.Table:
    """The result of a read from the rows of its match.

    Args:
        read: what is asked for.
        frame: the rows.
        context: the read.
        weights: how many rows of the match each row stands for, where only their number is asked for.
    """
    if read.grouped:
        return _grouped(read, context.search.fuse(read, frame), context, weights)
    if read.distinct:
        return _distinct(read, context.search.fuse(read, frame), context)
    return _listed(read, frame, context)


def _window(read: ir.Read, context: Context) -> tuple[int, int | None]:
    """How many rows are skipped, and how many kept at most."""
    return _whole(read.offset, context, "offset") or 0, _whole(read.limit, context, "limit")


def _whole(expr: ir.Expr | None, context: Context, what: str) -> int | None:
    if expr is None:
        return None
    value = expr.value if isinstance(expr, ir.Const) else context.request.params[_name(expr)]
    if not isinstance(value, int) or value < 0:
        raise InputError(f"{what} is {value}", hint="give a whole number that is not negative")
    return value


def _name(expr: ir.Expr) -> str:
    assert isinstance(expr, ir.Param)
    return expr.name


def _columns(columns: Sequence[ir.OutColumn], rows: Rows, context: Context) -> dict[str, pa.Array]:
    """Columns one after another; a later one may name an earlier."""
    made: dict[str, pa.Array] = {}
    for column in columns:
        made[column.name] = evaluate(column.expr, _Results(rows, made), context.request)
        context.budget.check()
        context.budget.need(sum(values.nbytes for values in made.values()))
    return made


def _listed(read: ir.Read, frame: Frame, context: Context) -> pa.Table:
    """One row for each row of the match. Columns that do not decide the order are computed for what is kept only."""
    by_name = {column.name: column for column in read.columns}
    frame = _best(read, frame, by_name, context)
    needed = _named([key.expr for key in read.order], by_name)
    early = _columns([c for c in read.columns if c.name in needed], frame, context)
    keys = [_frame_key(key, frame, early, context) for key in read.order]
    if isinstance(read.ranked, ir.Fusion):
        places = frame.fused[read.ranked].place
        keys = [Key(lambda rows: pa.array(places if rows is None else places[rows]))]
    if frame.count > 1:
        keys += [_frame_key(ir.SortKey(tie), frame, early, context) for tie in read.ties]
    chosen = _cut(in_order(keys, frame.count, *_window(read, context)), context)
    made = _columns(read.columns, frame.take(chosen), context)
    return _table(read, made)


def _best(read: ir.Read, frame: Frame, columns: Mapping[str, ir.OutColumn], context: Context) -> Frame:
    """Where a rank comes first in the order, the rows that can be in the result. All that ranks say is known then."""
    offset, limit = _window(read, context)
    end = None if limit is None else offset + limit
    rank = _first_rank(read, columns)
    frame = context.search.fuse(read, frame, rank, end)
    if rank is None or (end is None and read.ranked is None):
        return frame
    best = context.search.best(rank, frame, end)
    # By an alias, rows without a rank come last, when there are too few with one.
    return best if read.ranked is not None or (end is not None and best.count >= end) else frame


def _first_rank(read: ir.Read, columns: Mapping[str, ir.OutColumn]) -> ir.Rank | None:
    """The rank by which rows are ordered first, the best before others and those without one last."""
    if not read.order:
        return None
    key = read.order[0]
    expr = key.expr
    while isinstance(expr, ir.Column):
        expr = columns[expr.name].expr
    if not isinstance(expr, ir.Nearest | ir.Bm25 | ir.Fusion) or key.nulls_first:
        return None
    return expr if key.descending is not isinstance(expr, ir.Nearest) else None


def _frame_key(key: ir.SortKey, frame: Frame, columns: Mapping[str, pa.Array], context: Context) -> Key:
    binding = None
    if isinstance(key.expr, ir.Ident) and key.expr.role is ir.Role.ID:
        binding = frame.bindings.get(key.expr.var)

    def values(rows: Numbers | None) -> pa.Array:
        if binding is not None:
            of = binding if rows is None else binding.take(rows)
            places = of.places_by_id()
            if places is not None:
                return places
        if rows is None:
            return evaluate(key.expr, _Results(frame, columns), context.request)
        few = {name: values.take(pa.array(rows)) for name, values in columns.items()}
        return evaluate(key.expr, _Results(frame.take(rows), few), context.request)

    return Key(values, key.descending, key.nulls_first)


def _column_key(key: ir.SortKey, columns: _Columns, context: Context) -> Key:
    def values(rows: Numbers | None) -> pa.Array:
        of = columns if rows is None else columns.take(rows)
        return evaluate(key.expr, _Results(_Nothing(of.count), of), context.request)

    return Key(values, key.descending, key.nulls_first)


def _named(exprs: Sequence[ir.Expr], columns: Mapping[str, ir.OutColumn]) -> set[str]:
    """The columns that some expressions name, and those that these name in turn."""
    found: set[str] = set()
    todo: list[object] = list(exprs)
    while todo:
        for part in walk(todo.pop()):
            if isinstance(part, ir.Column) and part.name not in found:
                found.add(part.name)
                todo.append(columns[part.name].expr)
    return found


def _distinct(read: ir.Read, frame: Frame, context: Context) -> pa.Table:
    columns, groups = _together(read.columns, frame, context)
    return _finished(read, columns.take(groups.first) if groups.count != frame.count else columns, context)


def _together(keys: Sequence[ir.OutColumn], frame: Frame, context: Context) -> tuple[_Columns, Groups]:
    """Columns of the rows of a match, and the rows for which all of them are equal."""
    exprs = {column.name: column.expr for column in keys}
    late: dict[str, ir.Expr] = {name: expr for name, expr in exprs.items() if isinstance(expr, _LATE)}
    late |= {_kind(name): ir.TypeOf(expr.var) for name, expr in exprs.items() if isinstance(expr, ir.Entity)}
    columns = _Columns(frame.count, {}, late, frame, np.arange(frame.count), context)
    for column in keys:
        if column.name not in late:
            columns.add(column.name, evaluate(column.expr, _Results(frame, columns), context.request))
    if not keys:
        return columns, Groups.everything(frame.count)
    return columns, Groups.of(key_codes(exprs, frame, columns.__getitem__, context.accepted.catalog))


def _kind(name: str) -> str:
    """Beside a column of nodes of several types, the one of those types: they tell nodes of one id apart."""
    return f"#type of {name}"


def _grouped(read: ir.Read, frame: Frame, context: Context, weights: Numbers | None = None) -> pa.Table:
    keys, groups = _together(read.keys, frame, context)
    within = _Results(frame, keys)
    result = keys.take(groups.first) if read.keys else _Columns(1, {}, {}, frame, groups.first, context)
    aggregates: dict[ir.Aggregate, str] = {}

    def of_group(expr: ir.Expr) -> ir.Expr:
        """An expression over the columns of groups, once its aggregates are columns."""
        known = len(aggregates)
        rewritten: ir.Expr = _named_aggregates(expr, aggregates)
        for aggregate, name in list(aggregates.items())[known:]:
            result.add(name, _aggregate(aggregate, within, groups, weights, context))
        return rewritten

    rows = _Results(_Nothing(groups.count), result)
    names = {column.name for column in read.keys}
    for column in read.columns:
        if column.name not in names:
            result.add(column.name, evaluate(of_group(column.expr), rows, context.request))
    if read.having:
        kept = np.ones(groups.count, bool)
        for condition in read.having:
            kept &= true_rows(holds(of_group(condition), rows, context.request))
        result = result.take(np.flatnonzero(kept))
    return _finished(read, result, context)


def _named_aggregates(expr: Any, names: dict[ir.Aggregate, str]) -> Any:
    """An expression with columns in the place of its aggregates. The names of new ones are added."""
    if isinstance(expr, ir.Aggregate):
        return ir.Column(names.setdefault(expr, f"#{len(names)}"), expr.type)
    if isinstance(expr, tuple):
        return tuple(_named_aggregates(part, names) for part in expr)
    if not is_dataclass(expr) or isinstance(expr, type):
        return expr
    parts = {field.name: getattr(expr, field.name) for field in fields(expr)}
    return replace(expr, **{name: _named_aggregates(part, names) for name, part in parts.items()})


def _aggregate(
    aggregate: ir.Aggregate, rows: Rows, groups: Groups, weights: Numbers | None, context: Context
) -> pa.Array:
    if weights is not None and is_count(aggregate):
        if aggregate.arg is None or not aggregate.arg.type.nullable:
            return groups.total(weights)
        there = evaluate(aggregate.arg, rows, context.request).is_valid().to_numpy(zero_copy_only=False)
        return groups.total(np.where(there, weights, 0))
    if aggregate.arg is None:
        return aggregated(aggregate, None, groups)
    kinds = rows.type_of(aggregate.arg.var) if isinstance(aggregate.arg, ir.Entity) else None
    return aggregated(aggregate, evaluate(aggregate.arg, rows, context.request), groups, kinds)


def _finished(read: ir.Read, columns: _Columns, context: Context) -> pa.Table:
    """Rows that are columns only, in order and cut."""
    kinds = {_kind(c.name): ir.TypeOf(c.expr.var) for c in read.columns if isinstance(c.expr, ir.Entity)}
    keys = [_column_key(key, columns, context) for key in read.order]
    for tie in read.ties:
        keys.append(_column_key(ir.SortKey(tie), columns, context))
        if isinstance(tie, ir.Column) and _kind(tie.name) in kinds:
            kind = kinds[_kind(tie.name)]
            keys.append(_column_key(ir.SortKey(ir.Column(_kind(tie.name), kind.type)), columns, context))
    chosen = _cut(in_order(keys, columns.count, *_window(read, context)), context)
    return _table(read, columns.take(chosen))


def _cut(chosen: Numbers, context: Context) -> Numbers:
    context.budget.give(len(chosen))
    return chosen


def _table(read: ir.Read, columns: Mapping[str, pa.Array] | _Columns) -> pa.Table:
    fields = [pa.field(c.name, arrow_type(c.expr.type), c.expr.type.nullable) for c in read.columns]
    return pa.table(
        [columns[c.name].cast(f.type) for c, f in zip(read.columns, fields, strict=True)], pa.schema(fields)
    )


@dataclass(frozen=True, slots=True)
class _Nothing:
    """Rows that have no variables."""

    count: int

    def prop(self, var: str, name: str) -> pa.Array:
        raise AssertionError(f"${var} is not there after grouping")

    def ident(self, var: str, role: ir.Role) -> pa.Array:
        raise AssertionError(f"${var} is not there after grouping")

    def type_of(self, var: str) -> pa.Array:
        raise AssertionError(f"${var} is not there after grouping")

    def path(self, var: str, part: ir.PathPart) -> pa.Array:
        raise AssertionError(f"${var} is not there after grouping")

    def column(self, name: str) -> pa.Array:
        raise AssertionError(f"there is no column {name}")

    def search(self, expr: ir.TextMatch | ir.Rank) -> pa.Array:
        raise AssertionError("entities are not there after grouping")
