"""External sort of a table by id.

A table that fits the budget is sorted in memory. A larger one is range-partitioned by id into temporary files, and each
of them is sorted.
"""

# See docs/decisions/0052-an-export-is-sorted.md

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from omnigraph.dataclass import dataclass
from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.read.budget import checkpoint
from omnigraph.read.budget.interruptible import run_interruptibly

BATCH_ROWS = 8192
"""Rows per output batch. Only the last batch may have fewer."""

MEMORY_BYTES = 256 * 1024 * 1024
"""Approximate number of bytes of rows that are in memory at a time."""

_ID = "id"
_SORTED_AT_ONCE = 65_536
"""Number of ids that are sorted within a few hundredths of a second."""

MAX_FILES = 64
"""Maximum number of temporary files that the rows are partitioned into at a time."""

SAMPLE_ROWS = 65_536
"""Approximate number of sampled ids, from which the id ranges of the temporary files are computed."""


class Rows(Protocol):
    """Rows that can be read more than once."""

    @property
    def count(self) -> int: ...

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]: ...


def in_order(rows: Rows, budget: int = MEMORY_BYTES) -> Iterator[pa.Table]:
    """Rows sorted by id, in batches of `BATCH_ROWS` rows. Ids must be distinct; they are compared by code points.

    Raises:
        StorageError: the temporary directory is full or cannot be written.
    """
    rest: pa.Table | None = None
    for table in _sorted(rows, budget):
        rest = table if rest is None else pa.concat_tables([rest, table])
        while rest.num_rows >= BATCH_ROWS:
            yield rest.slice(0, BATCH_ROWS)
            rest = rest.slice(BATCH_ROWS)
    if rest is not None and rest.num_rows:
        yield rest


def _sorted(rows: Rows, budget: int) -> Iterator[pa.Table]:
    """Rows sorted by id, in batches of any size."""
    held: list[pa.RecordBatch] = []
    size = 0
    batches = rows.batches()
    for batch in batches:
        checkpoint()
        held.append(batch)
        size += batch.nbytes
        if size > budget and rows.count > 1:
            break
    else:
        if held:
            yield from _sorted_table(pa.Table.from_batches(held))
        return
    share = sum(batch.num_rows for batch in held) / rows.count
    files = min(MAX_FILES, max(2, int(2 / share)))
    with tempfile.TemporaryDirectory(prefix="omnigraph-order-") as directory:
        limits = _limits(rows, files)
        parts = _divided(chain(held, batches), limits, directory, budget // 8)
        held.clear()
        for part in parts:
            yield from _sorted(part, budget)
            os.unlink(part.path)


def _sorted_table(table: pa.Table) -> Iterator[pa.Table]:
    table = table.combine_chunks()
    if table.num_rows > _SORTED_AT_ONCE:
        order = run_interruptibly(lambda: pc.sort_indices(table[_ID]))
    else:
        order = pc.sort_indices(table[_ID])
    for start in range(0, table.num_rows, BATCH_ROWS):
        checkpoint()
        yield table.take(order.slice(start, BATCH_ROWS))


def _limits(rows: Rows, files: int) -> pa.Array:
    """Ids that divide the rows into ranges of about equal size: the first id of each range but the first."""
    step = max(1, rows.count // SAMPLE_ROWS)
    seen = 0
    samples = []
    for batch in rows.batches([_ID]):
        checkpoint()
        samples.append(batch.column(_ID).take(pa.array(np.arange(-seen % step, batch.num_rows, step))))
        seen += batch.num_rows
    sample = pa.concat_arrays(samples).unique().sort()
    places = np.unique(np.linspace(0, len(sample), files, endpoint=False, dtype=np.int64)[1:])
    return sample.take(pa.array(places[places > 0]))


@dataclass(frozen=True, slots=True)
class _File:
    """Rows in a temporary file."""

    path: str
    count: int

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(self.path) as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                yield batch if columns is None else batch.select(list(columns))


def _divided(batches: Iterable[pa.RecordBatch], limits: pa.Array, directory: str, together: int) -> list[_File]:
    """Write each row to the file of its id range."""
    counts = [0] * (len(limits) + 1)
    paths = [os.path.join(directory, str(number)) for number in range(len(counts))]
    writers: list[pa.ipc.RecordBatchStreamWriter] = []
    try:
        for table in _combined(batches, together):
            checkpoint()
            if not writers:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                writers = [pa.ipc.new_stream(pa.OSFile(p, "wb"), table.schema, options=options) for p in paths]
            range_of = np.zeros(table.num_rows, np.int64)
            for limit in limits:
                range_of += pc.greater_equal(table[_ID], limit).to_numpy().astype(np.int64)
            for number in np.unique(range_of).tolist():
                chosen = table.filter(pa.array(range_of == number))
                writers[number].write_table(chosen)
                counts[number] += chosen.num_rows
        for writer in writers:
            writer.close()
    except OSError as error:
        raise StorageError(
            f"rows cannot be spilled to disk for sorting: {error.strerror or error}",
            kind=StorageErrorKind.PERMANENT,
            uri=tempfile.gettempdir(),
            hint="free disk space in the directory for temporary files, or set TMPDIR to another directory",
        ) from error
    return [_File(path, count) for path, count in zip(paths, counts, strict=True) if count]


def _combined(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Combine small batches into larger ones, so that each file does not get many tiny batches."""
    held: list[pa.RecordBatch] = []
    total = 0
    for batch in batches:
        held.append(batch)
        total += batch.nbytes
        if total >= size:
            yield pa.Table.from_batches(held).combine_chunks()
            held, total = [], 0
    if held:
        yield pa.Table.from_batches(held).combine_chunks()
