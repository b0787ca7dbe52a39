"""The values of a property of a variable that is not in the rows, combined for each row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.read.columns.numbers import Mask, Numbers


@dataclass(frozen=True, slots=True)
class FoldedColumn:
    """A property of a counted variable (see `omnigraph.read.match.fold`), one element per row.

    A row stands for several matches of the variable. Values that no aggregate needs are None.

    Attributes:
        count: number of matches in which the property is not null.
        total: sum of the property over these matches; null if there are none.
        least: smallest value; null if there are no values.
        most: largest value; null if there are no values.
    """

    count: Numbers
    total: pa.Array | None = None
    least: pa.Array | None = None
    most: pa.Array | None = None

    def filter(self, mask: Mask) -> FoldedColumn:
        """The rows that a mask keeps."""
        if mask.all():
            return self
        rows = pa.array(np.flatnonzero(mask))
        return FoldedColumn(
            self.count[mask],
            *(None if each is None else each.take(rows) for each in (self.total, self.least, self.most)),
        )
