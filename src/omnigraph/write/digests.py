"""A number of 64 bits for each value of a column: equal values have equal numbers.

Eight bytes a row are what a check over all rows has to keep in memory, however long the values are. Different values
may share a number, so a digest never decides: it says which few rows to compare.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

Digests = np.ndarray[tuple[int], np.dtype[np.uint64]]

_MULTIPLIER = np.uint64(0x9E37_79B9_7F4A_7C15)
_SHIFT = np.uint64(29)
_WORD = 8


def digests(columns: Sequence[pa.ChunkedArray]) -> Digests:
    """The digest of each row of some columns, none of which has nulls."""
    count = len(columns[0])
    out = np.zeros(count, np.uint64)
    for column in columns:
        first = 0
        for chunk in column.chunks:
            part = out[first : first + len(chunk)]
            _mix(part, _texts(chunk) if _is_text(chunk.type) else _numbers(chunk))
            first += len(chunk)
    return out


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind))


def _mix(into: Digests, values: Digests) -> None:
    """Take in a value for each row, so that what comes first and what comes next makes a difference."""
    into ^= values
    into *= _MULTIPLIER
    into ^= into >> _SHIFT
    into *= _MULTIPLIER


def _numbers(column: pa.Array) -> Digests:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    values = np.frombuffer(column.buffers()[1], np.uint8)
    width = column.type.bit_width // 8
    own = values[column.offset * width : (column.offset + len(column)) * width]
    return own.view(f"<u{width}").astype(np.uint64)


def _texts(column: pa.Array) -> Digests:
    """Eight bytes at a time, over all rows that are still as long as that."""
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    if len(offsets) == 0:
        return np.zeros(0, np.uint64)
    lengths = np.diff(offsets)
    text = np.zeros(offsets[-1] - offsets[0] + _WORD, np.uint8)  # a whole word can be read at the last byte
    if data is not None:
        text[:-_WORD] = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    words = np.ndarray((len(text) - _WORD + 1,), np.dtype("<u8"), text, strides=(1,))
    out: Digests = lengths.astype(np.uint64)
    starts = offsets[:-1] - offsets[0]
    rows: np.ndarray[tuple[int], np.dtype[np.intp]] | slice = slice(None)
    for done in range(0, int(lengths.max(initial=0)), _WORD):
        if np.any(lengths <= done):
            rows = np.flatnonzero(lengths > done)
        word = words[starts[rows] + done]
        beyond = np.maximum(_WORD - (lengths[rows] - done), 0).astype(np.uint64) * np.uint64(8)
        word &= np.uint64(0xFFFF_FFFF_FFFF_FFFF) >> beyond
        part = out[rows]
        _mix(part, word)
        out[rows] = part
    return out
