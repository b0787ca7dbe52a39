"""Staging directories: rows that loads, merges and exports on Spark write temporarily.

A directory has the name of its work record (`work_records`), if there is one. A directory without a record holds rows
whose load has not started, or parts of an export. Then the times of its files show when it was last used.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from ulid_transform import ulid_to_timestamp

from omnigraph.dataclass import dataclass
from omnigraph.storage.objects import ObjectInfo, ObjectStore, local
from omnigraph.storage.uri import Scheme

DIRECTORY = "__staging"
"""Parent directory of all staging directories, below the root of the graph."""

_NAME = re.compile(rf"{DIRECTORY}/([0-7][0-9a-hjkmnp-tv-z]{{25}})/.+")


@dataclass(frozen=True, slots=True)
class StagingDirectory:
    """One staging directory.

    Attributes:
        name: its ULID.
        newest: when its last file was written, by the clock of the store.
        size: bytes of all its files.
    """

    name: str
    newest: datetime
    size: int

    @property
    def began(self) -> datetime:
        return datetime.fromtimestamp(ulid_to_timestamp(self.name) / 1000, UTC)

    @property
    def directory(self) -> str:
        return f"{DIRECTORY}/{self.name}"


def staging_directories(objects: ObjectStore) -> list[StagingDirectory]:
    """All directories that are not empty, oldest first. Skips other files."""
    found: dict[str, list[ObjectInfo]] = {}
    for info in objects.list(DIRECTORY):
        named = _NAME.fullmatch(info.path)
        if named is not None:
            found.setdefault(named[1], []).append(info)
    return [
        StagingDirectory(name, max(info.modified for info in infos), sum(info.size for info in infos))
        for name, infos in sorted(found.items())
    ]


def delete_empty(objects: ObjectStore, before: datetime) -> None:
    """Remove directories that have been empty since a time. They exist only on a local disk."""
    if objects.uri.scheme is Scheme.LOCAL:
        local.delete_empty(objects.uri, DIRECTORY, before)
