"""Date functions: parts of a date, `date_add` and `date_diff`. All times are UTC."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.evaluate.numbers import as_number, checked, overflow
from omnigraph.evaluate.values import Mask, Value, collapse_constant, from_numpy_values, to_numpy_values
from omnigraph.lang.query import ir
from omnigraph.lang.temporal import FIRST_MS, LAST_MS, MS_PER_DAY

Whole = npt.NDArray[np.int64]

_MILLISECONDS = {
    ir.TimeUnit.MILLISECOND: 1,
    ir.TimeUnit.SECOND: 1000,
    ir.TimeUnit.MINUTE: 60_000,
    ir.TimeUnit.HOUR: 3_600_000,
    ir.TimeUnit.DAY: MS_PER_DAY,
    ir.TimeUnit.WEEK: 7 * MS_PER_DAY,
}
_MONTHS = {ir.TimeUnit.MONTH: 1, ir.TimeUnit.YEAR: 12}

_FARTHEST_MONTH = 4_000_000_000
"""Limit for the months or years to add. It exceeds the range of DateTime, and does not cause an integer overflow."""


def calendar_part(function: ir.Function, value: Value) -> Value:
    """The year, month or day of each date."""
    numbers, valid = to_numpy_values(value)
    months, days, _ = _civil(numbers.astype(np.int64), value.type)
    part = {
        ir.Function.YEAR: months // 12 + 1970,
        ir.Function.MONTH: months % 12 + 1,
        ir.Function.DAY: days + 1,
    }[function]
    return collapse_constant(from_numpy_values(part, valid, pa.int64()), value)


def _civil(numbers: Whole, kind: pa.DataType) -> tuple[Whole, Whole, Whole]:
    """Months since 1970-01, days since the first of the month, and milliseconds since midnight."""
    days, clock = (numbers, np.zeros_like(numbers)) if pa.types.is_date32(kind) else np.divmod(numbers, MS_PER_DAY)
    months = days.view("M8[D]").astype("M8[M]")
    return months.view(np.int64), days - months.astype("M8[D]").view(np.int64), clock


def _first_days(months: Whole) -> Whole:
    """The first day of each month, in days since 1970-01-01."""
    return months.view("M8[M]").astype("M8[D]").view(np.int64)


def date_add(unit: ir.TimeUnit, amount: Value, date: Value) -> Value:
    """Add whole units to dates. A day after the end of a month becomes the last day of the month.

    Raises:
        ExecutionError: a result is outside of the years 1 to 9999.
    """
    kind = date.type
    amount = as_number(amount, pa.int64())
    if unit not in _MONTHS:
        size = _MILLISECONDS[unit] // (MS_PER_DAY if pa.types.is_date32(kind) else 1)
        numbers, valid = to_numpy_values(date)
        plain = from_numpy_values(numbers.astype(np.int64), valid, pa.int64())
        total = checked(pc.add_checked, collapse_constant(plain, date), checked(pc.multiply_checked, amount, size))
        result, valid = to_numpy_values(total)
        return collapse_constant(_fitted(result.astype(np.int64), valid, kind), amount, date)
    (counts, counts_valid), (numbers, valid) = to_numpy_values(amount), to_numpy_values(date)
    valid = valid & counts_valid
    months, days, clock = _civil(numbers.astype(np.int64), kind)
    far = (counts > _FARTHEST_MONTH) | (counts < -_FARTHEST_MONTH)
    if np.any(valid & far):
        raise overflow(kind)
    steps = np.where(far, 0, counts).astype(np.int64) * _MONTHS[unit]
    result = _day_of(months + steps, days)
    if not pa.types.is_date32(kind):
        if np.any(valid & (np.abs(result) > 2**63 // MS_PER_DAY)):
            raise overflow(kind)
        result = result * MS_PER_DAY + clock
    return collapse_constant(_fitted(result, valid, kind), amount, date)


def _day_of(months: Whole, days: Whole) -> Whole:
    """The given day of each month, or the last day of a shorter month."""
    first = _first_days(months)
    found: Whole = np.minimum(first + days, _first_days(months + 1) - 1)
    return found


def _fitted(numbers: Whole, valid: Mask, kind: pa.DataType) -> pa.Array:
    size = MS_PER_DAY if pa.types.is_date32(kind) else 1
    if np.any(valid & ((numbers < FIRST_MS // size) | (numbers > LAST_MS // size))):
        raise overflow(kind)
    if pa.types.is_date32(kind):
        numbers = np.where(valid, numbers, 0).astype(np.int32)
    return from_numpy_values(numbers, valid, kind)


def date_diff(unit: ir.TimeUnit, start: Value, end: Value) -> Value:
    """The number of whole units from `start` to `end`, truncated towards zero. Negative if `end` is earlier.

    Raises:
        ExecutionError: a result is out of range of I64.
    """
    (a, a_valid), (b, b_valid) = to_numpy_values(start), to_numpy_values(end)
    valid = a_valid & b_valid
    a, b = (np.where(valid, n, 0).astype(np.int64) for n in np.broadcast_arrays(a, b))
    if unit in _MONTHS:
        result = _months_between(a, b, start.type)
        size = _MONTHS[unit]
    else:
        result = b - a
        if np.any((b >= a) != (result >= 0)):
            raise overflow(pa.int64())
        size = _MILLISECONDS[unit] // (MS_PER_DAY if pa.types.is_date32(start.type) else 1)
    return collapse_constant(from_numpy_values(_towards_zero(result, size), valid, pa.int64()), start, end)


def _towards_zero(numbers: Whole, size: int) -> Whole:
    return (numbers - np.fmod(numbers, size)) // size


def _months_between(start: Whole, end: Whole, kind: pa.DataType) -> Whole:
    start_months, days, clock = _civil(start, kind)
    end_months, end_days, end_clock = _civil(end, kind)
    first_of_end = _first_days(end_months)
    # `landed` is the day of the start date, moved to the month of the end date.
    landed = _day_of(end_months, days) - first_of_end
    later = (landed > end_days) | ((landed == end_days) & (clock > end_clock))
    earlier = (landed < end_days) | ((landed == end_days) & (clock < end_clock))
    months = end_months - start_months
    months -= (months > 0) & later
    months += (months < 0) & earlier
    return months
