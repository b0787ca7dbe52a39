"""The lease: one writer at a time on a branch, across processes and machines, first come, first served.

The lease object of a branch is never deleted: it holds the fencing number, which only grows. A writer takes the lease
by replacing the object (compare-and-swap by etag), sends heartbeats while it works, and releases it. If the lease is
taken, the writer adds itself to the list of waiters in the object. A release hands the lease, with the next fencing
number, to the oldest live waiter, so a writer that asks again right after its release cannot overtake waiters.

To decide whether an owner or waiter is alive, clocks of different machines are never compared. On the same machine, its
process is checked. From another machine, its heartbeat is watched, a counter in the object. A counter that does not
change for one lease time (by default 30 seconds) on the clock of the watcher belongs to a dead process. The manifest
refuses a publisher whose fencing number is lower than that of the last publisher.
"""

# See docs/decisions/0031-leases-are-kept.md
# See docs/decisions/0144-turns-in-order.md
# See docs/decisions/0367-an-interrupted-writer-gives-up-the-lease.md

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from urllib.parse import quote
from uuid import uuid4
from weakref import finalize, ref

import orjson

from omnigraph.commit.alarms import ALARMS
from omnigraph.commit.owner import Owner as Owner
from omnigraph.commit.signal import Signal
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    LeaseLostError,
    LeaseTimeoutError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    OmnigraphError,
)
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.uri import Scheme

LEASE_DIRECTORY = "__lease"
TTL_SECONDS = 30.0
"""Seconds without a heartbeat after which an owner or waiter is dead."""

WAIT_SECONDS = 60.0
"""Seconds that a writer waits for the lease."""

_SWAPS = 100
"""Maximum number of attempts to change the lease object while other processes change it, too."""

_FIRST_PAUSE = 0.002
_NEXT_PAUSE, _LATER_PAUSE, _LONGEST_PAUSE = 0.01, 0.05, 0.25
"""Seconds between polls: of the first waiter, of each waiter behind it, and of all waiters after a long wait."""

_REMOTE = 4
"""Factor for the poll intervals in object stores, where every poll is a paid request."""


_ours: set[str] = set()
"""Ids under which this process holds leases or waits for them. Other ids of this process in a lease are stale."""


def _is_certainly_dead(owner: Owner, name: str) -> bool:
    """Whether an owner or waiter is certainly dead: its process has ended, or this process does not use its id.

    The lease object still has an old id of this process if a release failed, because the disk was full or a response
    was late.
    """
    return owner.is_dead() or (owner == Owner.here() and name not in _ours)


