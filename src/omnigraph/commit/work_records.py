"""Work records: keep cleanup away from versions and files of long-running reads and writes.

A long-running read or write, here called *work*, has one object, `__work/<ulid>.json`, with its process, a heartbeat
counter, its kind, and the table versions that it needs. Cleanup keeps these versions. For work that writes files,
cleanup also keeps every file that is younger than the record and belongs to no version yet.

The record is written first, and the removal list is read afterwards: if a needed version is listed or missing, the work
fails with `VersionReclaimedError`. Cleanup writes the list first and reads the records
afterwards. So either cleanup sees the record, or the work sees the list.

To decide whether work is still running, clocks of different machines are never compared. On the same machine, the
process is checked. From another machine, the heartbeat is watched: if it has not changed for one lease time (by default
30 seconds) on the watcher's clock, the work counts as dead. Cleanup removes the record of dead work. If the work was
only paused, it then notices before its publish that its record is missing.
"""

# See docs/decisions/0148-work-leaves-a-record.md

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, field
from datetime import UTC, datetime
from enum import StrEnum

import orjson
from ulid_transform import ulid_now

from omnigraph.commit.json_checksums import verify_checksum, with_checksum
from omnigraph.commit.lease import TTL_SECONDS, Owner
from omnigraph.commit.manifest import Manifest
from omnigraph.commit.removal_list import check_present, state_refs
from omnigraph.commit.signal import Signal
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    ObjectChangedError,
    ObjectNotFoundError,
    OmnigraphError,
    StorageError,
    VersionReclaimedError,
)
from omnigraph.storage.lru_cache import LruCache
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.uri import Scheme

DIRECTORY = "__work"
"""Directory of all records, below the root of the graph."""

BEAT_SECONDS = TTL_SECONDS / 3
"""Interval between renewals of a record."""

LONG_SECONDS = 5.0
"""A query that runs longer than this many seconds gets a record. A shorter query writes no record."""

_NAME = re.compile(rf"{DIRECTORY}/([0-7][0-9a-hjkmnp-tv-z]{{25}})\.json")
_VERSION = 1

Needs = dict[str, dict[str, list[int]]]
"""Version numbers by table, and by fork (Lance branch of the table). The empty name is the table's main branch."""


class WorkKind(StrEnum):
    """Kinds of work with a record."""

    LOAD = "load"
    MERGE = "merge"
    OPTIMIZE = "optimize"
    INDEXES = "indexes"
    EMBED = "embed"
    SCHEMA = "schema"
    PIPELINE = "pipeline"
    EXPORT = "export"
    BACKUP = "backup"
    VERIFY = "verify"
    SPARK_READ = "spark_read"
    QUERY = "query"
    PIN = "pin"
    DIFF = "diff"

    @property
    def writes(self) -> bool:
        """Whether work of this kind writes files into table directories before a manifest points at them."""
        return self in _WRITERS


_WRITERS = (
    WorkKind.LOAD,
    WorkKind.MERGE,
    WorkKind.OPTIMIZE,
    WorkKind.INDEXES,
    WorkKind.EMBED,
    WorkKind.SCHEMA,
)


@dataclass(frozen=True, slots=True)
class WorkRecord:
    """A record as other processes see it.

    Attributes:
        name: its ULID. The staging directory of the work has the same name.
        kind: the kind of work; None if the record cannot be read. The work then counts as one that writes files.
        owner: its process; None if the record cannot be read.
        beat: the heartbeat counter. Processes on other machines consider the work running while the counter changes.
        began: when the record was first written, by the clock of the store.
        seen: when the record was last written, by the clock of the store.
        commits: the commits that it needs. Merge bases between them and the heads of branches are kept, too.
        needs: the table versions that it needs.
        etag: etag of the object that was read.
    """

    name: str
    kind: WorkKind | None
    owner: Owner | None
    beat: str
    began: datetime
    seen: datetime
    commits: frozenset[str]
    needs: frozenset[TableRef]
    etag: str

    @property
    def path(self) -> str:
        return record_path(self.name)

    @property
    def writes(self) -> bool:
        """Whether this work may have written files that belong to no table version yet."""
        return self.kind is None or self.kind.writes


