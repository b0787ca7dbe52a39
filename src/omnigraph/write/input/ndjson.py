"""Reads NDJSON envelopes in blocks, one type at a time.

A block is grouped by the types of its lines and parsed by Arrow's JSON reader, which is as strict as `EnvelopeReader`:
duplicate members, unknown members, wrong types and numbers out of range are errors. A block with errors is bisected.
The remaining small parts are read record by record, for exact error messages.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.errors import ResourceLimitError
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.write.input.envelopes import EnvelopeReader
from omnigraph.write.input.framing import Numbers, Records, frame, one_a_line, structural_count
from omnigraph.write.input.json_types import TypeReader
from omnigraph.write.rows.problems import SHOWN, Problems
from omnigraph.write.rows.raw_rows import Origin, RawRows
from omnigraph.write.rows.values import with_null_items

BLOCK_BYTES = 16 * 1024 * 1024
MAX_RECORD_BYTES = 32 * 1024 * 1024
"""Maximum length of a record in bytes. It bounds the memory for a line that never ends."""
MAX_STRUCTURAL = 131_072
"""Maximum number of braces, brackets, colons and commas in one record."""

MAX_SINGLE_RECORDS = 64
"""A part of a block with at most this number of records is not bisected again, but read record by record."""

_MAX_BISECTIONS = 256
"""Maximum number of bisections per block. After that, its records are read one by one."""
_PART_BYTES = 2 * 1024 * 1024
_NON_SPACE = re.compile(rb"[^ \t\r\n]")
_BOM = b"\xef\xbb\xbf"


@dataclass(slots=True)
class Progress:
    """A position in a file: the start of a part before it is read, and its end after it was read.

    Attributes:
        line: the number of the next line, from 1.
        records: number of records before that line.
        clean: whether another reader can continue at this position: no record is incomplete, and `records` is certain.
        middle: whether the bytes begin in the middle of a file.
    """

    line: int = 1
    records: int = 0
    clean: bool = True
    middle: bool = False


def read_ndjson(
    chunks: Iterable[bytes],
    accepted: AcceptedSchema,
    problems: Problems,
    name: str = "",
    first: int = 1,
    progress: Progress | None = None,
) -> Generator[RawRows, None, int]:
    """The rows of an NDJSON stream. The rows of each block are grouped by type.

    Args:
        chunks: the bytes of the file. A chunk may end anywhere, even inside of a record.
        accepted: the accepted schema.
        problems: collects records that cannot be read. If `problems.coerced` is set, the reader is lenient.
        name: the name of the file in error messages.
        first: the position of the first line of the file in the whole input.
        progress: the position of the bytes in the file; updated while reading.

    Returns:
        The position after the last line.

    Raises:
        ResourceLimitError: a record is too large.
    """
    at = progress or Progress()
    stream = _Stream(accepted, problems, f"{name}, " if name else "", first, at)
    for block, last in stream.blocks(chunks):
        yield from stream.read(block, last)
    at.line, at.records = stream.line, stream.records
    at.clean = stream.clean and not stream.several
    return first + stream.line - 1


class _Locations:
    """Describes the location of records for error messages: the line, and the record number if it is different.

    After an unclosed record, or several records on a line, the record number is uncertain and left out.
    """

    def __init__(self, prefix: str, first: int, starts: Numbers, before: int, lenient: bool) -> None:
        self.prefix = prefix
        self.first = first
        self.starts = starts
        self.before = before
        self.lenient = lenient
        self.uncertain = False

    def __call__(self, position: int) -> str:
        line = position - self.first + 1
        if self.uncertain:
            return f"{self.prefix}line {line}"
        record = self.before + int(np.searchsorted(self.starts, line, "right"))
        if self.lenient:
            return f"{self.prefix}record {record}" + (f" (line {line})" if line != record else "")
        return f"{self.prefix}line {line}" + (f" (record {record})" if line != record else "")


def _parts(block: bytes) -> Iterator[bytes]:
    """A block, or parts of it, if its lines are so short that their offsets would take more memory than the lines."""
    if block.count(b"\n") * 16 < len(block):
        yield block
        return
    start = 0
    while start < len(block):
        end = block.find(b"\n", start + _PART_BYTES) + 1 or len(block)
        yield block[start:end]
        start = end


class _Stream:
    """Reads the blocks of a stream in order, and counts lines and records."""

    def __init__(self, accepted: AcceptedSchema, problems: Problems, prefix: str, first: int, begin: Progress) -> None:
        self.accepted = accepted
        self.problems = problems
        self.prefix = prefix
        self.first = first
        self.line = begin.line
        self.records = begin.records
        self.clean = True
        """Whether every record was complete, and no broken record contained the start of another."""
        self._begins_file = not begin.middle
        self._held: list[bytes] = []
        self._held_line = self._depth = 0
        self._tries = self._recoveries = 0
        self._types = TypeReader(accepted)
        self._envelopes = EnvelopeReader(accepted, problems, str)
        nodes = (node.properties for node in accepted.catalog.nodes.values())
        edges = (edge.properties for edge in accepted.catalog.edges.values())
        self._plain = not any({"type", "edge"} & properties.keys() for properties in (*nodes, *edges))

    @property
    def several(self) -> bool:
        """Whether some line had more than one record."""
        return self._envelopes.several

    def blocks(self, chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
        """The blocks of the stream, and for each whether it is the last. A block consists of whole lines."""
        held: list[bytes] = []
        size = open_size = lines = 0
        first = self._begins_file
        for chunk in chunks:
            if first and chunk:
                chunk, first = chunk.removeprefix(_BOM), False
            held.append(chunk)
            size += len(chunk)
            end = chunk.rfind(b"\n") + 1
            lines += chunk.count(b"\n")
            open_size = len(chunk) - end if end else open_size + len(chunk)
            if open_size > MAX_RECORD_BYTES:
                raise self._too_long(lines + 1, open_size)
            if size < BLOCK_BYTES or open_size == size:
                continue
            if end:  # the usual case; a chunk without a line break is the middle of a long line
                held[-1] = chunk[:end]
                yield b"".join(held), False
                held = [chunk[end:]]
            else:
                block = b"".join(held)
                yield block[: size - open_size], False
                held = [block[size - open_size :]]
            size = open_size
        yield b"".join(held), True

    def read(self, block: bytes, last: bool) -> Iterator[RawRows]:
        """The rows of a block, including the record that began in an earlier block."""
        if not self._held and _NON_SPACE.search(block):
            records = one_a_line(block)
            if records is not None:
                self._begin(records)
                self._tries = _MAX_BISECTIONS
                rows = self._fast(records, 0, len(records))
                if rows is not None:
                    yield from rows
                    self._end(block, len(records))
                    return
        for part in _parts(block):
            yield from self._framed(part)
        if last and self._held:
            self.clean = False
            yield from self._read_held()

    def _framed(self, block: bytes) -> Iterator[RawRows]:
        """The rows of a block whose records may span lines."""
        if not self._held and not _NON_SPACE.search(block):
            self._end(block, 0)
            return
        self._tries, self._recoveries = _MAX_BISECTIONS, SHOWN
        framed = frame(block, self._depth, heads=self._plain)
        if self._held:
            self._held.append(block[: framed.head])
            size = sum(map(len, self._held))
            ended = framed.head < len(block) or framed.depth == 0
            if ended or size > MAX_RECORD_BYTES:
                yield from self._read_held()
            if not ended:
                self._depth = framed.depth if self._held else 0
                self._end(block, 0)
                return
        self._depth = framed.depth
        self._begin(framed.records)
        yield from self._part(framed.records, 0, len(framed.records))
        if framed.rest < len(block):
            self._held = [block[framed.rest :]]
            self._held_line = self.line + block.count(b"\n", 0, framed.rest)
        self._end(block, len(framed.records))

    def _read_held(self) -> Iterator[RawRows]:
        """Read the record that began in an earlier block, even if it is not complete."""
        record, self._held, self._depth = b"".join(self._held), [], 0
        self._set_locations(np.array([self._held_line]))
        self._recoveries = SHOWN
        self._check_structure(record, self._held_line)
        self._take(record, self._held_line)
        self.records += 1
        yield from self._envelopes.rows()

    def _begin(self, records: Records) -> None:
        sizes = np.diff(records.offsets)
        for record in np.flatnonzero(sizes > MAX_STRUCTURAL).tolist():
            self._check_structure(records.bytes_of(record), self.line + int(records.lines[record]))
        self._set_locations(self.line + records.lines)

    def _set_locations(self, starts: Numbers) -> None:
        lenient = self.problems.coerced is not None
        self._locations = _Locations(self.prefix, self.first, starts, self.records, lenient)
        self._locations.uncertain = self._envelopes.several
        self._envelopes.place = self._locations

    def _check_structure(self, record: bytes, line: int) -> None:
        if len(record) > MAX_RECORD_BYTES and b"\n{" not in record:
            raise self._too_long(line, len(record))
        count = structural_count(record) if len(record) > MAX_STRUCTURAL else 0
        if count > MAX_STRUCTURAL and b"\n{" not in record:
            place = f"{self.prefix}line {line}"
            raise ResourceLimitError("graph_batch_json_structural_slots", MAX_STRUCTURAL, count, place=place)

    def _end(self, block: bytes, records: int) -> None:
        self.line += block.count(b"\n") + (not block.endswith(b"\n") and bool(block))
        self.records += records

    def _too_long(self, line: int, size: int) -> ResourceLimitError:
        return ResourceLimitError(
            "graph_batch_line_bytes",
            MAX_RECORD_BYTES,
            size,
            place=f"{self.prefix}line {line}",
            hint="nothing was written; check that every record ends, with a line break after it",
        )

    # ---- reading record by record

    def _part(self, records: Records, low: int, high: int) -> Iterator[RawRows]:
        """The rows of the records from `low` up to `high`, read in bulk if possible, else in halves or one by one."""
        few = high - low <= MAX_SINGLE_RECORDS or self._tries <= 0
        rows = None if few else self._fast(records, low, high)
        if rows is not None:
            yield from rows
        elif few:
            for record in range(low, high):
                self._take(records.bytes_of(record), self.line + int(records.lines[record]))
            yield from self._envelopes.rows()
        else:
            self._tries -= 1
            middle = (low + high) // 2
            yield from self._part(records, low, middle)
            yield from self._part(records, middle, high)

    def _take(self, record: bytes, line: int) -> None:
        """Read one record. If it is broken, it may contain later records, which begin with a brace on a new line."""
        position = self.first + line - 1
        next_start = record.find(b"\n{") + 1
        try:
            read = self._envelopes.take_json(record.decode(), position)
            self._locations.uncertain |= self._envelopes.several
            if read:
                return
        except UnicodeDecodeError as error:
            at = position + record.count(b"\n", 0, error.start)
            self._envelopes.refuse(at, "the text is not UTF-8")
        self._recoveries -= 1
        if not next_start or self._recoveries <= 0:
            return
        self._locations.uncertain = True
        self.clean = False
        remainder, first_line = record[next_start:], line + record.count(b"\n", 0, next_start)
        framed = frame(remainder, heads=self._plain)
        for i in range(len(framed.records)):
            self._take(framed.records.bytes_of(i), first_line + int(framed.records.lines[i]))
        if framed.rest < len(remainder):
            self._take(remainder[framed.rest :], first_line + remainder.count(b"\n", 0, framed.rest))

    def _fast(self, records: Records, low: int, high: int) -> list[RawRows] | None:
        """Read records in bulk, by type; None if some record has to be read by `EnvelopeReader`."""
        positions = self.first - 1 + self.line + records.lines[low:high]
        rows = self._types.rows(records.texts(low, high), Origin(positions, self._locations))
        if rows is not None and self.problems.coerced is not None and _have_null_items(rows):
            return None  # `EnvelopeReader` has to count null items of lists
        return rows


def _have_null_items(rows: list[RawRows]) -> bool:
    return any(len(with_null_items(column)) for raw in rows for column in raw.columns.values())
