"""The formats that files of rows have. This is the one place to add another.

A format says by which endings its files are known, where a file can be cut, and how a part of it is read. What it is
not asked about is the same for all: where files lie, how texts are packed, which types rows have, and what becomes of
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from omnigraph.errors import InputError
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.storage.files.input import InputFile
from omnigraph.write.input.arrow_rows import read_batches
from omnigraph.write.input.csv_rows import read_csv
from omnigraph.write.input.named_columns import Layout, mentions
from omnigraph.write.input.ndjson import Progress, read_ndjson
from omnigraph.write.input.splits import End, Reading, Start
from omnigraph.write.rows.problems import Problems

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
"""How a file may be packed that a format reads from one end to the other, by the ending behind its own."""

_CHUNK = 4 * 1024 * 1024
_BATCH_BYTES = 64 << 20
_BATCH_ROWS = 1 << 18


class Format(Protocol):
    """A way to hold rows in files."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def endings(self) -> tuple[str, ...]:
        """How the names of its files end."""

    @property
    def packed(self) -> bool:
        """Whether its files may be compressed as a whole."""

    @property
    def dense(self) -> bool:
        """Whether rows take some times as much room as in the file, without that it is compressed as a whole."""

    @property
    def tables(self) -> bool:
        """Whether a file is a table, which a layout describes. Otherwise each record says what it is."""

    def cut(self, file: RowFile, size: int) -> Iterator[Range]:
        """Parts of a file that can be read apart, each of about some size. Their bounds mean what the format says."""

    def read(self, part: FilePart, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        """The rows of a part."""


Range = tuple[int, int | None]
"""Where a part begins, and where it ends; None is the end of the file."""
WHOLE: Range = (0, None)


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file of rows.

    Attributes:
        input: where its bytes are.
        format: how it holds rows.
        stem: its name without endings: the type, for formats that hold tables.
        compression: how its bytes are packed, if they are.
    """

    input: InputFile
    format: Format
    stem: str
    compression: str | None

    def chunks(self) -> Iterator[bytes]:
        """The bytes, unpacked.

        Raises:
            InputError: they cannot be read.
        """
        with readable(self), self.input.open() as file:
            stream = file if self.compression is None else pa.CompressedInputStream(file, self.compression)
            while chunk := stream.read(_CHUNK):
                yield chunk

    def lines(self, low: int, high: int | None) -> Iterator[bytes]:
        """The lines that begin in a part of a file of text. One that is packed has only one part.

        Args:
            low: where the part begins, in bytes.
            high: where it ends; None is the end of the file.

        Raises:
            InputError: they cannot be read.
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
        """The rows of a part of a file of batches, behind a batch without rows that says which columns there are.

        Raises:
            InputError: they cannot be read.
        """
        assert isinstance(self.format, Batched)
        with readable(self):
            yield from self.format.batches(self, low, high)


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a file that is to be read.

    Attributes:
        file: the file.
        layout: its types and columns, for formats that hold tables.
        low: where the part begins.
        high: where it ends; None is the end of the file.
    """

    file: RowFile
    layout: Layout | None
    low: int = 0
    high: int | None = None


@contextmanager
def readable(file: RowFile) -> Iterator[None]:
    """Says of a file that cannot be read which it is."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = re.sub(r"^[0-9]+] ", "", str(error).removeprefix("[Errno ").strip())
        raise InputError(f"{file.input} cannot be read: {reason}") from error


def _pass_line(stream: BinaryIO) -> int:
    """Read up to the end of a line. Returns how many bytes that took."""
    passed = 0
    while part := stream.readline(_CHUNK):
        passed += len(part)
        if part.endswith(b"\n"):
            break
    return passed


# The formats


@dataclass(frozen=True, slots=True)
class _Ndjson:
    """Envelopes. A part is the lines that begin in a range of bytes."""

    name: str = "ndjson"
    endings: tuple[str, ...] = (".ndjson", ".jsonl", ".json")
    packed: bool = True
    dense: bool = False
    tables: bool = False

    def cut(self, file: RowFile, size: int) -> Iterator[Range]:
        if file.compression is not None:
            yield WHOLE
            return
        with readable(file):
            length = file.input.size
        count = max(1, -(-length // size))
        bounds = [length * i // count for i in range(count)]
        yield from zip(bounds, [*bounds[1:], None], strict=True)

    def read(self, part: FilePart, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        chunks = part.file.lines(part.low, part.high)
        progress = Progress(start.before + 1, start.records, middle=part.low > 0)
        yield from read_ndjson(chunks, accepted, problems, part.file.input.name, start.first, progress)
        return End(progress.line - 1 - start.before, progress.records - start.records, progress.clean)


@dataclass(frozen=True, slots=True)
class _Csv:
    """A header and cells. Quotes may hold line breaks, so that a file can only be read from its beginning."""

    name: str
    endings: tuple[str, ...]
    separator: str
    packed: bool = True
    dense: bool = False
    tables: bool = True

    def cut(self, file: RowFile, size: int) -> Iterator[Range]:
        yield WHOLE

    def read(self, part: FilePart, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        assert part.layout is not None
        yield from mentions(part.layout)
        chunks, name = part.file.chunks(), part.file.input.name
        end = yield from read_csv(chunks, part.layout, accepted, problems, name, start.first, self.separator)
        return End(end - start.first, end - start.first)


class Batched:
    """A file of Arrow batches, or of what becomes some. Its units are numbered."""

    packed = False
    tables = True

    def sizes(self, file: RowFile) -> Sequence[int]:
        """About how many bytes each unit has."""
        raise NotImplementedError

    def batches(self, file: RowFile, low: int, high: int | None) -> Iterator[pa.RecordBatch]:
        """The rows of some units, behind a batch without rows that says which columns there are."""
        raise NotImplementedError

    def cut(self, file: RowFile, size: int) -> Iterator[Range]:
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
        yield from mentions(part.layout)
        end = yield from read_batches(
            part.file.batches(part.low, part.high),
            part.layout,
            accepted,
            problems,
            part.file.input.name,
            start.first,
            start.before,
            begins=part.low == 0,
        )
        count = end - start.first - start.before
        return End(count, count)


@dataclass(frozen=True, slots=True)
class _Parquet(Batched):
    """A unit is a group of rows."""

    name: str = "parquet"
    endings: tuple[str, ...] = (".parquet",)
    dense: bool = True

    def sizes(self, file: RowFile) -> Sequence[int]:
        with file.input.native() as source, pa.parquet.ParquetFile(source) as parquet:
            groups = (parquet.metadata.row_group(i) for i in range(parquet.metadata.num_row_groups))
            return [group.total_byte_size for group in groups]

    def batches(self, file: RowFile, low: int, high: int | None) -> Iterator[pa.RecordBatch]:
        remote = file.input.remote  # where each look is a request, many columns are fetched with one
        with file.input.native() as source, pa.parquet.ParquetFile(source, pre_buffer=remote) as parquet:
            yield without_rows(parquet.schema_arrow)
            groups = range(parquet.metadata.num_row_groups)[low:high]
            yield from parquet.iter_batches(batch_size=_batch_rows(parquet.metadata), row_groups=groups)


@dataclass(frozen=True, slots=True)
class _Arrow(Batched):
    """A unit is a batch; a stream of batches is one unit."""

    name: str = "arrow"
    endings: tuple[str, ...] = (".arrow", ".feather")
    dense: bool = False

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
"""Every format there is."""


def without_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch that says nothing but which columns there are."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _batch_rows(metadata: pa.parquet.FileMetaData) -> int:
    """How many rows to read at once: as many as are quick to write, and fewer where rows are wide."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    width = -(-sum(group.total_byte_size for group in groups) // max(1, metadata.num_rows))
    return int(max(1024, min(_BATCH_ROWS, _BATCH_BYTES // max(1, width))))
