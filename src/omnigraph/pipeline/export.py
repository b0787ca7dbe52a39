"""Export on Spark: tasks read parts of a type, Spark sorts the rows by id, tasks write the parts.

An export as NDJSON is one file, with the same bytes as a local export. An export as Parquet or Arrow has a directory
of parts for each type, such as `node.Person.parquet/part-00000.parquet`, with the same columns and rows in the same
order as a local export. `load` can read the file and each of the directories.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.dataclass import dataclass
from omnigraph.engine.requests import ExportRequest
from omnigraph.engine.session import Session
from omnigraph.errors import InputError
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.types import ValueType
from omnigraph.pipeline.fragment_groups import BATCH_ROWS, PARTITION_BYTES, grouped
from omnigraph.pipeline.frames import type_frame
from omnigraph.pipeline.spark.staging import Staging
from omnigraph.pipeline.spark.tasks import SparkWork
from omnigraph.read.export.export import TypeExport, lines_of
from omnigraph.read.export.files import ExportFormat, ExportReceipt
from omnigraph.storage.files.local_output import (
    check_output_directory,
    check_output_file,
    output_directory,
    output_file,
)
from omnigraph.storage.files.s3_output import S3Output, output_in_s3
from omnigraph.storage.table_ref import TableRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GROUP_ROWS = 128 * 1024
_ORDER, _ROW = "id", "row"
_WRITTEN = "part int, path string"


def write_export(
    session: Session, view: Snapshot, parts: Sequence[TypeExport], request: ExportRequest, spark: SparkWork
) -> ExportReceipt:
    """Write an export by tasks.

    Tasks write to the staging directory of the graph. The driver copies the complete files to the target, so a local
    path is a path on the machine of the driver.

    Args:
        session: the engine session.
        view: the snapshot.
        parts: the types to export.
        request: the target and the format.
        spark: the context of the work on Spark.

    Raises:
        InputError: the target cannot be written.
        StorageError: a bucket cannot be written to.
        SparkError: tasks failed repeatedly.
    """
    target, format, staging = request.target, ExportFormat(request.format), spark.staging
    if not isinstance(target, str | os.PathLike):
        raise InputError("the Spark engine cannot export to an open file", hint="give a path, or use engine='local'")
    path = os.fspath(target)
    output = output_in_s3(path, view.uri.storage_options)
    _check(path if output is None else output, format)
    with (
        at_work(session.store.leases, WorkKind.EXPORT, view.manifest, name=staging.job_id),
        spark.job("exporting") as tasks,
    ):
        written = [_write_parts(tasks, view, part, format, staging) for part in parts]
    if output is None:
        _copy_to_local(path, parts, written, format, staging)
    else:
        _copy_to_s3(output, parts, written, format, staging)

    def counts(kind: TypeKind) -> tuple[tuple[str, int], ...]:
        return tuple((part.name, part.count) for part in parts if part.kind is kind)

    return ExportReceipt(view.branch, view.commit.id, format, counts(TypeKind.NODE), counts(TypeKind.EDGE))


# Functions that run in the driver


def _check(target: str | S3Output, format: ExportFormat) -> None:
    """Check the target before the work starts.

    Raises:
        InputError: the target cannot be written.
    """
    if isinstance(target, S3Output):
        target.check_file() if format is ExportFormat.NDJSON else target.check_directory()
    elif format is ExportFormat.NDJSON:
        check_output_file(target)
    else:
        check_output_directory(target)


def _write_parts(
    spark: SparkSession, view: Snapshot, part: TypeExport, format: ExportFormat, staging: Staging
) -> list[str]:
    """Write the parts of a type by tasks. Returns the staged files in order."""
    ref = view.pin(part.key).ref
    found = staging.tables.at(ref).fragments()
    groups = list(grouped(found))
    if not groups:
        return []
    files = max(1, -(-sum(fragment.size for fragment in found) // PARTITION_BYTES))
    if format is ExportFormat.NDJSON:
        reader = _LineReader(staging, ref, part.kind, part.name, dict(part.types), tuple(groups))
        numbers = spark.range(0, len(groups), 1, len(groups))
        rows = numbers.mapInArrow(reader.lines, f"{_ORDER} string, {_ROW} string")
        return _paths(_sorted(rows, files).mapInArrow(_TextWriter(staging), _WRITTEN))
    rows = type_frame(spark, view, part.key)
    return _paths(_sorted(rows, files).mapInArrow(_RowWriter(staging, part.schema, format), _WRITTEN))


def _sorted(rows: DataFrame, files: int) -> DataFrame:
    """Sort rows by id, in the given number of partitions. Spark compares texts by their bytes, as Arrow does."""
    if files == 1:
        return rows.coalesce(1).sortWithinPartitions(_ORDER)
    return rows.repartitionByRange(files, _ORDER).sortWithinPartitions(_ORDER)


def _paths(written: DataFrame) -> list[str]:
    return [row.path for row in sorted(written.collect(), key=lambda row: int(row.part))]


def _copy_to_local(
    path: str, parts: Sequence[TypeExport], written: Sequence[Sequence[str]], format: ExportFormat, staging: Staging
) -> None:
    """Copy the staged parts to a local target. The target has a temporary name until it is complete."""
    if format is ExportFormat.NDJSON:
        with output_file(path) as file:
            for name in chain.from_iterable(written):
                file.write(staging.objects.get(name).data)
        return
    with output_directory(path) as made:
        for part, names in zip(parts, written, strict=True):
            directory = made / f"{part.kind.value}.{part.name}.{format}"
            directory.mkdir()
            for number, data in enumerate(staging.objects.get(name).data for name in names):
                (directory / f"part-{number:05}.{format}").write_bytes(data)
            if not names:
                (directory / f"part-00000.{format}").write_bytes(_as_file([], part.schema, format))


def _copy_to_s3(
    output: S3Output,
    parts: Sequence[TypeExport],
    written: Sequence[Sequence[str]],
    format: ExportFormat,
    staging: Staging,
) -> None:
    """Copy the staged parts to a bucket, one at a time."""
    if format is ExportFormat.NDJSON:
        with output.file() as file:
            for name in chain.from_iterable(written):
                file.write(staging.objects.get(name).data)
        return
    names = [f"{part.kind.value}.{part.name}.{format}" for part in parts]
    with output.directory(inside=names) as directory:
        for part, inside, found in zip(parts, names, written, strict=True):
            contents = (
                (staging.objects.get(name).data for name in found) if found else [_as_file([], part.schema, format)]
            )
            for number, data in enumerate(contents):
                with directory.file(f"{inside}/part-{number:05}.{format}") as file:
                    file.write(data)


# Functions that run in tasks


@dataclass(frozen=True)
class _LineReader:
    """Reads groups of fragments as lines of NDJSON. Each task gets the numbers of its groups."""

    staging: Staging
    ref: TableRef
    kind: TypeKind
    name: str
    types: dict[str, ValueType]
    groups: tuple[tuple[int, ...], ...]

    def lines(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The ids and the lines of NDJSON."""
        columns = ["id", *(("src", "dst") if self.kind is TypeKind.EDGE else ()), *self.types]
        tables = self.staging.tables
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            for batch in tables.at(self.ref).read_fragments(
                self.groups[number], columns=columns, batch_rows=BATCH_ROWS
            ):
                lines = lines_of(pa.Table.from_batches([batch]), self.kind, self.name, self.types)
                yield pa.record_batch([batch.column("id"), lines.cast(pa.utf8())], names=[_ORDER, _ROW])


