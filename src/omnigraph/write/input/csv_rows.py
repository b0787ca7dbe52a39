"""Reads CSV in blocks. The header names the columns.

Arrow splits the cells. They are read as texts and converted to the types of their properties. Arrow accepts some
malformed input, so this module checks it first: quotes inside of cells, rows of the wrong length, bytes that are not
UTF-8.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
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

SEPARATORS = (",", ";", "\t", "|")
"""The separators of cells that are recognized in CSV files."""

BAD_QUOTES = (
    "a quote inside of a cell is not doubled, or a quoted cell is not closed; if quotes are a part of the texts, "
    'set csv: {quote: ""} in a mapping'
)
_CONVERT = "convert the file: iconv -f {} -t UTF-8 {}"

_SAMPLE_BYTES = 64 * 1024
_BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN = 10, 13
_NO_QUOTE = -1
_Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
_Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]

Row = TypeVar("Row")
RowOf = TypeVar("RowOf", covariant=True)


class Cells(Protocol[RowOf]):
    """Converts the cells of a CSV file: to rows of one type, or to the columns of a mapping."""

    @property
    def name(self) -> str:
        """The name of the rows in error messages about rows that cannot be split into cells."""

    def check_names(self, names: list[str], position: int, place: str) -> None:
        """Check the header, and report problems."""

    def rows(self, columns: Mapping[str, pa.Array], origin: Origin, read: Read | None = None) -> Iterator[RowOf]:
        """Convert rows whose cells are texts."""


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
        chunks: the bytes of the file. A chunk may end anywhere, even inside of a row.
        layout: the types of the rows, and the CSV dialect of the file (separator, quotes, nulls).
        accepted: the accepted schema.
        problems: collects values that cannot be read. If `problems.coerced` is set, the reader is lenient.
        name: the name of the file in error messages.
        first: the position of the first line of the file in the whole input.
        delimiter: the usual separator of cells, if the layout does not define one and another one does not fit better.

    Returns:
        The position after the last line.

    Raises:
        InputError: the header is missing or not valid.
        ResourceLimitError: a row is too long.
    """
    return read_cells(chunks, layout.columns(accepted, problems), problems, name, first, layout.csv, delimiter)


def read_cells(
    chunks: Iterable[bytes],
    cells: Cells[Row],
    problems: Problems,
    name: str,
    first: int = 1,
    dialect: Dialect | None = None,
    delimiter: str = ",",
) -> Generator[Row, None, int]:
    """Convert the cells of a CSV file. `read_csv` describes the other arguments."""
    dialect = dialect or Dialect()
    reader = _Reader(cells, problems, name, first, dialect, delimiter)
    for block in _blocks_of_rows(_after_lines(chunks, dialect.skip), reader.quote):
        yield from reader.read(block)
        if reader.stopped:
            break
    if reader.header is None and reader.dialect.header:
        raise InputError(f"{name} is empty", hint="the first line of a CSV file names the properties")
    return first + reader.line - 1


def _after_lines(chunks: Iterable[bytes], count: int) -> Iterator[bytes]:
    """The bytes of a file after some lines."""
    for chunk in chunks:
        while count and chunk:
            _, line_break, chunk = chunk.partition(b"\n")
            count -= bool(line_break)
        if chunk:
            yield chunk


def _blocks_of_rows(chunks: Iterable[bytes], quote: int) -> Iterator[bytes]:
    """Split the file into blocks that end after a whole row, or that exceed the maximum row length."""
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
    """The end of the last complete row of a block."""
    if quote == _NO_QUOTE or quote not in block:
        return block.rfind(b"\n") + 1
    ends = _row_ends(np.frombuffer(block, np.uint8), quote)
    return int(ends[-1]) if len(ends) else 0


def _row_ends(data: _Bytes, quote: int) -> Numbers:
    """The byte offset after each row. A row ends at a line break that follows an even number of quotes."""
    breaks = np.flatnonzero(data == _NEWLINE)
    quotes = _quotes_of(data, quote)
    ends: Numbers = breaks[np.searchsorted(quotes, breaks) % 2 == 0] + 1
    return ends


def _quotes_of(data: _Bytes, quote: int) -> Numbers:
    """The positions of the quotes."""
    return np.zeros(0, np.int64) if quote == _NO_QUOTE else np.flatnonzero(data == quote)


def _code(quote: str) -> int:
    return ord(quote) if quote else _NO_QUOTE