class Work:
    """A record of this process. Created by `at_work`."""

    def __init__(
        self, objects: ObjectStore, kind: WorkKind, name: str, needs: Iterable[Manifest | Iterable[TableRef]] = ()
    ) -> None:
        self.name = name
        self.kind = kind
        self._objects = objects
        self._needs: set[TableRef] = set()
        self._commits: set[str] = set()
        for view in needs:
            self._add(view)
        self._lock = threading.Lock()
        self._beat = 0
        self._began: int | None = None
        self._etag: str | None = None
        self._ended = False

    def need(self, *views: Manifest | Iterable[TableRef]) -> None:
        """Keep the table versions of further states.

        Raises:
            VersionReclaimedError: cleanup has removed one, or is about to.
        """
        with self._lock:
            known = set(self._needs)
            for view in views:
                self._add(view)
            fresh = self._needs - known
            if fresh and self._etag is not None:
                self._write()
        check_present(self._objects, fresh, certain=False)

    def _add(self, view: Manifest | Iterable[TableRef]) -> None:
        if isinstance(view, Manifest):
            self._commits.add(view.head.id)
            self._needs |= state_refs(view)
        else:
            self._needs |= set(view)

    def check(self) -> None:
        """Check that no cleanup has removed the record because the work seemed dead.

        To be called after the write's sidecar was written, because cleanup sees the sidecar from then on.

        Raises:
            VersionReclaimedError: the record is missing, and files that the work needs may be missing, too.
        """
        if self._objects.uri.scheme is Scheme.MEMORY:
            return
        try:
            self._objects.get(record_path(self.name))
        except ObjectNotFoundError:
            raise VersionReclaimedError(
                f"a cleanup counted this {self.kind.value} as dead, and may have removed its files",
                hint="nothing of it is visible; run it again",
            ) from None

    # Writes of the record

    def begin(self) -> None:
        """Write the record, then check that the needed versions exist.

        Raises:
            VersionReclaimedError: cleanup has removed a version, or is about to.
            StorageError: the record cannot be written.
        """
        with self._lock:
            if self._ended:
                return
            self._write()
        try:
            check_present(self._objects, self._needs, certain=False)
        except BaseException:
            self.end()
            raise

    def renew(self) -> None:
        """Write the next heartbeat. Does not create a record that was removed."""
        with self._lock, suppress(OmnigraphError):  # the next renewal tries again
            if self._etag is not None and not self._ended:
                self._beat += 1
                self._write()

    def end(self) -> None:
        """Remove the record."""
        with self._lock:
            self._ended = True
            if self._etag is not None:
                self._etag = None
                with suppress(OmnigraphError):  # cleanup removes the records of ended processes
                    self._objects.delete(record_path(self.name))

    def _write(self) -> None:
        path = record_path(self.name)
        if self._etag is None:
            self._etag = self._objects.create(path, self._dump())
            return
        if self._began is None:
            # Cleanup compares this time with the ages of files, so it has to come from the clock of the store, too.
            with suppress(ObjectNotFoundError):
                self._began = int(self._objects.head(path).modified.timestamp() * 1_000_000)
        try:
            self._etag = self._objects.replace(path, self._dump(), self._etag)
        except ObjectChangedError:
            # An earlier renewal took effect although its response was lost, or the record was removed.
            self.check()
            self._etag = self._objects.get(path).etag

    def _dump(self) -> bytes:
        needs: Needs = {}
        for ref in sorted(self._needs, key=lambda ref: (ref.path, ref.branch or "", ref.version)):
            needs.setdefault(ref.path, {}).setdefault(ref.branch or "", []).append(ref.version)
        members = {
            "version": _VERSION,
            "kind": self.kind.value,
            "owner": asdict(Owner.here()),
            "beat": self._beat,
            "began": self._began,
            "commits": sorted(self._commits),
            "needs": needs,
        }
        return orjson.dumps(with_checksum(members))


def record_path(name: str) -> str:
    return f"{DIRECTORY}/{name}.json"


