"""Checksums of table files, recorded when a write is committed.

Lance has no checksums: most flipped bits in a data file become wrong results. Table files never change. So a write
records the size and checksum of each file that it staged, in one small object, before it commits its first table.
The checksums of `__manifest` and of manifest files are not in these records, but in `ledger` and `TableRef.seal`.

A lost or damaged record does no harm: its files then have no checksum. Small records are merged into larger ones, so
the cost to read them depends on the number of files, not of commits.

Only graphs on a local disk have records. In an object store, checksums would need a read of the written files, and the
store has its own checksums.
"""

# See docs/decisions/0136-checksums-are-kept-beside-the-tables.md

from __future__ import annotations

import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Lock

import orjson
from ulid_transform import ulid_now

from omnigraph.dataclass import dataclass
from omnigraph.errors import ObjectNotFoundError
from omnigraph.storage.objects import ObjectStore

CHECKSUMS_DIRECTORY = "__checksums"
RECORDS_KEPT = 128
"""Maximum number of records. If there are more, small ones are merged."""

_VERSION = 1
_NAME = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}\.json")
_CHUNK = 1 << 20
_SPARE = 10_000
"""An index has at most twice as many files as the records, and so many more. Then it reads the records again."""

_TICK = 50_000_000
"""Two changes of a directory within this many nanoseconds may have the same modification time."""


@dataclass(frozen=True, slots=True)
class FileChecksum:
    """Size and CRC-32 of a file."""

    size: int
    crc: int


Checksums = dict[str, FileChecksum]
"""Checksums by file path below the root of the graph."""


