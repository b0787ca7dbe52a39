"""Rows that are put aside: in a temporary file, from the moment that memory does not suffice until they are read.

A file has no name from the moment that it is opened, so nothing is left behind however the process ends.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import pyarrow as pa

from omnigraph.errors import StorageError, StorageErrorKind

_ADVICE = "make room there, name another directory in TMPDIR, or give it more memory"


class Scratch:
    """A temporary file without a name that takes rows of one schema.

    First everything is written, then it is read. It is to be closed at the end; a table that was mapped stays.

    Args:
        schema: the columns.
        hint: what to do when there is no room for it.

    Raises:
        StorageError: the temporary directory cannot be written to.
    """

    def __init__(self, schema: pa.Schema, *, hint: str = _ADVICE) -> None:
        self._hint = hint
        self._schema = schema
        self.size = 0
        """How many bytes of rows were written."""
        with self._noticed():
            self._file = tempfile.TemporaryFile(prefix="omnigraph-")  # noqa: SIM115
            self._writer: pa.RecordBatchStreamWriter | None = pa.ipc.new_stream(self._file, schema)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Put rows aside.

        Raises:
            StorageError: the temporary directory is full.
        """
        assert self._writer is not None, "it is read already"
        with self._noticed():
            self._writer.write(rows)
        self.size += rows.nbytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        """What was written, piece by piece as it was: one at a time is in memory."""
        self._finish()
        self._file.seek(0)
        with pa.ipc.open_stream(pa.PythonFile(self._file, "r")) as reader:
            yield from reader

    def table(self) -> pa.Table:
        """What was written, mapped into memory: the system brings its pages in and throws them out as it likes."""
        self._finish()
        # The mapping outlives the file object, and the file goes with the last array that looks into it.
        with self._noticed():
            mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        with pa.ipc.open_stream(pa.py_buffer(mapped)) as reader:
            return reader.read_all()

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def _finish(self) -> None:
        if self._writer is not None:
            with self._noticed():
                self._writer.close()
                self._file.flush()
            self._writer = None

    @contextmanager
    def _noticed(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"rows that exceed the memory budget cannot be put aside: {error.strerror or error}",
                kind=StorageErrorKind.PERMANENT,
                uri=tempfile.gettempdir(),
                hint=self._hint,
            ) from error
