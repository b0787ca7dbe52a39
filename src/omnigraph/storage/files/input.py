"""Input files, in directories and buckets: listing and reading."""

# See docs/decisions/0111-inputs-in-s3-do-not-change.md

from __future__ import annotations

import io
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from fnmatch import fnmatchcase
from functools import lru_cache
from glob import glob, has_magic
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Protocol

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, ObjectChangedError, ObjectNotFoundError, cut
from omnigraph.storage.objects.contract import ObjectInfo
from omnigraph.storage.uri import GraphUri

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from omnigraph.storage.objects.s3 import S3ObjectStore

_S3 = "s3://"
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_FILE = "file://"
_AT_ONCE = 8 << 20
"""Bytes per request when an object is read from beginning to end."""


class InputFile(Protocol):
    """An input file that any process can read."""

    @property
    def name(self) -> str:
        """File name without directories."""

    @property
    def label(self) -> str:
        """The file in messages, as `label_of` returns it."""

    @property
    def directory(self) -> str:
        """Name of the directory without its parents."""

    @property
    def size(self) -> int:
        """Size in bytes."""

    @property
    def state(self) -> str:
        """Identifies the content of the file, without reading it. Changes when the file changes."""

    @property
    def remote(self) -> bool:
        """Whether each access is a network request."""

    @property
    def once(self) -> bool:
        """Whether the bytes can be read only once, from the start to the end: a pipe or a device."""

    def open(self) -> BinaryIO:
        """Open the file for random access."""

    def native(self) -> pa.NativeFile:
        """Open the file for Arrow."""

    def __str__(self) -> str: ...


class Tree(Protocol):
    """A file tree. Paths are in the user's form."""

    def file(self, path: str) -> InputFile | None:
        """The file at a path, if there is one."""

    def directory(self, path: str) -> Sequence[InputFile] | None:
        """The files in a directory, sorted by name; None if the directory does not exist."""

    def matches(self, pattern: str) -> Sequence[str]:
        """Paths of files and directories that match a pattern, sorted."""


def tree_of(path: str, options: Mapping[str, str] | None = None) -> tuple[Tree, str]:
    """The file tree of a path, and the path in it.

    Args:
        path: path of a file or directory, `file:///path`, or `s3://bucket/path`.
        options: options to reach a bucket; override the environment.

    Raises:
        InputError: it has no bucket, or is the address of something else.
    """
    if path.lower().startswith(_S3):
        bucket, _, key = path[len(_S3) :].partition("/")
        uri = GraphUri.parse(f"{_S3}{bucket}")
        return _Bucket(uri.authority, tuple(sorted((options or {}).items()))), key.strip("/")
    if path.lower().startswith(_FILE):
        return _Directories(), GraphUri.parse(path).path
    if _ADDRESS.match(path):
        raise InputError(f"{cut(path)} cannot be read", hint="give a local path or s3://bucket/key; download it first")
    return _Directories(), path


