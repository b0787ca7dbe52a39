"""How versions of a table are related: what happened to its entities since something was made from an earlier one.

That is known when the earlier version lies on the way to the one that is read. Either the table only grew by parts,
which the names of parts tell. Or the earlier version can still be opened and is the one that was read; then Lance knows
for each row when it was written last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa

from omnigraph.read.derived import Origin
from omnigraph.read.space.numbers import Mask, Numbers
from omnigraph.read.space.space import Space

_ROW_ID = "_rowid"
_WRITTEN = "_row_last_updated_at_version"

_NONE: Numbers = np.array([], np.int64)


class Path(Enum):
    """How a version lies on the way to another."""

    SAME = "same"
    GREW = "grew"
    LATER = "later"


def origin_of(space: Space) -> Origin:
    """The version that is read, for what is made from it."""
    known = space.numbering
    base = None if known.row_ids is not None else known.base
    return Origin(space.fingerprint, space.ref.version, base, known.slots, space.parts, space.count)


def path(origin: Origin, space: Space) -> Path | None:
    """How an earlier version lies on the way to the one that is read; None when it does not, or nobody can tell."""
    if origin.base is None:
        return None
    if origin.fingerprint == space.fingerprint:
        return Path.SAME
    if origin.parts and space.parts[: len(origin.parts)] == origin.parts:
        return Path.GREW
    return Path.LATER if origin.fingerprint == space.earlier_fingerprint(origin.version) else None


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to the entities of a table.

    Attributes:
        row_ids: those that came or were written.
        values: columns of them.
        gone: how many went or were written.
        untouched: the row ids of all others, if some may be gone; None when all that there were are as they were.
        first: the least row id that there is now, or was.
        last: the largest one.
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


def change(origin: Origin, space: Space, columns: Sequence[str], small: int) -> Change | None:
    """What happened since an earlier version; None when that is unknown, does not add up, or is much.

    Args:
        origin: the earlier version.
        space: the version that is read.
        columns: what is asked about the entities that came or were written.
        small: when more than one of so many entities came or were written, that is much.
    """
    way = path(origin, space)
    if way is None or origin.base is None or (space.count - origin.count) * small > space.count:
        return None
    last = origin.base + origin.slots - 1
    if way is Path.SAME:
        return Change(_NONE, _nothing(space, columns), 0, None, origin.base, last)
    if way is Path.GREW:
        rows = space.read([*columns, _ROW_ID], after=len(origin.parts))
        row_ids = _row_ids(rows)
        if origin.count + len(row_ids) != space.count:
            return None
        first, last = min(origin.base, _least(row_ids)), max(last, _most(row_ids))
        return Change(row_ids, rows.select(list(columns)), 0, None, first, last)
    known = space.read([_ROW_ID, _WRITTEN])
    all_ids = _row_ids(known)
    written: Mask = known[_WRITTEN].to_numpy() > origin.version
    row_ids, untouched = all_ids[written], all_ids[~written]
    gone = origin.count - len(untouched)
    if gone < 0 or len(row_ids) * small > space.count:
        return None
    values = space.rows(row_ids, columns) if len(row_ids) else _nothing(space, columns)
    return Change(row_ids, values, gone, untouched, _least(all_ids), _most(all_ids))


def _nothing(space: Space, columns: Sequence[str]) -> pa.Table:
    return pa.schema([space.schema.field(name) for name in columns]).empty_table()


def _row_ids(rows: pa.Table) -> Numbers:
    found: Numbers = rows[_ROW_ID].to_numpy().view(np.int64)
    return found


def _least(row_ids: Numbers) -> int:
    return int(row_ids.min()) if len(row_ids) else 2**62


def _most(row_ids: Numbers) -> int:
    return int(row_ids.max()) if len(row_ids) else -1
