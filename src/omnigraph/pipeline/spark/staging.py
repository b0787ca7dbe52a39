"""Staging directories: temporary files of a Spark job, stored beside the graph so that all executors reach them.

A staging directory belongs to one job and is removed at the end of the job. If the job is killed, cleanup removes the
directory later.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from ulid_transform import ulid_now

from omnigraph.commit.staging_directories import DIRECTORY
from omnigraph.dataclass import dataclass
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
class Staging:
    """The staging directory of one job. Also gives tasks access to the tables and objects of the graph.

    Attributes:
        uri: the address of the graph.
        options: the storage options. May hold credentials, so `repr` leaves them out.
        job_id: the id of the job, and the name of its directory.
    """

    uri: GraphUri
    options: tuple[tuple[str, str], ...] = field(repr=False)
    job_id: str

    @classmethod
    def new(cls, uri: GraphUri) -> Staging:
        """A staging directory for a new job."""
        return cls(uri, tuple(sorted(uri.storage_options.items())), ulid_now().lower())

    @property
    def objects(self) -> ObjectStore:
        return objects_at(self.uri, self.options)

    @property
    def tables(self) -> TableStorage:
        return tables_at(self.uri, self.options)

    def path(self, name: str, ending: str) -> str:
        """A new, unused path."""
        return f"{DIRECTORY}/{self.job_id}/{name}-{ulid_now().lower()}.{ending}"

    def put(self, name: str, rows: pa.Table) -> str:
        """Stage rows. Returns the path to pass to `table` or `batches`.

        Several attempts of a task may run at once. Each writes its own file, and only the file of the successful
        attempt is read.
        """
        path = self.path(name, "arrow")
        with self._sink(path) as sink, pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as writer:
            writer.write_table(rows)
        return path

    def put_parts(self, name: str, schema: pa.Schema, parts: Iterable[pa.Table]) -> str:
        """Stage rows in partitions. Returns the path to pass to `part`."""
        path = self.path(name, "parts")
        with self._sink(path) as sink, pa.ipc.new_file(sink, schema) as writer:
            for part in parts:
                columns = [column.combine_chunks() for column in part.columns]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        return path

    @contextmanager
    def _sink(self, path: str) -> Iterator[pa.NativeFile]:
        """An output stream for a file. Readers get the path only after the file is complete."""
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
        """One staged partition. Reads only this partition, by memory mapping, so it works only for local files."""
        with pa.memory_map(str(Path(self.uri.path) / path)) as file:
            return pa.Table.from_batches([pa.ipc.open_file(file).get_batch(number)])

    @property
    def has_parts(self) -> bool:
        """Whether `part` can be used. It can be used only for local graphs."""
        return self.uri.scheme is Scheme.LOCAL

    def batches(self, path: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The staged rows, in batches."""
        with pa.ipc.open_stream(self.objects.get(path).data) as reader:
            for batch in reader:
                yield batch if columns is None else batch.select(list(columns))

    def table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The staged rows, as one table."""
        with pa.ipc.open_stream(self.objects.get(path).data) as reader:
            rows = reader.read_all()
        return rows if columns is None else rows.select(list(columns))

    def clear(self) -> None:
        """Remove all staged files."""
        if self.uri.scheme is Scheme.LOCAL:
            directory = Path(self.uri.path) / DIRECTORY
            shutil.rmtree(directory / self.job_id, ignore_errors=True)
            with suppress(OSError):  # this fails if another job uses the directory
                directory.rmdir()
            return
        for info in self.objects.list(f"{DIRECTORY}/{self.job_id}/"):
            self.objects.delete(info.path)
