"""Where the parts of a load lie between its steps: beside the graph, where every executor can reach them.

What is put aside belongs to one load, and goes with it. A load that was killed leaves its directory behind; nothing
points there, and cleanup removes it when it is old.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from ulid_transform import ulid_now

from omnigraph.commit.staging_directories import DIRECTORY
from omnigraph.storage.objects import ObjectStore, open_store
from omnigraph.storage.tables import TableStorage
from omnigraph.storage.uri import GraphUri, Scheme

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@lru_cache(8)
def objects_at(uri: GraphUri, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    return open_store(uri.with_options(dict(options)), fsync=False)


@lru_cache(8)
def tables_at(uri: GraphUri, options: tuple[tuple[str, str], ...]) -> TableStorage:
    address = uri.with_options(dict(options))
    return TableStorage(address.lance_uri(), address.lance_storage_options)


@dataclass(frozen=True, slots=True)
class Place:
    """The graph as a task reaches it.

    Attributes:
        uri: its address.
        options: how to reach it. May hold credentials, so they are never shown.
        load: the load that is going on.
    """

    uri: GraphUri
    options: tuple[tuple[str, str], ...] = field(repr=False)
    load: str

    @classmethod
    def at(cls, uri: GraphUri) -> Place:
        """The place of a new load."""
        return cls(uri, tuple(sorted(uri.storage_options.items())), ulid_now().lower())

    @property
    def objects(self) -> ObjectStore:
        return objects_at(self.uri, self.options)

    @property
    def tables(self) -> TableStorage:
        return tables_at(self.uri, self.options)

    def path(self, name: str, ending: str) -> str:
        """A path that nobody has used."""
        return f"{DIRECTORY}/{self.load}/{name}-{ulid_now().lower()}.{ending}"

    def put(self, name: str, rows: pa.Table) -> str:
        """Put rows aside. Returns what `read` takes.

        Several attempts at one task may do so at once: each gives its own name, and only that of the one that counts
        is ever read.
        """
        path = self.path(name, "arrow")
        with self._sink(path) as sink, pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as writer:
            writer.write_table(rows)
        return path

    def put_parts(self, name: str, schema: pa.Schema, parts: Iterable[pa.Table]) -> str:
        """Put rows aside in parts. Returns what `part` takes."""
        path = self.path(name, "parts")
        with self._sink(path) as sink, pa.ipc.new_file(sink, schema) as writer:
            for part in parts:
                columns = [column.combine_chunks() for column in part.columns]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        return path

    @contextmanager
    def _sink(self, path: str) -> Iterator[pa.NativeFile]:
        """Where to write a file to. It may be seen before it is complete: nobody knows its name until then."""
        if self.uri.scheme is Scheme.LOCAL:
            file = Path(self.uri.path) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with pa.OSFile(str(file), "wb") as sink:
                yield sink
            return
        buffer = pa.BufferOutputStream()
        yield buffer
        self.objects.put(path, buffer.getvalue().to_pybytes())

    def part(self, path: str, number: int) -> pa.Table:
        """One of the parts in which rows were put aside. Only that is read, and only where files can be mapped."""
        with pa.memory_map(str(Path(self.uri.path) / path)) as file:
            return pa.Table.from_batches([pa.ipc.open_file(file).get_batch(number)])

    @property
    def has_parts(self) -> bool:
        """Whether `part` can be used."""
        return self.uri.scheme is Scheme.LOCAL

    def batches(self, path: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """What was put aside."""
        with pa.ipc.open_stream(self.objects.get(path).data) as reader:
            for batch in reader:
                yield batch if columns is None else batch.select(list(columns))

    def table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """What was put aside, as one table."""
        with pa.ipc.open_stream(self.objects.get(path).data) as reader:
            rows = reader.read_all()
        return rows if columns is None else rows.select(list(columns))

    def clear(self) -> None:
        """Remove everything that the load put aside."""
        if self.uri.scheme is Scheme.LOCAL:
            directory = Path(self.uri.path) / DIRECTORY
            shutil.rmtree(directory / self.load, ignore_errors=True)
            with suppress(OSError):  # another load may be at work there
                directory.rmdir()
            return
        for info in self.objects.list(f"{DIRECTORY}/{self.load}/"):
            self.objects.delete(info.path)