def sniff_separator(text: bytes, usual: str, quote: str = '"') -> str:
    r"""Find the separator of the cells of a CSV file, from its first rows.

    It is the usual one if all rows have the same number of cells with it, and more than one. Else it is the separator
    for which this holds; of several, the one with the most cells.

    >>> sniff_separator(b"name;note\nann;a, b\nbob;c\n", ",")
    ';'

    Args:
        text: the start of the file.
        usual: the separator that the extension of the file stands for.
        quote: the quote character; empty if there is none.
    """
    sample, code = text[:_SAMPLE_BYTES], _code(quote)
    end = _last_row(sample, code) if len(text) > len(sample) else len(sample)
    data = np.frombuffer(sample[:end], np.uint8)
    if len(data) == 0:
        return usual
    ends = _row_ends(data, code)
    if len(ends) == 0 or ends[-1] != len(data):
        ends = np.append(ends, len(data))
    rows = _Rows(data, np.concatenate([[0], ends[:-1]]), ends, np.arange(len(ends)), code)
    rows = rows.keep(~rows.blank())
    best, most = usual, 1
    for separator in (usual, *SEPARATORS):
        counts = rows.cells(ord(separator))
        if len(counts) == 0 or counts.min() != counts.max():
            continue
        if counts[0] > most:
            best, most = separator, int(counts[0])
        if separator == usual and most > 1:
            break
    return best


def split_row(text: str, separator: str, quote: str) -> list[str]:
    """The cells of a row.

    Raises:
        csv.Error: the row is not well-formed.
    """
    if not quote:
        return text.split(separator)
    (row,) = csv.reader([text], delimiter=separator, quotechar=quote, strict=True)
    return row


