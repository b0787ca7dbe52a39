"""Chunked work: a read checks its limits between two chunks."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.read.budget.budget import checkpoint

CHUNK_ROWS = 1 << 16
"""Rows per chunk. Chunks are small, so that a read can stop soon, and large enough that checks cost little."""


def is_one_chunk(count: int) -> bool:
    """Whether `count` rows are processed at once, without chunks."""
    return count < 2 * CHUNK_ROWS


def chunks(count: int, size: int | None = None) -> Iterator[tuple[int, int]]:
    """Split `count` rows into chunks: the first row and the end (exclusive) of each. There is at least one chunk.

    >>> list(chunks(5, 2))
    [(0, 2), (2, 4), (4, 5)]

    Raises:
        BudgetExceededError: the read of this thread is out of time.
        CancelledError: the read was cancelled.
    """
    size = CHUNK_ROWS if size is None else size
    for first in range(0, max(count, 1), size):
        checkpoint()
        yield first, min(first + size, count)
