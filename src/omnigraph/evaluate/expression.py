"""Evaluation of scalar expressions: one vectorised kernel call per operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ExecutionError, ParameterError
from omnigraph.evaluate.compare import compare
from omnigraph.evaluate.functions import KERNELS
from omnigraph.evaluate.list_membership import in_list
from omnigraph.evaluate.numbers import arithmetic, as_number, checked
from omnigraph.evaluate.rows import Request, Rows, as_one_array
from omnigraph.evaluate.texts import match_text
from omnigraph.evaluate.times import date_add, date_diff
from omnigraph.evaluate.values import Value, broadcast, constant, value_type
from omnigraph.lang.query import ir
from omnigraph.lang.types import Scalar, ValueType


def evaluate(expr: ir.Expr, rows: Rows, request: Request) -> pa.Array:
    """Compute an expression: one value per row, in the Arrow type of the expression.

    The value of a `Blob` is its text form: `base64:…`, or the URI of its content.

    Raises:
        ExecutionError: a number or date is too large, or a pattern is invalid.
        ParameterError: the value of a parameter is used as a pattern, and it is not a valid pattern.
    """
    column = broadcast(_Evaluation(rows, request).value(expr), rows.count)
    wanted = value_type(expr.type)
    return column if column.type == wanted or expr.type.scalar is Scalar.BLOB else column.cast(wanted)


def holds(expr: ir.Expr, rows: Rows, request: Request) -> pa.Array:
    """Boolean mask of the rows for which a condition is true. Null counts as false."""
    return evaluate(expr, rows, request).fill_null(False)


def constant_of(expr: ir.Expr, request: Request) -> pa.Scalar | None:
    """The value of a literal, a parameter or `now()`; None for other expressions."""
    match expr:
        case ir.Const(value, kind):
            return constant(value, kind)
        case ir.Param(name, kind):
            return constant(request.params[name], kind)
        case ir.Now():
            return constant(request.now, ir.DATETIME)
    return None


def _typed(value: Value, expr: ir.Expr) -> Value:
    """Cast a null column to the type of the expression."""
    return value.cast(value_type(expr.type)) if pa.types.is_null(value.type) else value


def as_f32_constant(value: Value, expr: ir.Expr, other: ValueType) -> Value:
    """Round a literal or parameter to F32 if the other side is F32, so that `x = 0.1` is true for a stored F32 0.1.

    Computed numbers, integers and numbers outside the range of F32 stay unchanged.
    """
    if other.scalar is not Scalar.F32 or expr.type.scalar is not Scalar.F64:
        return value
    if isinstance(expr, ir.Negate):
        return as_f32_constant(value, expr.value, other)
    if not isinstance(expr, ir.Const | ir.Param) or not value.is_valid:
        return value
    if expr.type.list:
        narrow = value.values.cast(pa.float32(), safe=False)
        narrow = narrow.filter(pc.is_finite(narrow))
        return pa.ListArray.from_arrays(pa.array([0, len(narrow)], pa.int32()), narrow)[0]
    narrow = value.cast(pa.float32(), safe=False)
    return narrow if pc.is_finite(narrow).as_py() else value


class _Evaluation:
    """The evaluation of one expression on some rows."""

    def __init__(self, rows: Rows, request: Request) -> None:
        self.rows = rows
        self.request = request

    def value(self, expr: ir.Expr) -> Value:
        compute = _COMPUTE.get(type(expr))
        assert compute is not None, f"{type(expr).__name__} is not computed row by row"
        return compute(self, expr)

    # Leaves

    def _constant(self, expr: ir.Const | ir.Param | ir.Now) -> Value:
        return constant_of(expr, self.request)

    def _prop(self, expr: ir.Prop) -> Value:
        return _typed(as_one_array(self.rows.prop(expr.var, expr.name)), expr)

    def _ident(self, expr: ir.Ident) -> Value:
        return _typed(as_one_array(self.rows.ident(expr.var, expr.role)), expr)

    def _entity(self, expr: ir.Entity) -> Value:
        return _typed(as_one_array(self.rows.ident(expr.var, ir.Role.ID)), expr)

    def _type_of(self, expr: ir.TypeOf) -> Value:
        return as_one_array(self.rows.type_of(expr.var))

    def _path(self, expr: ir.PathValue) -> Value:
        return as_one_array(self.rows.path(expr.var, expr.part))

    def _column(self, expr: ir.Column) -> Value:
        return as_one_array(self.rows.column(expr.name))

    def _value(self, expr: ir.Value) -> Value:
        return as_one_array(self.rows.value(expr.name))

    def _search(self, expr: ir.TextMatch | ir.Rank) -> Value:
        return as_one_array(self.rows.search(expr))

    # Conditions

    def _compare(self, expr: ir.Compare) -> Value:
        left, right = self.value(expr.left), self.value(expr.right)
        left = as_f32_constant(left, expr.left, expr.right.type)
        right = as_f32_constant(right, expr.right, expr.left.type)
        if expr.op is ir.CompareOp.HAS_ITEM:
            return pc.coalesce(in_list(right, left), pa.scalar(False))
        if expr.op in ir.NULL_IS_FALSE:
            return self._found(expr, left, right)
        return compare(expr.op, left, right)

    def _found(self, expr: ir.Compare, text: Value, pattern: Value) -> Value:
        try:
            return match_text(expr.op, text, pattern)
        except ExecutionError as error:
            if isinstance(expr.right, ir.Param):
                raise ParameterError(expr.right.name, error.message, hint=error.hint) from None
            raise

    def _in_list(self, expr: ir.InList) -> Value:
        value, items = self.value(expr.value), self.value(expr.items)
        value = as_f32_constant(value, expr.value, expr.items.type)
        items = as_f32_constant(items, expr.items, expr.value.type)
        found = in_list(value, items)
        return pc.invert(found) if expr.negated else found

    def _is_null(self, expr: ir.IsNull) -> Value:
        value = self.value(expr.value)
        return pc.is_valid(value) if expr.negated else pc.is_null(value)

    def _var_is_null(self, expr: ir.VarIsNull) -> Value:
        ids = as_one_array(self.rows.ident(expr.var, ir.Role.ID))
        return pc.is_valid(ids) if expr.negated else pc.is_null(ids)

    def _same_entity(self, expr: ir.SameEntity) -> Value:
        ids = (as_one_array(self.rows.ident(var, ir.Role.ID)) for var in (expr.left, expr.right))
        types = (as_one_array(self.rows.type_of(var)) for var in (expr.left, expr.right))
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
        """The first value that is not null. Only the chosen value must fit the type of the result."""
        wanted = value_type(expr.type)
        taken: Value = pa.scalar(None, wanted)
        for arg in expr.args:
            value = self.value(arg)
            if isinstance(arg, ir.Const) and arg.value == ():
                value = pa.scalar([], wanted)  # [] fits every list type
            elif value.type != wanted:
                value = as_number(pc.if_else(pc.is_null(taken), value, pa.scalar(None, value.type)), wanted)
            taken = pc.if_else(pc.is_null(taken), value, taken)
        return taken

    def _date_diff(self, expr: ir.DateDiff) -> Value:
        return date_diff(expr.unit, self.value(expr.start), self.value(expr.end))

    def _date_add(self, expr: ir.DateAdd) -> Value:
        return date_add(expr.unit, self.value(expr.amount), self.value(expr.date))


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
    ir.Value: _Evaluation._value,
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
