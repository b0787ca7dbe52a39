"""The lease: one writer at a time on a branch, across processes and machines, in the order in which they came.

The lease object of a branch is never deleted: it holds the fencing number, which only grows. A writer takes the lease
by replacing the object (compare-and-swap by etag), keeps it alive while it works, and gives it back. A writer that
finds it taken adds itself to the list of waiters in the object. Releasing hands the lease, with the next fencing
number, to the oldest waiter that lives, so a writer that comes back at once cannot overtake those who wait.

Whether an owner or a waiter lives is decided without comparing clocks: on the same machine by looking at the process,
otherwise by its heartbeat, a counter in the object. One that stands still for a lease time, on the monotonic clock of
whoever watches it, is dead. The manifest refuses a publisher whose fencing number is lower than the last one's.
"""

# See docs/decisions/0031-leases-are-kept.md
# See docs/decisions/0144-turns-in-order.md

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from urllib.parse import quote
from uuid import uuid4

import orjson

from omnigraph.commit.owner import Owner as Owner
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
"""How long an owner or a waiter may be silent before others go on without it."""

WAIT_SECONDS = 60.0
"""How long a writer waits for the lease before it gives up."""

_SWAPS = 100
"""How often a change of the object is tried while others change it too."""

_FIRST_PAUSE = 0.002
_NEXT_PAUSE, _LATER_PAUSE, _LONGEST_PAUSE = 0.01, 0.05, 0.25
"""How long a waiter sleeps between looks, in seconds: the next in line, those behind it, and after a long wait."""

_REMOTE = 4
"""Sleeps are longer by this factor in object stores, where every look is a request that is paid for."""


_ours: set[str] = set()
"""The ids under which this process has leases or waits for them. Any other that names it was left behind."""


def _is_gone(owner: Owner, name: str) -> bool:
    """Whether an owner or a waiter is certainly no more: its process died, or could not take itself out of the object.

    This process may have failed to give a lease back because the disk was full, or because the answer came late.
    """
    return owner.is_dead() or (owner == Owner.here() and name not in _ours)


