"""Hidden branches: where a transaction works until it is merged.

A hidden branch is a branch like any other, with a name that only the system can use. A record beside it says whose it
is. The record comes before the branch and goes after it, so whatever a dead process leaves is found by listing the
records, and may be removed by anyone, as often as it takes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass

import orjson
from ulid_transform import ulid_now

from omnigraph.commit.branches import create_branch
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.heartbeats import Heart, Watch
from omnigraph.commit.lease import lease_path
from omnigraph.commit.manifest import MAIN, Manifest
from omnigraph.commit.owner import Owner
from omnigraph.commit.recovery import recover_branch
from omnigraph.commit.ref_names import SYSTEM, SystemBranch
from omnigraph.commit.refs import branch_ref_path, find_branch
from omnigraph.commit.store import Store
from omnigraph.errors import ObjectNotFoundError, OmnigraphError

RECORDS = "__transactions"

_PREFIX = f"{SYSTEM}tx-"
_RECORD = re.compile(rf"{RECORDS}/([0-7][0-9a-hjkmnp-tv-z]{{25}})\.json")
_open: set[str] = set()
"""The hidden branches that this process works on."""

_heart = Heart()
_watch = Watch()


@dataclass(frozen=True, slots=True)
class TransactionBranch:
    """What a record says.

    Attributes:
        owner: the process that made it; None when the record cannot be read.
        content: the record itself, which changes with every heartbeat of its owner.
    """

    name: SystemBranch
    owner: Owner | None
    content: bytes = b""

    @property
    def path(self) -> str:
        return _path(self.name)

    @property
    def is_foreign(self) -> bool:
        """Whether its process cannot be seen from here, so that only its heartbeat tells that it lives."""
        return self.owner is None or self.owner.host != Owner.here().host

    def is_abandoned(self, silence: float) -> bool:
        """Whether its process is gone or has ended the transaction, or has been silent for so many seconds."""
        if self.owner == Owner.here():
            return self.name not in _open
        if self.is_foreign:
            return _watch.silent_for(self.name, self.content) >= silence
        return self.owner is not None and self.owner.is_dead()


def begin(store: Store, base: Manifest) -> SystemBranch:
    """A hidden branch that begins at a manifest version."""
    name = SystemBranch(f"{_PREFIX}{ulid_now().lower()}")
    _open.add(name)
    owner = asdict(Owner.here())

    def record(beat: int) -> bytes:
        return orjson.dumps({"version": 1, "owner": owner, "beat": beat})

    try:
        etag = store.objects.create(_path(name), record(0))
        _heart.keep(name, store.leases, _path(name), record, etag, store.timeouts.ttl / 3)
        reach(Failpoint.TRANSACTION_RECORDED)
        create_branch(store, name, base)
    except BaseException:
        end(store, name)
        raise
    return name


def end(store: Store, name: SystemBranch) -> None:
    """Remove a hidden branch of this process. What cannot be removed now is left to whoever opens the graph next."""
    _open.discard(name)
    _heart.drop(name)
    with suppress(OmnigraphError):
        _remove(store, name, forks=_forks(store, name))


def reclaim(store: Store, *, watch: bool = False) -> None:
    """Remove the hidden branches that nobody works on any more. None at all costs one listing.

    Args:
        store: the graph.
        watch: stay until it is known of every foreign one whether its process lives: up to one lease time.
    """
    silence = store.timeouts.ttl
    while True:
        doubtful = False
        for found in list_all(store):
            if found.is_abandoned(silence):
                # What cannot be removed now harms nobody, and is tried again.
                with suppress(OmnigraphError):
                    _remove(store, found.name, forks=None)
                    _watch.forget(found.name)
            elif watch and found.is_foreign:
                doubtful |= not _watch.has_changed(found.name)
        if not doubtful:
            return
        time.sleep(min(silence / 10, 1.0))


def remove(store: Store, branch: TransactionBranch) -> None:
    """Remove a hidden branch whoever made it: of a graph that was copied, it belongs to nobody."""
    with suppress(OmnigraphError):  # as above
        _remove(store, branch.name, forks=None)


def list_all(store: Store) -> list[TransactionBranch]:
    """All that are there, oldest first."""
    read = (_read(store, info.path) for info in store.objects.list(RECORDS))
    return [found for found in read if found is not None]


def _path(name: SystemBranch) -> str:
    return f"{RECORDS}/{name.removeprefix(_PREFIX)}.json"


def _read(store: Store, path: str) -> TransactionBranch | None:
    named = _RECORD.fullmatch(path)
    if named is None:
        return None  # nothing of ours
    name = SystemBranch(_PREFIX + named[1])
    try:
        content = store.objects.get(path).data
    except ObjectNotFoundError:
        return None  # its transaction ended in between
    try:
        return TransactionBranch(name, Owner(**orjson.loads(content)["owner"]), content)
    except (KeyError, TypeError, ValueError):
        return TransactionBranch(name, None, content)


def _remove(store: Store, name: SystemBranch, *, forks: Iterable[tuple[str, str]] | None) -> None:
    """Forks first, and the record last: whoever is interrupted leaves something that can be found and removed.

    Args:
        store: the graph.
        name: the hidden branch.
        forks: the table forks that it has, as path and name; None when nobody knows, and all tables are looked at.

    Raises:
        LeaseTimeoutError: somebody is at work on it.
    """
    with store.exclusive_to_remove(name) as held:
        ref = find_branch(store.objects, name)
        if ref is not None:
            if forks is None:
                reclaim_forks(store, ref.incarnation, _tables(store, name))
            else:
                for path, fork in forks:
                    store.tables.drop_fork(path, fork)
            reach(Failpoint.TRANSACTION_FORKS_REMOVED)
            if ref.ledger in store.manifest.branches():
                store.manifest.delete_branch(ref.ledger)
            # Its name is never used again, so there is no newer reference to spare.
            store.objects.delete(branch_ref_path(name))
            store.forget(name)
            reach(Failpoint.TRANSACTION_REF_REMOVED)
        recover_branch(store, name, held)  # a write that stopped half way is discarded with its branch
    # Another branch of this name will never be, so its fencing number need not be kept.
    store.leases.delete(lease_path(name))
    store.objects.delete(_path(name))


def reclaim_forks(store: Store, incarnation: str, paths: list[str]) -> None:
    """Remove the table forks of a hidden branch. What cannot be removed now is left to cleanup."""
    for path in paths:
        with suppress(OmnigraphError):
            for fork in store.tables.forks(path):
                if fork.startswith(f"{incarnation}-"):
                    store.tables.drop_fork(path, fork)


def _forks(store: Store, name: SystemBranch) -> list[tuple[str, str]] | None:
    """The forks of a hidden branch, as its manifest knows them; None when it cannot be read."""
    with suppress(OmnigraphError):
        view = store.capture(name)
        pinned = [(pin.ref.path, pin.ref.branch or "") for pin in view.tables.values()]
        return [(path, fork) for path, fork in pinned if fork.startswith(f"{view.incarnation}-")]
    return None


def _tables(store: Store, name: SystemBranch) -> list[str]:
    """Where the tables are that a hidden branch may have forked."""
    try:
        view = store.capture(name)
    except OmnigraphError:
        view = store.capture(MAIN)
    return sorted({pin.ref.path for pin in view.tables.values()})
