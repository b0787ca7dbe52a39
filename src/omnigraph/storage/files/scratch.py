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

SPILL_BYTES = 64 << 20
"""Maximum size of the rows that `RowCollector` keeps in memory."""

_ADVICE = "free disk space in this directory, set TMPDIR to another directory, or raise the memory budget"


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


class RowCollector:
    """Collects rows as one table: in memory up to `SPILL_BYTES`, otherwise in a temporary file that is mapped.

    Args:
        schema: the columns.

    Raises:
        StorageError: the temporary directory is full or not writable.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._held: list[pa.Table] = []
        self._size = 0
        self._scratch: Scratch | None = None

    def __enter__(self) -> RowCollector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._scratch is not None:
            self._scratch.close()

    def add(self, part: pa.Table | pa.RecordBatch) -> None:
        rows = pa.Table.from_batches([part]) if isinstance(part, pa.RecordBatch) else part
        self._held.append(rows.select(self._schema.names).cast(self._schema))
        self._size += self._held[-1].nbytes
        if self._scratch is None and self._size > SPILL_BYTES:
            self._scratch = Scratch(self._schema)
        if self._scratch is not None:
            for table in self._held:
                self._scratch.write(table)
            self._held.clear()

    def table(self) -> pa.Table:
        """The collected rows. Nothing can be added afterwards."""
        if self._scratch is None:
            return pa.concat_tables([self._schema.empty_table(), *self._held])
        return self._scratch.table()
