"""The lease: one writer at a time on a branch, across processes and machines.

The lease object of a branch is never deleted: it holds the fencing number, which only grows. A writer takes the lease
by replacing the object (compare-and-swap by etag), keeps it alive while it works, and gives it back. A lease whose
owner is dead or silent is taken over, with a higher number; the manifest refuses a publisher whose number is lower than
the last one's.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import orjson

from omnigraph.errors import (
    LeaseLostError,
    LeaseTimeoutError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    OmnigraphError,
)
from omnigraph.storage.objects import ObjectStore

LEASE_DIRECTORY = "__lease"
TTL_SECONDS = 30.0
"""How long an owner may be silent before another writer takes over."""

WAIT_SECONDS = 60.0
"""How long a writer waits for the lease before it gives up."""


_held: set[tuple[str, int]] = set()
"""The leases that this process has, as their objects and fencing numbers. Any other that names it was left behind."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, so that others on the same machine can see that it died."""

    host: str
    pid: int
    started: str

    @classmethod
    def here(cls) -> Owner:
        return cls(_host(), os.getpid(), _start_time(os.getpid()) or "")

    def is_dead(self) -> bool:
        """Whether the process is certainly gone. From another machine nobody can say."""
        if self.host != _host():
            return False
        if not _answers(self.pid):
            return True
        started = _start_time(self.pid)
        return started is not None and started != self.started


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What the lease object says. No owner means that it is free."""

    fence: int
    owner: Owner | None
    beat: int = 0
    """Grows with every heartbeat, so that others can see that the owner lives."""

    def dump(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def load(cls, data: bytes) -> LeaseRecord:
        """A record from its object. One that cannot be read, say after a power failure, is a lease that nobody has."""
        try:
            members = orjson.loads(data)
            owner = Owner(**members["owner"]) if members["owner"] else None
            return cls(int(members["fence"]), owner, int(members["beat"]))
        except (KeyError, TypeError, ValueError):
            return cls(0, None)


class Lease:
    """A lease that is held. Use as a context manager; it is given back at the end."""

    def __init__(self, store: ObjectStore, branch: str, record: LeaseRecord, etag: str, ttl: float) -> None:
        self._store = store
        self._path = lease_path(branch)
        self._branch = branch
        self._record = record
        self._etag = etag
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._lost = False
        self._ttl = ttl
        _held.add((self._path, record.fence))
        self._beats = threading.Timer(ttl / 3, self._heartbeat)
        self._beats.daemon = True
        self._beats.start()

    @property
    def fence(self) -> int:
        return self._record.fence

    def check(self) -> None:
        """Make sure, by looking, that the lease is still ours.

        Raises:
            LeaseLostError: another writer took it.
        """
        with self._lock:
            if not self._lost:
                self._lost = not self._is_ours()
            if self._lost:
                raise LeaseLostError(
                    f"another writer took over branch '{self._branch}'",
                    hint="nothing of this write is visible; try again",
                )

    def _is_ours(self) -> bool:
        """Look at the lease object. A heartbeat whose answer was lost may have changed it: that is still ours."""
        try:
            found = self._store.get(self._path)
        except ObjectNotFoundError:
            return False
        record = LeaseRecord.load(found.data)
        if (record.fence, record.owner) != (self._record.fence, self._record.owner):
            return False
        self._record, self._etag = record, found.etag
        return True

    def _heartbeat(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                if self._lost:
                    return
                beaten = replace(self._record, beat=self._record.beat + 1)
                # A store that is out of reach says nothing; the check before publishing decides.
                with suppress(OmnigraphError):
                    try:
                        self._etag = self._store.replace(self._path, beaten.dump(), self._etag)
                        self._record = beaten
                    except ObjectChangedError:
                        self._lost = not self._is_ours()
            self._stop.wait(self._ttl / 3)

    def release(self) -> None:
        """Give the lease back. If it is lost already, there is nothing to give."""
        self._stop.set()
        self._beats.cancel()
        with self._lock:
            _held.discard((self._path, self._record.fence))
            if self._lost:
                return
            self._lost = True
            free = LeaseRecord(self._record.fence, None)
            # A failure leaves a lease that expires; the write itself is done.
            with suppress(OmnigraphError):
                try:
                    self._store.replace(self._path, free.dump(), self._etag)
                except ObjectChangedError:
                    if self._is_ours():
                        self._store.replace(self._path, free.dump(), self._etag)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def lease_path(branch: str) -> str:
    return f"{LEASE_DIRECTORY}/{quote(branch, safe='')}.json"


def acquire(
    store: ObjectStore,
    branch: str,
    *,
    at_least: Callable[[], int] = lambda: 0,
    wait: float = WAIT_SECONDS,
    ttl: float = TTL_SECONDS,
) -> Lease:
    """Take the lease of a branch, waiting for the writer that has it.

    Args:
        store: the graph's objects.
        branch: the graph branch.
        at_least: the number that the manifest has seen; the new one is higher, even when the lease object was lost.
        wait: seconds to wait for it.
        ttl: seconds of silence after which an owner counts as gone.

    Raises:
        LeaseTimeoutError: another writer kept it all the time.
    """
    deadline = time.monotonic() + wait
    seen: tuple[str, float] | None = None
    pause = 0.002
    while True:
        record, etag = _read(store, branch)
        now = time.monotonic()
        if seen is None or seen[0] != etag:
            seen = (etag or "", now)
        silent = now - seen[1] >= ttl
        if record.owner is None or record.owner.is_dead() or silent or _is_left_behind(branch, record):
            taken = LeaseRecord(max(record.fence, at_least()) + 1, Owner.here())
            with suppress(ObjectChangedError, ObjectExistsError):
                return Lease(store, branch, taken, _write(store, branch, taken, etag), ttl)
            continue
        if now >= deadline:
            raise LeaseTimeoutError(
                f"branch '{branch}' is being written by process {record.owner.pid} on {record.owner.host}",
                hint="try again later",
            )
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(pause * 1.5, 0.1)


def _is_left_behind(branch: str, record: LeaseRecord) -> bool:
    """Whether this process had the lease and could not give it back: the disk was full, or the answer came late."""
    return record.owner == Owner.here() and (lease_path(branch), record.fence) not in _held


def _read(store: ObjectStore, branch: str) -> tuple[LeaseRecord, str | None]:
    try:
        found = store.get(lease_path(branch))
    except ObjectNotFoundError:
        return LeaseRecord(0, None), None
    return LeaseRecord.load(found.data), found.etag


def _write(store: ObjectStore, branch: str, record: LeaseRecord, etag: str | None) -> str:
    if etag is None:
        return store.create(lease_path(branch), record.dump())
    return store.replace(lease_path(branch), record.dump(), etag)


def _host() -> str:
    """The machine until it boots again, and the process name space: where a process number means one process."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return "/".join(parts)


def _start_time(pid: int) -> str | None:
    """When a process began, as the kernel counts it; empty when it waits only to be collected.

    None when nobody may say: there is no /proc, or it hides the processes of others.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def _answers(pid: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
