"""On-disk cache of embedding vectors, shared by all processes of a user.

Each model and dimension has a directory of segments: files of sorted keys and vectors. Segments are immutable and
published by rename, so readers never see a partial file. A checksum mismatch counts as a cache miss.
"""

from __future__ import annotations

import logging
import os
import struct
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from threading import Lock

import numpy as np
from ulid_transform import ulid_now

from omnigraph.storage.files.disk_cache import (
    TEMPORARY,
    MappedFile,
    file_state,
    is_abandoned,
    published,
    remove,
    touch,
)

Vectors = np.ndarray[tuple[int, int], np.dtype[np.float32]]

Keys = np.ndarray[tuple[int, int], np.dtype[np.uint64]]
"""Key of each text: 128 bits of its hash, as two numbers."""

Found = np.ndarray[tuple[int], np.dtype[np.bool_]]

MAX_SMALL_SEGMENTS = 16
"""Maximum number of small segments of a model. If there are more, the smallest are merged."""

_MAGIC = b"OGVECT01"
_HEADER = struct.Struct("<8sQQ40x")
_ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("check", "<u8")])
_SEGMENT = ".vectors"
_SMALL_SEGMENT_BYTES = 32 << 20
"""Larger segments are never merged."""

_TOUCH_SECONDS = 60.0
"""The time of the last use of a segment is updated at most this often."""

_CHECKSUM_ROWS = 4096
_MULTIPLIER = np.uint64(0x9E37_79B9_7F4A_7C15)

_log = logging.getLogger(__name__)


def text_keys(texts: Sequence[str]) -> Keys:
    """Cache key of each text."""
    hashed = b"".join(blake2b(text.encode(), digest_size=16).digest() for text in texts)
    return np.frombuffer(hashed, np.uint64).reshape(-1, 2)