@dataclass(frozen=True)
class _TextWriter:
    """Writes lines of NDJSON to a staged file."""

    staging: Staging

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sink = pa.BufferOutputStream()
        for batch in batches:
            sink.write(_content(batch.column(_ROW)))
        yield _stage_part(self.staging, sink.getvalue(), ExportFormat.NDJSON)


@dataclass(frozen=True)
class _RowWriter:
    """Writes rows to a staged Parquet or Arrow file."""

    staging: Staging
    schema: pa.Schema
    format: ExportFormat

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made = (_as_exported(batch, self.schema) for batch in batches if batch.num_rows)
        yield _stage_part(self.staging, _as_file(made, self.schema, self.format), self.format)


def _stage_part(staging: Staging, data: pa.Buffer | bytes, format: ExportFormat) -> pa.RecordBatch:
    """Stage a part. Returns its number and path for the driver."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    path = staging.path("part", format)
    staging.objects.put(path, data if isinstance(data, bytes) else data.to_pybytes())
    return pa.record_batch([pa.array([context.partitionId()], pa.int32()), pa.array([path])], names=["part", "path"])


def _content(lines: pa.Array) -> memoryview:
    """The concatenated bytes of texts."""
    _, ends, data = lines.buffers()
    if data is None:
        return memoryview(b"")
    offsets = memoryview(ends).cast("q" if pa.types.is_large_string(lines.type) else "i")
    return memoryview(data)[offsets[lines.offset] : offsets[lines.offset + len(lines)]]


def _as_exported(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows of Spark to the types of the graph."""
    columns = [_exact(batch.column(field.name), field.type) for field in schema]
    return pa.record_batch(columns, schema=schema)


def _exact(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_fixed_size_list(kind):
        return column.cast(kind)
    values = np.zeros((len(column), kind.list_size), np.float32)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    values[valid] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, kind.list_size)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=kind, mask=pa.array(~valid))


def _as_file(batches: Iterable[pa.RecordBatch], schema: pa.Schema, format: ExportFormat) -> bytes:
    """The rows as a Parquet or Arrow file."""
    sink = pa.BufferOutputStream()
    if format is ExportFormat.ARROW:
        with pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    else:
        with pa.parquet.ParquetWriter(sink, schema) as writer:
            for table in _row_groups(batches):
                writer.write_table(table, row_group_size=_GROUP_ROWS)
    return bytes(sink.getvalue().to_pybytes())


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in row groups of a Parquet file."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(batch.num_rows for batch in held) >= _GROUP_ROWS:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
