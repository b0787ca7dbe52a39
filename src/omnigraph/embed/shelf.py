"""Vectors that were computed before, on this machine's disk, so that nobody is asked twice for the same text.

A shelf has the vectors of one model at one dimension: a directory of segments, each a file of keys and vectors that is
written under another name, renamed, and never changed. So readers in any process find whole files or none. Every vector
has a checksum, and one that does not match is as good as missing. Nothing here is the only copy of anything: a
directory that cannot be read or written is no error.
"""

# See docs/decisions/0121-vectors-are-kept-by-text.md

from __future__ import annotations

import logging
import mmap
import os
import stat
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock

import numpy as np
from ulid_transform import ulid_now

from omnigraph.embed.embedder import Vectors
from omnigraph.storage.cache_directory import open_cached

Keys = np.ndarray[tuple[int, int], np.dtype[np.uint64]]
"""Two numbers for each text: 128 bits of its hash."""

Found = np.ndarray[tuple[int], np.dtype[np.bool_]]

_MAGIC = b"OGVECT01"
_HEADER = struct.Struct("<8sQQ40x")
_ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("check", "<u8")])
_SEGMENT, _UNFINISHED = ".vectors", ".part"
_MOST_SEGMENTS = 16
"""When a shelf has more small segments than this, the smallest of them are put together."""

_SMALL = 32 << 20
"""Segments of more bytes are not small, and stay as they are."""

_ABANDONED_SECONDS = 3600.0
"""A file under another name belongs to a writer for so long. Then that one is dead."""

_TOUCHED_SECONDS = 60.0
"""How old the note about the last use of a segment may be."""

_ROWS = 4096
_MULTIPLIER = np.uint64(0x9E37_79B9_7F4A_7C15)

_log = logging.getLogger(__name__)


def text_keys(texts: Sequence[str]) -> Keys:
    """What stands for each text."""
    hashed = b"".join(blake2b(text.encode(), digest_size=16).digest() for text in texts)
    return np.frombuffer(hashed, np.uint64).reshape(-1, 2)


