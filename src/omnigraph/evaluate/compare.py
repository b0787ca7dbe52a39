"""Comparison operators. Numbers of different types are compared by their exact values, without rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.evaluate.values import Mask, Numbers, Value, collapse_constant, from_numpy_values, to_numpy_values
from omnigraph.lang.query import ir

_KERNELS: dict[ir.CompareOp, Callable[[Value, Value], Value]] = {
    ir.CompareOp.EQ: pc.equal,
    ir.CompareOp.NE: pc.not_equal,
    ir.CompareOp.LT: pc.less,
    ir.CompareOp.LE: pc.less_equal,
    ir.CompareOp.GT: pc.greater,
    ir.CompareOp.GE: pc.greater_equal,
}

MIRRORED = {
    ir.CompareOp.EQ: ir.CompareOp.EQ,
    ir.CompareOp.NE: ir.CompareOp.NE,
    ir.CompareOp.LT: ir.CompareOp.GT,
    ir.CompareOp.LE: ir.CompareOp.GE,
    ir.CompareOp.GT: ir.CompareOp.LT,
    ir.CompareOp.GE: ir.CompareOp.LE,
}
"""The operator to use when the two sides are swapped."""


def compare(op: ir.CompareOp, left: Value, right: Value) -> Value:
    """Compare two columns or values of comparable types. Null if a side is null."""
    if left.type != right.type:
        shared = _shared_type(left.type, right.type)
        if shared is None:
            return _mixed(op, left, right)
        left, right = left.cast(shared), right.cast(shared)
    return _KERNELS[op](left, right)


def exactly_representable(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert numbers to a type. Numbers that the type cannot represent exactly are left out: no value equals them."""
    if numbers.type == kind:
        return numbers
    converted = numbers.cast(kind, safe=False)
    return converted.filter(compare(ir.CompareOp.EQ, numbers, converted))


def _shared_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """A type that represents all numbers of both types exactly; None if there is none."""
    kinds = {left, right}
    if all(map(pa.types.is_floating, kinds)):
        return pa.float64()
    if pa.uint64() not in kinds and all(map(pa.types.is_integer, kinds)):
        return pa.int64()
    if all(map(pa.types.is_unsigned_integer, kinds)):
        return pa.uint64()
    if all(kind in (pa.int32(), pa.uint32(), pa.float32(), pa.float64()) for kind in kinds):
        return pa.float64()
    return None


def _mixed(op: ir.CompareOp, left: Value, right: Value) -> Value:
    """Compare 64-bit integers with floats, or signed with unsigned integers."""
    (a, a_valid), (b, b_valid) = to_numpy_values(left), to_numpy_values(right)
    if a.dtype.kind == "f":
        holds = _integer_to_float(MIRRORED[op], b, a)
    elif b.dtype.kind == "f":
        holds = _integer_to_float(op, a, b)
    else:
        holds = _INTEGERS[op](a, b)
    return collapse_constant(from_numpy_values(holds, a_valid & b_valid, pa.bool_()), left, right)


_INTEGERS: dict[ir.CompareOp, Callable[[Numbers, Numbers], Mask]] = {
    # numpy compares int64 with uint64 by their exact values.
    ir.CompareOp.EQ: np.equal,
    ir.CompareOp.NE: np.not_equal,
    ir.CompareOp.LT: np.less,
    ir.CompareOp.LE: np.less_equal,
    ir.CompareOp.GT: np.greater,
    ir.CompareOp.GE: np.greater_equal,
}


def _integer_to_float(op: ir.CompareOp, integers: Numbers, floats: Numbers) -> Mask:
    """Compare integers with the integer parts of floats. If both are equal, a float with a fraction is larger."""
    bounds = np.iinfo(integers.dtype)
    wholes = np.floor(floats.astype(np.float64))
    above = wholes >= float(bounds.max + 1)
    inside = (wholes >= float(bounds.min)) & ~above
    parts = np.where(inside, wholes, 0).astype(integers.dtype)
    same = inside & (integers == parts)
    equal: Mask = same & (floats == wholes)
    less: Mask = above | (inside & (integers < parts)) | (same & (floats > wholes))
    if op is ir.CompareOp.EQ:
        return equal
    if op is ir.CompareOp.NE:
        return ~equal
    if op is ir.CompareOp.LT:
        return less
    if op is ir.CompareOp.LE:
        return less | equal
    greater: Mask = ~(less | equal | np.isnan(wholes))
    return greater if op is ir.CompareOp.GT else greater | equal
