"""The meaning of expressions, one value at a time, with exact Python numbers and dates."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import date
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

from omnigraph.lang.query import ir
from omnigraph.lang.schema.regex import matches_part
from omnigraph.lang.types import INTEGER_RANGES, Scalar, ValueType

DAY = 86_400_000
DAYS_OF_400_YEARS = 146_097
SIZES = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": DAY, "week": 7 * DAY}
MONTHS = {"month": 1, "year": 12}


class TooLargeError(Exception):
    """A value that its type cannot hold."""


def value(expr: Any, row: Mapping[str, Any], request: Mapping[str, Any], now: int) -> Any:
    """The value of an expression for one row of one table."""
    match expr:
        case ir.Prop(_, name, _):
            return row[name]
        case ir.Ident(_, role):
            return row[role.value]
    return computed(expr, lambda part: value(part, row, request, now), request, now)


def computed(expr: Any, of: Callable[[ir.Expr], Any], request: Mapping[str, Any], now: int) -> Any:
    """The value of an expression, computed from the values of its parts.

    All parts are computed, even if one of them decides.

    Args:
        expr: the expression.
        of: returns the value of a part.
        request: the parameters.
        now: the time of the request.
    """
    match expr:
        case ir.Const(constant, kind):
            return typed(constant, kind)
        case ir.Param(name, kind):
            return typed(request[name], kind)
        case ir.Now():
            return now
        case ir.Compare(op, left, right):
            return compared(op, beside(of(left), left, right.type), beside(of(right), right, left.type))
        case ir.InList(member, items, negated):
            found = contained(beside(of(member), member, items.type), beside(of(items), items, member.type))
            return found if found is None else found is not negated
        case ir.IsNull(part, negated):
            return (of(part) is None) is not negated
        case ir.And(terms):
            truths = [of(term) for term in terms]
            return False if False in truths else None if None in truths else True
        case ir.Or(terms):
            truths = [of(term) for term in terms]
            return True if True in truths else None if None in truths else False
        case ir.Not(term):
            truth = of(term)
            return None if truth is None else not truth
        case ir.Arith(op, left, right, kind):
            return arithmetic(op, of(left), of(right), kind)
        case ir.Negate(part, kind):
            number = of(part)
            return None if number is None else held(-converted(number, kind), kind)
        case ir.Apply(ir.Function.YEAR | ir.Function.MONTH | ir.Function.DAY as function, (when,), _):
            return calendar(function, of(when), when.type)
        case ir.Apply(function, args, kind):
            return applied(function, [of(arg) for arg in args], kind)
        case ir.DateDiff(unit, start, end, _):
            return distance(unit.value, of(start), of(end), start.type)
        case ir.DateAdd(unit, amount, when, kind):
            return added(unit.value, of(amount), of(when), kind)
    raise AssertionError(expr)


def typed(constant: Any, kind: ValueType) -> Any:
    if kind.scalar is Scalar.F32 and constant is not None:
        return tuple(map(f32, constant)) if kind.list else f32(constant)
    return constant


def f32(number: float) -> float:
    found: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return found


def beside(found: Any, expr: ir.Expr, other: ValueType) -> Any:
    """A float constant beside an F32 value is rounded to F32, if it is near enough."""
    if other.scalar is not Scalar.F32 or expr.type.scalar is not Scalar.F64 or found is None:
        return found
    if isinstance(expr, ir.Negate):
        return beside(found, expr.value, other)
    if not isinstance(expr, ir.Const | ir.Param):
        return found

    def near(number: float) -> float:
        try:
            return f32(number)
        except OverflowError:
            return number

    return tuple(map(near, found)) if expr.type.list else near(found)


def compared(op: ir.CompareOp, left: Any, right: Any) -> bool | None:
    """Python compares integers and floats exactly. Texts are compared by their UTF-8 bytes."""
    if op in ir.NULL_IS_FALSE and (left is None or right is None):
        return False
    match op:
        case ir.CompareOp.HAS_ITEM:
            return contained(right, left)
        case ir.CompareOp.CONTAINS:
            return bool(right in left)
        case ir.CompareOp.STARTS_WITH:
            return bool(left.startswith(right))
        case ir.CompareOp.ENDS_WITH:
            return bool(left.endswith(right))
        case ir.CompareOp.MATCHES:
            return matches_part(right, left)
    if left is None or right is None:
        return None
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    order = int(left > right) - int(left < right)
    return {
        ir.CompareOp.EQ: order == 0,
        ir.CompareOp.NE: order != 0,
        ir.CompareOp.LT: order < 0,
        ir.CompareOp.LE: order <= 0,
        ir.CompareOp.GT: order > 0,
        ir.CompareOp.GE: order >= 0,
    }[op]


def contained(member: Any, items: Any) -> bool | None:
    if member is None or items is None:
        return None
    return any(item is not None and item == member for item in items)


def held(number: Any, kind: ValueType) -> Any:
    """The number, if its type can hold it."""
    if kind.scalar.is_integer:
        low, high = INTEGER_RANGES[kind.scalar]
        if not low <= number <= high:
            raise TooLargeError
    elif number in (float("inf"), float("-inf")):
        raise TooLargeError
    return number


def converted(number: Any, kind: ValueType) -> Any:
    return held(number, kind) if kind.scalar.is_integer else float(number)


def nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        raise TooLargeError from None


def arithmetic(op: ir.ArithOp, left: Any, right: Any, kind: ValueType) -> Any:
    if op is ir.ArithOp.CONCAT:
        return None if left is None or right is None else left + right
    a = None if left is None else converted(left, kind)
    b = None if right is None else converted(right, kind)
    if a is None or b is None or (op in (ir.ArithOp.DIVIDE, ir.ArithOp.REMAINDER) and b == 0):
        return None
    x, y = Fraction(a), Fraction(b)
    match op:
        case ir.ArithOp.ADD:
            exact = x + y
        case ir.ArithOp.SUBTRACT:
            exact = x - y
        case ir.ArithOp.MULTIPLY:
            exact = x * y
        case ir.ArithOp.DIVIDE:
            exact = x / y
        case ir.ArithOp.REMAINDER:
            quotient = x / y
            whole = quotient.numerator // quotient.denominator
            exact = x - y * (whole + (quotient < 0 and whole != quotient))
    return held(int(exact), kind) if kind.scalar.is_integer else nearest(exact)


def applied(function: ir.Function, args: list[Any], kind: ValueType) -> Any:
    if function is ir.Function.COALESCE:
        first = next((arg for arg in args if arg is not None), None)
        if first is None or not kind.scalar.is_numeric:
            return first
        return tuple(converted(n, kind) for n in first) if kind.list else converted(first, kind)
    if any(arg is None for arg in args):
        return None
    first = args[0]
    match function:
        case ir.Function.LOWER:
            return "".join(c.lower() for c in first)
        case ir.Function.UPPER:
            return "".join(c.upper() for c in first)
        case ir.Function.TRIM:
            return first.strip()
        case ir.Function.LENGTH:
            return len(first)
    number = converted(first, kind)
    match function:
        case ir.Function.ABS:
            return held(abs(number), kind)
        case ir.Function.ROUND:
            return rounded(number, args[1] if len(args) > 1 else 0, kind)
    if kind.scalar.is_integer:
        return number
    exact = Fraction(number)
    return float(exact.__floor__() if function is ir.Function.FLOOR else exact.__ceil__())


def rounded(number: Any, digits: int, kind: ValueType) -> Any:
    """Round half away from zero, from the exact decimal expansion."""
    digits = max(-400, min(1200, digits))
    with localcontext(prec=3000):
        unit = Decimal(1).scaleb(-digits)
        exact = Decimal(number).quantize(unit, ROUND_HALF_UP)
    return held(int(exact), kind) if kind.scalar.is_integer else held(float(exact), kind)


# The calendar for any day: 400 years have a whole number of days, so every day maps to a day that Python supports.


def civil(days: int) -> tuple[int, int, int]:
    eras, day = divmod(days, DAYS_OF_400_YEARS)
    twin = date.fromordinal(date(1970, 1, 1).toordinal() + day)
    return twin.year + 400 * eras, twin.month, twin.day


def days_of(year: int, month: int, day: int) -> int:
    eras = (year - 1970) // 400
    return date(year - 400 * eras, month, day).toordinal() - date(1970, 1, 1).toordinal() + eras * DAYS_OF_400_YEARS


def last_day(year: int, month: int) -> int:
    following = (year + 1, 1, 1) if month == 12 else (year, month + 1, 1)
    return civil(days_of(*following) - 1)[2]


def calendar(function: ir.Function, when: int | None, kind: ValueType) -> int | None:
    if when is None:
        return None
    parts = civil(when if kind.scalar is Scalar.DATE else when // DAY)
    return parts[(ir.Function.YEAR, ir.Function.MONTH, ir.Function.DAY).index(function)]


def plus(unit: str, amount: int, when: int, kind: ValueType) -> int:
    """A date or time plus some units, in days or milliseconds, without a range limit."""
    is_date = kind.scalar is Scalar.DATE
    if unit not in MONTHS:
        return when + amount * (SIZES[unit] // DAY if is_date else SIZES[unit])
    days, clock = (when, 0) if is_date else divmod(when, DAY)
    year, month, day = civil(days)
    year, month0 = divmod(year * 12 + month - 1 + amount * MONTHS[unit], 12)
    moved = days_of(year, month0 + 1, min(day, last_day(year, month0 + 1)))
    return moved if is_date else moved * DAY + clock


def added(unit: str, amount: int | None, when: int | None, kind: ValueType) -> int | None:
    if amount is not None:
        held(amount, ir.I64)
    if amount is None or when is None:
        return None
    if unit not in MONTHS:
        held(amount * (SIZES[unit] // DAY if kind.scalar is Scalar.DATE else SIZES[unit]), ir.I64)
    moved = plus(unit, amount, when, kind)
    first, last = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
    if not first <= (moved if kind.scalar is Scalar.DATE else moved // DAY) <= last:
        raise TooLargeError
    return moved


def distance(unit: str, start: int | None, end: int | None, kind: ValueType) -> int | None:
    """The largest number of units that can be added or subtracted without passing the end."""
    if start is None or end is None:
        return None
    if unit not in MONTHS:
        size = SIZES[unit] // DAY if kind.scalar is Scalar.DATE else SIZES[unit]
        found = abs(end - start) // size
        held(end - start, ir.I64)
        return found if end >= start else -found
    days = (abs(end - start) if kind.scalar is Scalar.DATE else abs(end - start) // DAY) // MONTHS[unit]
    most = days // 28 + 1
    step = 1 if end >= start else -1
    least = 0
    while least < most:  # the greatest number that does not pass the end
        middle = (least + most + 1) // 2
        landed = plus(unit, step * middle, start, kind)
        if landed <= end if step == 1 else landed >= end:
            least = middle
        else:
            most = middle - 1
    return step * least
