"""How the fragments of a table are divided among tasks. Works without Spark installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.storage.fragments import Fragment

BATCH_ROWS = 16_384
"""How many rows go from a task to Spark at a time."""

PARTITION_ROWS = 8_000_000
PARTITION_BYTES = 128 * 1024 * 1024
"""Fragments that follow each other are read by one task, up to so many rows and bytes of the columns that are read."""


def grouped(fragments: Sequence[Fragment], most: float = PARTITION_BYTES) -> Iterator[tuple[int, ...]]:
    """The fragments that each task reads: neighbours together, up to so many bytes."""
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
