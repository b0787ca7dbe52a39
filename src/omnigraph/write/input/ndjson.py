"""NDJSON envelopes: read in blocks, a type at a time, exactly.

The usual block is sorted into types by how its lines begin and parsed by Arrow's JSON reader, which is strict where we
are: duplicate members, unknown members, wrong types and numbers out of range are errors. Where anything is unusual the
block is cut into ever smaller parts, and only what is left is read record by record, to say what is wrong and where.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

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
"""Longest record that is read: it bounds what one broken line can cost."""
MAX_STRUCTURAL = 131_072
"""Most braces, brackets, colons and commas in one record."""

_FEW = 64
"""So many records are read one by one, without looking for the unusual ones among them."""
_TRIES = 256
"""So often a block is cut in two to find what is unusual in it. If everything is, it is read one by one."""
_PART = 2 * 1024 * 1024
_INK = re.compile(rb"[^ \t\r\n]")
_BOM = b"\xef\xbb\xbf"


@dataclass(slots=True)
class Progress:
    """How far the reading of a file has come: where a part of it begins, and afterwards where it ends.

    Attributes:
        line: the number of the next line, from 1.
        records: how many records there were before it.
        clean: whether a reader that begins there reads what one would that came from before: no record is open, and
            the number of the records is certain.
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
    """The rows of an NDJSON stream, type by type within each block.

    Args:
        chunks: the bytes, cut anywhere.
        accepted: the schema in force.
        problems: collects what cannot be read. When it counts coercions, the reader is lenient.
        name: the file, as problems call it.
        first: the position of the first line of the file in the whole input.
        progress: where the bytes begin in the file; is moved along.

    Returns:
        The position behind the last line.

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


class _Places:
    """What a person calls the lines of a block. The number of the record is added where it is another one.

    Behind a record that never ends, or several on a line, it is not certain any more, and left out.
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
    """A block whole, or in parts when its lines are so short that describing them takes much more room than they."""
    if block.count(b"\n") * 16 < len(block):
        yield block
        return
    start = 0
    while start < len(block):
        end = block.find(b"\n", start + _PART) + 1 or len(block)
        yield block[start:end]
        start = end


class _Stream:
    """Reads one block after another, counting lines and records."""

    def __init__(self, accepted: AcceptedSchema, problems: Problems, prefix: str, first: int, begin: Progress) -> None:
        self.accepted = accepted
        self.problems = problems
        self.prefix = prefix
        self.first = first
        self.line = begin.line
        self.records = begin.records
        self.clean = True
        """Whether no record was open at the end, or swallowed others."""
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
        """The stream in blocks that end with a line, and whether each is the last."""
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
            if end:  # as usual; where a record is longer than a chunk, it is open since an earlier one
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
        """The rows of a block, and of a record that an earlier one began."""
        if not self._held and _INK.search(block):
            records = one_a_line(block)
            if records is not None:
                self._begin(records)
                self._tries = _TRIES
                rows = self._fast(records, 0, len(records))
                if rows is not None:
                    yield from rows
                    self._end(block, len(records))
                    return
        for part in _parts(block):
            yield from self._framed(part)
        if last and self._held:
            self.clean = False
            yield from self._take_held()

    def _framed(self, block: bytes) -> Iterator[RawRows]:
        """The rows of a block in which records may stretch over lines."""
        if not self._held and not _INK.search(block):
            self._end(block, 0)
            return
        self._tries, self._recoveries = _TRIES, SHOWN
        framed = frame(block, self._depth, heads=self._plain)
        if self._held:
            self._held.append(block[: framed.head])
            size = sum(map(len, self._held))
            ended = framed.head < len(block) or framed.depth == 0
            if ended or size > MAX_RECORD_BYTES:
                yield from self._take_held()
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

    def _take_held(self) -> Iterator[RawRows]:
        """The record that is held, however it ends."""
        record, self._held, self._depth = b"".join(self._held), [], 0
        self._name_places(np.array([self._held_line]))
        self._recoveries = SHOWN
        self._check_structure(record, self._held_line)
        self._take(record, self._held_line)
        self.records += 1
        yield from self._envelopes.rows()

    def _begin(self, records: Records) -> None:
        sizes = np.diff(records.offsets)
        for record in np.flatnonzero(sizes > MAX_STRUCTURAL).tolist():
            self._check_structure(records.bytes_of(record), self.line + int(records.lines[record]))
        self._name_places(self.line + records.lines)

    def _name_places(self, starts: Numbers) -> None:
        lenient = self.problems.coerced is not None
        self._places = _Places(self.prefix, self.first, starts, self.records, lenient)
        self._places.uncertain = self._envelopes.several
        self._envelopes.place = self._places

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
            hint="nothing was written; does every record end, and is there a line break behind it?",
        )

    # ---- record by record

    def _part(self, records: Records, low: int, high: int) -> Iterator[RawRows]:
        """Some records in their order: together if that works, otherwise in two parts, or one by one."""
        few = high - low <= _FEW or self._tries <= 0
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
        """One record. If it is broken it may have swallowed the ones behind it: they begin with a brace on a line."""
        position = self.first + line - 1
        again = record.find(b"\n{") + 1
        try:
            read = self._envelopes.take_json(record.decode(), position)
            self._places.uncertain |= self._envelopes.several
            if read:
                return
        except UnicodeDecodeError as error:
            at = position + record.count(b"\n", 0, error.start)
            self._envelopes.refuse(at, "the text is not UTF-8")
        self._recoveries -= 1
        if not again or self._recoveries <= 0:
            return
        self._places.uncertain = True
        self.clean = False
        behind, first_line = record[again:], line + record.count(b"\n", 0, again)
        framed = frame(behind, heads=self._plain)
        for i in range(len(framed.records)):
            self._take(framed.records.bytes_of(i), first_line + int(framed.records.lines[i]))
        if framed.rest < len(behind):
            self._take(behind[framed.rest :], first_line + behind.count(b"\n", 0, framed.rest))

    def _fast(self, records: Records, low: int, high: int) -> list[RawRows] | None:
        """Some records, type by type; None when something in them needs a closer look."""
        positions = self.first - 1 + self.line + records.lines[low:high]
        rows = self._types.rows(records.texts(low, high), Origin(positions, self._places))
        if rows is not None and self.problems.coerced is not None and _have_null_items(rows):
            return None  # they are kept, and counted
        return rows


def _have_null_items(rows: list[RawRows]) -> bool:
    return any(len(with_null_items(column)) for raw in rows for column in raw.columns.values())
