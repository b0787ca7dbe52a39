"""Checks of the files of a table version on a local disk, before Lance reads them.

Lance opens files itself, so a version is checked as a whole when a process first opens it. Its manifest file is
compared with the *seal* of the version, a checksum in the graph's manifest. All other files are compared with their
recorded sizes, and small files also with their recorded checksums. Files never change, so a process checks each file
once.
"""

# See docs/decisions/0137-a-damaged-index-is-left-out.md

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import field
from hashlib import blake2b

from omnigraph.dataclass import dataclass
from omnigraph.errors import CorruptionError, DamagedFileError
from omnigraph.settings import CHECKED_BYTES
from omnigraph.storage.checksums import ChecksumIndex, file_checksum
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
from omnigraph.storage.lru_cache import LruCache
from omnigraph.storage.objects.os_failures import refuse_forbidden
from omnigraph.storage.table_files import below
from omnigraph.worker_pool import WorkerPool

_REMEMBERED = 100_000
"""Number of checked fragments that a process remembers. Each commit adds some."""

_REMEMBERED_FILES = 10_000
"""Number of checked files that a process remembers: those of indexes and blobs, and of the newest fragments."""

_READERS = 4
_MANY = 32
"""If there are at least this many files, they are read in parallel."""


def checked_bytes() -> int:
    """Size of the largest file that is verified by checksum when it is first opened."""
    text = CHECKED_BYTES.text()
    return int(text if text.isdecimal() else CHECKED_BYTES.default)


@dataclass(frozen=True, slots=True)
class FileDamage:
    """A missing or damaged file.

    Attributes:
        path: the file, below the root of the graph.
        reason: the kind of damage.
        index: the index that the file belongs to; None for other files. A damaged index can be built again.
    """

    path: str
    reason: str
    index: str | None = None

    def error(self, root: str) -> DamagedFileError:
        return DamagedFileError(root, self.path, self.reason)


