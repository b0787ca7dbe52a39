"""Input sources: files, in-memory tables, data frames and mappings, and streams."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

import pyarrow as pa

from omnigraph.errors import InputError, cut
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.storage.files.input import StreamFile
from omnigraph.write.input.formats import RowFile, without_rows
from omnigraph.write.input.lenient import with_canonical_ids
from omnigraph.write.input.mapped_columns import Mapped
from omnigraph.write.input.named_columns import Layout, OfType, Type
from omnigraph.write.input.row_files import FileSplit, format_named, row_files
from omnigraph.write.input.splits import Batches, Chunks, Items, Start
from omnigraph.write.input.table_mapping import TableMapping
from omnigraph.write.rows.problems import Coercions, Problems
from omnigraph.write.rows.raw_rows import RawRows

_CHUNK = 4 * 1024 * 1024


@runtime_checkable
class ArrowStream(Protocol):
    """A table of any library with the Arrow C stream interface: pyarrow, Polars, pandas, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


PathLike = str | os.PathLike[str]
TypeRows = ArrowStream | Iterable[Mapping[str, object]] | PathLike
"""The rows of one type: a table, a list of mappings, or a file."""
LoadSource = (
    PathLike
    | Iterable[PathLike | IO[bytes] | IO[str]]
    | Mapping[str, TypeRows]
    | Iterable[Mapping[str, object]]
    | ArrowStream
    | IO[bytes]
    | IO[str]
    | bytes
)
"""All kinds of sources that a load accepts."""

Input = FileSplit | Items | Batches | Chunks
"""One part of the input: a file, records in memory, a table, or a stream."""

Source = Callable[[Problems], Iterator[RawRows]]
"""A function that reads the rows; it can be called once. Adds records that cannot be read to the problems."""


def open_source(
    source: LoadSource,
    accepted: AcceptedSchema,
    type_name: str | None = None,
    *,
    lenient: bool = False,
    mapping: TableMapping | None = None,
    options: Mapping[str, str] | None = None,
    format: str | None = None,
) -> Source:
    """The rows of a source.

    Args:
        source: files (a path, a directory, a pattern, or a list of paths); a dict from type names to tables, lists
            of rows, or files; a table or data frame, with its type in `type_name`; a list of envelopes; or a stream of
            NDJSON.
        accepted: the accepted schema.
        type_name: the type of the rows, if the name of the file or table does not give it.
        lenient: whether to convert or ignore wrong values where possible, and count them.
        mapping: describes tables whose columns do not have the names of the properties.
        options: connection options of S3; they override the environment.
        format: the format of files and streams, whatever their names are.

    Raises:
        InputError: a file or type does not exist, the source is not supported, or the mapping does not fit the schema.
    """
    parts = list(Inputs(accepted, mapping, options, format).of(source, type_name))

    def read(problems: Problems) -> Iterator[RawRows]:
        first = 1
        for part in parts:
            end = yield from part.read(accepted, problems, Start(first))
            first += end.lines

    def read_leniently(problems: Problems) -> Iterator[RawRows]:
        problems.coerced = Coercions()
        return with_canonical_ids(read(problems), accepted, problems)

    return read_leniently if lenient else read


