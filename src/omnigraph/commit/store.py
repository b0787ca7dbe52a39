"""The open storage of one graph."""

# See docs/decisions/0180-manifest-versions-go-with-their-commits.md

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field, replace

from omnigraph.commit import lease
from omnigraph.commit.audit import AUDIT_PATH
from omnigraph.commit.interrupts import complete
from omnigraph.commit.lease import Lease
from omnigraph.commit.manifest import MAIN, MANIFEST_PATH, Change, Commit, Manifest
from omnigraph.commit.manifest_rows import has_commit, read_manifest
from omnigraph.commit.manifest_successor import Successor, closing, successor
from omnigraph.commit.process_locks import branch_lock
from omnigraph.commit.ref_names import SYSTEM, branch_name, is_tag_name
from omnigraph.commit.refs import (
    BranchRef,
    TagRef,
    branch_ref_names,
    find_branch,
    find_tag,
    list_branch_refs,
    list_tag_refs,
)
from omnigraph.commit.sidecar import pending
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    BranchNotFoundError,
    DamagedFileError,
    InputError,
    LeaseLostError,
    LeaseTimeoutError,
    ObjectNotFoundError,
    OmnigraphError,
    ReadSetChangedError,
    StorageError,
    StorageErrorKind,
    VersionReclaimedError,
)
from omnigraph.lang.names import did_you_mean
from omnigraph.storage.lance_manifest import version_of
from omnigraph.storage.latest_version import HINT, VERSIONS, read_hint, read_local, torn_version
from omnigraph.storage.ledger import Ledger, LedgerVersion, StagedVersion
from omnigraph.storage.lru_cache import LruCache
from omnigraph.storage.objects import ObjectStore, open_store
from omnigraph.storage.staged import Staged, TableConflictError
from omnigraph.storage.table_ref import manifest_name, table_directory
from omnigraph.storage.tables import SYNC_LEVELS, TableStorage
from omnigraph.storage.uri import GraphUri, Scheme

PUBLISH_ATTEMPTS = 5
REFS = "__refs"
"""Name of the lease for creating and removing branches and tags. No branch can have this name."""
PLACE = "__place"
"""Name of the lease for changing the recorded location of the graph."""
CLEANUP = "__cleanup"
"""Name of the lease for cleanup."""
_BRANCHES = 64
"""Maximum number of branches whose newest states are cached. Another process may delete a branch at any time."""


@dataclass(slots=True)
class Timeouts:
    """Seconds that a writer waits for the lease, and seconds without a heartbeat after which an owner is dead."""

    wait: float = lease.WAIT_SECONDS
    ttl: float = lease.TTL_SECONDS


@dataclass(frozen=True, slots=True)
class StagedManifest:
    """The next manifest version, not published yet. Its new parts are written.

    Attributes:
        change: the table versions that it publishes, with their checksums.
        next: its content.
        version: its parts.
        flushed: whether its parts are flushed.
    """

    change: Change
    next: Successor
    version: StagedVersion
    flushed: bool = False