@dataclass(frozen=True, slots=True)
class Waiter:
    """A writer that waits for the lease.

    Attributes:
        id: tells it from other waiters of the same process.
        beat: grows with every heartbeat.
    """

    id: str
    owner: Owner
    beat: int = 0


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The content of the lease object. No owner means that the lease is free.

    Attributes:
        fence: the fencing number of the owner, or of the last one.
        beat: grows with every heartbeat of the owner.
        holder: the id under which the owner took or awaited the lease.
        waiters: oldest first.
    """

    fence: int
    owner: Owner | None
    beat: int = 0
    holder: str = ""
    waiters: tuple[Waiter, ...] = ()

    def dump(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def load(cls, data: bytes) -> LeaseRecord:
        """A record from its object. One that cannot be read, say after a power failure, is a lease that nobody has."""
        try:
            members = orjson.loads(data)
            owner = Owner(**members["owner"]) if members["owner"] else None
            waiters = tuple(Waiter(w["id"], Owner(**w["owner"]), int(w["beat"])) for w in members.get("waiters", ()))
            return cls(int(members["fence"]), owner, int(members["beat"]), str(members.get("holder", "")), waiters)
        except (AttributeError, KeyError, TypeError, ValueError):
            return cls(0, None)

    def is_same_tenure(self, other: LeaseRecord) -> bool:
        """Whether both describe one uninterrupted possession of the lease."""
        return (self.fence, self.holder, self.owner) == (other.fence, other.holder, other.owner)

    def released(self) -> LeaseRecord:
        """The record after its owner is done: the oldest waiter that is not known to be dead has the lease."""
        for place, waiter in enumerate(self.waiters):
            if not _is_gone(waiter.owner, waiter.id):
                return LeaseRecord(self.fence + 1, waiter.owner, waiter.beat, waiter.id, self.waiters[place + 1 :])
        return LeaseRecord(self.fence, None)


class Lease:
    """A lease that is held. Use as a context manager; it is given back at the end.

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
        self._stop = threading.Event()
        self._lost = False
        self._ttl = ttl
        self._beats = threading.Timer(ttl / 3, self._heartbeat)
        self._beats.daemon = True
        self._beats.start()

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
        """Look at the lease object. Waiters change it, and so does a heartbeat whose answer was lost: still ours."""
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
        """Change the object while it is ours, however often waiters change it meanwhile. False when it is not ours."""
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

    def _heartbeat(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                if self._lost:
                    return
                # A store that is out of reach says nothing; the check before publishing decides.
                with suppress(OmnigraphError):
                    self._lost = not self._swap(lambda record: replace(record, beat=record.beat + 1))
            self._stop.wait(self._ttl / 3)

    def release(self) -> None:
        """Give the lease to the oldest waiter, or back. If it is lost already, there is nothing to give."""
        self._stop.set()
        self._beats.cancel()
        with self._lock:
            if self._lost:
                _ours.discard(self._holder)
                return
            self._lost = True
            # A failure leaves a lease that expires, and that this process knows to be nobody's.
            with suppress(OmnigraphError):
                self._swap(LeaseRecord.released)
            _ours.discard(self._holder)

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
    """Take the lease of a branch, waiting for the writers that came first.

    Args:
        store: the graph's objects.
        branch: the graph branch.
        at_least: the number that the manifest has seen; the new one is higher, even when the lease object was lost.
        wait: seconds to wait for it. With none, this writer does not wait in line.
        ttl: seconds of silence after which an owner or a waiter counts as gone.

    Raises:
        LeaseTimeoutError: others had it all the time.
    """
    return _Turn(store, branch, at_least, wait, ttl).take()


def owner_of(store: ObjectStore, branch: str) -> Owner | None:
    """The process that has the lease of a branch, as far as anybody can see; None when it is free."""
    try:
        owner = LeaseRecord.load(store.get(lease_path(branch)).data).owner
    except ObjectNotFoundError:
        return None
    return None if owner is None or owner.is_dead() else owner


class _Watch:
    """Tells whose heartbeat stands still, on the clock of this process alone."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._seen: dict[str, tuple[int, float]] = {}

    def is_dead(self, member: str, owner: Owner, beat: int, now: float) -> bool:
        """Whether an owner or a waiter is dead, by its process, or by its silence on the clock of this one."""
        seen = self._seen.get(member)
        if seen is None or seen[0] != beat:
            self._seen[member] = seen = (beat, now)
        return now - seen[1] >= self._ttl or _is_gone(owner, member)


class _Turn:
    """One writer's way to the lease: look, stand in line, say that it lives, and take the lease when it is its turn."""

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
                taken = self._look()
                if taken is not None:
                    return taken
        except BaseException:
            if self._joined:
                with suppress(OmnigraphError):  # a waiter that stays in the list falls silent
                    self._leave()
            _ours.discard(self._me.id)
            raise

    def _look(self) -> Lease | None:
        record, etag = self._read()
        now = time.monotonic()
        if self._is_mine(record):
            assert etag is not None
            return self._held(record, etag)  # it was handed over
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
        if self._stand(record, etag, waiters, now):
            place = next((i for i, waiter in enumerate(waiters) if waiter.id == self._me.id), len(waiters))
            self._sleep(place, now)
        return None

    def _stand(self, record: LeaseRecord, etag: str | None, waiters: list[Waiter], now: float) -> bool:
        """Be in the list, with a heartbeat, and without those who are dead. False when the object has changed."""
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
        """The next in line looks often, the others seldom; after a long wait a little more does not matter."""
        waited = (now - self._began) / 20
        longest = max(_NEXT_PAUSE if place == 0 else min(_LATER_PAUSE * place, _LONGEST_PAUSE), waited)
        self._pause = min(self._pause * 1.5, longest, _LONGEST_PAUSE)
        time.sleep(min(self._pause * self._slower * random.uniform(0.5, 1.5), max(self._deadline - now, 0.0)))

    def _leave(self) -> None:
        """Be in the list no more, and pass on the lease if it was handed over just now."""
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
        return LeaseTimeoutError(f"branch '{self._branch}' is being written by {by}", hint="try again later")

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
