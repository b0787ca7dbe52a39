"""Writes to one table: one class per operation. `is_empty` detects that nothing changes, `stage` writes the files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Models
from omnigraph.commit.read_set import ReadSet
from omnigraph.dataclass import dataclass
from omnigraph.errors import KeyConflictError
from omnigraph.storage.column_changes import NewValues, has_columns, stage_columns
from omnigraph.storage.indexes import IndexSpec
from omnigraph.storage.layouts import Layout, stage_layout
from omnigraph.storage.row_changes import KnownRows, RemovedRows, RowSource
from omnigraph.storage.staged import Staged
from omnigraph.storage.staging import (
    key_conflict,
    stage_append,
    stage_change,
    stage_delete,
    stage_delete_ids,
    stage_fragments,
    stage_indexes,
    stage_insert,
    stage_overwrite,
    stage_replaced,
    stage_upsert,
)
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.table_view import TableView

_ID = "id"
_NO_IDS = pa.array([], pa.utf8())


@dataclass(frozen=True, slots=True)
class TableWrite(ABC):
    """One operation on one table. A commit has at most one per table.

    Attributes:
        key: the type key, `node:<Type>` or `edge:<Type>`.
        models: the embedding models of the table after the write; None if the write does not change them. If a write
            replaces all rows and `models` is None, the table has no computed vectors.
    """

    replaces_table: ClassVar[bool] = False
    """Whether the write replaces all rows of the table."""

    key: str
    models: Models | None = field(default=None, kw_only=True)

    @abstractmethod
    def is_empty(self, table: TableView, row_count: int) -> bool:
        """Whether the write certainly changes nothing. Then no fork of the table is needed.

        Args:
            table: the version that the graph points at.
            row_count: the number of its rows.
        """

    @abstractmethod
    def stage(self, table: TableView) -> Staged | None:
        """Write the files. None if there is nothing to change."""

    def note_reads(self, reads: ReadSet) -> None:
        """Add the rows that the write depends on to a read set. Staging adds the ids that it looks up."""
        if self.replaces_table:
            reads.whole.add(self.key)

    def restage(self, table: TableView, earlier: Staged, base: TableRef) -> Staged | None:
        """Reuse the files of an earlier attempt of the same write; None if it has to be staged again.

        Args:
            table: the version that the graph points at.
            earlier: the result of the earlier attempt.
            base: the version to stage against.
        """
        return None

    def is_retry_of(self, earlier: TableWrite) -> bool:
        """Whether an earlier attempt wrote the same rows with the same operation."""
        return False

    @property
    def fork(self) -> TableRef | None:
        """The fork (Lance branch of the table) in which other processes wrote fragments for this write."""
        return None

    @property
    def has_fragments(self) -> bool:
        """Whether other processes wrote fragments for this write."""
        return False

    def touched_ids(self, table: TableView) -> pa.Array | None:
        """Ids of the rows that the write inserts, changes or deletes; None if unknown or if it replaces the table.

        Args:
            table: the version that the write applies to.
        """
        return None


@dataclass(frozen=True, slots=True)
class _RowsWrite(TableWrite):
    """A write of rows that are in memory, or memory-mapped."""

    rows: pa.Table

    def is_empty(self, table: TableView, row_count: int) -> bool:
        return bool(self.rows.num_rows == 0)

    def restage(self, table: TableView, earlier: Staged, base: TableRef) -> Staged | None:
        return earlier.rebase(base)

    def is_retry_of(self, earlier: TableWrite) -> bool:
        return isinstance(earlier, type(self)) and earlier.rows is self.rows

    def touched_ids(self, table: TableView) -> pa.Array | None:
        return pa.concat_arrays([_NO_IDS, *self.rows[_ID].chunks])


@dataclass(frozen=True, slots=True)
class Append(_RowsWrite):
    """Add rows, without a check for duplicate ids."""

    def stage(self, table: TableView) -> Staged | None:
        return stage_append(table, self.rows)


@dataclass(frozen=True, slots=True)
class Insert(_RowsWrite):
    """Add rows whose ids must not exist."""

    def stage(self, table: TableView) -> Staged | None:
        try:
            return stage_insert(table, self.rows)
        except KeyConflictError as error:
            raise KeyConflictError(self.key, error.entity_id, ids=error.ids, total=error.total) from error

    def restage(self, table: TableView, earlier: Staged, base: TableRef) -> Staged | None:
        taken = table.lookup(_ID, self.rows[_ID], columns=[_ID])
        if taken.num_rows:
            raise key_conflict(self.key, taken)
        staged = earlier.rebase(base)
        return None if staged is None else replace(staged, ids=self.rows[_ID])


@dataclass(frozen=True, slots=True)
class Upsert(_RowsWrite):
    """Replace the rows with the same ids, and add the others."""

    def stage(self, table: TableView) -> Staged | None:
        return stage_upsert(table, self.rows)


@dataclass(frozen=True, slots=True)
class Overwrite(_RowsWrite):
    """Replace all rows of the table."""

    replaces_table: ClassVar[bool] = True

    def is_empty(self, table: TableView, row_count: int) -> bool:
        return bool(self.rows.num_rows == 0) and row_count == 0

    def stage(self, table: TableView) -> Staged | None:
        return stage_overwrite(table, self.rows)

    def is_retry_of(self, earlier: TableWrite) -> bool:
        return False  # an overwrite also depends on the rows that it replaces

    def touched_ids(self, table: TableView) -> pa.Array | None:
        return None


@dataclass(frozen=True, slots=True)
class DeleteWhere(TableWrite):
    """Delete the rows that match a condition."""

    where: pc.Expression

    def is_empty(self, table: TableView, row_count: int) -> bool:
        return table.count(self.where) == 0

    def stage(self, table: TableView) -> Staged | None:
        return stage_delete(table, self.where)

    def note_reads(self, reads: ReadSet) -> None:
        reads.add_filter(self.key, self.where)

    def touched_ids(self, table: TableView) -> pa.Array | None:
        return pa.concat_arrays([_NO_IDS, *table.scan(columns=[_ID], filter=self.where)[_ID].chunks])


@dataclass(frozen=True, slots=True)
class DeleteIds(TableWrite):
    """Delete rows by id."""

    ids: pa.Array

    def is_empty(self, table: TableView, row_count: int) -> bool:
        return len(self.ids) == 0

    def stage(self, table: TableView) -> Staged | None:
        return stage_delete_ids(table, pa.chunked_array([self.ids]))

    def touched_ids(self, table: TableView) -> pa.Array | None:
        return self.ids


@dataclass(frozen=True, slots=True)
class Change(TableWrite):
    """Upsert rows and delete others in one table version.

    Attributes:
        rows: the rows to upsert. A `RowSource` is streamed, and need not fit in memory.
        deleted: the ids to delete.
        fragments: results of `write_fragments` in other processes, in order, with rows whose ids are new.
        fork: the fork that was made for this write and contains the fragments; None if no fork was made.
        known: row ids of some rows in the version that is changed. Other rows are looked up by their ids.
    """

    rows: pa.Table | RowSource
    deleted: pa.Array = field(default_factory=lambda: _NO_IDS)
    fragments: tuple[str, ...] = ()
    fork: TableRef | None = None
    known: KnownRows | None = None

    @property
    def has_fragments(self) -> bool:
        return bool(self.fragments)

    def is_empty(self, table: TableView, row_count: int) -> bool:
        no_rows = isinstance(self.rows, pa.Table) and self.rows.num_rows == 0  # the size of a `RowSource` is unknown
        return no_rows and not self.fragments and len(self.deleted) == 0

    def stage(self, table: TableView) -> Staged | None:
        return stage_change(table, self.rows, self.deleted, self.fragments, self.known)

    def touched_ids(self, table: TableView) -> pa.Array | None:
        if self.fragments:
            return None
        if isinstance(self.rows, pa.Table):
            written: Sequence[pa.Array] = self.rows[_ID].chunks
        else:
            written = [batch.column(_ID) for batch in self.rows.batches([_ID])]
        return pa.concat_arrays([_NO_IDS, *written, self.deleted])


@dataclass(frozen=True, slots=True)
class _FragmentsWrite(TableWrite):
    """A write of fragments that other processes wrote.

    Attributes:
        fragments: results of `write_fragments`, in order.
        fork: the fork that was made for this write and contains the fragments; None if no fork was made.
    """

    fragments: tuple[str, ...]
    fork: TableRef | None = field(default=None, kw_only=True)

    @property
    def has_fragments(self) -> bool:
        return bool(self.fragments)

    def is_empty(self, table: TableView, row_count: int) -> bool:
        return not self.fragments


@dataclass(frozen=True, slots=True)
class AppendFragments(_FragmentsWrite):
    """Add fragments with new rows."""

    def stage(self, table: TableView) -> Staged | None:
        return stage_fragments(table, self.fragments)


@dataclass(frozen=True, slots=True)
class OverwriteFragments(_FragmentsWrite):
    """Replace all rows of the table by fragments."""

    replaces_table: ClassVar[bool] = True

    def is_empty(self, table: TableView, row_count: int) -> bool:
        return not self.fragments and row_count == 0

    def stage(self, table: TableView) -> Staged | None:
        return stage_fragments(table, self.fragments, replacing=True)


@dataclass(frozen=True, slots=True)
class ChangeFragments(_FragmentsWrite):
    """Add fragments, and delete rows that their rows replace.

    Attributes:
        replaced: results of `remove_rows` for the rows to delete.
    """

    replaced: RemovedRows

    def is_empty(self, table: TableView, row_count: int) -> bool:
        return False

    def stage(self, table: TableView) -> Staged | None:
        return stage_replaced(table, self.fragments, self.replaced)


@dataclass(frozen=True, slots=True)
class BuildIndexes(TableWrite):
    """Build indexes for the rows that they do not cover.

    Attributes:
        indexes: the indexes to build.
        allowed: the indexes that the table may have; all others are dropped.
    """

    indexes: tuple[IndexSpec, ...]
    allowed: tuple[IndexSpec, ...]

    def is_empty(self, table: TableView, row_count: int) -> bool:
        return not table.lacks_indexes(self.indexes, self.allowed)

    def stage(self, table: TableView) -> Staged | None:
        return stage_indexes(table, self.indexes, allowed=self.allowed)

    def touched_ids(self, table: TableView) -> pa.Array | None:
        return _NO_IDS


@dataclass(frozen=True, slots=True)
class DropDamagedIndexes(TableWrite):
    """Drop the index segments whose files are damaged."""

    def is_empty(self, table: TableView, row_count: int) -> bool:
        return False

    def stage(self, table: TableView) -> Staged | None:
        return stage_indexes(table, ())

    def touched_ids(self, table: TableView) -> pa.Array | None:
        return _NO_IDS


@dataclass(frozen=True, slots=True)
class Compact(TableWrite):
    """Move rows to other files, and add index segments.

    Attributes:
        layout: the new files of the rows; None if the rows stay in their files.
        segments: index segments that were built for the layout.
        allowed: the indexes that the table may have; all others are dropped.
    """

    layout: Layout | None
    segments: tuple[bytes, ...]
    allowed: tuple[IndexSpec, ...]

    def is_empty(self, table: TableView, row_count: int) -> bool:
        return self.layout is None and not self.segments and not table.lacks_indexes((), self.allowed)

    def stage(self, table: TableView) -> Staged | None:
        return stage_layout(table, self.layout, self.segments, allowed=self.allowed)

    def touched_ids(self, table: TableView) -> pa.Array | None:
        return _NO_IDS


class WriteColumns(Protocol):
    """Writes the new values of a table's columns, in this process or in tasks on Spark. See `write_columns`."""

    def __call__(self, table: TableView, schema: pa.Schema, values: NewValues) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class ChangeColumns(TableWrite):
    """Change the columns of a table: add, drop, rename, retype or refill them. The rows stay.

    Attributes:
        schema: the columns after the change.
        values: the columns with new values; None if all columns keep their values.
        write: writes the new values; None to write them in this process.
        count_updates: counts the rows with changed values; None if there are none. New columns and wider numbers are no
            changes of values.
    """

    schema: pa.Schema
    values: NewValues | None = None
    write: WriteColumns | None = None
    count_updates: Callable[[TableView], int] | None = None

    def is_empty(self, table: TableView, row_count: int) -> bool:
        return self.values is None and has_columns(table.schema(), self.schema)

    def stage(self, table: TableView) -> Staged | None:
        written = None
        if self.values is not None and self.write is not None and table.count():
            written = self.write(table, self.schema, self.values)
        staged = stage_columns(table, self.schema, self.values, written)
        return staged if self.count_updates is None else replace(staged, rows_updated=self.count_updates(table))

    def note_reads(self, reads: ReadSet) -> None:
        reads.whole.add(self.key)
