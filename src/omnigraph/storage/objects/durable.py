"""Flush files and directories, so that they survive a power failure."""

# See docs/decisions/0240-small-writes-flush-three-times.md

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from itertools import pairwise

_FULL = getattr(fcntl, "F_FULLFSYNC", None)
"""macOS needs this command: `fsync` leaves the data in the cache of the drive."""


_AT_ONCE = 4
"""Number of files that are flushed at once. The file system then writes its journal once for several of them."""

_pools: list[ThreadPoolExecutor] = []
"""The threads that flush, at most one pool. A forked process has none of them, and makes its own."""

os.register_at_fork(after_in_child=_pools.clear)


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


_MOST_KNOWN = 4_096
"""Number of directories to remember. Then all are forgotten: branches make new ones."""


class DurableDirectories:
    """Directories that have a durable entry in the directory above them, because this process has flushed that one.

    A directory that another one has replaced is unknown.
    """

    def __init__(self) -> None:
        self._inodes: dict[str, tuple[int, int]] = {}

    def has(self, directory: str) -> bool:
        return self._inodes.get(directory, ()) == _inode(directory)

    def add(self, directory: str) -> None:
        if len(self._inodes) >= _MOST_KNOWN:
            self._inodes.clear()
        found = _inode(directory)
        if found is not None:
            self._inodes[directory] = found

    def clear(self) -> None:
        self._inodes.clear()


def _inode(directory: str) -> tuple[int, int] | None:
    try:
        found = os.stat(directory)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def sync_tree(
    root: str, paths: Iterable[str], levels: int | None = None, known: DurableDirectories | None = None
) -> None:
    """Flush files, then the directories above them: a durable name must refer to durable data.

    Args:
        root: the root of the paths.
        paths: files, or directories with everything in them.
        levels: the number of directories to flush above each path. The directories above these must already be
            durable. By default, all directories up to the root.
        known: the directories whose entries need not be flushed again. Is updated.

    Raises:
        FlushError: a file cannot be flushed, or is missing.
    """
    files: set[str] = set()
    listed: set[str] = set()
    directories: set[str] = set()
    entered: set[str] = set()
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
        above = ["/".join((root, *names[:depth])) for depth in range(len(names), top - 1, -1)]
        directories.update(above[:1])
        for directory, parent in pairwise(above):
            if known is None or not known.has(directory):
                directories.add(parent)
                entered.add(directory)
    try:
        _sync_places(files, listed, directories)
    except BaseException:
        if known is not None:
            known.clear()
        raise
    if known is not None:
        for directory in entered:
            known.add(directory)


def _sync_places(files: set[str], listed: set[str], directories: set[str]) -> None:
    """Flush files, then directories, the deepest ones first."""
    with _failing():
        _sync_all(_sync, sorted(files))
        _sync_all(_sync_if_present, sorted(listed - files))
        by_depth: dict[int, list[str]] = {}
        for directory in directories:
            by_depth.setdefault(directory.count("/"), []).append(directory)
        for depth in sorted(by_depth, reverse=True):
            _sync_all(sync_directory, sorted(by_depth[depth]))


def _sync_all(sync: Callable[[str], None], places: Sequence[str]) -> None:
    """Flush several files or directories in any order. Returns when all flushes have ended."""
    if len(places) < 2:
        for place in places:
            sync(place)
        return
    try:
        if not _pools:
            _pools.append(ThreadPoolExecutor(_AT_ONCE, "omnigraph-flush"))
        begun = [_pools[0].submit(sync, place) for place in places]
    except RuntimeError:  # the interpreter is shutting down, and starts no threads
        for place in places:
            sync(place)
        return
    wait(begun)
    for each in begun:
        each.result()


def _sync_if_present(file: str) -> None:
    """Flush a file that was found by a walk. Another process may have removed it since."""
    with suppress(FileNotFoundError):
        _sync(file)


def _sync(place: str, flags: int = 0) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
