"""Output formats of query results. Commands import this module late, because it imports the engine."""

# See docs/decisions/0360-a-terminal-gets-another-table.md
# See docs/decisions/0361-csv-quotes-the-text-null.md

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import IO

import click
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from rich.cells import cell_len, chop_cells, set_cell_size

from omnigraph.amounts import counted
from omnigraph.cli.operator_config import read_config
from omnigraph.cli.output import is_for_terminal, terminal_width, uses_color
from omnigraph.cli.streams import write_stdout
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.errors.source import one_line, printable
from omnigraph.read.export.json_text import TEXT
from omnigraph.read.result.encoding import json_parts, plain
from omnigraph.read.result.result import Result
from omnigraph.read.result.text_table import is_number, table_lines

MAX_WIDTH = 80
"""Default of the maximum width of a column of a table that is not printed on a terminal, in character cells."""

FIRST_ROWS = 50
"""Rows that a terminal shows without `--all`."""

_NULL = "null"
_MARKDOWN = str.maketrans(
    {character: f"\\{character}" for character in "\\|*_`[]~"} | {"&": "&amp;", "<": "&lt;", "\n": "<br>", "\r": ""}
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of tables.

    Attributes:
        width: the maximum width of a column, in characters.
        wraps: whether longer values continue on the next line. By default they are cut.
    """

    width: int = MAX_WIDTH
    wraps: bool = False

    @classmethod
    def of_config(cls) -> Layout:
        """The layout that the configuration of the user chooses."""
        config = read_config()
        return cls(config.width or MAX_WIDTH, config.layout == "wrap")


def print_result(
    result: Result,
    format: str,
    *,
    everything: bool = True,
    seconds: float | None = None,
    all_by: str = "--all shows them",
    layout: Layout | None = None,
) -> None:
    """Print a result to stdout, and its warnings to stderr.

    Args:
        result: the result.
        format: the name of the format.
        everything: whether a terminal shows all rows.
        seconds: the time that the query took, for people.
        all_by: how to see the rows that a terminal does not show.
        layout: the layout of tables that are not printed on a terminal.

    Raises:
        InputError: the format is binary, and stdout is a terminal.
    """
    print_warnings(result)
    if format in _FOR_PEOPLE and is_for_terminal():
        shown = result if everything else result.first(FIRST_ROWS)
        _print_lines(_FOR_PEOPLE[format](shown))
        _print_lines(_footer(result, shown.row_count, seconds, all_by))
    elif format in _BINARY:
        if sys.stdout.isatty():
            raise InputError(f"{format} is a binary format, and stdout is a terminal", hint="add --out FILE")
        sys.stdout.flush()
        _BINARY[format](result.to_arrow(), sys.stdout.buffer)
        sys.stdout.buffer.flush()
    elif sys.stdout.isatty():
        _print_lines(map(printable, _lines(result, format, layout)))
    else:
        write_stdout(_encoded(_lines(result, format, layout)))


def has_footer(format: str) -> bool:
    """Whether a line with the number of rows and the time is printed below the rows."""
    return format in _FOR_PEOPLE and is_for_terminal()


def write_result(result: Result, format: str, path: str, layout: Layout | None = None) -> None:
    """Write a result to a file, and its warnings to stderr. The file appears when it is complete.

    Raises:
        InputError: the file cannot be written.
    """
    from omnigraph.storage.files.local_output import output_file

    print_warnings(result)
    with output_file(path) as file:
        if format in _BINARY:
            _BINARY[format](result.to_arrow(), file)
        else:
            for chunk in _encoded(_lines(result, format, layout)):
                file.write(chunk)
    click.echo(printable(f"wrote {counted(result.row_count, 'row')} to {path}"), err=True)


def print_warnings(result: Result) -> None:
    for warning in result.warnings:
        click.echo(printable(f"warning: {warning}"), err=True)


def _lines(result: Result, format: str, layout: Layout | None) -> Iterator[str]:
    """The lines of a text format."""
    return table(result, layout or Layout()) if format == "table" else _TEXTS[format](result)


def _encoded(lines: Iterable[str]) -> Iterator[bytes]:
    return (f"{line}\n".encode() for line in lines)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line, color=True)


# ---- for people at a terminal


def _terminal_table(result: Result) -> Iterator[str]:
    yield from table_lines(result.to_arrow(), terminal_width() or MAX_WIDTH, color=uses_color())


def _terminal_kv(result: Result) -> Iterator[str]:
    names = [one_line(name) for name in result.columns]
    width = max(map(cell_len, names))
    for number, row in enumerate(zip(*_cells(result), strict=True), start=1):
        if number > 1:
            yield ""
        yield _bold(f"row {number:,}")
        for name, cell in zip(names, row, strict=True):
            yield f"{set_cell_size(name, width)}  {cell}"


def _footer(result: Result, shown: int, seconds: float | None, all_by: str) -> Iterator[str]:
    """The lines below the rows: the number of rows that are not shown, and of all rows, the source and the time."""
    yield ""
    if shown < result.row_count:
        yield f"… {result.row_count - shown:,} more, {all_by}"
    took = "" if seconds is None else f" in {duration(seconds)}"
    source = header(result).partition(" ")[2].partition(" ")[2]
    yield f"{counted(result.row_count, 'row', mark=',')} {source}{took}"


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(0.00312), duration(1.5), duration(75)
    ('3 ms', '1.50 s', '1 min 15 s')
    """
    if seconds < 1:
        return f"{max(1, round(seconds * 1000))} ms"
    return f"{seconds:.2f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _bold(text: str) -> str:
    return click.style(text, bold=True) if uses_color() else text


_FOR_PEOPLE: dict[str, Callable[[Result], Iterator[str]]] = {"table": _terminal_table, "kv": _terminal_kv}


# ---- for programs, and for people behind a pipe


def header(result: Result) -> str:
    """One line with the row count, the branch or snapshot, and the query name."""
    target = f"branch {result.branch}" if result.branch is not None else f"snapshot {result.snapshot}"
    return f"{result.row_count} {'row' if result.row_count == 1 else 'rows'} from {target} via {result.query_name}"


def table(result: Result, layout: Layout) -> Iterator[str]:
    """Print rows as a table. Columns are as wide as their widest value, up to the width of the layout."""
    yield header(result)
    columns = [[one_line(name), *cells] for name, cells in zip(result.columns, _cells(result), strict=True)]
    widths = [min(layout.width, max(map(cell_len, column))) for column in columns]
    names, *rows = zip(*columns, strict=True)
    yield _line(names, widths)
    yield "-+-".join("-" * width for width in widths)
    for row in rows:
        if layout.wraps:
            yield from _wrapped(row, widths)
        else:
            yield _line(row, widths)


def _wrapped(cells: tuple[str, ...], widths: list[int]) -> Iterator[str]:
    """The lines of a row. A cell that is wider than its column continues on the next line."""
    columns = [chop_cells(cell, max(width, 1)) or [""] for cell, width in zip(cells, widths, strict=True)]
    for parts in zip_longest(*columns, fillvalue=""):
        yield _line(parts, widths)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    fitted = (
        set_cell_size(cell, width) if cell_len(cell) <= width else set_cell_size(cell, width - 1) + "…"
        for cell, width in zip(cells, widths, strict=True)
    )
    return " | ".join(fitted).rstrip()


def kv(result: Result) -> Iterator[str]:
    """Rows one below the other, one line per value."""
    yield header(result)
    if result.row_count == 0:
        yield "(no rows)"
    names = [one_line(name) for name in result.columns]
    for number, row in enumerate(zip(*_cells(result), strict=True), start=1):
        if number > 1:
            yield ""
        yield f"row {number}"
        for name, cell in zip(names, row, strict=True):
            yield f"{name}: {cell}"


def csv(result: Result, separator: str = ",") -> Iterator[str]:
    """Rows as separated values with a header.

    Null is `null` without quotes. The texts `null` and the empty text are in quotes, so `load` reads the same values.
    """
    yield separator.join(_quoted(pa.array(result.columns, TEXT), separator).to_pylist())
    for batch in result.batches():
        cells = [_quoted(plain(column), separator).fill_null(_NULL) for column in batch.columns]
        yield "\n".join(pc.binary_join_element_wise(*cells, pa.scalar(separator, TEXT)).to_pylist())


def tsv(result: Result) -> Iterator[str]:
    """Rows as values separated by tabs, with the quotes of CSV."""
    return csv(result, "\t")


def _quoted(cells: pa.Array, separator: str) -> pa.Array:
    inside = pc.replace_substring(cells, '"', '""')
    mark = pa.scalar('"', TEXT)
    quoted = pc.binary_join_element_wise(mark, inside, mark, pa.scalar("", TEXT))
    needed = pc.match_substring_regex(cells, f'[{separator}"\r\n]|^{_NULL}$|^$')
    return pc.if_else(needed, quoted, cells)


def markdown(result: Result) -> Iterator[str]:
    """Rows as a Markdown table."""
    yield _markdown_line(name.translate(_MARKDOWN) for name in result.columns)
    schema = result.to_arrow().schema
    yield _markdown_line("---:" if is_number(field.type) else "---" for field in schema)
    for batch in result.batches():
        texts = [plain(column).fill_null(_NULL).to_pylist() for column in batch.columns]
        for row in zip(*texts, strict=True):
            yield _markdown_line(cell.translate(_MARKDOWN) for cell in row)


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(printable, cells))} |"