class Inputs:
    """The parts of a source. `open_source` describes the arguments."""

    def __init__(
        self,
        accepted: AcceptedSchema,
        mapping: TableMapping | None = None,
        options: Mapping[str, str] | None = None,
        format: str | None = None,
    ) -> None:
        self._accepted = accepted
        self._format = None if format is None else format_named(format)
        self._options = options
        self._mapping = mapping or TableMapping(())
        self._mapping.check(accepted)

    def of(self, source: LoadSource, type_name: str | None = None) -> Iterator[Input]:
        """The parts of a source.

        Raises:
            InputError: a file or type does not exist, or the source is not supported.
        """
        if isinstance(source, str | os.PathLike):
            yield from (self._file(file, type_name) for file in self._row_files(source))
        elif self._reads_tables and (_is_stream(source) or isinstance(source, bytes | bytearray | memoryview)):
            yield self._stream_file(source, type_name)
        elif isinstance(source, bytes | bytearray | memoryview):
            _no_type(type_name, "NDJSON")
            yield Chunks(lambda: iter([bytes(source)]), "")
        elif isinstance(source, Mapping):
            _no_type(type_name, "a dict from type names to rows")
            for name, rows in source.items():
                yield from self._named(name, rows)
        elif isinstance(source, ArrowStream):
            if type_name is None:
                raise InputError("a table does not name the type of its rows", hint="give type_name=")
            yield from self._named(type_name, source)
        elif _is_stream(source):
            _no_type(type_name, "NDJSON")
            yield Chunks(lambda: _chunks_of(source), _name_of(source))
        elif isinstance(source, Iterable):
            yield from self._several(source, type_name)
        else:
            raise InputError(f"a {type(source).__name__} cannot be loaded", hint=_KINDS)

    def layout(self, name: str) -> Layout:
        """The layout of a table (types and columns): from the mapping, or from the type that has the name of the table.

        Raises:
            InputError: there is no such type.
        """
        return self._mapped(name, name, _bare(name)) or OfType(*resolve_type(self._accepted, name))

    def _mapped(self, path: str, *names: str) -> Mapped | None:
        """The layout from the first entry of the mapping that matches a table."""
        return next((Mapped(entry) for entry in self._mapping.entries if entry.means(path, *names)), None)

    def _several(self, source: Iterable[Any], type_name: str | None) -> Iterator[Input]:
        """The parts of a list. If its first item is a path or a stream, all items are files; else they are records."""
        items = iter(source)
        first = next(items, None)
        if first is None:
            return
        items = chain([first], items)
        if isinstance(first, str | os.PathLike) or _is_stream(first):
            for item in items:
                if not isinstance(item, str | os.PathLike) and not _is_stream(item):
                    raise InputError(
                        f"a list of files contains a {type(item).__name__}, which is neither a path nor a stream"
                    )
                yield from self.of(item, type_name if not _is_stream(item) or self._reads_tables else None)
        elif type_name is not None:
            yield from self._named(type_name, items)
        else:
            yield Items(items, None)

    def _named(self, name: str, rows: TypeRows) -> Iterator[Input]:
        """The rows of one type, or of a table that the mapping describes."""
        layout = self.layout(name)
        if isinstance(rows, str | os.PathLike):
            for file in self._row_files(rows):
                yield FileSplit(file, layout) if isinstance(layout, Mapped) else self._file(file, name)
            return
        shown = layout.name if isinstance(layout, OfType) else _bare(name)
        if isinstance(rows, ArrowStream):
            yield Batches(_stream(rows, shown), layout, shown)
            return
        listed: object = rows
        if isinstance(listed, Mapping | bytes | bytearray) or not isinstance(listed, Iterable):
            found = type(listed).__name__
            raise InputError(f"the rows of {shown} are a {found}", hint="give a table, a list of mappings, or a file")
        if not isinstance(layout, OfType):
            raise InputError(
                f"the mapping describes '{cut(name)}', but it is a list of records; a mapping is for tables only",
                hint="give a table or a file; or remove it from the mapping, and use property names as keys of records",
            )
        yield Items(listed, layout)

    @property
    def _reads_tables(self) -> bool:
        """Whether streams contain tables, and not NDJSON."""
        return self._format is not None and self._format.tables

    def _row_files(self, path: PathLike) -> list[RowFile]:
        return row_files(path, self._options, None if self._format is None else self._format.name)

    def _stream_file(self, source: Any, type_name: str | None) -> FileSplit:
        """A stream of a format whose files are tables."""
        assert self._format is not None
        given = source if _is_stream(source) else io.BytesIO(bytes(source))
        name = _name_of(given) or "the input"
        return self._file(RowFile(StreamFile(lambda: nullcontext(given), name), self._format, name, None), type_name)

    def _file(self, file: RowFile, type_name: str | None) -> FileSplit:
        mapped = self._mapped(str(file.input), file.input.name, file.stem)
        if not file.format.tables:
            if mapped is not None:
                return self._mapped_file(file, mapped, type_name)
            return FileSplit(file, None)
        if mapped is not None:
            return self._mapped_file(file, mapped, type_name)
        kind_and_name = self._type_of(file) if type_name is None else resolve_type(self._accepted, type_name)
        return FileSplit(file, OfType(*kind_and_name))

    def _mapped_file(self, file: RowFile, mapped: Mapped, type_name: str | None) -> FileSplit:
        if type_name is not None:
            raise InputError(f"the mapping gives the type of {cut(file.input.label)}: leave --type (type_name=) out")
        return FileSplit(file, mapped)

    def _type_of(self, file: RowFile) -> Type:
        """The type of the rows of a file, from its name, or from the name of the directory if this is one table."""
        try:
            return resolve_type(self._accepted, file.stem)
        except InputError as error:
            named = file.input.label if file.input.name.startswith(file.stem) else file.input.directory
            hint = "the file name must be the name of a type, unless --type (type_name=) or a mapping gives the type"
            message = f"{cut(named)}: {error.message}"
            raise InputError(message, hint=f"{hint}; {error.hint}" if error.hint else hint) from None