def file_checksum(place: str) -> FileChecksum:
    """Size and checksum of a file on disk.

    Raises:
        OSError: it is missing, or cannot be read.
    """
    size = crc = 0
    with open(place, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            crc = zlib.crc32(chunk, crc)
    return FileChecksum(size, crc)


def file_checksums(root: str, paths: Iterable[str]) -> Checksums:
    """Checksums of files below a root. A directory stands for all files in it.

    Raises:
        OSError: a file is missing, or cannot be read.
    """
    found: Checksums = {}
    for path in paths:
        place = f"{root}/{path}"
        if os.path.isdir(place):
            for directory, _, names in os.walk(place):
                for name in names:
                    file = os.path.join(directory, name)
                    found[os.path.relpath(file, root)] = file_checksum(file)
        else:
            found[path] = file_checksum(place)
    return found


# Records


def record_path(name: str) -> str:
    """Path of the record of a write, from its operation id."""
    return f"{CHECKSUMS_DIRECTORY}/{name}.json"


def dump_record(sums: Mapping[str, FileChecksum]) -> bytes:
    """Encode a record: a header line with the checksum of the body, and the body."""
    body = orjson.dumps({path: [each.size, f"{each.crc:08x}"] for path, each in sorted(sums.items())})
    head = orjson.dumps({"version": _VERSION, "algorithm": "crc32", "sum": f"{zlib.crc32(body):08x}"})
    return head + b"\n" + body + b"\n"


def load_record(data: bytes) -> Checksums | None:
    """Decode a record; None if it is damaged, or was written by a newer release."""
    head, _, body = data.partition(b"\n")
    body = body.removesuffix(b"\n")
    try:
        header = orjson.loads(head)
        if (header["version"], header["algorithm"], header["sum"]) != (_VERSION, "crc32", f"{zlib.crc32(body):08x}"):
            return None
        return {path: FileChecksum(int(size), int(crc, 16)) for path, (size, crc) in orjson.loads(body).items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def write_record(objects: ObjectStore, name: str, sums: Mapping[str, FileChecksum]) -> None:
    """Write a record, unless there is nothing to record."""
    if sums:
        objects.put(record_path(name), dump_record(sums))


def record_names(objects: ObjectStore) -> dict[str, int]:
    """Paths and sizes of all records. Skips other files in the directory."""
    listed = objects.list(CHECKSUMS_DIRECTORY)
    return {info.path: info.size for info in listed if _NAME.fullmatch(info.path.rpartition("/")[2])}


def read_records(objects: ObjectStore, paths: Iterable[str]) -> dict[str, Checksums | None]:
    """Read records by path; None for a damaged record. Skips missing records, which were merged into others."""
    found: dict[str, Checksums | None] = {}
    for path in paths:
        with suppress(ObjectNotFoundError):
            found[path] = load_record(objects.get(path).data)
    return found


def merge_records(objects: ObjectStore, *, keep: Callable[[str], bool] | None = None) -> None:
    """Merge records. May be interrupted or run in parallel: a file may then be in two records.

    Args:
        objects: the graph's objects.
        keep: tells whether a file still exists, for a caller that has removed files. Then all records are merged.
            If None, only small records are merged, so that each is rewritten only a few times.
    """
    sizes = record_names(objects)
    chosen = sorted(sizes) if keep is not None else _small(sizes)
    read = {path: sums for path, sums in read_records(objects, chosen).items() if sums is not None}
    merged = {file: each for path in sorted(read) for file, each in (read[path] or {}).items()}
    if keep is not None:
        existing = {file: each for file, each in merged.items() if keep(file)}
        if len(read) <= 1 and len(existing) == len(merged):
            return
        merged = existing
    elif len(read) <= 1:
        return
    if merged:
        objects.put(record_path(ulid_now()), dump_record(merged))
    for path in read:
        objects.delete(path)


def _small(sizes: Mapping[str, int]) -> list[str]:
    """Paths of the records to merge: the smallest `RECORDS_KEPT / 2`, then larger ones in order of size.

    Stops before a record that is more than twice as large as all records chosen before it together.
    """
    chosen: list[str] = []
    total = 0
    for path, size in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
        if len(chosen) >= RECORDS_KEPT // 2 and size > 2 * total:
            break
        chosen.append(path)
        total += size
    return chosen


class ChecksumIndex:
    """Checksums of the files below a local root. Reads the records at the first lookup.

    Args:
        root: the directory of the graph.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._directory = f"{root}/{CHECKSUMS_DIRECTORY}"
        self._lock = Lock()
        self._read: set[str] = set()
        self._seen: int | None = None
        self._sums: Checksums = {}
        self._at_reread = 0
        self.damaged: set[str] = set()
        """Paths of records that cannot be read."""

    def find(self, path: str) -> FileChecksum | None:
        """The recorded checksum of a file; None if there is none."""
        found = self._sums.get(path)
        if found is None and self._changed():
            self.refresh()
            found = self._sums.get(path)
        return found

    def below(self, directory: str) -> Checksums:
        """The recorded checksums of the files in a directory."""
        if self._changed():
            self.refresh()
        prefix = f"{directory}/"
        return {path: each for path, each in self._sums.items() if path.startswith(prefix)}

    def _changed(self) -> bool:
        """Whether records were added or removed since the last `refresh`."""
        try:
            return self._seen is None or os.stat(self._directory).st_mtime_ns != self._seen
        except OSError:
            return False

    def refresh(self) -> None:
        """Read new records."""
        with self._lock:
            try:
                seen = os.stat(self._directory).st_mtime_ns
                names = sorted(name for name in os.listdir(self._directory) if _NAME.fullmatch(name))
            except OSError:
                return
            for name in names:
                if name in self._read:
                    continue
                try:
                    with open(f"{self._directory}/{name}", "rb") as file:
                        sums = load_record(file.read())
                except OSError:
                    continue  # it was merged meanwhile
                if sums is None:
                    self.damaged.add(f"{CHECKSUMS_DIRECTORY}/{name}")
                else:
                    self._sums.update(sums)
                self._read.add(name)
            self._read &= set(names)
            self.damaged &= {f"{CHECKSUMS_DIRECTORY}/{name}" for name in names}
            self._seen = seen if time.time_ns() - seen > _TICK else None
            if len(self._sums) > 2 * self._at_reread + _SPARE:
                self._reread(names)

    def _reread(self, names: Iterable[str]) -> None:
        """Drop the checksums of files that were removed: they are no longer in any record."""
        sums: Checksums = {}
        for name in names:
            try:
                with open(f"{self._directory}/{name}", "rb") as file:
                    found = load_record(file.read())
            except OSError:
                return  # it was merged meanwhile: try again at the next refresh
            if found is None:
                self.damaged.add(f"{CHECKSUMS_DIRECTORY}/{name}")
            else:
                sums.update(found)
        self._sums, self._at_reread = sums, len(sums)
