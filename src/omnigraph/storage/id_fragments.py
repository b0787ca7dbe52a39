"""Remembers which small fragments have which ids, so that a lookup by id need not read all of them.

A write of few rows adds a small fragment, which no index covers until the next `optimize`. Lance reads every such
fragment for each lookup. This module reads the ids of a fragment once. A lookup then reads only the fragments that may
have its ids: the remembered ones with these ids, and all that are not remembered, where an index may help.
"""

# See docs/decisions/0215-ids-of-small-fragments-are-remembered.md

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from omnigraph.storage.scans import filtered, numbered, one_of, scanner
from omnigraph.storage.table_files import data_file_name

MOST_LOOKUPS = 1_000
"""Maximum number of ids for which single fragments are chosen. For more, reading them one by one does not pay."""

_ID, _ROW_ID, _ADDRESS = "id", "_rowid", "_rowaddr"
SMALL_ROWS = 4_096
"""Maximum number of rows of a fragment whose ids are remembered."""

CAPACITY = 100_000
"""Maximum number of ids to remember per table."""


class IdFragments:
    """The ids of the small fragments of one branch of a table.

    A fragment has the same rows in all versions, except for those that a later version deletes. Ids are read while no
    row of the fragment is deleted. So they stay true for all versions: they say where an id may be, and the lookup
    finds out whether it is there in its version.

    An undone write may leave a version in which a number belongs to another fragment. So only fragments of the version
    that was used last are remembered. If the newest of them that another version has is the same fragment there, both
    versions have the history before it in common, and all older ones are the same, too.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._places: dict[str, tuple[int, ...]] = {}
        """The remembered fragments that have an id."""
        self._remembered: dict[int, str] = {}
        """The remembered fragments, with the name of a data file, which is unique."""
        self._others: set[int] = set()
        """The fragments that are not remembered: large ones, and those that an index covers."""

    def rows(self, dataset: LanceDataset, ids: pa.Array, columns: Sequence[str]) -> pa.Table:
        """The rows of a version with one of some distinct ids, in no order.

        Args:
            dataset: the version.
            ids: at most `MOST_LOOKUPS` ids.
            columns: the columns to read.
        """
        places, others = self._choose(dataset, ids.to_pylist())
        if others is None:
            return _read(dataset, ids, columns, None)
        read = list(dict.fromkeys([*columns, _ID]))
        found = _read(dataset, ids, read, places)
        left = ids.filter(pc.invert(pc.is_in(ids, value_set=found[_ID])))
        if len(left) and others:
            rest = _read(dataset, left, read, others)
            found = pa.concat_tables([found, rest]) if found.num_rows else rest
        return found.select(list(columns))

    def note(self, dataset: LanceDataset, file: str, ids: pa.Array) -> None:
        """Remember a fragment of a version that was just committed, without reading it.

        Args:
            dataset: the version.
            file: the path of the data file of the fragment. Another fragment is not remembered.
            ids: the ids of all rows of the fragment, and maybe more.
        """
        number = max(dataset.fragment_ids())
        with self._lock:
            self._forget_others(dataset, set(dataset.fragment_ids()))
            if len(ids) > SMALL_ROWS or len(self._places) + len(ids) > CAPACITY or number in self._remembered:
                return
            if file.endswith(f"/{_file(dataset, number)}"):
                self._remember(dataset, [number], ids.to_pylist(), [number] * len(ids))

    def _remember(
        self, dataset: LanceDataset, fragments: Sequence[int], ids: Iterable[str], numbers: Iterable[int]
    ) -> None:
        for one, number in zip(ids, numbers, strict=True):
            self._places[one] = (*self._places.get(one, ()), number)
        self._remembered |= {number: _file(dataset, number) for number in fragments}

    def _choose(self, dataset: LanceDataset, ids: Iterable[str]) -> tuple[list[int], list[int] | None]:
        """The remembered fragments of a version that may have the ids, and all that are not remembered.

        The second is None if no fragment is remembered: then Lance reads the whole table.
        """
        present = set(dataset.fragment_ids())
        with self._lock:
            self._forget_others(dataset, present)
            new = present - self._remembered.keys() - self._others
            if new:
                self._add(dataset, new, present)
            others = present & self._others
            if len(others) == len(present):
                return [], None
            # A place may be that of a fragment that was forgotten. Then the fragment with this number is read in vain.
            found = {number for one in ids for number in self._places.get(one, ()) if number in self._remembered}
            return sorted(found), sorted(others)

    def _forget_others(self, dataset: LanceDataset, present: set[int]) -> None:
        """Forget the fragments that a version does not have, and all if it has another one with the same number."""
        for number in self._remembered.keys() - present:
            del self._remembered[number]
        self._others &= present
        if not self._remembered:
            self._places.clear()  # the fragments that had these ids were packed into others
        newest = max(self._remembered, default=None)
        if newest is not None and _file(dataset, newest) != self._remembered[newest]:
            self._clear()

    def _clear(self) -> None:
        self._places.clear()
        self._remembered.clear()
        self._others.clear()

    def _add(self, dataset: LanceDataset, new: set[int], present: set[int]) -> None:
        """Read the ids of new fragments, if they are small and no index covers them."""
        chosen, size = self._small(dataset, new)
        if len(self._places) + size > CAPACITY and new != present:
            # Most of the ids may be those of fragments that no longer exist.
            self._clear()
            chosen, size = self._small(dataset, new := present)
        if chosen:
            rows = scanner(dataset, columns=[_ID, _ADDRESS], fragments=numbered(dataset, chosen)).to_table()
            numbers = pc.shift_right(rows[_ADDRESS], pa.scalar(32, pa.uint64())).to_pylist()
            self._remember(dataset, chosen, rows[_ID].to_pylist(), numbers)
        self._others |= new.difference(chosen)

    def _small(self, dataset: LanceDataset, numbers: set[int]) -> tuple[list[int], int]:
        """The fragments whose ids to remember, and the number of their rows."""
        covered = _covered(dataset)
        chosen, size = [], 0
        for number in sorted(numbers - covered, reverse=True):
            fragment = dataset.get_fragment(number)
            assert fragment is not None
            rows = fragment.physical_rows
            # A deleted row exists in earlier versions, and again if the deletion is undone.
            if not fragment.num_deletions and rows <= SMALL_ROWS and size + rows <= CAPACITY:
                chosen.append(number)
                size += rows
        return chosen, size


def _covered(dataset: LanceDataset) -> set[int]:
    """The fragments that an index of the ids covers."""
    return {
        number
        for index in dataset.describe_indices()
        if list(index.field_names) == [_ID]
        for segment in index.segments
        for number in segment.fragment_ids
    }


def _file(dataset: LanceDataset, number: int) -> str:
    fragment = dataset.get_fragment(number)
    assert fragment is not None
    return data_file_name(fragment.metadata.files[0])


def _read(dataset: LanceDataset, ids: pa.Array, columns: Sequence[str], numbers: Sequence[int] | None) -> pa.Table:
    if numbers is not None and not numbers:
        return pa.schema([_field(dataset, name) for name in columns]).empty_table()
    return filtered(dataset, columns, one_of(_ID, ids), len(ids), few=True, fragments=numbers)


def _field(dataset: LanceDataset, name: str) -> pa.Field:
    return pa.field(name, pa.uint64()) if name in (_ROW_ID, _ADDRESS) else dataset.schema.field(name)
