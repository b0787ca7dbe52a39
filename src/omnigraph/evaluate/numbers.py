"""Arithmetic and rounding, in the type of the result. What does not fit it is an error."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, localcontext

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ExecutionError
from omnigraph.evaluate.values import Value, dense, gathered, sparse
from omnigraph.lang.query import ir

_INTEGER_KERNELS: dict[ir.ArithOp, Callable[[Value, Value], Value]] = {
    ir.ArithOp.ADD: pc.add_checked,
    ir.ArithOp.SUBTRACT: pc.subtract_checked,
    ir.ArithOp.MULTIPLY: pc.multiply_checked,
}
_FLOAT_KERNELS: dict[ir.ArithOp, Callable[[Value, Value], Value]] = {
    ir.ArithOp.ADD: pc.add,
    ir.ArithOp.SUBTRACT: pc.subtract,
    ir.ArithOp.MULTIPLY: pc.multiply,
    ir.ArithOp.DIVIDE: pc.divide,
}


def overflow(kind: pa.DataType) -> ExecutionError:
    """The error for a result that its type does not hold."""
    name = {pa.int64(): "I64", pa.uint64(): "U64", pa.date32(): "Date", pa.date64(): "DateTime"}.get(kind, "F64")
    return ExecutionError(f"the result is too large for {name}")


def as_number(value: Value, kind: pa.DataType) -> Value:
    """A number, or a list of them, in the type of a result.

    An integer becomes the nearest float; one that does not fit another type of integer is an error.
    """
    item = kind.value_type if pa.types.is_list(kind) else kind
    try:
        return value.cast(kind, safe=not pa.types.is_floating(item))
    except pa.ArrowInvalid:
        raise overflow(item) from None


def arithmetic(op: ir.ArithOp, left: Value, right: Value, kind: pa.DataType) -> Value:
    """A sum, difference, product, quotient or remainder; null where a side is null or the divisor is zero."""
    left, right = as_number(left, kind), as_number(right, kind)
    if op in (ir.ArithOp.DIVIDE, ir.ArithOp.REMAINDER):
        right = pc.if_else(pc.equal(right, pa.scalar(0, kind)), pa.scalar(None, kind), right)
    if op is ir.ArithOp.REMAINDER:
        return _remainder(left, right, kind)
    if pa.types.is_integer(kind):
        return checked(_INTEGER_KERNELS[op], left, right)
    return finite(_FLOAT_KERNELS[op](left, right), left, right)


def checked(kernel: Callable[..., Value], *operands: Value) -> Value:
    """Integer arithmetic by a kernel that refuses to overflow."""
    try:
        return kernel(*operands)
    except pa.ArrowInvalid:
        raise overflow(pa.int64()) from None


def finite(result: Value, *operands: Value) -> Value:
    """The result, unless finite operands gave an infinite one."""
    if not pa.types.is_floating(result.type):
        return result
    infinite = pc.is_inf(result)
    for operand in operands:
        infinite = pc.and_(infinite, pc.is_finite(operand))
    if _any(infinite):
        raise overflow(pa.float64())
    return result


def _any(mask: Value) -> bool:
    found = mask if isinstance(mask, pa.Scalar) else pc.any(mask)
    return found.as_py() is True


def _remainder(left: Value, right: Value, kind: pa.DataType) -> Value:
    """What division towards zero leaves: it has the sign of the dividend."""
    (a, a_valid), (b, b_valid) = dense(left), dense(right)
    divisors = np.where(b_valid, b, 1)
    return gathered(sparse(np.fmod(a, divisors), a_valid & b_valid, kind), left, right)


def rounded(value: Value, digits: Value, kind: pa.DataType) -> Value:
    """The nearest number with so many digits behind the point, or before it when negative; a half goes away from zero.

    A float is rounded as the number that it is: 2.675 is a little less than it looks, and becomes 2.67.
    """
    value = as_number(value, kind)
    (numbers, valid), (places, places_valid) = dense(value), dense(as_number(digits, pa.int64()))
    valid = valid & places_valid
    numbers, places = np.broadcast_arrays(numbers, places)
    result = numbers.copy()
    one = _integers_rounded if pa.types.is_integer(kind) else _floats_rounded
    for place in np.unique(places[valid]):
        rows = valid & (places == place)
        result[rows] = one(numbers[rows], int(place))
    return finite(gathered(sparse(result, valid, kind), value, digits), value)


def _integers_rounded(numbers: npt.NDArray[np.int64], place: int) -> npt.NDArray[np.int64]:
    if place >= 0:
        return numbers
    if place < -19:
        return np.zeros_like(numbers)
    size = np.uint64(10**-place)
    negative = numbers < 0
    lengths = np.where(negative, (~numbers).astype(np.uint64) + np.uint64(1), numbers.astype(np.uint64))
    rest = lengths % size
    lengths = lengths - rest + np.where(rest >= size - rest, size, np.uint64(0))
    if np.any(lengths > np.where(negative, np.uint64(2**63), np.uint64(2**63 - 1))):
        raise overflow(pa.int64())
    return np.where(negative, ~lengths + np.uint64(1), lengths).view(np.int64)


_EXACT = float(2**53)
"""Below it, every whole number is a float."""


def _floats_rounded(numbers: npt.NDArray[np.float64], place: int) -> npt.NDArray[np.float64]:
    if place == 0:
        result: npt.NDArray[np.float64] = np.trunc(numbers)
        result += np.where(np.abs(numbers - result) >= 0.5, np.copysign(1.0, numbers), 0.0)
        return result
    if not -22 <= place <= 22:
        return _by_decimals(numbers, place)
    sizes, scale = np.abs(numbers), 10.0 ** abs(place)  # every power of ten up to the 22nd is a float
    if place > 0:
        small = sizes < _EXACT / scale
        # The nearest decimal to a larger float lies nearer to it than to any other float.
        return np.where(small, np.copysign(_decimal_places(np.where(small, sizes, 0.0), scale), numbers), numbers)
    small = sizes < _EXACT
    whole = np.where(small, sizes, 0.0)
    rest = np.fmod(whole, scale)
    result = np.copysign(whole - rest + np.where(rest >= scale / 2, scale, 0.0), numbers)
    result[~small] = _by_decimals(numbers[~small], place)
    return result


def _decimal_places(sizes: npt.NDArray[np.float64], scale: float) -> npt.NDArray[np.float64]:
    """Positive floats below 2^53 / scale at multiples of 1 / scale."""
    scaled = sizes * scale
    wholes = np.floor(scaled)
    # The product was rounded, and where it seems to lie on the half, what that lost decides.
    beyond_half = (scaled - wholes - 0.5) + _lost(sizes, scale, scaled)
    return (wholes + (beyond_half >= 0)) / scale


def _lost(a: npt.NDArray[np.float64], b: float, product: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The exact a·b minus its rounded product (Dekker)."""
    split = 134217729.0  # 2^27 + 1 halves the digits of a float
    a_high = a * split - (a * split - a)
    b_high = b * split - (b * split - b)
    a_low, b_low = a - a_high, b - b_high
    return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _by_decimals(numbers: npt.NDArray[np.float64], place: int) -> npt.NDArray[np.float64]:
    """For the places that floats of 64 bits cannot count in. Nobody needs it for many rows."""
    if place > 1074:
        return numbers  # no float has more digits
    if place < -308:
        return np.copysign(0.0, numbers)
    with localcontext(prec=2000):
        unit = Decimal(1).scaleb(-place)
        return np.array(
            [float(Decimal(x).quantize(unit, ROUND_HALF_UP)) if np.isfinite(x) else x for x in numbers.tolist()],
            np.float64,
        )
