"""On-disk cache of arrays that are derived from tables: topologies and inverted indexes.

An entry has two files: the arrays, and a small header with their source versions, layout and checksums. Both are
published by rename, so readers in any process never see a partial file. A wrong version or checksum counts as a cache
miss. Entries can always be computed again. So a directory that cannot be read or written is no error: reads work
without the cache.
"""

# See docs/decisions/0082-a-topology-is-known-by-its-files.md

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from omnigraph.dataclass import dataclass
from omnigraph.read.columns.numbers import Integers
from omnigraph.settings import CACHE_DISK
from omnigraph.storage.files.cache_directory import cache_directory, open_cached
from omnigraph.storage.files.disk_cache import MappedFile, file_state, is_abandoned, published

_FORMAT = 3
_HEADER, _ARRAYS = ".json", ".arrays"
_ALIGNMENT_BYTES = 64
_MIN_FILE_BYTES = 4096
"""A file counts as at least this number of bytes, even if it is smaller."""

MAX_ENTRIES = 2_000
"""Maximum number of entries in the directory. It applies in addition to the limit in bytes."""

_PART_BYTES = 73
"""Memory of the name of a fragment: a text of 16 characters, and a reference to it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """The version of a table that a cache entry was derived from, and its entity numbering.

    Attributes:
        fingerprint: identifies the data of the version.
        version: version number.
        base: row id of entity number 0; None if the numbering is dense (see `entity_table`).
        slots: the entity numbers are 0 to `slots` - 1. Some of them may be unused.
        parts: names of the fragments of the version.
        count: number of entities.
    """

    fingerprint: str
    version: int
    base: int | None
    slots: int
    parts: tuple[str, ...] = ()
    count: int = 0

    @property
    def nbytes(self) -> int:
        return _PART_BYTES * len(self.parts)


@dataclass(frozen=True, slots=True)
class Made:
    """The table versions that a cache entry was derived from.

    Attributes:
        table: name of the entry; for a topology, the location of the edge table.
        edges: version of the edge table; for an inverted index, version of the only table.
        sources: version of the table of source nodes.
        targets: version of the table of target nodes.
        dropped: number of edges that the topology leaves out, because their source or target node does not exist.
    """

    table: str
    edges: Origin
    sources: Origin
    targets: Origin
    dropped: int = 0

    @property
    def nbytes(self) -> int:
        return self.edges.nbytes + self.sources.nbytes + self.targets.nbytes


class DamagedError(Exception):
    """A cached file does not match its header. Package `read` handles this error and never raises it to its callers."""


class Stored:
    """A cache entry on disk. Arrays are memory-mapped. The checksum of an array is verified when the array is read."""

    def __init__(self, made: Made, path: Path, members: Mapping[str, tuple[str, int, int, int]]) -> None:
        self.made = made
        self.arrays_name = path.name
        self._members = members
        """For each array by name: element type, offset in the file in bytes, number of elements, and checksum."""
        self._end = max((b + count * np.dtype(kind).itemsize for kind, b, count, _ in members.values()), default=0)
        self._file = MappedFile(path)
        if self._file.size != self._end:
            raise DamagedError(f"{path} has the wrong size")
        self._bytes = memoryview(self._file.map)

    @property
    def is_whole(self) -> bool:
        """Whether the file still has its full length. Reading a mapped file beyond its end would crash the process.

        OmniGraph never truncates or modifies these files, but another program could.
        """
        return self._file.is_whole

    def __getitem__(self, name: str) -> Integers:
        """The array with this name.

        Raises:
            DamagedError: the checksum does not match, or the file was truncated.
        """
        kind, begin, count, checksum = self._members[name]
        dtype = np.dtype(kind)
        if not self.is_whole:
            raise DamagedError(f"{self.arrays_name} was truncated")
        if zlib.crc32(self._bytes[begin : begin + count * dtype.itemsize]) != checksum:
            raise DamagedError(f"{self.arrays_name} is damaged")
        return np.frombuffer(self._bytes, dtype, count, begin)


class DerivedFiles:
    """The cache entries in one directory.

    Args:
        directory: the directory; None disables the cache.
        limit: size limit of the directory in bytes. Least recently used entries are evicted first.
    """

    def __init__(self, directory: Path | None, limit: int = CACHE_DISK.amount({})) -> None:
        self._directory = directory
        self._limit = limit

    @property
    def keeps(self) -> bool:
        """Whether the cache is enabled."""
        return self._directory is not None

    def find(self, table: str, fingerprint: str) -> Stored | None:
        """The entry of one version of a table, or None."""
        if self._directory is None:
            return None
        return self._open(self._directory / f"{_short(table)}-{fingerprint}{_HEADER}")

    def others(self, table: str) -> Iterator[Stored]:
        """Entries of all versions of a table, most recently used first."""
        if self._directory is None:
            return
        try:
            with os.scandir(self._directory) as entries:
                named = [entry for entry in entries if _is_header_of(entry.name, _short(table))]
                states = [(entry.name, file_state(entry)) for entry in named]
                used = sorted(((state.st_mtime_ns, name) for name, state in states if state is not None), reverse=True)
        except OSError as error:
            _log.debug("the cache directory cannot be listed: %s", error)
            return
        for _, name in used:
            found = self._open(self._directory / name)
            if found is not None:
                yield found

    def _open(self, path: Path) -> Stored | None:
        try:
            with open_cached(path) as file:
                checksum, _, body = file.read().partition(b"\n")
            if int(checksum) != zlib.crc32(body):
                raise DamagedError(f"{path} is damaged")
            header = orjson.loads(body)
            if header["format"] != _FORMAT:
                return None
            edges, sources, targets = (_origin(header[name]) for name in ("edges", "sources", "targets"))
            made = Made(header["table"], edges, sources, targets, header["dropped"])
            members = {name: tuple(member) for name, member in header["members"].items()}
            stored = Stored(made, path.with_name(header["arrays"]), members)
            os.utime(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, DamagedError) as error:
            _log.debug("a cached file is not used: %s", error)
            return None
        return stored

    def write(self, made: Made, arrays: Mapping[str, Integers]) -> Stored | None:
        """Write an entry. Returns the entry as it is on disk, or None if it could not be written.

        Args:
            made: the table versions that the arrays were derived from.
            arrays: the arrays by name.
        """
        if self._directory is None:
            return None
        members: dict[str, tuple[str, int, int, int]] = {}
        end = 0
        for name, array in arrays.items():
            begin = -(-end // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
            members[name] = (array.dtype.str, begin, len(array), zlib.crc32(_bytes(array)))
            end = begin + array.nbytes
        if end == 0 or end + _MIN_FILE_BYTES > self._limit:
            return None
        arrays_name = f"{_short(made.table)}-{_short(repr(members))}{_ARRAYS}"
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._evict(end + _MIN_FILE_BYTES, kept=arrays_name)
            with published(self._directory / arrays_name) as path, path.open("wb") as file:
                for name, array in arrays.items():
                    file.seek(members[name][1])
                    file.write(_bytes(array))
            return self._write_header(made, arrays_name, members)
        except OSError as error:
            _log.info("an entry is not written to the cache: %s", error)
            return None

    def add_header(self, stored: Stored, made: Made) -> None:
        """Write another header for the arrays of an entry: they are also valid for the table versions in `made`."""
        if self._directory is None:
            return
        try:
            if len(os.listdir(self._directory)) >= MAX_ENTRIES:
                self._evict(_MIN_FILE_BYTES, kept=stored.arrays_name)
            self._write_header(made, stored.arrays_name, stored._members)
        except OSError as error:
            _log.info("an entry is not written to the cache: %s", error)

    def _write_header(
        self, made: Made, arrays_name: str, members: Mapping[str, tuple[str, int, int, int]]
    ) -> Stored | None:
        assert self._directory is not None
        body = orjson.dumps({"format": _FORMAT, **asdict(made), "arrays": arrays_name, "members": members})
        name = f"{_short(made.table)}-{made.edges.fingerprint}{_HEADER}"
        with published(self._directory / name) as path:
            path.write_bytes(b"%d\n%b" % (zlib.crc32(body), body))
        return self._open(self._directory / name)

    def _evict(self, size: int, kept: str) -> None:
        """Evict least recently used entries until `size` bytes are free. The file `kept` is not deleted."""
        assert self._directory is not None
        sizes: dict[str, int] = {}
        used: dict[str, float] = {}
        abandoned: set[str] = set()
        arrays_of: dict[str, str] = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                state = file_state(entry)
                if state is None:
                    continue
                sizes[entry.name] = max(state.st_size, _MIN_FILE_BYTES)
                used[entry.name] = state.st_mtime
                if is_abandoned(state):
                    abandoned.add(entry.name)
                if entry.name.endswith(_HEADER):
                    arrays_of[entry.name] = _arrays_named_in(Path(entry.path))
        total = sum(sizes.values()) - sizes.get(kept, 0)
        wanted = set(arrays_of.values())
        for name in [n for n in sizes if not n.endswith(_HEADER) and n not in wanted and n in abandoned]:
            total -= self._remove(name, sizes)
        oldest = sorted(arrays_of, key=lambda name: used[name])
        while oldest and (total + size > self._limit or len(oldest) >= MAX_ENTRIES):
            header = oldest.pop(0)
            arrays = arrays_of.pop(header)
            total -= self._remove(header, sizes)
            if arrays not in arrays_of.values() and arrays != kept:
                total -= self._remove(arrays, sizes)

    def _remove(self, name: str, sizes: dict[str, int]) -> int:
        """Delete a file, if it still exists. Returns its size in bytes."""
        assert self._directory is not None
        (self._directory / name).unlink(missing_ok=True)
        return sizes.pop(name, 0)


def _arrays_named_in(header: Path) -> str:
    """Name of the arrays file that a header refers to; empty if the header cannot be read."""
    try:
        return str(orjson.loads(header.read_bytes().partition(b"\n")[2])["arrays"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _origin(members: Mapping[str, Any]) -> Origin:
    return Origin(**{**members, "parts": tuple(members["parts"])})


def _is_header_of(name: str, table: str) -> bool:
    return name.startswith(f"{table}-") and name.endswith(_HEADER)


def _bytes(array: Integers) -> memoryview:
    return np.ascontiguousarray(array).view(np.uint8).data


def _short(text: str) -> str:
    return blake2b(text.encode(), digest_size=12).hexdigest()


NO_FILES = DerivedFiles(None)
"""A disabled cache, for data that is derived from restricted table versions."""


@cache
def process_files() -> DerivedFiles:
    """The on-disk cache that all reads of this process use. Topologies and inverted indexes share one size limit."""
    directory = cache_directory(os.environ)
    limit = CACHE_DISK.amount()
    return DerivedFiles(None if directory is None else directory / "derived", limit)
