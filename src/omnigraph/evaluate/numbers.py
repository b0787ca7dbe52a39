"""Arithmetic and rounding in the type of the result. Overflow is an error."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, localcontext

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ExecutionError
from omnigraph.evaluate.values import Value, collapse_constant, from_numpy_values, to_numpy_values
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
    """The error for a result that is out of range of its type."""
    name = {pa.int64(): "I64", pa.uint64(): "U64", pa.date32(): "Date", pa.date64(): "DateTime"}.get(kind, "F64")
    return ExecutionError(f"the result is too large for {name}")


def as_number(value: Value, kind: pa.DataType) -> Value:
    """Cast a number, or a list of numbers, to the type of a result.

    An integer is rounded to the nearest float. An integer that does not fit another integer type is an error.
    """
    item = kind.value_type if pa.types.is_list(kind) else kind
    try:
        return value.cast(kind, safe=not pa.types.is_floating(item))
    except pa.ArrowInvalid:
        raise overflow(item) from None


def arithmetic(op: ir.ArithOp, left: Value, right: Value, kind: pa.DataType) -> Value:
    """Sum, difference, product, quotient or remainder. Null if a side is null or the divisor is zero."""
    left, right = as_number(left, kind), as_number(right, kind)
    if op in (ir.ArithOp.DIVIDE, ir.ArithOp.REMAINDER):
        right = pc.if_else(pc.equal(right, pa.scalar(0, kind)), pa.scalar(None, kind), right)
    if op is ir.ArithOp.REMAINDER:
        return _remainder(left, right, kind)
    if pa.types.is_integer(kind):
        return checked(_INTEGER_KERNELS[op], left, right)
    return finite(_FLOAT_KERNELS[op](left, right), left, right)


def checked(kernel: Callable[..., Value], *operands: Value) -> Value:
    """Run an integer kernel that detects overflow. Raises an `ExecutionError` for an overflow."""
    try:
        return kernel(*operands)
    except pa.ArrowInvalid:
        raise overflow(pa.int64()) from None


def finite(result: Value, *operands: Value) -> Value:
    """Return the result. Raises an overflow error if finite operands gave an infinite result."""
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
    """The remainder of truncated division. It has the sign of the dividend."""
    (a, a_valid), (b, b_valid) = to_numpy_values(left), to_numpy_values(right)
    divisors = np.where(b_valid, b, 1)
    return collapse_constant(from_numpy_values(np.fmod(a, divisors), a_valid & b_valid, kind), left, right)


def rounded(value: Value, digits: Value, kind: pa.DataType) -> Value:
    """Round to `digits` decimal places, halves away from zero. Negative `digits` round to tens, hundreds and so on.

    A float is rounded by its exact value: 2.675 is stored as a slightly smaller number, so it becomes 2.67.
    """
    value = as_number(value, kind)
    (numbers, valid), (places, places_valid) = to_numpy_values(value), to_numpy_values(as_number(digits, pa.int64()))
    valid = valid & places_valid
    numbers, places = np.broadcast_arrays(numbers, places)
    result = numbers.copy()
    one = _integers_rounded if pa.types.is_integer(kind) else _floats_rounded
    for place in np.unique(places[valid]):
        rows = valid & (places == place)
        result[rows] = one(numbers[rows], int(place))
    return finite(collapse_constant(from_numpy_values(result, valid, kind), value, digits), value)


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
"""Below this limit, every integer is exactly representable as a float."""


def _floats_rounded(numbers: npt.NDArray[np.float64], place: int) -> npt.NDArray[np.float64]:
    if place == 0:
        result: npt.NDArray[np.float64] = np.trunc(numbers)
        result += np.where(np.abs(numbers - result) >= 0.5, np.copysign(1.0, numbers), 0.0)
        return result
    if not -22 <= place <= 22:
        return _by_decimals(numbers, place)
    sizes, scale = np.abs(numbers), 10.0 ** abs(place)  # powers of ten up to 10^22 are exact floats
    if place > 0:
        small = sizes < _EXACT / scale
        # A larger float already is the nearest float to its rounded decimal, so it does not change.
        return np.where(small, np.copysign(_decimal_places(np.where(small, sizes, 0.0), scale), numbers), numbers)
    small = sizes < _EXACT
    whole = np.where(small, sizes, 0.0)
    rest = np.fmod(whole, scale)
    result = np.copysign(whole - rest + np.where(rest >= scale / 2, scale, 0.0), numbers)
    result[~small] = _by_decimals(numbers[~small], place)
    return result


def _decimal_places(sizes: npt.NDArray[np.float64], scale: float) -> npt.NDArray[np.float64]:
    """Round positive floats below 2^53 / scale to multiples of 1 / scale."""
    scaled = sizes * scale
    wholes = np.floor(scaled)
    # The product is rounded. If it is exactly a half, the sign of its rounding error tells whether to round up.
    beyond_half = (scaled - wholes - 0.5) + _rounding_error(sizes, scale, scaled)
    return (wholes + (beyond_half >= 0)) / scale


def _rounding_error(a: npt.NDArray[np.float64], b: float, product: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The exact product a·b minus the rounded product (Dekker's algorithm)."""
    split = 134217729.0  # 2^27 + 1 splits the significand of a float into two halves
    a_high = a * split - (a * split - a)
    b_high = b * split - (b * split - b)
    a_low, b_low = a - a_high, b - b_high
    return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _by_decimals(numbers: npt.NDArray[np.float64], place: int) -> npt.NDArray[np.float64]:
    """Round with Python decimals, for digits that float arithmetic cannot handle. Slow, but rarely used."""
    if place > 1074:
        return numbers  # no float has more decimal digits than this, so rounding does not change it
    if place < -308:
        return np.copysign(0.0, numbers)
    with localcontext(prec=2000):
        unit = Decimal(1).scaleb(-place)
        return np.array(
            [float(Decimal(x).quantize(unit, ROUND_HALF_UP)) if np.isfinite(x) else x for x in numbers.tolist()],
            np.float64,
        )
