"""Where rows come from: files by their endings, tables, frames and mappings that are in memory, and streams."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

import pyarrow as pa

from omnigraph.errors import InputError
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.write.csv_rows import read_csv
from omnigraph.write.files import Format, RowFile, row_files
from omnigraph.write.lenient import settle
from omnigraph.write.mappings import read_envelopes, read_rows
from omnigraph.write.ndjson import read_ndjson
from omnigraph.write.problems import Coercions, Problems
from omnigraph.write.rows import Origin, RawRows
from omnigraph.write.tables import read_batches

_CHUNK = 4 * 1024 * 1024


@runtime_checkable
class ArrowStream(Protocol):
    """A table of any library that can hand its columns over: pyarrow, Polars, pandas, DuckDB and others."""

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
"""Whatever can be loaded."""

Source = Callable[[Problems], Iterator[RawRows]]
"""Reads rows, once. What cannot be read goes to the problems."""

_Part = Callable[[Problems, int], Generator[RawRows, None, int]]
"""Reads a part of the input that begins at a position; returns the position behind it."""


def open_source(
    source: LoadSource, accepted: AcceptedSchema, type_name: str | None = None, *, lenient: bool = False
) -> Source:
    """The rows of whatever can be loaded.

    Args:
        source: files (a path, a directory, a pattern, or several of them), a mapping of type names to tables, lists of
            mappings or files, a table or frame whose type `type_name` says, envelopes as mappings, or a stream of
            NDJSON.
        accepted: the schema in force.
        type_name: the type of a file or table that does not say it itself.
        lenient: read as much as can be read, and count what was changed for that.

    Raises:
        InputError: there is no such file or type, or it is none of these things.
    """
    parts = list(_parts(source, accepted, type_name))

    def read(problems: Problems) -> Iterator[RawRows]:
        position = 1
        for part in parts:
            position = yield from part(problems, position)

    def read_leniently(problems: Problems) -> Iterator[RawRows]:
        problems.coerced = Coercions()
        return settle(read(problems), accepted, problems)

    return read_leniently if lenient else read


def _parts(source: LoadSource, accepted: AcceptedSchema, type_name: str | None) -> Iterator[_Part]:
    if isinstance(source, str | os.PathLike):
        yield from (_file(file, accepted, type_name) for file in row_files(Path(source)))
    elif isinstance(source, bytes | bytearray | memoryview):
        _no_type(type_name, "NDJSON")
        yield _ndjson(lambda: iter([bytes(source)]), accepted, "")
    elif isinstance(source, Mapping):
        _no_type(type_name, "a mapping of type names")
        for name, rows in source.items():
            yield from _of_type(name, rows, accepted)
    elif isinstance(source, ArrowStream):
        if type_name is None:
            raise InputError("a table does not say which type its rows have", hint="give type_name=")
        yield from _of_type(type_name, source, accepted)
    elif _is_stream(source):
        _no_type(type_name, "NDJSON")
        yield _ndjson(lambda: _chunks_of(source), accepted, _name_of(source))
    elif isinstance(source, Iterable):
        yield from _several(source, accepted, type_name)
    else:
        raise InputError(f"a {type(source).__name__} cannot be loaded", hint=_KINDS)


_KINDS = "give a file or several, a mapping of type names to tables, or a list of records"


def _is_stream(source: object) -> bool:
    return callable(getattr(source, "read", None))


def _no_type(type_name: str | None, what: str) -> None:
    if type_name is not None:
        raise InputError(f"{what} says the types itself: leave type_name out")


def _several(source: Iterable[Any], accepted: AcceptedSchema, type_name: str | None) -> Iterator[_Part]:
    """Paths and streams, or records: the first one says which."""
    items = iter(source)
    first = next(items, None)
    if first is None:
        return
    items = chain([first], items)
    if isinstance(first, str | os.PathLike) or _is_stream(first):
        for item in items:
            if not isinstance(item, str | os.PathLike) and not _is_stream(item):
                raise InputError(f"expected another path, found a {type(item).__name__}")
            yield from _parts(item, accepted, type_name if not _is_stream(item) else None)
    elif type_name is not None:
        yield from _of_type(type_name, items, accepted)
    else:
        yield lambda problems, position: read_envelopes(items, accepted, problems, position)


def _of_type(name: str, rows: TypeRows, accepted: AcceptedSchema) -> Iterator[_Part]:
    """The rows of one type."""
    kind, bare = resolve_type(accepted, name)
    if isinstance(rows, str | os.PathLike):
        yield from (_file(file, accepted, name) for file in row_files(Path(rows)))
        return
    if isinstance(rows, ArrowStream):
        batches = _stream(rows, bare)
        yield _mentioning(
            kind, bare, lambda problems, position: read_batches(batches, kind, bare, accepted, problems, bare, position)
        )
        return
    listed: object = rows
    if isinstance(listed, Mapping | bytes | bytearray) or not isinstance(listed, Iterable):
        found = type(listed).__name__
        raise InputError(f"the rows of {bare} are a {found}", hint="give a table, a list of mappings, or a file")
    yield _mentioning(
        kind, bare, lambda problems, position: read_rows(listed, kind, bare, accepted, problems, position)
    )


def _mentioning(kind: TypeKind, name: str, part: _Part) -> _Part:
    """A part that is about one type. It mentions the type even where it has no rows of it."""

    def read(problems: Problems, position: int) -> Generator[RawRows, None, int]:
        yield RawRows(kind, name, {}, {}, Origin.counted(0))
        return (yield from part(problems, position))

    return read


def _stream(rows: ArrowStream, name: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from pa.RecordBatchReader.from_stream(rows)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"the rows of {name} cannot be handed over: {error}") from error


def _file(file: RowFile, accepted: AcceptedSchema, type_name: str | None) -> _Part:
    name = file.path.name
    if file.format is Format.NDJSON:
        return _ndjson(file.chunks, accepted, name)
    kind, bare = resolve_type(accepted, type_name or file.stem)
    if file.format in (Format.CSV, Format.TSV):
        delimiter = "," if file.format is Format.CSV else "\t"
        return _mentioning(
            kind,
            bare,
            lambda problems, position: read_csv(
                file.chunks(), kind, bare, accepted, problems, name, position, delimiter
            ),
        )
    return _mentioning(
        kind,
        bare,
        lambda problems, position: read_batches(file.batches(), kind, bare, accepted, problems, name, position),
    )


def _ndjson(chunks: Callable[[], Iterator[bytes]], accepted: AcceptedSchema, name: str) -> _Part:
    return lambda problems, position: read_ndjson(chunks(), accepted, problems, name, position)


def _chunks_of(stream: Any) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):
        yield chunk.encode() if isinstance(chunk, str) else chunk


def _name_of(stream: object) -> str:
    name = getattr(stream, "name", "")
    return Path(name).name if isinstance(name, str) else ""


def resolve_type(accepted: AcceptedSchema, name: str) -> tuple[TypeKind, str]:
    """The type that a name means: a node type, an edge type, or either with its kind in front.

    That is written `edge:Likes`, or `edge.Likes` in the names of files.

    Raises:
        InputError: there is none.
    """
    kind, _, bare = name.replace(".", ":", 1).rpartition(":")
    nodes, edges = accepted.catalog.nodes, accepted.catalog.edges
    if bare in nodes and kind in ("", "node"):
        return TypeKind.NODE, bare
    if bare in edges and kind in ("", "edge"):
        return TypeKind.EDGE, bare
    raise InputError(f"there is no type '{name}'", hint=did_you_mean(bare, [*nodes, *edges]))
