"""What every store of control objects promises, whatever it lies on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from omnigraph.errors import InputError
from omnigraph.storage.uri import GraphUri

_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
PIECE = 8 << 20
"""How many bytes of a large object are in memory at once."""
TOMBSTONE = b"This object is deleted. OmniGraph may write it again.\n"
"""What stands for a deleted object in stores that have no conditional delete."""
INTERNAL = ".og-"
"""How the names of files begin that a store keeps for itself."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it was at one moment.

    Attributes:
        data: all of it.
        etag: names this state of the object, for `replace` and `delete_if`.
    """

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing says about an object.

    Attributes:
        etag: names this state of the object, where the store says that beside the rest.
    """

    path: str
    size: int
    modified: datetime
    etag: str | None = None


ObjectList = list[ObjectInfo]
"""A class with a method called `list` cannot write `list[...]`."""


class ObjectStore(Protocol):
    """Small objects under one root, read and written whole.

    Every method is atomic, safe to call from many threads and processes, and reports failures as `StorageError`.
    Paths are relative to the root, with `/` between names. A write that returned is seen by every later read.

    An etag tells apart any two different contents. Somebody who has to notice that an object was changed and changed
    back puts something unique into the data, as a lease does with its fencing number: on S3, where an etag is a hash
    of the content, nothing else would tell.

    An object and a directory of the same name (`a` and `a/b`) cannot both exist in every store, so do not make them.
    """

    @property
    def uri(self) -> GraphUri:
        """The address of the root."""

    def get(self, path: str) -> StoredObject:
        """Read an object.

        Raises:
            ObjectNotFoundError: there is none.
        """

    def head(self, path: str) -> ObjectInfo:
        """Size and time of an object.

        Raises:
            ObjectNotFoundError: there is none.
        """

    def exists(self, path: str) -> bool:
        """Whether there is an object of this name; a directory is none."""

    def put(self, path: str, data: bytes) -> str:
        """Write an object, replacing what is there; a reader sees the old one or the new one. Returns its etag."""

    def create(self, path: str, data: bytes) -> str:
        """Write an object that does not exist; of several callers exactly one succeeds. Returns its etag.

        Raises:
            ObjectExistsError: it exists.
            StorageError: with kind `Unknown` when an answer was lost and nobody can say who won.
        """

    def replace(self, path: str, data: bytes, etag: str) -> str:
        """Write an object if it still is what the caller read. Returns its new etag.

        Raises:
            ObjectChangedError: it was changed or deleted.
            StorageError: with kind `Unknown` when an answer was lost and nobody can say who won.
        """

    def delete(self, path: str) -> None:
        """Remove an object; it is no error if there is none."""

    def delete_if(self, path: str, etag: str) -> None:
        """Remove an object if it still is what the caller read.

        Raises:
            ObjectChangedError: it was changed or deleted.
            StorageError: with kind `Unknown` when an answer was lost and nobody can say who won.
        """

    def list(self, prefix: str = "") -> ObjectList:
        """Everything below a directory, at any depth, sorted by path; the empty prefix is the root."""

    def delete_prefix(self, prefix: str) -> None:
        """Remove everything below a directory, and the directory. What is written meanwhile may stay."""

    def delete_files(self, paths: Iterable[str]) -> None:
        """Remove files that somebody else wrote below the root, and that nobody replaces: many at once, in no order.

        It is no error if one is not there.
        """

    def rewrite_file(self, path: str, data: bytes, etag: str) -> None:
        """Replace a file that somebody else wrote below the root, if it still is what the caller read.

        A reader sees the old one or the new one. On a disk the file keeps its time.

        Raises:
            ObjectChangedError: it was changed or deleted.
        """

    def sync_files(self, paths: Iterable[str], *, levels: int | None = None) -> None:
        """Make files durable that somebody else wrote below the root: the files, then the directories above them.

        A directory stands for all files in it. Does nothing where a finished write is durable by itself.
        """


def normal_path(path: str, *, root: bool = False) -> str:
    """The one spelling of a path below a root.

    Args:
        path: names with `/` between them.
        root: whether the empty path, which is the root itself, is allowed.

    Raises:
        InputError: the path leads outside, or no object can be called that.
    """
    names = [name for name in path.split("/") if name not in ("", ".")]
    if path.startswith("/") or ".." in names:
        raise InputError(f"'{path}' leads out of the graph", hint="paths are relative to the root, without '..'")
    if _UNUSABLE.search(path) or any(name.startswith(INTERNAL) for name in names):
        raise InputError(
            f"{path!r} cannot be the name of an object", hint=f"no control characters, no name in {INTERNAL}*"
        )
    if not names and not root:
        raise InputError("the path of an object is empty", hint="name an object or a directory below the root")
    return "/".join(names)
