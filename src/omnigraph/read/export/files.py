"""Write exports to files. A failed export leaves nothing behind.

Local files have a temporary name until they are complete. S3 has no rename, but an object becomes visible only when it
is complete. A directory in S3 contains a marker object until all of its files are written.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from omnigraph.commit.snapshots import Snapshot
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.lang.schema import TypeKind
from omnigraph.read.export.export import TypeExport
from omnigraph.storage.files.local_output import output_directory, output_file
from omnigraph.storage.files.s3_output import S3Output, output_in_s3

ROW_GROUP_ROWS = 128 * 1024
"""Rows per row group of a Parquet file."""

Target = str | os.PathLike[str] | BinaryIO


class ExportFormat(StrEnum):
    """File format of an export."""

    NDJSON = "ndjson"
    """One file with one JSON object per entity and line."""
    CSV = "csv"
    """A directory with one CSV file per type."""
    PARQUET = "parquet"
    """A directory with one Parquet file per type."""
    ARROW = "arrow"
    """A directory with one Arrow IPC file per type."""


@dataclass(frozen=True, slots=True)
class ExportReceipt:
    """Receipt of an export.

    Attributes:
        commit_id: the newest commit whose changes are in the export.
        nodes: number of entities by node type, in name order.
        edges: number of entities by edge type, in name order.
    """

    branch: str
    commit_id: str
    format: ExportFormat
    nodes: tuple[tuple[str, int], ...]
    edges: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        return sum(count for _, count in (*self.nodes, *self.edges))


def write_export(
    snapshot: Snapshot, parts: Sequence[TypeExport], target: Target, format: ExportFormat
) -> ExportReceipt:
    """Write an export to a local or S3 file or directory, or to an open file.

    Raises:
        InputError: the target cannot be written.
        StorageError: a bucket cannot be written.
    """
    if isinstance(target, str | os.PathLike):
        output = output_in_s3(os.fspath(target), snapshot.uri.storage_options)
        if output is None:
            _write_here(parts, target, format)
        else:
            _write_in_s3(parts, output, format)
    elif format is ExportFormat.NDJSON:
        _check_binary(target)
        _write_lines(parts, target.write)
    else:
        raise InputError(f"an export as {format} writes a file for each type", hint="give a directory as the target")

    def counts(kind: TypeKind) -> tuple[tuple[str, int], ...]:
        return tuple((part.name, part.count) for part in parts if part.kind is kind)

    return ExportReceipt(snapshot.branch, snapshot.commit.id, format, counts(TypeKind.NODE), counts(TypeKind.EDGE))


def _write_here(parts: Sequence[TypeExport], path: str | os.PathLike[str], format: ExportFormat) -> None:
    if format is ExportFormat.NDJSON:
        with output_file(path) as file:
            _write_lines(parts, file.write)
        return
    with output_directory(path) as directory:
        for part in parts:
            if format is ExportFormat.CSV:
                with (directory / _name(part, format)).open("wb") as csv_file:
                    csv_file.writelines(part.csv())
            else:
                _write_table(part, directory / _name(part, format), format)


def _write_in_s3(parts: Sequence[TypeExport], output: S3Output, format: ExportFormat) -> None:
    if format is ExportFormat.NDJSON:
        with output.file() as file:
            _write_lines(parts, file.write)
        return
    with output.directory() as directory:
        for part in parts:
            with directory.file(_name(part, format)) as file:
                if format is ExportFormat.CSV:
                    for text in part.csv():
                        file.write(text)
                else:
                    _write_table(part, pa.PythonFile(file, mode="w"), format)


def _name(part: TypeExport, format: ExportFormat) -> str:
    """File name of a type, such as `node.Person.parquet`. A node type and an edge type may have the same name."""
    return f"{part.kind.value}.{part.name}.{format}"


def _check_binary(target: object) -> None:
    """Check that a target is a binary file.

    Raises:
        InputError: it is a text file, or no file at all.
    """
    if isinstance(target, io.TextIOBase):
        raise InputError("the file is open in text mode, but an export writes bytes", hint="open it in mode 'wb'")
    if not callable(getattr(target, "write", None)):
        raise InputError(
            f"an export cannot be written to a value of type {type(target).__name__}",
            hint="give a path, or a file that is open in mode 'wb'",
        )


def _write_lines(parts: Sequence[TypeExport], write: Callable[[bytes], object]) -> None:
    for part in parts:
        for text in part.lines():
            write(text)


def _write_table(part: TypeExport, file: Path | pa.NativeFile, format: ExportFormat) -> None:
    if format is ExportFormat.PARQUET:
        with pa.parquet.ParquetWriter(file, part.schema) as writer:
            for table in _grouped(part):
                writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
    else:
        with pa.ipc.new_file(file, part.schema) as writer:
            for batch in part.batches():
                writer.write_batch(batch)


def _grouped(part: TypeExport) -> Iterator[pa.Table]:
    """Combine batches into Parquet row groups. Batches with lists or blobs can be large, so they stay separate."""
    flat = not any(pa.types.is_nested(field.type) for field in part.schema)
    held: list[pa.RecordBatch] = []
    for batch in part.batches():
        held.append(batch)
        if not flat or sum(batch.num_rows for batch in held) >= ROW_GROUP_ROWS:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
