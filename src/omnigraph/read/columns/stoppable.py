"""Operations on large arrays in chunks. A read can be stopped between two chunks.

NumPy cannot be interrupted. Gathering 50 million values at random takes half a second.
"""

# See docs/decisions/0256-large-arrays-are-processed-in-chunks.md

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.budget.chunks import chunks
from omnigraph.read.columns.numbers import Mask, Numbers

ARRAY_CHUNK_ROWS = 1 << 20
"""Number of array elements per chunk. A chunk takes a few milliseconds."""

T = TypeVar("T", bound=np.generic)


def array_chunks(count: int, width: int = 1) -> Iterator[tuple[int, int]]:
    """Split arrays of a length into chunks: the first element and the end (exclusive) of each.

    Args:
        count: the length.
        width: number of elements that are computed from each of these elements.

    Raises:
        BudgetExceededError: the read of this thread is out of time.
        CancelledError: the read was cancelled.
    """
    return chunks(count, max(1, ARRAY_CHUNK_ROWS // max(1, width)))


def gather(values: npt.NDArray[T], places: npt.NDArray[np.integer]) -> npt.NDArray[T]:
    """The values at the given positions. Negative positions count from the end.

    >>> gather(np.array([5, 6, 7]), np.array([2, 0, -1])).tolist()
    [7, 5, 7]
    """
    if len(places) <= ARRAY_CHUNK_ROWS:
        return values.take(places)
    found = np.empty(len(places), values.dtype)
    for first, last in array_chunks(len(places)):
        found[first:last] = values.take(places[first:last])
    return found


def scatter(target: npt.NDArray[T], places: npt.NDArray[np.integer], values: npt.NDArray[T] | Any) -> None:
    """Assign values to the given positions of an array: `target[places] = values`.

    >>> found = np.zeros(3, np.int64)
    >>> scatter(found, np.array([2, 0]), np.array([7, 5]))
    >>> found.tolist()
    [5, 0, 7]
    """
    for first, last in array_chunks(len(places)):
        target[places[first:last]] = values[first:last] if np.ndim(values) else values


def join_arrays(parts: Sequence[npt.NDArray[T]]) -> npt.NDArray[T]:
    """Concatenate arrays of the same type.

    >>> join_arrays([np.array([1, 2]), np.array([3])]).tolist()
    [1, 2, 3]
    """
    if sum(map(len, parts)) <= ARRAY_CHUNK_ROWS:
        return np.concatenate(parts)
    found = np.empty(sum(map(len, parts)), parts[0].dtype)
    end = 0
    for part in parts:
        for first, last in array_chunks(len(part)):
            found[end + first : end + last] = part[first:last]
        end += len(part)
    return found


def running_counts(mask: Mask) -> Numbers:
    """For each element, how many elements up to this one are true.

    >>> running_counts(np.array([True, False, True])).tolist()
    [1, 1, 2]
    """
    found = np.empty(len(mask), np.int64)
    before = 0
    for first, last in array_chunks(len(mask)):
        np.cumsum(mask[first:last], out=found[first:last])
        if before:
            found[first:last] += before
        before = int(found[last - 1]) if last else 0
    checkpoint()
    return found


def occurrences(numbers: Numbers, size: int) -> Numbers:
    """How often each number from 0 to `size` - 1 occurs.

    >>> occurrences(np.array([2, 0, 2]), 3).tolist()
    [1, 0, 2]
    """
    found = np.zeros(size, np.int64)
    for first, last in chunks(len(numbers), max(ARRAY_CHUNK_ROWS, 4 * size)):
        found += np.bincount(numbers[first:last], minlength=size)
    return found


def weight_sums(numbers: Numbers, weights: Numbers | None, size: int) -> Numbers:
    """For each number from 0 to `size` - 1, the sum of the weights of its occurrences. Weights are 1 by default.

    >>> weight_sums(np.array([2, 0, 2]), np.array([5, 1, 7]), 3).tolist()
    [1, 0, 12]
    """
    if weights is None:
        return occurrences(numbers, size)
    found = np.zeros(size, np.int64)
    for first, last in array_chunks(len(numbers)):
        np.add.at(found, numbers[first:last], weights[first:last])
    return found


def changes(ordered: npt.NDArray[T]) -> Mask:
    """Mask of the elements that differ from the element before them. The first element counts as different.

    >>> changes(np.array([4, 4, 5])).tolist()
    [True, False, True]
    """
    found = np.ones(len(ordered), bool)
    for first, last in array_chunks(len(ordered) - 1):
        np.not_equal(ordered[first + 1 : last + 1], ordered[first:last], out=found[first + 1 : last + 1])
    return found
