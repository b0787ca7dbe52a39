"""The file formats that a load can read. A new format is added here.

A format defines its file extensions, how a file is split into parts, and how a part is read. Everything else is the
same for all formats: the location of files, compression, the types of rows, and the processing of the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.storage.files.input import InputFile
from omnigraph.write.input.arrow_rows import read_batches
from omnigraph.write.input.csv_rows import read_csv
from omnigraph.write.input.json_objects import read_objects
from omnigraph.write.input.mapped_columns import MappedColumns
from omnigraph.write.input.named_columns import Layout, empty_rows
from omnigraph.write.input.ndjson import Progress, read_ndjson
from omnigraph.write.input.splits import End, Reading, Start
from omnigraph.write.rows.problems import Problems

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
"""Compressions by their file extension, which follows that of the format: `.csv.gz`."""

_CHUNK = 4 * 1024 * 1024
_BATCH_BYTES = 64 << 20
_BATCH_ROWS = 1 << 18


class Format(Protocol):
    """A file format that a load can read."""

    @property
    def name(self) -> str:
        """The name of the format."""

    @property
    def endings(self) -> tuple[str, ...]:
        """The extensions of its files."""

    @property
    def compressible(self) -> bool:
        """Whether its files may be compressed as a whole."""

    @property
    def expands(self) -> bool:
        """Whether the format itself compresses data, so that rows in memory are several times larger than the file."""

    @property
    def tables(self) -> bool:
        """Whether a file is a table: its name or a mapping gives the type of its rows. Else each record has a type."""

    def split(self, file: RowFile, size: int) -> Iterator[Range]:
        """Split a file into parts of about `size` bytes that can be read separately."""

    def read(self, part: FilePart, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        """The rows of a part."""


Range = tuple[int, int | None]
"""The start and end of a part of a file. The unit depends on the format: bytes of NDJSON, row groups of Parquet, or
batches of Arrow. None is the end of the file."""
WHOLE: Range = (0, None)


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file of rows.

    Attributes:
        input: gives access to its bytes.
        format: its format.
        stem: its name without extensions. If the file is a table, this is the name of the type of its rows.
        compression: the compression of its bytes, if any.
    """

    input: InputFile
    format: Format
    stem: str
    compression: str | None

    def chunks(self) -> Iterator[bytes]:
        """The decompressed bytes.

        Raises:
            InputError: the file cannot be read.
        """
        with readable(self), self.input.open() as file:
            stream = file if self.compression is None else pa.CompressedInputStream(file, self.compression)
            while chunk := stream.read(_CHUNK):
                yield chunk

    def lines(self, low: int, high: int | None) -> Iterator[bytes]:
        """The lines that begin in a part of a text file. A compressed file has only one part.

        Args:
            low: the start of the part, in bytes.
            high: the end of the part, in bytes; None is the end of the file.

        Raises:
            InputError: the file cannot be read.
        """
        if (low, high) == WHOLE:
            yield from self.chunks()
            return
        with readable(self), self.input.open() as stream:
            at, chunk = low, b""
            if low:
                stream.seek(low - 1)
                at = low - 1 + _pass_line(stream)
            while high is None or at < high:
                chunk = stream.read(_CHUNK if high is None else min(_CHUNK, high - at))
                if not chunk:
                    return
                at += len(chunk)
                yield chunk
            while at == high and chunk and not chunk.endswith(b"\n"):
                chunk = stream.readline(_CHUNK)
                yield chunk

    def batches(self, low: int = 0, high: int | None = None) -> Iterator[pa.RecordBatch]:
        """An empty batch with the schema, then the rows of a part of the file.

        Args:
            low: the first unit of the part: a row group of Parquet, or a batch of Arrow.
            high: the unit after the part; None is the end of the file.

        Raises:
            InputError: the file cannot be read.
        """
        assert isinstance(self.format, Batched)
        with readable(self):
            yield from self.format.batches(self, low, high)


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a file to read.

    Attributes:
        file: the file.
        layout: the types of its rows, and how its columns become properties; only for formats whose files are tables.
        low: the start of the part, in units of the format: bytes of NDJSON, row groups of Parquet, batches of Arrow.
        high: the end of the part, in the same units; None is the end of the file.
    """

    file: RowFile
    layout: Layout | None
    low: int = 0
    high: int | None = None


@contextmanager
def readable(file: RowFile) -> Iterator[None]:
    """Re-raise read errors as InputError with the name of the file."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = re.sub(r"^[0-9]+] ", "", str(error).removeprefix("[Errno ").strip())
        raise InputError(f"{file.input.label} cannot be read: {reason}") from error


def _pass_line(stream: BinaryIO) -> int:
    """Read up to the end of a line. Returns the number of bytes read."""
    passed = 0
    while part := stream.readline(_CHUNK):
        passed += len(part)
        if part.endswith(b"\n"):
            break
    return passed


# The formats


@dataclass(frozen=True, slots=True)
class _Ndjson:
    """NDJSON files of envelopes. A part contains the lines that begin in a range of bytes."""

    name: str = "ndjson"
    endings: tuple[str, ...] = (".ndjson", ".jsonl", ".json")
    compressible: bool = True
    expands: bool = False
    tables: bool = False

    def split(self, file: RowFile, size: int) -> Iterator[Range]:
        if file.compression is not None:
            yield WHOLE
            return
        with readable(file):
            length = file.input.size
        count = max(1, -(-length // size))
        bounds = [length * i // count for i in range(count)]
        yield from zip(bounds, [*bounds[1:], None], strict=True)

    def read(self, part: FilePart, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        if part.layout is not None:
            yield from empty_rows(part.layout)
            columns = part.layout.columns(accepted, problems)
            assert isinstance(columns, MappedColumns)
            end = yield from read_objects(part.file.chunks(), columns, problems, part.file.input.label, start.first)
            return End(end - 1, end - 1)
        chunks = part.file.lines(part.low, part.high)
        progress = Progress(start.before + 1, start.records, middle=part.low > 0)
        yield from read_ndjson(chunks, accepted, problems, part.file.input.label, start.first, progress)
        return End(progress.line - 1 - start.before, progress.records - start.records, progress.clean)


@dataclass(frozen=True, slots=True)
class _Csv:
    """CSV and TSV files. Quoted cells may contain line breaks, so a file can only be read from its start."""

    name: str
    endings: tuple[str, ...]
    separator: str
    compressible: bool = True
    expands: bool = False
    tables: bool = True

    def split(self, file: RowFile, size: int) -> Iterator[Range]:
        yield WHOLE

    def read(self, part: FilePart, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        assert part.layout is not None
        yield from empty_rows(part.layout)
        chunks, name = part.file.chunks(), part.file.input.label
        end = yield from read_csv(chunks, part.layout, accepted, problems, name, start.first, self.separator)
        return End(end - start.first, end - start.first)


class Batched:
    """A format that is read as Arrow batches. A part of a file is a range of units, such as row groups of Parquet."""

    compressible = False
    tables = True

    def sizes(self, file: RowFile) -> Sequence[int]:
        """The approximate size of each unit in bytes."""
        raise NotImplementedError

    def batches(self, file: RowFile, low: int, high: int | None) -> Iterator[pa.RecordBatch]:
        """An empty batch with the schema, then the rows of the units from `low` up to `high`."""
        raise NotImplementedError

    def split(self, file: RowFile, size: int) -> Iterator[Range]:
        low = held = 0
        with readable(file):
            sizes = self.sizes(file)
        for number, unit in enumerate(sizes):
            if held and held + unit > size:
                yield low, number
                low, held = number, 0
            held += unit
        yield low, None

    def read(self, part: FilePart, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        assert part.layout is not None
        yield from empty_rows(part.layout)
        end = yield from read_batches(
            part.file.batches(part.low, part.high),
            part.layout,
            accepted,
            problems,
            part.file.input.label,
            start.first,
            start.before,
            begins=part.low == 0,
        )
        count = end - start.first - start.before
        return End(count, count)


@dataclass(frozen=True, slots=True)
class _Parquet(Batched):
    """Parquet. The unit of a part is a row group."""

    name: str = "parquet"
    endings: tuple[str, ...] = (".parquet",)
    expands: bool = True

    def sizes(self, file: RowFile) -> Sequence[int]:
        with file.input.native() as source, pa.parquet.ParquetFile(source) as parquet:
            groups = (parquet.metadata.row_group(i) for i in range(parquet.metadata.num_row_groups))
            return [group.total_byte_size for group in groups]

    def batches(self, file: RowFile, low: int, high: int | None) -> Iterator[pa.RecordBatch]:
        remote = file.input.remote  # for a remote file: fetch many columns with one request
        with file.input.native() as source, pa.parquet.ParquetFile(source, pre_buffer=remote) as parquet:
            yield without_rows(parquet.schema_arrow)
            groups = range(parquet.metadata.num_row_groups)[low:high]
            yield from parquet.iter_batches(batch_size=_batch_rows(parquet.metadata), row_groups=groups)


@dataclass(frozen=True, slots=True)
class _Arrow(Batched):
    """Arrow IPC. The unit of a part is a batch; a file in the stream format is one unit."""

    name: str = "arrow"
    endings: tuple[str, ...] = (".arrow", ".feather")
    expands: bool = False

    def sizes(self, file: RowFile) -> Sequence[int]:
        size = file.input.size
        with file.input.native() as source:
            try:
                count = pa.ipc.open_file(source).num_record_batches
            except pa.ArrowInvalid:
                return [size]
        return [-(-size // max(1, count))] * count

    def batches(self, file: RowFile, low: int, high: int | None) -> Iterator[pa.RecordBatch]:
        with file.input.native() as source:
            try:
                reader = pa.ipc.open_file(source)
            except pa.ArrowInvalid:
                source.seek(0)
                batches = pa.ipc.open_stream(source)
                yield without_rows(batches.schema)
                yield from batches
                return
            yield without_rows(reader.schema)
            yield from (reader.get_batch(i) for i in range(reader.num_record_batches)[low:high])


NDJSON = _Ndjson()
CSV = _Csv("csv", (".csv",), ",")
TSV = _Csv("tsv", (".tsv",), "\t")

FORMATS: list[Format] = [NDJSON, CSV, TSV, _Parquet(), _Arrow()]
"""All formats."""


def without_rows(schema: pa.Schema) -> pa.RecordBatch:
    """An empty batch with a schema."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _batch_rows(metadata: pa.parquet.FileMetaData) -> int:
    """The number of rows per batch: large for fast writes, smaller if rows are wide."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    width = -(-sum(group.total_byte_size for group in groups) // max(1, metadata.num_rows))
    return int(max(1024, min(_BATCH_ROWS, _BATCH_BYTES // max(1, width))))