class _Reader(Generic[Row]):
    """Reads the blocks of a file in order, and counts lines."""

    def __init__(
        self, cells: Cells[Row], problems: Problems, name: str, first: int, dialect: Dialect, delimiter: str
    ) -> None:
        self.problems = problems
        self.name = name
        self.first = first
        self.dialect = dialect
        self.delimiter = dialect.separator or delimiter
        self.quote = _code(dialect.quote)
        self.nulls = list(dialect.nulls)
        self.columns = cells
        self.line = 1 + dialect.skip
        self.begins = True
        self.header: list[str] | None = None
        self.stopped = False

    def read(self, block: bytes) -> Iterator[Row]:
        if self.begins:
            self.begins = False
            block = block.removeprefix(_BOM)
            if self.dialect.separator is None:
                self.delimiter = sniff_separator(block, self.delimiter, self.dialect.quote)
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
            self._name_columns(rows.text(0), int(rows.lines[0]))
            if self.dialect.header:
                rows = rows.keep(np.arange(len(rows.starts)) > 0)
        if len(rows.starts):
            yield from self._cells(self._checked(rows))

    def _location(self, position: int) -> str:
        return f"{self.name}, line {position - self.first + 1}"

    def _refuse(self, lines: Numbers, message: str | Callable[[int], str]) -> None:
        """Report the rows on some lines. The message may be a function of the index in `lines`."""
        positions = (self.first - 1 + lines[:SHOWN]).tolist()
        shown = [
            Problem(p, self._location(p), self.columns.name, message if isinstance(message, str) else message(i))
            for i, p in enumerate(positions)
        ]
        self.problems.add_all(shown, len(lines))

    def _name_columns(self, text: bytes, line: int) -> None:
        """Set the names of the columns: from the dialect or from the first row."""
        if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or text[1:2] == b"\0":
            raise InputError(f"{self.name} is a text in UTF-16", hint=_CONVERT.format("UTF-16", self.name))
        if b"\0" in text:
            raise InputError(f"{self.name}, line {line}: the header contains a NUL byte; is this a text file in UTF-8?")
        try:
            header = split_row(text.decode().rstrip("\r\n"), self.delimiter, self.dialect.quote)
        except UnicodeDecodeError:
            hint = _CONVERT.format("LATIN1", self.name)
            raise InputError(f"{self.name}, line {line}: the header is not UTF-8", hint=hint) from None
        except (ValueError, csv.Error) as error:
            if re.search(rb"\r(?!\n)", text):
                hint = f"convert the file: tr '\\r' '\\n' < {self.name}"
                raise InputError(f"{self.name}: lines end with a carriage return alone", hint=hint) from None
            raise InputError(f"{self.name}, line {line}: the header cannot be read: {error}") from error
        names = self.dialect.columns
        if names is not None and len(names) != len(header):
            raise InputError(
                f"{self.name}, line {line}: there are {len(header)} columns, but 'csv: columns' of the mapping "
                f"names {len(names)}"
            )
        if names is not None:
            header = list(names)
        elif not self.dialect.header:
            header = [f"c{number}" for number in range(1, len(header) + 1)]
        duplicates = sorted(name for name, count in Counter(header).items() if count > 1)
        if duplicates:
            raise InputError(f"{self.name}, line {line}: the header has '{cut(duplicates[0])}' twice")
        if "" in header:
            raise InputError(f"{self.name}, line {line}: column {header.index('') + 1} of the header has no name")
        self.header = header
        position = self.first - 1 + line
        self.columns.check_names(header, position, self._location(position))

    def _checked(self, rows: _Rows) -> _Rows:
        """Report rows that are not well-formed. Returns the others."""
        quoted = rows.with_bad_quotes(ord(self.delimiter))
        if quoted.any():
            # After a wrong quote, it is not known where rows end, so the rest of the file is not read.
            at = int(np.flatnonzero(quoted)[0])
            self._refuse(rows.lines[at : at + 1], BAD_QUOTES)
            self.stopped = True
            rows = rows.keep(np.arange(len(quoted)) < at)
        long = rows.ends - rows.starts > MAX_RECORD_BYTES
        for row in np.flatnonzero(long).tolist():
            size, place = int(rows.ends[row] - rows.starts[row]), f"{self.name}, line {rows.lines[row]}"
            raise ResourceLimitError("graph_batch_line_bytes", MAX_RECORD_BYTES, size, place=place)
        good = np.ones(len(rows.starts), bool)
        for wrong, message in (
            (
                rows.with_bad_text(),
                "the text is not UTF-8; convert it, for example: iconv -f LATIN1 -t UTF-8",
            ),
            (rows.with_byte(0), "the row contains a NUL byte; is this a text file?"),
            (rows.with_stray_return(), "the row contains a carriage return without a line feed"),
        ):
            if wrong.any():
                self._refuse(rows.lines[wrong & good], message)
                good &= ~wrong
        return rows.keep(good)

    def _cells(self, rows: _Rows) -> Iterator[Row]:
        assert self.header is not None
        table = self._parse(rows) if len(rows.starts) else None
        if table is None:
            counts = rows.cells(ord(self.delimiter))
            wrong = counts != len(self.header)
            bad, expected = counts[wrong], len(self.header)
            self._refuse(rows.lines[wrong], lambda i: f"the number of cells is {bad[i]}, and the header has {expected}")
            rows = rows.keep(~wrong)
            if len(rows.starts) == 0:
                return
            table = self._parse(rows)
            assert table is not None
        assert table.num_rows == len(rows.starts)
        origin = Origin(self.first - 1 + rows.lines, self._location)
        cells = {name: table[name].combine_chunks() for name in self.header}
        yield from self.columns.rows(cells, origin, from_text)

    def _parse(self, rows: _Rows) -> pa.Table | None:
        """The cells as texts; None if a row has too few or too many cells. A quoted cell is never read as null."""
        assert self.header is not None
        text = rows.joined()
        try:
            return pcsv.read_csv(
                pa.BufferReader(text),
                pcsv.ReadOptions(column_names=self.header, block_size=len(text) + 1),
                pcsv.ParseOptions(
                    delimiter=self.delimiter,
                    quote_char=self.dialect.quote or False,
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
    """The rows of a block: its bytes, and the start, end and line of each row."""

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
        """The bytes of the remaining rows, concatenated."""
        if len(self.starts) and np.array_equal(self.starts[1:], self.ends[:-1]):
            return self.data[self.starts[0] : self.ends[-1]].tobytes()
        steps = np.zeros(len(self.data) + 1, np.int8)
        steps[self.starts] += 1
        np.subtract.at(steps, self.ends, 1)
        return self.data[np.cumsum(steps[:-1], dtype=np.int8) > 0].tobytes()

    def _rows_of(self, positions: Numbers) -> _Mask:
        """Mask of the rows that contain at least one of the byte positions."""
        wrong = np.zeros(len(self.starts), bool)
        row = np.searchsorted(self.starts, positions, "right") - 1
        inside = row >= 0
        row, positions = row[inside], positions[inside]
        wrong[row[positions < self.ends[row]]] = True
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
        """Mask of the rows with a carriage return but no line feed outside of quotes. Arrow would end the row there."""
        positions = np.flatnonzero(self.data == _RETURN)
        if len(positions) == 0:
            return np.zeros(len(self.starts), bool)
        after = np.minimum(positions + 1, len(self.data) - 1)
        stray = (self.data[after] != _NEWLINE) | (positions + 1 == len(self.data))
        quotes = _quotes_of(self.data, self.quote)
        return self._rows_of(positions[stray & (np.searchsorted(quotes, positions) % 2 == 0)])

    def with_bad_quotes(self, delimiter: int) -> _Mask:
        """Mask of the rows with a quote that neither starts nor ends a cell and is not doubled."""
        quotes = _quotes_of(self.data, self.quote)
        if len(quotes) == 0:
            return np.zeros(len(self.starts), bool)
        padded = np.concatenate([[_NEWLINE], self.data, [_NEWLINE]]).astype(np.uint8)
        before, after = padded[quotes], padded[quotes + 2]
        opens = np.arange(len(quotes)) % 2 == 0
        edges = (delimiter, _NEWLINE, self.quote)
        wrong = np.where(opens, ~np.isin(before, edges), ~np.isin(after, (*edges, _RETURN)))
        wrong[-1] |= bool(opens[-1])  # the last quoted cell has no closing quote
        return self._rows_of(quotes[wrong])

    def cells(self, delimiter: int) -> Numbers:
        """The number of cells of each row."""
        quotes = _quotes_of(self.data, self.quote)
        positions = np.flatnonzero(self.data == delimiter)
        positions = positions[np.searchsorted(quotes, positions) % 2 == 0]
        return np.searchsorted(positions, self.ends) - np.searchsorted(positions, self.starts) + 1
