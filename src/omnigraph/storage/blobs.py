"""Blob columns. On disk they have Lance's blob layout. In memory they are *cells*: structs of bytes or an address."""

# See docs/decisions/0050-a-blob-is-a-cell.md

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.fragment import DataFile

from omnigraph.dataclass import dataclass
from omnigraph.errors import BlobIntegrityError
from omnigraph.storage.scans import filtered

CELL = pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.utf8())])
"""A blob in rows to write, or in rows that were read with their content.

A null cell means that the row has no blob. Otherwise a cell has `data` (the bytes) or `uri` (their address). A cell
with neither keeps the stored blob of the row, so an update of other properties need not read it.
"""

MAX_MATERIALIZED_BYTES = 32 * 1024 * 1024
"""Maximum bytes of stored blobs that are in memory at once. A single blob may be larger."""

ROW_ID = "_rowid"
_ROW_ADDRESS = "_rowaddr"
_ID = "id"
_LANCE_BLOB = "lance.blob.v2"
LOOKUP_ROWS = 8192
"""Number of rows whose stored blobs are looked up at a time."""

_CHECK = "_omnigraph_check"


class BlobKind(IntEnum):
    """How Lance stores a blob: the value of `kind` in Lance's blob descriptor."""

    INLINE = 0
    PACKED = 1
    DEDICATED = 2
    EXTERNAL = 3


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """Metadata of a stored blob.

    Attributes:
        size: its size in bytes; None for a reference, whose target is never read.
        uri: the address of a reference; None for content in the graph.
    """

    size: int | None
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """The stored blob in one cell of a table.

    Attributes:
        info: its metadata; None if it is null.
        row_id: the row id in Lance.
        file: the data file of the row; empty if the cell is null. Files never change, so the file name and
            the position in the file identify the content.
        descriptor: the position in the file, from Lance.
    """

    info: BlobInfo | None
    row_id: int
    file: str
    descriptor: tuple[int, int, int, int]


# Schemas


def is_blob(kind: pa.DataType) -> bool:
    """Whether a type is that of a blob column: cells, or plain bytes."""
    return bool(kind == CELL or pa.types.is_large_binary(kind))


def row_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of rows to write: columns of bytes in `schema` become columns of cells."""
    return pa.schema(
        [field.with_type(CELL) if is_blob(field.type) else field for field in schema], metadata=schema.metadata
    )


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema to create a table with: every blob column becomes a Lance blob column."""
    fields = []
    for field in schema:
        if is_blob(field.type):
            blob = lance.blob_field(field.name, nullable=field.nullable)
            metadata = {**(blob.metadata or {}), **(field.metadata or {})}
            fields.append(blob.with_metadata(metadata))
        else:
            fields.append(field)
    return pa.schema(fields, metadata=schema.metadata)


# Writing


def unchanged_cells(count: int) -> pa.Array:
    """Cells that keep the stored blobs of their rows."""
    nothing = [pa.nulls(count, CELL.field(i).type) for i in range(CELL.num_fields)]
    return pa.StructArray.from_arrays(nothing, fields=list(CELL))


def has_no_content(cells: pa.Array) -> pa.Array:
    """Mask of the cells with neither bytes nor an address. A write keeps the stored blob for them."""
    inner = pc.and_(pc.struct_field(cells, "data").is_null(), pc.struct_field(cells, "uri").is_null())
    return pc.and_(cells.is_valid(), inner)


def blob_columns(rows: pa.Table) -> list[str]:
    """The columns of rows that have cells."""
    return [field.name for field in rows.schema if field.type == CELL]


def stored_columns(rows: pa.Table, stored: pa.Schema) -> pa.Table:
    """Convert rows to the layout of a table: its column order, and blobs in Lance's form."""
    columns = []
    for field in stored:
        column = rows[field.name]
        if is_blob(column.type):
            column = pa.chunked_array([_lance_blobs(chunk, field.type) for chunk in column.chunks], type=field.type)
        columns.append(column)
    return pa.table(columns, schema=stored)


