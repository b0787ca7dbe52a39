"""Mark arrays: boolean arrays that mark visited nodes, and that later walks use again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np

from omnigraph.read.columns.numbers import Mask, Numbers

SPARSE_RATIO = 32
"""If fewer than one in `SPARSE_RATIO` possible keys occurs, distinct keys are found by sorting, else with a bitmap."""

MAX_POOLED_MARK_BYTES = 1 << 27
"""Maximum number of bytes of the mark arrays that are kept for later walks."""


class MarkPool:
    """Mark arrays that no thread uses now, and that later walks can use. They have at most `MAX_POOLED_MARK_BYTES`."""

    def __init__(self) -> None:
        self._marks: list[tuple[Mask, Mask]] = []
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        return sum(seen.nbytes + marked.nbytes for seen, marked in self._marks)

    def take(self, size: int) -> tuple[Mask, Mask] | None:
        """Remove and return the smallest pair of mark arrays with at least `size` elements; None if there is none."""
        with self._lock:
            enough = [place for place, (seen, _) in enumerate(self._marks) if len(seen) >= size]
            return self._marks.pop(min(enough, key=lambda place: len(self._marks[place][0]))) if enough else None

    def put(self, marks: tuple[Mask, Mask]) -> None:
        """Keep a pair of mark arrays for later walks. If there are too many, the oldest are dropped."""
        if marks[0].nbytes + marks[1].nbytes > MAX_POOLED_MARK_BYTES:
            return
        with self._lock:
            self._marks.append(marks)
            while self.nbytes > MAX_POOLED_MARK_BYTES:
                self._marks.pop(0)


_mark_pool = MarkPool()


@contextmanager
def mark_arrays(size: int) -> Iterator[tuple[Mask, Mask]]:
    """Two boolean arrays whose elements are all False. The caller has to reset every element that it sets.

    The arrays are reused: for a small result in a large graph, allocating them would cost more than the walk.
    """
    marks = _mark_pool.take(size) or (np.zeros(size, bool), np.zeros(size, bool))
    # If a walk fails, it does not reset its marks. Then its arrays are not returned to the pool.
    yield marks[0][:size], marks[1][:size]
    _mark_pool.put(marks)


def distinct_keys(keys: Numbers, marked: Mask) -> Numbers:
    """Distinct keys, ascending. `marked` is a work array: all elements are False before and after the call."""
    if len(keys) * SPARSE_RATIO < len(marked):
        ordered = np.sort(keys)
        first = np.ones(len(ordered), bool)
        np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
        return ordered[first]
    marked[keys] = True
    found: Numbers = np.flatnonzero(marked)
    marked[found] = False
    return found
