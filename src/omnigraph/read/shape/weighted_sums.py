"""Exact sums and averages of integers, over groups of rows that stand for several rows each.

A row with the weight 3 counts as three rows. Sums are exact at any size, so the result does not depend on whether the
match produced duplicate rows or weights.
"""

# See docs/decisions/0270-weights-replace-rows-wherever-they-can.md

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import ExecutionError
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.shape.groups import Groups, exact_ratios

_SAFE_SUM = float(2**62)
"""Sums of numbers up to this bound cannot overflow a 64-bit integer."""

_DIGIT_BITS = 16
_DIGITS = 4
"""A 64-bit integer is a number with four digits of 16 bits. Sums of products of two digits fit 64 bits."""

_LOW_HALF = 2**32 - 1


def weighted_sum(values: pa.Array, weights: Numbers, groups: Groups) -> pa.Array:
    """The sum of the values of each group; null for a group without rows.

    Args:
        values: an integer for each row, without nulls.
        weights: the weight of each row.
        groups: the groups of the rows.

    Raises:
        ExecutionError: a sum is too large for I64.
    """
    totals = _totals(values, weights, groups)
    if totals.dtype == object:
        if len(totals) and (totals.max() >= 2**63 or totals.min() < -(2**63)):
            raise ExecutionError("the result of sum is too large for I64")
        totals = totals.astype(np.int64)
    return pa.array(totals, mask=groups.sizes == 0)


def weighted_average(values: pa.Array, weights: Numbers, groups: Groups) -> pa.Array:
    """The average of the values of each group, correctly rounded; null for a group without rows.

    The arguments are those of `weighted_sum`.
    """
    empty = groups.sizes == 0
    totals = _totals(values, weights, groups)
    divisors = np.where(empty, 1, groups.total(weights).to_numpy())
    if totals.dtype == object:
        quotients = [total / divisor for total, divisor in zip(totals.tolist(), divisors.tolist(), strict=True)]
        return pa.array(quotients, pa.float64(), mask=empty)
    return pa.array(exact_ratios(totals >> 32, totals & _LOW_HALF, divisors), mask=empty)


def _totals(values: pa.Array, weights: Numbers, groups: Groups) -> npt.NDArray[Any]:
    """The exact sum of each group, as 64-bit integers, or as Python integers if a sum may be larger."""
    numbers = values.to_numpy(zero_copy_only=False)
    if len(numbers) == 0:
        return np.zeros(groups.count, np.int64)
    largest = max(abs(float(numbers.max())), abs(float(numbers.min())))
    if largest * float(weights.sum(dtype=np.float64)) < _SAFE_SUM:
        return groups.sums(numbers.astype(np.int64) * weights)
    if numbers.dtype != np.uint64:
        numbers = numbers.astype(np.int64)
    totals = np.zeros(groups.count, object)
    for place, digit in enumerate(_digits(numbers)):
        for other_place, other in enumerate(_digits(weights)):
            totals += groups.sums(digit * other).astype(object) << (_DIGIT_BITS * (place + other_place))
    return totals


def _digits(numbers: npt.NDArray[Any]) -> list[Numbers]:
    """The digits of integers, lowest first. The highest digit has the sign."""
    found = []
    for place in range(_DIGITS):
        digit = numbers >> numbers.dtype.type(_DIGIT_BITS * place)
        if place < _DIGITS - 1:
            digit = digit & numbers.dtype.type(2**_DIGIT_BITS - 1)
        found.append(digit.astype(np.int64))
    return found
