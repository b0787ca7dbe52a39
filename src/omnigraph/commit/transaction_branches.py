"""Transaction branches: a transaction that cannot keep its changes in memory writes to its own branch.

A transaction branch is a normal branch with a reserved name. Every transaction has a record with its owner, the process
that uses it. The record is created before the branch and removed after it, so the branches of dead processes are found
by listing the records. Any process may remove such a branch, and an interrupted removal can be repeated.
"""

# See docs/decisions/0034-transactions-work-on-hidden-branches.md

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict

import orjson
from ulid_transform import ulid_now

from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.heartbeats import HeartbeatSender, HeartbeatWatch
from omnigraph.commit.lease import lease_path
from omnigraph.commit.manifest import MAIN, Manifest
from omnigraph.commit.owner import Owner
from omnigraph.commit.ref_names import SYSTEM, SystemBranch
from omnigraph.commit.refs import branch_ref_path, find_branch
from omnigraph.commit.store import Store
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    ObjectChangedError,
    ObjectNotFoundError,
    OmnigraphError,
)

RECORDS = "__transactions"

_PREFIX = f"{SYSTEM}tx-"
_RECORD = re.compile(rf"{RECORDS}/([0-7][0-9a-hjkmnp-tv-z]{{25}})\.json")
_open: set[str] = set()
"""The transaction branches of this process."""

_heart = HeartbeatSender()
_watch = HeartbeatWatch()


@dataclass(frozen=True, slots=True)
class TransactionBranch:
    """A transaction branch and its record.

    Attributes:
        owner: the process that created it; None if the record cannot be read.
        content: the record, which changes with every heartbeat of its owner.
        base: the incarnation of the branch that the transaction is for; None if the record does not name it.
    """

    name: SystemBranch
    owner: Owner | None
    content: bytes = b""
    base: str | None = None

    @property
    def path(self) -> str:
        return _path(self.name)

    @property
    def is_foreign(self) -> bool:
        """Whether its process runs on another machine. Then only the heartbeat shows whether the process is alive."""
        return self.owner is None or self.owner.host != Owner.here().host

    def is_abandoned(self, silence: float) -> bool:
        """Whether its process is dead or has ended the transaction, or sent no heartbeat for `silence` seconds."""
        if self.owner == Owner.here():
            return self.name not in _open
        if self.is_foreign:
            return _watch.silent_for(self.name, self.content) >= silence
        return self.owner is not None and self.owner.is_dead()


def begin(store: Store, base: Manifest) -> SystemBranch:
    """Begin a transaction at a manifest version: write its record. `open_branch` creates its branch, if it needs one.

    The record is not flushed: without a branch, nothing has to be found after a power failure.
    """
    name = SystemBranch(f"{_PREFIX}{ulid_now().lower()}")
    _open.add(name)
    record = _record(base)
    try:
        _keep(store, name, record, store.leases.create(_path(name), record(0)))
    except BaseException:
        end(store, name, has_branch=False)
        raise
    return name


def open_branch(store: Store, name: SystemBranch, base: Manifest) -> None:
    """Create the branch of a transaction at the manifest version where it began. First, its record is flushed.

    Raises:
        BranchNotFoundError: another process has removed the record, because the transaction seemed abandoned.
    """
    _heart.drop(name)
    while True:
        try:
            found = store.objects.get(_path(name))
            etag = store.objects.replace(_path(name), found.data, found.etag)
            break
        except ObjectNotFoundError:
            raise BranchNotFoundError(name, hint="its record was removed") from None
        except ObjectChangedError:
            continue  # the last heartbeat was on its way
    _keep(store, name, _record(base), etag)
    reach(Failpoint.TRANSACTION_RECORDED)
    from omnigraph.commit.branches import create_branch

    create_branch(store, name, base)


def _record(base: Manifest) -> Callable[[int], bytes]:
    """The record of a transaction of this process, for each value of its heartbeat counter."""
    owner = asdict(Owner.here())
    return lambda beat: orjson.dumps({"version": 1, "owner": owner, "beat": beat, "base": base.incarnation})


def _keep(store: Store, name: SystemBranch, record: Callable[[int], bytes], etag: str) -> None:
    _heart.keep(name, store.leases, _path(name), record, etag, store.timeouts.ttl / 3)


def exists(store: Store, name: SystemBranch) -> bool:
    """Whether the record of a transaction exists. If not, another process has removed it as abandoned."""
    return store.leases.exists(_path(name))