class Shelves:
    """All shelves below one directory.

    Args:
        directory: where.
        limit: how many bytes they may take together. What was not used for longest goes first.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._lock = Lock()
        self._open: dict[str, Shelf] = {}

    def shelf(self, name: str, dimension: int) -> Shelf:
        """The shelf of a name: whatever decides about a vector beside its text has to be in it."""
        short = blake2b(f"{dimension} {name}".encode(), digest_size=12).hexdigest()
        with self._lock:
            found = self._open.get(short)
            if found is None:
                found = self._open[short] = Shelf(self, self._directory / short, dimension)
            return found

    def make_room(self, size: int) -> None:
        """Remove what was not used for longest, until so many bytes are free."""
        files: list[tuple[float, int, str]] = []
        gone = time.time() - _ABANDONED_SECONDS
        for shelf in os.scandir(self._directory):
            for entry in os.scandir(shelf.path) if shelf.is_dir() else ():
                try:
                    state = entry.stat()
                except FileNotFoundError:
                    continue  # another process has just removed it
                if entry.name.endswith(_UNFINISHED) and state.st_mtime < gone:
                    _remove(entry.path)
                else:
                    files.append((state.st_mtime, state.st_size, entry.path))
        total = sum(size for _, size, _ in files)
        for _, taken, path in sorted(files):
            if total + size <= self._limit:
                return
            if path.endswith(_SEGMENT):
                _remove(path)
                total -= taken

    @property
    def limit(self) -> int:
        return self._limit


class Shelf:
    """The vectors of one model at one dimension. Safe to use from many threads and processes."""

    def __init__(self, shelves: Shelves, directory: Path, dimension: int) -> None:
        self._shelves = shelves
        self._directory = directory
        self._dimension = dimension
        self._lock = Lock()
        self._segments: dict[str, _Segment] = {}

    def find(self, keys: Keys) -> tuple[Found, Vectors]:
        """Which texts there are vectors of, and the vectors; those of the others are unset."""
        found = np.zeros(len(keys), bool)
        vectors = np.empty((len(keys), self._dimension), np.float32)
        for segment in self._all():
            left = np.flatnonzero(~found)
            if len(left) == 0:
                break
            places, rows = segment.find(keys[left])
            found[left[places]] = True
            vectors[left[places]] = rows
        return found, vectors

    def keep(self, keys: Keys, vectors: Vectors) -> None:
        """Put vectors on the shelf."""
        size = _size(len(keys), self._dimension)
        if len(keys) == 0 or size > self._shelves.limit:
            return
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._shelves.make_room(size)
            self._write(keys, vectors)
            self._put_together()
        except OSError as error:
            _log.info("vectors are not kept: %s", error)

    def _all(self) -> list[_Segment]:
        """The segments that are there now, those first that were written last."""
        try:
            names = sorted((n for n in os.listdir(self._directory) if n.endswith(_SEGMENT)), reverse=True)
        except OSError:
            return []
        with self._lock:
            known = {name: self._segments.get(name) or self._opened(name) for name in names}
            self._segments = {name: segment for name, segment in known.items() if segment is not None}
            return [segment for segment in self._segments.values() if segment.is_whole]

    def _opened(self, name: str) -> _Segment | None:
        try:
            return _Segment(self._directory / name, self._dimension)
        except (OSError, ValueError) as error:
            _log.debug("vectors are not used: %s", error)
            return None

    def _write(self, keys: Keys, vectors: Vectors) -> None:
        order = np.lexsort((keys[:, 1], keys[:, 0]))
        keys, vectors = keys[order], vectors[order]
        new = np.ones(len(keys), bool)
        new[1:] = (keys[1:] != keys[:-1]).any(axis=1)
        keys, vectors = keys[new], vectors[new]
        if len(keys) == 0:
            return
        entries = np.empty(len(keys), _ENTRY)
        entries["high"], entries["low"] = keys[:, 0], keys[:, 1]
        entries["check"] = _checks(keys, vectors)
        name = f"{ulid_now().lower()}{_SEGMENT}"
        unfinished = self._directory / f"{name}{_UNFINISHED}"
        try:
            with unfinished.open("xb") as file:
                file.write(_HEADER.pack(_MAGIC, len(keys), self._dimension))
                file.write(entries.tobytes())
                file.write(np.ascontiguousarray(vectors, "<f4").data)
            # Who writes into a file that is mapped somewhere ends the processes that read it.
            unfinished.chmod(stat.S_IRUSR)
            unfinished.replace(self._directory / name)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    def _put_together(self) -> None:
        """Make one segment of the small ones when there are many. Another process may do the same: no harm."""
        small = sorted((segment for segment in self._all() if segment.size <= _SMALL), key=lambda each: each.size)
        if len(small) <= _MOST_SEGMENTS:
            return
        small = small[: len(small) - _MOST_SEGMENTS // 2]
        parts = [segment.all() for segment in small]
        self._write(np.concatenate([keys for keys, _ in parts]), np.concatenate([rows for _, rows in parts]))
        for segment in small:
            _remove(segment.path)


class _Segment:
    """One file of vectors, mapped into memory.

    Raises:
        ValueError: it is not what it should be.
    """

    def __init__(self, path: Path, dimension: int) -> None:
        self.path = str(path)
        with open_cached(path) as file:
            self.size = os.fstat(file.fileno()).st_size
            magic, count, own = _HEADER.unpack(file.read(_HEADER.size).ljust(_HEADER.size, b"\0"))
            if magic != _MAGIC or own != dimension or count == 0 or self.size != _size(count, dimension):
                raise ValueError(f"{path} is damaged")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._entries = np.frombuffer(self._map, _ENTRY, count, _HEADER.size)
        self._rows = np.frombuffer(self._map, "<f4", count * dimension, _HEADER.size + self._entries.nbytes)
        self._rows = self._rows.reshape(count, dimension)
        self._used = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether the file is still as long as it was: to read beyond the end of a mapped file would end the process.

        Nothing here cuts a file, and none is writable. Somebody else may still do it.
        """
        return self._map.size() == self.size

    def find(self, keys: Keys) -> tuple[np.ndarray[tuple[int], np.dtype[np.intp]], Vectors]:
        """The places of the keys that are here, and their vectors."""
        high = self._entries["high"]
        at = np.minimum(np.searchsorted(high, keys[:, 0]), len(high) - 1)
        places = np.flatnonzero((high[at] == keys[:, 0]) & (self._entries["low"][at] == keys[:, 1]))
        rows = self._rows[at[places]]
        good = _checks(keys[places], rows) == self._entries["check"][at[places]]
        if len(places):
            self._touch()
        return places[good], rows[good]

    def all(self) -> tuple[Keys, Vectors]:
        """All keys and vectors that are not damaged."""
        keys = np.stack([self._entries["high"], self._entries["low"]], axis=1)
        good = _checks(keys, self._rows) == self._entries["check"]
        return keys[good], self._rows[good]

    def _touch(self) -> None:
        """Note that it is used: what is not used goes first."""
        now = time.monotonic()
        if now - self._used > _TOUCHED_SECONDS:
            self._used = now
            with suppress(OSError):  # it was just removed, and is mapped here as long as it is needed
                os.utime(self.path)


def _size(count: int, dimension: int) -> int:
    return _HEADER.size + count * (_ENTRY.itemsize + 4 * dimension)


def _checks(keys: Keys, vectors: Vectors) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """A number for each key with its vector, which another key or vector has only by a rare accident."""
    weights = np.arange(1, 2 * vectors.shape[1], 2, dtype=np.uint64) * _MULTIPLIER
    sums = np.empty(len(keys), np.uint64)
    for start in range(0, len(keys), _ROWS):
        words = np.ascontiguousarray(vectors[start : start + _ROWS], "<f4").view("<u4").astype(np.uint64)
        sums[start : start + _ROWS] = (words * weights).sum(axis=1, dtype=np.uint64)
    mixed: np.ndarray[tuple[int], np.dtype[np.uint64]] = (sums ^ keys[:, 0]) * _MULTIPLIER + keys[:, 1]
    return mixed


def _remove(path: str) -> None:
    """Remove a file, which another process may just have done, or may have open where that prevents it."""
    try:
        os.unlink(path)
    except OSError as error:
        _log.debug("%s stays: %s", path, error)
