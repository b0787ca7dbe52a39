"""Groups of rows, and aggregates over them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import ExecutionError
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import AggregateFunction
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.columns.sort_keys import ranks
from omnigraph.read.columns.sorting import float_keys, order_of
from omnigraph.read.shape.group_codes import Codes, renumbered, together, value_codes

_LOW = np.int64(0xFFFFFFFF)
_EXACT = float(2**53)
_LARGEST = float(2**63 - 2**40)
"""Largest allowed count. It is slightly less than the largest I64, because it is compared with floats."""


@dataclass(frozen=True, slots=True)
class Groups:
    """An assignment of rows to groups.

    Attributes:
        count: number of groups.
        of_row: number of the group of each row.
        first: first row of each group; empty if all rows are one group (see `one_group`).
    """

    count: int
    of_row: Numbers
    first: Numbers

    @classmethod
    def one_group(cls, rows: int) -> Groups:
        """One group with all rows. It exists even if there are no rows."""
        return cls(1, np.zeros(rows, np.int64), np.zeros(0, np.int64))

    @classmethod
    def of(cls, codes: Codes) -> Groups:
        """Groups of rows with equal codes."""
        if codes.apart:
            return cls(codes.size, codes.of_row, codes.of_row)
        of_row, count = renumbered(codes)
        checkpoint()
        first = np.empty(count, np.int64)
        first[of_row[::-1]] = np.arange(len(of_row))[::-1]
        return cls(count, of_row, first)

    def total(self, weights: Numbers) -> pa.Array:
        """For each group, the sum of the weights of its rows. Weights are not negative."""
        if self.of_row is self.first:
            return pa.array(weights)  # each row is a group of its own
        return pa.array(_whole_sums(weights, self.of_row, self.count))


def _whole_sums(numbers: Numbers, group: Numbers, count: int) -> Numbers:
    is_small = len(numbers) == 0 or float(numbers.max()) * len(numbers) < _EXACT
    if count == 1 and is_small:
        return numbers.sum(keepdims=True) if len(numbers) else np.zeros(1, np.int64)
    about = np.bincount(group, weights=numbers, minlength=count)
    if is_small:
        # Sums of this size are exact in floating point.
        return about.astype(np.int64)
    if float(about.max()) > _LARGEST:
        raise ExecutionError("the result of count is too large for I64")
    found = np.zeros(count, np.int64)
    np.add.at(found, group, numbers)
    return found


def is_count(aggregate: ir.Aggregate) -> bool:
    """Whether an aggregate counts all rows, or the rows in which its argument is not null."""
    return aggregate.function is AggregateFunction.COUNT and not aggregate.distinct


def aggregated(
    aggregate: ir.Aggregate, values: pa.Array | None, groups: Groups, kinds: pa.Array | None = None
) -> pa.Array:
    """Compute an aggregate for each group.

    Args:
        aggregate: the aggregate.
        values: the argument of the aggregate for each row; None to count rows.
        groups: the groups.
        kinds: for an argument that is a node, the type of each node, because nodes of different types may have equal
            ids.

    Raises:
        ExecutionError: a sum is too large for its type.
    """
    if values is None:
        return pa.array(np.bincount(groups.of_row, minlength=groups.count).astype(np.int64))
    there = values.is_valid().to_numpy(zero_copy_only=False)
    group, present = groups.of_row[there], values.drop_null()
    checkpoint()
    if aggregate.distinct:
        compared = [present] if kinds is None else [present, kinds.filter(pa.array(there))]
        codes = [Codes(group, groups.count), *map(value_codes, compared)]
        checkpoint()
        keep = np.sort(Groups.of(together(codes, len(group))).first)
        group, present = group[keep], present.take(pa.array(keep))
    checkpoint()
    counts = np.bincount(group, minlength=groups.count).astype(np.int64)
    checkpoint()
    kind = arrow_type(aggregate.type)
    match aggregate.function:
        case AggregateFunction.COUNT:
            return pa.array(counts)
        case AggregateFunction.SUM:
            return _sum(present, group, counts, kind)
        case AggregateFunction.AVG:
            return _average(present, group, counts)
        case AggregateFunction.MIN | AggregateFunction.MAX:
            return _end(present, group, counts, last=aggregate.function is AggregateFunction.MAX).cast(kind)
        case AggregateFunction.COLLECT:
            ordered = present.take(pa.array(_sorted(present, group)))
            offsets = np.concatenate([[0], np.cumsum(counts)])
            return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ordered).cast(kind)


def _sorted(values: pa.Array, group: Numbers) -> Numbers:
    """The order of the rows by group, then by value."""
    return order_of(group, ranks(values))


def _end(values: pa.Array, group: Numbers, counts: Numbers, *, last: bool) -> pa.Array:
    """Smallest or largest value of each group."""
    if pa.types.is_integer(values.type) and len(values):
        return _whole_end(values, group, counts, last=last)
    order = _sorted(values, group)
    ends = np.cumsum(counts)
    places = ends - 1 if last else ends - counts
    empty = counts == 0
    if len(order) == 0:
        return pa.nulls(len(counts), values.type)
    return values.take(pa.array(order[np.where(empty, 0, places)], mask=empty))


def _whole_end(values: pa.Array, group: Numbers, counts: Numbers, *, last: bool) -> pa.Array:
    numbers = values.to_numpy(zero_copy_only=False)
    bounds = np.iinfo(numbers.dtype)
    found = np.full(len(counts), bounds.min if last else bounds.max, numbers.dtype)
    (np.maximum if last else np.minimum).at(found, group, numbers)
    return pa.array(found, values.type, mask=counts == 0)


def _sum(values: pa.Array, group: Numbers, counts: Numbers, kind: pa.DataType) -> pa.Array:
    empty = counts == 0
    if pa.types.is_floating(kind):
        return pa.array(_float_sum(values, group, np.ones_like(counts)), mask=empty)
    high, low = _halves(values, group, len(counts))
    if len(high) and (int(high.max()) >= 2**31 or int(high.min()) < -(2**31)):
        raise ExecutionError("the result of sum is too large for I64")
    return pa.array((high << 32) + low, mask=empty)


def _average(values: pa.Array, group: Numbers, counts: Numbers) -> pa.Array:
    empty = counts == 0
    divisors = np.where(empty, 1, counts)
    if pa.types.is_floating(values.type):
        return pa.array(_float_sum(values, group, divisors), mask=empty)
    # The sum is divided in two 32-bit steps (long division), so that the integer part of the result is exact.
    high, low = _halves(values, group, len(counts))
    upper, rest = np.divmod(high, divisors)
    lower, rest = np.divmod((rest << 32) + low, divisors)
    return pa.array(upper * float(2**32) + lower + rest / divisors, mask=empty)


def _halves(values: pa.Array, group: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """For each group, the exact sum of integers, as two numbers: the upper bits (signed), and the lower 32 bits."""
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.dtype != np.uint64:
        numbers = numbers.astype(np.int64)
    if len(numbers) == 0 or max(abs(float(numbers.max())), abs(float(numbers.min()))) * len(numbers) < _EXACT:
        # Sums of this size are exact in floating point.
        total = np.bincount(group, weights=numbers, minlength=count).astype(np.int64)
        return total >> 32, total & _LOW
    high, low = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(high, group, (numbers >> numbers.dtype.type(32)).astype(np.int64))
    np.add.at(low, group, (numbers & numbers.dtype.type(_LOW)).astype(np.int64))
    return high + (low >> 32), low & _LOW


def _float_sum(values: pa.Array, group: Numbers, divisors: Numbers) -> npt.NDArray[np.float64]:
    """For each group, the sum of floats, divided by the divisor of the group. The order of rows has no effect."""
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    order = order_of(group, float_keys(numbers))
    checkpoint()
    found = np.bincount(group[order], weights=numbers[order], minlength=len(divisors)) / divisors
    for place in np.flatnonzero(~np.isfinite(found)):
        # An intermediate sum overflowed, but the final result may still be in range. So the sum is computed exactly.
        exact = sum(map(Fraction, numbers[group == place].tolist())) / int(divisors[place])
        try:
            found[place] = float(exact)
        except OverflowError:
            raise ExecutionError("the result of sum or avg is too large for F64") from None
    return found