def _lance_blobs(cells: pa.Array, kind: pa.DataType) -> pa.Array:
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if cells.type == CELL:
        given = {"data": pc.struct_field(cells, "data"), "uri": pc.struct_field(cells, "uri")}
    else:
        given = {"data": cells}
    members = [storage.field(i) for i in range(storage.num_fields)]
    arrays = [given[m.name] if m.name in given else pa.nulls(len(cells), m.type) for m in members]
    struct = pa.StructArray.from_arrays(arrays, fields=members, mask=cells.is_null())
    return pa.ExtensionArray.from_storage(kind, struct) if isinstance(kind, pa.BaseExtensionType) else struct


def filled(dataset: LanceDataset, rows: pa.Table) -> Iterator[pa.Table]:
    """Replace each cell that keeps a stored blob by the content of this blob, which is read from `dataset` by id.

    Yields chunks of rows, so that not all content is in memory at once.
    """
    if not any(pc.any(has_no_content(chunk)).as_py() for name in blob_columns(rows) for chunk in rows[name].chunks):
        yield rows
        return
    for start in range(0, rows.num_rows, LOOKUP_ROWS):
        part = rows.slice(start, LOOKUP_ROWS).combine_chunks()
        columns = {name: part[name].combine_chunks() for name in blob_columns(part)}
        stored = _stored(dataset, part[_ID].combine_chunks(), columns)
        for piece in with_content(dataset, stored):
            rest = part.slice(0, piece.num_rows)
            part = part.slice(piece.num_rows)
            for name in columns:
                given = rest[name].combine_chunks()
                merged = pc.if_else(has_no_content(given), piece[name].combine_chunks(), given)
                rest = rest.set_column(rest.schema.get_field_index(name), rest.schema.field(name), merged)
            yield rest


