"""Groups the fragments of a table for tasks. Works without Spark installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.storage.fragments import Fragment

BATCH_ROWS = 16_384
"""Rows per batch that a task passes to Spark."""

PARTITION_ROWS = 8_000_000
PARTITION_BYTES = 128 * 1024 * 1024
"""Maximum number of rows, and of bytes, that one task reads from adjacent fragments. Only read columns count."""


def grouped(fragments: Sequence[Fragment], most: float = PARTITION_BYTES) -> Iterator[tuple[int, ...]]:
    """Group adjacent fragments, one group per task, with up to `most` bytes per group."""
    held: list[int] = []
    rows = size = 0
    for fragment in fragments:
        if held and (rows + fragment.rows > PARTITION_ROWS or size + fragment.size > most):
            yield tuple(held)
            held, rows, size = [], 0, 0
        held.append(fragment.number)
        rows += fragment.rows
        size += fragment.size
    if held:
        yield tuple(held)
