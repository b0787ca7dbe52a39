"""Arrow kernels of the scalar functions. A null argument gives null."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.evaluate.numbers import as_number, checked, rounded
from omnigraph.evaluate.times import calendar_part
from omnigraph.evaluate.values import Value, value_type
from omnigraph.lang.query import ir

Kernel = Callable[[ir.Apply, Sequence[Value]], Value]


def _text(compute: Callable[[Value], Value]) -> Kernel:
    return lambda call, args: compute(args[0])


def _length(call: ir.Apply, args: Sequence[Value]) -> Value:
    length = pc.list_value_length if call.args[0].type.list else pc.utf8_length
    return length(args[0]).cast(value_type(call.type))


def _abs(call: ir.Apply, args: Sequence[Value]) -> Value:
    return checked(pc.abs_checked, as_number(args[0], value_type(call.type)))


def _whole(compute: Callable[[Value], Value], call: ir.Apply, args: Sequence[Value]) -> Value:
    number = as_number(args[0], value_type(call.type))
    return number if call.type.scalar.is_integer else compute(number)


def _round(call: ir.Apply, args: Sequence[Value]) -> Value:
    digits = args[1] if len(args) > 1 else pa.scalar(0)
    return rounded(args[0], digits, value_type(call.type))


def _calendar(call: ir.Apply, args: Sequence[Value]) -> Value:
    return calendar_part(call.function, args[0])


KERNELS: dict[ir.Function, Kernel] = {
    ir.Function.LOWER: _text(pc.utf8_lower),
    ir.Function.UPPER: _text(pc.utf8_upper),
    ir.Function.TRIM: _text(pc.utf8_trim_whitespace),
    ir.Function.LENGTH: _length,
    ir.Function.ABS: _abs,
    ir.Function.FLOOR: partial(_whole, pc.floor),
    ir.Function.CEIL: partial(_whole, pc.ceil),
    ir.Function.ROUND: _round,
    ir.Function.YEAR: _calendar,
    ir.Function.MONTH: _calendar,
    ir.Function.DAY: _calendar,
}
"""The kernels of all scalar functions except `coalesce`, which skips arguments that it does not need."""
