"""Verify the files of a ledger: all version files, and all their parts.

Does not use Lance: version files are parsed, and compared with their seals (see `ledger_seal`). On a local disk, parts
are compared with their sizes and checksums. In an object store they are compared with their sizes, from one listing per
directory.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field

import orjson

from omnigraph.dataclass import dataclass
from omnigraph.errors import CorruptionError, DamagedFileError, ObjectNotFoundError
from omnigraph.storage.checksums import file_checksum
from omnigraph.storage.file_checks import FileDamage
from omnigraph.storage.lance_manifest import (
    ManifestFile,
    TornManifestError,
    column,
    damage,
    entry,
    fragment_layout,
    read,
    version_of,
)
from omnigraph.storage.latest_version import VERSIONS
from omnigraph.storage.ledger_seal import SEAL
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.objects.os_failures import refuse_forbidden
from omnigraph.storage.table_files import below
from omnigraph.storage.table_ref import manifest_name, table_directory
from omnigraph.storage.uri import Scheme
from omnigraph.worker_pool import WorkerPool

_READERS = 8


@dataclass(frozen=True, slots=True)
class _Part:
    """The file of a part: its size, and its checksum if one is recorded."""

    size: int | None
    crc: str | None


@dataclass(slots=True)
class VerifiedLedger:
    """The result of a check of a ledger's files.

    Attributes:
        damages: the damaged files, by path.
        files: number of files.
        size: their size in bytes.
        unsummed: number of files without a recorded checksum.
    """

    damages: dict[str, FileDamage] = field(default_factory=dict)
    files: int = 0
    size: int = 0
    unsummed: int = 0

    def add(self, path: str, reason: str) -> None:
        self.damages.setdefault(path, FileDamage(path, reason))


def verify_ledger(
    objects: ObjectStore, path: str, wanted: Mapping[str | None, Collection[int] | None]
) -> VerifiedLedger:
    """Check version files of a ledger, and all their parts.

    Args:
        objects: the graph's objects.
        path: path of the ledger below the root.
        wanted: versions by branch; None for all. Skips missing versions, which cleanup may have removed.
    """
    result = VerifiedLedger()
    parts: dict[str, _Part] = {}
    for branch, versions in wanted.items():
        directory = table_directory(path, branch)
        files = {
            version: info.path
            for info in objects.list(f"{directory}/{VERSIONS}")
            if (version := version_of(info.path.rpartition("/")[2])) is not None
            and info.path == f"{directory}/{VERSIONS}/{manifest_name(version)}"
            and (versions is None or version in versions)
        }
        _verify_versions(objects, path, directory, files, result, parts)
    if objects.uri.scheme is Scheme.LOCAL:
        _verify_checksums(objects, parts, result)
    else:
        _verify_sizes(objects, parts, result)
    return result


def _verify_versions(
    objects: ObjectStore,
    ledger: str,
    directory: str,
    files: Mapping[int, str],
    result: VerifiedLedger,
    parts: dict[str, _Part],
) -> None:
    unsealed: list[str] = []
    sealed = False
    for version, data in _contents(objects, sorted(files.items())):
        path = files[version]
        if data is None:
            continue  # it was removed during the check
        result.files += 1
        result.size += len(data)
        try:
            manifest = _parsed(data, version)
            note = _sealed_parts(manifest, version)
            parts |= _parts(ledger, directory, manifest, note)
        except TornManifestError as error:
            result.add(path, str(error))
            continue
        except (CorruptionError, DamagedFileError) as error:
            result.add(path, f"invalid content: {error.message}")
            continue
        if note is not None:
            sealed = True
        elif sealed:
            # Once a version has a seal, all later versions have one, too.
            result.add(path, "its checksum record (seal) is missing")
        else:
            unsealed.append(path)
    result.unsummed += len(unsealed)


def _contents(objects: ObjectStore, files: Iterable[tuple[int, str]]) -> Iterable[tuple[int, bytes | None]]:
    def get(item: tuple[int, str]) -> tuple[int, bytes | None]:
        try:
            return item[0], objects.get(item[1]).data
        except ObjectNotFoundError:
            return item[0], None

    if objects.uri.scheme is Scheme.LOCAL:
        yield from map(get, files)
        return
    with WorkerPool(_READERS) as readers:
        yield from readers.map(get, files)


def _parsed(data: bytes, version: int) -> ManifestFile:
    reason = damage(data, version)
    if reason is not None:
        raise TornManifestError(reason)
    return read(data)


def _sealed_parts(manifest: ManifestFile, version: int) -> dict[str, _Part] | None:
    """The parts in the seal of a version; None for a version without a seal."""
    text = dict(entry(each) for each in manifest.metadata).get(SEAL.decode())
    if text is None:
        return None
    crc, _, note = text.partition(b" ")
    if crc != f"{zlib.crc32(note):08x}".encode():
        raise TornManifestError("its record of parts and checksums (seal) is damaged")
    seal = orjson.loads(note)
    if seal["version"] != version:
        raise TornManifestError(f"it is the file of version {seal['version']}, not {version}")
    layouts = [fragment_layout(fragment) for fragment in manifest.fragments]
    if [each[:-1] for each in seal["parts"]] != [[part.path, part.size, part.rows] for part in layouts]:
        raise TornManifestError("it names other parts than its checksum record (seal)")
    numbers = list(range(len(seal["columns"])))
    named = [(number, each[0]) for number, each in zip(numbers, seal["columns"], strict=True)]
    if [column(each) for each in manifest.columns] != named:
        raise TornManifestError("it has other columns than its checksum record (seal)")
    if any(part.columns != numbers for part in layouts):
        raise TornManifestError("the columns of its parts differ from its checksum record (seal)")
    return {name: _Part(size, crc) for name, size, _, crc in seal["parts"]}


def _parts(ledger: str, directory: str, manifest: ManifestFile, note: dict[str, _Part] | None) -> dict[str, _Part]:
    """The parts of a version with their paths below the root."""
    found: dict[str, _Part] = {}
    for fragment in manifest.fragments:
        part = fragment_layout(fragment)
        if part.base is not None and part.base not in manifest.bases:
            raise TornManifestError(f"it refers to base directory {part.base}, which does not exist")
        place = directory if part.base is None else below(manifest.bases[part.base], ledger)
        noted = None if note is None else note.get(part.path)
        found[f"{place}/data/{part.path}"] = noted or _Part(part.size, None)
    return found


def _verify_checksums(objects: ObjectStore, parts: Mapping[str, _Part], result: VerifiedLedger) -> None:
    root = objects.uri.path

    def check(item: tuple[str, _Part]) -> tuple[int, str | None]:
        path, part = item
        try:
            if part.crc is None:
                size = os.stat(f"{root}/{path}").st_size
            else:
                found = file_checksum(f"{root}/{path}")
                size = found.size
                if size == part.size and f"{found.crc:08x}" != part.crc:
                    return size, "its checksum does not match"
        except FileNotFoundError:
            return 0, "it is missing"
        except OSError as error:
            refuse_forbidden(error, root, path)
            return 0, f"it cannot be read: {error.strerror}"
        return size, None if part.size in (None, size) else f"it has {size} bytes, not {part.size}"

    with WorkerPool(_READERS) as readers:
        for (path, part), (size, reason) in zip(parts.items(), readers.map(check, parts.items()), strict=True):
            result.files += 1
            result.size += size
            result.unsummed += part.crc is None
            if reason is not None:
                result.add(path, reason)


def _verify_sizes(objects: ObjectStore, parts: Mapping[str, _Part], result: VerifiedLedger) -> None:
    directories = {path.rpartition("/")[0] for path in parts}
    sizes = {info.path: info.size for directory in directories for info in objects.list(directory)}
    for path, part in parts.items():
        result.files += 1
        result.unsummed += 1
        found = sizes.get(path)
        if found is None:
            result.add(path, "it is missing")
            continue
        result.size += found
        if part.size not in (None, found):
            result.add(path, f"it has {found} bytes, not {part.size}")
