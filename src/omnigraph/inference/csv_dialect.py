"""Finds the dialect of a CSV file in its first rows: separator, lines to skip, header."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from itertools import pairwise

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.inference.column_profile import NULL_TEXTS
from omnigraph.write.input.csv_rows import sniff_separator
from omnigraph.write.input.named_columns import Dialect

_SAMPLE_BYTES = 64 * 1024
_SAMPLE_ROWS = 200
_SKIPPED_LINES = 40
_LONG_SEPARATOR = "::"
_YEARS = 3
_TYPED = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|[0-9]{4}-[0-9]{2}-[0-9]{2}.*|true|false|\\N", re.IGNORECASE)
_NUMBERS = re.compile(r"-?[0-9.]+( -?[0-9.]+)+")
_COMMENT = (b"#", b"%", b"sep=")


@dataclass(frozen=True, slots=True)
class _Start:
    """The start of the rows of a file.

    Attributes:
        rows: the first rows.
        separator: the separator of their cells.
        skip: number of lines before them.
        names: the names of the columns in a comment.
        why: why these lines are skipped.
    """

    rows: list[list[str]]
    separator: str
    skip: int = 0
    names: tuple[str, ...] | None = None
    why: str = ""


def csv_dialect(
    start: bytes, usual: str, columns: Sequence[str] | None, name: str, quote: str = '"'
) -> tuple[Dialect, str]:
    """The dialect of a CSV file from its first bytes, and the reasons for header and skipped lines.

    Args:
        start: the first bytes.
        usual: the separator that the extension of the file stands for.
        columns: the names of the columns, if the user gives them.
        name: the name of the file in messages.
        quote: the quote character; empty if quotes are a part of the texts.

    Raises:
        InputError: the file is empty, or has another number of columns.
    """
    sample = start[:_SAMPLE_BYTES].removeprefix(b"\xef\xbb\xbf")
    if len(start) > _SAMPLE_BYTES:
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    found = _start(sample, usual, quote)
    if not found.rows:
        raise InputError(f"{name} is empty", hint="leave it out: a schema is inferred from rows")
    if _width(found.rows) == 1 and all(_LONG_SEPARATOR in row[0] for row in found.rows):
        raise InputError(
            f"{name}: the cells are separated by '{_LONG_SEPARATOR}', but a separator is one character",
            hint=f"convert the file: sed 's/{_LONG_SEPARATOR}/\\t/g' {name}",
        )
    header, why = (
        (False, "a line above the rows names the columns") if found.names is not None else _has_header(found.rows)
    )
    given = tuple(columns) if columns is not None else found.names
    if given is None and header:
        given = _repaired(found.rows[0])
    if given is not None and len(given) != len(found.rows[0]):
        raise InputError(
            f"{name}: --columns names {len(given)} columns, but the file has {len(found.rows[0])}",
            hint="name all columns, in the order of the file",
        )
    dialect = Dialect(found.separator, quote, header=header, columns=given, skip=found.skip)
    return dialect, f"{found.why}{'; ' if found.why else ''}{why}"


def _start(sample: bytes, usual: str, quote: str) -> _Start:
    lines = sample.split(b"\n", _SKIPPED_LINES)[:-1]
    comments = 0
    while comments < len(lines) and lines[comments].startswith(_COMMENT):
        comments += 1
    if comments:
        return _after_comments(sample, lines[:comments], usual, quote)
    whole = _rows(sample, usual, quote)
    if _width(whole.rows) > 1:
        return whole
    position = 0
    for number, line in enumerate(lines, 1):
        position += len(line) + 1
        if not line.strip():
            continue
        rest = _rows(sample[position:], usual, quote)
        wide = _width(rest.rows)
        if wide > 1:
            last = len(_split(line, rest.separator, quote))
            if len(rest.rows) < 2 or (last == wide - 1 and number > 1):
                break
            if last == wide - 1:
                names = ("row", *_split(line, rest.separator, quote))
                return _Start(rest.rows, rest.separator, 1, names, "the header has no name for the first column")
            why = f"the first {number} lines do not have {wide} cells"
            return _Start(rest.rows, rest.separator, number, None, why)
    return whole


def _after_comments(sample: bytes, comments: list[bytes], usual: str, quote: str) -> _Start:
    """The rows after comments. The last comment may be the header."""
    count = len(comments)
    rest = _rows(sample[sum(len(line) + 1 for line in comments) :], usual, quote)
    wide = _width(rest.rows)
    last = comments[-1].rstrip(b"\r")
    if last.startswith(b"sep="):
        return _Start(rest.rows, rest.separator, count, None, "the first line names the separator")
    if count == 1 and wide > 1 and len(_split(last, rest.separator, quote)) == wide:
        return _rows(sample, usual, quote)
    names = tuple(name.strip() for name in _split(last.lstrip(b"#% "), rest.separator, quote))
    named = wide > 1 and len(set(names)) == wide == len(names) and all(names)
    why = f"the first {count} lines are comments" if count > 1 else "the first line is a comment"
    return _Start(rest.rows, rest.separator, count, names if named else None, why)


def _rows(sample: bytes, usual: str, quote: str) -> _Start:
    separator = sniff_separator(sample, usual, quote)
    text = sample.decode(errors="replace")
    rows = _parsed(text, separator, quote)
    if _width(rows) == 1 and all(_NUMBERS.fullmatch(cells[0]) for cells in rows):
        spaced = _parsed(text, " ", quote)
        if _width(spaced) > 1:
            return _Start(spaced, " ")
    return _Start(rows, separator)


def _parsed(text: str, separator: str, quote: str) -> list[list[str]]:
    if not quote:
        return [line.split(separator) for line in text.splitlines() if line][:_SAMPLE_ROWS]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    return [row for row in reader if row][:_SAMPLE_ROWS]


def _split(line: bytes, separator: str, quote: str) -> list[str]:
    rows = _parsed(line.decode(errors="replace"), separator, quote)
    return rows[0] if rows else []


def _width(rows: list[list[str]]) -> int:
    """The number of cells of each row; 0 if it differs."""
    widths = {len(row) for row in rows}
    return widths.pop() if len(widths) == 1 else 0


def _repaired(names: list[str]) -> tuple[str, ...] | None:
    """Names for a header in which a name is missing or occurs twice; None if the header can be used as it is."""
    if "" not in names and len(set(names)) == len(names):
        return None
    found: list[str] = []
    for number, name in enumerate(names, 1):
        name = name or f"c{number}"
        if name in found:
            name = next(f"{name}_{i}" for i in range(2, len(names) + 2) if f"{name}_{i}" not in (*found, *names))
        found.append(name)
    return tuple(found)


def _has_header(rows: list[list[str]]) -> tuple[bool, str]:
    """Whether the first row of a CSV file contains names, and why."""
    first, rest = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    typed = [cell for cell in first if _TYPED.fullmatch(cell)]
    if typed:
        if _are_years(typed) and len(typed) < len(first):
            return True, f"the first row counts from {typed[0]} to {typed[-1]}"
        return False, f"the first row contains the value {typed[0]}"
    columns = list(zip(first, *rest, strict=True))
    for name, *cells in columns:
        if name and name not in NULL_TEXTS and any(cells) and all(_TYPED.fullmatch(cell) for cell in cells if cell):
            return True, f"the values of '{name}' are no texts, but its first cell is"
    if any(not name and any(cells) for name, *cells in columns[1:]):
        return False, "the first row contains an empty cell"
    for name, *cells in columns:
        if name and name in cells:
            return False, f"the first row contains '{name}', which occurs again below it"
    return True, "all cells of the first row are different texts"


def _are_years(cells: list[str]) -> bool:
    """Whether cells are whole numbers that count by one, as the years in a header do."""
    return len(cells) >= _YEARS and all(
        one.isdigit() and other.isdigit() and int(other) == int(one) + 1 for one, other in pairwise(cells)
    )
