"""The entities that the rows of a match hold, each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from omnigraph.read.match.frame import Binding
from omnigraph.read.space.space import NOTHING, Numbers, Space

_ROOM = 8
"""With a table of so many places for each row, entities are told apart without sorting."""

Kind = TypeVar("Kind", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Entities:
    """Distinct entities.

    Attributes:
        binding: holds them.
        back: for each row, which of them it holds; None when the rows are the entities.
    """

    binding: Binding
    back: Numbers | None

    @classmethod
    def of(cls, binding: Binding) -> Entities:
        numbers = binding.numbers
        if binding.which is None and (is_everything(binding) or _ascend(numbers)):
            return cls(binding, None)
        keys, size = binding.keys()
        if size > _ROOM * len(keys):
            _, first, back = np.unique(keys, return_index=True, return_inverse=True)
            return cls(binding.take(first), back)
        row = np.full(size, NOTHING, np.int64)
        row[keys] = np.arange(len(keys))
        distinct = np.flatnonzero(row != NOTHING)
        place = np.empty(size, np.int64)
        place[distinct] = np.arange(len(distinct))
        return cls(binding.take(row[distinct]), place[keys])

    def spread(self, values: npt.NDArray[Kind]) -> npt.NDArray[Kind]:
        """What is known about the entities, for each row."""
        return values if self.back is None else values[self.back]


def is_everything(binding: Binding) -> bool:
    """Whether the rows are known to be all entities of a type, in the order of their numbers."""
    return binding.which is None and binding.numbers is binding.spaces[0].everything()


def _ascend(numbers: Numbers) -> bool:
    return len(numbers) == 0 or bool(numbers[0] >= 0 and (numbers[1:] > numbers[:-1]).all())


def parts(binding: Binding) -> Iterator[tuple[Space, Numbers]]:
    """The rows of a binding that hold entities, type by type."""
    if is_everything(binding):
        yield binding.spaces[0], binding.numbers if binding.spaces[0].live is None else np.arange(len(binding.numbers))
        return
    there = binding.numbers != NOTHING
    for number, space in enumerate(binding.spaces):
        yield space, np.flatnonzero(there if binding.which is None else there & (binding.which == number))


def gather(
    binding: Binding, by_space: Sequence[npt.NDArray[Kind]], nothing: object, kind: type[Kind]
) -> npt.NDArray[Kind]:
    """What is known by the numbers of entities, for each row of a binding."""
    if is_everything(binding) and len(binding.numbers) == len(by_space[0]):
        return by_space[0]
    if binding.which is None and len(binding.numbers) and int(binding.numbers.min()) >= 0:
        return by_space[0][binding.numbers]
    found = np.full(len(binding.numbers), nothing, kind)
    for (_, rows), known in zip(parts(binding), by_space, strict=True):
        found[rows] = known[binding.numbers[rows]]
    return found


def by_id(binding: Binding) -> Numbers:
    """Numbers that sort entities by id, and those of several types with one id by type."""
    if binding.which is None:
        return binding.spaces[0].id_order()[binding.numbers]
    ids = pc.rank(binding.values("id"), sort_keys="ascending", tiebreaker="dense").to_numpy(zero_copy_only=False)
    order: Numbers = ids.astype(np.int64) * len(binding.spaces) + binding.which
    return order
