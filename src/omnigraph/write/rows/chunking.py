"""Rows in pieces of a bounded size.

Arrow counts the bytes of a text column in 32 bits, so one piece must stay below two GiB of text; and what is built from
a piece is in memory at once, however large the piece is that a source hands over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from omnigraph.write.rows.raw_rows import RawRows

PIECE_BYTES = 128 << 20


def pieces(raw: RawRows, limit: int = PIECE_BYTES) -> Iterator[RawRows]:
    """The same rows, cut in half until each piece is small enough, or a single row."""
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
            origin=raw.origin.chosen(slice(start, start + length)),
        )
        yield from pieces(part, limit)


def _sliced(columns: Mapping[str, pa.Array], start: int, length: int) -> dict[str, pa.Array]:
    return {name: column.slice(start, length) for name, column in columns.items()}


def _size(column: pa.Array) -> int:
    """About how many bytes the values take once they are spelled out: slices share what they were cut from."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        words = column.dictionary
        return len(column) * -(-_size(words) // max(1, len(words)))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)
        return int(views[column.offset : column.offset + len(column), 0].sum(dtype=np.int64))
    return int(column.nbytes)