class VectorCache:
    """The vectors of all models below one directory.

    Args:
        directory: the directory.
        limit: the maximum total size in bytes. Evicts least recently used segments first.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._lock = Lock()
        self._models: dict[str, ModelCache] = {}

    def model(self, name: str, dimension: int) -> ModelCache:
        """The cache of one model. The name must differ for models and settings that compute different vectors."""
        short = blake2b(f"{dimension} {name}".encode(), digest_size=12).hexdigest()
        with self._lock:
            found = self._models.get(short)
            if found is None:
                found = self._models[short] = ModelCache(self, self._directory / short, dimension)
            return found

    def evict(self, size: int) -> None:
        """Remove least recently used segments until `size` bytes fit, and files of crashed writers."""
        files: list[tuple[float, int, str]] = []
        for model in os.scandir(self._directory):
            for entry in os.scandir(model.path) if model.is_dir() else ():
                state = file_state(entry)
                if state is None:
                    continue
                if entry.name.endswith(TEMPORARY) and is_abandoned(state):
                    remove(entry.path)
                else:
                    files.append((state.st_mtime, state.st_size, entry.path))
        total = sum(size for _, size, _ in files)
        for _, taken, path in sorted(files):
            if total + size <= self._limit:
                return
            if path.endswith(_SEGMENT):
                remove(path)
                total -= taken

    @property
    def limit(self) -> int:
        return self._limit


class ModelCache:
    """The vectors of one model at one dimension. Safe to use from many threads and processes."""

    def __init__(self, cache: VectorCache, directory: Path, dimension: int) -> None:
        self._cache = cache
        self._directory = directory
        self._dimension = dimension
        self._lock = Lock()
        self._segments: dict[str, _Segment] = {}

    def find(self, keys: Keys) -> tuple[Found, Vectors]:
        """Look up vectors. Returns a mask of the keys that were found, and the vectors, undefined for other keys."""
        found = np.zeros(len(keys), bool)
        vectors = np.empty((len(keys), self._dimension), np.float32)
        for segment in self._open_segments():
            left = np.flatnonzero(~found)
            if len(left) == 0:
                break
            places, rows = segment.find(keys[left])
            found[left[places]] = True
            vectors[left[places]] = rows
        return found, vectors

    def put(self, keys: Keys, vectors: Vectors) -> None:
        """Store vectors. A failure is logged and not raised."""
        size = _size(len(keys), self._dimension)
        if len(keys) == 0 or size > self._cache.limit:
            return
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._cache.evict(size)
            self._write(keys, vectors)
            self._merge_small_segments()
        except OSError as error:
            _log.info("cannot cache vectors: %s", error)

    def _open_segments(self) -> list[_Segment]:
        """All segments on disk, newest first."""
        try:
            names = sorted((n for n in os.listdir(self._directory) if n.endswith(_SEGMENT)), reverse=True)
        except OSError:
            return []
        with self._lock:
            known = {name: self._segments.get(name) or self._open(name) for name in names}
            self._segments = {name: segment for name, segment in known.items() if segment is not None}
            return [segment for segment in self._segments.values() if segment.is_whole]

    def _open(self, name: str) -> _Segment | None:
        try:
            return _Segment(self._directory / name, self._dimension)
        except (OSError, ValueError) as error:
            _log.debug("cannot use cached vectors: %s", error)
            return None

    def _write(self, keys: Keys, vectors: Vectors) -> None:
        """Write one segment, sorted by key and without duplicates."""
        order = np.lexsort((keys[:, 1], keys[:, 0]))
        keys, vectors = keys[order], vectors[order]
        new = np.ones(len(keys), bool)
        new[1:] = (keys[1:] != keys[:-1]).any(axis=1)
        keys, vectors = keys[new], vectors[new]
        if len(keys) == 0:
            return
        entries = np.empty(len(keys), _ENTRY)
        entries["high"], entries["low"] = keys[:, 0], keys[:, 1]
        entries["check"] = _checksums(keys, vectors)
        with published(self._directory / f"{ulid_now().lower()}{_SEGMENT}") as temporary, temporary.open("xb") as file:
            file.write(_HEADER.pack(_MAGIC, len(keys), self._dimension))
            file.write(entries.tobytes())
            file.write(np.ascontiguousarray(vectors, "<f4").data)

    def _merge_small_segments(self) -> None:
        """Merge small segments if there are many. Another process may do the same at the same time, without harm."""
        small = [segment for segment in self._open_segments() if segment.size <= _SMALL_SEGMENT_BYTES]
        if len(small) <= MAX_SMALL_SEGMENTS:
            return
        small.sort(key=lambda each: each.size)
        small = small[: len(small) - MAX_SMALL_SEGMENTS // 2]
        parts = [segment.all() for segment in small]
        self._write(np.concatenate([keys for keys, _ in parts]), np.concatenate([rows for _, rows in parts]))
        for segment in small:
            remove(segment.path)


class _Segment:
    """One file of vectors, mapped into memory.

    Raises:
        ValueError: the file is damaged.
    """

    def __init__(self, path: Path, dimension: int) -> None:
        self.path = str(path)
        self._file = MappedFile(path)
        magic, count, own = _HEADER.unpack(self._file.map[: _HEADER.size].ljust(_HEADER.size, b"\0"))
        if magic != _MAGIC or own != dimension or count == 0 or self.size != _size(count, dimension):
            raise ValueError(f"{path} is damaged")
        self._entries = np.frombuffer(self._file.map, _ENTRY, count, _HEADER.size)
        rows = np.frombuffer(self._file.map, "<f4", count * dimension, _HEADER.size + self._entries.nbytes)
        self._rows = rows.reshape(count, dimension)
        self._used = 0.0

    @property
    def size(self) -> int:
        return self._file.size

    @property
    def is_whole(self) -> bool:
        return self._file.is_whole

    def find(self, keys: Keys) -> tuple[np.ndarray[tuple[int], np.dtype[np.intp]], Vectors]:
        """Positions of the keys that the segment has, and their vectors."""
        high = self._entries["high"]
        at = np.minimum(np.searchsorted(high, keys[:, 0]), len(high) - 1)
        places = np.flatnonzero((high[at] == keys[:, 0]) & (self._entries["low"][at] == keys[:, 1]))
        rows = self._rows[at[places]]
        good = _checksums(keys[places], rows) == self._entries["check"][at[places]]
        if len(places):
            self._touch()
        return places[good], rows[good]

    def all(self) -> tuple[Keys, Vectors]:
        """All keys and vectors whose checksums match."""
        keys = np.stack([self._entries["high"], self._entries["low"]], axis=1)
        good = _checksums(keys, self._rows) == self._entries["check"]
        return keys[good], self._rows[good]

    def _touch(self) -> None:
        now = time.monotonic()
        if now - self._used > _TOUCH_SECONDS:
            self._used = now
            touch(self.path)


def _size(count: int, dimension: int) -> int:
    return _HEADER.size + count * (_ENTRY.itemsize + 4 * dimension)


def _checksums(keys: Keys, vectors: Vectors) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Checksum of each key with its vector."""
    weights = np.arange(1, 2 * vectors.shape[1], 2, dtype=np.uint64) * _MULTIPLIER
    sums = np.empty(len(keys), np.uint64)
    for start in range(0, len(keys), _CHECKSUM_ROWS):
        words = np.ascontiguousarray(vectors[start : start + _CHECKSUM_ROWS], "<f4").view("<u4").astype(np.uint64)
        sums[start : start + _CHECKSUM_ROWS] = (words * weights).sum(axis=1, dtype=np.uint64)
    mixed: np.ndarray[tuple[int], np.dtype[np.uint64]] = (sums ^ keys[:, 0]) * _MULTIPLIER + keys[:, 1]
    return mixed
