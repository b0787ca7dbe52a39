"""Room on a disk: files that nobody needs, and a reserve for the day when the disk is full.

Cleanup is needed most when nothing can be written any more, and has to write a lease and a list before it may remove
anything. So a local graph keeps a file of which nothing is ever read. Cleanup gives it up when it meets a full disk,
and makes it again when it is done.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from omnigraph.errors import OmnigraphError
from omnigraph.storage.objects.contract import INTERNAL, ObjectStore
from omnigraph.storage.uri import Scheme

RESERVE = "__cleanup/reserve"
RESERVE_BYTES = 512 * 1024
_STALE_SECONDS = 3600
_FULL = ("no space left on device", "disk quota exceeded", "os error 28", "os error 122")


def is_full(error: BaseException | None) -> bool:
    """Whether something failed because the disk is full."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if any(word in str(error).lower() for word in _FULL):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def unless_full() -> Iterator[None]:
    """Do without something if the disk is full. So a graph can be opened to clean it up; every write tries again."""
    try:
        yield
    except OmnigraphError as error:
        if not is_full(error):
            raise


def remove_temporary(objects: ObjectStore) -> int:
    """Remove temporary files anywhere below the root, of writers that were killed an hour ago or earlier.

    Only a local store has them. Returns how many there were.
    """
    if objects.uri.scheme is not Scheme.LOCAL:
        return 0
    stale = time.time() - _STALE_SECONDS
    removed = 0
    for directory, _, names in os.walk(objects.uri.path):
        for name in names:
            if name.startswith(f"{INTERNAL}tmp-"):
                with suppress(OSError):
                    path = os.path.join(directory, name)
                    if os.lstat(path).st_mtime < stale:
                        os.unlink(path)
                        removed += 1
    return removed


def keep_reserve(objects: ObjectStore) -> None:
    """Set room aside, if there is none yet and the disk has enough. That it cannot be done is no error."""
    if objects.uri.scheme is not Scheme.LOCAL:
        return
    path = os.path.join(objects.uri.path, RESERVE)
    with suppress(OSError, OmnigraphError):
        if os.path.exists(path):
            return
        free = os.statvfs(objects.uri.path)
        if free.f_bavail * free.f_frsize < 4 * RESERVE_BYTES:
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{os.path.dirname(path)}/{INTERNAL}tmp-{os.getpid()}-reserve"
        try:
            with open(temporary, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
            os.rename(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)


def release_reserve(objects: ObjectStore) -> bool:
    """Give the room up that was set aside. False when there is none."""
    if objects.uri.scheme is not Scheme.LOCAL:
        return False
    try:
        os.unlink(os.path.join(objects.uri.path, RESERVE))
    except OSError:
        return False
    return True
