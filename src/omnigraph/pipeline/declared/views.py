"""SQL over the sources of a run: each is a view in a session of the run's own, and so is each step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import RawIOBase
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from omnigraph.commit.snapshots import Snapshot
from omnigraph.errors import InputError, cut
from omnigraph.pipeline.declared.document import Document, FileSource, SparkSource
from omnigraph.pipeline.declared.inputs import Pinned
from omnigraph.pipeline.source.source import NAME
from omnigraph.write.files import FileSplit, cut_file
from omnigraph.write.formats import Batched, RowFile, readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BLOCK = 8 << 20
_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


class Views:
    """The sources and steps of a run, for SQL.

    Args:
        document: the declaration.
        pinned: its sources.
        spark: a session of the run's own.
    """

    def __init__(self, document: Document, pinned: Mapping[str, Pinned], spark: SparkSession) -> None:
        self._document = document
        self._pinned = pinned
        self._spark = spark
        self._kept: list[DataFrame] = []
        self._frames: dict[str, DataFrame] = {}

    def make(self) -> None:
        """Make a view of every source that SQL mentions, and of every step.

        Raises:
            InputError: SQL says something that cannot be done; nothing is read for it.
        """
        for name, source in self._pinned.items():
            if any(mentions(sql, name) for sql in self._document.queries):
                with self._naming(f"sources.{name}"):
                    self._add(name, self._frame(source))
        for name, sql in self._document.steps.items():
            frame = self.sql(sql, f"steps.{name}")
            if self._uses(name) > 1:
                frame = frame.persist()
                self._kept.append(frame)
            self._add(name, frame)

    def sql(self, text: str, path: str) -> DataFrame:
        """The rows that SQL finds.

        Raises:
            InputError: it says something that cannot be done.
        """
        with self._naming(path):
            args = {name: value for name, value in self._document.variables.items() if _parameter(text, name)}
            return self._spark.sql(text, args) if args else self._spark.sql(text)

    def rows(self, name: str) -> DataFrame | None:
        """The rows of a step, or of a source that only Spark can read; None for other sources."""
        if name in self._frames and name in self._document.steps:
            return self._frames[name]
        pinned = self._pinned.get(name)
        if pinned is not None and isinstance(pinned.source, SparkSource):
            with self._naming(f"sources.{name}"):
                return self._frame(pinned)
        return None

    def add_types(self, view: Snapshot, texts: Iterable[str]) -> None:
        """Make views of the types of a state of the graph that SQL mentions: `node_Ship`, `edge_Docked`."""
        for key in view.tables:
            name = view_name(key)
            if any(mentions(text, name) for text in texts):
                self._add(name, graph_frame(self._spark, view, key))

    def close(self) -> None:
        for frame in self._kept:
            frame.unpersist()

    def _add(self, name: str, frame: DataFrame) -> None:
        self._frames[name] = frame
        frame.createOrReplaceTempView(name)

    def _uses(self, name: str) -> int:
        of_load = sum(target.rows == name for target in self._document.targets)
        return of_load + sum(mentions(sql, name) for sql in self._document.queries)

    def _naming(self, path: str) -> _Naming:
        return _Naming(self._document.file, path)

    def _frame(self, pinned: Pinned) -> DataFrame:
        source = pinned.source
        if isinstance(source, SparkSource):
            if source.table is not None:
                return self._spark.table(source.table)
            assert source.format is not None
            return self._spark.read.format(source.format).options(**source.options).load()
        if isinstance(source, FileSource):
            return file_frame(self._spark, pinned.files, source.columns)
        assert pinned.view is not None
        return graph_frame(self._spark, pinned.view, pinned.export().key)


@dataclass
class _Naming:
    """Says where in the file it stands what Spark does not understand."""

    file: str
    path: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from pyspark.errors import AnalysisException, ParseException

        if isinstance(error, InputError):
            raise InputError(f"{self.file}: {self.path}: {error.message}", hint=error.hint) from None
        if isinstance(error, AnalysisException | ParseException):
            raise InputError(f"{self.file}: {self.path}: {_said(error)}", hint="correct the SQL") from None


def _said(error: BaseException) -> str:
    """What Spark says, without the name of the condition and the plan below it."""
    text = str(error).strip()
    text = re.sub(r"^\[[A-Z_.0-9]+\]\s*", "", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kept = []
    for line in lines:
        if line.startswith(("'", "+-", "==", "JVM stacktrace", "SQLSTATE")):
            break
        kept.append(line)
    return cut(" ".join(kept) or type(error).__name__, 400)


def mentions(sql: str, name: str) -> bool:
    """Whether SQL may mean a view. Names mean the same in any case."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE) is not None


