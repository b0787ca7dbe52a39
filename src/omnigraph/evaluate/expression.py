"""Scalar expressions over rows: one kernel call per operator, whatever the number of rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ExecutionError, ParameterError
from omnigraph.evaluate.compare import compare
from omnigraph.evaluate.functions import KERNELS
from omnigraph.evaluate.members import is_member
from omnigraph.evaluate.numbers import arithmetic, as_number, checked
from omnigraph.evaluate.rows import Request, Rows, whole
from omnigraph.evaluate.texts import is_found
from omnigraph.evaluate.times import distance, moved
from omnigraph.evaluate.values import Value, constant, spread, value_type
from omnigraph.lang.query import ir
from omnigraph.lang.types import Scalar, ValueType


def evaluate(expr: ir.Expr, rows: Rows, request: Request) -> pa.Array:
    """The values of an expression, one per row, in the Arrow type of its type.

    A `Blob` comes as the text that was given for it: `base64:…`, or where its content is.

    Raises:
        ExecutionError: a row has no value because a number or date is too large, or a pattern is none.
        ParameterError: a parameter that stands as a pattern is none.
    """
    column = spread(_Evaluation(rows, request).value(expr), rows.count)
    wanted = value_type(expr.type)
    return column if column.type == wanted or expr.type.scalar is Scalar.BLOB else column.cast(wanted)


def holds(expr: ir.Expr, rows: Rows, request: Request) -> pa.Array:
    """Where a condition is true. Unknown is not true."""
    return evaluate(expr, rows, request).fill_null(False)


def constant_of(expr: ir.Expr, request: Request) -> pa.Scalar | None:
    """The value of an expression that is the same for every row because it is a literal, a parameter or `now()`."""
    match expr:
        case ir.Const(value, kind):
            return constant(value, kind)
        case ir.Param(name, kind):
            return constant(request.params[name], kind)
        case ir.Now():
            return constant(request.now, ir.DATETIME)
    return None


def _typed(value: Value, expr: ir.Expr) -> Value:
    """What was looked up, in its type also where there is nothing to look up."""
    return value.cast(value_type(expr.type)) if pa.types.is_null(value.type) else value


def own_precision(value: Value, expr: ir.Expr, other: ValueType) -> Value:
    """A written or given number as an F32 beside it has it: `x = 0.1` is true for the 0.1 that an F32 holds.

    Computed numbers, integers and numbers that no F32 is near to stay what they are.
    """
    if other.scalar is not Scalar.F32 or expr.type.scalar is not Scalar.F64:
        return value
    if isinstance(expr, ir.Negate):
        return own_precision(value, expr.value, other)
    if not isinstance(expr, ir.Const | ir.Param) or not value.is_valid:
        return value
    if expr.type.list:
        narrow = value.values.cast(pa.float32(), safe=False)
        narrow = narrow.filter(pc.is_finite(narrow))
        return pa.ListArray.from_arrays(pa.array([0, len(narrow)], pa.int32()), narrow)[0]
    narrow = value.cast(pa.float32(), safe=False)
    return narrow if pc.is_finite(narrow).as_py() else value


class _Evaluation:
    """One expression over some rows."""

    def __init__(self, rows: Rows, request: Request) -> None:
        self.rows = rows
        self.request = request

    def value(self, expr: ir.Expr) -> Value:
        compute = _COMPUTE.get(type(expr))
        assert compute is not None, f"{type(expr).__name__} is not computed row by row"
        return compute(self, expr)

    # Places

    def _constant(self, expr: ir.Const | ir.Param | ir.Now) -> Value:
        return constant_of(expr, self.request)

    def _prop(self, expr: ir.Prop) -> Value:
        return _typed(whole(self.rows.prop(expr.var, expr.name)), expr)

    def _ident(self, expr: ir.Ident) -> Value:
        return _typed(whole(self.rows.ident(expr.var, expr.role)), expr)

    def _entity(self, expr: ir.Entity) -> Value:
        return _typed(whole(self.rows.ident(expr.var, ir.Role.ID)), expr)

    def _type_of(self, expr: ir.TypeOf) -> Value:
        return whole(self.rows.type_of(expr.var))

    def _path(self, expr: ir.PathValue) -> Value:
        return whole(self.rows.path(expr.var, expr.part))

    def _column(self, expr: ir.Column) -> Value:
        return whole(self.rows.column(expr.name))

    def _search(self, expr: ir.TextMatch | ir.Rank) -> Value:
        return whole(self.rows.search(expr))

    # Conditions

    def _compare(self, expr: ir.Compare) -> Value:
        left, right = self.value(expr.left), self.value(expr.right)
        left = own_precision(left, expr.left, expr.right.type)
        right = own_precision(right, expr.right, expr.left.type)
        if expr.op is ir.CompareOp.HAS_ITEM:
            return pc.coalesce(is_member(right, left), pa.scalar(False))
        if expr.op in ir.NULL_IS_FALSE:
            return self._found(expr, left, right)
        return compare(expr.op, left, right)

    def _found(self, expr: ir.Compare, text: Value, pattern: Value) -> Value:
        try:
            return is_found(expr.op, text, pattern)
        except ExecutionError as error:
            if isinstance(expr.right, ir.Param):
                raise ParameterError(expr.right.name, error.message, hint=error.hint) from None
            raise

    def _in_list(self, expr: ir.InList) -> Value:
        value, items = self.value(expr.value), self.value(expr.items)
        value = own_precision(value, expr.value, expr.items.type)
        items = own_precision(items, expr.items, expr.value.type)
        found = is_member(value, items)
        return pc.invert(found) if expr.negated else found

    def _is_null(self, expr: ir.IsNull) -> Value:
        value = self.value(expr.value)
        return pc.is_valid(value) if expr.negated else pc.is_null(value)

    def _var_is_null(self, expr: ir.VarIsNull) -> Value:
        ids = whole(self.rows.ident(expr.var, ir.Role.ID))
        return pc.is_valid(ids) if expr.negated else pc.is_null(ids)

    def _same_entity(self, expr: ir.SameEntity) -> Value:
        ids = (whole(self.rows.ident(var, ir.Role.ID)) for var in (expr.left, expr.right))
        types = (whole(self.rows.type_of(var)) for var in (expr.left, expr.right))
        same = pc.and_(pc.equal(*ids), pc.equal(*types))
        return pc.invert(same) if expr.negated else same

    def _and(self, expr: ir.And) -> Value:
        return reduce(pc.and_kleene, map(self.value, expr.terms))

    def _or(self, expr: ir.Or) -> Value:
        return reduce(pc.or_kleene, map(self.value, expr.terms))

    def _not(self, expr: ir.Not) -> Value:
        return pc.invert(self.value(expr.term))

    # Values

    def _arith(self, expr: ir.Arith) -> Value:
        left, right = self.value(expr.left), self.value(expr.right)
        if expr.op is ir.ArithOp.CONCAT:
            return pc.binary_join_element_wise(left, right, "")
        return arithmetic(expr.op, left, right, value_type(expr.type))

    def _negate(self, expr: ir.Negate) -> Value:
        return checked(pc.negate_checked, as_number(self.value(expr.value), value_type(expr.type)))

    def _apply(self, expr: ir.Apply) -> Value:
        if expr.function is ir.Function.COALESCE:
            return self._coalesce(expr)
        return KERNELS[expr.function](expr, [self.value(arg) for arg in expr.args])

    def _coalesce(self, expr: ir.Apply) -> Value:
        """The first value that is not null. Only what is taken must fit the type of the result."""
        wanted = value_type(expr.type)
        taken: Value = pa.scalar(None, wanted)
        for arg in expr.args:
            value = self.value(arg)
            if isinstance(arg, ir.Const) and arg.value == ():
                value = pa.scalar([], wanted)  # [] is a list of anything
            elif value.type != wanted:
                value = as_number(pc.if_else(pc.is_null(taken), value, pa.scalar(None, value.type)), wanted)
            taken = pc.if_else(pc.is_null(taken), value, taken)
        return taken

    def _date_diff(self, expr: ir.DateDiff) -> Value:
        return distance(expr.unit, self.value(expr.start), self.value(expr.end))

    def _date_add(self, expr: ir.DateAdd) -> Value:
        return moved(expr.unit, self.value(expr.amount), self.value(expr.date))


_COMPUTE: dict[type, Callable[..., Value]] = {
    ir.Const: _Evaluation._constant,
    ir.Param: _Evaluation._constant,
    ir.Now: _Evaluation._constant,
    ir.Prop: _Evaluation._prop,
    ir.Ident: _Evaluation._ident,
    ir.Entity: _Evaluation._entity,
    ir.TypeOf: _Evaluation._type_of,
    ir.PathValue: _Evaluation._path,
    ir.Column: _Evaluation._column,
    ir.TextMatch: _Evaluation._search,
    ir.Nearest: _Evaluation._search,
    ir.Bm25: _Evaluation._search,
    ir.Fusion: _Evaluation._search,
    ir.Compare: _Evaluation._compare,
    ir.InList: _Evaluation._in_list,
    ir.IsNull: _Evaluation._is_null,
    ir.VarIsNull: _Evaluation._var_is_null,
    ir.SameEntity: _Evaluation._same_entity,
    ir.And: _Evaluation._and,
    ir.Or: _Evaluation._or,
    ir.Not: _Evaluation._not,
    ir.Arith: _Evaluation._arith,
    ir.Negate: _Evaluation._negate,
    ir.Apply: _Evaluation._apply,
    ir.DateDiff: _Evaluation._date_diff,
    ir.DateAdd: _Evaluation._date_add,
}
