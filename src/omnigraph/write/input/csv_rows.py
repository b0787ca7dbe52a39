"""CSV: read in blocks. The header names the columns.

Arrow cuts the cells; they come as texts and are converted by the types of their properties. What Arrow forgives is
checked before: quotes inside of cells, rows that are too short or too long, bytes that are no text.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv

from omnigraph.errors import InputError, Problem, ResourceLimitError, cut
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.write.input.framing import Numbers
from omnigraph.write.input.named_columns import Dialect, Layout, Read
from omnigraph.write.input.parse_text import from_text
from omnigraph.write.rows.problems import SHOWN, Problems
from omnigraph.write.rows.raw_rows import Origin, RawRows

BLOCK_BYTES = 16 * 1024 * 1024
MAX_RECORD_BYTES = 32 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN = 10, 13
_Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
_Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]

Made = TypeVar("Made")
MadeOf = TypeVar("MadeOf", covariant=True)


class Cells(Protocol[MadeOf]):
    """Makes something of the cells of a file: rows of a type, or whatever is wanted."""

    @property
    def name(self) -> str:
        """What a row is called whose cells cannot be told apart."""

    def check_names(self, names: list[str], position: int, place: str) -> None:
        """Look at the header, and report what is wrong with it."""

    def rows(self, columns: Mapping[str, pa.Array], origin: Origin, read: Read | None = None) -> Iterator[MadeOf]:
        """What some rows become, whose cells are texts."""


def read_csv(
    chunks: Iterable[bytes],
    layout: Layout,
    accepted: AcceptedSchema,
    problems: Problems,
    name: str,
    first: int = 1,
    delimiter: str = ",",
) -> Generator[RawRows, None, int]:
    """The rows of a CSV file.

    Args:
        chunks: the bytes, cut anywhere.
        layout: which types rows have, and how the file is written.
        accepted: the schema in force.
        problems: collects what cannot be read. When it counts coercions, the reader is lenient.
        name: the file, as problems call it.
        first: the position of the first line in the whole input.
        delimiter: what stands between cells, unless the layout says it.

    Returns:
        The position behind the last line.

    Raises:
        InputError: there is no header, or it cannot be used.
        ResourceLimitError: a row is too long.
    """
    return read_cells(chunks, layout.columns(accepted, problems), problems, name, first, layout.csv, delimiter)


def read_cells(
    chunks: Iterable[bytes],
    cells: Cells[Made],
    problems: Problems,
    name: str,
    first: int = 1,
    dialect: Dialect | None = None,
    delimiter: str = ",",
) -> Generator[Made, None, int]:
    """What the cells of a CSV file become; `read_csv` describes the other arguments."""
    reader = _Reader(cells, problems, name, first, dialect or Dialect(), delimiter)
    for block in _whole_rows(chunks, reader.quote):
        yield from reader.read(block)
        if reader.broken:
            break
    if reader.header is None:
        raise InputError(f"{name} is empty", hint="the first line of a CSV file names the properties")
    return first + reader.line - 1


def _whole_rows(chunks: Iterable[bytes], quote: int) -> Iterator[bytes]:
    """The file in blocks that end with a row, or are longer than a row may be."""
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size < BLOCK_BYTES:
            continue
        held = b"".join(parts)
        end = _last_row(held, quote)
        if len(held) - end > MAX_RECORD_BYTES:
            end = len(held)
        if end:
            yield held[:end]
        parts, size = [held[end:]], len(held) - end
    if size:
        yield b"".join(parts)


def _last_row(block: bytes, quote: int) -> int:
    """Where the last row of a block ends that is complete."""
    if quote not in block:
        return block.rfind(b"\n") + 1
    ends = _row_ends(np.frombuffer(block, np.uint8), quote)
    return int(ends[-1]) if len(ends) else 0


def _row_ends(data: _Bytes, quote: int) -> Numbers:
    """Line breaks outside of quotes. A doubled quote closes and opens again, so counting quotes is enough."""
    breaks = np.flatnonzero(data == _NEWLINE)
    quotes = np.flatnonzero(data == quote)
    ends: Numbers = breaks[np.searchsorted(quotes, breaks) % 2 == 0] + 1
    return ends


class _Reader(Generic[Made]):
    """Reads one block after another, counting lines."""

    def __init__(
        self, cells: Cells[Made], problems: Problems, name: str, first: int, dialect: Dialect, delimiter: str
    ) -> None:
        self.problems = problems
        self.name = name
        self.first = first
        self.delimiter = dialect.separator or delimiter
        self.quote = ord(dialect.quote)
        self.nulls = list(dialect.nulls)
        self.columns = cells
        self.line = 1
        self.header: list[str] | None = None
        self.broken = False

    def read(self, block: bytes) -> Iterator[Made]:
        if self.line == 1:
            block = block.removeprefix(_BOM)
        if not block:
            return
        data = np.frombuffer(block, np.uint8)
        ends = _row_ends(data, self.quote)
        if len(ends) == 0 or ends[-1] != len(data):
            ends = np.append(ends, len(data))
        starts = np.concatenate([[0], ends[:-1]])
        breaks = np.flatnonzero(data == _NEWLINE)
        lines = self.line + np.searchsorted(breaks, starts)
        self.line += len(breaks) + (int(data[-1]) != _NEWLINE)
        rows = _Rows(data, starts, ends, lines, self.quote)
        rows = rows.keep(~rows.blank())
        if self.header is None and len(rows.starts):
            self._read_header(rows.text(0), int(rows.lines[0]))
            rows = rows.keep(np.arange(len(rows.starts)) > 0)
        if len(rows.starts):
            yield from self._cells(self._checked(rows))

    def _place(self, position: int) -> str:
        return f"{self.name}, line {position - self.first + 1}"

    def _refuse(self, lines: Numbers, message: str | Callable[[int], str]) -> None:
        """Say what is wrong with rows; the message may depend on which one it is."""
        positions = (self.first - 1 + lines[:SHOWN]).tolist()
        shown = [
            Problem(p, self._place(p), self.columns.name, message if isinstance(message, str) else message(i))
            for i, p in enumerate(positions)
        ]
        self.problems.add_all(shown, len(lines))

    def _read_header(self, text: bytes, line: int) -> None:
        try:
            line_text, quote = text.decode().rstrip("\r\n"), chr(self.quote)
            (header,) = csv.reader([line_text], delimiter=self.delimiter, quotechar=quote, strict=True)
        except (UnicodeDecodeError, ValueError, csv.Error) as error:
            raise InputError(f"{self.name}, line {line}: the header cannot be read: {error}") from error
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise InputError(f"{self.name}, line {line}: the header has '{cut(twice[0])}' twice")
        if "" in header:
            raise InputError(f"{self.name}, line {line}: column {header.index('') + 1} of the header has no name")
        self.header = header
        position = self.first - 1 + line
        self.columns.check_names(header, position, self._place(position))

    def _checked(self, rows: _Rows) -> _Rows:
        """Without the rows that are not well-formed, which are reported."""
        quoted = rows.with_bad_quotes(ord(self.delimiter))
        if quoted.any():
            # From here on nobody can tell where rows begin.
            at = int(np.flatnonzero(quoted)[0])
            self._refuse(rows.lines[at : at + 1], "a quote inside of a cell that is not doubled, or is never closed")
            self.broken = True
            rows = rows.keep(np.arange(len(quoted)) < at)
        long = rows.ends - rows.starts > MAX_RECORD_BYTES
        for row in np.flatnonzero(long).tolist():
            size, place = int(rows.ends[row] - rows.starts[row]), f"{self.name}, line {rows.lines[row]}"
            raise ResourceLimitError("graph_batch_line_bytes", MAX_RECORD_BYTES, size, place=place)
        good = np.ones(len(rows.starts), bool)
        for wrong, message in (
            (rows.with_bad_text(), "the text is not UTF-8"),
            (rows.with_byte(0), "a NUL byte: is this file text?"),
            (rows.with_stray_return(), "a carriage return without a line feed"),
        ):
            if wrong.any():
                self._refuse(rows.lines[wrong & good], message)
                good &= ~wrong
        return rows.keep(good)

    def _cells(self, rows: _Rows) -> Iterator[Made]:
        assert self.header is not None
        table = self._parse(rows) if len(rows.starts) else None
        if table is None:
            counts = rows.cells(ord(self.delimiter))
            wrong = counts != len(self.header)
            bad, expected = counts[wrong], len(self.header)
            self._refuse(rows.lines[wrong], lambda i: f"{bad[i]} cells, and the header has {expected}")
            rows = rows.keep(~wrong)
            if len(rows.starts) == 0:
                return
            table = self._parse(rows)
            assert table is not None
        assert table.num_rows == len(rows.starts)
        origin = Origin(self.first - 1 + rows.lines, self._place)
        cells = {name: table[name].combine_chunks() for name in self.header}
        yield from self.columns.rows(cells, origin, from_text)

    def _parse(self, rows: _Rows) -> pa.Table | None:
        """The cells as texts; None when rows are too short or too long. What is quoted is never null."""
        assert self.header is not None
        text = rows.joined()
        try:
            return pcsv.read_csv(
                pa.BufferReader(text),
                pcsv.ReadOptions(column_names=self.header, block_size=len(text) + 1),
                pcsv.ParseOptions(
                    delimiter=self.delimiter,
                    quote_char=chr(self.quote),
                    newlines_in_values=True,
                    ignore_empty_lines=False,
                ),
                pcsv.ConvertOptions(
                    column_types=dict.fromkeys(self.header, pa.utf8()),
                    null_values=self.nulls,
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            return None


class _Rows:
    """The rows of a block: its bytes, where each row begins and ends, and on which line."""

    def __init__(self, data: _Bytes, starts: Numbers, ends: Numbers, lines: Numbers, quote: int) -> None:
        self.data = data
        self.starts = starts
        self.ends = ends
        self.lines = lines
        self.quote = quote

    def keep(self, mask: _Mask) -> _Rows:
        if mask.all():
            return self
        return _Rows(self.data, self.starts[mask], self.ends[mask], self.lines[mask], self.quote)

    def text(self, row: int) -> bytes:
        return self.data[self.starts[row] : self.ends[row]].tobytes()

    def joined(self) -> bytes:
        """The rows that are left, one behind the other."""
        if len(self.starts) and np.array_equal(self.starts[1:], self.ends[:-1]):
            return self.data[self.starts[0] : self.ends[-1]].tobytes()
        steps = np.zeros(len(self.data) + 1, np.int8)
        steps[self.starts] += 1
        np.subtract.at(steps, self.ends, 1)
        return self.data[np.cumsum(steps[:-1], dtype=np.int8) > 0].tobytes()

    def _rows_of(self, places: Numbers) -> _Mask:
        """Which rows have one of some places in them."""
        wrong = np.zeros(len(self.starts), bool)
        row = np.searchsorted(self.starts, places, "right") - 1
        inside = row >= 0
        row, places = row[inside], places[inside]
        wrong[row[places < self.ends[row]]] = True
        return wrong

    def blank(self) -> _Mask:
        size = self.ends - self.starts
        last = self.data[self.ends - 1]
        size = size - (last == _NEWLINE)
        empty: _Mask = (size == 0) | ((size == 1) & (self.data[self.starts] == _RETURN))
        return empty

    def with_byte(self, byte: int) -> _Mask:
        return self._rows_of(np.flatnonzero(self.data == byte))

    def with_bad_text(self) -> _Mask:
        wrong = np.zeros(len(self.starts), bool)
        if len(wrong) == 0:
            return wrong
        offsets = np.append(self.starts, self.ends[-1])
        texts = pa.Array.from_buffers(
            pa.large_binary(), len(self.starts), [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        )
        try:
            texts.cast(pa.large_utf8())
        except pa.ArrowInvalid:
            for row in range(len(self.starts)):
                try:
                    self.text(row).decode()
                except UnicodeDecodeError:
                    wrong[row] = True
        return wrong

    def with_stray_return(self) -> _Mask:
        """Outside of quotes Arrow would take it for the end of a row."""
        places = np.flatnonzero(self.data == _RETURN)
        if len(places) == 0:
            return np.zeros(len(self.starts), bool)
        behind = np.minimum(places + 1, len(self.data) - 1)
        stray = (self.data[behind] != _NEWLINE) | (places + 1 == len(self.data))
        quotes = np.flatnonzero(self.data == self.quote)
        return self._rows_of(places[stray & (np.searchsorted(quotes, places) % 2 == 0)])

    def with_bad_quotes(self, delimiter: int) -> _Mask:
        """Quotes that neither begin a cell, nor end one, nor are doubled."""
        quotes = np.flatnonzero(self.data == self.quote)
        if len(quotes) == 0:
            return np.zeros(len(self.starts), bool)
        padded = np.concatenate([[_NEWLINE], self.data, [_NEWLINE]]).astype(np.uint8)
        before, behind = padded[quotes], padded[quotes + 2]
        opens = np.arange(len(quotes)) % 2 == 0
        edges = (delimiter, _NEWLINE, self.quote)
        wrong = np.where(opens, ~np.isin(before, edges), ~np.isin(behind, (*edges, _RETURN)))
        wrong[-1] |= bool(opens[-1])  # never closed
        return self._rows_of(quotes[wrong])

    def cells(self, delimiter: int) -> Numbers:
        """How many cells each row has."""
        quotes = np.flatnonzero(self.data == self.quote)
        places = np.flatnonzero(self.data == delimiter)
        places = places[np.searchsorted(quotes, places) % 2 == 0]
        return np.searchsorted(places, self.ends) - np.searchsorted(places, self.starts) + 1