def _parameter(sql: str, name: str) -> bool:
    return re.search(rf"(?<![\w:]):{re.escape(name)}(?!\w)", sql) is not None


def view_name(key: str) -> str:
    """What the view of a type is called."""
    return key.replace(":", "_", 1)


def graph_frame(spark: SparkSession, view: Snapshot, key: str) -> DataFrame:
    """A type of a graph at one commit."""
    storage = {f"storage.{name}": value for name, value in view.uri.storage_options.items()}
    said = {"path": str(view.uri), "commit": view.commit.id, "type": key, **storage}
    return spark.read.format(NAME).options(**said).load()


def file_frame(spark: SparkSession, files: Iterable[RowFile], columns: Mapping[str, str]) -> DataFrame:
    """Files of one format as a table. Cells of CSV are texts; NDJSON has the columns that are declared.

    Raises:
        InputError: they are of several formats, or nothing says which columns there are.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import StructType

    listed = list(files)
    format_ = listed[0].format
    if any(file.format != format_ for file in listed):
        raise InputError("the files are of several formats", hint="make a source of each")
    if not format_.tables:
        if not columns:
            raise InputError(
                "SQL needs to know the columns of NDJSON", hint="declare them: 'columns: {name: string, tons: bigint}'"
            )
        named = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        declared = StructType.fromDDL(named)
        assert isinstance(declared, StructType)
        schema = to_arrow_schema(declared, timezone="UTC")
    elif columns:
        raise InputError("the files name their columns themselves", hint="leave out 'columns', and cast in SQL")
    else:
        schema = _spark_schema(_file_schema(listed[0]))
    splits = tuple(split for file in listed for split in cut_file(FileSplit(file, None)))
    reading = _Reading(splits, schema)
    return spark.range(0, len(splits), 1, len(splits)).mapInArrow(reading, from_arrow_schema(schema))


def _file_schema(file: RowFile) -> pa.Schema:
    if isinstance(file.format, Batched):
        with readable(file):
            return next(file.format.batches(file, 0, 0)).schema
    return _csv(file).schema


def _spark_schema(schema: pa.Schema) -> pa.Schema:
    """The columns with types that Spark has."""
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


# In the tasks


@dataclass(frozen=True)
class _Reading:
    """Reads parts of files, the task's number being the part's."""

    splits: tuple[FileSplit, ...]
    schema: pa.Schema

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            split = self.splits[number]
            try:
                for batch in self._batches(split):
                    yield batch.select(self.schema.names).cast(self.schema)
            except (pa.ArrowException, KeyError) as error:
                raise InputError(f"{split.file.input.name} cannot be read: {cut(str(error), 300)}") from error

    def _batches(self, split: FileSplit) -> Iterator[pa.RecordBatch]:
        if isinstance(split.file.format, Batched):
            return split.file.format.batches(split.file, split.low, split.high)
        return iter(_csv(split.file)) if split.file.format.tables else _json_batches(split, self.schema)


def _json_batches(split: FileSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    whole = split.low == 0 and split.high is None
    for block in _lines(split.file.chunks() if whole else split.file.lines(split.low, split.high)):
        if block.strip():
            read = pa.json.ReadOptions(block_size=len(block) + 1)
            yield from pa.json.read_json(pa.BufferReader(block), read, options).to_batches()


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks that end with a line."""
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


def _csv(file: RowFile) -> Any:
    """The rows of CSV. Cells are texts, an empty one is null, and `""` is the empty text."""
    stream = pa.PythonFile(_Chunked(file.chunks()), mode="r")
    delimiter = str(getattr(file.format, "separator", ","))
    parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    names = _header(file, delimiter)
    convert = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.utf8()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return pa.csv.open_csv(stream, pa.csv.ReadOptions(block_size=_BLOCK), parse, convert)


def _header(file: RowFile, delimiter: str) -> list[str]:
    import csv

    text = b""
    for chunk in file.chunks():
        text += chunk
        if b"\n" in chunk or len(text) > _BLOCK:
            break
    first = text.split(b"\n", 1)[0].decode("utf-8-sig", errors="replace").rstrip("\r")
    return next(csv.reader([first], delimiter=delimiter), [])


class _Chunked(RawIOBase):
    """Chunks of bytes as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._held = memoryview(chunk)
        count = min(len(buffer), len(self._held))
        buffer[:count] = self._held[:count]
        self._held = self._held[count:]
        return count
