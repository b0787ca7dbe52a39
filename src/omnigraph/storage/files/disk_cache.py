"""Cache files on this machine's disk, shared by all processes of a user.

A cache file is immutable and published by rename, so readers never see a partial file. A file that is damaged, or that
another user wrote, counts as a cache miss. The cache never holds the only copy of anything, so a directory that cannot
be read or written is not an error.
"""

from __future__ import annotations

import logging
import mmap
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from omnigraph.storage.files.cache_directory import open_cached

TEMPORARY = ".part"
"""Suffix of files that are being written."""

_TEMP_FILE_TTL = 3600.0
"""Age in seconds from which a temporary file counts as left by a crashed writer."""

_log = logging.getLogger(__name__)


@contextmanager
def published(path: Path) -> Iterator[Path]:
    """Write a cache file: yields a temporary path, and renames it to `path` if the block succeeds.

    The file becomes read-only: a write into a file that another process has mapped would crash that process.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f"{path.name}.{uuid4().hex}{TEMPORARY}")
    try:
        yield temporary
        temporary.chmod(stat.S_IRUSR)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class MappedFile:
    """A cache file of this user, mapped into memory. The mapping stays valid after the file is removed.

    Raises:
        OSError: it cannot be read, or belongs to another user.
        ValueError: it is empty.
    """

    def __init__(self, path: Path) -> None:
        with open_cached(path) as file:
            self.size = os.fstat(file.fileno()).st_size
            self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @property
    def is_whole(self) -> bool:
        """Whether the file has its original size. A read beyond the end of a mapped file crashes the process.

        No writer of the cache truncates a file, but another program may.
        """
        return self.map.size() == self.size


def file_state(entry: os.DirEntry[str]) -> os.stat_result | None:
    """State of a listed file; None if another process has just removed it."""
    try:
        return entry.stat()
    except FileNotFoundError:
        return None


def is_abandoned(state: os.stat_result) -> bool:
    """Whether a file that is not published yet was left by a crashed writer."""
    return state.st_mtime < time.time() - _TEMP_FILE_TTL


def touch(path: str) -> None:
    """Mark a file as used now. Eviction removes the least recently used files first."""
    with suppress(OSError):  # another process may have removed it
        os.utime(path)


def remove(path: str) -> None:
    """Remove a file, if it still exists and the operating system allows it: some systems do not delete open files."""
    try:
        os.unlink(path)
    except OSError as error:
        _log.debug("cannot remove %s: %s", path, error)
