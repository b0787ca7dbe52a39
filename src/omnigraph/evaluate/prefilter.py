"""Predicate pushdown: derive a scan filter from a condition. The filter accepts every matching row, and maybe more."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.evaluate.compare import MIRRORED, exactly_representable
from omnigraph.evaluate.expression import as_f32_constant, constant_of
from omnigraph.evaluate.rows import ROLE_COLUMNS, Request
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.types import Scalar, ValueType

_SENT = frozenset({Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.F32, Scalar.F64, Scalar.DATE})
"""The column types that Lance filters support. A filter on another type makes Lance read the whole table."""

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

LARGEST = 64 * 64
"""The maximum cost of a filter: the number of comparisons after the conversion to a Lance filter.

The conversion duplicates every operand of an `and` or `or`. So 64 comparisons in a balanced tree of 6 levels become
64 * 64 comparisons. More expensive conditions are not pushed down.
"""

_TOGETHER = 256
"""A lookup in a list of this number of values is counted as one comparison."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A condition on columns.

    Attributes:
        cost: the number of comparisons in the converted filter; at least 1.
        column: the column of a condition "column in values"; None for other conditions.
        values: the values of that condition.
    """

    expr: pc.Expression
    cost: int = 1
    column: str | None = None
    values: pa.Array | None = None


def prefilter(expr: ir.Expr, request: Request, *, key: str | None = None) -> pc.Expression | None:
    """Derive a filter on table columns that accepts every row for which the expression is true.

    The filter may accept more rows. The caller still has to evaluate the expression with `holds`.

    Args:
        expr: the condition.
        request: the parameters and the time of the request.
        key: the key property of the type, if the key is a single `String`. A condition on it
            becomes a condition on the id, which has the same value.

    Returns:
        A filter for a scan, or None if no part of the condition can be pushed down.
    """
    found = _Prefilter(request, key).implied(expr, True)
    return None if found is None else found.expr


def implied_ids(expr: ir.Expr, request: Request, *, key: str | None = None) -> pa.Array | None:
    """The ids of all rows for which an expression can be true; None if the expression does not name them.

    Args:
        expr: the condition.
        request: the parameters and the time of the request.
        key: as for `prefilter`.
    """
    rules = _Prefilter(request, key)
    terms = _terms(expr, True, True) if isinstance(expr, ir.And) else iter([(expr, True)])
    for term, wanted in terms:
        found = rules.implied(term, wanted)
        if found is not None and found.column == "id":
            return found.values
    return None


class _Prefilter:
    def __init__(self, request: Request, key: str | None) -> None:
        self.request = request
        self.key = key

    def implied(self, expr: ir.Expr, truth: bool) -> _Part | None:
        """A condition that is true for every row where the expression has the value `truth`; None if there is none."""
        match expr:
            case ir.Not(term):
                return self.implied(term, not truth)
            case ir.And() | ir.Or():
                is_all = isinstance(expr, ir.And) == truth
                known = (self.implied(term, wanted) for term, wanted in _terms(expr, truth, is_all))
                return _all(known) if is_all else _any(known)
            case ir.Compare(op, left, right):
                return self._compare(op, left, right, truth)
            case ir.InList(value, items, negated):
                return self._in_list(value, items) if truth != negated else None
            case ir.IsNull(value, negated):
                column = self._column(value)
                if column is None:
                    return None
                field = pc.field(column)
                return _Part(field.is_null() if truth != negated else field.is_valid())
            case ir.Prop(type=kind) if kind.scalar is Scalar.BOOL:
                column = self._column(expr)
                return None if column is None else _Part(pc.field(column) == pa.scalar(truth))
        return None

    def _column(self, expr: ir.Expr) -> str | None:
        match expr:
            case ir.Ident(ir.SELF, role):
                return ROLE_COLUMNS[role]
            case ir.Prop(ir.SELF, name, kind) if kind.scalar in _SENT and not kind.list:
                return "id" if name == self.key else name
        return None

    def _compare(self, op: ir.CompareOp, left: ir.Expr, right: ir.Expr, truth: bool) -> _Part | None:
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
        compared = _OPS[op](pc.field(column), value)
        return _Part(compared, 1, column, pa.repeat(value, 1)) if op is ir.CompareOp.EQ else _Part(compared)

    def _constant(self, expr: ir.Expr, other: ValueType) -> pa.Scalar | None:
        """A constant in the type of the column; None if the type cannot represent it."""
        value = constant_of(expr, self.request)
        if value is None or not value.is_valid:
            return None
        fit = exactly_representable(pa.repeat(as_f32_constant(value, expr, other), 1), arrow_type(other))
        return fit[0] if len(fit) else None

    def _text(self, op: ir.CompareOp, left: ir.Expr, right: ir.Expr) -> _Part | None:
        column, pattern = self._column(left), constant_of(right, self.request)
        if op not in _TEXT or column is None or pattern is None or not pattern.is_valid:
            return None
        return _Part(_TEXT[op](pc.field(column), pattern.as_py()))

    def _in_list(self, value: ir.Expr, items: ir.Expr) -> _Part | None:
        column, listed = self._column(value), constant_of(items, self.request)
        if column is None or listed is None or not listed.is_valid:
            return None
        chosen, kind = as_f32_constant(listed, items, value.type).values, arrow_type(value.type)
        return _one_of(column, exactly_representable(chosen, kind) if len(chosen) else pa.array([], kind))


def _terms(expr: ir.And | ir.Or, truth: bool, is_all: bool) -> Iterator[tuple[ir.Expr, bool]]:
    """The terms of a conjunction or disjunction, each with the truth value that it must have.

    Nested terms of the same kind are flattened.
    """
    for term in expr.terms:
        wanted = truth
        while isinstance(term, ir.Not):
            term, wanted = term.term, not wanted
        if isinstance(term, ir.And | ir.Or) and (isinstance(term, ir.And) == wanted) == is_all:
            yield from _terms(term, wanted, is_all)
        else:
            yield term, wanted


def _all(known: Iterator[_Part | None]) -> _Part | None:
    """Combine the parts of a conjunction. Skips parts that cannot be pushed down or exceed the maximum cost."""
    taken: list[_Part] = []
    total = 0
    for part in known:
        if part is not None and (not taken or _cost(len(taken) + 1, total + part.cost) <= LARGEST):
            taken.append(part)
            total += part.cost
    return _joined(operator.and_, taken) if taken else None


def _any(known: Iterator[_Part | None]) -> _Part | None:
    """Combine the parts of a disjunction, and merge value lists of a column. None if a part cannot be pushed down."""
    others: list[_Part] = []
    listed: dict[str, list[_Part]] = {}
    for part in known:
        if part is None:
            return None
        if part.column is None:
            others.append(part)
        else:
            listed.setdefault(part.column, []).append(part)
    parts = [
        same[0] if len(same) == 1 else _one_of(column, pa.concat_arrays([part.values for part in same]))
        for column, same in listed.items()
    ]
    parts += others
    if len(parts) > 1 and _cost(len(parts), sum(part.cost for part in parts)) > LARGEST:
        return None
    return _joined(operator.or_, parts)


def _one_of(column: str, values: pa.Array) -> _Part:
    if pa.types.is_floating(values.type) and pc.any(pc.equal(values, 0.0)).as_py():
        values = pa.concat_arrays([values, pa.array([0.0, -0.0], values.type)])
    return _Part(pc.field(column).isin(values), 1 + len(values) // _TOGETHER, column, values)


def _cost(count: int, total: int) -> int:
    """The cost of several parts in a balanced tree: the conversion doubles each part once per level."""
    return total << (count - 1).bit_length()


def _joined(join: Callable[[pc.Expression, pc.Expression], pc.Expression], parts: Sequence[_Part]) -> _Part:
    """Join the parts as a balanced tree."""
    if len(parts) == 1:
        return parts[0]
    level = [part.expr for part in parts]
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [join(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return _Part(level[0], _cost(len(parts), sum(part.cost for part in parts)))
