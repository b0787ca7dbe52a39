"""The result of a read: columns, groups, order and limit over the rows of its match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import InputError
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import AggregateFunction
from omnigraph.lang.query.walk import walk
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.read.context import Context
from omnigraph.read.match.frame import Frame, true_rows
from omnigraph.read.match.widths import size_of
from omnigraph.read.plan.plan import Operator
from omnigraph.read.plan.remembered import remembered
from omnigraph.read.portions import Divisible, portions, true_of, values_of
from omnigraph.read.search.search import first_rank
from omnigraph.read.shape.aggregate import Groups, aggregated, is_count
from omnigraph.read.shape.codes import key_codes
from omnigraph.read.shape.order import Key, in_order
from omnigraph.read.shape.ranked import Ranked, plain, ranked
from omnigraph.read.sorting import groups_of
from omnigraph.read.space.space import Numbers, one_piece

_LATE = ir.Prop | ir.Ident | ir.Entity | ir.TypeOf
"""Columns that are just looked up: nothing can go wrong, so they are looked up for what is kept only."""

_COMPARING = frozenset({AggregateFunction.COUNT, AggregateFunction.MIN, AggregateFunction.MAX})
"""Aggregates that only compare their arguments."""


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
            self._context.budget.need(self._size + size_of(self._late[name], self._rows))
            self._made[name] = values_of(self._late[name], self._rows, self._context.request)
        return self._made[name]

    def numbers(self, name: str) -> pa.Array | None:
        """Numbers that sort as a column does that is not made yet; None where there are none."""
        looked_up = None if name in self._made else plain(self._late[name], self._rows)
        found = None if looked_up is None else ranked(*looked_up, self._context.budget)
        return None if found is None else found.of_row

    @property
    def _size(self) -> int:
        return sum(made.nbytes for made in self._made.values())

    def add(self, name: str, values: pa.Array) -> None:
        self._made[name] = values
        self._context.budget.check()
        self._context.budget.need(self._size)

    def take(self, rows: Numbers) -> _Columns:
        """The same for some of these rows."""
        self._context.budget.need(self._size + self._size * len(rows) // max(self.count, 1))
        places = pa.array(rows)
        made = {name: values.take(places) for name, values in self._made.items()}
        first = self._first[rows] if self._late else self._first
        return _Columns(len(rows), made, self._late, self._frame, first, self._context)


@dataclass(frozen=True, slots=True)
class _Part:
    """Columns for the rows from one place to another."""

    columns: Mapping[str, pa.Array] | _Columns | _Part
    first: int
    last: int

    def __getitem__(self, name: str) -> pa.Array:
        return self.columns[name].slice(self.first, self.last - self.first)


@dataclass(frozen=True, slots=True)
class _Results:
    """Rows that have the columns of a result beside what they are made of."""

    rows: Divisible
    columns: Mapping[str, pa.Array] | _Columns | _Part

    @property
    def count(self) -> int:
        return self.rows.count

    def part(self, first: int, last: int) -> _Results:
        return _Results(self.rows.part(first, last), _Part(self.columns, first, last))

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
        fused = context.search.fuse(read, frame)
        grouped = context.traced(Operator.AGGREGATE, lambda: _grouped(read, fused, context, weights), _count)
        return _finished(read, grouped, context)
    if read.distinct:
        fused = context.search.fuse(read, frame)
        return _finished(
            read, context.traced(Operator.DISTINCT, lambda: _distinct(read, fused, context), _count), context
        )
    return _listed(read, frame, context)


def window(read: ir.Read, context: Context) -> tuple[int, int | None]:
    """How many rows are skipped, and how many kept at most."""
    return _whole(read.offset, context, "offset") or 0, _whole(read.limit, context, "limit")


def wanted(read: ir.Read, context: Context) -> int | None:
    """How many rows are looked at for the result at most, those that are skipped included."""
    offset, limit = window(read, context)
    return None if limit is None else offset + limit


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


def _columns(columns: Sequence[ir.OutColumn], rows: Frame, context: Context) -> dict[str, pa.Array]:
    """Columns one after another; a later one may name an earlier."""
    made: dict[str, pa.Array] = {}
    size = 0
    for column in columns:
        context.budget.need(size + size_of(column.expr, rows))
        made[column.name] = values_of(column.expr, _Results(rows, made), context.request)
        size += made[column.name].nbytes
        context.budget.check()
        context.budget.need(size)
    return made


def _listed(read: ir.Read, frame: Frame, context: Context) -> pa.Table:
    """One row for each row of the match. Columns that do not decide the order are computed for what is kept only."""
    frame = best(read, frame, context)
    offset, limit = window(read, context)
    chosen = context.traced(
        _sorting(limit), lambda: _cut(listed_order(read, frame, context, offset, limit), context), len
    )
    return context.traced(Operator.PROJECT, lambda: _fetched(read, frame, chosen, context), len)


def _sorting(limit: int | None) -> Operator:
    return Operator.SORT if limit is None else Operator.TOP


def _fetched(read: ir.Read, frame: Frame, chosen: Numbers, context: Context) -> pa.Table:
    """The result for some rows of a match, a portion at a time."""
    parts = []
    with context.budget.keeping():
        for first, last in portions(len(chosen)):
            alone = frame.count == 1 and len(chosen) == 1
            parts.append(listed_table(read, frame if alone else frame.take(chosen[first:last]), context))
            context.budget.keep(parts[-1].nbytes)
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


def listed_order(read: ir.Read, frame: Frame, context: Context, offset: int, limit: int | None) -> Numbers:
    """The rows of a match in the order of the result, without those that are skipped or beyond the limit."""
    return in_order(listed_keys(read, frame, context), frame.count, offset, limit)


def listed_table(read: ir.Read, frame: Frame, context: Context) -> pa.Table:
    """The result for some rows of a match, as they are."""
    return _table(read, _columns(read.columns, frame, context))


def _by_name(read: ir.Read) -> dict[str, ir.OutColumn]:
    return {column.name: column for column in read.columns}


def listed_keys(read: ir.Read, frame: Frame, context: Context) -> list[Key]:
    """What the rows of a match are ordered by."""
    order = _order(read)
    needed = _named([key.expr for key in order], _by_name(read))
    early = _columns([c for c in read.columns if c.name in needed], frame, context)
    keys = [_frame_key(key, frame, early, context) for key in order]
    if isinstance(read.ranked, ir.Fusion):
        places = frame.fused[read.ranked].place
        keys = [Key(lambda rows: pa.array(places if rows is None else places[rows]))]
    if frame.count > 1:
        keys += [_frame_key(ir.SortKey(tie), frame, early, context) for tie in read.ties if not _is_one(tie, frame)]
    return keys


@remembered
def _order(read: ir.Read) -> tuple[ir.SortKey, ...]:
    """What rows are ordered by. A column that is just looked up is what it looks up."""
    columns, found = _by_name(read), []
    for key in read.order:
        expr = key.expr
        while isinstance(expr, ir.Column):
            expr = columns[expr.name].expr
        found.append(replace(key, expr=expr) if isinstance(expr, ir.Prop | ir.Ident) else key)
    return tuple(found)


def _is_one(tie: ir.Expr, frame: Frame) -> bool:
    """Whether all rows have the same entity there, which tells none of them apart."""
    binding = frame.bindings.get(tie.var) if isinstance(tie, ir.Ident) else None
    if binding is None or binding.which is not None:
        return False
    return bool((binding.numbers == binding.numbers[0]).all())


def column_keys(columns: Sequence[ir.OutColumn], frame: Frame, context: Context) -> list[Key]:
    """Columns of the rows of a match, to order them by."""
    named = _named([column.expr for column in columns], {column.name: column for column in columns})
    early = _columns(
        [c for c in columns if c.name in named or not isinstance(c.expr, ir.Prop | ir.Ident)], frame, context
    )
    exprs = [ir.Column(c.name, c.expr.type) if c.name in early else c.expr for c in columns]
    return [_frame_key(ir.SortKey(expr), frame, early, context) for expr in exprs]


def best(read: ir.Read, frame: Frame, context: Context) -> Frame:
    """Where a rank comes first in the order, the rows that can be in the result. All that ranks say is known then."""
    offset, limit = window(read, context)
    end = None if limit is None else offset + limit
    rank = first_rank(read)
    frame = context.search.fuse(read, frame, rank, end)
    if rank is None or (end is None and read.ranked is None):
        return frame
    best = context.search.best(rank, frame, end)
    # By an alias, rows without a rank come last, when there are too few with one.
    return best if read.ranked is not None or (end is not None and best.count >= end) else frame


def _frame_key(key: ir.SortKey, frame: Frame, columns: Mapping[str, pa.Array], context: Context) -> Key:
    looked_up = plain(key.expr, frame)

    def values(rows: Numbers | None) -> pa.Array:
        if looked_up is not None:
            binding, name = looked_up
            of = binding if rows is None else binding.take(rows)
            places = of.places_by_id() if name == "id" else None
            if places is not None:
                return places
            found = ranked(of, name, context.budget)
            if found is not None:
                return found.of_row
        few = frame if rows is None else frame.take(rows)
        made = sum(values.nbytes for values in columns.values()) * few.count // max(frame.count, 1)
        context.budget.need(made + size_of(key.expr, few))
        if rows is None:
            return values_of(key.expr, _Results(frame, columns), context.request)
        some = {name: values.take(pa.array(rows)) for name, values in columns.items()}
        return values_of(key.expr, _Results(few, some), context.request)

    at_hand = looked_up is not None and looked_up[1] == "id" and looked_up[0].knows_places
    return Key(values, key.descending, key.nulls_first, at_hand)


def _column_key(key: ir.SortKey, columns: _Columns, context: Context) -> Key:
    def values(rows: Numbers | None) -> pa.Array:
        of = columns if rows is None else columns.take(rows)
        numbers = of.numbers(key.expr.name) if isinstance(key.expr, ir.Column) else None
        if numbers is not None:
            return numbers
        return values_of(key.expr, _Results(_Nothing(of.count), of), context.request)

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


def _distinct(read: ir.Read, frame: Frame, context: Context) -> _Columns:
    columns, groups = _together(read.columns, frame, context)
    return columns.take(groups.first) if groups.count != frame.count else columns


def groups(read: ir.Read, frame: Frame, context: Context, weights: Numbers | None) -> pa.Table:
    """What `finished` makes the result of, where the rows of a match are all those of some groups."""
    found = _grouped(read, frame, context, weights) if read.grouped else _distinct(read, frame, context)
    names = [column.name for column in read.columns]
    names += [_kind(column.name) for column in read.columns if isinstance(column.expr, ir.Entity)]
    return pa.table({name: found[name] for name in names})


def finished(read: ir.Read, groups: pa.Table, context: Context) -> pa.Table:
    """The result of a read, of all groups."""
    return _finished(read, _as_columns(groups, context), context)


def foremost(read: ir.Read, groups: pa.Table, context: Context, offset: int, limit: int | None) -> pa.Table:
    """Groups in the order of the result, without those that are skipped or beyond the limit."""
    keys = _finished_keys(read, _as_columns(groups, context), context)
    return groups.take(pa.array(in_order(keys, groups.num_rows, offset, limit)))


def finished_table(read: ir.Read, groups: pa.Table) -> pa.Table:
    """The result for some groups, as they are."""
    return _table(read, {name: groups[name] for name in groups.column_names})


def _as_columns(groups: pa.Table, context: Context) -> _Columns:
    columns = {name: one_piece(column) for name, column in zip(groups.column_names, groups.columns, strict=True)}
    return _Columns(groups.num_rows, columns, {}, Frame(0), np.zeros(0, np.int64), context)


def alike(frame: Frame) -> tuple[Numbers, Numbers]:
    """Rows that hold the same: the first of each group, and the group of each row."""
    return groups_of(frame.keys(list(frame.bindings)))


def _together(keys: Sequence[ir.OutColumn], frame: Frame, context: Context) -> tuple[_Columns, Groups]:
    """Columns of the rows of a match, and the rows for which all of them are equal."""
    exprs = {column.name: column.expr for column in keys}
    late: dict[str, ir.Expr] = {name: expr for name, expr in exprs.items() if isinstance(expr, _LATE)}
    late |= {_kind(name): ir.TypeOf(expr.var) for name, expr in exprs.items() if isinstance(expr, ir.Entity)}
    columns = _Columns(frame.count, {}, late, frame, np.arange(frame.count), context)
    for column in keys:
        if column.name not in late:
            context.budget.need(size_of(column.expr, frame))
            columns.add(column.name, values_of(column.expr, _Results(frame, columns), context.request))
    if not keys:
        return columns, Groups.everything(frame.count)
    return columns, Groups.of(key_codes(exprs, frame, columns.__getitem__, context.accepted.catalog))


def _kind(name: str) -> str:
    """Beside a column of nodes of several types, the one of those types: they tell nodes of one id apart."""
    return f"#type of {name}"


def _grouped(read: ir.Read, frame: Frame, context: Context, weights: Numbers | None = None) -> _Columns:
    keys, groups = _together(_keys(read), frame, context)
    within = _Results(frame, keys)
    result = keys.take(groups.first) if _keys(read) else _Columns(1, {}, {}, frame, groups.first, context)
    aggregates: dict[ir.Aggregate, str] = {}

    def of_group(expr: ir.Expr) -> ir.Expr:
        """An expression over the columns of groups, once its aggregates are columns."""
        known = len(aggregates)
        rewritten: ir.Expr = _named_aggregates(expr, aggregates)
        for aggregate, name in list(aggregates.items())[known:]:
            result.add(name, _aggregate(aggregate, frame, within, groups, weights, context))
        return rewritten

    rows = _Results(_Nothing(groups.count), result)
    names = {column.name for column in _keys(read)}
    for column in read.columns:
        if column.name not in names:
            result.add(column.name, values_of(of_group(column.expr), rows, context.request))
    if read.having:
        kept = np.ones(groups.count, bool)
        for condition in read.having:
            kept &= true_rows(true_of(of_group(condition), rows, context.request))
        result = result.take(np.flatnonzero(kept))
    return result


@remembered
def _keys(read: ir.Read) -> tuple[ir.OutColumn, ...]:
    return read.keys


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
    aggregate: ir.Aggregate,
    frame: Frame,
    rows: Divisible,
    groups: Groups,
    weights: Numbers | None,
    context: Context,
) -> pa.Array:
    if weights is not None and is_count(aggregate) and (aggregate.arg is None or not aggregate.arg.type.nullable):
        return groups.total(weights)
    if aggregate.arg is None:
        return aggregated(aggregate, None, groups)
    numbers = _as_numbers(aggregate, frame, context)
    if numbers is None:
        context.budget.need(_ARGUMENTS[aggregate.function] * size_of(aggregate.arg, frame))
    if weights is not None and is_count(aggregate):
        values = values_of(aggregate.arg, rows, context.request) if numbers is None else numbers.of_row
        return groups.total(np.where(values.is_valid().to_numpy(zero_copy_only=False), weights, 0))
    if numbers is not None:
        if aggregate.function is AggregateFunction.COUNT:
            return aggregated(aggregate, numbers.of_row, groups)
        whole = replace(aggregate, type=_NUMBER)
        return _typed(numbers.values(aggregated(whole, numbers.of_row, groups)), arrow_type(aggregate.type))
    kinds = rows.type_of(aggregate.arg.var) if isinstance(aggregate.arg, ir.Entity) else None
    return aggregated(aggregate, values_of(aggregate.arg, rows, context.request), groups, kinds)


_NUMBER = ValueType(Scalar.I64, nullable=True)

_ARGUMENTS = dict.fromkeys(AggregateFunction, 2) | {AggregateFunction.COLLECT: 3}
"""How often arguments are in memory: as they come, without nulls, and listed."""


def _as_numbers(aggregate: ir.Aggregate, frame: Frame, context: Context) -> Ranked | None:
    """Numbers in the place of texts or lists, where these are only compared."""
    if aggregate.arg is None or aggregate.function not in _COMPARING:
        return None
    looked_up = plain(aggregate.arg, frame)
    return None if looked_up is None else ranked(*looked_up, context.budget)


def _finished_keys(read: ir.Read, columns: _Columns, context: Context) -> list[Key]:
    """What rows that are columns only are ordered by."""
    kinds = {_kind(c.name): ir.TypeOf(c.expr.var) for c in read.columns if isinstance(c.expr, ir.Entity)}
    keys = [_column_key(key, columns, context) for key in read.order]
    for tie in read.ties:
        keys.append(_column_key(ir.SortKey(tie), columns, context))
        if isinstance(tie, ir.Column) and _kind(tie.name) in kinds:
            kind = kinds[_kind(tie.name)]
            keys.append(_column_key(ir.SortKey(ir.Column(_kind(tie.name), kind.type)), columns, context))
    return keys


def _finished(read: ir.Read, columns: _Columns, context: Context) -> pa.Table:
    """Rows that are columns only, in order and cut."""
    keys = _finished_keys(read, columns, context)
    offset, limit = window(read, context)
    chosen = context.traced(_sorting(limit), lambda: _cut(in_order(keys, columns.count, offset, limit), context), len)
    return context.traced(Operator.PROJECT, lambda: _table(read, columns.take(chosen)), len)


def _count(columns: _Columns) -> int:
    return columns.count


def _cut(chosen: Numbers, context: Context) -> Numbers:
    context.budget.give(len(chosen))
    return chosen


def _table(read: ir.Read, columns: Mapping[str, pa.Array] | _Columns) -> pa.Table:
    wanted = schema(read)
    return pa.table([_typed(columns[field.name], field.type) for field in wanted], wanted)


def _typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


@remembered
def schema(read: ir.Read) -> pa.Schema:
    """The columns of the result."""
    return pa.schema([pa.field(c.name, arrow_type(c.expr.type), c.expr.type.nullable) for c in read.columns])


@dataclass(frozen=True, slots=True)
class _Nothing:
    """Rows that have no variables."""

    count: int

    def part(self, first: int, last: int) -> _Nothing:
        return _Nothing(last - first)

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