_KINDS = "give a file, several files, a dict from type names to tables, or a list of records"


def _bare(name: str) -> str:
    """A type name without the prefix `node:` or `edge:`."""
    return name.rpartition(":")[2]


def _is_stream(source: object) -> bool:
    return callable(getattr(source, "read", None))


def _no_type(type_name: str | None, what: str) -> None:
    if type_name is not None:
        raise InputError(f"leave type_name out: {what} already contains the types")


def can_read_again(source: object) -> bool:
    """Whether a source has the same rows if it is read again: files, tables and lists, but no streams and pipes.

    A length is no proof: an iterator with a progress bar has one, too.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return path.is_file() or path.is_dir() or not path.exists()  # an address or a pattern
    if isinstance(source, Mapping):
        return all(can_read_again(rows) for rows in source.values())
    if _is_stream(source):
        return False
    if isinstance(source, ArrowStream):
        return isinstance(source, Sized)  # a table, and not a reader of batches
    return isinstance(source, Sequence) and all(
        can_read_again(item) for item in source if isinstance(item, str | os.PathLike) or _is_stream(item)
    )


def _stream(rows: ArrowStream, name: str) -> Iterator[pa.RecordBatch]:
    try:
        reader = pa.RecordBatchReader.from_stream(rows)
        yield without_rows(reader.schema)
        yield from reader
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"the rows of {name} cannot be read as Arrow data: {error}") from error


def _chunks_of(stream: Any) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):
        yield chunk.encode() if isinstance(chunk, str) else chunk


def _name_of(stream: object) -> str:
    name = getattr(stream, "name", "")
    return Path(name).name.strip("<>") if isinstance(name, str) else ""


def resolve_type(accepted: AcceptedSchema, name: str) -> tuple[TypeKind, str]:
    """Resolve a type name: a node type, an edge type, or either with its kind as a prefix.

    The prefix is written `edge:Likes`, or `edge.Likes` in the names of files.

    Raises:
        InputError: there is no such type.
    """
    kind, _, bare = name.replace(".", ":", 1).rpartition(":")
    nodes, edges = accepted.catalog.nodes, accepted.catalog.edges
    if bare in nodes and kind in ("", "node"):
        return TypeKind.NODE, bare
    if bare in edges and kind in ("", "edge"):
        return TypeKind.EDGE, bare
    raise InputError(f"there is no type '{cut(name)}'", hint=did_you_mean(bare, [*nodes, *edges]))
