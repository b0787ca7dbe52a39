"""Output objects and directories in S3.

An object appears when it is complete. The objects of a directory appear one by one. So the first object is a marker for
an unfinished directory, and the last step removes the marker. Readers ignore a directory with the marker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING

from omnigraph.errors import InputError, ObjectExistsError, OmnigraphError, cut
from omnigraph.storage.uri import GraphUri, Scheme

if TYPE_CHECKING:
    from omnigraph.storage.objects.s3 import ObjectWriter, S3ObjectStore

UNFINISHED = "_unfinished"
"""Name of the marker. `load` skips files whose names begin with `_`, but refuses a directory with this marker."""
_WHY = (
    b"An export is writing this directory, or was interrupted. Do not use the files: remove them if no export runs.\n"
)


def output_in_s3(target: str, options: Mapping[str, str]) -> S3Output | None:
    """The S3 location of a target; None if it is a local path.

    Args:
        target: a path, or `s3://bucket/path`.
        options: options to reach a bucket; override the environment.

    Raises:
        InputError: it is an address of another kind, or has no bucket.
    """
    if target.lower().startswith("s3://"):
        return S3Output(GraphUri.parse(target, options))
    if "://" in target:
        raise InputError(
            f"cannot write {cut(target)}: an export is written to local files or to S3",
            hint="give a path, or s3://bucket/path",
        )
    return None


class S3Output:
    """An output location in a bucket, for an object or a directory."""

    def __init__(self, uri: GraphUri) -> None:
        from omnigraph.storage.objects.s3 import S3ObjectStore  # imported here, so that local exports load no S3 client

        assert uri.scheme is Scheme.S3
        self._uri = uri
        root = GraphUri.parse(f"s3://{uri.authority}", uri.storage_options)
        self._store: S3ObjectStore = S3ObjectStore(root)

    def __str__(self) -> str:
        return str(self._uri)

    def check_file(self) -> None:
        """Check that an object with this name can be created.

        Raises:
            InputError: it is a directory.
            StorageError: the bucket cannot be reached.
        """
        if not self._uri.path or self._store.list(self._uri.path):
            raise InputError(f"cannot write {self}: it is a directory", hint="add the name of a file")

    def check_directory(self) -> None:
        """Check that the name does not exist.

        Raises:
            InputError: it exists.
            StorageError: the bucket cannot be reached.
        """
        if self._store.list(self._uri.path) or (self._uri.path and self._store.exists(self._uri.path)):
            self._refuse()

    def file(self) -> AbstractContextManager[ObjectWriter]:
        """Write the object. It appears when the block ends without an error.

        Raises:
            InputError: it is a directory.
            StorageError: it cannot be written.
        """
        self.check_file()
        return self._store.writing(self._uri.path)

    @contextmanager
    def directory(self, inside: Sequence[str] = ()) -> Iterator[S3Directory]:
        """Write a directory. It has a marker until the block ends without an error. After an error, it is emptied.

        Args:
            inside: subdirectories. They get markers, too, because a reader may read only one of them.

        Raises:
            InputError: the name exists, or another process is writing it.
            StorageError: it cannot be written.
        """
        self.check_directory()
        marks = [self._path(UNFINISHED), *(self._path(f"{name}/{UNFINISHED}") for name in inside)]
        try:
            self._store.create(marks[0], _WHY)  # only one of several concurrent writers succeeds
        except ObjectExistsError:
            self._refuse()
        made = S3Directory(self._store, self._uri.path)
        try:
            if len(self._store.list(self._uri.path)) > 1:  # another writer has just finished
                self._refuse()
            for mark in marks[1:]:
                self._store.put(mark, _WHY)
            yield made
            self._store.delete_files(marks[1:])
            self._store.delete(marks[0])
        except BaseException:
            # If a file cannot be removed, the marker stays. The caller gets the first error.
            with suppress(OmnigraphError):
                self._store.delete_files(made.written)
                self._store.delete_files(marks[1:])
                self._store.delete(marks[0])
            raise

    def _path(self, name: str) -> str:
        return self._uri.key(name)

    def _refuse(self) -> None:
        raise InputError(
            f"{self} exists and is not an empty directory",
            hint="choose a new directory: load reads all files of a directory together",
        )


class S3Directory:
    """A directory that is being written.

    Attributes:
        written: paths in the bucket of all files whose write has begun.
    """

    def __init__(self, store: S3ObjectStore, path: str) -> None:
        self.written: list[str] = []
        self._store = store
        self._path = path

    def file(self, name: str) -> AbstractContextManager[ObjectWriter]:
        """Write a file in it. The name may have directories."""
        path = f"{self._path}/{name}" if self._path else name
        self.written.append(path)
        return self._store.writing(path)
