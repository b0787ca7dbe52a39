"""Checksums of the files of tables, recorded when a write is committed.

Lance keeps no checksums: most flipped bits in a data file become wrong answers. The files of a table never change, so a
write records the length and checksum of each file that it staged, in one small object, before it commits its first
table. Files of `__manifest` and manifest files have their checksums elsewhere (`ledger`, `TableRef.seal`).

A record that is lost or damaged does no harm: its files have no checksum then. Records are folded into larger ones as
they become many, so that reading them costs by files and not by commits.

Only graphs on a local disk have records. What is written to an object store could only be summed by reading it back,
and the store keeps checksums of its own.
"""

# See docs/decisions/0136-checksums-are-kept-beside-the-tables.md

from __future__ import annotations

import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

import orjson
from ulid_transform import ulid_now

from omnigraph.errors import ObjectNotFoundError
from omnigraph.storage.objects import ObjectStore

CHECKSUMS_DIRECTORY = "__checksums"
RECORDS_KEPT = 128
"""How many records there may be before small ones are folded."""

_VERSION = 1
_NAME = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}\.json")
_CHUNK = 1 << 20
_TICK = 50_000_000
"""Two changes of a directory within so many nanoseconds may have the same time."""


@dataclass(frozen=True, slots=True)
class FileSum:
    """The length of a file, and the CRC-32 of its bytes."""

    size: int
    crc: int


Sums = dict[str, FileSum]
"""Checksums by the path of the file below the root of the graph."""


def sum_file(place: str) -> FileSum:
    """The length and checksum of a file on disk.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    size = crc = 0
    with open(place, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            crc = zlib.crc32(chunk, crc)
    return FileSum(size, crc)


def sum_files(root: str, paths: Iterable[str]) -> Sums:
    """The checksums of files below a root; a directory stands for all files in it.

    Raises:
        OSError: one is not there, or cannot be read.
    """
    found: Sums = {}
    for path in paths:
        place = f"{root}/{path}"
        if os.path.isdir(place):
            for directory, _, names in os.walk(place):
                for name in names:
                    file = os.path.join(directory, name)
                    found[os.path.relpath(file, root)] = sum_file(file)
        else:
            found[path] = sum_file(place)
    return found


# Records


def record_path(name: str) -> str:
    """Where the record of a write is, given its operation id."""
    return f"{CHECKSUMS_DIRECTORY}/{name}.json"


def dump_record(sums: Mapping[str, FileSum]) -> bytes:
    """A record: a line that says what the rest is, with its checksum, and the rest."""
    body = orjson.dumps({path: [each.size, f"{each.crc:08x}"] for path, each in sorted(sums.items())})
    head = orjson.dumps({"version": _VERSION, "algorithm": "crc32", "sum": f"{zlib.crc32(body):08x}"})
    return head + b"\n" + body + b"\n"


def load_record(data: bytes) -> Sums | None:
    """The checksums in a record; None when it is damaged, or of a newer release."""
    head, _, body = data.partition(b"\n")
    body = body.removesuffix(b"\n")
    try:
        said = orjson.loads(head)
        if (said["version"], said["algorithm"], said["sum"]) != (_VERSION, "crc32", f"{zlib.crc32(body):08x}"):
            return None
        return {path: FileSum(int(size), int(crc, 16)) for path, (size, crc) in orjson.loads(body).items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def write_record(objects: ObjectStore, name: str, sums: Mapping[str, FileSum]) -> None:
    """Write a record, unless there is nothing to record."""
    if sums:
        objects.put(record_path(name), dump_record(sums))


def record_names(objects: ObjectStore) -> dict[str, int]:
    """The paths of all records and their sizes; other files in the directory are none of ours."""
    listed = objects.list(CHECKSUMS_DIRECTORY)
    return {info.path: info.size for info in listed if _NAME.fullmatch(info.path.rpartition("/")[2])}


def read_records(objects: ObjectStore, paths: Iterable[str]) -> dict[str, Sums | None]:
    """What some records say; None for one that is damaged. One that is gone was folded."""
    found: dict[str, Sums | None] = {}
    for path in paths:
        with suppress(ObjectNotFoundError):
            found[path] = load_record(objects.get(path).data)
    return found


def fold_records(objects: ObjectStore, *, keep: Callable[[str], bool] | None = None) -> None:
    """Make fewer records of many. May be interrupted, and run beside others: a file may then be in two records.

    Args:
        objects: the graph's objects.
        keep: whether a file is still there, for who has just removed some. All records are folded then; without it,
            the small ones alone, so that each is written again only a few times however many there will be.
    """
    sizes = record_names(objects)
    chosen = sorted(sizes) if keep is not None else _small(sizes)
    read = {path: sums for path, sums in read_records(objects, chosen).items() if sums is not None}
    merged = {file: each for path in sorted(read) for file, each in (read[path] or {}).items()}
    if keep is not None:
        kept = {file: each for file, each in merged.items() if keep(file)}
        if len(read) <= 1 and len(kept) == len(merged):
            return
        merged = kept
    elif len(read) <= 1:
        return
    if merged:
        objects.put(record_path(ulid_now()), dump_record(merged))
    for path in read:
        objects.delete(path)


def refresh_sums(objects: ObjectStore, root: str, paths: Iterable[str]) -> None:
    """Record files anew that were rewritten on purpose: of two records, the later one holds."""
    write_record(objects, ulid_now(), sum_files(root, paths))


def _small(sizes: Mapping[str, int]) -> list[str]:
    """The records to fold: the smallest, and larger ones only if those are at least half as large together."""
    chosen: list[str] = []
    total = 0
    for path, size in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
        if len(chosen) >= RECORDS_KEPT // 2 and size > 2 * total:
            break
        chosen.append(path)
        total += size
    return chosen


class ChecksumIndex:
    """The checksums of the files below a local root, read when they are first asked for.

    Args:
        root: the directory of the graph.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._directory = f"{root}/{CHECKSUMS_DIRECTORY}"
        self._lock = Lock()
        self._read: set[str] = set()
        self._seen: int | None = None
        self._sums: Sums = {}
        self.damaged: set[str] = set()
        """The paths of records that cannot be read."""

    def find(self, path: str) -> FileSum | None:
        """What is recorded about a file. None when nothing is."""
        found = self._sums.get(path)
        if found is None and self._changed():
            self.refresh()
            found = self._sums.get(path)
        return found

    def below(self, directory: str) -> Sums:
        """What is recorded about the files in a directory."""
        if self._changed():
            self.refresh()
        prefix = f"{directory}/"
        return {path: each for path, each in self._sums.items() if path.startswith(prefix)}

    def _changed(self) -> bool:
        """Whether records came or went since the last look."""
        try:
            return self._seen is None or os.stat(self._directory).st_mtime_ns != self._seen
        except OSError:
            return False

    def refresh(self) -> None:
        """Read the records that were not read yet."""
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
                    continue  # folded meanwhile
                if sums is None:
                    self.damaged.add(f"{CHECKSUMS_DIRECTORY}/{name}")
                else:
                    self._sums.update(sums)
                self._read.add(name)
            self._read &= set(names)
            self.damaged &= {f"{CHECKSUMS_DIRECTORY}/{name}" for name in names}
            self._seen = seen if time.time_ns() - seen > _TICK else None
