"""One graph's storage, opened: what every part of the protocol works with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock

import orjson

from omnigraph.commit import lease
from omnigraph.commit.audit import AUDIT_PATH
from omnigraph.commit.gates import branch_gate
from omnigraph.commit.lease import Lease
from omnigraph.commit.manifest import MAIN, MANIFEST_PATH, Change, Commit, Manifest, read_manifest, successor
from omnigraph.commit.names import SYSTEM, branch_name
from omnigraph.errors import (
    BranchNotFoundError,
    InputError,
    LeaseLostError,
    LeaseTimeoutError,
    ObjectNotFoundError,
    ReadSetChangedError,
    StorageError,
)
from omnigraph.lang.names import did_you_mean
from omnigraph.storage.ledger import Ledger
from omnigraph.storage.objects import ObjectStore, open_store
from omnigraph.storage.tables import TableConflictError, TableStorage
from omnigraph.storage.uri import GraphUri, Scheme

PUBLISH_ATTEMPTS = 5
REFS = "__refs"
"""The lease that stands for all branches and tags together; no branch can have this name."""
PLACE = "__place"
"""The lease of whoever brings a copied or moved graph to its new place."""


@dataclass(slots=True)
class Timeouts:
    """How long a writer waits for the lease, and how long an owner may be silent."""

    wait: float = lease.WAIT_SECONDS
    ttl: float = lease.TTL_SECONDS


@dataclass(slots=True)
class Store:
    """The files of one graph. Safe to use from many threads.

    Attributes:
        objects: control objects.
        leases: the lease objects. They need not survive a power failure: the manifest knows the last fencing number.
        tables: node and edge tables.
        manifest: the ledger that decides what is visible.
        audit: the ledger of settled writes.
        closed: whether it is no longer to be used. What was captured before can still be read.
    """

    objects: ObjectStore
    leases: ObjectStore
    tables: TableStorage
    manifest: Ledger
    audit: Ledger
    timeouts: Timeouts = field(default_factory=Timeouts)
    closed: bool = False
    _known: dict[str, Manifest] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def at(cls, uri: GraphUri, *, durable: bool = True) -> Store:
        """The store at an address.

        Args:
            uri: the graph root.
            durable: whether a commit to a local directory is forced to disk before it is acknowledged.
        """
        objects = open_store(uri, fsync=durable)
        root, options = uri.lance_uri(), uri.lance_storage_options
        sync = objects.sync_files if durable else None
        return cls(
            objects,
            open_store(uri, fsync=False),
            TableStorage(root, options, sync),
            Ledger(root, MANIFEST_PATH, options, sync),
            Ledger(root, AUDIT_PATH, options, sync),
        )

    def capture(self, branch: str) -> Manifest:
        """The newest manifest of a branch: one consistent view of everything.

        Raises:
            BranchNotFoundError: there is no such branch.
        """
        incarnation = self._incarnation(branch)
        with self._lock:
            known = self._known.get(branch)
        with self._unless_deleted(branch, incarnation):
            if known is not None and known.incarnation == incarnation:
                ledger = self.manifest.newest(known.ledger)
                if ledger is known.ledger:
                    return known
            else:
                ledger = self.manifest.open(ledger_branch(branch))
            if ledger is None:
                raise self._no_branch(branch)
            return self._remember(read_manifest(branch, incarnation, ledger))

    def manifest_at(self, branch: str, version: int) -> Manifest:
        """A manifest version of a branch.

        Raises:
            BranchNotFoundError: there is no such branch.
            VersionReclaimedError: the version is gone.
        """
        incarnation = self._incarnation(branch)
        with self._unless_deleted(branch, incarnation):
            ledger = self.manifest.open(ledger_branch(branch), version)
            if ledger is None:
                raise self._no_branch(branch)
            return read_manifest(branch, incarnation, ledger)

    @contextmanager
    def _unless_deleted(self, branch: str, incarnation: str) -> Iterator[None]:
        """Read a branch that somebody may delete meanwhile: then it is gone, and not unreadable."""
        try:
            yield
        except StorageError as error:
            if self.branch_identifier(branch) == incarnation:
                raise
            raise self._no_branch(branch) from error

    def _incarnation(self, branch: str) -> str:
        """What tells a branch from another of the same name, read from its ref: the authority for its existence.

        Raises:
            InputError: no branch can be called that, or the graph is closed.
        """
        self._check_open()
        branch_name(branch)
        found = self.branch_identifier(branch)
        if found is None:
            raise self._no_branch(branch)
        return found

    def _check_open(self) -> None:
        if self.closed:
            raise InputError("this graph is closed", hint="open it again")

    def _no_branch(self, branch: str) -> BranchNotFoundError:
        self.forget(branch)
        return BranchNotFoundError(branch, hint=did_you_mean(branch, self.branch_names()))

    def branch_names(self) -> list[str]:
        """All branches but the system's own, `main` first, then by name."""
        self._check_open()
        return [MAIN, *sorted(name for name in self.manifest.branches() if not name.startswith(SYSTEM))]

    def branch_identifier(self, branch: str) -> str | None:
        """What tells a branch from a later one of the same name; None when there is no such branch."""
        if branch == MAIN:
            return MAIN
        if self.objects.uri.scheme is Scheme.MEMORY:
            # Lance keeps its own memory, where no object store can look.
            listed = self.manifest.branches().get(branch)
            return listed.identifier if listed else None
        try:
            ref = orjson.loads(self.objects.get(self.manifest.branch_ref(branch)).data)
        except ObjectNotFoundError:
            return None
        return str(ref["identifier"]["version_mapping"][-1][1])

    def _remember(self, manifest: Manifest) -> Manifest:
        with self._lock:
            self._known[manifest.branch] = manifest
        return manifest

    def forget(self, branch: str) -> None:
        """Drop what is known about a branch, so that the next look starts afresh."""
        with self._lock:
            self._known.pop(branch, None)

    def close(self) -> None:
        """Drop what is known about every branch, and refuse to look again."""
        self.closed = True
        with self._lock:
            self._known.clear()

    def exclusive(
        self, branch: str, *, wait: float | None = None, view: Manifest | None = None
    ) -> AbstractContextManager[Lease]:
        """The right to move a branch: the process's gate first, then the lease.

        Args:
            branch: the graph branch.
            wait: how long to wait for it, in seconds.
            view: a recent state of the branch, which knows the last fencing number; saves looking for one.
        """
        patience = self.timeouts.wait if wait is None else wait
        return self._alone(branch, lambda: self._fence(branch) if view is None else view.fence, patience)

    def exclusive_to_remove(self, branch: str) -> AbstractContextManager[Lease]:
        """The right to remove a branch, if nobody has it. The branch is not looked at: it may be past reading."""
        return self._alone(branch, lambda: 0, 0)

    def exclusive_refs(self, *, wait: float | None = None) -> AbstractContextManager[Lease]:
        """The right to make and remove branches and tags. Whoever also needs a branch takes that first."""
        return self._alone(REFS, lambda: 0, self.timeouts.wait if wait is None else wait)

    def exclusive_place(self) -> AbstractContextManager[Lease]:
        """The right to bring the graph to another place."""
        return self._alone(PLACE, lambda: 0, self.timeouts.wait)

    @contextmanager
    def _alone(self, name: str, fence: Callable[[], int], wait: float) -> Iterator[Lease]:
        gate = branch_gate(self.objects.uri.identity, name)
        if not gate.acquire(timeout=wait):
            raise LeaseTimeoutError(f"branch '{name}' is being written by this process", hint="try again later")
        try:
            with lease.acquire(self.leases, name, at_least=fence, wait=wait, ttl=self.timeouts.ttl) as held:
                yield held
        finally:
            gate.release()

    def _fence(self, branch: str) -> int:
        """The fencing number that the branch's manifest has seen; a branch that is about to be made has seen none."""
        try:
            return self.capture(branch).fence
        except BranchNotFoundError:
            return 0

    def publish(self, base: Manifest, change: Change, commit: Commit, held: Lease) -> Manifest:
        """The one step that makes a write visible: all table versions, the commit and the head, or nothing.

        A publisher that loses to another reads again and retries while its expectations hold.

        Raises:
            LeaseLostError: a writer with a higher fencing number has published.
            ReadSetChangedError: the branch head or a table is not what the write was prepared against.
        """
        current = base
        for _ in range(PUBLISH_ATTEMPTS):
            _check_expectations(base, current, change, held)
            made = replace(commit, manifest_version=current.version + 1)
            next_ = successor(current, change, made, held.fence)
            try:
                return self._remember(next_.published(self.manifest.publish(current.ledger, next_.keep, next_.add)))
            except TableConflictError:
                self.forget(base.branch)
                current = self.capture(base.branch)
        raise ReadSetChangedError("graph_head", base.head.id, current.head.id)


def _check_expectations(base: Manifest, current: Manifest, change: Change, held: Lease) -> None:
    if current.fence > held.fence:
        raise LeaseLostError(
            f"a later writer has published to '{base.branch}'", hint="nothing of this write is visible; try again"
        )
    if current.head.id != base.head.id:
        raise ReadSetChangedError("graph_head", base.head.id, current.head.id)
    for pin in change.pins:
        before, now = base.tables.get(pin.key), current.tables.get(pin.key)
        if before != now:
            raise ReadSetChangedError(pin.key, before and before.ref.version, now and now.ref.version)


def ledger_branch(branch: str) -> str | None:
    """The ledger's own name for a graph branch."""
    return None if branch == MAIN else branch


def now_micros() -> int:
    """Microseconds since 1970, UTC."""
    return time.time_ns() // 1000
