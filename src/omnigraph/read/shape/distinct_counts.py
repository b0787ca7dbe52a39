"""Count the distinct values of each group, from codes: integers that are equal for equal values.

If the table of all groups and codes is small enough, each row sets a mark in it, and the marks are counted. If each
value occurs in one group only, the values of each group are counted. Else the pairs of group and code are sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.budget.chunks import chunks
from omnigraph.read.columns.hash_groups import distinct_share, hash_groups
from omnigraph.read.columns.numbers import NOTHING, Integers, Numbers
from omnigraph.read.columns.sorting import in_order
from omnigraph.read.columns.stoppable import array_chunks, changes, occurrences
from omnigraph.read.shape.group_codes import Codes, renumbered

MARKS_PER_ROW = 8
"""Maximum number of marks per row. If more are needed, pairs of group and code are sorted."""

MIN_MARKS = 1 << 16
"""There may always be this number of marks, even if there are few rows."""

MAX_HASHED_SHARE = 0.25
"""If at most this fraction of the pairs is expected to be distinct, duplicates are removed before sorting."""

_WORD_BYTES = 8


class ValueCodes(Protocol):
    """A code for the value of each row.

    Attributes:
        size: upper bound (exclusive) of the codes.
        null: code of null, which is not counted; None if no value is null.
    """

    @property
    def size(self) -> int: ...
    @property
    def null(self) -> int | None: ...
    def part(self, first: int, last: int) -> Numbers:
        """The codes of the rows from `first` to `last` (exclusive)."""
        ...


class RowCodes:
    """Codes that are known for each row. There are no nulls."""

    null = None

    def __init__(self, codes: Codes) -> None:
        self._codes = codes
        self.size = codes.size

    def part(self, first: int, last: int) -> Numbers:
        return self._codes.of_row[first:last]


@dataclass(frozen=True, slots=True)
class EntityCodes:
    """Codes of the entity of each row, which are looked up in chunks.

    Attributes:
        numbers: number of the entity of each row; `NOTHING` for null.
        codes: code of each entity, and as last element the code of null. None if the number of an entity plus 1 is its
            code; then 0 is the code of null.
        size: upper bound (exclusive) of the codes.
        null: code of null.
    """

    numbers: Numbers
    codes: Integers | None
    size: int
    null: int

    def part(self, first: int, last: int) -> Numbers:
        numbers = self.numbers[first:last]
        if self.codes is None:
            return numbers + 1
        # `NOTHING` is -1, the index of the last element.
        return self.codes.take(numbers, mode="wrap").astype(np.int64)


def distinct_counts(rows: int, groups: int, group: Callable[[int, int], Numbers], values: ValueCodes) -> Numbers:
    """Number of distinct values of each group.

    Args:
        rows: number of rows.
        groups: number of groups.
        group: returns the group of each row, for the rows from the first to the second argument (exclusive).
        values: codes of the values.
    """
    size, null = values.size, values.null
    if groups * size <= max(MARKS_PER_ROW * rows, MIN_MARKS):
        checkpoint(groups * size // _WORD_BYTES + 1, 1)
        seen = np.zeros(groups * size, bool)
        for first, last in chunks(rows):
            keys = group(first, last) * size
            keys += values.part(first, last)
            seen[keys] = True
        marks = seen.reshape(groups, size)
        if null is not None:
            marks[:, null] = False
        counts: Numbers = np.count_nonzero(marks, axis=1).astype(np.int64)
        return counts
    if size <= max(MARKS_PER_ROW * rows, MIN_MARKS):
        owner = _groups_of_values(rows, group, values)
        if owner is not None:
            return occurrences(owner[owner != NOTHING], groups)
    checkpoint(rows, 4)
    if groups >= 2**62 // size:
        codes, of_row = values.part(0, rows), group(0, rows)
        if null is not None:
            there = codes != null
            codes, of_row = codes[there], of_row[there]
        codes, size = renumbered(Codes(codes, size))
        keys = of_row * size + codes
    else:
        keys = _pairs(rows, group, values)
    share = distinct_share(keys)
    if share <= MAX_HASHED_SHARE:
        keys = keys.take(hash_groups(keys, share * len(keys))[0])
    keys = in_order(keys.view(np.uint64)).view(np.int64)
    return occurrences(keys[changes(keys)] // max(size, 1), groups)


def _pairs(rows: int, group: Callable[[int, int], Numbers], values: ValueCodes) -> Numbers:
    """An integer for each row whose value is not null: its group, multiplied by the number of codes, plus its code."""
    keys, count = np.empty(rows, np.int64), 0
    for first, last in array_chunks(rows):
        codes = values.part(first, last)
        part = group(first, last) * values.size
        part += codes
        if values.null is not None:
            part = part[codes != values.null]
        keys[count : count + len(part)] = part
        count += len(part)
    return keys[:count]


def _groups_of_values(rows: int, group: Callable[[int, int], Numbers], values: ValueCodes) -> Numbers | None:
    """The group in which each value occurs, by code; `NOTHING` for null and unused codes.

    None if a value occurs in several groups. This is usually found out in the first chunk.
    """
    checkpoint(values.size, 1)
    owner: Numbers = np.full(values.size, NOTHING, np.int64)
    for first, last in chunks(rows):
        codes, of_row = values.part(first, last), group(first, last)
        if values.null is not None:
            there = codes != values.null
            codes, of_row = codes[there], of_row[there]
        before = owner.take(codes)
        owner[codes] = of_row
        if not ((before == NOTHING) | (before == of_row)).all() or not (owner.take(codes) == of_row).all():
            return None
    return owner
