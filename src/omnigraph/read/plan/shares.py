"""Shares: about how many of some rows a condition keeps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping

from omnigraph.lang.query import ir
from omnigraph.read.plan.statistics import Values

_KEPT = 1 / 3
_KEPT_EQUAL = 1 / 10
"""The share of rows that a condition is taken to keep of which nothing is known, and one that wants something equal."""

_KEPT_WORDS = 1 / 20
"""The same for one that wants words."""

Known = Callable[[str, str], Values | None]
"""What is known about a property of a variable."""

Params = Mapping[str, ir.ConstValue]


def share(expr: ir.Expr, known: Known, params: Params) -> float:
    """About the share of rows for which a condition holds.

    Args:
        expr: the condition.
        known: tells about properties.
        params: the values of parameters.
    """
    match expr:
        case ir.And(terms):
            kept = 1.0
            for term in terms:
                kept *= share(term, known, params)
            return kept
        case ir.Or(terms):
            lost = 1.0
            for term in terms:
                lost *= 1 - share(term, known, params)
            return 1 - lost
        case ir.Not(term):
            return 1 - share(term, known, params)
        case ir.SameEntity(negated=negated) | ir.VarIsNull(negated=negated):
            return 1 - _KEPT_EQUAL if negated else _KEPT_EQUAL
        case ir.TextMatch():
            return _KEPT_WORDS
        case ir.IsNull(value, negated):
            values = _of(value, known)
            missing = _KEPT_EQUAL if values is None else values.missing
            return 1 - missing if negated else missing
        case ir.InList(value, items, negated):
            listed = _value(items, params)
            kept = min(1.0, (len(listed) if isinstance(listed, tuple) else 4) * _equal(_of(value, known)))
            return 1 - kept if negated else kept
        case ir.Compare():
            return _compared(expr, known, params)
    return _KEPT


_FLIPPED = {
    ir.CompareOp.LT: ir.CompareOp.GT,
    ir.CompareOp.LE: ir.CompareOp.GE,
    ir.CompareOp.GT: ir.CompareOp.LT,
    ir.CompareOp.GE: ir.CompareOp.LE,
}
"""The same comparison, with its sides exchanged."""


def _compared(expr: ir.Compare, known: Known, params: Params) -> float:
    left, right = _of(expr.left, known), _of(expr.right, known)
    if expr.op in (ir.CompareOp.EQ, ir.CompareOp.NE):
        both = [values for values in (left, right) if values is not None]
        kept = min((_equal(values) for values in both), default=_KEPT_EQUAL)
        return kept if expr.op is ir.CompareOp.EQ else 1 - kept
    if expr.op not in _FLIPPED:
        return _KEPT
    if left is not None:
        return _ordered(left, expr.op, _value(expr.right, params))
    return _KEPT if right is None else _ordered(right, _FLIPPED[expr.op], _value(expr.left, params))


def _ordered(values: Values, op: ir.CompareOp, bound: ir.ConstValue) -> float:
    """The share of values on one side of a bound. It is never nothing: a sample does not have all values."""
    if bound is None or not values.sample:
        return _KEPT
    least = 1 / (2 * len(values.sample))
    try:
        if op in (ir.CompareOp.LT, ir.CompareOp.GE):
            below = bisect_left(values.sample, bound) / len(values.sample)
        else:
            below = bisect_right(values.sample, bound) / len(values.sample)
    except TypeError:  # values of another kind have an order of their own
        return _KEPT
    kept = below if op in (ir.CompareOp.LT, ir.CompareOp.LE) else 1 - below
    return max(kept, least) * (1 - values.missing)


def _equal(values: Values | None) -> float:
    return _KEPT_EQUAL if values is None else (1 - values.missing) / max(values.distinct, 1.0)


def _of(expr: ir.Expr, known: Known) -> Values | None:
    return known(expr.var, expr.name) if isinstance(expr, ir.Prop) else None


def _value(expr: ir.Expr, params: Params) -> ir.ConstValue:
    match expr:
        case ir.Const(value=value):
            return value
        case ir.Param(name=name):
            return params.get(name)
    return None