@dataclass(slots=True)
class Store:
    """The storage of one graph. Safe to use from many threads.

    Attributes:
        objects: small objects, such as references and sidecars.
        leases: the same objects without flushes, for writes that need not survive a power failure, such as leases: the
            manifest has the last fencing number.
        tables: node and edge tables.
        manifest: the table of published states of all branches.
        audit: the table of writes that recovery has settled.
        closed: whether the graph is closed. Captured states can still be read.
        shows: whether suggestions in errors may name a branch and its tags; None for all.
        finds: whether searches for commits use a branch and its tags; None for all.
        origin: the store that this one was made from by `showing`.
    """

    objects: ObjectStore
    leases: ObjectStore
    tables: TableStorage
    manifest: Ledger
    audit: Ledger
    timeouts: Timeouts = field(default_factory=Timeouts)
    closed: bool = False
    shows: Callable[[str], bool] | None = None
    finds: Callable[[str], bool] | None = None
    origin: Store | None = None
    _known: LruCache[Manifest] = field(default_factory=lambda: LruCache(_BRANCHES))

    @classmethod
    def at(cls, uri: GraphUri, *, durable: bool = True) -> Store:
        """The store at an address.

        Args:
            uri: the graph root.
            durable: flush a commit to the local disk before it is acknowledged.
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
        """Capture the newest manifest of a branch, which is one consistent state of the graph.

        Raises:
            BranchNotFoundError: there is no such branch.
        """
        incarnation, name = self._identity(branch)
        known = self._known.get(branch)
        with self._unless_deleted(branch, incarnation):
            if known is not None and known.incarnation != incarnation:
                known = None
            ledger = self.newest(branch, name, known.ledger if known is not None else None)
            if known is not None and ledger is known.ledger:
                return known
            if ledger is None:
                raise self._no_ledger(branch, incarnation, name)
            view = read_manifest(branch, incarnation, ledger)
        if view.closed:
            if view.successor is not None and self.branch_identifier(branch) not in (None, incarnation):
                return self.capture(branch)  # it was reset meanwhile
            raise self.no_branch(branch)  # its deletion was interrupted before the reference was removed
        return self._remember(view)

    def newest(self, branch: str, name: str | None, known: LedgerVersion | None = None) -> LedgerVersion | None:
        """The newest version of a branch's manifest; None if there is none.

        A damaged or missing newest version is an error, unless a sidecar shows that its write was never acknowledged.

        Args:
            branch: the graph branch.
            name: the Lance branch of its manifest; None for `main`.
            known: the newest version seen so far.

        Raises:
            DamagedFileError: it is damaged or missing.
        """
        hint = self._hint(name, cold=known is None)
        try:
            found = self.manifest.open(name) if known is None else self.manifest.newest(known)
        except StorageError as error:
            damaged = self._damaged(name, error)
            version = version_of(damaged.path.rpartition("/")[2])
            torn = version is not None and version >= 2 and self._is_torn(name, version)
            if not torn or version is None or not self._unacknowledged(branch, version):
                raise _with_repair_hint(damaged, name) from error
            return self.manifest.open(name, version - 1)
        latest = 0 if found is None else found.version
        expected = max(hint, known.version if known is not None else 0)
        if found is not None and expected > latest and self._lost(branch, name, expected):
            path = f"{table_directory(self.manifest.path, name)}/{VERSIONS}/{manifest_name(expected)}"
            missing = DamagedFileError(str(self.objects.uri), path, "the newest version is missing")
            raise _with_repair_hint(missing, name)
        return found

    def _damaged(self, name: str | None, error: StorageError) -> StorageError:
        """The error for a manifest that cannot be opened. Names the file of the newest version, if it is torn."""
        exact = isinstance(error, DamagedFileError) and not error.path.endswith(VERSIONS)
        if exact or error.kind is not StorageErrorKind.PERMANENT:
            return error
        torn = torn_version(self.objects, table_directory(self.manifest.path, name))
        return error if torn is None else DamagedFileError(str(self.objects.uri), torn.path, torn.reason)

    def _is_torn(self, name: str | None, version: int) -> bool:
        """Whether a version is the newest and its file is torn, so that recovery can quarantine it."""
        torn = torn_version(self.objects, table_directory(self.manifest.path, name))
        return torn is not None and torn.version == version

    def _lost(self, branch: str, name: str | None, version: int) -> bool:
        """Whether a version was acknowledged, but its file is missing. A version in Lance's hint file is no proof."""
        made = f"{table_directory(self.manifest.path, name)}/_transactions"
        if not any(info.path.startswith(f"{made}/{version - 1}-") for info in self.objects.list(made)):
            return False
        return not self._unacknowledged(branch, version)

    def _hint(self, name: str | None, *, cold: bool) -> int:
        """The newest version according to Lance's hint file; 0 if unknown. Read before the versions are listed."""
        scheme = self.objects.uri.scheme
        if scheme is Scheme.MEMORY or (scheme is Scheme.S3 and not cold):
            return 0
        path = f"{table_directory(self.manifest.path, name)}/{VERSIONS}/{HINT}"
        try:
            data = read_local(self.objects.uri.path, path) if scheme is Scheme.LOCAL else self.objects.get(path).data
        except (OSError, ObjectNotFoundError):
            return 0
        return read_hint(data) or 0

    def _unacknowledged(self, branch: str, version: int) -> bool:
        """Whether a manifest version belongs to an interrupted write, so that it was never acknowledged."""
        waiting = [sidecar for sidecar in pending(self.objects) if sidecar.branch == branch]
        return any(sidecar.commit.manifest_version == version for sidecar in waiting)

    def manifest_at(self, branch: str, version: int) -> Manifest:
        """A manifest version of a branch.

        Raises:
            BranchNotFoundError: there is no such branch.
            VersionReclaimedError: the version was removed.
        """
        incarnation, name = self._identity(branch)
        with self._unless_deleted(branch, incarnation):
            ledger = self.manifest.open(name, version)
            if ledger is None:
                raise self._no_ledger(branch, incarnation, name)
            return read_manifest(branch, incarnation, ledger)

    def manifest_of(self, commit: Commit) -> Manifest:
        """The manifest version of a commit, even if its branch is deleted.

        Raises:
            VersionReclaimedError: cleanup has removed it.
        """
        try:
            view = self.manifest_in(commit.ledger, commit.branch, commit.manifest_version)
        except VersionReclaimedError as error:
            raise state_removed(commit.id) from error
        if view is None or view.head.id != commit.id:
            raise state_removed(commit.id)
        return view

    def manifest_in(self, ledger: str | None, branch: str, version: int) -> Manifest | None:
        """A version of one Lance branch of the manifest; None if the Lance branch does not exist.

        Args:
            ledger: the Lance branch; None for `main`.
            branch: its graph branch, which may be deleted.
            version: the manifest version.

        Raises:
            VersionReclaimedError: the Lance branch exists, but not the version.
        """
        self._check_open()
        try:
            found = self.manifest.open(ledger, version)
        except StorageError as error:
            if isinstance(error, DamagedFileError) or error.kind is not StorageErrorKind.PERMANENT:
                raise
            path = f"{table_directory(self.manifest.path, ledger)}/{VERSIONS}/{manifest_name(version)}"
            raise DamagedFileError(str(self.objects.uri), path, error.message) from error
        return None if found is None else read_manifest(branch, ledger or MAIN, found)

    def has_version(self, ledger: str | None, version: int) -> bool:
        """Whether a version of one Lance branch of the manifest exists. Does not read it."""
        if self.objects.uri.scheme is Scheme.MEMORY:
            return version in self.manifest.versions(ledger)
        path = f"{table_directory(self.manifest.path, ledger)}/{VERSIONS}/{manifest_name(version)}"
        return self.objects.exists(path)

    @contextmanager
    def _unless_deleted(self, branch: str, incarnation: str) -> Iterator[None]:
        """Read a branch that may be deleted at the same time. If it is, the read raises `BranchNotFoundError`."""
        try:
            yield
        except StorageError as error:
            if self.branch_identifier(branch) == incarnation:
                raise
            raise self.no_branch(branch) from error

    def _identity(self, branch: str) -> tuple[str, str | None]:
        """The incarnation of a branch and the Lance branch of its manifest, from its reference.

        Raises:
            InputError: the name is invalid, or the graph is closed.
            BranchNotFoundError: there is no such branch.
        """
        self._check_open()
        branch_name(branch)
        if branch == MAIN:
            return MAIN, None
        found = self.find_branch(branch)
        if found is None:
            raise self.no_branch(branch)
        return found.incarnation, found.ledger

    def find_branch(self, name: str) -> BranchRef | None:
        """The current reference of a branch, even if a reset was interrupted; None if there is no such branch."""
        found = find_branch(self.objects, name)
        return None if found is None else self.current(found)

    def branch_refs(self) -> dict[str, BranchRef]:
        """All branches except `main`, including transaction branches, by name: their current references."""
        return {name: self.current(ref) for name, ref in list_branch_refs(self.objects).items()}

    def current(self, ref: BranchRef) -> BranchRef:
        """The reference of the current incarnation of a branch.

        A reset takes effect when the manifest of the old incarnation is closed. The reference is replaced afterwards.
        """
        if not ref.successors:
            return ref
        newest = self.manifest.open(ref.ledger)
        view = None if newest is None else read_manifest(ref.name, ref.incarnation, newest)
        if view is None or not view.closed or view.successor is None:
            return ref
        return ref.after_reset(view.successor) or ref

    def _check_open(self) -> None:
        if self.closed or (self.origin is not None and self.origin.closed):
            raise InputError("this graph is closed", hint="open it again")

    def no_branch(self, branch: str) -> BranchNotFoundError:
        """The error for an unknown branch."""
        self.forget(branch)
        others = [name for name in self.shown_branches() if name != branch]
        return BranchNotFoundError(branch, hint=did_you_mean(branch, others))

    def _no_ledger(self, branch: str, incarnation: str, name: str | None) -> OmnigraphError:
        """The error for a branch without a manifest: it was deleted, or its files are missing."""
        if self.branch_identifier(branch) != incarnation:
            return self.no_branch(branch)
        path = f"{table_directory(self.manifest.path, name)}/{VERSIONS}"
        hint = f"restore the files from a backup, or delete branch '{branch}', whose rows can no longer be read"
        return DamagedFileError(str(self.objects.uri), path, f"the manifest of branch '{branch}' is missing", hint=hint)

    def branch_names(self) -> list[str]:
        """All branches except internal ones, `main` first, then by name. Costs one listing.

        May include a branch that is being created or deleted. A read of it then raises BranchNotFoundError.
        """
        self._check_open()
        return [MAIN, *(name for name in branch_ref_names(self.objects) if not name.startswith(SYSTEM))]

    def showing(self, shows: Callable[[str], bool], finds: Callable[[str], bool]) -> Store:
        """The same store, whose suggestions and searches for commits leave out some branches and their tags."""
        return replace(self, shows=shows, finds=finds, origin=self)

    def shown_branches(self) -> list[str]:
        """The branches that suggestions may name."""
        return [name for name in self.branch_names() if self.shows is None or self.shows(name)]

    def shown_tags(self) -> list[str]:
        """The tags that suggestions may name: those of commits that were made on shown branches."""
        found = list_tag_refs(self.objects).values()
        return [tag.name for tag in found if self.shows is None or self.shows(tag.branch)]

    def found_branches(self) -> list[str]:
        """The branches that searches for commits use."""
        return [name for name in self.branch_names() if self.finds is None or self.finds(name)]

    def found_tags(self) -> list[TagRef]:
        """The tags that searches for commits use: those of commits that were made on such branches."""
        return [tag for tag in list_tag_refs(self.objects).values() if self.finds is None or self.finds(tag.branch)]

    def found_tag(self, name: str) -> TagRef | None:
        """A tag, for a search; None if there is none."""
        found = find_tag(self.objects, name) if is_tag_name(name) else None
        return found if found is None or self.finds is None or self.finds(found.branch) else None

    def finds_commit(self, commit: Commit) -> bool:
        """Whether a commit was made on a branch that searches for commits use."""
        return self.finds is None or self.finds(commit.branch)

    def branch_identifier(self, branch: str) -> str | None:
        """The incarnation of a branch; None if there is no such branch."""
        if branch == MAIN:
            return MAIN
        ref = self.find_branch(branch)
        return None if ref is None else ref.incarnation

    def ledger_of(self, branch: str) -> str | None:
        """The Lance branch of the manifest with the versions of a branch; None for `main`.

        Raises:
            BranchNotFoundError: there is no such branch.
        """
        return self._identity(branch)[1]

    def is_closed(self, ref: BranchRef) -> bool:
        """Whether a branch is deleted although its reference exists: its deletion was interrupted."""
        newest = self.manifest.open(ref.ledger)
        return newest is not None and read_manifest(ref.name, ref.incarnation, newest).closed

    def _remember(self, manifest: Manifest) -> Manifest:
        return self._known.put(manifest.branch, manifest)

    def forget(self, branch: str) -> None:
        """Drop the cached state of a branch."""
        self._known.discard(lambda known: known == branch)

    def close(self) -> None:
        """Drop all cached states, and refuse further reads."""
        self.closed = True
        if self.origin is not None:
            self.origin.close()
        self._known.clear()

    def exclusive(
        self, branch: str, *, wait: float | None = None, view: Manifest | None = None
    ) -> AbstractContextManager[Lease]:
        """The right to write to a branch: first the in-process lock, then the lease.

        Args:
            branch: the graph branch.
            wait: seconds to wait for it.
            view: a recent state of the branch, if the caller has one. Its fencing number is used without a read.
        """
        patience = self.timeouts.wait if wait is None else wait
        return self._alone(branch, lambda: self._fence(branch) if view is None else view.fence, patience)

    def exclusive_to_remove(self, branch: str) -> AbstractContextManager[Lease]:
        """The right to remove a branch, if its lease is free. Does not read the branch, which may be damaged."""
        return self._alone(branch, lambda: 0, 0)

    def exclusive_refs(self, *, wait: float | None = None) -> AbstractContextManager[Lease]:
        """The right to create and remove branches and tags.

        If the lease of a branch is needed, too, take it before this one.
        """
        return self._alone(REFS, lambda: 0, self.timeouts.wait if wait is None else wait)

    def exclusive_place(self) -> AbstractContextManager[Lease]:
        """The lease for changing the paths that a graph stores, after it was moved or copied."""
        return self._alone(PLACE, lambda: 0, self.timeouts.wait)

    def exclusive_cleanup(self) -> AbstractContextManager[Lease]:
        """The right to clean up. Only one cleanup runs at a time. The removal list makes it safe beside writers."""
        return self._alone(CLEANUP, lambda: 0, self.timeouts.wait)

    @contextmanager
    def _alone(self, name: str, fence: Callable[[], int], wait: float) -> Iterator[Lease]:
        turn = branch_lock(self.objects.uri.identity, name).turn()
        held: Lease | None = None
        began = time.monotonic()
        try:
            if not turn.take(timeout=wait):
                raise LeaseTimeoutError(
                    f"branch '{name}' is in use by another writer of this process", hint="try again later"
                )
            left = max(wait - (time.monotonic() - began), 0.0)
            held = lease.acquire(self.leases, name, at_least=fence, wait=left, ttl=self.timeouts.ttl)
            yield held
        finally:
            complete(*([] if held is None else [held.release]), turn.end)

    def _fence(self, branch: str) -> int:
        """The fencing number in the branch's manifest; 0 for a branch that is about to be created."""
        try:
            return self.capture(branch).fence
        except BranchNotFoundError:
            return 0

    def stage_publish(
        self, base: Manifest, change: Change, commit: Commit, held: Lease, written: Sequence[Staged]
    ) -> StagedManifest:
        """Prepare a publish: write the new parts of the manifest, and flush them with the files of the table writes.

        One flush for all of them takes hardly longer than for one. Nothing is visible yet.

        Args:
            base: the state that the write was prepared against.
            change: the table versions to publish.
            commit: the commit.
            held: the lease.
            written: the committed table writes.

        Raises:
            LeaseLostError: a writer with a higher fencing number has published.
            FlushFailedError: a file cannot be flushed.
        """
        staged = self._stage(base, base, self._sealed(change), commit, held)
        if self.tables.is_durable:
            files = self.tables.written_files(written) + self.manifest.files_of(staged.version)
            self.objects.sync_files(files, levels=SYNC_LEVELS)
        return replace(staged, flushed=True)

    def _stage(self, base: Manifest, current: Manifest, change: Change, commit: Commit, held: Lease) -> StagedManifest:
        """Write the new parts of the version that follows the current one, if the expectations of the write hold."""
        _check_expectations(base, current, change, held)
        made = commit
        if (commit.manifest_version, commit.ledger) != (current.version + 1, current.ledger.branch):
            made = replace(commit, manifest_version=current.version + 1, ledger=current.ledger.branch)
        next_ = successor(current, change, made, held.fence)
        return StagedManifest(change, next_, self.manifest.stage(current.ledger, next_.keep, next_.add))

    def _sealed(self, change: Change) -> Change:
        return replace(change, pins=tuple(replace(pin, ref=self.tables.sealed(pin.ref)) for pin in change.pins))

    def publish(
        self, base: Manifest, change: Change, commit: Commit, held: Lease, staged: StagedManifest | None = None
    ) -> Manifest:
        """Publish a write: all table versions, the commit and the head become visible in one step, or nothing.

        If another version was published first, the manifest is read again. The publish is retried while the branch head
        and the tables are those that the write expects.

        Args:
            base: the state that the write was prepared against.
            change: the table versions to publish.
            commit: the commit.
            held: the lease.
            staged: the result of `stage_publish`, if the caller has called it.

        Raises:
            LeaseLostError: a writer with a higher fencing number has published.
            ReadSetChangedError: the branch head or a table is not the one that the write was prepared against.
        """
        current = base
        change = self._sealed(change) if staged is None else staged.change
        for _ in range(PUBLISH_ATTEMPTS):
            if staged is None:
                staged = self._stage(base, current, change, commit, held)
            try:
                published = self.manifest.commit(staged.version, flushed=staged.flushed)
                self._check_newest(published, commit)
                return self._remember(staged.next.published(published))
            except TableConflictError:
                staged = None
                self.forget(base.branch)
                current = self.capture(base.branch)
                if current.head.id == commit.id:
                    # An earlier request for the same commit succeeded, and its response was lost.
                    self.manifest.make_durable(current.ledger)
                    return current
        raise ReadSetChangedError("graph_head", base.head.id, current.head.id)

    def _check_newest(self, made: LedgerVersion, commit: Commit | None) -> None:
        """Check that a version that was just published is part of the branch.

        Lance creates the version with the next number if that number is free. The number is also free if other writers
        published a version with it while this process was paused, and cleanup has removed that version since. Then
        newer versions exist that do not follow from the new one. No reader has seen the new version, and it is removed.

        Args:
            made: the new version.
            commit: its commit, which must be in the history of all later versions; None if no version may follow.

        Raises:
            TableConflictError: other versions of the branch follow the base. The new version was removed.
        """
        newest = self.manifest.newest(made)
        # Cleanup keeps the version before the newest. If it is missing, the branch was deleted and cleaned up.
        if newest is made and (made.branch is None or self.has_version(made.branch, made.version - 1)):
            return
        if newest is not None and newest is not made and commit is not None and has_commit(newest, commit.id):
            return
        self.objects.delete(made.path)
        raise TableConflictError(f"{self.manifest.path}: version {made.version} was published and removed before")

    def close_branch(
        self, view: Manifest, held: Lease, successor: str | None = None, origin: str | None = None
    ) -> None:
        """Publish the last version of an incarnation, so that no write can follow.

        Args:
            view: the newest state of the branch.
            held: the lease of the branch.
            successor: the next incarnation, if the branch is reset and not deleted.
            origin: the origin of the branch, if it is reset.

        Raises:
            LeaseLostError: a writer with a higher fencing number has published.
            ReadSetChangedError: another version was published since the state was captured. Nothing happened.
        """
        if view.fence > held.fence:
            raise _overtaken(view.branch)
        last = closing(view, held.fence, successor, origin)
        try:
            self._check_newest(self.manifest.publish(view.ledger, last.keep, last.add), None)
        except TableConflictError as error:
            raise ReadSetChangedError("graph_head", view.head.id, None) from error
        finally:
            self.forget(view.branch)


