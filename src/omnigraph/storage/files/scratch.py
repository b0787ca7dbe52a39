"""Scratch files: rows that are spilled to disk when they exceed the memory budget.

A scratch file has no name after it is opened, so the operating system removes it even if the process is killed.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import pyarrow as pa

from omnigraph.errors import StorageError, StorageErrorKind

_ADVICE = "free disk space there, set TMPDIR to another directory, or raise the memory budget"


class Scratch:
    """An unnamed temporary file for rows of one schema.

    Write first, then read, then close. A mapped table stays valid after the close.

    Args:
        schema: the columns.
        hint: the hint in the error if the disk is full.

    Raises:
        StorageError: the temporary directory cannot be written.
    """

    def __init__(self, schema: pa.Schema, *, hint: str = _ADVICE) -> None:
        self._hint = hint
        self._schema = schema
        self.size = 0
        """Bytes of rows written so far."""
        with self._reporting():
            self._file = tempfile.TemporaryFile(prefix="omnigraph-")  # noqa: SIM115
            self._writer: pa.RecordBatchStreamWriter | None = pa.ipc.new_stream(self._file, schema)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Spill rows.

        Raises:
            StorageError: the temporary directory is full.
        """
        assert self._writer is not None, "the rows are already being read"
        with self._reporting():
            self._writer.write(rows)
        self.size += rows.nbytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the written batches one by one, so that only one is in memory."""
        self._finish()
        self._file.seek(0)
        with pa.ipc.open_stream(pa.PythonFile(self._file, "r")) as reader:
            yield from reader

    def table(self) -> pa.Table:
        """Map the written rows into memory. The operating system pages them in and out."""
        self._finish()
        # The mapping survives the file object. The file is removed with the last array that uses it.
        with self._reporting():
            mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        with pa.ipc.open_stream(pa.py_buffer(mapped)) as reader:
            return reader.read_all()

    def close(self) -> None:
        """Close the file, which removes it."""
        self._file.close()

    def _finish(self) -> None:
        if self._writer is not None:
            with self._reporting():
                self._writer.close()
                self._file.flush()
            self._writer = None

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"rows that exceed the memory budget cannot be spilled to disk: {error.strerror or error}",
                kind=StorageErrorKind.PERMANENT,
                uri=tempfile.gettempdir(),
                hint=self._hint,
            ) from error
