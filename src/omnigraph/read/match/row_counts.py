"""Numbers of rows as 64-bit integers, with checks for overflow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from omnigraph.errors import ExecutionError
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.rows.frame import Frame

MAX_ROW_COUNT = float(2**63 - 2**40)
"""Largest allowed row count. It is slightly less than the largest I64, because it is compared with floats."""


def products(left: Numbers, right: Numbers) -> Numbers:
    """The products of two arrays of counts.

    Raises:
        ExecutionError: a product is larger than the largest row count.
    """
    if len(left) and float(left.max()) * float(right.max()) > MAX_ROW_COUNT:
        product = left.astype(np.float64) * right
        if float(product.max()) > MAX_ROW_COUNT:
            raise count_too_large()
    return left * right


def weighed(frame: Frame, factors: Numbers) -> Frame:
    """The frame with the weight of each row multiplied by a factor. Rows with the factor 0 are removed.

    Raises:
        ExecutionError: a weight is larger than the largest row count.
    """
    there = factors > 0
    if not there.all():
        frame, factors = frame.filter(there), factors[there]
    return replace(frame, weight=factors if frame.weight is None else products(frame.weight, factors))


def added(counts: Numbers, groups: Numbers, size: int) -> Numbers:
    """The sum of the counts of each group.

    >>> added(np.array([1, 2, 3]), np.array([0, 2, 0]), 3).tolist()
    [4, 0, 2]

    Args:
        counts: an array of counts.
        groups: the group of each count.
        size: number of groups.

    Raises:
        ExecutionError: a sum is larger than the largest row count.
    """
    if len(counts) and float(counts.max()) * len(counts) > MAX_ROW_COUNT:
        check_row_count(float(np.bincount(groups, counts).max()))
    found: Numbers = np.zeros(size, np.int64)
    np.add.at(found, groups, counts)
    return found


def check_row_count(count: float) -> None:
    """Raise an error if a number of rows is larger than the largest row count."""
    if count > MAX_ROW_COUNT:
        raise count_too_large()


def count_too_large() -> ExecutionError:
    return ExecutionError("the result of count is too large for I64")
