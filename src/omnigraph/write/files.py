"""Files of rows: their formats by their endings, and their bytes, unpacked where they are compressed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from glob import glob, has_magic
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from omnigraph.errors import InputError

_CHUNK = 4 * 1024 * 1024
_ROWS = 1 << 17
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

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of a Parquet or Arrow file.

        Raises:
            InputError: they cannot be read.
        """
        try:
            if self.format is Format.PARQUET:
                with pa.parquet.ParquetFile(self.path) as file:
                    yield from file.iter_batches(batch_size=_ROWS)
                return
            with pa.memory_map(str(self.path)) as stream:
                try:
                    reader = pa.ipc.open_file(stream)
                except pa.ArrowInvalid:
                    stream.seek(0)
                    yield from pa.ipc.open_stream(stream)
                    return
                yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(self.path, error) from error


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

    Raises:
        InputError: there is none, or one of them cannot be loaded.
    """
    place = Path(path)
    if place.is_dir():
        found = [_known(file) for file in sorted(place.iterdir()) if file.is_file()]
        files = [file for file in found if file is not None]
        if not files:
            raise InputError(f"{place} holds no file that can be loaded", hint=_HINT)
        return files
    if not place.exists() and has_magic(str(path)):
        matches = sorted(glob(str(path), recursive=True))
        if not matches:
            raise InputError(f"no file matches {path}")
        return [file for match in matches for file in row_files(match)]
    if not place.exists():
        raise InputError(f"there is no {place}")
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
