"""Where rows come from: files by their ending, and tables that are in memory already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from omnigraph.errors import InputError
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.write.ndjson import read_ndjson
from omnigraph.write.problems import Problems
from omnigraph.write.rows import Origin, RawRows

_CHUNK = 4 * 1024 * 1024
_NDJSON = (".ndjson", ".jsonl", ".json")
_TABLES = (".parquet", ".arrow", ".feather")
FORMATS = (*_NDJSON, *_TABLES)


class ArrowStream(Protocol):
    """A table of any library that can hand its columns over: pyarrow, Polars, pandas, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Source = Callable[[Problems], Iterator[RawRows]]


def open_files(path: Path, accepted: AcceptedSchema, type_name: str | None = None) -> Source:
    """The rows of a file, or of all files in a directory.

    NDJSON lines say their type themselves. A Parquet or Arrow file holds one type, which its name says, unless
    `type_name` does.

    Raises:
        InputError: there is no such file, or its ending or name means nothing.
    """
    if not path.exists():
        raise InputError(f"there is no {path}")
    files = sorted(p for p in path.iterdir() if p.suffix in FORMATS) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} holds no file that can be loaded", hint=f"the endings are {', '.join(FORMATS)}")
    readers = [_reader(file, accepted, type_name) for file in files]

    def rows(problems: Problems) -> Iterator[RawRows]:
        for reader in readers:
            yield from reader(problems)

    return rows


def _reader(file: Path, accepted: AcceptedSchema, type_name: str | None) -> Source:
    if file.suffix in _NDJSON:
        return lambda problems: read_ndjson(_chunks(file), accepted, problems, file.name)
    if file.suffix not in _TABLES:
        raise InputError(f"{file} cannot be loaded", hint=f"the endings are {', '.join(FORMATS)}")
    kind, name = resolve_type(accepted, type_name or file.stem)
    return lambda _: _tables(kind, name, _batches(file), file.name)


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    try:
        if file.suffix == ".parquet":
            yield from pa.parquet.ParquetFile(file).iter_batches()
        else:
            with pa.ipc.open_file(file) as reader:
                yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error


def open_tables(tables: Mapping[str, ArrowStream], accepted: AcceptedSchema) -> Source:
    """The rows of tables that are in memory, by type name.

    Raises:
        InputError: there is no such type.
    """
    resolved = [(*resolve_type(accepted, name), table) for name, table in tables.items()]

    def rows(problems: Problems) -> Iterator[RawRows]:
        for kind, name, table in resolved:
            yield from _tables(kind, name, pa.RecordBatchReader.from_stream(table), "")

    return rows


def _tables(kind: TypeKind, name: str, batches: Iterable[pa.RecordBatch], file: str) -> Iterator[RawRows]:
    first = 1
    prefix = f"{file or name}, row "
    for batch in batches:
        origin = Origin.counted(batch.num_rows, lambda record: f"{prefix}{record}", first)
        yield RawRows(kind, name, dict(zip(batch.schema.names, batch.columns, strict=True)), {}, origin)
        first += batch.num_rows


def resolve_type(accepted: AcceptedSchema, name: str) -> tuple[TypeKind, str]:
    """The type that a name means: a node type, an edge type, or either with its kind in front (`edge:Likes`).

    Raises:
        InputError: there is none.
    """
    kind, _, bare = name.rpartition(":")
    nodes, edges = accepted.catalog.nodes, accepted.catalog.edges
    if bare in nodes and kind in ("", "node"):
        return TypeKind.NODE, bare
    if bare in edges and kind in ("", "edge"):
        return TypeKind.EDGE, bare
    raise InputError(f"there is no type '{name}'", hint=did_you_mean(bare, [*nodes, *edges]))
