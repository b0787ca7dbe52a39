"""Where the records of a block of JSON begin and end, found for all of them at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

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
        block: the bytes as they came.
        flat: the same bytes, with spaces for the line breaks inside of records.
        offsets: where each record begins, and where the last one ends. Blank lines belong to the record before.
        lines: the line of the block on which each record begins, from 0.
    """

    block: bytes
    flat: bytes
    offsets: Numbers
    lines: Numbers

    def __len__(self) -> int:
        return len(self.lines)

    def texts(self, low: int, high: int) -> pa.Array:
        """Some of the records as binary values, without copying them."""
        offsets = np.ascontiguousarray(self.offsets[low : high + 1])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.flat)]
        return pa.Array.from_buffers(pa.large_binary(), high - low, buffers)

    def bytes_of(self, record: int) -> bytes:
        return self.block[self.offsets[record] : self.offsets[record + 1]]


@dataclass(frozen=True, slots=True)
class Framed:
    """A block, taken apart.

    Attributes:
        head: where the record ends that an earlier block began; the length of the block if it does not end here.
        records: those that begin and end in the block.
        rest: where the one begins that does not end in the block; the length of the block if there is none.
        depth: how many brackets are open at the end.
    """

    head: int
    records: Records
    rest: int
    depth: int


def one_a_line(block: bytes) -> Records | None:
    """The records of a block in which every line is one; None unless each begins and ends with a brace."""
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
    """Take a block apart whose records may stretch over several lines.

    Brackets are counted outside of strings. A string ends with its line at the latest, so that one that was not closed
    does no harm to the lines that follow.

    Args:
        block: whole lines.
        depth: how many brackets are open before it.
        heads: whether a line that begins with `{"type"` or `{"edge"` begins a record, even if the one before it did not
            end. Nothing else can look like that where no property has such a name.
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
    """Lines that begin like a record."""
    found = np.zeros(len(starts), bool)
    for head in (b'{"type"', b'{"edge"'):
        at = starts[starts + len(head) <= len(data)]
        same = np.ones(len(at), bool)
        for i, byte in enumerate(head):
            same &= data[at + i] == byte
        found[: len(at)] |= same
    return found


def _depths(net: Numbers, depth: int, heads: _Mask) -> Numbers:
    """How many brackets are open behind each line. None are before a head, and never fewer than none."""
    level = depth + np.cumsum(net)
    part = np.cumsum(heads)
    before = np.concatenate([[0], level[np.flatnonzero(heads)] - net[heads]])
    level = level - before[part]
    apart = np.int64(2**40)  # further than any level, so that the lowest so far is that of the same part
    lowest = np.minimum.accumulate(level - part * apart) + part * apart
    depths: Numbers = level - np.minimum(lowest, 0)
    return depths


def structural_count(record: bytes) -> int:
    """How many braces, brackets, colons and commas a record has outside of its strings."""
    data = np.frombuffer(record, np.uint8)
    marks = np.flatnonzero(_STRUCTURAL[data])
    return int(np.count_nonzero(np.searchsorted(_quotes(data), marks) % 2 == 0))


def _line_ends(data: _Bytes) -> Numbers:
    """Where each line ends, behind its line break."""
    ends = np.flatnonzero(data == _NEWLINE) + 1
    if len(ends) == 0 or ends[-1] != len(data):
        ends = np.append(ends, len(data))
    return ends


def _quotes(data: _Bytes) -> Numbers:
    """Where strings begin or end: the quotes that no backslash escapes."""
    quotes = np.flatnonzero(data == _QUOTE)
    slashes = np.flatnonzero(data == _BACKSLASH)
    if len(slashes) == 0:
        return quotes
    runs = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
    lengths = np.diff(np.append(runs, len(slashes)))
    behind = slashes[runs] + lengths
    return quotes[~np.isin(quotes, behind[lengths % 2 == 1])]
