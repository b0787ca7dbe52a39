"""Groups the fragments of a table for tasks. Works without Spark installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

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


# See docs/decisions/0246-tasks-of-a-read-have-equal-sizes.md
def balanced(fragments: Sequence[Fragment], most: float, cores: int) -> list[tuple[int, ...]]:
    """Group adjacent fragments, one group per task, such that all cores finish at about the same time.

    There are as many groups as groups of `most` bytes would need. If they are more than the cores, their number is a
    multiple of the number of cores. Groups have about equal sizes.

    Args:
        fragments: the fragments.
        most: approximate maximum number of bytes of a group.
        cores: number of tasks that run at once.
    """
    rows, size = sum(fragment.rows for fragment in fragments), sum(fragment.size for fragment in fragments)
    count = max(ceil(size / most), ceil(rows / PARTITION_ROWS), 1)
    count = count if count <= cores else ceil(count / cores) * cores
    groups: list[list[int]] = []
    left, held = size or rows, 0
    for fragment in fragments:
        weight = fragment.size if size else fragment.rows
        target = (left + held) / max(count - len(groups) + 1, 1)
        # A group is closed if its size without this fragment is nearer to the target than with it.
        if not groups or (len(groups) < count and target - held < held + weight - target):
            groups.append([])
            held = 0
        groups[-1].append(fragment.number)
        held += weight
        left -= weight
    return [tuple(group) for group in groups]