def end(store: Store, name: SystemBranch, *, has_branch: bool) -> None:
    """End a transaction of this process. If that fails, the next process that opens the graph removes the rest.

    Args:
        store: the graph.
        name: the transaction branch.
        has_branch: whether the branch was created, or its creation was tried.
    """
    _open.discard(name)
    _heart.drop(name)
    with suppress(OmnigraphError):
        if has_branch:
            _remove(store, name, forks=_forks(store, name))
        else:
            store.leases.delete(_path(name))


def check_none_on(store: Store, branch: str, incarnation: str | None) -> None:
    """Check that no transaction is running on a branch, with or without a branch of its own.

    Raises:
        ConflictError: a transaction is running.
    """
    if incarnation is not None and any(found.base == incarnation for found in list_all(store)):
        raise ConflictError(
            f"branch '{branch}' cannot be deleted: a transaction is running on it", hint="try again when it has ended"
        )


def reclaim(store: Store, *, watch: bool = False) -> None:
    """Remove abandoned transaction branches. Costs one listing if there are none.

    Args:
        store: the graph.
        watch: whether to wait for the processes on other machines: until the heartbeat of each has changed, or has not
            changed for one lease time.
    """
    silence = store.timeouts.ttl
    while True:
        doubtful = False
        for found in list_all(store):
            if found.is_abandoned(silence):
                # A branch that cannot be removed now does no harm. The next call tries again.
                with suppress(OmnigraphError):
                    _remove(store, found.name, forks=None)
                    _watch.forget(found.name)
            elif watch and found.is_foreign:
                doubtful |= not _watch.has_changed(found.name)
        if not doubtful:
            return
        time.sleep(min(silence / 10, 1.0))


def remove(store: Store, branch: TransactionBranch) -> None:
    """Remove a transaction branch of any owner. In a copied graph, transaction branches have no owner."""
    with suppress(OmnigraphError):  # a branch that stays does no harm
        _remove(store, branch.name, forks=None)


def list_all(store: Store) -> list[TransactionBranch]:
    """All transaction branches, oldest first."""
    read = (_read(store, info.path) for info in store.objects.list(RECORDS))
    return [found for found in read if found is not None]


def _path(name: SystemBranch) -> str:
    return f"{RECORDS}/{name.removeprefix(_PREFIX)}.json"


def _read(store: Store, path: str) -> TransactionBranch | None:
    named = _RECORD.fullmatch(path)
    if named is None:
        return None  # not a transaction record
    name = SystemBranch(_PREFIX + named[1])
    try:
        content = store.objects.get(path).data
    except ObjectNotFoundError:
        return None  # its transaction has just ended
    try:
        record = orjson.loads(content)
        return TransactionBranch(name, Owner(**record["owner"]), content, record.get("base"))
    except (KeyError, TypeError, ValueError):
        return TransactionBranch(name, None, content)


def _remove(store: Store, name: SystemBranch, *, forks: Iterable[tuple[str, str]] | None) -> None:
    """Remove forks first and the record last, so that an interrupted removal can be found and continued.

    Args:
        store: the graph.
        name: the transaction branch.
        forks: its table forks, as path and name; None if unknown. Then all tables are checked.

    Raises:
        LeaseTimeoutError: another process is working on it.
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
            # The name is never used again, so this cannot remove a newer reference.
            store.objects.delete(branch_ref_path(name))
            store.forget(name)
            reach(Failpoint.TRANSACTION_REF_REMOVED)
        from omnigraph.commit.recovery import recover_branch

        recover_branch(store, name, held)  # an interrupted write is discarded with its branch
    # No later branch has this name, so its fencing number is not needed any more.
    store.leases.delete(lease_path(name))
    store.objects.delete(_path(name))


def reclaim_forks(store: Store, incarnation: str, paths: list[str]) -> None:
    """Remove the table forks of a transaction branch. If that fails, cleanup removes them."""
    for path in paths:
        with suppress(OmnigraphError):
            for fork in store.tables.forks(path):
                if fork.startswith(f"{incarnation}-"):
                    store.tables.drop_fork(path, fork)


def _forks(store: Store, name: SystemBranch) -> list[tuple[str, str]] | None:
    """The table branches (forks) that a transaction made, from its manifest; None if the manifest cannot be read."""
    with suppress(OmnigraphError):
        view = store.capture(name)
        pinned = [(pin.ref.path, pin.ref.branch or "") for pin in view.tables.values()]
        return [(path, fork) for path, fork in pinned if fork.startswith(f"{view.incarnation}-")]
    return None


def _tables(store: Store, name: SystemBranch) -> list[str]:
    """Paths of the tables that a transaction branch may have forked."""
    try:
        view = store.capture(name)
    except OmnigraphError:
        view = store.capture(MAIN)
    return sorted({pin.ref.path for pin in view.tables.values()})
