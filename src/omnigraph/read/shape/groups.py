"""Groups of rows, and aggregates over them."""

# See docs/decisions/0229-groups-are-integers-or-runs.md

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import ExecutionError
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import AggregateFunction
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.budget.chunks import chunks
from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers
from omnigraph.read.columns.sort_keys import ranks
from omnigraph.read.columns.sorting import float_keys, order_of
from omnigraph.read.columns.stoppable import array_chunks, occurrences
from omnigraph.read.shape.distinct_counts import RowCodes, ValueCodes, distinct_counts
from omnigraph.read.shape.group_codes import Codes, renumbered, together, value_codes

_LOW = np.int64(0xFFFFFFFF)
_HALF_WORD_BITS = 32
_EXACT = float(2**53)
_LARGEST = float(2**63 - 2**40)
"""Largest allowed count. It is slightly less than the largest I64, because it is compared with floats."""


MIN_CLUSTERED_ROWS = 1 << 10
"""With fewer rows than this, it is not checked whether the rows of each group are adjacent."""


class Groups:
    """An assignment of rows to groups.

    The rows of a group may be adjacent, in the order of the groups, because a match walks the edges of one node after
    the other. Then aggregates need one pass over the rows and no group numbers (see `is_clustered`).

    Args:
        rows: number of rows.
        count: number of groups.
        of_row: number of the group of each row; None if groups are clustered.
        sizes: number of rows of each group. It is required if groups are clustered, and else computed on first use.
    """

    def __init__(self, rows: int, count: int, of_row: Numbers | None, sizes: Numbers | None = None) -> None:
        self.rows = rows
        self.count = count
        self.is_clustered = of_row is None
        self._of_row = of_row
        self._sizes = sizes

    @classmethod
    def one_group(cls, rows: int) -> Groups:
        """One group with all rows. It exists even if there are no rows."""
        return cls(rows, 1, None, np.array([rows], np.int64))

    @classmethod
    def of(cls, codes: Codes) -> Groups:
        """Groups of rows with equal codes."""
        rows = len(codes.of_row)
        if codes.apart:
            return cls(rows, rows, None, np.ones(rows, np.int64))
        if rows >= max(MIN_CLUSTERED_ROWS, 1) and _ascend(codes.of_row):
            changes = np.flatnonzero(codes.of_row[1:] != codes.of_row[:-1]) + 1
            sizes = np.diff(changes, prepend=0, append=rows)
            return cls(rows, len(sizes), None, sizes)
        of_row, count = renumbered(codes)
        checkpoint()
        return cls(rows, count, of_row)

    @property
    def of_row(self) -> Numbers:
        """Number of the group of each row."""
        if self._of_row is None:
            self._of_row = np.repeat(np.arange(self.count), self.sizes)
        return self._of_row

    @property
    def sizes(self) -> Numbers:
        """Number of rows of each group."""
        if self._sizes is None:
            assert self._of_row is not None
            self._sizes = occurrences(self._of_row, self.count)
        return self._sizes

    @cached_property
    def _ends(self) -> Numbers:
        """If groups are clustered, the end (exclusive) of the rows of each group."""
        return np.cumsum(self.sizes)

    @property
    def first(self) -> Numbers:
        """First row of each group. No group may be empty."""
        if self.is_clustered:
            return self._ends - self.sizes
        return _first_rows(self.of_row, self.count)

    def part(self, first: int, last: int) -> Numbers:
        """Number of the group of the rows from `first` to `last` (exclusive)."""
        if self._of_row is not None or first >= last:
            return self.of_row[first:last]
        ends = self._ends
        begin, end = np.searchsorted(ends, [first, last - 1], "right").tolist()
        some, sizes = ends[begin : end + 1], self.sizes[begin : end + 1]
        inside = np.minimum(some, last) - np.maximum(some - sizes, first)
        return np.repeat(np.arange(begin, end + 1), inside)

    def filter(self, kept: Mask) -> Groups:
        """The groups without the rows that a mask excludes. Groups may be empty then."""
        if not self.is_clustered:
            of_row = self.of_row[kept]
            return Groups(len(of_row), self.count, of_row)
        sizes = self.reduce(np.add, kept.view(np.int8), np.int64, 0)
        return Groups(int(sizes.sum()), self.count, None, sizes)

    def sums(self, numbers: npt.NDArray[Any]) -> Numbers:
        """For each group, the sum of integers. Sums must fit 64 bits."""
        return self.reduce(np.add, numbers, np.int64, 0)

    def reduce(self, function: np.ufunc, numbers: npt.NDArray[Any], kind: Any, empty: Any) -> npt.NDArray[Any]:
        """Combine the numbers of each group with a function.

        Args:
            function: for example `np.add`.
            numbers: the number of each row.
            kind: data type of the result.
            empty: result for a group without rows.
        """
        found = np.full(self.count, empty, kind)
        if not self.is_clustered:
            for first, last in array_chunks(self.rows):
                function.at(found, self.of_row[first:last], numbers[first:last].astype(kind, copy=False))
        elif self.rows:
            some = np.flatnonzero(self.sizes)
            found[some] = function.reduceat(numbers, (self._ends - self.sizes)[some], dtype=kind)
        return found

    def total(self, weights: Numbers) -> pa.Array:
        """For each group, the sum of the weights of its rows. Weights are not negative."""
        if self.is_clustered and self.count == self.rows and self.sizes.all():
            return pa.array(weights)  # each row is a group of its own
        return pa.array(_whole_sums(weights, self))


