"""What one commit did to the entities of a type: which came, which changed, which went."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import VersionReclaimedError
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.read.export.json_text import json_text
from omnigraph.storage.lookup import in_groups
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

_ID = "id"
_ROW_ID = "_rowid"
_TOGETHER = 1 << 16
"""How many rows are compared with what they were at a time, about."""

_LOOKED_UP = 8192
"""Up to so many ids, rows are looked up; above it, the table is read once."""

_HELD = 1_000_000
"""Up to so many entities are held in memory as they were; above it, they are looked up again and again."""

_COMPARED = 1_000_000
"""How many rows of a table are compared with ids at once, at least."""

_COMPARED_AS_TEXT = frozenset({Scalar.F32, Scalar.F64, Scalar.VECTOR})


class Kind(StrEnum):
    """What happened to an entity."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Changed:
    """Some entities to which the same happened.

    Attributes:
        kind: what.
        rows: as they are now; for those that went, as they were. Columns as they are stored, blobs with their content.
    """

    kind: Kind
    rows: pa.Table


def changed(
    tables: TableStorage, begin: TableRef, end: TableRef, columns: Mapping[str, ValueType]
) -> Iterator[Changed]:
    """What happened between two versions of a table. A row that was written with equal values did not change.

    Args:
        tables: the tables.
        begin: the earlier version.
        end: the later one.
        columns: the stored columns that count, `id` among them, and their types.
    """
    reader = _Rows(tables, begin, end, columns)
    earlier = reader.earlier()
    for rows in reader.written():
        there = pc.is_in(rows[_ID], value_set=earlier)
        new = rows.filter(pc.invert(there))
        if new.num_rows:
            yield Changed(Kind.INSERT, new)
        old = rows.filter(there)
        if old.num_rows:
            other = pc.invert(_same(old, reader.before(old[_ID]), columns))
            if pc.any(other).as_py():
                yield Changed(Kind.UPDATE, old.filter(other))
    gone = reader.gone()
    for first in range(0, len(gone), _TOGETHER):
        rows = reader.lookup(gone.slice(first, _TOGETHER))
        yield Changed(Kind.DELETE, rows.sort_by(_ID))


class _Rows:
    """Reads the columns that count from two versions."""

    def __init__(self, tables: TableStorage, begin: TableRef, end: TableRef, columns: Mapping[str, ValueType]) -> None:
        self._tables = tables
        self._begin = begin
        self._end = end
        self._names = list(columns)
        self._blobs = any(type_.scalar is Scalar.BLOB for type_ in columns.values())
        # Where one version came out of the other, Lance knows what happened between them.
        self._known = tables.at(end).changes_since(begin) if follows(tables, begin, end) else None

    def _new(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """What is new in the later version; it may be as it was."""
        if self._known is not None:
            return self._known.rows.batches(columns)
        numbers = [fragment.number for fragment in self._tables.at(self._end).fragments()]
        return self._tables.at(self._end).read_fragments(numbers, columns=columns, batch_rows=_TOGETHER)

    def written(self) -> Iterator[pa.Table]:
        """What is new, some at a time."""
        held: list[pa.RecordBatch] = []
        for batch in self._new(self._names):
            held.append(batch)
            if self._blobs or sum(batch.num_rows for batch in held) >= _TOGETHER:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)

    def earlier(self) -> pa.Array:
        """The ids of what is new that the earlier version has, too."""
        ids = pa.chunked_array([batch.column(_ID) for batch in self._new([_ID])], pa.utf8())
        return self._tables.at(self._begin).lookup(_ID, ids, columns=[_ID])[_ID].combine_chunks()

    @cached_property
    def _before(self) -> pa.Table | None:
        """All that is new, as it was, if that is not too much to hold."""
        ids = self.earlier()
        return None if self._blobs or len(ids) > _HELD else self.lookup(ids)

    def before(self, ids: pa.ChunkedArray) -> pa.Table:
        """Entities as they were, one for each id, in that order."""
        held = self._before
        found = self.lookup(ids.combine_chunks()) if held is None else held
        return found.take(pc.index_in(ids, value_set=found[_ID].combine_chunks()))

    def gone(self) -> pa.Array:
        """The ids that only the earlier version has, sorted."""
        if self._known is not None:
            return self._known.deleted
        ids, kept = (self._tables.at(ref).scan(columns=[_ID])[_ID].combine_chunks() for ref in (self._begin, self._end))
        return ids.filter(pc.invert(pc.is_in(ids, value_set=kept))).sort()

    def lookup(self, ids: pa.Array) -> pa.Table:
        """Entities of the earlier version by id."""
        columns = [*self._names, _ROW_ID] if self._blobs else self._names
        if len(ids) <= _LOOKED_UP:
            rows = self._tables.at(self._begin).scan(columns=columns, filter=pc.field(_ID).isin(ids))
        else:
            # The values are prepared anew for every comparison, so there should be few of those.
            groups = in_groups(self._tables.at(self._begin).batches(columns=columns), _COMPARED)
            rows = pa.concat_tables([group.filter(pc.is_in(group[_ID], value_set=ids)) for group in groups])
        if not self._blobs or rows.num_rows == 0:
            return rows.select(self._names)
        return pa.concat_tables([part.select(self._names) for part in self._tables.at(self._begin).content(rows)])


def follows(tables: TableStorage, begin: TableRef, end: TableRef) -> bool:
    """Whether a version of a table came out of another."""
    if begin.path != end.path or begin.version > end.version:
        return False
    if begin.branch == end.branch:
        return True
    try:
        return tables.at(end.at(begin.version)).fragment_digests() == tables.at(begin).fragment_digests()
    except VersionReclaimedError:
        return False


def _same(left: pa.Table, right: pa.Table, columns: Mapping[str, ValueType]) -> pa.Array:
    """Which rows have equal values. Nulls are equal, and 0.0 is not -0.0."""
    tests = [_equal(_whole(left, name), _whole(right, name), type_) for name, type_ in columns.items() if name != _ID]
    return functools.reduce(pc.and_, tests, pa.repeat(pa.scalar(True), left.num_rows))


def _equal(left: pa.Array, right: pa.Array, type_: ValueType) -> pa.Array:
    if type_.scalar is Scalar.BLOB:
        if not (pa.types.is_struct(left.type) and pa.types.is_struct(right.type)):
            return pa.repeat(pa.scalar(True), len(left))  # no row has one
        members = [_null_safe(pc.struct_field(left, name), pc.struct_field(right, name)) for name in ("data", "uri")]
        return pc.and_(pc.equal(left.is_null(), right.is_null()), functools.reduce(pc.and_, members))
    if type_.list or type_.scalar in _COMPARED_AS_TEXT:
        left, right = json_text(left, type_), json_text(right, type_)
    return _null_safe(left, right)


def _null_safe(left: pa.Array, right: pa.Array) -> pa.Array:
    both = pc.and_(left.is_null(), right.is_null())
    return pc.or_(both, pc.equal(left, right).fill_null(False))


def _whole(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()


def names_of(columns: Sequence[str]) -> list[str]:
    """Stored columns with the id, which tells entities apart."""
    return list(dict.fromkeys([_ID, *columns]))
