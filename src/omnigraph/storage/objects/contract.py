"""The contract of every object store."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from typing import Protocol

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.storage.uri import GraphUri

_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
CHUNK_BYTES = 8 << 20
"""Bytes of a large object that are in memory at once."""
TOMBSTONE = b"This object is deleted. OmniGraph may write it again.\n"
"""Content of a tombstone, which replaces a deleted object in stores without a conditional delete."""
INTERNAL = ".og-"
"""Prefix of file names that are reserved for the store."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object at one moment.

    Attributes:
        data: its whole content.
        etag: identifies this state of the object, for `replace` and `delete_if`.
    """

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """A listed object.

    Attributes:
        etag: identifies this state of the object, if the listing has it.
    """

    path: str
    size: int
    modified: datetime
    etag: str | None = None


ObjectList = list[ObjectInfo]
"""Alias, because a class with a method `list` cannot use `list[...]`."""


class ObjectStore(Protocol):
    """Small objects below one root, read and written as a whole.

    Every method is atomic and safe to call from many threads and processes, and reports failures as `StorageError`.
    Paths are relative to the root, with `/` between names. After a write has returned, every read sees it.

    An etag distinguishes any two different contents. To detect that an object was changed and changed back, put
    something unique into the data, as a lease does with its fencing number. On S3 an etag is a hash of the content.

    An object and a directory with the same name (`a` and `a/b`) cannot both exist in every store, so do not create
    them.
    """

    @property
    def uri(self) -> GraphUri:
        """Address of the root."""

    def get(self, path: str) -> StoredObject:
        """Read an object.

        Raises:
            ObjectNotFoundError: it does not exist.
        """

    def head(self, path: str) -> ObjectInfo:
        """Size and time of an object.

        Raises:
            ObjectNotFoundError: it does not exist.
        """

    def exists(self, path: str) -> bool:
        """Whether an object exists. A directory is not an object."""

    def put(self, path: str, data: bytes) -> str:
        """Write an object, and replace an existing one. Readers see the old or the new one. Returns its etag."""

    def create(self, path: str, data: bytes) -> str:
        """Create an object. Exactly one of several concurrent callers succeeds. Returns its etag.

        Raises:
            ObjectExistsError: it exists.
            StorageError: with kind `Unknown`, if a response was lost and the outcome is unknown.
        """

    def replace(self, path: str, data: bytes, etag: str) -> str:
        """Replace an object if its etag is unchanged. Returns its new etag.

        Raises:
            ObjectChangedError: it was changed or deleted.
            StorageError: with kind `Unknown`, if a response was lost and the outcome is unknown.
        """

    def delete(self, path: str) -> None:
        """Remove an object, if it exists."""

    def delete_if(self, path: str, etag: str) -> None:
        """Remove an object if its etag is unchanged.

        Raises:
            ObjectChangedError: it was changed or deleted.
            StorageError: with kind `Unknown`, if a response was lost and the outcome is unknown.
        """

    def list(self, prefix: str = "") -> ObjectList:
        """All objects below a directory, at any depth, sorted by path. The empty prefix is the root."""

    def delete_prefix(self, prefix: str) -> None:
        """Remove a directory with everything in it. Objects that are written at the same time may stay."""

    def delete_files(self, paths: Iterable[str]) -> None:
        """Remove many files that Lance wrote below the root, in no order. Their paths are never written again.

        Missing files are ignored.
        """

    def rewrite_file(self, path: str, data: bytes, etag: str) -> None:
        """Replace a file that Lance wrote below the root, if its etag is unchanged.

        Readers see the old or the new one. On a disk, the file keeps its modification time.

        Raises:
            ObjectChangedError: it was changed or deleted.
        """

    def sync_files(self, paths: Iterable[str], *, levels: int | None = None) -> None:
        """Flush files that Lance wrote below the root, and then the directories above them.

        A directory stands for all files in it. Does nothing if the store is durable by itself.
        """


@lru_cache(1024)
def normal_path(path: str, *, root: bool = False) -> str:
    """Normalise a path below a root.

    Args:
        path: names with `/` between them.
        root: whether the empty path, which is the root itself, is allowed.

    Raises:
        InputError: the path leads outside the root, or a name is invalid.
    """
    names = [name for name in path.split("/") if name not in ("", ".")]
    if path.startswith("/") or ".." in names:
        raise InputError(f"'{path}' is outside of the graph", hint="paths are relative to the root, without '..'")
    if _UNUSABLE.search(path) or any(name.startswith(INTERNAL) for name in names):
        raise InputError(
            f"{path!r} cannot be the name of an object",
            hint=f"control characters and names that begin with {INTERNAL} are not allowed",
        )
    if not names and not root:
        raise InputError("the path of an object is empty", hint="name an object or a directory below the root")
    return "/".join(names)
