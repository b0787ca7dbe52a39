"""Finds the start and end of all records in a block of JSON, with NumPy operations on the whole block."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
_Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
_Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]

_NEWLINE, _RETURN, _QUOTE, _BACKSLASH, _OPEN, _CLOSE = b'\n\r"\\{}'

_STEP = np.zeros(256, np.int8)
_STEP[list(b"{[")] = 1
_STEP[list(b"}]")] = -1
_STRUCTURAL = np.zeros(256, bool)
_STRUCTURAL[list(b"{}[]:,")] = True
_INK = np.ones(256, bool)
_INK[list(b" \t\r\n")] = False


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a block.

    Attributes:
        block: the original bytes.
        flat: the same bytes, with spaces instead of the line breaks inside of records.
        offsets: the byte offset of each record in the block, and of the end of the last record. Blank lines belong to
            the record before them.
        lines: the number of the line on which each record begins, counted from 0 in the block.
    """

    block: bytes
    flat: bytes
    offsets: Numbers
    lines: Numbers

    def __len__(self) -> int:
        return len(self.lines)

    def texts(self, low: int, high: int) -> pa.Array:
        """The records from `low` up to `high` as binary values, without copying them."""
        offsets = np.ascontiguousarray(self.offsets[low : high + 1])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.flat)]
        return pa.Array.from_buffers(pa.large_binary(), high - low, buffers)

    def bytes_of(self, record: int) -> bytes:
        return self.block[self.offsets[record] : self.offsets[record + 1]]


@dataclass(frozen=True, slots=True)
class Framed:
    """A block split into records.

    Attributes:
        head: the byte offset at which the record that began in an earlier block ends; the length of the block if the
            record does not end in it.
        records: the records that begin and end in the block.
        rest: the byte offset of the last record, if it does not end in the block; else the length of the block.
        depth: number of open brackets at the end of the block.
    """

    head: int
    records: Records
    rest: int
    depth: int


def one_a_line(block: bytes) -> Records | None:
    """The records of a block with one record per line; None unless every line begins and ends with a brace."""
    data = np.frombuffer(block, np.uint8)
    ends = _line_ends(data)
    starts = np.concatenate([[0], ends[:-1]])
    last = ends - 1
    for skipped in (_NEWLINE, _RETURN):
        last = last - (data[last] == skipped)
    if np.any(data[starts] != _OPEN) or np.any(last < starts) or np.any(data[last] != _CLOSE):
        return None
    return Records(block, block, np.concatenate([starts, ends[-1:]]), np.arange(len(starts)))


def frame(block: bytes, depth: int = 0, *, heads: bool = False) -> Framed:
    """Split a block whose records may span several lines.

    Counts brackets outside of strings. A string ends at the end of its line at the latest, so an unclosed string
    does not affect the lines after it.

    Args:
        block: whole lines.
        depth: number of open brackets before the block.
        heads: whether a line that begins with `{"type"` or `{"edge"` starts a record even if the previous one did not
            end. This is safe if no property is named `type` or `edge`.
    """
    data = np.frombuffer(block, np.uint8)
    ends = _line_ends(data)
    starts = np.concatenate([[0], ends[:-1]])
    quotes = _quotes(data)
    quotes_before = np.searchsorted(quotes, starts)
    brackets = np.flatnonzero(_STEP[data])
    line_of = np.searchsorted(ends, brackets, "right")
    outside = (np.searchsorted(quotes, brackets) - quotes_before[line_of]) % 2 == 0
    steps = _STEP[data[brackets[outside]]]
    net = np.bincount(line_of[outside], weights=steps, minlength=len(ends)).astype(np.int64)
    is_head = _heads(data, starts) if heads else np.zeros(len(starts), bool)
    depths = _depths(net, depth, is_head)
    ink = np.flatnonzero(_INK[data])
    inked = np.searchsorted(ink, ends) > np.searchsorted(ink, starts)
    closed = is_head | (np.concatenate([[depth], depths[:-1]]) == 0)
    begins = np.flatnonzero(closed & inked)
    head = 0
    if depth and not is_head[0]:
        done = np.flatnonzero(depths == 0)
        stops = np.flatnonzero(is_head)
        head = min(int(ends[done[0]]) if len(done) else len(block), int(starts[stops[0]]) if len(stops) else len(block))
    rest = len(block)
    if depths[-1] > 0 and head < len(block):
        rest = int(starts[begins[-1]])
        begins = begins[:-1]
    whole_strings = (np.searchsorted(quotes, ends) - quotes_before) % 2 == 0
    inner = ends[(depths > 0) & whole_strings] - 1
    flat = data.copy()
    flat[inner[flat[inner] == _NEWLINE]] = ord(" ")
    flat[starts[is_head & (starts > 0)] - 1] = _NEWLINE
    records = Records(block, flat.tobytes(), np.append(starts[begins], rest), begins)
    return Framed(head, records, rest, int(depths[-1]))


def _heads(data: _Bytes, starts: Numbers) -> _Mask:
    """Mask of the lines that begin with `{"type"` or `{"edge"`."""
    found = np.zeros(len(starts), bool)
    for head in (b'{"type"', b'{"edge"'):
        at = starts[starts + len(head) <= len(data)]
        same = np.ones(len(at), bool)
        for i, byte in enumerate(head):
            same &= data[at + i] == byte
        found[: len(at)] |= same
    return found


def _depths(net: Numbers, depth: int, heads: _Mask) -> Numbers:
    """The number of open brackets after each line, never negative. The count restarts at 0 at each line in `heads`."""
    level = depth + np.cumsum(net)
    part = np.cumsum(heads)
    before = np.concatenate([[0], level[np.flatnonzero(heads)] - net[heads]])
    level = level - before[part]
    apart = np.int64(2**40)  # larger than any bracket count, so that the running minimum restarts at each of `heads`
    lowest = np.minimum.accumulate(level - part * apart) + part * apart
    depths: Numbers = level - np.minimum(lowest, 0)
    return depths


def structural_count(record: bytes) -> int:
    """The number of braces, brackets, colons and commas of a record outside of strings."""
    data = np.frombuffer(record, np.uint8)
    marks = np.flatnonzero(_STRUCTURAL[data])
    return int(np.count_nonzero(np.searchsorted(_quotes(data), marks) % 2 == 0))


def _line_ends(data: _Bytes) -> Numbers:
    """The byte offset after each line and its line break."""
    ends = np.flatnonzero(data == _NEWLINE) + 1
    if len(ends) == 0 or ends[-1] != len(data):
        ends = np.append(ends, len(data))
    return ends


def _quotes(data: _Bytes) -> Numbers:
    """The quotes that start or end strings: those without an escaping backslash."""
    quotes = np.flatnonzero(data == _QUOTE)
    slashes = np.flatnonzero(data == _BACKSLASH)
    if len(slashes) == 0:
        return quotes
    runs = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
    lengths = np.diff(np.append(runs, len(slashes)))
    after = slashes[runs] + lengths
    return quotes[~np.isin(quotes, after[lengths % 2 == 1])]