def jsonl(result: Result) -> Iterator[str]:
    """One line of metadata, then one line of JSON per row."""
    yield orjson.dumps({"kind": "metadata"} | result.metadata()).decode()
    yield from ndjson(result)


def ndjson(result: Result) -> Iterator[str]:
    """One line of JSON per row."""
    return (part.decode() for part in json_parts(result.batches(), "\n"))


def json(result: Result) -> Iterator[str]:
    """The result as one JSON document."""
    yield result.to_json(pretty=True)


_TEXTS: dict[str, Callable[[Result], Iterator[str]]] = {
    "kv": kv,
    "csv": csv,
    "tsv": tsv,
    "json": json,
    "jsonl": jsonl,
    "ndjson": ndjson,
    "markdown": markdown,
}


def _write_arrow(table: pa.Table, file: IO[bytes]) -> None:
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def _write_parquet(table: pa.Table, file: IO[bytes]) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, file)


_BINARY: dict[str, Callable[[pa.Table, IO[bytes]], None]] = {"arrow": _write_arrow, "parquet": _write_parquet}


def _cells(result: Result) -> list[list[str]]:
    """The values of each column as texts on one line."""
    found: list[list[str]] = [[] for _ in result.columns]
    for batch in result.batches():
        for cells, column in zip(found, batch.columns, strict=True):
            cells += map(one_line, plain(column).fill_null(_NULL).to_pylist())
    return found