def _stored(dataset: LanceDataset, ids: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Descriptors and Lance row ids of the stored blobs, in row order. Null for cells with new content."""
    unchanged = {name: has_no_content(cells) for name, cells in columns.items()}
    wanted = functools.reduce(pc.or_, unchanged.values())
    found = filtered(dataset, [_ID, *columns, ROW_ID], pc.field(_ID).isin(ids.filter(wanted))).combine_chunks()
    position = pc.index_in(ids, value_set=found[_ID].combine_chunks())
    missing = pc.and_(wanted, position.is_null())
    if pc.any(missing).as_py():
        entity = ids.filter(missing)[0].as_py()
        raise BlobIntegrityError(", ".join(columns), f"'{entity}' does not exist, so it has no stored blob to keep")
    nowhere = pa.scalar(None, position.type)
    arrays = {
        name: found[name].combine_chunks().take(pc.if_else(unchanged[name], position, nowhere)) for name in columns
    }
    return pa.table({**arrays, ROW_ID: found[ROW_ID].combine_chunks().take(position)})


# Reading


def is_external(descriptors: pa.Array) -> pa.Array:
    """Mask of the stored blobs that are references. Null for rows without a blob."""
    return pc.equal(_member(descriptors, "kind"), pa.scalar(int(BlobKind.EXTERNAL), pa.uint8()))


def _member(descriptors: pa.Array, name: str) -> pa.Array:
    """One struct field of the descriptors, with null for rows without a blob, where Lance stores arbitrary values."""
    return pc.if_else(descriptors.is_valid(), pc.struct_field(descriptors, name), None)


def with_content(dataset: LanceDataset, rows: pa.Table, largest: int | None = None) -> Iterator[pa.Table]:
    """Replace descriptors in scanned rows by cells with the content of the blobs.

    Yields the rows in chunks whose blobs have about `MAX_MATERIALIZED_BYTES` bytes in total.

    Args:
        dataset: the version of the rows.
        rows: scanned rows, with `_rowid`.
        largest: the maximum size in bytes of a blob to read; None for no limit. The cells of larger blobs have neither
            bytes nor an address.
    """
    columns = [name for name in stored_blobs(dataset.schema) if name in rows.column_names]
    if not columns:
        yield rows
        return
    rows = rows.combine_chunks()
    sizes = np.zeros(rows.num_rows, np.int64)
    for name in columns:
        size = _member(rows[name].combine_chunks(), "size").fill_null(0).to_numpy().astype(np.int64)
        sizes += size if largest is None else np.where(size > largest, 0, size)
    for start, end in portions(sizes, MAX_MATERIALIZED_BYTES):
        part = rows.slice(start, end - start)
        for name in columns:
            cells = read_cells(dataset, name, part[name].combine_chunks(), part[ROW_ID].combine_chunks(), largest)
            part = part.set_column(part.schema.get_field_index(name), name, cells)
        yield part


def stored_blobs(schema: pa.Schema) -> list[str]:
    """The blob columns of a table."""
    return [field.name for field in schema if getattr(field.type, "extension_name", "") == _LANCE_BLOB]


def portions(sizes: np.ndarray[Any, np.dtype[np.int64]], limit: int) -> Iterator[tuple[int, int]]:
    """Split rows into ranges whose blobs have about `limit` bytes in total. `sizes` has the bytes of each row."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield start, end
        start = end


def check_descriptors(descriptors: pa.Array, place: str) -> None:
    """Check the blob descriptors of a table.

    Raises:
        BlobIntegrityError: a descriptor is invalid.
    """
    kind, uri = _member(descriptors, "kind"), _member(descriptors, "blob_uri")
    external = is_external(descriptors)
    if pc.any(pc.greater(kind, int(BlobKind.EXTERNAL))).as_py():
        raise BlobIntegrityError(place, "this release does not know the storage kind of the blob")
    if pc.any(pc.not_equal(external, pc.not_equal(uri, ""))).as_py():
        raise BlobIntegrityError(place, "a reference has no address, or stored content has one")
    part = pc.or_(pc.greater(_member(descriptors, "size"), 0), pc.greater(_member(descriptors, "position"), 0))
    if pc.any(pc.and_(external, pc.or_(part, pc.greater(_member(descriptors, "blob_id"), 0)))).as_py():
        raise BlobIntegrityError(place, "the blob refers to a part of a file; no release writes such references")


def read_cells(
    dataset: LanceDataset, column: str, descriptors: pa.Array, row_ids: pa.Array, largest: int | None = None
) -> pa.Array:
    """The cells of some rows, with their bytes. References are not followed.

    Args:
        dataset: the version.
        column: the column.
        descriptors: scanned descriptors of the column.
        row_ids: Lance row ids of the rows.
        largest: the maximum size in bytes of a blob to read; None for no limit. The cells of larger blobs have neither
            bytes nor an address.
    """
    check_descriptors(descriptors, column)
    external = is_external(descriptors)
    managed = pc.invert(external).fill_null(False)
    if largest is not None:
        managed = pc.and_(managed, pc.less_equal(_member(descriptors, "size"), largest).fill_null(False))
    wanted = row_ids.filter(managed)
    _check_files(dataset, column, descriptors.filter(managed), wanted)
    blobs = dataset.read_blobs(column, ids=wanted.to_pylist(), preserve_order=True) if len(wanted) else []
    content = pa.array([data for _, data in blobs], pa.large_binary())
    given = pa.array(np.cumsum(managed.to_numpy(zero_copy_only=False)) - 1)
    data = content.take(pc.if_else(managed, given, pa.scalar(None, given.type)))
    expected = pc.if_else(managed, _member(descriptors, "size"), pa.scalar(None, pa.uint64()))
    if pc.any(pc.not_equal(pc.binary_length(data).cast(pa.uint64()), expected)).as_py():
        raise BlobIntegrityError(column, "the size of a blob differs from its size in the table")
    uri = pc.if_else(external, _member(descriptors, "blob_uri"), pa.scalar(None, pa.utf8()))
    return pa.StructArray.from_arrays([data, uri], fields=list(CELL), mask=descriptors.is_null())


BlobCheck = Callable[[str, int | None], None]
"""Checks a blob file, given its name in the data directory and the id of its base path."""


def check_blobs_by(dataset: LanceDataset, check: BlobCheck) -> None:
    """Set the function that checks each blob file of a version before it is read."""
    setattr(dataset, _CHECK, check)


def _check_files(dataset: LanceDataset, column: str, descriptors: pa.Array, row_ids: pa.Array) -> None:
    """Check the blob files of some blobs. Data files are checked elsewhere."""
    check: BlobCheck | None = getattr(dataset, _CHECK, None)
    if check is None or len(row_ids) == 0:
        return
    kind = pc.struct_field(descriptors, "kind")
    apart = pc.or_(pc.equal(kind, int(BlobKind.PACKED)), pc.equal(kind, int(BlobKind.DEDICATED)))
    ids = row_ids.filter(apart)
    if len(ids) == 0:
        return
    places = dataset._take_rows(ids, columns=[_ROW_ADDRESS]).combine_chunks()[_ROW_ADDRESS]
    blobs = pc.struct_field(descriptors, "blob_id").filter(apart)
    pairs = pa.table({"fragment": pc.shift_right(places.combine_chunks(), pa.scalar(32, pa.uint64())), "blob": blobs})
    for pair in pairs.group_by(["fragment", "blob"]).aggregate([]).to_pylist():
        file = _newest_file(dataset, column, pair["fragment"])
        bits = f"{pair['blob']:032b}"[::-1]  # Lance's file name for a blob file with this number
        check(f"{file.path.removesuffix('.lance')}/{bits}.blob", file.base_id)


def blob_info(descriptor: dict[str, Any] | None) -> BlobInfo | None:
    """Metadata of a blob, from its descriptor."""
    if descriptor is None:
        return None
    external = descriptor["kind"] == BlobKind.EXTERNAL
    return BlobInfo(None, descriptor["blob_uri"]) if external else BlobInfo(descriptor["size"])


def find_blob(dataset: LanceDataset, column: str, entity_id: str) -> StoredBlob | None:
    """Metadata of the blob of one entity; None if the entity does not exist."""
    wanted = [_ID, column, ROW_ID, _ROW_ADDRESS]
    found = filtered(dataset, wanted, pc.field(_ID) == pa.scalar(entity_id)).combine_chunks()
    if found.num_rows == 0:
        return None
    check_descriptors(found[column].combine_chunks(), column)
    row = found.slice(0, 1).to_pylist()[0]
    cell = row[column]
    if cell is None:  # the fragment is older than the column, and has no file for it
        return StoredBlob(None, row[ROW_ID], "", (0, 0, 0, 0))
    place = (cell["kind"], cell["blob_id"], cell["position"], cell["size"])
    return StoredBlob(blob_info(cell), row[ROW_ID], _data_file(dataset, column, row[_ROW_ADDRESS]), place)


def _data_file(dataset: LanceDataset, column: str, address: int) -> str:
    """The file with a column of a row: the newest file of its fragment that has the column."""
    return str(_newest_file(dataset, column, address >> 32).path)


def _newest_file(dataset: LanceDataset, column: str, number: int) -> DataFile:
    """The newest data file of a fragment that has a column."""
    fragment = dataset.get_fragment(number)
    field_id = next(field.id() for field in dataset.lance_schema.fields() if field.name() == column)
    files = [file for file in fragment.metadata.files if field_id in file.fields] if fragment is not None else []
    if not files:
        raise BlobIntegrityError(column, "the fragment of the row has no such column")
    return files[-1]


def read_range(dataset: LanceDataset, column: str, row_id: int, start: int, end: int) -> bytes:
    """A byte range of a blob that is not a reference."""
    if getattr(dataset, _CHECK, None) is not None:
        row = dataset._take_rows(pa.array([row_id], pa.uint64()), columns=[column]).combine_chunks()
        _check_files(dataset, column, row[column].combine_chunks(), pa.array([row_id], pa.uint64()))
    ((_, _, data),) = dataset.read_blob_ranges(column, [(row_id, start, end - start)], selector="ids")
    if data is None or len(data) != end - start:
        raise BlobIntegrityError(column, "the blob is shorter than its size in the table")
    return bytes(data)
