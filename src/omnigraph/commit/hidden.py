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
from ulid_transform import ulid_now, ulid_to_timestamp

from omnigraph.commit.branches import create_branch, reclaim_forks
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Owner, lease_path
from omnigraph.commit.manifest import MAIN, Manifest
from omnigraph.commit.names import SYSTEM, SystemBranch
from omnigraph.commit.recovery import recover_branch
from omnigraph.commit.store import Store
from omnigraph.errors import ObjectNotFoundError, OmnigraphError

RECORDS = "__transactions"
LONGEST_SECONDS = 24 * 60 * 60.0
"""How long a transaction may last whose process cannot be seen from here. After that it counts as abandoned."""

_PATIENCE_SECONDS = 1.0
"""How long clearing up waits for others: it is done in passing, and can be done later."""

_PREFIX = f"{SYSTEM}tx-"
_RECORD = re.compile(rf"{RECORDS}/([0-7][0-9a-hjkmnp-tv-z]{{25}})\.json")
_open: set[str] = set()
"""The hidden branches that this process works on."""


@dataclass(frozen=True, slots=True)
class HiddenBranch:
    """What a record says.

    Attributes:
        owner: the process that made it; None when the record cannot be read.
    """

    name: SystemBranch
    owner: Owner | None

    @property
    def path(self) -> str:
        return _path(self.name)

    @property
    def is_abandoned(self) -> bool:
        """Whether its process is certainly gone, has ended the transaction, or has been out of sight for too long."""
        if self.owner == Owner.here():
            return self.name not in _open
        if self.owner is not None and self.owner.is_dead():
            return True
        if self.owner is not None and self.owner.host == Owner.here().host:
            return False
        return time.time() - ulid_to_timestamp(self.name.removeprefix(_PREFIX)) / 1000 > LONGEST_SECONDS


def begin(store: Store, base: Manifest) -> SystemBranch:
    """A hidden branch that begins at a manifest version."""
    name = SystemBranch(f"{_PREFIX}{ulid_now().lower()}")
    _open.add(name)
    try:
        store.objects.create(_path(name), orjson.dumps({"version": 1, "owner": asdict(Owner.here())}))
        reach(Failpoint.TRANSACTION_RECORDED)
        create_branch(store, name, base)
    except BaseException:
        end(store, name)
        raise
    return name


def end(store: Store, name: SystemBranch) -> None:
    """Remove a hidden branch of this process. What cannot be removed now is left to whoever opens the graph next."""
    _open.discard(name)
    with suppress(OmnigraphError):
        _remove(store, name, forks=_forks(store, name), wait=store.timeouts.wait)


def reclaim(store: Store) -> None:
    """Remove the hidden branches that nobody works on any more. None at all costs one listing."""
    for found in hidden_branches(store):
        if found.is_abandoned:
            # What cannot be removed now harms nobody, and is tried again.
            with suppress(OmnigraphError):
                _remove(store, found.name, forks=None, wait=_PATIENCE_SECONDS)


def remove(store: Store, branch: HiddenBranch) -> None:
    """Remove a hidden branch whoever made it: of a graph that was copied, it belongs to nobody."""
    with suppress(OmnigraphError):  # as above
        _remove(store, branch.name, forks=None, wait=_PATIENCE_SECONDS)


def hidden_branches(store: Store) -> list[HiddenBranch]:
    """All that are there, oldest first."""
    read = (_read(store, info.path) for info in store.objects.list(RECORDS))
    return [found for found in read if found is not None]


def _path(name: SystemBranch) -> str:
    return f"{RECORDS}/{name.removeprefix(_PREFIX)}.json"


def _read(store: Store, path: str) -> HiddenBranch | None:
    named = _RECORD.fullmatch(path)
    if named is None:
        return None  # nothing of ours
    name = SystemBranch(_PREFIX + named[1])
    try:
        members = orjson.loads(store.objects.get(path).data)
        return HiddenBranch(name, Owner(**members["owner"]))
    except ObjectNotFoundError:
        return None  # its transaction ended in between
    except (KeyError, TypeError, ValueError):
        return HiddenBranch(name, None)


def _remove(store: Store, name: SystemBranch, *, forks: Iterable[tuple[str, str]] | None, wait: float) -> None:
    """Forks first, and the record last: whoever is interrupted leaves something that can be found and removed.

    Args:
        store: the graph.
        name: the hidden branch.
        forks: the table forks that it has, as path and name; None when nobody knows, and all tables are looked at.
        wait: how long to wait for others who make or remove branches.

    Raises:
        LeaseTimeoutError: somebody is at work on it.
    """
    with store.exclusive_to_remove(name) as held:
        identifier = store.branch_identifier(name)
        if identifier is not None:
            if forks is None:
                reclaim_forks(store, identifier, _tables(store, name))
            else:
                for path, fork in forks:
                    store.tables.drop_fork(path, fork)
            reach(Failpoint.TRANSACTION_FORKS_REMOVED)
            with store.exclusive_refs(wait=wait) as refs:
                refs.check()
                if name in store.manifest.branches():
                    store.manifest.delete_branch(name)
            store.forget(name)
            reach(Failpoint.TRANSACTION_REF_REMOVED)
        recover_branch(store, name, held)  # a write that stopped half way is discarded with its branch
    # Another branch of this name will never be, so its fencing number need not be kept.
    store.leases.delete(lease_path(name))
    store.objects.delete(_path(name))


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
