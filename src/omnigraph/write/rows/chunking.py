"""Splits rows into chunks of bounded size.

Arrow's text columns have 32-bit offsets, so a chunk must stay below 2 GiB of text. All rows
of a chunk are in memory at once, and a source may return any number of rows at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from omnigraph.write.rows.raw_rows import RawRows

CHUNK_BYTES = 128 << 20


def chunks_of(raw: RawRows, limit: int = CHUNK_BYTES) -> Iterator[RawRows]:
    """Bisect rows until each chunk has at most `limit` bytes, or a single row."""
    count = len(raw.origin.records)
    if count < 2 or sum(_size(column) for column in raw.columns.values()) <= limit:
        yield raw
        return
    middle = count // 2
    for start, length in ((0, middle), (middle, count - middle)):
        part = replace(
            raw,
            columns=_sliced(raw.columns, start, length),
            absent=_sliced(raw.absent, start, length),
            origin=raw.origin.select(slice(start, start + length)),
        )
        yield from chunks_of(part, limit)


def _sliced(columns: Mapping[str, pa.Array], start: int, length: int) -> dict[str, pa.Array]:
    return {name: column.slice(start, length) for name, column in columns.items()}


def _size(column: pa.Array) -> int:
    """The approximate size of a column in bytes, after dictionaries and string views are decoded."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        words = column.dictionary
        return len(column) * -(-_size(words) // max(1, len(words)))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)
        return int(views[column.offset : column.offset + len(column), 0].sum(dtype=np.int64))
    return int(column.nbytes)
