"""The values of a property of a variable that is not in the rows, combined for each row."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.read.columns.numbers import Numbers


class Folded(Enum):
    """A value that is computed for each node from the values of its neighbours."""

    COUNT = "count"
    SUM = "sum"
    LEAST = "least"
    MOST = "most"

    @property
    def function(self) -> np.ufunc:
        return _FUNCTIONS[self]

    @property
    def adds(self) -> bool:
        """Whether the value of a node grows with the number of its matches."""
        return self in (Folded.COUNT, Folded.SUM)


_FUNCTIONS = {
    Folded.COUNT: np.add,
    Folded.SUM: np.add,
    Folded.LEAST: np.minimum,
    Folded.MOST: np.maximum,
}


@dataclass(frozen=True, slots=True)
class FoldedColumn:
    """A property of a counted variable (see `omnigraph.read.match.fold`), combined over the matches of each row.

    Attributes:
        values: integers for each row: the number of matches in which the property is not null, and, if an aggregate
            needs them, the sum, the smallest and the largest value.
        kind: data type of the property.
    """

    values: Mapping[Folded, npt.NDArray[Any]]
    kind: pa.DataType

    @property
    def count(self) -> Numbers:
        """Number of matches in which the property is not null."""
        return self.values[Folded.COUNT].astype(np.int64, copy=False)

    @property
    def total(self) -> pa.Array:
        """Sum of the property; null without values."""
        return pa.array(self.values[Folded.SUM].astype(np.int64, copy=False), mask=self.count == 0)

    def end(self, value: Folded) -> pa.Array:
        """Smallest or largest value; null without values."""
        missing = self.count == 0
        numbers = pa.array(np.where(missing, 0, self.values[value].astype(np.int64)), mask=missing)
        if pa.types.is_integer(self.kind):
            return numbers.cast(self.kind)
        return numbers.cast(pa.int32() if pa.types.is_date32(self.kind) else pa.int64()).view(self.kind)
