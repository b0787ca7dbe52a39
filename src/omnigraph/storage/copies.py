"""Copying many files from one store to another: streamed, several at once, each whole or not at all."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.storage.objects import ObjectInfo, ObjectStore
from omnigraph.storage.objects.contract import PIECE

T = TypeVar("T")
R = TypeVar("R")

_WORKERS = 8
_LARGE_AT_ONCE = threading.Semaphore(2)
"""An upload of a large object has parts in memory: few at once."""


class FileStore(ObjectStore, Protocol):
    """A store that files of any size can be copied to and from: a directory or a prefix in a bucket."""

    def reading(self, path: str) -> Iterator[bytes]:
        """The content of a file, piece by piece."""

    def writing(self, path: str) -> AbstractContextManager[io.RawIOBase]:
        """Write a file, piece by piece. It is there when the block ends well."""


def copy_files(
    source: FileStore, target: FileStore, files: Sequence[ObjectInfo], copied: Callable[[ObjectInfo], None]
) -> None:
    """Copy files to the same paths below another root. Each appears when it is whole.

    Args:
        source: where they are.
        target: where they shall be.
        files: what to copy, with the sizes that they have.
        copied: is told of each one that is done, in any thread.

    Raises:
        ObjectNotFoundError: one is not there any more.
        StorageError: one could not be read or written, or has another size.
    """

    def copy(info: ObjectInfo) -> None:
        _copy(source, target, info)
        copied(info)

    in_parallel(copy, files)


def in_parallel(do: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Do something to each of many, several at once. The first failure ends it, as soon as what is begun is done."""
    with ThreadPoolExecutor(_WORKERS) as workers:
        futures = [workers.submit(do, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()


def _copy(source: FileStore, target: FileStore, info: ObjectInfo) -> None:
    if info.size <= PIECE:
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
            f"{size} bytes were read of a file that has {info.size}",
            kind=StorageErrorKind.PERMANENT,
            uri=str(store.uri),
            path=info.path,
            hint="it was changed from outside, or the store is broken; try again",
        )