def _with_repair_hint(error: StorageError, name: str | None) -> StorageError:
    """Add a hint to the error if the newest manifest of `main` is damaged: then only `repair` works."""
    if name is not None or not isinstance(error, DamagedFileError):
        return error
    hint = "restore the file from a backup; 'omnigraph repair' can go back to the version before it"
    return DamagedFileError(error.uri, error.path, error.reason, hint=hint)


def _overtaken(branch: str) -> LeaseLostError:
    return LeaseLostError(
        f"a later writer has published to '{branch}'", hint="nothing of this write is visible; try again"
    )


def _check_expectations(base: Manifest, current: Manifest, change: Change, held: Lease) -> None:
    if current.incarnation != base.incarnation:
        # The branch was deleted and created again, perhaps at the same commit. The write belongs to the old branch.
        raise BranchNotFoundError(base.branch, hint="it was deleted and created again during the write")
    if current.fence > held.fence:
        raise _overtaken(base.branch)
    if current.head.id != base.head.id:
        raise ReadSetChangedError("graph_head", base.head.id, current.head.id)
    for pin in change.pins:
        before, now = base.tables.get(pin.key), current.tables.get(pin.key)
        if before != now:
            raise ReadSetChangedError(pin.key, before and before.ref.version, now and now.ref.version)


def state_removed(commit_id: str) -> VersionReclaimedError:
    """The error for the state of a commit that was removed, as a whole or in part."""
    return VersionReclaimedError(
        f"the state at commit {commit_id} no longer exists",
        hint="cleanup, or a schema change that removed data, has removed it; a tag keeps a state from cleanup",
    )


def now_micros() -> int:
    """Microseconds since 1970, UTC."""
    return time.time_ns() // 1000