def _ascend(codes: Numbers) -> bool:
    """Whether no code is smaller than the code before it."""
    following = codes[1:]
    pairs = chunks(len(following))
    return not any((following[first:last] < codes[first:last]).any() for first, last in pairs)


def _first_rows(of_row: Numbers, count: int) -> Numbers:
    """First row of each group. Rows are looked at until all groups have been found."""
    found = np.full(count, NOTHING, np.int64)
    missing = count
    for begin, end in chunks(len(of_row)):
        group = of_row[begin:end]
        new = np.flatnonzero(found.take(group) == NOTHING)[::-1]
        if len(new):
            # Of several rows with the same group, the last assignment counts, and that is the first row.
            found[group[new]] = new + begin
            missing -= int(np.count_nonzero(found.take(group[new]) == new + begin))
            if not missing:
                break
    return found


def _whole_sums(numbers: Numbers, groups: Groups) -> Numbers:
    if len(numbers) and float(numbers.max()) * len(numbers) >= _LARGEST:
        about = np.bincount(groups.of_row, weights=numbers, minlength=groups.count)
        if float(about.max()) > _LARGEST:
            raise ExecutionError("the result of count is too large for I64")
    return groups.sums(numbers)


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
        return pa.array(groups.sizes)
    present = values
    if values.null_count:
        there = values.is_valid().to_numpy(zero_copy_only=False)
        groups, present = groups.filter(there), values.drop_null()
        kinds = None if kinds is None else kinds.filter(pa.array(there))
    checkpoint()
    if aggregate.distinct:
        codes = [*map(value_codes, [present] if kinds is None else [present, kinds])]
        checkpoint()
        if aggregate.function is AggregateFunction.COUNT:
            return count_distinct(groups, RowCodes(together(codes, groups.rows)))
        keep = np.sort(Groups.of(together([Codes(groups.of_row, groups.count), *codes], groups.rows)).first)
        of_row, present = groups.of_row[keep], present.take(pa.array(keep))
        groups = Groups(len(of_row), groups.count, of_row)
    checkpoint()
    kind = arrow_type(aggregate.type)
    match aggregate.function:
        case AggregateFunction.COUNT:
            return pa.array(groups.sizes)
        case AggregateFunction.SUM:
            return _sum(present, groups, kind)
        case AggregateFunction.AVG:
            return _average(present, groups)
        case AggregateFunction.MIN | AggregateFunction.MAX:
            return _end(present, groups, last=aggregate.function is AggregateFunction.MAX).cast(kind)
        case AggregateFunction.COLLECT:
            ordered = present.take(pa.array(_sorted(present, groups.of_row)))
            offsets = np.concatenate([[0], np.cumsum(groups.sizes)])
            return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ordered).cast(kind)


def count_distinct(groups: Groups, values: ValueCodes) -> pa.Array:
    """Number of distinct values of each group, which are not null."""
    return pa.array(distinct_counts(groups.rows, groups.count, groups.part, values))


def _sorted(values: pa.Array, group: Numbers) -> Numbers:
    """The order of the rows by group, then by value."""
    return order_of(group, ranks(values))


def _end(values: pa.Array, groups: Groups, *, last: bool) -> pa.Array:
    """Smallest or largest value of each group."""
    counts = groups.sizes
    empty = counts == 0
    numbers = as_numbers(values)
    if numbers is not None and len(numbers):
        low, high = _bounds(numbers.dtype)
        function, start = (np.maximum, low) if last else (np.minimum, high)
        found = groups.reduce(function, numbers, numbers.dtype, start)
        return pa.array(found, mask=empty).view(values.type)
    order = _sorted(values, groups.of_row)
    ends = np.cumsum(counts)
    places = ends - 1 if last else ends - counts
    if len(order) == 0:
        return pa.nulls(len(counts), values.type)
    return values.take(pa.array(order[np.where(empty, 0, places)], mask=empty))


