"""64-bit hashes of the values of a column. Equal values have equal hashes.

A check of all rows keeps only a hash of eight bytes per row in memory. Different values can have the same hash, so the
rows with equal hashes are then compared by their values.
"""

# See docs/decisions/0061-checks-compare-digests-first.md

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Digests = np.ndarray[tuple[int], np.dtype[np.uint64]]

_MULTIPLIER = np.uint64(0x9E37_79B9_7F4A_7C15)
_SHIFT = np.uint64(29)
_WORD = 8


def digests(columns: Sequence[pa.ChunkedArray]) -> Digests:
    """The hash of each row over some columns without nulls."""
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
    tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def value_digests(column: pa.Array) -> Digests:
    """The hash of each value, for any type. The hash of null is 0; no other value has the hash 0."""
    out = np.zeros(len(column), np.uint64)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    values = column if column.null_count == 0 else column.drop_null()
    if len(values) == 0:
        return out
    kind = values.type
    mixed = np.zeros(len(values), np.uint64)
    if pa.types.is_struct(kind):
        for member in values.flatten():
            _mix(mixed, value_digests(member))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lengths = pc.list_value_length(values).cast(pa.int64()).to_numpy()
        _mix(mixed, lengths.astype(np.uint64))
        _mix(mixed, _items(value_digests(values.flatten()), lengths))
    else:
        _mix(mixed, _texts(values) if _is_text(kind) else _numbers(values))
    mixed[mixed == 0] = 1
    out[valid] = mixed
    return out


def _items(numbers: Digests, lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Digests:
    """The hash of each list, from the hashes of its items and their order."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    positions = np.arange(len(numbers)) - np.repeat(starts, lengths)
    weighed = numbers * powers(_MULTIPLIER, int(lengths.max(initial=0)))[positions]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(weighed, dtype=np.uint64)])
    found: Digests = sums[ends] - sums[starts]
    return found


def powers(base: np.uint64, count: int) -> Digests:
    """The first powers of a number, starting with 1."""
    factors = np.full(count, base, np.uint64)
    factors[:1] = 1
    return np.cumprod(factors, dtype=np.uint64)


def _mix(into: Digests, values: Digests) -> None:
    """Combine the hash of each row with the hash of its next column. The order of the columns matters."""
    into ^= values
    into *= _MULTIPLIER
    into ^= into >> _SHIFT
    into *= _MULTIPLIER


def _numbers(column: pa.Array) -> Digests:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    values = np.frombuffer(column.buffers()[1], np.uint8)
    width = column.type.bit_width // 8
    slice_bytes = values[column.offset * width : (column.offset + len(column)) * width]
    return slice_bytes.view(f"<u{width}").astype(np.uint64)


def _texts(column: pa.Array) -> Digests:
    """Hash texts, eight bytes at a time. Each step covers all rows that still have bytes."""
    _, offsets_buffer, data = column.buffers()
    width = np.int64 if pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type) else np.int32
    offsets = np.frombuffer(offsets_buffer, width)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    if len(offsets) == 0:
        return np.zeros(0, np.uint64)
    lengths = np.diff(offsets)
    # The padding allows to read a whole word at the last byte, too.
    text = np.zeros(offsets[-1] - offsets[0] + _WORD, np.uint8)
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
