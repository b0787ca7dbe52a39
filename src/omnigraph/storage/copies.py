"""Copy many files between stores: streamed and in parallel. Each file is copied completely or not at all."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.storage.objects import ObjectInfo, ObjectStore
from omnigraph.storage.objects.contract import CHUNK_BYTES
from omnigraph.worker_pool import WorkerPool

T = TypeVar("T")
R = TypeVar("R")

_WORKERS = 8
_LARGE_AT_ONCE = threading.Semaphore(2)
"""An upload keeps parts of a large object in memory, so few run at once."""


class FileStore(ObjectStore, Protocol):
    """A store to copy files of any size to and from: a directory, or a prefix in a bucket."""

    def reading(self, path: str) -> Iterator[bytes]:
        """Read a file in chunks."""

    def writing(self, path: str) -> AbstractContextManager[io.RawIOBase]:
        """Write a file in chunks. It appears when the block ends without an error."""


def copy_files(
    source: FileStore, target: FileStore, files: Sequence[ObjectInfo], copied: Callable[[ObjectInfo], None]
) -> None:
    """Copy files to the same paths below another root. Each file appears when it is complete.

    Args:
        source: the source store.
        target: the target store.
        files: the files to copy, with their sizes.
        copied: called for each copied file, in any thread.

    Raises:
        ObjectNotFoundError: a file does not exist any more.
        StorageError: a file could not be read or written, or has another size.
    """

    def copy(info: ObjectInfo) -> None:
        _copy(source, target, info)
        copied(info)

    in_parallel(copy, files)


def in_parallel(do: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Call a function for each item, in parallel. Stops at the first failure, after running calls are done."""
    with WorkerPool(_WORKERS) as workers:
        futures = [workers.submit(do, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()


def _copy(source: FileStore, target: FileStore, info: ObjectInfo) -> None:
    if info.size <= CHUNK_BYTES:
        data = b"".join(source.reading(info.path))
        _check(source, info, len(data))
        with target.writing(info.path) as file:
            _write(file, data)
        return
    with _LARGE_AT_ONCE, target.writing(info.path) as file:
        size = 0
        for piece in source.reading(info.path):
            _write(file, piece)
            size += len(piece)
        _check(source, info, size)


def _write(file: io.RawIOBase, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def _check(store: FileStore, info: ObjectInfo, size: int) -> None:
    if size != info.size:
        raise StorageError(
            f"{size} bytes were read, but the file has {info.size}",
            kind=StorageErrorKind.PERMANENT,
            uri=str(store.uri),
            path=info.path,
            hint="another program changed it, or the store is faulty; try again",
        )