@dataclass(frozen=True, slots=True)
class Waiter:
    """A writer that waits for the lease.

    Attributes:
        id: identifies the waiter within its process.
        beat: the heartbeat counter.
    """

    id: str
    owner: Owner
    beat: int = 0


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The content of the lease object. Without an owner, the lease is free.

    Attributes:
        fence: the fencing number of the owner, or of the last one.
        beat: the heartbeat counter of the owner.
        holder: the id that the owner used when it took the lease or waited for it.
        waiters: oldest first.
    """

    fence: int
    owner: Owner | None
    beat: int = 0
    holder: str = ""
    waiters: tuple[Waiter, ...] = ()

    def dump(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def load(cls, data: bytes) -> LeaseRecord:
        """Parse a record. An unreadable record, for example after a power failure, is a free lease."""
        try:
            members = orjson.loads(data)
            owner = Owner(**members["owner"]) if members["owner"] else None
            waiters = tuple(Waiter(w["id"], Owner(**w["owner"]), int(w["beat"])) for w in members.get("waiters", ()))
            return cls(int(members["fence"]), owner, int(members["beat"]), str(members.get("holder", "")), waiters)
        except (AttributeError, KeyError, TypeError, ValueError):
            return cls(0, None)

    def is_same_tenure(self, other: LeaseRecord) -> bool:
        """Whether both records describe the same uninterrupted ownership."""
        return (self.fence, self.holder, self.owner) == (other.fence, other.holder, other.owner)

    def released(self) -> LeaseRecord:
        """The record after a release. The lease passes to the oldest waiter that is not known to be dead."""
        for place, waiter in enumerate(self.waiters):
            if not _is_certainly_dead(waiter.owner, waiter.id):
                return LeaseRecord(self.fence + 1, waiter.owner, waiter.beat, waiter.id, self.waiters[place + 1 :])
        return LeaseRecord(self.fence, None)


class Lease:
    """A held lease. A context manager that releases it at the end.

    Attributes:
        fence: its fencing number.
    """

    def __init__(self, store: ObjectStore, branch: str, record: LeaseRecord, etag: str, ttl: float) -> None:
        self.fence = record.fence
        self._holder = record.holder
        self._store = store
        self._path = lease_path(branch)
        self._branch = branch
        self._record = record
        self._etag = etag
        self._lock = threading.Lock()
        self._stop = Signal()
        self._lost = False
        self._is_ending = False
        # If an interrupted writer could not release the lease, it is garbage collected. Then its heartbeats end.
        self._alarm = partial(_send_heartbeats, ref(self), self._stop, ttl / 3)
        finalize(self, _ours.discard, self._holder).atexit = False
        ALARMS.set(self._alarm, ttl / 3)

    def check(self) -> None:
        """Read the object and check that this process still holds the lease.

        Raises:
            LeaseLostError: another writer took it.
        """
        with self._lock:
            if not self._lost:
                self._lost = not self._is_ours()
            if self._lost:
                raise LeaseLostError(
                    f"another writer took the lease of branch '{self._branch}'",
                    hint="nothing of this write is visible; try again",
                )

    def _is_ours(self) -> bool:
        """Read the lease object again. Returns whether this process still holds the lease.

        The object also changes when a waiter joins, or when a heartbeat takes effect but its response is lost.
        """
        try:
            found = self._store.get(self._path)
        except ObjectNotFoundError:
            return False
        record = LeaseRecord.load(found.data)
        if not record.is_same_tenure(self._record):
            return False
        self._record, self._etag = record, found.etag
        return True

    def _swap(self, change: Callable[[LeaseRecord], LeaseRecord]) -> bool:
        """Change the object while the lease is held, and retry when waiters change it. False if the lease is lost."""
        for _ in range(_SWAPS):
            changed = change(self._record)
            try:
                self._etag = self._store.replace(self._path, changed.dump(), self._etag)
            except ObjectChangedError:
                if not self._is_ours():
                    return False
            else:
                self._record = changed
                return True
        return True

    def _renew(self) -> bool:
        """Send a heartbeat. Returns False if the lease is lost or released."""
        with self._lock:
            # If the store cannot be reached, the lease may still be held. It is checked again before the publish.
            with suppress(OmnigraphError):
                self._lost = self._lost or not self._swap(lambda record: replace(record, beat=record.beat + 1))
            return not self._lost

    def release(self) -> None:
        """Hand the lease to the oldest waiter, or release it. Does nothing if it is lost or released."""
        self._stop.set()
        ALARMS.cancel(self._alarm)
        with self._lock:
            if not self._lost:
                # An interrupted release is repeated once only, because the store may not answer.
                self._lost, self._is_ending = self._is_ending, True
                # If this fails, the lease expires. This process can take it at once: the id is not in `_ours` any more.
                with suppress(OmnigraphError):
                    self._swap(LeaseRecord.released)
                self._lost = True
            _ours.discard(self._holder)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _send_heartbeats(lease: ref[Lease], stop: Signal, seconds: float) -> None:
    """Send heartbeats until a lease is released or lost, or nobody has it any more."""
    while not stop.is_set:
        held = lease()
        if held is None or not held._renew():
            return
        del held
        stop.wait(seconds)


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
    """Take the lease of a branch, after all writers that came first.

    Args:
        store: the graph's objects.
        branch: the graph branch.
        at_least: the fencing number in the manifest. The new number is higher, even if the lease object was lost.
        wait: seconds to wait. With 0, the writer does not join the queue.
        ttl: seconds without a heartbeat after which an owner or waiter is dead.

    Raises:
        LeaseTimeoutError: other writers held it all the time.
    """
    return _Acquisition(store, branch, at_least, wait, ttl).take()


def owner_of(store: ObjectStore, branch: str) -> Owner | None:
    """The process that holds the lease of a branch; None if the lease is free or its owner is dead."""
    try:
        owner = LeaseRecord.load(store.get(lease_path(branch)).data).owner
    except ObjectNotFoundError:
        return None
    return None if owner is None or owner.is_dead() else owner


class _Watch:
    """Finds dead owners and waiters by their heartbeats, on the clock of this process."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._seen: dict[str, tuple[int, float]] = {}

    def is_dead(self, member: str, owner: Owner, beat: int, now: float) -> bool:
        """Whether an owner or waiter is dead, by its process or by its missing heartbeats."""
        seen = self._seen.get(member)
        if seen is None or seen[0] != beat:
            self._seen[member] = seen = (beat, now)
        return now - seen[1] >= self._ttl or _is_certainly_dead(owner, member)


