"""Tables of rows for people: they fit the width of the terminal, and numbers are right-aligned with few digits."""

# See docs/decisions/0360-a-terminal-gets-another-table.md

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from omnigraph.dataclass import dataclass
from omnigraph.errors.source import one_line
from omnigraph.read.result.encoding import plain

NULL = "null"

_BETWEEN, _CROSS = " │ ", "─┼─"
_NARROWEST = 8
"""Texts are not truncated below this width. Numbers, dates and times are never truncated."""

_DIGITS = 6
"""Digits of floats that people see. Other formats have all of them."""

_GROUPED_FROM = 10_000
"""A column with a number of this size has thousands separators. A column of years has none."""

_LARGEST = 1e15
_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a text table.

    Attributes:
        name: its header.
        cells: its values on one line each; None for null.
        is_number: whether it is right-aligned.
        is_fixed: whether its values are never truncated.
    """

    name: str
    cells: Sequence[str | None]
    is_number: bool = False
    is_fixed: bool = False

    @property
    def width(self) -> int:
        return max(cell_len(text) for text in (self.name, *(NULL if cell is None else cell for cell in self.cells)))


def table_lines(table: pa.Table, width: int, *, color: bool = False) -> list[str]:
    """The lines of a table: a header, a rule and one line per row.

    Columns that do not fit are left out, and a last line names them.

    Args:
        table: the rows to show, all of them.
        width: the number of character cells per line.
        color: whether to emphasize the header and dim rules and nulls.
    """
    columns = [text_column(name, values, width) for name, values in zip(table.column_names, table.columns, strict=True)]
    widths = fitted_widths(columns, width)
    shown, hidden = columns[: len(widths)], columns[len(widths) :]
    bold: Callable[[str], str] = partial(_styled, _BOLD) if color else str
    dim: Callable[[str], str] = partial(_styled, _DIM) if color else str
    between = dim(_BETWEEN)
    lines = [
        between.join(bold(_fitted(c.name, w, right=c.is_number)) for c, w in zip(shown, widths, strict=True)),
        dim(_CROSS.join("─" * w for w in widths)),
    ]
    for row in range(table.num_rows):
        cells = []
        for column, w in zip(shown, widths, strict=True):
            cell = column.cells[row]
            text = _fitted(NULL if cell is None else cell, w, right=column.is_number)
            cells.append(dim(text) if cell is None else text)
        lines.append(between.join(cells))
    if hidden:
        names = ", ".join(column.name for column in hidden)
        count = "1 more column does" if len(hidden) == 1 else f"{len(hidden)} more columns do"
        lines.append(one_line(f"… {count} not fit: {names}"))
    return [line.rstrip() for line in lines]


def _styled(code: str, text: str) -> str:
    return f"{code}{text}{_RESET}"


def text_column(name: str, values: pa.ChunkedArray, width: int) -> Column:
    """A column of values as texts for people. Long texts are truncated to about the given width."""
    most = 4 * width  # a character may take no cell
    kind = values.type
    title = one_line(name[:most])
    if pa.types.is_integer(kind):
        return Column(title, grouped(values.to_pylist()), is_number=True, is_fixed=True)
    if pa.types.is_floating(kind):
        return Column(title, rounded(values.to_pylist()), is_number=True, is_fixed=True)
    texts = plain(values.combine_chunks()).to_pylist()
    if pa.types.is_timestamp(kind):
        if all(text is None or text.endswith(".000Z") for text in texts):
            texts = [None if text is None else f"{text[:-5]}Z" for text in texts]
        return Column(title, texts, is_fixed=True)
    if pa.types.is_date(kind) or pa.types.is_boolean(kind):
        return Column(title, texts, is_fixed=True)
    return Column(title, [None if text is None else one_line(text[:most]) for text in texts])


def is_number(kind: pa.DataType) -> bool:
    """Whether values of an Arrow type are right-aligned."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def grouped(numbers: Sequence[int | None]) -> list[str | None]:
    """Integers as texts, with thousands separators if one of them has at least five digits.

    >>> grouped([2019, None]), grouped([2019, 10_000])
    (['2019', None], ['2,019', '10,000'])
    """
    mark = "," if any(number is not None and abs(number) >= _GROUPED_FROM for number in numbers) else ""
    return [None if number is None else f"{number:{mark}}" for number in numbers]


def rounded(numbers: Sequence[float | None]) -> list[str | None]:
    """Floats as texts with equal numbers of decimals, rounded to about six digits.

    >>> rounded([0.5, 12.25, None]), rounded([1 / 3]), rounded([123456.789]), rounded([1e-9, 1.0])
    (['0.50', '12.25', None], ['0.333333'], ['123,457'], ['1e-09', '1'])
    """
    finite = [abs(number) for number in numbers if number is not None and math.isfinite(number)]
    usual = [number for number in finite if number < _LARGEST]
    largest = max(usual, default=0.0)
    most = min(_DIGITS, max(0, _DIGITS - 1 - math.floor(math.log10(largest)))) if largest else 0
    decimals = max((_decimals(number, most) for number in usual), default=0)
    mark = "," if largest >= _GROUPED_FROM else ""
    return [None if number is None else _rounded(number, decimals, mark) for number in numbers]


def _decimals(number: float, most: int) -> int:
    """The number of decimals of a rounded number, without zeros at the end."""
    return len(f"{number:.{most}f}".rstrip("0").partition(".")[2])


def _rounded(number: float, decimals: int, mark: str) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if abs(number) >= _LARGEST or (number and abs(number) < 0.5 * 10**-decimals):
        return f"{number:.{_DIGITS}g}"
    return f"{number:{mark}.{decimals}f}"


def fitted_widths(columns: Sequence[Column], width: int) -> list[int]:
    """The widths of the columns that fit, from the left. The widest texts are truncated first."""
    natural = [min(column.width, width) for column in columns]
    least = [size if c.is_fixed else min(size, _NARROWEST) for c, size in zip(columns, natural, strict=True)]
    count = len(columns)
    while count > 1 and _total(least[:count]) > width:
        count -= 1
    widths, least = natural[:count], least[:count]
    while _total(widths) > width:
        wide = [i for i in range(count) if widths[i] > least[i]]
        if not wide:
            break
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """One line per row, with aligned cells. Columns without any text are left out.

    >>> list(aligned([("a", "", "one"), ("bcd", "", "two")]))
    ['a    one', 'bcd  two']
    """
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True) if width)
        yield "  ".join(cells).rstrip()


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_BETWEEN) * (len(widths) - 1)


def _fitted(text: str, width: int, *, right: bool) -> str:
    """A text with exactly this width."""
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + "…"
    return " " * (width - size) + text if right else text + " " * (width - size)
