"""Files of rows: their formats by their endings, and their bytes, unpacked where they are compressed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from glob import glob, has_magic
from io import BufferedReader
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from omnigraph.errors import InputError, cut

_CHUNK = 4 * 1024 * 1024
_BATCH_BYTES = 64 << 20
_BATCH_ROWS = 1 << 18
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}


class Format(StrEnum):
    """How a file holds rows."""

    NDJSON = "ndjson"
    CSV = "csv"
    TSV = "tsv"
    PARQUET = "parquet"
    ARROW = "arrow"


_ENDINGS = {
    ".ndjson": Format.NDJSON,
    ".jsonl": Format.NDJSON,
    ".json": Format.NDJSON,
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".parquet": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
}
_TEXT = (Format.NDJSON, Format.CSV, Format.TSV)
_NO_PATH = "a text is the path of a file; what a file would hold is given as bytes"
_HINT = f"the endings are {', '.join(_ENDINGS)}; texts may be compressed ({', '.join(_COMPRESSIONS)})"


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file of rows.

    Attributes:
        path: where it is.
        format: how it holds rows.
        stem: its name without endings: the type, for formats that hold one.
        compression: how its bytes are packed, if they are.
    """

    path: Path
    format: Format
    stem: str
    compression: str | None

    def chunks(self) -> Iterator[bytes]:
        """The bytes, unpacked.

        Raises:
            InputError: they cannot be read.
        """
        try:
            with pa.input_stream(str(self.path), compression=self.compression) as stream:
                while chunk := stream.read(_CHUNK):
                    yield chunk
        except OSError as error:
            raise _unreadable(self.path, error) from error

    def lines(self, low: int, high: int | None) -> Iterator[bytes]:
        """The lines that begin in a part of a file of text which is not packed.

        Args:
            low: where the part begins, in bytes.
            high: where it ends; None is the end of the file.

        Raises:
            InputError: they cannot be read.
        """
        try:
            with self.path.open("rb") as stream:
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
        except OSError as error:
            raise _unreadable(self.path, error) from error

    def units(self) -> list[int]:
        """The sizes of what a file can be cut into: bytes of text, groups of rows, or batches.

        Raises:
            InputError: it cannot be read.
        """
        try:
            if self.format is Format.PARQUET:
                with pa.parquet.ParquetFile(self.path, memory_map=True) as file:
                    groups = (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
                    return [group.total_byte_size for group in groups]
            if self.format is Format.ARROW:
                with pa.memory_map(str(self.path)) as stream:
                    try:
                        count = pa.ipc.open_file(stream).num_record_batches
                    except pa.ArrowInvalid:
                        return [self.path.stat().st_size]
                    return [-(-self.path.stat().st_size // max(1, count))] * count
            return [self.path.stat().st_size]
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(self.path, error) from error

    def batches(self, low: int = 0, high: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a Parquet or Arrow file, behind a batch without rows that says which columns there are.

        Args:
            low: the first of the groups of rows or batches to read.
            high: the one behind the last; None reads all.

        Raises:
            InputError: they cannot be read.
        """
        try:
            if self.format is Format.PARQUET:
                with pa.parquet.ParquetFile(self.path, memory_map=True, pre_buffer=False) as file:
                    yield without_rows(file.schema_arrow)
                    groups = range(file.metadata.num_row_groups)[low:high]
                    yield from file.iter_batches(batch_size=_batch_rows(file.metadata), row_groups=groups)
                return
            with pa.memory_map(str(self.path)) as stream:
                try:
                    reader = pa.ipc.open_file(stream)
                except pa.ArrowInvalid:
                    stream.seek(0)
                    batches = pa.ipc.open_stream(stream)
                    yield without_rows(batches.schema)
                    yield from batches
                    return
                yield without_rows(reader.schema)
                yield from (reader.get_batch(i) for i in range(reader.num_record_batches)[low:high])
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(self.path, error) from error


def _pass_line(stream: BufferedReader) -> int:
    """Read up to the end of a line. Returns how many bytes that took."""
    passed = 0
    while part := stream.readline(_CHUNK):
        passed += len(part)
        if part.endswith(b"\n"):
            break
    return passed


def without_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch that says nothing but which columns there are."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _batch_rows(metadata: pa.parquet.FileMetaData) -> int:
    """How many rows to read at once: as many as are quick to write, and fewer where rows are wide."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    width = -(-sum(group.total_byte_size for group in groups) // max(1, metadata.num_rows))
    return int(max(1024, min(_BATCH_ROWS, _BATCH_BYTES // max(1, width))))


def row_file(path: Path) -> RowFile:
    """A file by its name.

    Raises:
        InputError: its ending means nothing.
    """
    name = path.name
    compression = _COMPRESSIONS.get(path.suffix.lower())
    if compression is not None:
        name = name[: -len(path.suffix)]
    format_ = _ENDINGS.get(Path(name).suffix.lower())
    if format_ is None or (compression is not None and format_ not in _TEXT):
        raise InputError(f"{path} cannot be loaded", hint=_HINT)
    return RowFile(path, format_, Path(name).stem, compression)


def row_files(path: str | Path) -> list[RowFile]:
    """The file of a path, all files of a directory, or all that a pattern matches, in name order.

    A directory with the ending of a file, such as other systems write, is the parts of that file: its name says the
    type. Files whose names begin with a point or an underscore are passed over.

    Raises:
        InputError: there is none, or one of them cannot be loaded.
    """
    place = Path(path)
    try:
        is_directory, exists = place.is_dir(), place.exists()
    except OSError as error:
        raise InputError(f"{cut(str(path))} cannot be read: {error.strerror}", hint=_NO_PATH) from None
    if is_directory:
        found = [_known(file) for file in sorted(place.iterdir()) if file.is_file() and file.name[0] not in "._"]
        files = [file for file in found if file is not None]
        if not files:
            raise InputError(f"{place} holds no file that can be loaded", hint=_HINT)
        one_type = place.suffix.lower() in _ENDINGS
        return [replace(file, stem=place.stem) for file in files] if one_type else files
    if not exists and has_magic(str(path)):
        matches = sorted(glob(str(path), recursive=True))
        if not matches:
            raise InputError(f"no file matches {cut(str(path))}")
        return [file for match in matches for file in row_files(match)]
    if not exists:
        raise InputError(f"there is no {cut(str(place))}")
    return [row_file(place)]


def _known(path: Path) -> RowFile | None:
    """A file in a directory; what is not for loading is passed over."""
    try:
        return row_file(path)
    except InputError:
        return None


def _unreadable(path: Path, error: Exception) -> InputError:
    reason = str(error).removeprefix("[Errno ").strip()
    return InputError(f"{path} cannot be read: {re.sub(r'^[0-9]+] ', '', reason)}")
