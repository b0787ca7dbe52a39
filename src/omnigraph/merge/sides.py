"""The rows of a table that a merge compares, in each of the three versions.

Fragments that are equal in all three versions are not read. Of the others, only rows that may differ are kept. The
content of blobs is compared by a cryptographic hash, so only a few blobs are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import field, replace
from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.merge.classify import ROW_ID, Taken
from omnigraph.merge.schema_alignment import NO_LACKING, Fill, Lacking, fill_lacking, undecided_ids, with_target_values
from omnigraph.merge.touched import Touched
from omnigraph.storage.blobs import stored_blobs
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

BATCH_ROWS = 1 << 16
_BLOB_CHUNK_ROWS = 4096
BLOB_HASH = pa.binary(33)
"""The type of the column that stands for a blob: its hash."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns to read of a table.

    Attributes:
        plain: the columns that are compared by value, the id first.
        blobs: the columns whose content is compared by hash.
    """

    plain: tuple[str, ...]
    blobs: tuple[str, ...]

    @classmethod
    def of(cls, schema: pa.Schema) -> Columns:
        blobs = tuple(stored_blobs(schema))
        return cls(tuple(name for name in schema.names if name not in blobs), blobs)

    def only(self, names: Collection[str]) -> Columns:
        """The id, and those of the columns that are in `names`."""
        plain = tuple(name for name in self.plain if name == "id" or name in names)
        return Columns(plain, tuple(name for name in self.blobs if name in names))

    @property
    def read(self) -> list[str]:
        """The columns to scan. The content of blobs is read later, by row id."""
        return [*self.plain, ROW_ID] if self.blobs else list(self.plain)

    def schema(self, stored: pa.Schema) -> pa.Schema:
        """The Arrow schema of the rows to compare."""
        fields = [(name, stored.field(name).type) for name in self.plain]
        if self.blobs:
            fields += [(ROW_ID, pa.uint64()), *((name, BLOB_HASH) for name in self.blobs)]
        return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class Versions:
    """One table in three versions.

    Attributes:
        key: the type key.
        base: the version of the table in the base.
        source: the version in the branch that is merged.
        target: the version in the branch that it is merged into.
        columns: the columns to read.
        schema: the schema of the rows to compare.
        separate_ids: ids of rows that are compared separately, because an overlay changes them (see `Overlay`), or
            because the source has changed them in columns that the target lacks.
        unknown: whether the base values are unknown. Then rows that differ are conflicts, and `base` equals `target`.
        complete: whether the comparison lists all conflicts, and all rows with all columns: for a virtual base, or to
            leave out all entities with conflicts.
        groups: the groups of columns to merge by property (see `property_level`); None merges whole rows.
        lacking: the columns that the versions do not have, because their schema differs from that of the target.
        fill: values for these columns.
        changed_left_out: those of the separate ids that the source has changed, or may have changed, in columns that
            the target lacks.
        exclusive: whether an entity that both sides changed is a conflict, even if they made the same change.
    """

    key: str
    base: TableRef
    source: TableRef
    target: TableRef
    columns: Columns
    schema: pa.Schema
    separate_ids: pa.Array = field(default_factory=lambda: pa.array([], pa.utf8()))
    unknown: bool = False
    complete: bool = False
    groups: tuple[tuple[str, ...], ...] | None = None
    lacking: Lacking = NO_LACKING
    fill: Fill = field(default_factory=Fill)
    changed_left_out: pa.Array = field(default_factory=lambda: pa.array([], pa.utf8()))
    exclusive: bool = False

    def completed(self, base: pa.Table, source: pa.Table, target: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Rows of the three versions, with values in the columns that a version lacks."""
        if not any(self.lacking):
            return base, source, target
        return fill_lacking((base, source, target), self.lacking, self.fill)

    def taken(self, source: pa.Table, target: pa.Table) -> Taken | None:
        """Completed rows of the source as the merge takes them; None if they are the rows of the source."""
        lacking = self.lacking[1] - self.lacking[2]
        if not lacking and len(self.changed_left_out) == 0:
            return None
        return Taken(with_target_values(source, target, lacking, self.fill), lacking, self.changed_left_out)

    def undecided(self, base: pa.Table, source: pa.Table, target: pa.Table) -> pa.Array:
        """The ids of completed rows that the base leaves undecided, because it lacks a column."""
        if not self.lacking[0]:
            return pa.array([], pa.utf8())
        return undecided_ids((base, source, target), self.lacking, self.fill)

    def for_tasks(self) -> Versions:
        """A copy that can be sent to tasks. It already has the values that schema changes filled in."""
        return replace(self, fill=self.fill.known((self.lacking[0] | self.lacking[1]) - self.lacking[2]))

    def source_rows(self, tables: TableStorage, ids: pa.Array) -> pa.Table:
        """The rows of the source with the given ids, with values for the columns that it lacks."""
        source = self._lookup(tables, self.source, ids)
        if not any(self.lacking):
            return source
        base, target = (self._lookup(tables, ref, ids) for ref in (self.base, self.target))
        return self.completed(base, source, target)[1]

    def target_rows(self, tables: TableStorage, ids: pa.Array) -> pa.Table:
        """The rows of the target with the given ids. The target has the columns of all rows."""
        return self._lookup(tables, self.target, ids)

    def _lookup(self, tables: TableStorage, ref: TableRef, ids: pa.Array) -> pa.Table:
        rows = lookup_rows(tables, ref, ids, self.columns)
        return rows.select(self.schema.names).cast(self.schema)

    @property
    def all(self) -> tuple[TableRef, TableRef, TableRef]:
        return self.base, self.source, self.target

    @property
    def is_unclear(self) -> bool:
        """Whether the base lacks a column that both sides have. Then it does not show which side changed a row."""
        return bool(self.lacking[0] - self.lacking[1])

    def without_separate_ids(self, rows: pa.Table) -> pa.Table:
        """Remove the rows that are compared separately."""
        return (
            rows.filter(pc.invert(pc.is_in(rows["id"], value_set=self.separate_ids)))
            if len(self.separate_ids)
            else rows
        )