# Local files


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A local file. Other machines can read it if they share the file system."""

    path: Path
    label: str = field(compare=False)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def directory(self) -> str:
        return self.path.parent.name

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    @property
    def state(self) -> str:
        return str(self.path.stat().st_mtime_ns)

    @property
    def remote(self) -> bool:
        return False

    @property
    def once(self) -> bool:
        return not self.path.is_file()

    def open(self) -> BinaryIO:
        return self.path.open("rb")

    def native(self) -> pa.NativeFile:
        return pa.memory_map(str(self.path))

    def __str__(self) -> str:
        return str(self.path)


class StreamFile:
    """The bytes of an open file or a pipe as an input file. Random access reads them from a temporary copy.

    Args:
        source: opens the file. It is called once. After random access the file is closed.
        name: its name.
        label: its name in messages, if that is another one.
    """

    directory = ""
    state = ""
    remote = False
    once = True

    def __init__(
        self, source: Callable[[], AbstractContextManager[IO[bytes] | IO[str]]], name: str, label: str = ""
    ) -> None:
        self.name = name
        self.label = label or name
        self._source = source
        self._copy: IO[bytes] | None = None

    @property
    def size(self) -> int:
        return os.fstat(self._copied().fileno()).st_size

    def open(self) -> BinaryIO:
        return io.BufferedReader(_Bytes(self._source().__enter__()), _AT_ONCE)

    def native(self) -> pa.NativeFile:
        return pa.memory_map(f"/dev/fd/{self._copied().fileno()}")

    def _copied(self) -> IO[bytes]:
        if self._copy is None:
            try:
                copy = tempfile.TemporaryFile(prefix="omnigraph-")  # noqa: SIM115
                with self._source() as source:
                    shutil.copyfileobj(_Bytes(source), copy, _AT_ONCE)
                copy.flush()
            except OSError as error:
                hint = "set TMPDIR to a directory with more space, or give a file"
                message = f"{self.label} cannot be copied to a temporary file: {error.strerror}"
                raise InputError(message, hint=hint) from None
            weakref.finalize(self, copy.close)
            self._copy = copy
        return self._copy

    def __str__(self) -> str:
        return self.name


class _Bytes(io.RawIOBase):
    """The bytes of an open file. Closing it leaves the file open."""

    def __init__(self, source: IO[bytes] | IO[str]) -> None:
        self._source = source
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        room = memoryview(buffer).cast("B")
        if not self._rest:
            data = self._source.read(len(room))
            self._rest = data.encode() if isinstance(data, str) else data
        count = min(len(room), len(self._rest))
        room[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def label_of(path: str | os.PathLike[str]) -> str:
    """A path in messages: a relative path as the user wrote it, else the name of the file."""
    text = os.fspath(path)
    return os.path.basename(text) if os.path.isabs(text) or _ADDRESS.match(text) else text


def _local(path: Path) -> LocalFile:
    """A file with an absolute path. A relative path would fail in Spark tasks, which have another working directory."""
    return LocalFile(Path(os.path.join(os.getcwd(), path)), label_of(path))


class _Directories:
    def file(self, path: str) -> InputFile | None:
        place = Path(path)
        try:
            return _local(place) if place.exists() and not place.is_dir() else None
        except OSError as error:
            hint = "a text is a path; give the content of a file as bytes"
            raise InputError(f"{cut(path)} cannot be read: {error.strerror}", hint=hint) from None

    def directory(self, path: str) -> Sequence[InputFile] | None:
        place = Path(path)
        if not place.is_dir():
            return None
        try:
            return [_local(file) for file in sorted(place.iterdir()) if file.is_file()]
        except OSError as error:
            raise InputError(f"{cut(path)} cannot be read: {error.strerror}") from None

    def matches(self, pattern: str) -> Sequence[str]:
        return sorted(glob(pattern, recursive=True))


# Files in S3


@lru_cache(8)
def _bucket(name: str, options: tuple[tuple[str, str], ...]) -> S3ObjectStore:
    from omnigraph.storage.objects.s3 import S3ObjectStore  # imported here, so that local files load no S3 client

    return S3ObjectStore(GraphUri.parse(f"{_S3}{name}", dict(options)))


@dataclass(frozen=True, slots=True)
class S3File:
    """An object at a known state. A later read returns the same content, or fails because the object has changed."""

    bucket: str
    key: str
    size: int
    etag: str | None
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def label(self) -> str:
        return self.name

    @property
    def directory(self) -> str:
        return self.key.rpartition("/")[0].rpartition("/")[2]

    @property
    def state(self) -> str:
        return self.etag or ""

    @property
    def remote(self) -> bool:
        return True

    @property
    def once(self) -> bool:
        return False

    def open(self) -> BinaryIO:
        return io.BufferedReader(_Ranges(self), _AT_ONCE)

    def native(self) -> pa.NativeFile:
        return pa.PythonFile(_Ranges(self), mode="r")

    def read(self, start: int, end: int) -> bytes:
        """Read a byte range.

        Raises:
            InputError: the object has changed, or was removed.
        """
        try:
            return _bucket(self.bucket, self.options).read_range(self.key, start, end, self.etag)
        except (ObjectChangedError, ObjectNotFoundError):
            raise InputError(
                f"{self} has changed since the load began", hint="nothing was written; try again"
            ) from None

    def __str__(self) -> str:
        return f"{_S3}{self.bucket}/{self.key}"


class _Ranges(io.RawIOBase):
    """Random access to an object. Each read is a request."""

    def __init__(self, file: S3File) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        self._at = max(0, begin + offset)
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        room = memoryview(buffer).cast("B")
        data = self.read(len(room))
        room[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        end = self._file.size if size is None or size < 0 else min(self._file.size, self._at + size)
        if end <= self._at:
            return b""
        data = self._file.read(self._at, end)
        self._at += len(data)
        return data


@dataclass(frozen=True, slots=True)
class _Bucket:
    name: str
    options: tuple[tuple[str, str], ...] = field(repr=False)

    def file(self, path: str) -> InputFile | None:
        try:
            return self._file(_bucket(self.name, self.options).head(path)) if path else None
        except ObjectNotFoundError:
            return None

    def directory(self, path: str) -> Sequence[InputFile] | None:
        depth = path.count("/") + 1 if path else 0
        found = _bucket(self.name, self.options).list(path)
        files = [self._file(info) for info in found if info.path.count("/") == depth]
        return files if found else None

    def matches(self, pattern: str) -> Sequence[str]:
        names = pattern.split("/")
        fixed = next(i for i, name in enumerate(names) if has_magic(name))
        found: dict[str, None] = {}
        for info in _bucket(self.name, self.options).list("/".join(names[:fixed])):
            parts = info.path.split("/")
            found |= {"/".join(parts[:i]): None for i in range(fixed + 1, len(parts) + 1)}
        return sorted(path for path in found if _match(path.split("/"), names))

    def _file(self, info: ObjectInfo) -> S3File:
        return S3File(self.name, info.path, info.size, info.etag, self.options)


def _match(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Match a path, segment by segment. As in a directory, `*` does not match names that begin with a dot."""
    if not pattern:
        return not names
    if pattern[0] == "**":
        deeper = bool(names) and not names[0].startswith(".") and _match(names[1:], pattern)
        return deeper or _match(names, pattern[1:])
    if not names or (names[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatchcase(names[0], pattern[0]) and _match(names[1:], pattern[1:])


def text_of(path: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> bytes:
    """Read a small file.

    Raises:
        InputError: it does not exist, or cannot be read.
    """
    tree, place = tree_of(os.fspath(path), options)
    file = tree.file(place)
    if file is None:
        raise InputError(f"there is no file {cut(os.fspath(path))}")
    try:
        with file.open() as stream:
            return stream.read()
    except OSError as error:
        raise InputError(f"{cut(os.fspath(path))} cannot be read: {error.strerror}") from None
