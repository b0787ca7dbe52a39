"""Flush files and directories, so that they survive a power failure."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

_FULL = getattr(fcntl, "F_FULLFSYNC", None)
"""macOS needs this command: `fsync` leaves the data in the cache of the drive."""


class FlushError(OSError):
    """A flush failed. The data is not trusted, even if a later flush succeeds."""


@contextmanager
def _failing() -> Iterator[None]:
    """Convert errors of a flush to `FlushError`, even if the file cannot be opened: then it was not flushed."""
    try:
        yield
    except FlushError:
        raise
    except OSError as error:
        raise FlushError(error.errno, error.strerror, error.filename) from error


def sync_file(descriptor: int) -> None:
    """Flush an open file.

    Raises:
        FlushError: it cannot be flushed.
    """
    with _failing():
        if _FULL is not None:
            fcntl.fcntl(descriptor, _FULL)
        else:
            os.fsync(descriptor)


def sync_directory(directory: str) -> None:
    """Flush the entries of a directory."""
    _sync(directory, os.O_DIRECTORY)


def sync_tree(root: str, paths: Iterable[str], levels: int | None = None) -> None:
    """Flush files, then the directories above them: a durable name must refer to durable data.

    Args:
        root: the root of the paths.
        paths: files, or directories with everything in them.
        levels: the number of directories to flush above each path. The directories above these must already be
            durable. By default, all directories up to the root.

    Raises:
        FlushError: a file cannot be flushed, or is missing.
    """
    files: set[str] = set()
    listed: set[str] = set()
    directories: set[str] = set()
    for path in paths:
        place = os.path.join(root, path) if path else root
        if os.path.isdir(place):
            for directory, _, names in os.walk(place):
                directories.add(directory)
                listed.update(os.path.join(directory, name) for name in names)
        else:
            files.add(place)
        names = path.split("/")[:-1]
        top = 0 if levels is None else max(0, len(names) + 1 - levels)
        directories.update(os.path.join(root, *names[:depth]) for depth in range(top, len(names) + 1))
    with _failing():
        for file in sorted(files):
            _sync(file)
        for file in sorted(listed - files):
            with suppress(FileNotFoundError):  # found by the walk, and removed by another process since
                _sync(file)
        for directory in sorted(directories, key=len, reverse=True):
            sync_directory(directory)


def _sync(place: str, flags: int = 0) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