def as_numbers(values: pa.Array) -> npt.NDArray[Any] | None:
    """Numbers that have the order of the values, which are not null; None if the values are not numbers or times.

    None also for floats with NaN or a negative zero, because they do not have the order of the values.
    """
    kind = values.type
    numbers: npt.NDArray[Any]
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        values = values.view(pa.int32() if kind.bit_width == _HALF_WORD_BITS else pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    numbers = values.to_numpy()
    if pa.types.is_floating(kind) and (np.isnan(numbers).any() or np.signbit(numbers[numbers == 0]).any()):
        return None
    return numbers


def _bounds(kind: np.dtype[Any]) -> tuple[Any, Any]:
    if kind.kind == "f":
        return -np.inf, np.inf
    return np.iinfo(kind).min, np.iinfo(kind).max


def _sum(values: pa.Array, groups: Groups, kind: pa.DataType) -> pa.Array:
    empty = groups.sizes == 0
    if pa.types.is_floating(kind):
        return pa.array(_float_sum(values, groups.of_row, np.ones_like(groups.sizes)), mask=empty)
    high, low = _halves(values, groups)
    if len(high) and (int(high.max()) >= 2**31 or int(high.min()) < -(2**31)):
        raise ExecutionError("the result of sum is too large for I64")
    return pa.array((high << 32) + low, mask=empty)


def _average(values: pa.Array, groups: Groups) -> pa.Array:
    empty = groups.sizes == 0
    divisors = np.where(empty, 1, groups.sizes)
    if pa.types.is_floating(values.type):
        return pa.array(_float_sum(values, groups.of_row, divisors), mask=empty)
    high, low = _halves(values, groups)
    return pa.array(exact_ratios(high, low, divisors), mask=empty)


def integer_average(totals: pa.Array, groups: Groups, counts: Numbers) -> pa.Array:
    """The sum of the integers of each group, divided by a count and correctly rounded; null where the count is 0.

    Args:
        totals: an integer or null for each row.
        groups: the groups of the rows.
        counts: the divisor of each group.
    """
    if totals.null_count:
        groups = groups.filter(totals.is_valid().to_numpy(zero_copy_only=False))
        totals = totals.drop_null()
    empty = counts == 0
    return pa.array(exact_ratios(*_halves(totals, groups), np.where(empty, 1, counts)), mask=empty)


def exact_ratios(high: Numbers, low: Numbers, divisors: Numbers) -> npt.NDArray[np.float64]:
    """Quotients of integers, correctly rounded.

    Args:
        high: the upper bits of each dividend.
        low: the lower 32 bits of each dividend.
        divisors: the divisors, which are positive.
    """
    found: npt.NDArray[np.float64] = ((high << 32) + low) / divisors
    # Up to 2 ** 53, both numbers are exact as floats. Python divides larger integers exactly.
    for place in np.flatnonzero((np.abs(high) >= 2**20) | (divisors > _EXACT)).tolist():
        found[place] = ((int(high[place]) << 32) + int(low[place])) / int(divisors[place])
    return found


def _halves(values: pa.Array, groups: Groups) -> tuple[Numbers, Numbers]:
    """For each group, the exact sum of integers, as two numbers: the upper bits (signed), and the lower 32 bits."""
    numbers = values.to_numpy(zero_copy_only=False)
    if len(numbers) == 0 or max(abs(float(numbers.max())), abs(float(numbers.min()))) * len(numbers) < _EXACT:
        total = groups.sums(numbers)
        return total >> 32, total & _LOW
    if numbers.dtype != np.uint64:
        numbers = numbers.astype(np.int64)
    high = groups.sums((numbers >> numbers.dtype.type(32)).astype(np.int64))
    low = groups.sums((numbers & numbers.dtype.type(_LOW)).astype(np.int64))
    return high + (low >> 32), low & _LOW


def _float_sum(values: pa.Array, group: Numbers, divisors: Numbers) -> npt.NDArray[np.float64]:
    """For each group, the sum of floats, divided by the divisor of the group. The order of rows has no effect."""
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    order = order_of(group, float_keys(numbers))
    checkpoint()
    totals = np.zeros(len(divisors))
    with np.errstate(over="ignore", invalid="ignore"):
        for first, last in array_chunks(len(order)):
            some = order[first:last]
            np.add.at(totals, group.take(some), numbers.take(some))
        found = totals / divisors
    for place in np.flatnonzero(~np.isfinite(found)):
        # An intermediate sum overflowed, but the final result may still be in range. So the sum is computed exactly.
        exact = sum(map(Fraction, numbers[group == place].tolist())) / int(divisors[place])
        try:
            found[place] = float(exact)
        except OverflowError:
            raise ExecutionError("the result of sum or avg is too large for F64") from None
    return found