class _Acquisition:
    """The acquisition by one writer: poll, join the queue, send heartbeats, and take the lease when it is first."""

    def __init__(self, store: ObjectStore, branch: str, at_least: Callable[[], int], wait: float, ttl: float) -> None:
        self._store = store
        self._branch = branch
        self._at_least = at_least
        self._ttl = ttl
        self._began = time.monotonic()
        self._deadline = self._began + wait
        self._me = Waiter(uuid4().hex, Owner.here())
        self._joined = False
        self._beaten = self._began
        self._pause = _FIRST_PAUSE
        self._slower = _REMOTE if store.uri.scheme is Scheme.S3 else 1
        self._watch = _Watch(ttl)

    def take(self) -> Lease:
        _ours.add(self._me.id)
        try:
            while True:
                taken = self._poll()
                if taken is not None:
                    return taken
        except BaseException:
            # First, because an interrupt may end `_leave`. Writers of this process then remove the waiter at once, and
            # those of other processes because its heartbeat stops.
            _ours.discard(self._me.id)
            if self._joined:
                with suppress(OmnigraphError):
                    self._leave()
            raise

    def _poll(self) -> Lease | None:
        record, etag = self._read()
        now = time.monotonic()
        if self._is_mine(record):
            assert etag is not None
            return self._held(record, etag)  # another process has handed the lease over to this writer
        waiters = [w for w in record.waiters if w.id == self._me.id or not self._is_dead(w, now)]
        if self._is_free(record, now) and (not waiters or waiters[0].id == self._me.id):
            rest = tuple(waiter for waiter in waiters if waiter.id != self._me.id)
            fence = max(record.fence, self._at_least()) + 1
            taken = LeaseRecord(fence, self._me.owner, self._me.beat, self._me.id, rest)
            with suppress(ObjectChangedError, ObjectExistsError):
                return self._held(taken, self._write(taken, etag))
            return None
        if now >= self._deadline:
            raise self._timeout(record)
        if self._stay_in_queue(record, etag, waiters, now):
            place = next((i for i, waiter in enumerate(waiters) if waiter.id == self._me.id), len(waiters))
            self._sleep(place, now)
        return None

    def _stay_in_queue(self, record: LeaseRecord, etag: str | None, waiters: list[Waiter], now: float) -> bool:
        """Stay in the queue with a new heartbeat, and remove dead waiters. False if the object has changed."""
        place = next((i for i, waiter in enumerate(waiters) if waiter.id == self._me.id), None)
        due = now - self._beaten >= self._ttl / 3
        if place is not None and not due and len(waiters) == len(record.waiters):
            return True
        me = replace(self._me, beat=self._me.beat + 1)
        listed = [*waiters, me] if place is None else [*waiters[:place], me, *waiters[place + 1 :]]
        try:
            self._write(replace(record, waiters=tuple(listed)), etag)
        except (ObjectChangedError, ObjectExistsError):
            return False
        self._me, self._joined, self._beaten = me, True, now
        return True

    def _sleep(self, place: int, now: float) -> None:
        """Sleep until the next poll: short for the first waiter, longer for later waiters and after a long wait."""
        waited = (now - self._began) / 20
        longest = max(_NEXT_PAUSE if place == 0 else min(_LATER_PAUSE * place, _LONGEST_PAUSE), waited)
        self._pause = min(self._pause * 1.5, longest, _LONGEST_PAUSE)
        time.sleep(min(self._pause * self._slower * random.uniform(0.5, 1.5), max(self._deadline - now, 0.0)))

    def _leave(self) -> None:
        """Leave the queue, and pass the lease on if it was handed over just now."""
        for _ in range(_SWAPS):
            record, etag = self._read()
            if self._is_mine(record):
                changed = record.released()
            else:
                changed = replace(record, waiters=tuple(w for w in record.waiters if w.id != self._me.id))
            if changed == record:
                return
            with suppress(ObjectChangedError):
                self._write(changed, etag)
                return

    def _is_mine(self, record: LeaseRecord) -> bool:
        return record.owner == self._me.owner and record.holder == self._me.id

    def _is_free(self, record: LeaseRecord, now: float) -> bool:
        if record.owner is None:
            return True
        return self._watch.is_dead(record.holder, record.owner, record.beat, now)

    def _is_dead(self, waiter: Waiter, now: float) -> bool:
        return self._watch.is_dead(waiter.id, waiter.owner, waiter.beat, now)

    def _held(self, record: LeaseRecord, etag: str) -> Lease:
        return Lease(self._store, self._branch, record, etag, self._ttl)

    def _timeout(self, record: LeaseRecord) -> LeaseTimeoutError:
        owner = record.owner
        by = "others" if owner is None else f"process {owner.pid} on {owner.host}"
        return LeaseTimeoutError(f"branch '{self._branch}' is in use by another writer: {by}", hint="try again later")

    def _read(self) -> tuple[LeaseRecord, str | None]:
        try:
            found = self._store.get(lease_path(self._branch))
        except ObjectNotFoundError:
            return LeaseRecord(0, None), None
        return LeaseRecord.load(found.data), found.etag

    def _write(self, record: LeaseRecord, etag: str | None) -> str:
        if etag is None:
            return self._store.create(lease_path(self._branch), record.dump())
        return self._store.replace(lease_path(self._branch), record.dump(), etag)
