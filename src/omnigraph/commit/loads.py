"""Loads that many processes work on, as others see them: each has a directory, with a record that says whose it is.

What such a load writes into the directories of tables belongs to nobody until its commit. Whoever clears away what
belongs to nobody asks here since when loads are at work. So the record comes before anything that the load writes, is
refreshed while the load lasts, and goes after its commit.

A directory without a record holds rows that nobody has begun to load, or parts of an export. It keeps nothing in the
directories of tables, and its files alone say when it was last heard of.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import orjson
from ulid_transform import ulid_to_timestamp

from omnigraph.commit.lease import Owner
from omnigraph.errors import ObjectNotFoundError, OmnigraphError
from omnigraph.storage.objects import ObjectStore, local
from omnigraph.storage.uri import Scheme

DIRECTORY = "__staging"
"""The directory of all loads, below the root of the graph."""

BEAT_SECONDS = 300.0
"""How often a load says that it lives."""

SILENT_SECONDS = 3600.0
"""How long a load may be silent whose process cannot be seen from here. After that it counts as dead."""

_RECORD = "load.json"
_NAME = re.compile(rf"{DIRECTORY}/([0-7][0-9a-hjkmnp-tv-z]{{25}})/.+")


@dataclass(frozen=True, slots=True)
class StagedLoad:
    """A load that has put something aside.

    Attributes:
        name: its ULID.
        recorded: whether it has a record, and so may have written into tables.
        owner: its process; None when the record cannot be read.
        seen: when the record was last refreshed; without one, when the last file was written.
        newest: when its last file was written.
        size: bytes of all its files.
    """

    name: str
    recorded: bool
    owner: Owner | None
    seen: datetime
    newest: datetime
    size: int

    @property
    def began(self) -> datetime:
        return datetime.fromtimestamp(ulid_to_timestamp(self.name) / 1000, UTC)

    @property
    def directory(self) -> str:
        return f"{DIRECTORY}/{self.name}"

    def is_running(self, now: datetime) -> bool:
        """Whether its process lives, as far as that can be seen or heard from here."""
        if self.owner is not None and self.owner.host == Owner.here().host:
            return not self.owner.is_dead()
        return (now - self.seen).total_seconds() < SILENT_SECONDS


@contextmanager
def recorded(objects: ObjectStore, name: str) -> Iterator[None]:
    """Let everybody see that a load of this process is at work, while the block lasts."""
    path = f"{DIRECTORY}/{name}/{_RECORD}"
    record = orjson.dumps({"version": 1, "owner": asdict(Owner.here())})
    objects.put(path, record)
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            with suppress(OmnigraphError):  # a store out of reach is asked again
                objects.put(path, record)

    thread = threading.Thread(target=beat, name=f"load {name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def staged_loads(objects: ObjectStore) -> list[StagedLoad]:
    """All loads that have put something aside, oldest first, dead ones too."""
    found: dict[str, list[tuple[str, datetime, int]]] = {}
    for info in objects.list(DIRECTORY):
        named = _NAME.fullmatch(info.path)
        if named is not None:
            found.setdefault(named[1], []).append((info.path, info.modified, info.size))
    return [_load(objects, name, files) for name, files in sorted(found.items())]


def _load(objects: ObjectStore, name: str, files: list[tuple[str, datetime, int]]) -> StagedLoad:
    path = f"{DIRECTORY}/{name}/{_RECORD}"
    newest = max(modified for _, modified, _ in files)
    beat = next((modified for file, modified, _ in files if file == path), None)
    owner = None
    with suppress(ObjectNotFoundError, KeyError, TypeError, ValueError):
        owner = Owner(**orjson.loads(objects.get(path).data)["owner"])
    size = sum(size for _, _, size in files)
    return StagedLoad(name, beat is not None, owner, newest if beat is None else beat, newest, size)


def at_work_since(loads: list[StagedLoad], now: datetime) -> datetime:
    """Since when a load has been at work on tables that still is; now, when there is none."""
    return min((load.began for load in loads if load.recorded and load.is_running(now)), default=now)


def delete_empty(objects: ObjectStore, before: datetime) -> None:
    """Remove the directories of loads that have held nothing since a time. Only on a disk there are such."""
    if objects.uri.scheme is Scheme.LOCAL:
        local.delete_empty(objects.uri, DIRECTORY, before)


def now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)
