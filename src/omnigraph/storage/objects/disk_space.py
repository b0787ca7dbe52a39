"""Disk space: removal of temporary files, and a reserve for a full disk.

Cleanup is needed most when the disk is full, but it has to write a lease and the removal list before it can remove
anything. So a local graph has a reserve file, which only occupies disk space. Cleanup deletes this file when the disk
is full, and creates it again at the end.
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
    """Whether an error means that the disk is full."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if any(word in str(error).lower() for word in _FULL):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def unless_full() -> Iterator[None]:
    """Ignore a full disk in the block, so that the graph can be opened for cleanup. Each write runs the block again."""
    try:
        yield
    except OmnigraphError as error:
        if not is_full(error):
            raise


def remove_temporary(objects: ObjectStore) -> int:
    """Remove temporary files below the root that crashed writers left at least an hour ago.

    Only a local store has them. Returns their number.
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
    """Create the reserve file, if it does not exist and the disk has enough space. A failure is ignored."""
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
    """Delete the reserve file. False if there is none."""
    if objects.uri.scheme is not Scheme.LOCAL:
        return False
    try:
        os.unlink(os.path.join(objects.uri.path, RESERVE))
    except OSError:
        return False
    return True