# Records of this process


@contextmanager
def at_work(
    objects: ObjectStore, kind: WorkKind, *needs: Manifest | Iterable[TableRef], name: str | None = None
) -> Iterator[Work]:
    """Keep a record while the block runs.

    Args:
        objects: the graph's objects. A record need not survive a power failure, because its process ends, too.
        kind: the kind of work.
        needs: the states, or table versions, to keep.
        name: a ULID in lower case, if the work has one already.

    Raises:
        VersionReclaimedError: cleanup has removed a version, or is about to.
        StorageError: the record cannot be written.
    """
    work = Work(objects, kind, name or ulid_now().lower(), needs)
    if objects.uri.scheme is Scheme.MEMORY:
        yield work  # no other process can read a graph in memory, and cleanup does not support it
        return
    work.begin()
    _record_thread.add(work)
    try:
        yield work
    finally:
        _record_thread.discard(work)
        work.end()


@contextmanager
def reading(objects: ObjectStore, kind: WorkKind, view: Manifest | Iterable[TableRef]) -> Iterator[None]:
    """Keep a record while a read runs, if this process may write one.

    Without write permission the read has no record. If cleanup removes its version, it fails with
    `VersionReclaimedError`.
    """
    try:
        work = at_work(objects, kind, view)
        work.__enter__()
    except StorageError:
        yield
        return
    try:
        yield
    finally:
        work.__exit__(None, None, None)


@contextmanager
def reading_if_long(objects: ObjectStore, kind: WorkKind, view: Manifest | Iterable[TableRef]) -> Iterator[None]:
    """Keep a record if the block runs longer than `LONG_SECONDS`. A shorter block does not touch storage."""
    if objects.uri.scheme is Scheme.MEMORY:
        yield
        return
    delayed = _DelayedRecord(objects, kind, view, time.monotonic() + LONG_SECONDS)
    _record_thread.add_delayed(delayed)
    try:
        yield
    finally:
        _record_thread.discard_delayed(delayed)


@dataclass(eq=False, slots=True)
class _DelayedRecord:
    """A read that gets a record if it runs long."""

    objects: ObjectStore
    kind: WorkKind
    view: Manifest | Iterable[TableRef]
    due: float
    work: Work | None = None
    ended: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        with self.lock:
            if self.ended or self.work is not None:
                return
            work = Work(self.objects, self.kind, ulid_now().lower(), [self.view])
            # Without a record the read continues. It fails if cleanup removes its version before it is done.
            with suppress(OmnigraphError):
                work.begin()
            self.work = work

    def end(self) -> None:
        with self.lock:
            self.ended = True
            if self.work is not None:
                self.work.end()


