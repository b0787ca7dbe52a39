"""Files as tables for SQL. Tasks read the files. The columns of NDJSON are declared; other files have column names."""

# See docs/decisions/0119-sql-reads-with-our-readers.md

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.json

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.write.input.csv_rows import read_cells
from omnigraph.write.input.formats import Batched, RowFile, readable
from omnigraph.write.input.named_columns import Read
from omnigraph.write.input.row_files import FileSplit, cut_file
from omnigraph.write.rows.problems import Problems
from omnigraph.write.rows.raw_rows import Origin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BLOCK = 8 << 20
_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def file_frame(spark: SparkSession, files: Iterable[RowFile], columns: Mapping[str, str]) -> DataFrame:
    """Files of one format as a DataFrame. All columns of CSV are texts; NDJSON has the declared columns.

    Raises:
        InputError: the files have several formats, or the columns are not known.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import StructType

    listed = list(files)
    format_ = listed[0].format
    if any(file.format != format_ for file in listed):
        raise InputError("the files have several formats", hint="declare a source for each format")
    if not format_.tables:
        if not columns:
            raise InputError(
                "the source is NDJSON, and SQL needs to know its columns",
                hint="declare them in the source: 'columns: {name: string, tons: bigint}'",
            )
        named = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        declared = StructType.fromDDL(named)
        assert isinstance(declared, StructType)
        schema = to_arrow_schema(declared, timezone="UTC")
    elif columns:
        raise InputError(
            "'columns' is only for NDJSON files: these files have column names", hint="omit 'columns', and cast in SQL"
        )
    else:
        schema = columns_of(listed[0])
    splits = tuple(split for file in listed for split in cut_file(FileSplit(file, None)))
    task = FileTask(splits, schema)
    return spark.range(0, len(splits), 1, len(splits)).mapInArrow(task, from_arrow_schema(schema))


def columns_of(file: RowFile) -> pa.Schema:
    """The columns of a file, with types that Spark supports.

    Raises:
        InputError: the file cannot be read.
    """
    with readable(file):
        if not isinstance(file.format, Batched):
            return pa.schema([pa.field(name, pa.utf8()) for name in _header(file)])
        schema = next(file.format.batches(file, 0, 0)).schema
    return pa.schema([pa.field(field.name, _spark_type(field.type)) for field in schema])


def _spark_type(kind: pa.DataType) -> pa.DataType:
    if kind in _UNSIGNED:
        return _UNSIGNED[kind]
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_dictionary(kind):
        return pa.utf8() if not pa.types.is_dictionary(kind) else _spark_type(kind.value_type)
    if pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        return pa.list_(_spark_type(kind.value_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz and "UTC")
    if pa.types.is_date64(kind):
        return pa.timestamp("us")
    return pa.float32() if pa.types.is_float16(kind) else kind


# Functions that run in tasks


@dataclass(frozen=True)
class FileTask:
    """Reads parts of files. Each task gets the numbers of its parts.

    Attributes:
        splits: the parts.
        schema: the columns of all parts.
    """

    splits: tuple[FileSplit, ...]
    schema: pa.Schema

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            split = self.splits[number]
            try:
                for batch in self._batches(split):
                    self._check_names(batch.schema.names, split)
                    yield batch.select(self.schema.names).cast(self.schema)
            except pa.ArrowException as error:
                raise InputError(f"{split.file.input.label} cannot be read: {cut(str(error), 300)}") from error

    def _check_names(self, names: list[str], split: FileSplit) -> None:
        other = sorted(set(names) ^ set(self.schema.names))
        if other:
            raise InputError(
                f"{split.file.input.label}: the column '{cut(other[0])}' is not in all files of the source",
                hint="declare a source for each kind of file",
            )

    def _batches(self, split: FileSplit) -> Iterator[pa.RecordBatch]:
        if isinstance(split.file.format, Batched):
            return split.file.format.batches(split.file, split.low, split.high)
        return _csv_batches(split.file) if split.file.format.tables else _json_batches(split, self.schema)


def _json_batches(split: FileSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    whole = split.low == 0 and split.high is None
    for block in _lines(split.file.chunks() if whole else split.file.lines(split.low, split.high)):
        if block.strip():
            read = pa.json.ReadOptions(block_size=len(block) + 1)
            yield from pa.json.read_json(pa.BufferReader(block), read, options).to_batches()


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks of whole lines."""
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= _BLOCK and b"\n" in chunk:
            whole = b"".join(held)
            end = whole.rfind(b"\n") + 1
            yield whole[:end]
            held, size = [whole[end:]], len(whole) - end
    yield b"".join(held)


def _csv_batches(file: RowFile) -> Iterator[pa.RecordBatch]:
    """The rows of a CSV file, parsed as in a load. Cells are texts: an empty cell is null, `""` is an empty text."""
    problems, cells = Problems(), _TextCells()
    for batch in _read(file, cells, problems):
        _refuse(problems)
        yield batch
    _refuse(problems)
    # Return an empty batch first, so that a file without rows also has columns.
    yield pa.record_batch([pa.nulls(0, pa.utf8()) for _ in cells.names], names=cells.names)


def _header(file: RowFile) -> list[str]:
    cells = _TextCells()
    next(_read(file, cells, Problems()), None)
    return cells.names


def _read(file: RowFile, cells: _TextCells, problems: Problems) -> Iterator[pa.RecordBatch]:
    separator = str(getattr(file.format, "separator", ","))
    return read_cells(file.chunks(), cells, problems, file.input.label, delimiter=separator)


def _refuse(problems: Problems) -> None:
    for problem in problems.first[:1]:
        more = f", and {problems.total - 1:,} more" if problems.total > 1 else ""
        raise InputError(f"{problem.place}: {problem.message}{more}")


class _TextCells:
    """Keeps cells as texts."""

    name = "row"

    def __init__(self) -> None:
        self.names: list[str] = []

    def check_names(self, names: list[str], position: int, place: str) -> None:
        self.names = names

    def rows(
        self, columns: Mapping[str, pa.Array], origin: Origin, read: Read | None = None
    ) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch(dict(columns))
