"""What one commit did to the entities of a type: which came, which changed, which went."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import VersionReclaimedError
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.read.export.json_text import json_text
from omnigraph.storage.lookup import in_groups
from omnigraph.storage.tables import TableRef, TableStorage

_ID = "id"
_ROW_ID = "_rowid"
_TOGETHER = 1 << 16
"""How many rows are compared with what they were at a time, about."""

_LOOKED_UP = 8192
"""Up to so many ids, rows are looked up; above it, the table is read once."""

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
    reader = _Rows(tables, columns)
    for rows in reader.written(begin, end):
        before = reader.lookup(begin, rows[_ID])
        there = pc.is_in(rows[_ID], value_set=before[_ID].combine_chunks())
        new = rows.filter(pc.invert(there))
        if new.num_rows:
            yield Changed(Kind.INSERT, new)
        old = rows.filter(there)
        if old.num_rows:
            order = pc.index_in(old[_ID], value_set=before[_ID].combine_chunks())
            other = pc.invert(_same(old, before.take(order), columns))
            if pc.any(other).as_py():
                yield Changed(Kind.UPDATE, old.filter(other))
    gone = reader.gone(begin, end)
    for first in range(0, len(gone), _TOGETHER):
        rows = reader.lookup(begin, pa.chunked_array([gone.slice(first, _TOGETHER)]))
        yield Changed(Kind.DELETE, rows.sort_by(_ID))


class _Rows:
    """Reads the columns that count."""

    def __init__(self, tables: TableStorage, columns: Mapping[str, ValueType]) -> None:
        self._tables = tables
        self._names = list(columns)
        self._blobs = any(type_.scalar is Scalar.BLOB for type_ in columns.values())

    def written(self, begin: TableRef, end: TableRef) -> Iterator[pa.Table]:
        """What is new in the later version, some at a time; it may be as it was."""
        if self._follows(begin, end):
            batches = self._tables.difference(begin, end).rows.batches(self._names)
        else:
            batches = self._all(end)
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            if sum(batch.num_rows for batch in held) >= _TOGETHER or self._blobs:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)

    def gone(self, begin: TableRef, end: TableRef) -> pa.Array:
        """The ids that only the earlier version has, sorted."""
        if self._follows(begin, end):
            return self._tables.difference(begin, end).deleted
        ids = self._tables.scan(begin, columns=[_ID])[_ID].combine_chunks()
        kept = self._tables.scan(end, columns=[_ID])[_ID].combine_chunks()
        return ids.filter(pc.invert(pc.is_in(ids, value_set=kept))).sort()

    def _follows(self, begin: TableRef, end: TableRef) -> bool:
        """Whether one version came out of the other, so that Lance knows what happened between them."""
        return follows(self._tables, begin, end)

    def _all(self, ref: TableRef) -> Iterator[pa.RecordBatch]:
        numbers = [fragment.number for fragment in self._tables.fragments(ref)]
        return self._tables.read_fragments(ref, numbers, columns=self._names, batch_rows=_TOGETHER)

    def lookup(self, ref: TableRef, ids: pa.ChunkedArray) -> pa.Table:
        """Entities of a version by id."""
        columns = [*self._names, _ROW_ID] if self._blobs else self._names
        wanted = ids.combine_chunks()
        if len(wanted) <= _LOOKED_UP:
            rows = self._tables.scan(ref, columns=columns, filter=pc.field(_ID).isin(wanted))
        else:
            # The values are prepared anew for every comparison, so there should be few of those.
            groups = in_groups(self._tables.batches(ref, columns=columns), _COMPARED)
            found = [group.filter(pc.is_in(group[_ID], value_set=wanted)) for group in groups]
            rows = pa.concat_tables(found) if found else self._tables.scan(ref, columns=columns, limit=0)
        if not self._blobs or rows.num_rows == 0:
            return rows.select(self._names)
        return pa.concat_tables([part.select(self._names) for part in self._tables.content(ref, rows)])


def follows(tables: TableStorage, begin: TableRef, end: TableRef) -> bool:
    """Whether a version of a table came out of another."""
    if begin.path != end.path or begin.version > end.version:
        return False
    if begin.branch == end.branch:
        return True
    try:
        return tables.parts(end.at(begin.version)) == tables.parts(begin)
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
