"""Selectivity estimates: the fraction of rows that a condition keeps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping

from omnigraph.lang.query import ir
from omnigraph.read.plan.statistics import PropertyStatistics

_KEPT = 1 / 3
"""Default selectivity of a condition."""

_KEPT_EQUAL = 1 / 10
"""Default selectivity of an equality."""

_KEPT_WORDS = 1 / 20
"""Default selectivity of a text search."""

Known = Callable[[str, str], PropertyStatistics | None]
"""Function that returns the statistics of a property, by variable and property name; None if there are none."""

Params = Mapping[str, ir.ConstValue]


def selectivity(expr: ir.Expr, known: Known, params: Params) -> float:
    """Estimated fraction of rows for which a condition is true.

    Args:
        expr: the condition.
        known: returns property statistics.
        params: parameter values.
    """
    match expr:
        case ir.And(terms):
            kept = 1.0
            for term in terms:
                kept *= selectivity(term, known, params)
            return kept
        case ir.Or(terms):
            lost = 1.0
            for term in terms:
                lost *= 1 - selectivity(term, known, params)
            return 1 - lost
        case ir.Not(term):
            return 1 - selectivity(term, known, params)
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
"""For each comparison operator, the operator for exchanged sides: `a < b` is `b > a`."""


def _compared(expr: ir.Compare, known: Known, params: Params) -> float:
    left, right = _of(expr.left, known), _of(expr.right, known)
    if expr.op in (ir.CompareOp.EQ, ir.CompareOp.NE):
        kept = _equal_values(left, right, _value(expr.right if left is not None else expr.left, params))
        return kept if expr.op is ir.CompareOp.EQ else 1 - kept
    if expr.op not in _FLIPPED:
        return _KEPT
    if left is not None:
        return _ordered(left, expr.op, _value(expr.right, params))
    return _KEPT if right is None else _ordered(right, _FLIPPED[expr.op], _value(expr.left, params))


def _equal_values(left: PropertyStatistics | None, right: PropertyStatistics | None, constant: ir.ConstValue) -> float:
    """Estimated fraction of rows in which two values are equal, or in which a value is equal to a constant.

    Values that occur several times in a sample are common. The samples show how many rows have them.
    """
    both = [values for values in (left, right) if values is not None]
    least = min((_equal(values) for values in both), default=_KEPT_EQUAL)
    if len(both) == 2:
        counts = [Counter(values.sample) for values in both]
        pairs = sum(counts[0][value] * counts[1][value] for value in counts[0].keys() & counts[1].keys())
        possible = len(both[0].sample) * len(both[1].sample)
        found = pairs / possible if possible else 0.0
        for values in both:
            found *= 1 - values.missing
        return max(least, found) if len(counts[0]) < len(both[0].sample) else least
    if len(both) == 1 and constant is not None and both[0].sample:
        common = both[0].sample.count(constant)
        if common > 1:
            return common / len(both[0].sample) * (1 - both[0].missing)
    return least


def _ordered(values: PropertyStatistics, op: ir.CompareOp, bound: ir.ConstValue) -> float:
    """Estimated fraction of the values that a comparison with a bound keeps.

    It is never 0, because the sample is incomplete.
    """
    if bound is None or not values.sample:
        return _KEPT
    least = 1 / (2 * len(values.sample))
    try:
        if op in (ir.CompareOp.LT, ir.CompareOp.GE):
            below = bisect_left(values.sample, bound) / len(values.sample)
        else:
            below = bisect_right(values.sample, bound) / len(values.sample)
    except TypeError:  # the bound has another type than the sample
        return _KEPT
    kept = below if op in (ir.CompareOp.LT, ir.CompareOp.LE) else 1 - below
    return max(kept, least) * (1 - values.missing)


def _equal(values: PropertyStatistics | None) -> float:
    return _KEPT_EQUAL if values is None else (1 - values.missing) / max(values.distinct, 1.0)


def _of(expr: ir.Expr, known: Known) -> PropertyStatistics | None:
    return known(expr.var, expr.name) if isinstance(expr, ir.Prop) else None


def _value(expr: ir.Expr, params: Params) -> ir.ConstValue:
    match expr:
        case ir.Const(value=value):
            return value
        case ir.Param(name=name):
            return params.get(name)
    return None
