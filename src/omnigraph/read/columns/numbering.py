"""Numbers of the entities of a table version.

The number of an entity is its stable row id minus the smallest row id of the table. It survives updates and compaction,
so arrays that are indexed by number stay valid while only values change. Deleted entities leave holes, that is, unused
numbers. If there are many more holes than entities, the entities are numbered densely instead, without holes.
"""

from __future__ import annotations

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers

MAX_SLOTS_PER_ENTITY = 4
"""Maximum ratio of numbers (used and unused) to entities. Above this ratio, entities are numbered densely."""


@dataclass(frozen=True, slots=True)
class Numbering:
    """Numbering of the entities of a table version.

    Attributes:
        slots: the numbers are 0 to `slots` - 1, including holes (unused numbers).
        base: row id of number 0; only for a numbering with holes.
        row_ids: row id of each number; None for a numbering with holes, where it is `base` + number.
        positions: position of each entity in the table, by number; `NOTHING` for holes. None if the rows of the table
            are in the order of numbers and there are no holes.
        live: mask of the numbers that are in use; None if all are in use.
    """

    slots: int
    base: int
    row_ids: Numbers | None
    positions: Numbers | None
    live: Mask | None

    @staticmethod
    def keeps_holes(slots: int, count: int) -> bool:
        """Whether `count` entities whose row ids span `slots` numbers are numbered with holes; else densely."""
        return slots <= MAX_SLOTS_PER_ENTITY * count

    @classmethod
    def of(cls, row_ids: Numbers) -> Numbering:
        """The numbering of a table. `row_ids` are the row ids of its entities, in table order."""
        count = len(row_ids)
        if count == 0:
            return cls(0, 0, None, None, None)
        base, last = int(row_ids.min()), int(row_ids.max())
        slots = last - base + 1
        if not cls.keeps_holes(slots, count):
            order: Numbers = np.argsort(row_ids, kind="stable")
            lie_in_order = np.array_equal(order, np.arange(count))
            return cls(count, 0, row_ids[order], None if lie_in_order else order, None)
        if slots == count and bool((row_ids[1:] > row_ids[:-1]).all()):
            return cls(slots, base, None, None, None)
        positions = np.full(slots, NOTHING, np.int64)
        positions[row_ids - base] = np.arange(count)
        return cls(slots, base, None, positions, None if slots == count else positions != NOTHING)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.row_ids, self.positions, self.live) if part is not None)
