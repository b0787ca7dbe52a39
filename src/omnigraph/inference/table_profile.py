"""Reads the tables of files and data frames, and collects the statistics of their columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import BadRowsError, InputError
from omnigraph.inference.column_profile import NULL_TEXTS, ColumnProfile, null_texts_of
from omnigraph.inference.csv_dialect import csv_dialect
from omnigraph.write.input.arrow_rows import is_pandas, without_index
from omnigraph.write.input.csv_rows import BAD_QUOTES, read_cells
from omnigraph.write.input.formats import TSV, Batched, RowFile
from omnigraph.write.input.named_columns import Dialect, Read
from omnigraph.write.rows.problems import Problems
from omnigraph.write.rows.raw_rows import Origin

_BATCH_ROWS = 256 * 1024
MAX_PAIR_ROWS = 4 * 1024 * 1024
"""Rows of a table whose pairs of columns are tested as keys. A larger table gets no key of several columns."""


@dataclass(slots=True)
class TableProfile:
    """The statistics of a table.

    Attributes:
        name: the name of the table in messages: the name of its file.
        stem: the name without extensions, which becomes the name of a type.
        sources: the names by which the mapping selects the table.
        columns: its columns.
        dialect: the CSV dialect, if it is a CSV file.
        named: whether the columns have names of their own, not `c1`, `c2`.
        rows: number of rows.
        why_header: why the first row of a CSV file is or is not a header.
    """

    name: str
    stem: str
    sources: tuple[str, ...]
    columns: list[ColumnProfile]
    dialect: Dialect | None = None
    named: bool = True
    rows: int = 0
    why_header: str = ""

    @property
    def nulls(self) -> tuple[str, ...]:
        """The texts that mean null in a CSV file, beyond the empty cell."""
        return tuple(text for text in self.dialect.nulls if text) if self.dialect is not None else ()

    def column(self, name: str) -> ColumnProfile:
        return next(column for column in self.columns if column.name == name)


def profile_batches(name: str, stem: str, sources: tuple[str, ...], batches: Iterator[pa.RecordBatch]) -> TableProfile:
    """The statistics of a table of Arrow batches.

    Raises:
        InputError: the rows cannot be used.
    """
    table = TableProfile(name, stem, sources, [])
    for given in batches:
        whole = without_index(given)
        for start in range(0, max(1, whole.num_rows), _BATCH_ROWS):
            batch = whole.slice(start, _BATCH_ROWS)
            values = dict(zip(batch.schema.names, batch.columns, strict=True))
            try:
                _take(table, values, batch.num_rows, is_pandas(batch.schema))
            except UnicodeDecodeError:
                raise InputError(f"{name} has a text that is not UTF-8", hint="convert the file to UTF-8") from None
    return _checked(table)


def profile_files(files: Sequence[RowFile], sources: tuple[str, ...], columns: Sequence[str] | None) -> TableProfile:
    """The statistics of a table of one or several CSV, Parquet or Arrow files.

    Args:
        files: the files, with the same columns.
        sources: the names by which the mapping selects the files.
        columns: the names of the columns of CSV files, if the user gives them.

    Raises:
        InputError: a file cannot be read.
    """
    first = files[0]
    if isinstance(first.format, Batched):
        batches = (batch for file in files for batch in file.batches())
        return profile_batches(first.input.name, first.stem, sources, batches)
    return _profile_csv(files, sources, columns)


def take_members(table: TableProfile, batch: pa.RecordBatch) -> None:
    """Add records to the statistics of a table. A record may lack members of others."""
    values = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, column in values.items():
        known = next((each for each in table.columns if each.name == name), None)
        if known is None:
            known = ColumnProfile(name, cells=False, json=True)
            known.rows = known.nulls = table.rows  # the records before have no such member
            if table.rows:
                known.row_hashes = None
            table.columns.append(known)
        known.take(column)
    table.rows += batch.num_rows
    for known in table.columns:
        if known.name not in values:
            known.rows += batch.num_rows
            known.nulls += batch.num_rows
            known.row_hashes = None
        if table.rows > MAX_PAIR_ROWS:
            known.row_hashes = None


def _profile_csv(files: Sequence[RowFile], sources: tuple[str, ...], columns: Sequence[str] | None) -> TableProfile:
    """The statistics of CSV files. If the quotes are not those of CSV, they are a part of the texts."""
    try:
        return _profile_cells(files, sources, columns, '"')
    except BadRowsError as error:
        if any(file.input.once for file in files):
            raise
        place = _wrong_quote(error)
        if place is None:
            raise
        try:
            table = _profile_cells(files, sources, columns, "")
        except InputError:
            raise error from None
    table.why_header += f"; {place} has a quote inside of a cell, so quotes are a part of the texts"
    return table


def _wrong_quote(error: BadRowsError) -> str | None:
    """The place of a quote that is not allowed, if that is the problem."""
    return next((problem.place for problem in error.problems if problem.message == BAD_QUOTES), None)


def _profile_cells(
    files: Sequence[RowFile], sources: tuple[str, ...], columns: Sequence[str] | None, quote: str
) -> TableProfile:
    first = files[0]
    usual = "\t" if first.format is TSV else ","
    chunks = first.chunks()
    start = next(chunks, b"")
    dialect, why = csv_dialect(start, usual, columns, first.input.name, quote)
    table = TableProfile(first.input.name, first.stem, sources, [], dialect, dialect.header or bool(columns), 0, why)
    quoted: set[str] = set()
    cells = _Cells()
    for file in files:
        problems = Problems()
        parts = _watched(chain([start], chunks) if file is first else file.chunks(), dialect.quote, quoted)
        for values in read_cells(parts, cells, problems, file.input.label, 1, dialect, usual):
            _take(table, values, len(next(iter(values.values()))), pandas=False)
        problems.check_read()
    if not table.columns:
        table.columns = [ColumnProfile(name, cells=True) for name in cells.names]
    nulls = tuple(text for text in null_texts_of(table.columns) if text not in quoted)
    table.dialect = replace(dialect, nulls=(*dialect.nulls, *nulls))
    return _checked(table)


def cell_batches(file: RowFile) -> Iterator[pa.RecordBatch]:
    """The rows of a CSV file of an export, as texts."""
    cells, problems = _Cells(), Problems()
    for values in read_cells(file.chunks(), cells, problems, file.input.name):
        yield pa.RecordBatch.from_pydict(dict(values))
    problems.check_read()
    yield pa.RecordBatch.from_pydict({name: pa.array([], pa.utf8()) for name in cells.names})


class _Cells:
    """Passes on the cells of a CSV file, and keeps the names of its columns."""

    name = "input"

    def __init__(self) -> None:
        self.names: list[str] = []

    def check_names(self, names: list[str], position: int, place: str) -> None:
        self.names = names

    def rows(
        self, columns: Mapping[str, pa.Array], origin: Origin, read: Read | None = None
    ) -> Iterator[Mapping[str, pa.Array]]:
        yield columns


def _watched(chunks: Iterator[bytes], quote: str, quoted: set[str]) -> Iterator[bytes]:
    """Pass on the bytes of a file. Collects the null texts that occur in quotes: in quotes, they are not null."""
    marks = {text: f"{quote}{text}{quote}".encode() for text in NULL_TEXTS}
    rest = b""
    if not quote:
        yield from chunks
        return
    for chunk in chunks:
        if ord(quote) in chunk:
            quoted.update(text for text, mark in marks.items() if text not in quoted and mark in rest + chunk)
        rest = chunk[-8:]
        yield chunk


def _take(table: TableProfile, values: Mapping[str, pa.Array], count: int, pandas: bool) -> None:
    if not table.columns:
        cells = table.dialect is not None
        table.columns = [ColumnProfile(name, cells=cells, pandas=pandas) for name in values]
    elif [column.name for column in table.columns] != list(values):
        raise InputError(
            f"{table.name}: its files do not have the same columns", hint="infer tables with other columns apart"
        )
    table.rows += count
    for column in table.columns:
        column.take(values[column.name])
        if table.rows > MAX_PAIR_ROWS:
            column.row_hashes = None


def _checked(table: TableProfile) -> TableProfile:
    if not table.columns:
        raise InputError(f"{table.name} has no rows", hint="a schema is inferred from rows")
    names = [column.name for column in table.columns]
    if len(set(names)) < len(names):
        raise InputError(f"{table.name} has two columns of the same name", hint="rename one of them")
    return table
