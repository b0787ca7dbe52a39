"""Distinct entities of the rows of a match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import NOTHING, Numbers
from omnigraph.read.rows.frame import Binding

SLOTS_PER_ROW = 8
"""Distinct entities are found with a direct-address table if it needs at most this number of slots per row, else by
sorting."""

Kind = TypeVar("Kind", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Entities:
    """The distinct entities of a binding.

    Attributes:
        binding: the distinct entities.
        back: for each row of the original binding, the index of its entity; None if row n has the n-th entity.
    """

    binding: Binding
    back: Numbers | None

    @classmethod
    def of(cls, binding: Binding) -> Entities:
        numbers = binding.numbers
        if binding.type_index is None and (is_everything(binding) or _ascend(numbers)):
            return cls(binding, None)
        keys, size = binding.keys()
        if size > SLOTS_PER_ROW * len(keys):
            _, first, back = np.unique(keys, return_index=True, return_inverse=True)
            return cls(binding.take(first), back)
        row = np.full(size, NOTHING, np.int64)
        row[keys] = np.arange(len(keys))
        distinct = np.flatnonzero(row != NOTHING)
        place = np.empty(size, np.int64)
        place[distinct] = np.arange(len(distinct))
        return cls(binding.take(row[distinct]), place[keys])

    def spread(self, values: npt.NDArray[Kind]) -> npt.NDArray[Kind]:
        """Convert an array with one value per distinct entity to an array with one value per original row."""
        return values if self.back is None else values[self.back]


def is_everything(binding: Binding) -> bool:
    """Whether a binding is known to contain all entities of one type, in the order of their numbers."""
    return binding.type_index is None and binding.numbers is binding.tables[0].all_numbers()


def _ascend(numbers: Numbers) -> bool:
    return len(numbers) == 0 or bool(numbers[0] >= 0 and (numbers[1:] > numbers[:-1]).all())


def parts(binding: Binding) -> Iterator[tuple[EntityTable, Numbers]]:
    """For each table of a binding, the rows that have an entity of this table."""
    if is_everything(binding):
        yield binding.tables[0], binding.numbers if binding.tables[0].live is None else np.arange(len(binding.numbers))
        return
    there = binding.numbers != NOTHING
    for number, table in enumerate(binding.tables):
        yield table, np.flatnonzero(there if binding.type_index is None else there & (binding.type_index == number))


def gather(
    binding: Binding, by_table: Sequence[npt.NDArray[Kind]], nothing: object, kind: type[Kind]
) -> npt.NDArray[Kind]:
    """For each row of a binding, the value of its entity.

    Args:
        binding: the binding.
        by_table: for each table of the binding, values by entity number.
        nothing: value for rows without an entity.
        kind: NumPy type of the values.
    """
    if is_everything(binding) and len(binding.numbers) == len(by_table[0]):
        return by_table[0]
    if binding.type_index is None and len(binding.numbers) and int(binding.numbers.min()) >= 0:
        return by_table[0][binding.numbers]
    found = np.full(len(binding.numbers), nothing, kind)
    for (_, rows), known in zip(parts(binding), by_table, strict=True):
        found[rows] = known[binding.numbers[rows]]
    return found


def by_id(binding: Binding) -> Numbers:
    """For each row of a binding, an integer that sorts its entity by id, then by type."""
    if binding.type_index is None:
        return binding.tables[0].id_ranks()[binding.numbers]
    ids = pc.rank(binding.values("id"), sort_keys="ascending", tiebreaker="dense").to_numpy(zero_copy_only=False)
    order: Numbers = ids.astype(np.int64) * len(binding.tables) + binding.type_index
    return order
