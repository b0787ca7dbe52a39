"""Checking the files of a table version, on a local disk, before Lance reads them.

Lance opens files by itself, so a version is checked as a whole when a process first opens it: its manifest file by the
seal that the graph's manifest has of it, and each file that it needs by length, and by checksum where it is small. A
file is checked once in a process: files never change.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b

from omnigraph.errors import CorruptionError, DamagedFileError
from omnigraph.storage.checksums import ChecksumIndex, sum_file
from omnigraph.storage.lance_manifest import (
    ManifestFile,
    NeededFile,
    TornManifestError,
    damage,
    fragment_files,
    read,
    seal,
    split,
)
from omnigraph.storage.objects.os_failures import refuse_forbidden
from omnigraph.storage.table_files import below

SMALL_BYTES = 8 * 1024 * 1024
LIMIT_VARIABLE = "OMNIGRAPH_CHECKED_BYTES"
"""Files up to so many bytes are compared with their checksums when they are first opened; larger ones by `verify`."""

_READERS = 4
_MANY = 32
"""From so many files on, several are read at once."""


def checked_bytes() -> int:
    """The largest file that is compared with its checksum when it is first opened."""
    said = os.environ.get(LIMIT_VARIABLE, "")
    return int(said) if said.isdecimal() else SMALL_BYTES


@dataclass(frozen=True, slots=True)
class FileDamage:
    """A file that is missing or not what was written.

    Attributes:
        path: the file, below the root of the graph.
        reason: what is wrong with it.
        index: the index that it belongs to. Nothing is lost with it: it can be built again.
    """

    path: str
    reason: str
    index: str | None = None

    def error(self, root: str) -> DamagedFileError:
        return DamagedFileError(root, self.path, self.reason)


@dataclass(frozen=True, slots=True)
class FileReport:
    """What a look at all files of a state of the graph found.

    Attributes:
        checked: how many files there are.
        size: how many bytes they have.
        unsummed: how many have no recorded checksum: those of an object store, and of graphs that older releases wrote.
        damages: the files that are damaged.
    """

    checked: int
    size: int
    unsummed: int
    damages: tuple[FileDamage, ...]

    @property
    def lost(self) -> bool:
        """Whether there is damage that cannot be made up for: an index can be built again."""
        return any(damage.index is None for damage in self.damages)

    def to_json(self) -> dict[str, object]:
        """The report as every surface gives it."""
        return {
            "checked": self.checked,
            "bytes": self.size,
            "without_checksum": self.unsummed,
            "damaged": [{"path": each.path, "reason": each.reason} for each in self.damages],
        }


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at all files of a version found.

    Attributes:
        damages: the files that are damaged.
        files: how many there are.
        size: how many bytes they have.
        unsummed: how many have no recorded checksum.
    """

    damages: tuple[FileDamage, ...]
    files: int
    size: int
    unsummed: int