class _RecordThread:
    """One thread that renews all records of the process, and creates those of long reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake = Signal()
        self._works: set[Work] = set()
        self._delayed: set[_DelayedRecord] = set()
        self._thread: threading.Thread | None = None
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """Forget the records in a forked child process: the parent process renews them."""
        self._lock, self._wake = threading.Lock(), Signal()
        self._works, self._delayed, self._thread = set(), set(), None

    def add(self, work: Work) -> None:
        with self._lock:
            self._works.add(work)
            self._run()

    def discard(self, work: Work) -> None:
        with self._lock:
            self._works.discard(work)

    def add_delayed(self, delayed: _DelayedRecord) -> None:
        with self._lock:
            self._delayed.add(delayed)
            self._run()

    def discard_delayed(self, delayed: _DelayedRecord) -> None:
        with self._lock:
            self._delayed.discard(delayed)
        if delayed.work is not None or not delayed.lock.acquire(blocking=False):
            delayed.end()
            return
        delayed.ended = True
        delayed.lock.release()

    def _run(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="omnigraph work records", daemon=True)
            self._thread.start()
        if not self._wake.is_set:
            self._wake.set()

    def _beat(self) -> None:
        renewed = time.monotonic()
        while True:
            self._wake.wait()
            time.sleep(min(1.0, BEAT_SECONDS, LONG_SECONDS))
            now = time.monotonic()
            with self._lock:
                due = [delayed for delayed in self._delayed if delayed.work is None and delayed.due <= now]
                works = list(self._works)
                delayed_works = [delayed.work for delayed in self._delayed if delayed.work is not None]
                if not self._works and not self._delayed:
                    self._wake.clear()
            for delayed in due:
                delayed.begin()
            if now - renewed >= BEAT_SECONDS:
                renewed = now
                for work in (*works, *delayed_works):
                    work.renew()


_record_thread = _RecordThread()


# Records of other processes


def read_records(objects: ObjectStore) -> list[WorkRecord]:
    """All records, oldest first, including those of dead work. Skips other files."""
    found = []
    for info in objects.list(DIRECTORY):
        named = _NAME.fullmatch(info.path)
        if named is not None:
            with suppress(ObjectNotFoundError):  # its work has just ended
                found.append(_read(objects, named[1], info.modified))
    return found


def _read(objects: ObjectStore, name: str, modified: datetime) -> WorkRecord:
    stored = objects.get(record_path(name))
    try:
        members = verify_checksum(orjson.loads(stored.data))
        micros = members["began"]
        return WorkRecord(
            name,
            WorkKind(members["kind"]),
            Owner(**members["owner"]),
            str(members["beat"]),
            modified if micros is None else datetime.fromtimestamp(micros / 1_000_000, UTC),
            modified,
            frozenset(map(str, members["commits"])),
            frozenset(_refs(members["needs"])),
            stored.etag,
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return WorkRecord(name, None, None, stored.etag, modified, modified, frozenset(), frozenset(), stored.etag)


def _refs(needs: Mapping[str, Mapping[str, Sequence[int]]]) -> Iterator[TableRef]:
    for path, forks in needs.items():
        for fork, versions in forks.items():
            yield from (TableRef(path, fork or None, int(version)) for version in versions)


_WATCHED = 10_000
"""Maximum number of records that are watched. Most of them end without being removed by this process."""


class Watch:
    """Finds records whose work is dead: the process has ended, or its heartbeat does not change any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: LruCache[tuple[str, float]] = LruCache(_WATCHED)

    def is_alive(self, record: WorkRecord, ttl: float) -> bool:
        """Whether the work of a record may still be running."""
        if record.owner is not None and record.owner.host == Owner.here().host:
            return not record.owner.is_dead()
        now = time.monotonic()
        with self._lock:
            beat, since = self._seen.get(record.name) or ("", now)
            if beat != record.beat:
                since = now
                self._seen.put(record.name, (record.beat, now))
        return now - since < ttl

    def live(self, objects: ObjectStore, ttl: float, *, wait: bool) -> tuple[list[WorkRecord], list[WorkRecord]]:
        """The records of running work, and the records of dead work.

        Args:
            objects: the graph's objects.
            ttl: seconds without a heartbeat after which work is dead.
            wait: whether to watch each record of another machine until its heartbeat changes or `ttl` has passed. If
                not, work that was watched for less than `ttl` counts as running.
        """
        first: dict[str, str] = {}
        while True:
            records = read_records(objects)
            states = [(record, self.is_alive(record, ttl)) for record in records]
            doubtful = [
                record
                for record, alive in states
                if alive and _is_foreign(record) and first.setdefault(record.name, record.beat) == record.beat
            ]
            if not wait or not doubtful:
                alive = [record for record, lives in states if lives]
                return alive, [record for record, lives in states if not lives]
            time.sleep(min(1.0, ttl / 10))


def _is_foreign(record: WorkRecord) -> bool:
    return record.owner is None or record.owner.host != Owner.here().host


watch = Watch()


def remove_dead(objects: ObjectStore, records: Iterable[WorkRecord]) -> list[WorkRecord]:
    """Remove the records of dead work. Returns the records that stay because their heartbeat has changed."""
    awake = []
    for record in records:
        try:
            objects.delete_if(record.path, record.etag)
            objects.delete(record.path)  # removes the tombstone that `delete_if` leaves in S3; the name is never reused
        except ObjectChangedError:
            awake.append(record)
    return awake