def differing_fragments(tables: TableStorage, versions: Versions) -> list[tuple[int, ...]]:
    """For each version, the numbers of the fragments that are not in all three versions."""
    names = [tables.at(ref).fragment_digests() for ref in versions.all]
    common = set(names[0]).intersection(*names[1:])
    found = []
    for ref, parts in zip(versions.all, names, strict=True):
        numbers = [part.number for part in tables.at(ref).fragments()]
        found.append(tuple(n for n, name in zip(numbers, parts, strict=True) if name not in common))
    return found


def fragment_rows(
    tables: TableStorage, ref: TableRef, numbers: Sequence[int], columns: Columns, touched: Touched | None
) -> Iterator[pa.Table]:
    """The rows of some fragments, with the columns to compare. Omits rows that are equal in all versions."""
    if not numbers:
        return
    for batch in tables.at(ref).read_fragments(numbers, columns=columns.read, batch_rows=BATCH_ROWS):
        rows = pa.Table.from_batches([batch])
        if touched is not None:
            rows = rows.filter(pa.array(touched.among(rows["id"])))
        if rows.num_rows:
            yield with_blob_hashes(tables, ref, rows, columns)


def lookup_rows(tables: TableStorage, ref: TableRef, ids: pa.Array, columns: Columns) -> pa.Table:
    """The rows of some ids, with the columns to compare."""
    rows = tables.at(ref).lookup("id", pa.chunked_array([ids], pa.utf8()), columns=columns.read)
    return with_blob_hashes(tables, ref, rows, columns)


def with_blob_hashes(tables: TableStorage, ref: TableRef, rows: pa.Table, columns: Columns) -> pa.Table:
    """Replace each blob of the rows by a hash."""
    if not columns.blobs:
        return rows
    found: dict[str, list[bytes | None]] = {name: [] for name in columns.blobs}
    for part in blob_cells(tables, ref, rows[ROW_ID].combine_chunks(), columns.blobs):
        for name in columns.blobs:
            found[name] += [_blob_hash(cell) for cell in part[name].to_pylist()]
    for name, prints in found.items():
        rows = rows.append_column(name, pa.array(prints, BLOB_HASH))
    return rows


def blob_cells(
    tables: TableStorage, ref: TableRef, row_ids: pa.Array, names: Sequence[str], other_columns: Sequence[str] = ()
) -> Iterator[pa.Table]:
    """The blobs of some rows with their content, and the columns of `other_columns`, in chunks."""
    for first in range(0, len(row_ids), _BLOB_CHUNK_ROWS):
        some = row_ids.slice(first, _BLOB_CHUNK_ROWS)
        stored = tables.at(ref).take_rows(some, columns=[*other_columns, *names])
        yield from tables.at(ref).content(stored.append_column(ROW_ID, some))


def _blob_hash(cell: dict[str, Any] | None) -> bytes | None:
    """The hash of a byte 0 and the content of a blob, or of a byte 1 and the URI of an external blob."""
    if cell is None:
        return None
    if cell["uri"] is not None:
        return b"\x01" + sha256(cell["uri"].encode()).digest()
    return b"\x00" + sha256(cell["data"]).digest()


