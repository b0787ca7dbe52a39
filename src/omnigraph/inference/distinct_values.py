"""Distinct values of a column as hashes, to find keys and references between tables."""

from __future__ import annotations

import numpy as np

from omnigraph.write.rows.hashing import Digests

MAX_DISTINCT = 32 * 1024 * 1024
"""Distinct values that are compared per column, at eight bytes each. A column with more is neither a key nor a
reference."""

_COMPACT_ROWS = 1024 * 1024


class DistinctValues:
    """The distinct hashes of a column, collected batch by batch.

    Attributes:
        rows: number of values.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._known: Digests | None = np.zeros(0, np.uint64)
        self._recent: list[Digests] = []
        self._recent_rows = 0

    def add(self, hashes: Digests) -> None:
        self.rows += len(hashes)
        if self._known is None:
            return
        self._recent.append(np.unique(hashes))
        self._recent_rows += len(self._recent[-1])
        if self._recent_rows > max(_COMPACT_ROWS, len(self._known)):
            self._compact()

    def hashes(self) -> Digests | None:
        """The distinct hashes, sorted; None if there are too many."""
        self._compact()
        return self._known

    @property
    def unique(self) -> bool:
        """Whether no value occurs twice."""
        known = self.hashes()
        return known is not None and len(known) == self.rows

    def missing_in(self, other: DistinctValues) -> int | None:
        """Number of distinct values that `other` does not have; None if there are too many values to compare."""
        mine, theirs = self.hashes(), other.hashes()
        if mine is None or theirs is None:
            return None
        return int(len(mine) - np.isin(mine, theirs, assume_unique=True).sum())

    def _compact(self) -> None:
        if self._known is None or not self._recent:
            return
        merged = np.unique(np.concatenate([self._known, *self._recent]))
        self._recent, self._recent_rows = [], 0
        self._known = merged if len(merged) <= MAX_DISTINCT else None
