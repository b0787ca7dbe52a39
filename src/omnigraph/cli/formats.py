"""Output formats of query results. Commands import this module late, because it imports the engine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import click
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from rich.cells import cell_len, set_cell_size

from omnigraph.cli.streams import write_data
from omnigraph.errors.source import one_line, printable
from omnigraph.read.export.json_text import TEXT
from omnigraph.read.result.encoding import plain
from omnigraph.read.result.result import Result

MAX_WIDTH = 80
"""Maximum width of a column of a table, in characters."""

_NULL = "null"
_QUOTED = r'[,"\r\n]'


def print_result(result: Result, format: str) -> None:
    """Print a result to stdout, and its warnings to stderr."""
    for warning in result.warnings:
        click.echo(printable(f"warning: {warning}"), err=True)
    if format == "arrow":
        with pa.ipc.new_stream(sys.stdout.buffer, result.to_arrow().schema) as writer:
            writer.write_table(result.to_arrow())
        sys.stdout.buffer.flush()
        return
    for text in _PRINTERS[format](result):
        write_data(f"{text}\n")


def header(result: Result) -> str:
    """One line with the row count, the branch or snapshot, and the query name."""
    target = f"branch {result.branch}" if result.branch is not None else f"snapshot {result.snapshot}"
    return f"{result.row_count} {'row' if result.row_count == 1 else 'rows'} from {target} via {result.query_name}"


def table(result: Result) -> Iterator[str]:
    """Print rows as a table. Columns are as wide as their widest value, up to `MAX_WIDTH`."""
    yield header(result)
    columns = [[one_line(name), *cells] for name, cells in zip(result.columns, _cells(result), strict=True)]
    widths = [min(MAX_WIDTH, max(map(cell_len, column))) for column in columns]
    names, *rows = zip(*columns, strict=True)
    yield _line(names, widths)
    yield "-+-".join("-" * width for width in widths)
    for row in rows:
        yield _line(row, widths)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    fitted = (
        set_cell_size(cell, width) if cell_len(cell) <= width else set_cell_size(cell, width - 1) + "…"
        for cell, width in zip(cells, widths, strict=True)
    )
    return " | ".join(fitted).rstrip()


def kv(result: Result) -> Iterator[str]:
    """Print rows one below the other, one line per value."""
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


def csv(result: Result) -> Iterator[str]:
    """Print rows as comma-separated values with a header."""
    yield ",".join(_quoted(pa.array(result.columns, TEXT)).to_pylist())
    for batch in result.batches():
        cells = [_quoted(plain(column).fill_null(_NULL)) for column in batch.columns]
        yield "\n".join(pc.binary_join_element_wise(*cells, pa.scalar(",", TEXT)).to_pylist())


def _quoted(cells: pa.Array) -> pa.Array:
    inside = pc.replace_substring(cells, '"', '""')
    mark = pa.scalar('"', TEXT)
    quoted = pc.binary_join_element_wise(mark, inside, mark, pa.scalar("", TEXT))
    return pc.if_else(pc.match_substring_regex(cells, _QUOTED), quoted, cells)


def jsonl(result: Result) -> Iterator[str]:
    """Print one line of metadata, then one line of JSON per row."""
    yield orjson.dumps({"kind": "metadata"} | result.metadata()).decode()
    yield from result.json_rows()


def json(result: Result) -> Iterator[str]:
    """Print the result as one JSON document."""
    yield result.to_json(pretty=True)


_PRINTERS: dict[str, Callable[[Result], Iterator[str]]] = {
    "table": table,
    "kv": kv,
    "csv": csv,
    "json": json,
    "jsonl": jsonl,
}


def _cells(result: Result) -> list[list[str]]:
    """The values of each column as texts on one line."""
    found: list[list[str]] = [[] for _ in result.columns]
    for batch in result.batches():
        for cells, column in zip(found, batch.columns, strict=True):
            cells += map(one_line, plain(column).fill_null(_NULL).to_pylist())
    return found
