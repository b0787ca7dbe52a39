"""The newest version of a dataset on a local disk: find its file, and detect damage of this file."""

from __future__ import annotations

import os
from collections.abc import Mapping

import orjson
from lance import LanceDataset
from lance.dataset import Session  # type: ignore[attr-defined]  # public, but not declared so

from omnigraph.dataclass import dataclass
from omnigraph.errors import DamagedFileError, ObjectNotFoundError
from omnigraph.storage.lance_manifest import base_paths, damage, version_of, without_indexes
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.objects.os_failures import refuse_forbidden

VERSIONS = "_versions"
HINT = "latest_version_hint.json"
"""Lance's hint file with the number of the newest version. Lance writes it right after the version."""

TORN = ".torn"
"""Suffix of quarantined files. Lance and this engine ignore them."""


def latest_damage(root: str, directory: str, version: int | None = None) -> DamagedFileError | None:
    """The visible damage of a version's file, by default the newest; None if there is none.

    Args:
        root: the root of the graph. Object stores are not checked.
        directory: the dataset, below the root.
        version: the version.
    """
    if "://" in root:
        return None
    if version is None:
        version = max(versions_on_disk(root, directory), default=0)
    if version == 0:
        return None
    path = f"{directory}/{VERSIONS}/{2**64 - 1 - version:020d}.manifest"
    try:
        with open(f"{root}/{path}", "rb") as file:
            reason = damage(file.read(), version)
    except FileNotFoundError:
        return None
    except OSError as error:
        refuse_forbidden(error, root, path)
        reason = f"it cannot be read: {error.strerror}"
    return None if reason is None else DamagedFileError(root, path, reason)


def versions_on_disk(root: str, directory: str) -> list[int]:
    """The versions of a dataset that have a file."""
    try:
        names = os.listdir(f"{root}/{directory}/{VERSIONS}")
    except OSError:
        return []
    return [version for name in names if (version := version_of(name)) is not None]


def read_local(root: str, path: str) -> bytes:
    """Read a small file.

    Raises:
        OSError: it is missing, or cannot be read.
    """
    with open(f"{root}/{path}", "rb", buffering=0) as file:
        return file.read()


def read_hint(data: bytes) -> int | None:
    """The version in a hint; None if it cannot be read, which does no harm."""
    try:
        version = orjson.loads(data)["version"]
    except (KeyError, TypeError, ValueError):
        return None
    return version if isinstance(version, int) and 0 < version < 2**63 else None


def dump_hint(version: int) -> bytes:
    """Encode a hint in Lance's form."""
    return orjson.dumps({"version": version})


def missing_latest(root: str, directory: str, latest: int) -> DamagedFileError | None:
    """The error for a newest version that was created and is missing; None if there is no evidence.

    The hint file is not enough evidence, because it may be damaged. The transaction file of the version must exist,
    too.

    Args:
        root: the root of the graph. Object stores are not checked.
        directory: the dataset, below the root.
        latest: the newest existing version, listed after the hint was read; 0 for none.
    """
    if "://" in root:
        return None
    try:
        hint = read_hint(read_local(root, f"{directory}/{VERSIONS}/{HINT}")) or 0
        made = os.listdir(f"{root}/{directory}/_transactions")
    except OSError:
        return None
    if hint <= latest or not any(name.startswith(f"{hint - 1}-") for name in made):
        return None
    path = f"{directory}/{VERSIONS}/{2**64 - 1 - hint:020d}.manifest"
    if os.path.exists(f"{root}/{path}"):
        return None  # another process has just created it
    return DamagedFileError(root, path, "the newest version is missing")


def base_directories(dataset: LanceDataset) -> dict[int, str]:
    """Base directories of a version by number, as absolute paths."""
    return base_paths(bytes(dataset._ds.serialized_manifest()))


def opened_without_indexes(dataset: LanceDataset, options: Mapping[str, str] | None) -> LanceDataset:
    """The version without its indexes. All queries use scans."""
    message = without_indexes(bytes(dataset._ds.serialized_manifest()))
    return type(dataset)(
        dataset.uri,
        int(dataset.version),
        serialized_manifest=message,
        storage_options=dict(options) if options else None,
        session=Session(),  # a new session: a session caches the indexes of a version
    )


@dataclass(frozen=True, slots=True)
class TornVersion:
    """A newest version with a visibly damaged file.

    Attributes:
        path: the file, below the root.
        reason: the kind of damage.
    """

    path: str
    version: int
    reason: str
    etag: str


def torn_version(objects: ObjectStore, directory: str) -> TornVersion | None:
    """The newest version of a dataset, if its file is torn."""
    listed = objects.list(f"{directory}/{VERSIONS}")
    versions = [v for info in listed if (v := version_of(info.path.rpartition("/")[2])) is not None]
    if not versions:
        return None
    newest = max(versions)
    path = f"{directory}/{VERSIONS}/{2**64 - 1 - newest:020d}.manifest"
    try:
        found = objects.get(path)
    except ObjectNotFoundError:
        return None
    reason = damage(found.data, newest)
    return None if reason is None else TornVersion(path, newest, reason, found.etag)
