"""Groups of rows, and one value for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ExecutionError
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import AggregateFunction
from omnigraph.read.order import list_codes, ranks
from omnigraph.read.space import Numbers

_LOW = np.int64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Groups:
    """Which group each row is in.

    Attributes:
        count: how many groups there are.
        of_row: the group of each row.
        first: some row of each group.
    """

    count: int
    of_row: Numbers
    first: Numbers

    @classmethod
    def of(cls, keys: Sequence[pa.Array], rows: int) -> Groups:
        """Rows with equal keys are a group; null is a value like any other. Without keys, all rows are one group."""
        if not keys:
            return cls(1, np.zeros(rows, np.int64), np.zeros(0, np.int64))
        _, first, of_row = np.unique(_together(keys, rows), return_index=True, return_inverse=True)
        return cls(len(first), of_row.astype(np.int64), first.astype(np.int64))

    def total(self, weights: Numbers) -> pa.Array:
        """The sum of whole numbers, one for each row, by group."""
        found = np.zeros(self.count, np.int64)
        np.add.at(found, self.of_row, weights)
        return pa.array(found)


def _codes(values: pa.Array) -> Numbers:
    """Numbers that are equal where values are."""
    if pa.types.is_nested(values.type):
        return list_codes(values, _codes)
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0, values.type))
    encoded = values.dictionary_encode(null_encoding="encode")
    codes: Numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _together(keys: Sequence[pa.Array], rows: int) -> Numbers:
    """Numbers that are equal where all of several values are."""
    codes = np.zeros(rows, np.int64)
    for key in keys:
        part = _codes(key)
        size = int(part.max(initial=0)) + 1
        if int(codes.max(initial=0)) >= 2**62 // size:
            codes = np.unique(codes, return_inverse=True)[1]
        codes = codes * size + part
    return codes


def aggregated(
    aggregate: ir.Aggregate, values: pa.Array | None, groups: Groups, kinds: pa.Array | None = None
) -> pa.Array:
    """One value for each group.

    Args:
        aggregate: what to compute.
        values: its argument for each row; None counts rows.
        groups: the rows that belong together.
        kinds: what tells equal values apart: the types of nodes, whose ids may be equal.

    Raises:
        ExecutionError: a sum of whole numbers is too large.
    """
    if values is None:
        return pa.array(np.bincount(groups.of_row, minlength=groups.count).astype(np.int64))
    there = values.is_valid().to_numpy(zero_copy_only=False)
    group, present = groups.of_row[there], values.drop_null()
    if aggregate.distinct:
        told_apart = [present] if kinds is None else [present, kinds.filter(pa.array(there))]
        keep = np.sort(np.unique(_together([pa.array(group), *told_apart], len(group)), return_index=True)[1])
        group, present = group[keep], present.take(pa.array(keep))
    counts = np.bincount(group, minlength=groups.count).astype(np.int64)
    kind = arrow_type(aggregate.type)
    match aggregate.function:
        case AggregateFunction.COUNT:
            return pa.array(counts)
        case AggregateFunction.SUM:
            return _sum(present, group, counts, kind)
        case AggregateFunction.AVG:
            total = _float_sum(present, group, groups.count)
            with np.errstate(invalid="ignore", divide="ignore"):
                return pa.array(total / counts, mask=counts == 0)
        case AggregateFunction.MIN | AggregateFunction.MAX:
            return _end(present, group, counts, last=aggregate.function is AggregateFunction.MAX).cast(kind)
        case AggregateFunction.COLLECT:
            ordered = present.take(pa.array(_sorted(present, group)))
            offsets = np.concatenate([[0], np.cumsum(counts)])
            return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ordered).cast(kind)


def _sorted(values: pa.Array, group: Numbers) -> Numbers:
    """Rows by group, and within it by value."""
    return np.lexsort((ranks(values), group))


def _end(values: pa.Array, group: Numbers, counts: Numbers, *, last: bool) -> pa.Array:
    """The least or greatest value of each group."""
    order = _sorted(values, group)
    ends = np.cumsum(counts)
    places = ends - 1 if last else ends - counts
    empty = counts == 0
    if len(order) == 0:
        return pa.nulls(len(counts), values.type)
    return values.take(pa.array(order[np.where(empty, 0, places)], mask=empty))


def _sum(values: pa.Array, group: Numbers, counts: Numbers, kind: pa.DataType) -> pa.Array:
    empty = counts == 0
    if pa.types.is_floating(kind):
        return pa.array(_float_sum(values, group, len(counts)), mask=empty)
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.dtype != np.uint64:
        numbers = numbers.astype(np.int64)
    # In two halves, neither of which can overflow.
    high = np.zeros(len(counts), np.int64)
    low = np.zeros(len(counts), np.int64)
    np.add.at(high, group, (numbers >> numbers.dtype.type(32)).astype(np.int64))
    np.add.at(low, group, (numbers & numbers.dtype.type(_LOW)).astype(np.int64))
    high += low >> 32
    if len(high) and (int(high.max()) >= 2**31 or int(high.min()) < -(2**31)):
        raise ExecutionError("a sum of whole numbers is too large for I64")
    return pa.array((high << 32) + (low & _LOW), mask=empty)


def _float_sum(values: pa.Array, group: Numbers, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Sums that do not depend on the order of rows."""
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    order = np.lexsort((numbers, group))
    return np.bincount(group[order], weights=numbers[order], minlength=count).astype(np.float64)
