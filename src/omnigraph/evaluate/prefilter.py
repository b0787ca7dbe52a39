"""The part of a condition that a scan can test: a filter that lets every matching row through."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.evaluate.compare import MIRRORED, fitting
from omnigraph.evaluate.expression import constant_of, own_precision
from omnigraph.evaluate.rows import ROLE_COLUMNS, Request
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.types import Scalar, ValueType

_SENT = frozenset({Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.F32, Scalar.F64, Scalar.DATE})
"""The types of columns that a filter can be sent to Lance for. A scan with any other reads the whole table."""

_OPS: dict[ir.CompareOp, Callable[[pc.Expression, pa.Scalar], pc.Expression]] = {
    ir.CompareOp.EQ: operator.eq,
    ir.CompareOp.NE: operator.ne,
    ir.CompareOp.LT: operator.lt,
    ir.CompareOp.LE: operator.le,
    ir.CompareOp.GT: operator.gt,
    ir.CompareOp.GE: operator.ge,
}
_OPPOSITE = {
    ir.CompareOp.EQ: ir.CompareOp.NE,
    ir.CompareOp.NE: ir.CompareOp.EQ,
    ir.CompareOp.LT: ir.CompareOp.GE,
    ir.CompareOp.LE: ir.CompareOp.GT,
    ir.CompareOp.GT: ir.CompareOp.LE,
    ir.CompareOp.GE: ir.CompareOp.LT,
}
_TEXT = {
    ir.CompareOp.CONTAINS: pc.match_substring,
    ir.CompareOp.STARTS_WITH: pc.starts_with,
    ir.CompareOp.ENDS_WITH: pc.ends_with,
}


def prefilter(expr: ir.Expr, request: Request, *, key: str | None = None) -> pc.Expression | None:
    """A condition on the columns of `self` that every row satisfies for which the expression is true.

    It may let more rows through: whoever scans with it still asks `holds`.

    Args:
        expr: the condition.
        request: what the call fixes.
        key: the property that is the key of the type, when it is one alone and a `String`: it is looked up as the id.

    Returns:
        A structured filter for a scan, or None when nothing can be said.
    """
    return _Prefilter(request, key).implied(expr, True)


class _Prefilter:
    def __init__(self, request: Request, key: str | None) -> None:
        self.request = request
        self.key = key

    def implied(self, expr: ir.Expr, truth: bool) -> pc.Expression | None:
        """What holds for every row where the expression is true, or where it is false."""
        match expr:
            case ir.Not(term):
                return self.implied(term, not truth)
            case ir.And(terms) if truth:
                return self._all(terms, truth)
            case ir.Or(terms) if not truth:
                return self._all(terms, truth)
            case ir.And(terms) | ir.Or(terms):
                return self._any(terms, truth)
            case ir.Compare(op, left, right):
                return self._compare(op, left, right, truth)
            case ir.InList(value, items, negated):
                return self._in_list(value, items) if truth != negated else None
            case ir.IsNull(value, negated):
                column = self._column(value)
                if column is None:
                    return None
                return column.is_null() if truth != negated else column.is_valid()
            case ir.Prop(type=kind) if kind.scalar is Scalar.BOOL:
                column = self._column(expr)
                return None if column is None else column == pa.scalar(truth)
        return None

    def _all(self, terms: tuple[ir.Expr, ...], truth: bool) -> pc.Expression | None:
        """Of a conjunction, whatever can be said."""
        known = [implied for term in terms if (implied := self.implied(term, truth)) is not None]
        return reduce(operator.and_, known) if known else None

    def _any(self, terms: tuple[ir.Expr, ...], truth: bool) -> pc.Expression | None:
        """Of a disjunction, only something about every part."""
        known = [self.implied(term, truth) for term in terms]
        return None if any(implied is None for implied in known) else reduce(operator.or_, known)

    def _column(self, expr: ir.Expr) -> pc.Expression | None:
        match expr:
            case ir.Ident(ir.SELF, role):
                return pc.field(ROLE_COLUMNS[role])
            case ir.Prop(ir.SELF, name, kind) if kind.scalar in _SENT and not kind.list:
                return pc.field("id") if name == self.key else pc.field(name)
        return None

    def _compare(self, op: ir.CompareOp, left: ir.Expr, right: ir.Expr, truth: bool) -> pc.Expression | None:
        if op in ir.NULL_IS_FALSE:
            return self._text(op, left, right) if truth else None
        if not truth:
            op = _OPPOSITE[op]
        column, value = self._column(left), self._constant(right, left.type)
        if column is None or value is None:
            op = MIRRORED[op]
            column, value = self._column(right), self._constant(left, right.type)
        if column is None or value is None:
            return None
        return _OPS[op](column, value)

    def _constant(self, expr: ir.Expr, beside: ValueType) -> pa.Scalar | None:
        """A constant as a value of the column's own type, when it is one."""
        value = constant_of(expr, self.request)
        if value is None or not value.is_valid:
            return None
        fit = fitting(pa.repeat(own_precision(value, expr, beside), 1), arrow_type(beside))
        return fit[0] if len(fit) else None

    def _text(self, op: ir.CompareOp, left: ir.Expr, right: ir.Expr) -> pc.Expression | None:
        column, pattern = self._column(left), constant_of(right, self.request)
        if op not in _TEXT or column is None or pattern is None or not pattern.is_valid:
            return None
        return _TEXT[op](column, pattern.as_py())

    def _in_list(self, value: ir.Expr, items: ir.Expr) -> pc.Expression | None:
        column, listed = self._column(value), constant_of(items, self.request)
        if column is None or listed is None or not listed.is_valid:
            return None
        chosen, kind = own_precision(listed, items, value.type).values, arrow_type(value.type)
        chosen = fitting(chosen, kind) if len(chosen) else pa.array([], kind)
        if pa.types.is_floating(kind) and pc.any(pc.equal(chosen, 0.0)).as_py():
            chosen = pa.concat_arrays([chosen, pa.array([0.0, -0.0], kind)])
        return column.isin(chosen)
