"""Plans a load on Spark: splits the input into parts for tasks.

Files are split by byte ranges if their format allows it. Input that only the driver can read, such as a table in memory
or a stream, is written to staged files for the tasks. The rows of a DataFrame are staged by the tasks that compute
them, because a second computation may give other rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.pipeline.spark.staging import Staging
from omnigraph.write.input.arrow_rows import read_batches
from omnigraph.write.input.formats import without_rows
from omnigraph.write.input.named_columns import Layout, OfType, Type, empty_rows
from omnigraph.write.input.ndjson import Progress, read_ndjson
from omnigraph.write.input.row_files import FileSplit, cut_file
from omnigraph.write.input.sources import Inputs
from omnigraph.write.input.splits import Batches, Chunks, End, Items, Reading, Split, Start
from omnigraph.write.input.table_mapping import TableMapping
from omnigraph.write.rows.problems import Problems

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TABLE = re.compile(r"\w+(\.\w+){0,2}")
"""The syntax of a table name: `people`, `sales.people`, `lake.sales.people`."""

_VALUE_BYTES = 40
"""Approximate bytes of input per compared value. An edge has two compared values: the ids of its ends."""

_COMPRESSION_RATIO = 4
"""Approximate compression ratio of compressed files."""

_STAGED = pa.schema([("number", pa.int64()), ("path", pa.utf8()), ("size", pa.int64())])


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Staged rows of a table.

    Attributes:
        paths: the staged files; empty for an empty table.
        schema: the columns.
        layout: how columns map to types and properties.
        name: the name of the table in messages.
        number: the number of this part of the table.
        all: the staged files of all parts of the table.
        size: the bytes of this part.
    """

    staging: Staging
    paths: tuple[str, ...]
    schema: pa.Schema
    layout: Layout
    name: str
    number: int
    all: tuple[str, ...]
    size: int

    @property
    def begins(self) -> bool:
        return self.number == 0

    @property
    def types(self) -> tuple[Type, ...] | None:
        return self.layout.types

    def whole(self) -> StagedRows:
        return replace(self, paths=self.all, number=0)

    def read(self, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        yield from empty_rows(self.layout)
        end = yield from read_batches(
            self._batches(), self.layout, accepted, problems, self.name, start.first, start.before, self.begins
        )
        count = end - start.first - start.before
        return End(count, count)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        yield without_rows(self.schema)
        for path in self.paths:
            yield from self.staging.batches(path)


@dataclass(frozen=True, slots=True)
class StagedLines:
    """A staged part of an NDJSON stream. Parts end at line breaks."""

    staging: Staging
    paths: tuple[str, ...]
    name: str
    number: int
    all: tuple[str, ...]
    size: int

    @property
    def begins(self) -> bool:
        return self.number == 0

    @property
    def types(self) -> tuple[Type, ...] | None:
        return None

    def whole(self) -> StagedLines:
        return replace(self, paths=self.all, number=0)

    def read(self, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        progress = Progress(start.before + 1, start.records, middle=self.number > 0)
        chunks = (self.staging.objects.get(path).data for path in self.paths)
        yield from read_ndjson(chunks, accepted, problems, self.name, start.first, progress)
        return End(progress.line - 1 - start.before, progress.records - start.records, progress.clean)


class Planner:
    """Splits the input of one load.

    Args:
        accepted: the accepted schema.
        staging: the staging directory.
        size: the approximate bytes of a part.
        mapping: the mapping of tables whose columns do not have the names of the properties.
        spark: the Spark session, to look up tables by name.
        format: the format of files, whatever their names are.
    """

    def __init__(
        self,
        accepted: AcceptedSchema,
        staging: Staging,
        size: int,
        mapping: TableMapping | None = None,
        spark: SparkSession | None = None,
        format: str | None = None,
    ) -> None:
        self._spark = spark
        self._staging = staging
        self._size = size
        self._inputs = Inputs(accepted, mapping, dict(staging.options), format)
        self._count = 0

    def splits(self, source: Any, type_name: str | None) -> Iterator[Split]:
        """The parts of the input, in order.

        Raises:
            InputError: the input cannot be loaded.
        """
        from pyspark.sql import DataFrame

        if isinstance(source, DataFrame):
            if type_name is None:
                raise InputError("the type of the rows of the DataFrame is missing", hint="pass type_name=")
            yield from self._frame(source, type_name)
            return
        if isinstance(source, Mapping):
            named = {name: self._table(rows) for name, rows in source.items()}
            if any(isinstance(rows, DataFrame) for rows in named.values()):
                for name, rows in named.items():
                    frame = isinstance(rows, DataFrame)
                    yield from self.splits(rows, name) if frame else self.splits({name: rows}, None)
                return
        for part in self._inputs.of(source, type_name):
            if isinstance(part, FileSplit):
                if part.file.input.once:
                    raise InputError(
                        f"{part.file.input} can be read only once, and on Spark several tasks read the input",
                        hint="use --engine local (engine='local'), or give a file",
                    )
                yield from cut_file(part, self._size)
            elif isinstance(part, Items):
                yield Items(list(part.items), part.layout)
            elif isinstance(part, Batches):
                yield from self._batches(part)
            else:
                yield from self._lines(part)

    def _table(self, rows: Any) -> Any:
        """The DataFrame of a Spark table, if `rows` is the name of a table and not of a file. Else `rows` unchanged."""
        if not isinstance(rows, str) or not _TABLE.fullmatch(rows) or Path(rows).exists():
            return rows
        return self._spark.table(rows) if self._spark is not None and self._spark.catalog.tableExists(rows) else rows

    def _name(self, what: str) -> str:
        self._count += 1
        return f"input/{what}-{self._count:06d}"

    def _batches(self, part: Batches) -> Iterator[Split]:
        batches = iter(part.batches)
        schema = next(batches).schema
        put = list(_stage_rows(self._staging, self._name("rows"), (schema, batches), self._size))
        yield from self._staged(put, schema, part.layout, part.name)

    def _staged(self, put: Sequence[tuple[str, int]], schema: pa.Schema, layout: Layout, name: str) -> Iterator[Split]:
        every = tuple(path for path, _ in put)
        if not every:
            yield StagedRows(self._staging, (), schema, layout, name, 0, (), 0)
        for number, (path, size) in enumerate(put):
            yield StagedRows(self._staging, (path,), schema, layout, name, number, every, size)

    def _lines(self, part: Chunks) -> Iterator[Split]:
        paths: list[tuple[str, int]] = []
        held: list[bytes] = []
        size = 0

        def put() -> None:
            path, lines = self._staging.path(self._name("lines"), "ndjson"), b"".join(held)
            self._staging.objects.put(path, lines)
            paths.append((path, len(lines)))

        for chunk in part.chunks():
            held.append(chunk)
            size += len(chunk)
            if size >= self._size and b"\n" in chunk:
                whole = b"".join(held)
                end = whole.rfind(b"\n") + 1
                held[:] = [whole[:end]]
                put()
                held[:], size = [whole[end:]], len(whole) - end
        put()
        every = tuple(path for path, _ in paths)
        for number, (path, length) in enumerate(paths):
            yield StagedLines(self._staging, (path,), part.name, number, every, length)

    def _frame(self, frame: DataFrame, given: str) -> Iterator[Split]:
        """Stage a DataFrame. Each partition becomes one or more parts of about `size` bytes."""
        layout = self._inputs.layout(given)
        shown = layout.name if isinstance(layout, OfType) else given.rpartition(":")[2]
        from pyspark import TaskContext
        from pyspark.sql.pandas.types import to_arrow_schema

        staging, name, most = self._staging, self._name("frame"), self._size

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            number = context.partitionId()
            first = next(batches, None)
            if first is None:
                return
            rows = (first.schema, chain([first], batches))
            for part, (path, size) in enumerate(_stage_rows(staging, f"{name}-{number:06d}", rows, most)):
                row = {"number": number << 32 | part, "path": path, "size": size}
                yield pa.RecordBatch.from_pylist([row], _STAGED)

        done = frame.mapInArrow(task, "number long, path string, size long").toArrow().sort_by("number")
        schema = to_arrow_schema(frame.schema, timezone="UTC")
        put = list(zip(done["path"].to_pylist(), done["size"].to_pylist(), strict=True))
        yield from self._staged(put, schema, layout, shown)


def _stage_rows(
    staging: Staging, name: str, rows: tuple[pa.Schema, Iterator[pa.RecordBatch]], most: int
) -> Iterator[tuple[str, int]]:
    """Stage rows in files of about `most` bytes. Yields the path and the size of each file."""
    schema, batches = rows
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        for part in _slices(batch, most):
            held.append(part)
            size += part.nbytes
            if size >= most:
                yield staging.put(name, pa.Table.from_batches(held, schema)), size
                held, size = [], 0
    if held:
        yield staging.put(name, pa.Table.from_batches(held, schema)), size


def compared_values(splits: Sequence[Split]) -> int:
    """Estimate the number of values in the input that constraint checks compare with other rows."""
    files = [split.file for split in splits if isinstance(split, FileSplit) and split.begins]
    compressed = (file.compression is not None or file.format.expands for file in files)
    read = sum(
        file.input.size * (_COMPRESSION_RATIO if more else 1) for file, more in zip(files, compressed, strict=True)
    )
    staged = sum(split.size for split in splits if isinstance(split, StagedRows | StagedLines))
    items = sum(len(split.items) for split in splits if isinstance(split, Items) and isinstance(split.items, list))
    return (read + staged) // _VALUE_BYTES + items * 2


def _slices(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    rows = max(1, batch.num_rows * size // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
