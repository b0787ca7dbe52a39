"""Sets of row ids, for filters of scans."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_BITMAP_BYTES = 64 << 20
"""Up to this row id, a set of row ids is a bitmap."""

Numbers = np.ndarray[tuple[int], np.dtype[np.uint64]]


class RowIdSet:
    """A set of row ids. Row ids are dense, so the set is a bitmap unless the numbers are very large."""

    def __init__(self, row_ids: pa.Array) -> None:
        self._ordered: Numbers = np.sort(row_ids.to_numpy())
        self._largest = self._ordered[-1] if len(self._ordered) else np.uint64(0)
        self._bitmap: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None
        if len(self._ordered) and self._largest < _BITMAP_BYTES:
            self._bitmap = np.zeros(int(self._largest) + 1, bool)
            self._bitmap[self._ordered] = True

    def __len__(self) -> int:
        return len(self._ordered)

    def among(self, column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Mask of the values that are in the set."""
        values = column.to_numpy(zero_copy_only=False)
        if len(self._ordered) == 0:
            return np.zeros(len(values), bool)
        if self._bitmap is not None:
            return np.asarray(self._bitmap[np.minimum(values, self._largest)] & (values <= self._largest))
        places = np.minimum(np.searchsorted(self._ordered, values), len(self._ordered) - 1)
        return np.asarray(self._ordered[places] == values)
