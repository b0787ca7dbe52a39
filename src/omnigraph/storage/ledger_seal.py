"""The seal of a ledger version: a record of its columns and parts, with checksums, stored in the version itself.

A ledger defines which table versions are visible, so a flipped bit in it must be detected. Every version stores in its
schema metadata the size, row count and checksum of each part's file, and a checksum of this seal. The seal has its
version number, too, so an older file under a newer name is detected.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import field

import orjson
import pyarrow as pa
from lance import LanceDataset
from lance.fragment import FragmentMetadata

from omnigraph.dataclass import dataclass
from omnigraph.errors import DamagedFileError
from omnigraph.storage.checksums import file_checksum
from omnigraph.storage.latest_version import latest_damage
from omnigraph.storage.lru_cache import LruCache
from omnigraph.storage.objects.os_failures import refuse_forbidden
from omnigraph.storage.table_files import data_file_name

SEAL = b"omnigraph:parts"

_REMEMBERED = 2_000
"""Number of verified files that a process remembers. Each commit adds a file, and a version has a few dozen."""


@dataclass(slots=True)
class Parts:
    """The files of a ledger's parts, verified once per process. If there are very many, the oldest are verified again.

    Attributes:
        root: the root of the graph in the form that Lance takes.
    """

    root: str
    _sound: LruCache[bool] = field(default_factory=lambda: LruCache(_REMEMBERED))

    @property
    def on_disk(self) -> bool:
        return "://" not in self.root

    def sums(self, directory: str, added: Sequence[FragmentMetadata]) -> dict[str, str | None]:
        """Checksums of new parts by file name. None in an object store, where the files would have to be read again."""
        files = [data_file_name(file) for part in added for file in part.files]
        if not self.on_disk:
            return dict.fromkeys(files)
        found = {name: f"{file_checksum(f'{self.root}/{directory}/data/{name}').crc:08x}" for name in files}
        for name in files:
            self._sound.put(f"{directory}/data/{name}", True)
        return dict(found)

    def check(self, path: str, expected: str | None, version_path: str) -> None:
        """Verify the file of a part by its checksum.

        Args:
            path: the file, below the root.
            expected: its checksum; None if it was not recorded.
            version_path: the version file that names the part. If the part is missing, this file may be the damaged
                one: a version file of another branch names parts that this branch does not have.

        Raises:
            DamagedFileError: it is damaged.
        """
        if expected is None or self._sound.get(path) or not self.on_disk:
            return
        try:
            found = file_checksum(f"{self.root}/{path}")
        except FileNotFoundError:
            raise self._missing(path, version_path) from None
        except OSError as error:
            refuse_forbidden(error, self.root, path)
            raise DamagedFileError(self.root, path, f"it cannot be read: {os.strerror(error.errno or 0)}") from error
        if f"{found.crc:08x}" != expected:
            raise DamagedFileError(self.root, path, "its checksum does not match")
        self._sound.put(path, True)

    def _missing(self, path: str, version_path: str) -> DamagedFileError:
        """The error for a missing part. Names the newest version file, if that has the content of another version."""
        damaged = None
        if not os.path.exists(f"{self.root}/{version_path}"):
            damaged = latest_damage(self.root, os.path.dirname(os.path.dirname(version_path)))
        return damaged or DamagedFileError(self.root, path, f"it is missing, and {version_path} names it")


def sealed_schema(
    schema: pa.Schema, version: int, parts: Sequence[FragmentMetadata], sums: Mapping[str, str | None]
) -> pa.Schema:
    """The schema of a version, with its seal."""
    seal = {"version": version, "columns": _columns(schema), "parts": [[*_part_entry(p), _sum(p, sums)] for p in parts]}
    note = orjson.dumps(seal)
    return schema.with_metadata({**(schema.metadata or {}), SEAL: f"{zlib.crc32(note):08x} ".encode() + note})


def read_seal(
    dataset: LanceDataset, root: str, path: str, version: int, parts: Sequence[FragmentMetadata]
) -> dict[str, str | None] | None:
    """Checksums of the parts of a version by file name; None for a version without a seal.

    Args:
        dataset: the version.
        root: the root of the graph.
        path: the version's file, below the root.
        version: its number.
        parts: its parts.

    Raises:
        DamagedFileError: the version is damaged.
    """
    schema: pa.Schema = dataset.schema
    text = (schema.metadata or {}).get(SEAL)
    if text is None:
        return None
    crc, _, note = text.partition(b" ")
    if crc != f"{zlib.crc32(note):08x}".encode():
        raise DamagedFileError(root, path, "its record of parts and checksums (seal) is damaged")
    seal = orjson.loads(note)
    if seal["version"] != version:
        raise DamagedFileError(root, path, f"it is the file of version {seal['version']}, not {version}")
    if seal["columns"] != _columns(schema):
        raise DamagedFileError(root, path, "it has other columns than its checksum record (seal)")
    if [each[:-1] for each in seal["parts"]] != [_part_entry(part) for part in parts]:
        raise DamagedFileError(root, path, "it names other parts than its checksum record (seal)")
    # A part is written as a whole, so its columns are numbered from 0. With another number, Lance would read another
    # column, or nulls.
    numbers = list(range(len(schema)))
    files = [part.files[0] for part in parts]
    if [member.id() for member in dataset.lance_schema.fields()] != numbers:
        raise DamagedFileError(root, path, "its column numbers differ from its checksum record (seal)")
    if any(list(file.fields) != numbers or list(file.column_indices) != numbers for file in files):
        raise DamagedFileError(root, path, "the columns of its parts differ from its checksum record (seal)")
    if any(len(part.files) != 1 or part.deletion_file is not None for part in parts):
        raise DamagedFileError(root, path, "its parts have unexpected files")
    return {each[0]: each[-1] for each in seal["parts"]}


def _columns(schema: pa.Schema) -> list[list[str]]:
    return [[field.name, str(field.type), "" if field.nullable else "not null"] for field in schema]


def _part_entry(part: FragmentMetadata) -> list[object]:
    file = part.files[0]
    return [data_file_name(file), file.file_size_bytes, part.num_rows]


def _sum(part: FragmentMetadata, sums: Mapping[str, str | None]) -> str | None:
    return sums.get(data_file_name(part.files[0]))
