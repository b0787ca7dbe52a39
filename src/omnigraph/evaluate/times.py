"""The calendar: parts of a date, distances between dates, and moving them. All times are UTC."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.evaluate.numbers import as_number, checked, overflow
from omnigraph.evaluate.values import Mask, Value, dense, gathered, sparse
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
"""Beyond what a DateTime can hold, and far below what the calendar can count."""


def calendar_part(function: ir.Function, value: Value) -> Value:
    """The year, month or day of dates."""
    numbers, valid = dense(value)
    months, days, _ = _civil(numbers.astype(np.int64), value.type)
    part = {
        ir.Function.YEAR: months // 12 + 1970,
        ir.Function.MONTH: months % 12 + 1,
        ir.Function.DAY: days + 1,
    }[function]
    return gathered(sparse(part, valid, pa.int64()), value)


def _civil(numbers: Whole, kind: pa.DataType) -> tuple[Whole, Whole, Whole]:
    """Months since 1970-01, days since the first of the month, and milliseconds since midnight."""
    days, clock = (numbers, np.zeros_like(numbers)) if pa.types.is_date32(kind) else np.divmod(numbers, MS_PER_DAY)
    months = days.view("M8[D]").astype("M8[M]")
    return months.view(np.int64), days - months.astype("M8[D]").view(np.int64), clock


def _first_days(months: Whole) -> Whole:
    """The first day of each month, since 1970-01-01."""
    return months.view("M8[M]").astype("M8[D]").view(np.int64)


def moved(unit: ir.TimeUnit, amount: Value, date: Value) -> Value:
    """Dates moved by whole units; a day past the end of a month becomes its last day.

    Raises:
        ExecutionError: a result lies outside the years 1 to 9999.
    """
    kind = date.type
    amount = as_number(amount, pa.int64())
    if unit not in _MONTHS:
        size = _MILLISECONDS[unit] // (MS_PER_DAY if pa.types.is_date32(kind) else 1)
        numbers, valid = dense(date)
        plain = sparse(numbers.astype(np.int64), valid, pa.int64())
        total = checked(pc.add_checked, gathered(plain, date), checked(pc.multiply_checked, amount, size))
        result, valid = dense(total)
        return gathered(_fitted(result.astype(np.int64), valid, kind), amount, date)
    (counts, counts_valid), (numbers, valid) = dense(amount), dense(date)
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
    return gathered(_fitted(result, valid, kind), amount, date)


def _day_of(months: Whole, days: Whole) -> Whole:
    """A day of each month, or its last where it is shorter."""
    first = _first_days(months)
    found: Whole = np.minimum(first + days, _first_days(months + 1) - 1)
    return found


def _fitted(numbers: Whole, valid: Mask, kind: pa.DataType) -> pa.Array:
    size = MS_PER_DAY if pa.types.is_date32(kind) else 1
    if np.any(valid & ((numbers < FIRST_MS // size) | (numbers > LAST_MS // size))):
        raise overflow(kind)
    if pa.types.is_date32(kind):
        numbers = np.where(valid, numbers, 0).astype(np.int32)
    return sparse(numbers, valid, kind)


def distance(unit: ir.TimeUnit, start: Value, end: Value) -> Value:
    """How many whole units can be added to `start` (or taken, where `end` is earlier) without passing `end`.

    Raises:
        ExecutionError: a distance lies outside I64.
    """
    (a, a_valid), (b, b_valid) = dense(start), dense(end)
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
    return gathered(sparse(_towards_zero(result, size), valid, pa.int64()), start, end)


def _towards_zero(numbers: Whole, size: int) -> Whole:
    return (numbers - np.fmod(numbers, size)) // size


def _months_between(start: Whole, end: Whole, kind: pa.DataType) -> Whole:
    start_months, days, clock = _civil(start, kind)
    end_months, end_days, end_clock = _civil(end, kind)
    first_of_end = _first_days(end_months)
    # Where the start would stand in the month of the end.
    landed = _day_of(end_months, days) - first_of_end
    later = (landed > end_days) | ((landed == end_days) & (clock > end_clock))
    earlier = (landed < end_days) | ((landed == end_days) & (clock < end_clock))
    months = end_months - start_months
    months -= (months > 0) & later
    months += (months < 0) & earlier
    return months