@dataclass(frozen=True, slots=True)
class TakenRows:
    """Rows of a table version, as the input of a write. The content of blobs is read during the write.

    Attributes:
        ref: the version that blobs are read from, by row id.
        rows: the rows, with hashes in place of blobs.
        names: the columns of the table.
        other: for rows that were merged by property, the version that has those blobs that `ref` does not have.
        base: the version that has the blobs that neither `ref` nor `other` has.
    """

    tables: TableStorage
    ref: TableRef
    rows: pa.Table
    columns: Columns
    names: tuple[str, ...]
    other: TableRef | None = None
    base: TableRef | None = None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        wanted = list(self.names if columns is None else columns)
        blobs = [name for name in wanted if name in self.columns.blobs]
        if not blobs:
            yield from self.rows.select(wanted).to_batches()
            return
        for batch in self.rows.to_batches():
            if self.other is not None:
                yield from self._combined(pa.Table.from_batches([batch]), wanted, blobs)
                continue
            other_columns = [name for name in wanted if name not in blobs]
            for part in blob_cells(self.tables, self.ref, batch.column(ROW_ID), blobs, other_columns):
                yield from part.select(wanted).to_batches()

    def _combined(self, rows: pa.Table, wanted: list[str], blobs: list[str]) -> Iterator[pa.RecordBatch]:
        """Batches of the rows, in order. Each blob is read from the version in which its content has the given hash."""
        first = 0
        for part in blob_cells(self.tables, self.ref, rows[ROW_ID].combine_chunks(), blobs):
            chunk = rows.slice(first, part.num_rows)
            first += part.num_rows
            foreign = {name: _other_content(part[name], chunk[name]) for name in blobs}
            places = np.flatnonzero(np.any(list(foreign.values()), axis=0))
            done = 0
            for cells in self._other_cells(chunk["id"].take(pa.array(places)), blobs):
                here = places[: cells.num_rows]
                places = places[cells.num_rows :]
                end = int(here[-1]) + 1
                some = part.slice(done, end - done)
                for name in blobs:
                    taken = foreign[name][here]
                    some = _replaced(some, name, here[taken] - done, cells[name].filter(pa.array(taken)))
                yield from _assembled(chunk.slice(done, end - done), some, wanted, blobs)
                done = end
            yield from _assembled(chunk.slice(done), part.slice(done), wanted, blobs)

    def _other_cells(self, ids: pa.ChunkedArray, blobs: list[str]) -> Iterator[pa.Table]:
        """The blobs of some entities in the version `other`, in the order of the ids, in chunks."""
        assert self.other is not None
        if len(ids) == 0:
            return
        row_ids = self._row_ids(self.other, ids)
        if self.base is None or not row_ids.null_count:
            yield from blob_cells(self.tables, self.other, row_ids, blobs)
            return
        # Entities that are restored have their former blobs, which only the base has.
        in_base, is_missing = self._row_ids(self.base, ids), row_ids.is_null().to_numpy(zero_copy_only=False)
        bounds = [0, *(np.flatnonzero(np.diff(is_missing)) + 1), len(ids)]
        for first, end in pairwise(bounds):
            ref, found = (self.base, in_base) if is_missing[first] else (self.other, row_ids)
            yield from blob_cells(self.tables, ref, found.slice(first, end - first), blobs)

    def _row_ids(self, ref: TableRef, ids: pa.ChunkedArray) -> pa.Array:
        """The row ids of some entities in a version; null for those that it does not have."""
        found = self.tables.at(ref).lookup("id", ids, columns=["id", ROW_ID])
        return found[ROW_ID].combine_chunks().take(pc.index_in(ids, value_set=found["id"]).combine_chunks())


def _other_content(cells: pa.ChunkedArray, hashes: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mask of the blobs whose content does not have the given hash."""
    pairs = zip(cells.to_pylist(), hashes.to_pylist(), strict=True)
    return np.array([_blob_hash(cell) != expected for cell, expected in pairs], bool)


def _replaced(rows: pa.Table, name: str, places: np.ndarray[Any, Any], values: pa.ChunkedArray) -> pa.Table:
    """Replace the values of a column in some rows, given by their positions."""
    if len(places) == 0:
        return rows
    order = np.arange(rows.num_rows)
    order[places] = rows.num_rows + np.arange(len(places))
    column = pa.concat_arrays([*rows[name].chunks, *values.cast(rows[name].type).chunks]).take(pa.array(order))
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)


def _assembled(rows: pa.Table, cells: pa.Table, wanted: list[str], blobs: list[str]) -> Iterator[pa.RecordBatch]:
    columns = {name: cells[name] if name in blobs else rows[name] for name in wanted}
    if rows.num_rows:
        yield from pa.table(columns).combine_chunks().to_batches()
