"""The rows of a table that a merge compares, in each of the three versions.

Fragments that are equal in all three versions are not read. Of the others, only rows that may differ are kept. The
content of blobs is compared by a cryptographic hash, so only a few blobs are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.merge.classify import ROW_ID
from omnigraph.merge.touched import Touched
from omnigraph.storage.blobs import stored_blobs
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

BATCH_ROWS = 1 << 16
_BLOB_CHUNK_ROWS = 4096
_BLOB_HASH = pa.binary(33)


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
            fields += [(ROW_ID, pa.uint64()), *((name, _BLOB_HASH) for name in self.blobs)]
        return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class Versions:
    """One table in three versions.

    Attributes:
        key: the type key.
        base: its version in the base.
        source: its version in the branch that is merged.
        target: its version in the branch that it is merged into.
        columns: the columns to read.
        schema: the schema of the rows to compare.
        separate_ids: ids of rows in overlays (see `Overlay`), which are compared separately.
        unknown: whether the base values are unknown. Then rows that differ are conflicts, and `base` equals `target`.
        virtual: whether the result becomes part of a virtual base: it needs all rows and all conflicts.
    """

    key: str
    base: TableRef
    source: TableRef
    target: TableRef
    columns: Columns
    schema: pa.Schema
    separate_ids: pa.Array = field(default_factory=lambda: pa.array([], pa.utf8()))
    unknown: bool = False
    virtual: bool = False

    @property
    def all(self) -> tuple[TableRef, TableRef, TableRef]:
        return self.base, self.source, self.target

    def without_separate_ids(self, rows: pa.Table) -> pa.Table:
        """Rows without those that are compared separately."""
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
        rows = rows.append_column(name, pa.array(prints, _BLOB_HASH))
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
        rows: the rows, with hashes in place of blobs.
        names: the columns of the table.
    """

    tables: TableStorage
    ref: TableRef
    rows: pa.Table
    columns: Columns
    names: tuple[str, ...]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        wanted = list(self.names if columns is None else columns)
        blobs = [name for name in wanted if name in self.columns.blobs]
        if not blobs:
            yield from self.rows.select(wanted).to_batches()
            return
        for batch in self.rows.to_batches():
            other_columns = [name for name in wanted if name not in blobs]
            for part in blob_cells(self.tables, self.ref, batch.column(ROW_ID), blobs, other_columns):
                yield from part.select(wanted).to_batches()