@dataclass(slots=True)
class FileChecks:
    """Checks the files below the directory of a graph.

    Attributes:
        root: the directory.
        limit: up to which size a file is compared with its checksum.
    """

    root: str
    limit: int = field(default_factory=checked_bytes)
    sums: ChecksumIndex = field(init=False)
    _sound: set[str] = field(default_factory=set)
    _known: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sums = ChecksumIndex(self.root)

    def manifest(self, path: str, version: int, expected: str | None) -> ManifestFile | None:
        """Read the manifest file of a version. None when it is not there: then Lance says so.

        Args:
            path: the file, below the root.
            version: the version.
            expected: the seal of the file, where somebody knows it.

        Raises:
            DamagedFileError: it is not what was written.
        """
        data = self._bytes(path)
        if data is None:
            return None
        try:
            if expected is not None and seal(data) != expected:
                raise DamagedFileError(self.root, path, damage(data, version) or "its checksum is not the recorded one")
            found = read(data)
        except TornManifestError:
            raise DamagedFileError(self.root, path, damage(data, version) or "it is cut or overwritten") from None
        if found.version != version:
            raise DamagedFileError(self.root, path, f"it says that it is version {found.version}, not {version}")
        return found

    def seal_of(self, path: str, version: int) -> str | None:
        """The seal of the manifest file of a version, which was written just now. None when it is not there.

        Raises:
            DamagedFileError: it is damaged already.
        """
        data = self._bytes(path)
        if data is None:
            return None
        try:
            split(data)  # a look at each fragment would cost by the size of the table
            return seal(data)
        except TornManifestError as error:
            raise DamagedFileError(self.root, path, damage(data, version) or str(error)) from None

    def _bytes(self, path: str) -> bytes | None:
        try:
            with open(f"{self.root}/{path}", "rb", buffering=0) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            refuse_forbidden(error, self.root, path)
            raise DamagedFileError(self.root, path, f"it cannot be read: {error.strerror}") from error

    def check(self, table: str, directory: str, manifest: ManifestFile) -> list[FileDamage]:
        """Check the files of a version that this process has not checked yet. Returns the damaged files of indexes.

        Args:
            table: the directory of the table, below the root.
            directory: that of its branch, where the manifest file is.
            manifest: what the manifest file says.

        Raises:
            DamagedFileError: a file of data or deletions is damaged.
        """
        files: list[tuple[str, NeededFile]] = []
        fresh: set[bytes] = set()
        for fragment in manifest.fragments:
            key = blake2b(fragment, digest_size=16, key=directory.encode()[-64:]).digest()
            if key not in self._known:
                fresh.add(key)
                files += self._placed(table, directory, manifest, fragment_files(fragment))
        files += self._placed(table, directory, manifest, manifest.indexes)
        found = self._damages([each for each in files if each[0] not in self._sound])
        for each in found:
            if each.index is None:
                raise each.error(self.root)
        self._known |= fresh
        return found

    def damages(self, table: str, directory: str, path: str, version: int, expected: str | None) -> list[FileDamage]:
        """The damaged files of a version: its manifest file alone, or others that it needs."""
        try:
            manifest = self.manifest(path, version, expected)
            if manifest is None:
                return [FileDamage(path, "it is missing")]
            needed = [file for fragment in manifest.fragments for file in fragment_files(fragment)]
            return self._damages(list(self._placed(table, directory, manifest, [*needed, *manifest.indexes])))
        except DamagedFileError as error:
            return [FileDamage(error.path, error.reason)]

    def look(self, table: str, directory: str, manifest: ManifestFile, *, blobs: bool = True) -> Looked:
        """Look at all files of a version anew, whatever their size, and whatever was checked before."""
        needed = [file for fragment in manifest.fragments for file in fragment_files(fragment)]
        files = dict(self._placed(table, directory, manifest, [*needed, *manifest.indexes]))
        for path in [path for path in files if blobs and path.endswith(".lance") and "/data/" in path]:
            for blob, each in self.sums.below(path.removesuffix(".lance")).items():
                files[blob] = NeededFile(blob, each.size, None)
        damages, size, unsummed = [], 0, 0
        for path, file in files.items():
            reason = self._damage(path, file.size, whole=True)
            if reason is not None:
                damages.append(FileDamage(path, reason, file.index))
                continue
            size += os.stat(f"{self.root}/{path}").st_size
            unsummed += self.sums.find(path) is None
        return Looked(tuple(damages), len(files), size, unsummed)

    def check_file(self, path: str) -> None:
        """Check one file by what is recorded about it, if this process has not done so.

        Raises:
            DamagedFileError: it is not what was written.
        """
        if path not in self._sound:
            reason = self._damage(path, None)
            if reason is not None:
                raise DamagedFileError(self.root, path, reason)
            self._sound.add(path)

    def forget(self, table: str) -> None:
        """Check the files of a table again, should they be opened again."""
        prefix = f"{table}/"
        self._known.clear()
        self._sound -= {path for path in self._sound if path.startswith(prefix)}

    def _placed(
        self, table: str, directory: str, manifest: ManifestFile, files: list[NeededFile] | tuple[NeededFile, ...]
    ) -> Iterator[tuple[str, NeededFile]]:
        """Files with their paths below the root."""
        for file in files:
            if file.base is None:
                yield f"{directory}/{file.name}", file
            elif file.base in manifest.bases:
                yield f"{self._base(table, directory, manifest, file.base)}/{file.name}", file
            else:
                raise DamagedFileError(self.root, directory, f"a version of it lacks base directory {file.base}")

    def _base(self, table: str, directory: str, manifest: ManifestFile, number: int) -> str:
        """A base directory of a version, below the root. The seal leaves them out, so a wrong one shows only here."""
        try:
            return below(manifest.bases[number], table)
        except CorruptionError as error:
            path = f"{directory}/_versions/{2**64 - 1 - manifest.version:020d}.manifest"
            raise DamagedFileError(self.root, path, f"it says that {error.message}") from error

    def _damages(self, files: list[tuple[str, NeededFile]]) -> list[FileDamage]:
        def check(item: tuple[str, NeededFile]) -> FileDamage | None:
            path, file = item
            reason = self._damage(path, file.size)
            if reason is None:
                self._sound.add(path)
                return None
            return FileDamage(path, reason, file.index)

        if len(files) < _MANY:
            return [found for item in files if (found := check(item)) is not None]
        with ThreadPoolExecutor(_READERS) as readers:
            return [found for found in readers.map(check, files) if found is not None]

    def _damage(self, path: str, size: int | None, *, whole: bool = False) -> str | None:
        """What is wrong with a file; None when nothing is.

        Args:
            path: the file, below the root.
            size: its length, where its manifest says it.
            whole: compare it with its checksum, however large it is.
        """
        place = f"{self.root}/{path}"
        recorded = self.sums.find(path)
        expected = size if size is not None else recorded.size if recorded is not None else None
        try:
            found = os.stat(place).st_size
            if expected is not None and found != expected:
                return f"it has {found} bytes, not {expected}"
            if recorded is not None and found != recorded.size:
                return f"it has {found} bytes, not {recorded.size}"
            if recorded is not None and (whole or found <= self.limit) and sum_file(place).crc != recorded.crc:
                return "its checksum is not the recorded one"
        except FileNotFoundError:
            return "it is missing"
        except OSError as error:
            refuse_forbidden(error, self.root, path)
            return f"it cannot be read: {error.strerror}"
        return None
