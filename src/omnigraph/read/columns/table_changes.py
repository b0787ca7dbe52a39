"""Differences between two versions of a table, for updating derived data incrementally.

The earlier version has to be in the history of the current version. There are two cases. If the table only got new
fragments, which the fragment names show, the new rows are in those fragments. Otherwise the earlier version must still
exist; then the changed rows are those whose last write, which Lance records in each row, is later.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.read.columns.derived_files import Origin
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import Mask, Numbers

_ROW_ID = "_rowid"
_WRITTEN = "_row_last_updated_at_version"

_NONE: Numbers = np.array([], np.int64)


class Path(Enum):
    """How the current version of a table developed from an earlier version."""

    SAME = "same"
    """Both versions have the same data."""
    GREW = "grew"
    """The current version has additional fragments, and is otherwise unchanged."""
    LATER = "later"
    """The current version has other changes."""


def origin_of(table: EntityTable) -> Origin:
    """Describe the current version of a table, for data that is derived from it."""
    known = table.numbering
    base = None if known.row_ids is not None else known.base
    return Origin(table.fingerprint, table.ref.version, base, known.slots, table.parts, table.count)


def path(origin: Origin, table: EntityTable) -> Path | None:
    """How the current version developed from an earlier version; None if this is unknown.

    It is unknown if the earlier version is not in the history of the current version, or cannot be read.
    """
    if origin.base is None:
        return None
    if origin.fingerprint == table.fingerprint:
        return Path.SAME
    if origin.parts and table.parts[: len(origin.parts)] == origin.parts:
        return Path.GREW
    return Path.LATER if origin.fingerprint == table.earlier_fingerprint(origin.version) else None


@dataclass(frozen=True, slots=True)
class Change:
    """Changes of the entities of a table between two versions.

    Attributes:
        row_ids: row ids of inserted and updated entities.
        values: the current values of these entities.
        gone: number of entities of the earlier version that were deleted or updated.
        untouched: row ids of the unchanged entities; None if no entity was deleted or updated.
        first: lower bound of the row ids of the current version.
        last: upper bound of the row ids of the current version.
    """

    row_ids: Numbers
    values: pa.Table
    gone: int
    untouched: Numbers | None
    first: int
    last: int

    @property
    def is_nothing(self) -> bool:
        return len(self.row_ids) == 0 and self.gone == 0


def change(origin: Origin, table: EntityTable, columns: Sequence[str], small: int) -> Change | None:
    """Changes since an earlier version; None if they are unknown, inconsistent with the row counts, or too many.

    Args:
        origin: the earlier version.
        table: the current version.
        columns: columns to read for inserted and updated entities.
        small: the changes are too many if more than 1 / `small` of all entities were inserted or updated.
    """
    relation = path(origin, table)
    if relation is None or origin.base is None or (table.count - origin.count) * small > table.count:
        return None
    last = origin.base + origin.slots - 1
    if relation is Path.SAME:
        return Change(_NONE, _nothing(table, columns), 0, None, origin.base, last)
    if relation is Path.GREW:
        rows = table.read([*columns, _ROW_ID], after=len(origin.parts))
        row_ids = _row_ids(rows)
        if origin.count + len(row_ids) != table.count:
            return None
        first, last = min(origin.base, _least(row_ids)), max(last, _most(row_ids))
        return Change(row_ids, rows.select(list(columns)), 0, None, first, last)
    known = table.read([_ROW_ID, _WRITTEN])
    all_ids = _row_ids(known)
    written: Mask = known[_WRITTEN].to_numpy() > origin.version
    row_ids, untouched = all_ids[written], all_ids[~written]
    gone = origin.count - len(untouched)
    if gone < 0 or len(row_ids) * small > table.count:
        return None
    values = table.rows(row_ids, columns) if len(row_ids) else _nothing(table, columns)
    return Change(row_ids, values, gone, untouched, _least(all_ids), _most(all_ids))


def _nothing(table: EntityTable, columns: Sequence[str]) -> pa.Table:
    return pa.schema([table.schema.field(name) for name in columns]).empty_table()


def _row_ids(rows: pa.Table) -> Numbers:
    found: Numbers = rows[_ROW_ID].to_numpy().view(np.int64)
    return found


def _least(row_ids: Numbers) -> int:
    return int(row_ids.min()) if len(row_ids) else 2**62


def _most(row_ids: Numbers) -> int:
    return int(row_ids.max()) if len(row_ids) else -1
