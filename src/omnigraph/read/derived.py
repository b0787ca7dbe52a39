"""Derived files: arrays on disk that save a process from working them out of the tables again.

What is kept (a topology, the words of a text) is two files: its arrays, and a small header that says what they were
made from and what they must look like. Both are written under another name and then renamed, so that a reader in any
process finds a whole file or none. Whatever does not match is as good as missing. Nothing here is ever the only copy
of anything, so that a directory that cannot be read or written is no error: reads work without it.
"""

# See docs/decisions/0082-a-topology-is-known-by-its-files.md

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from omnigraph.read.space.space import Integers
from omnigraph.settings import CACHE_DISK
from omnigraph.storage.files.cache_directory import cache_directory, open_cached
from omnigraph.storage.files.disk_cache import MappedFile, file_state, is_abandoned, published

_FORMAT = 3
_HEADER, _ARRAYS = ".json", ".arrays"
_ALIGNED = 64
_BLOCK = 4096
"""A file takes at least so many bytes of disk."""

_MOST = 2_000
"""How many things are kept at most, however small."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """The version of a table that a topology was made from, and how its entities are numbered.

    Attributes:
        fingerprint: what the version is made of.
        version: its number.
        base: the row id of the number 0; None when holes are left out.
        slots: how many numbers there are.
        parts: the parts of the version, one by one.
        count: how many entities it has.
    """

    fingerprint: str
    version: int
    base: int | None
    slots: int
    parts: tuple[str, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True)
class Made:
    """What a topology was made from.

    Attributes:
        table: the edge table.
        dropped: how many edges have an end that is not there.
    """

    table: str
    edges: Origin
    sources: Origin
    targets: Origin
    dropped: int = 0


class DamagedError(Exception):
    """A file does not hold what its header says. Never leaves this package."""


class Stored:
    """A topology on disk. Its arrays are mapped into memory, each checked when it is first asked for."""

    def __init__(self, made: Made, path: Path, members: Mapping[str, tuple[str, int, int, int]]) -> None:
        self.made = made
        self.arrays_name = path.name
        self._members = members
        """For each array: its type, where it begins, how many values it has, and its checksum."""
        self._end = max((b + count * np.dtype(kind).itemsize for kind, b, count, _ in members.values()), default=0)
        self._file = MappedFile(path)
        if self._file.size != self._end:
            raise DamagedError(f"{path} has not the size that it should have")
        self._bytes = memoryview(self._file.map)

    @property
    def is_whole(self) -> bool:
        """Whether the file is still as long as it was: to read beyond the end of a mapped file would end the process.

        Nothing here cuts a file, and none is writable. Somebody else may still do it.
        """
        return self._file.is_whole

    def __getitem__(self, name: str) -> Integers:
        """An array.

        Raises:
            DamagedError: it is not the one that was written.
        """
        kind, begin, count, checksum = self._members[name]
        dtype = np.dtype(kind)
        if not self.is_whole:
            raise DamagedError(f"{self.arrays_name} was cut")
        if zlib.crc32(self._bytes[begin : begin + count * dtype.itemsize]) != checksum:
            raise DamagedError(f"{self.arrays_name} is damaged")
        return np.frombuffer(self._bytes, dtype, count, begin)


class DerivedFiles:
    """Topologies, and what else is derived, in one directory.

    Args:
        directory: where; None keeps nothing.
        limit: how many bytes they may take. What was not used for longest goes first.
    """

    def __init__(self, directory: Path | None, limit: int = CACHE_DISK.amount({})) -> None:
        self._directory = directory
        self._limit = limit

    @property
    def keeps(self) -> bool:
        """Whether anything is kept at all."""
        return self._directory is not None

    def find(self, table: str, fingerprint: str) -> Stored | None:
        """The topology of one version of an edge table, if there is one."""
        if self._directory is None:
            return None
        return self._open(self._directory / f"{_short(table)}-{fingerprint}{_HEADER}")

    def others(self, table: str) -> Iterator[Stored]:
        """The topologies of any versions of an edge table, those first that were used last."""
        if self._directory is None:
            return
        try:
            with os.scandir(self._directory) as entries:
                named = [entry for entry in entries if _is_header_of(entry.name, _short(table))]
                states = [(entry.name, file_state(entry)) for entry in named]
                used = sorted(((state.st_mtime_ns, name) for name, state in states if state is not None), reverse=True)
        except OSError as error:
            _log.debug("no topologies can be listed: %s", error)
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
            _log.debug("a topology is not used: %s", error)
            return None
        return stored

    def write(self, made: Made, arrays: Mapping[str, Integers]) -> Stored | None:
        """Keep a topology. Returns it as it lies on disk, or None when it cannot be kept.

        Args:
            made: what it was made from.
            arrays: its arrays by name.
        """
        if self._directory is None:
            return None
        members: dict[str, tuple[str, int, int, int]] = {}
        end = 0
        for name, array in arrays.items():
            begin = -(-end // _ALIGNED) * _ALIGNED
            members[name] = (array.dtype.str, begin, len(array), zlib.crc32(_bytes(array)))
            end = begin + array.nbytes
        if end == 0 or end + _BLOCK > self._limit:
            return None
        arrays_name = f"{_short(made.table)}-{_short(repr(members))}{_ARRAYS}"
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(end + _BLOCK, kept=arrays_name)
            with published(self._directory / arrays_name) as path, path.open("wb") as file:
                for name, array in arrays.items():
                    file.seek(members[name][1])
                    file.write(_bytes(array))
            return self._write_header(made, arrays_name, members)
        except OSError as error:
            _log.info("a topology is not kept: %s", error)
            return None

    def restate(self, stored: Stored, made: Made) -> None:
        """Note that the arrays of a topology are also those of something else."""
        if self._directory is None:
            return
        try:
            if len(os.listdir(self._directory)) >= _MOST:
                self._make_room(_BLOCK, kept=stored.arrays_name)
            self._write_header(made, stored.arrays_name, stored._members)
        except OSError as error:
            _log.info("a topology is not kept: %s", error)

    def _write_header(
        self, made: Made, arrays_name: str, members: Mapping[str, tuple[str, int, int, int]]
    ) -> Stored | None:
        assert self._directory is not None
        body = orjson.dumps({"format": _FORMAT, **asdict(made), "arrays": arrays_name, "members": members})
        name = f"{_short(made.table)}-{made.edges.fingerprint}{_HEADER}"
        with published(self._directory / name) as path:
            path.write_bytes(b"%d\n%b" % (zlib.crc32(body), body))
        return self._open(self._directory / name)

    def _make_room(self, size: int, kept: str) -> None:
        """Remove what was not used for longest, until so many bytes are free."""
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
                sizes[entry.name] = max(state.st_size, _BLOCK)
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
        while oldest and (total + size > self._limit or len(oldest) >= _MOST):
            header = oldest.pop(0)
            arrays = arrays_of.pop(header)
            total -= self._remove(header, sizes)
            if arrays not in arrays_of.values() and arrays != kept:
                total -= self._remove(arrays, sizes)

    def _remove(self, name: str, sizes: dict[str, int]) -> int:
        """Remove a file, which another process may just have done. Returns its size."""
        assert self._directory is not None
        (self._directory / name).unlink(missing_ok=True)
        return sizes.pop(name, 0)


def _arrays_named_in(header: Path) -> str:
    """The file that a header speaks of; nothing for one that cannot be read."""
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


@cache
def process_files() -> DerivedFiles:
    """The files that this process uses, of every kind: one limit is for all of them together."""
    directory = cache_directory(os.environ)
    limit = CACHE_DISK.amount()
    return DerivedFiles(None if directory is None else directory / "derived", limit)
