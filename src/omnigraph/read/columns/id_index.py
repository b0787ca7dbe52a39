"""Indexes from ids to entity numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.read.columns.numbers import NOTHING, Integers, Mask, Numbers, narrow

SLOTS_PER_ENTITY = 4
"""Integer ids are looked up in a direct-address table if it needs at most this number of slots per entity."""

_MAX_INTEGER_LENGTH = 20
MAX_SINGLE_IDS = 64
"""If at most this number of ids is looked up, each id is looked up separately, by binary search."""


class IdIndex(Protocol):
    """Maps ids to entity numbers; `NOTHING` for unknown ids."""

    @property
    def nbytes(self) -> int: ...

    def find(self, wanted: pa.Array) -> Numbers: ...

    def finding(self, column: str) -> pc.Expression:
        """An Arrow expression over an id column. Compute it for each batch, and pass the values to `found`."""
        ...

    def found(self, computed: pa.Array) -> Numbers:
        """Entity numbers, from values of the expression that `finding` returned."""
        ...


def id_index(ids: pa.Array) -> IdIndex:
    """Build an index. `ids` are indexed by entity number; null for unused numbers."""
    whole = _whole_numbers(ids)
    return TextIndex(ids) if whole is None else NumberIndex(ids, *whole)


def find_all(ids: pa.Array, wanted: pa.Array) -> Numbers:
    """Entity numbers of many ids. Builds a new hash table for each call."""
    return _numbers(pc.index_in(wanted, value_set=ids, skip_nulls=True))


def _numbers(places: pa.Array) -> Numbers:
    found: Numbers = places.fill_null(NOTHING).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


class TextIndex:
    """Index of text ids: the entity numbers, sorted by id."""

    def __init__(self, ids: pa.Array) -> None:
        self._ids = ids

    @cached_property
    def _order(self) -> Integers:
        order = pc.sort_indices(self._ids).to_numpy()  # nulls are last
        there = order[: len(self._ids) - self._ids.null_count]
        return narrow(there.astype(np.int64), len(self._ids))

    @property
    def nbytes(self) -> int:
        return int(self._ids.nbytes) + 8 * len(self._ids)

    def find(self, wanted: pa.Array) -> Numbers:
        if len(wanted) > MAX_SINGLE_IDS:
            return find_all(self._ids, wanted)
        return np.array([NOTHING if id_ is None else self._find(id_) for id_ in wanted.to_pylist()], np.int64)

    def finding(self, column: str) -> pc.Expression:
        return pc.index_in(pc.field(column), value_set=self._ids, skip_nulls=True)

    def found(self, computed: pa.Array) -> Numbers:
        return _numbers(computed)

    def _find(self, id_: str) -> int:
        ordered = _Ordered(self._ids, self._order)
        place = bisect_left(ordered, id_.encode())
        found = place < len(ordered) and ordered[place] == id_.encode()
        return int(self._order[place]) if found else NOTHING


class _Ordered(Sequence[bytes]):
    """The texts in sorted order, each as UTF-8 bytes."""

    def __init__(self, texts: pa.Array, order: Integers) -> None:
        self._texts = texts
        self._order = order

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        return bytes(self._texts[int(self._order[place])].as_buffer())


def _whole_numbers(ids: pa.Array) -> tuple[Numbers, Mask] | None:
    """Ids as integers, with a mask of the entity numbers that are in use.

    Returns None unless all ids are integers in canonical form (`7`, not `07`).

    Ids are integers if the key property of the type is an integer. Integer lookups are many times faster than text
    lookups.
    """
    there = ids.is_valid()
    example = ids[pc.index(there, True).as_py()].as_py() if len(ids) > ids.null_count else ""
    if not example.lstrip("-").isdecimal():
        return None
    try:
        values = ids.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    if not values.cast(pa.utf8()).equals(ids):
        return None
    numbers: Numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    return numbers, there.to_numpy(zero_copy_only=False)


class NumberIndex:
    """Index of ids that are integers in canonical form (`7`, not `07`)."""

    def __init__(self, ids: pa.Array, values: Numbers, there: Mask) -> None:
        self._ids = ids
        self._lengths = pc.binary_length(ids).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int8)
        numbers: Numbers = np.flatnonzero(there)
        values = values[numbers]
        self._low, self._high = int(values.min()), int(values.max())
        self._values: Numbers | None = None
        if self._high - self._low < SLOTS_PER_ENTITY * len(values) + 1024:
            self._numbers = np.full(self._high - self._low + 1, NOTHING, np.int64)
            self._numbers[values - self._low] = numbers
        else:
            order = np.argsort(values)
            self._values, self._numbers = values[order], numbers[order]

    @property
    def nbytes(self) -> int:
        return int(
            self._ids.nbytes
            + self._lengths.nbytes
            + self._numbers.nbytes
            + (0 if self._values is None else self._values.nbytes)
        )

    def find(self, wanted: pa.Array) -> Numbers:
        if len(wanted) == 1:
            return np.array([self._find_one(wanted[0].as_py())], np.int64)
        wanted = wanted.fill_null("")
        try:
            asked = wanted.cast(pa.int64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            return self._find_some(wanted)
        found = self._find(asked)
        # A text such as `+7`, which is parsed as the same integer as `7`, is another id.
        written = pc.binary_length(wanted).to_numpy(zero_copy_only=False)
        found[self._lengths.take(found, mode="wrap") != written] = NOTHING
        # The lengths can be equal although the texts differ: Arrow parses `0xFF` as the number 255.
        found[pc.starts_with(wanted, "0").to_numpy(zero_copy_only=False) & (written > 1)] = NOTHING
        return found

    def finding(self, column: str) -> pc.Expression:
        return pc.field(column)

    def found(self, computed: pa.Array) -> Numbers:
        return self.find(computed)

    def _find_one(self, id_: str | None) -> int:
        # A longer text cannot be a 64-bit integer.
        if id_ is None or len(id_) > _MAX_INTEGER_LENGTH or not id_.removeprefix("-").isdecimal():
            return NOTHING
        if str(number := int(id_)) != id_:
            return NOTHING
        if not self._low <= number <= self._high:
            return NOTHING
        if self._values is None:
            return int(self._numbers[number - self._low])
        at = int(np.searchsorted(self._values, number))
        return int(self._numbers[at]) if self._values[at] == number else NOTHING

    def _find_some(self, wanted: pa.Array) -> Numbers:
        """Look up ids, some of which are not integers."""
        numbers = pc.match_substring_regex(wanted, "^-?[0-9]{1,18}$").to_numpy(zero_copy_only=False)
        found = np.full(len(wanted), NOTHING, np.int64)
        if numbers.any():
            found[numbers] = self.find(wanted.filter(pa.array(numbers)))
        large = pc.match_substring_regex(wanted, "^-?[0-9]{19}$").to_numpy(zero_copy_only=False)
        if large.any():
            found[large] = find_all(self._ids, wanted.filter(pa.array(large)))
        return found

    def _find(self, asked: Numbers) -> Numbers:
        if self._values is None:
            inside = (asked >= self._low) & (asked <= self._high)
            found = self._numbers.take(np.where(inside, asked - self._low, 0))
            found[~inside] = NOTHING
            return found
        at = np.minimum(np.searchsorted(self._values, asked), len(self._values) - 1)
        return np.where(self._values.take(at) == asked, self._numbers.take(at), NOTHING)
