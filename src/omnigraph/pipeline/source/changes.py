"""The rows of a type that a commit inserted, updated and deleted."""

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
BATCH_ROWS = 1 << 16
"""Approximate number of rows to compare at a time."""

MAX_LOOKUP_IDS = 8192
"""Up to this number of ids, rows are looked up by id; above it, the table is scanned once."""

MAX_ROWS_IN_MEMORY = 1_000_000
"""Up to this number of changed rows, their old rows stay in memory. Beyond it, old rows are looked up per batch."""

_COMPARE_ROWS = 1_000_000
"""Minimum number of scanned rows per comparison with a set of ids."""

_COMPARED_AS_TEXT = frozenset({Scalar.F32, Scalar.F64, Scalar.VECTOR})


class Kind(StrEnum):
    """The kind of a change."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows with the same kind of change.

    Attributes:
        kind: the kind of the change.
        rows: the new rows; for deletes, the old rows. The columns are those of the table; blobs have their content.
    """

    kind: Kind
    rows: pa.Table


def changed_rows(
    tables: TableStorage, begin: TableRef, end: TableRef, columns: Mapping[str, ValueType]
) -> Iterator[ChangedRows]:
    """The changes between two versions of a table. A row that was rewritten with equal values is not a change.

    Args:
        tables: the tables.
        begin: the earlier version.
        end: the later version.
        columns: the stored columns to compare and return, with their types. `id` must be among them.
    """
    reader = _VersionReader(tables, begin, end, columns)
    existing_ids = reader.existing_ids()
    for rows in reader.added_batches():
        exists = pc.is_in(rows[_ID], value_set=existing_ids)
        new = rows.filter(pc.invert(exists))
        if new.num_rows:
            yield ChangedRows(Kind.INSERT, new)
        old = rows.filter(exists)
        if old.num_rows:
            other = pc.invert(_equal_rows(old, reader.old_rows(old[_ID]), columns))
            if pc.any(other).as_py():
                yield ChangedRows(Kind.UPDATE, old.filter(other))
    deleted_ids = reader.deleted_ids()
    for first in range(0, len(deleted_ids), BATCH_ROWS):
        rows = reader.lookup(deleted_ids.slice(first, BATCH_ROWS))
        yield ChangedRows(Kind.DELETE, rows.sort_by(_ID))


class _VersionReader:
    """Reads the compared columns of two versions."""

    def __init__(self, tables: TableStorage, begin: TableRef, end: TableRef, columns: Mapping[str, ValueType]) -> None:
        self._tables = tables
        self._begin = begin
        self._end = end
        self._names = list(columns)
        self._blobs = any(type_.scalar is Scalar.BLOB for type_ in columns.values())
        # If one version is a descendant of the other, Lance lists the changed rows.
        self._known = tables.at(end).changes_since(begin) if is_descendant(tables, begin, end) else None

    def _added(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows that the later version wrote: new rows, and rewritten rows, whose values may be unchanged."""
        if self._known is not None:
            return self._known.rows.batches(columns)
        numbers = [fragment.number for fragment in self._tables.at(self._end).fragments()]
        return self._tables.at(self._end).read_fragments(numbers, columns=columns, batch_rows=BATCH_ROWS)

    def added_batches(self) -> Iterator[pa.Table]:
        """The written rows, in batches of about `BATCH_ROWS`."""
        held: list[pa.RecordBatch] = []
        for batch in self._added(self._names):
            held.append(batch)
            if self._blobs or sum(batch.num_rows for batch in held) >= BATCH_ROWS:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)

    def existing_ids(self) -> pa.Array:
        """The ids of written rows that the earlier version also has."""
        ids = pa.chunked_array([batch.column(_ID) for batch in self._added([_ID])], pa.utf8())
        return self._tables.at(self._begin).lookup(_ID, ids, columns=[_ID])[_ID].combine_chunks()

    @cached_property
    def _cached_old_rows(self) -> pa.Table | None:
        """The old rows of all rewritten rows; None if there are too many to keep in memory."""
        ids = self.existing_ids()
        return None if self._blobs or len(ids) > MAX_ROWS_IN_MEMORY else self.lookup(ids)

    def old_rows(self, ids: pa.ChunkedArray) -> pa.Table:
        """The old rows with the given ids, in that order."""
        held = self._cached_old_rows
        found = self.lookup(ids.combine_chunks()) if held is None else held
        return found.take(pc.index_in(ids, value_set=found[_ID].combine_chunks()))

    def deleted_ids(self) -> pa.Array:
        """The ids that only the earlier version has, sorted."""
        if self._known is not None:
            return self._known.deleted
        ids, remaining = (
            self._tables.at(ref).scan(columns=[_ID])[_ID].combine_chunks() for ref in (self._begin, self._end)
        )
        return ids.filter(pc.invert(pc.is_in(ids, value_set=remaining))).sort()

    def lookup(self, ids: pa.Array) -> pa.Table:
        """Rows of the earlier version by id."""
        columns = [*self._names, _ROW_ID] if self._blobs else self._names
        if len(ids) <= MAX_LOOKUP_IDS:
            rows = self._tables.at(self._begin).scan(columns=columns, filter=pc.field(_ID).isin(ids))
        else:
            # Each comparison builds a new hash set of the ids, so each compares many rows.
            groups = in_groups(self._tables.at(self._begin).batches(columns=columns), _COMPARE_ROWS)
            rows = pa.concat_tables([group.filter(pc.is_in(group[_ID], value_set=ids)) for group in groups])
        if not self._blobs or rows.num_rows == 0:
            return rows.select(self._names)
        return pa.concat_tables([part.select(self._names) for part in self._tables.at(self._begin).content(rows)])


def is_descendant(tables: TableStorage, begin: TableRef, end: TableRef) -> bool:
    """Whether a version of a table is a descendant of another."""
    if begin.path != end.path or begin.version > end.version:
        return False
    if begin.branch == end.branch:
        return True
    try:
        return tables.at(end.at(begin.version)).fragment_digests() == tables.at(begin).fragment_digests()
    except VersionReclaimedError:
        return False


def _equal_rows(left: pa.Table, right: pa.Table, columns: Mapping[str, ValueType]) -> pa.Array:
    """Which rows have equal values. Nulls are equal, and 0.0 differs from -0.0."""
    tests = [_equal(_column(left, name), _column(right, name), type_) for name, type_ in columns.items() if name != _ID]
    return functools.reduce(pc.and_, tests, pa.repeat(pa.scalar(True), left.num_rows))


def _equal(left: pa.Array, right: pa.Array, type_: ValueType) -> pa.Array:
    if type_.scalar is Scalar.BLOB:
        if not (pa.types.is_struct(left.type) and pa.types.is_struct(right.type)):
            return pa.repeat(pa.scalar(True), len(left))  # all blobs are null
        members = [_null_safe(pc.struct_field(left, name), pc.struct_field(right, name)) for name in ("data", "uri")]
        return pc.and_(pc.equal(left.is_null(), right.is_null()), functools.reduce(pc.and_, members))
    if type_.list or type_.scalar in _COMPARED_AS_TEXT:
        left, right = json_text(left, type_), json_text(right, type_)
    return _null_safe(left, right)


def _null_safe(left: pa.Array, right: pa.Array) -> pa.Array:
    both = pc.and_(left.is_null(), right.is_null())
    return pc.or_(both, pc.equal(left, right).fill_null(False))


def _column(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()


def with_id(columns: Sequence[str]) -> list[str]:
    """The columns with `id` first."""
    return list(dict.fromkeys([_ID, *columns]))