@dataclass(frozen=True, slots=True)
class FileReport:
    """The result of a check of all files of a state of the graph.

    Attributes:
        checked: number of files.
        size: their size in bytes.
        unsummed: number of files without a recorded checksum: files in an object store, or of older releases.
        damages: the damaged files.
    """

    checked: int
    size: int
    unsummed: int
    damages: tuple[FileDamage, ...]

    @property
    def lost(self) -> bool:
        """Whether a data file is damaged. Damaged indexes do not count, because they can be built again."""
        return any(damage.index is None for damage in self.damages)

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object."""
        return {
            "checked": self.checked,
            "bytes": self.size,
            "without_checksum": self.unsummed,
            "damaged": [{"path": each.path, "reason": each.reason} for each in self.damages],
        }


@dataclass(frozen=True, slots=True)
class VerifiedFiles:
    """The result of a check of all files of a table version.

    Attributes:
        damages: the damaged files.
        files: number of files.
        size: their size in bytes.
        unsummed: number of files without a recorded checksum.
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
        limit: size up to which files are verified by checksum.
    """

    root: str
    limit: int = field(default_factory=checked_bytes)
    sums: ChecksumIndex = field(init=False)
    _sound: LruCache[bool] = field(default_factory=lambda: LruCache(_REMEMBERED_FILES))
    _known: LruCache[bool] = field(default_factory=lambda: LruCache(_REMEMBERED))

    def __post_init__(self) -> None:
        self.sums = ChecksumIndex(self.root)

    def manifest(self, path: str, version: int, expected: str | None) -> ManifestFile | None:
        """Read the manifest file of a version; None if it is missing, which Lance reports.

        Args:
            path: the file, below the root.
            version: the version.
            expected: the seal (recorded checksum) of the file, if it is known.

        Raises:
            DamagedFileError: it is damaged.
        """
        data = self._bytes(path)
        if data is None:
            return None
        try:
            if expected is not None and seal(data) != expected:
                raise DamagedFileError(self.root, path, damage(data, version) or "its checksum does not match")
            found = read(data)
        except TornManifestError:
            raise DamagedFileError(self.root, path, damage(data, version) or "it is truncated or overwritten") from None
        if found.version != version:
            raise DamagedFileError(self.root, path, f"it is the file of version {found.version}, not {version}")
        return found

    def seal_of(self, path: str, version: int) -> str | None:
        """The seal (checksum) of a manifest file that was just written; None if the file is missing.

        Raises:
            DamagedFileError: it is already damaged.
        """
        data = self._bytes(path)
        if data is None:
            return None
        try:
            split(data)  # the fragments are not parsed, because their number grows with the table
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
        """Check the files of a version that this process has not checked yet. Returns damaged files of indexes.

        Args:
            table: directory of the table, below the root.
            directory: directory of its branch, with the manifest file.
            manifest: the parsed manifest file.

        Raises:
            DamagedFileError: a data or deletion file is damaged.
        """
        files: list[tuple[str, NeededFile]] = []
        fresh: set[bytes] = set()
        for fragment in manifest.fragments:
            key = blake2b(fragment, digest_size=16, key=directory.encode()[-64:]).digest()
            if not self._known.get(key):
                fresh.add(key)
                files += self._placed(table, directory, manifest, fragment_files(fragment))
        files += self._placed(table, directory, manifest, manifest.indexes)
        found = self._damages([each for each in files if not self._sound.get(each[0])])
        for each in found:
            if each.index is None:
                raise each.error(self.root)
        for key in fresh:
            self._known.put(key, True)
        return found

    def damages(self, table: str, directory: str, path: str, version: int, expected: str | None) -> list[FileDamage]:
        """The damaged files of a version. If its manifest file is damaged, the other files are not checked."""
        try:
            manifest = self.manifest(path, version, expected)
            if manifest is None:
                return [FileDamage(path, "it is missing")]
            needed = [file for fragment in manifest.fragments for file in fragment_files(fragment)]
            return self._damages(list(self._placed(table, directory, manifest, [*needed, *manifest.indexes])))
        except DamagedFileError as error:
            return [FileDamage(error.path, error.reason)]

    def verify(self, table: str, directory: str, manifest: ManifestFile, *, blobs: bool = True) -> VerifiedFiles:
        """Check all files of a version again, whatever their size."""
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
        return VerifiedFiles(tuple(damages), len(files), size, unsummed)

    def check_file(self, path: str) -> None:
        """Check one file by its recorded checksum, unless this process has done so.

        Raises:
            DamagedFileError: it is damaged.
        """
        if not self._sound.get(path):
            reason = self._damage(path, None)
            if reason is not None:
                raise DamagedFileError(self.root, path, reason)
            self._sound.put(path, True)

    def forget(self, table: str) -> None:
        """Forget which files of a table were checked. They are checked again when they are next opened."""
        prefix = f"{table}/"
        self._known.discard(lambda key: True)
        self._sound.discard(lambda path: isinstance(path, str) and path.startswith(prefix))

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
                raise DamagedFileError(
                    self.root, directory, f"a version refers to base directory {file.base}, which does not exist"
                )

    def _base(self, table: str, directory: str, manifest: ManifestFile, number: int) -> str:
        """A base directory of a version, below the root. Its path is checked, because the seal does not cover it."""
        try:
            return below(manifest.bases[number], table)
        except CorruptionError as error:
            path = f"{directory}/_versions/{2**64 - 1 - manifest.version:020d}.manifest"
            raise DamagedFileError(self.root, path, f"invalid base path: {error.message}") from error

    def _damages(self, files: list[tuple[str, NeededFile]]) -> list[FileDamage]:
        def check(item: tuple[str, NeededFile]) -> FileDamage | None:
            path, file = item
            reason = self._damage(path, file.size)
            if reason is None:
                self._sound.put(path, True)
                return None
            return FileDamage(path, reason, file.index)

        if len(files) < _MANY:
            return [found for item in files if (found := check(item)) is not None]
        with WorkerPool(_READERS) as readers:
            return [found for found in readers.map(check, files) if found is not None]

    def _damage(self, path: str, size: int | None, *, whole: bool = False) -> str | None:
        """A text with the damage of a file; None if the file is intact.

        Args:
            path: the file, below the root.
            size: its size, if the manifest has it.
            whole: whether to verify the checksum of a file of any size.
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
            if recorded is not None and (whole or found <= self.limit) and file_checksum(place).crc != recorded.crc:
                return "its checksum does not match"
        except FileNotFoundError:
            return "it is missing"
        except OSError as error:
            refuse_forbidden(error, self.root, path)
            return f"it cannot be read: {error.strerror}"
        return None
