"""Attempts of a write: prepare, wait for the lease, publish, and retry after a conflict.

The first attempt prepares without the lease. With the lease, it checks whether the branch has a new head. New commits
that did not change its read set do not matter: the staged transactions are rebased onto the new head and published.
Otherwise the write is prepared again while it holds the lease, so that no other commit can conflict with it. A write
that takes long to prepare first releases the lease and prepares a second time without it. If that attempt conflicts,
too, the write keeps the lease for the next attempt.

A write is refused only in three cases: it would overwrite a table that another commit changed, a precondition no longer
holds, or the write must not be replayed. The timeout limits the time to wait for the lease and to retry under it. Time
spent on preparation without the lease does not count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

from omnigraph.commit.drift import settle_late_versions
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease
from omnigraph.commit.lineage import find_all_idempotent, find_idempotent
from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.publish import commit_staged
from omnigraph.commit.read_set import SCHEMA, ReadConflict, ReadSet, tracked
from omnigraph.commit.recovery import has_interrupted_write, recover_branch
from omnigraph.commit.ref_names import branch_name
from omnigraph.commit.removal_list import check_present
from omnigraph.commit.sidecar import TableIntent, WriterKind, pending
from omnigraph.commit.staged_files import check_staged
from omnigraph.commit.staged_writes import CleanupStartedError, StagedWrites
from omnigraph.commit.store import Store
from omnigraph.commit.write_request import GRAPH_HEAD, Prepare, Prepared, WriteRequest
from omnigraph.errors import (
    CorruptionError,
    DriftError,
    LeaseLostError,
    LeaseTimeoutError,
    OmnigraphError,
    PreconditionFailedError,
    ReadSetChangedError,
    RetryableError,
    StagedFilesRemovedError,
    StorageError,
    VersionReclaimedError,
    WriteTimeoutError,
)
from omnigraph.lang.schema import ir_hash
from omnigraph.storage.objects.store_clock import check_clock

_LONG = frozenset(
    {
        WriterKind.LOAD,
        WriterKind.EMBED,
        WriterKind.OPTIMIZE,
        WriterKind.ENSURE_INDEXES,
        WriterKind.SCHEMA_APPLY,
    }
)
"""Kinds of writes that take long to prepare. Their second attempt prepares without the lease, too."""

_MOST_CLEANUPS = 32
"""Maximum number of attempts that fail because a cleanup removed staged files."""

_ASIDE = 2
"""Number of attempts that prepare without the lease, for writes that take long to prepare."""


def write(store: Store, request: WriteRequest, prepare: Prepare) -> Commit | None:
    """Run a write. Returns None if there was nothing to do.

    Raises:
        PreconditionFailedError: the branch head is not the expected one.
        ReadSetChangedError: another commit changed the read set, and the write must not be replayed.
        WriteTimeoutError: the write did not get the lease in time.
        RecoveryRequiredError: the write was interrupted, and its outcome is unknown.
    """
    return _Write(store, replace(request, branch=branch_name(request.branch)), prepare).run()


class _RetryError(Exception):
    """The attempt failed and left nothing behind. Start another attempt. Internal to this module."""

    def __init__(self, conflict: ReadConflict) -> None:
        super().__init__(conflict.member)
        self.conflict = conflict


class _Write:
    """One write with all its attempts."""

    def __init__(self, store: Store, request: WriteRequest, prepare: Prepare) -> None:
        self._store = store
        self._request = request
        self._prepare = prepare
        self._left = store.timeouts.wait if request.timeout is None else request.timeout
        """Seconds left to wait for the lease and to retry."""
        self._staging = StagedWrites(store, request.work)
        self._only_at: str | None = None
        """The only head for which the write may be staged again, if it must not be replayed on a later head."""
        self._removed: set[str] = set()
        """Paths of staged files that were missing when they were checked under the lease."""
        self._tries = 0
        self._last_conflict: ReadConflict | None = None
        self._seen: Manifest | None = None
        """The state that the last attempt was prepared on."""
        self._replaced: set[str] = set()
        """The tables whose rows the write replaces completely."""

    def run(self) -> Commit | None:
        lease_first = False
        try:
            # Recover interrupted writes first: this write may depend on their rows.
            if not self._request.healed and has_interrupted_write(self._store, self._request.branch):
                with ExitStack() as stack:
                    self._lease(stack, None)
            while True:
                try:
                    return self._attempt(lease_first)
                except _RetryError:
                    lease_first = not self._prepares_without_lease
        except BaseException as error:
            self._staging.abandon()
            if isinstance(error, LeaseTimeoutError) and not isinstance(error, WriteTimeoutError):
                raise self._timeout(error.message) from error
            raise

    @property
    def _prepares_without_lease(self) -> bool:
        return self._request.kind in _LONG and self._tries < _ASIDE

    def _attempt(self, lease_first: bool) -> Commit | None:
        """Prepare, take the lease and publish; retry while the lease is held."""
        request, store = self._request, self._store
        with ExitStack() as stack:
            held = self._lease(stack, None) if lease_first else None
            view = store.capture(request.branch)
            while True:
                self._tries += 1
                view, repeated = self._checked(view)
                if repeated is not None:
                    return repeated
                reach(Failpoint.CAPTURED)
                with nullcontext() if held is None else self._timed():
                    found = self._staged(view)
                if found is None:
                    return None
                prepared, reads = found
                if held is None:
                    held = self._lease(stack, view)
                reach(Failpoint.LEASED)
                check_clock(store.leases, held.check)
                current = store.capture(request.branch)
                if _is_same(view, current):
                    break
                try:
                    held.check()  # if the lease expired during a pause, wait for it again
                except LeaseLostError:
                    raise self._retry(ReadConflict(GRAPH_HEAD, view.head.id, current.head.id)) from None
                repeated = self._before(current)
                if repeated is not None:
                    self._staging.abandon()
                    return repeated
                conflict = self._conflict(view, current, prepared, reads)
                if conflict is None:
                    view = current
                    break
                retry = self._retry(conflict)
                if self._prepares_without_lease:
                    raise retry
                view = current
            try:
                # Not retried: if these versions are missing, another attempt would fail, too.
                check_present(store.objects, prepared.needs)
                with check_staged(store, self._staging.intents, self._staging.staged):
                    _check_heads(store, view, self._staging.intents, held)
                # From here on, recovery removes the forks and files of a failed write.
                staging, self._staging = self._staging, StagedWrites(store, request.work)
                return commit_staged(store, request, prepared, view, staging, held)
            except CleanupStartedError as error:
                raise self._restage(error) from error
            except ReadSetChangedError as error:
                # The write has no effect: `commit_staged` raises this error only if nothing was changed, or after a
                # rollback.
                if isinstance(error, StagedFilesRemovedError):
                    self._allow_restaging(error)
                raise self._retry(ReadConflict(error.member, error.expected, error.actual), error) from error

    def _restage(self, error: CleanupStartedError) -> _RetryError:
        """Stage the write again. No other write was published, so this is allowed even if `replayable` is false."""
        if self._tries >= _MOST_CLEANUPS:
            message = "cleanups repeatedly removed the staged files of this write"
            raise RetryableError(message, hint="try again") from error
        self._only_at = None if self._request.replayable and self._request.schema is None else error.head
        return _RetryError(ReadConflict(GRAPH_HEAD, error.head, error.head))

    def _allow_restaging(self, error: StagedFilesRemovedError) -> None:
        """Allow staging missing files again. Raises if a file is missing for the second time.

        Files that other processes wrote cannot be written again by this process.
        """
        if error.path in self._removed:
            raise error
        self._removed.add(error.path)
        self._staging.abandon()

    def _lease(self, stack: ExitStack, view: Manifest | None) -> Lease:
        """Take the lease, and recover interrupted writes of the branch."""
        with self._timed():
            wait = max(self._left, 0.0)
            held = stack.enter_context(self._store.exclusive(self._request.branch, wait=wait, view=view))
        recover_branch(self._store, self._request.branch, held)
        return held

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Subtract the duration of the block from the time left."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._left -= time.monotonic() - began

    def _checked(self, view: Manifest) -> tuple[Manifest, Commit | None]:
        """Check the preconditions on a state, or on the newest state if cleanup has just removed the given one."""
        while True:
            try:
                return view, self._before(view)
            except VersionReclaimedError:
                current = self._store.capture(view.branch)
                if _is_same(view, current):
                    raise
                view = current

    def _before(self, view: Manifest) -> Commit | None:
        """Check the preconditions against a state. Returns an earlier commit with the same idempotency key."""
        request = self._request
        repeated = find_idempotent(view, request.idempotency_key, request.actor)
        if repeated is not None:
            if request.on_repeat is not None:
                request.on_repeat(repeated)
            return repeated
        if request.expect_head is not None and view.head.id != request.expect_head:
            raise PreconditionFailedError(request.branch, request.expect_head, view.head.id)
        if self._only_at not in (None, view.head.id):
            raise ReadSetChangedError(GRAPH_HEAD, self._only_at, view.head.id)
        if self._seen is not None and self._replaced:
            if self._seen.incarnation != view.incarnation:
                raise ReadSetChangedError(GRAPH_HEAD, self._seen.head.id, view.head.id)
            conflict = ReadSet(set(self._replaced)).find_conflict(self._store.tables, self._seen, view)
            if conflict is not None:  # another commit changed rows that this write would overwrite
                raise ReadSetChangedError(conflict.member, conflict.expected, conflict.actual)
        return None

    def _staged(self, view: Manifest) -> tuple[Prepared, ReadSet] | None:
        """Prepare and stage the write on a state. None if there is nothing to write."""
        request, staging = self._request, self._staging
        tracked_view, reads = tracked(view)
        staging.begin(view)
        try:
            try:
                prepared = self._prepare(tracked_view)
            except ReadSetChangedError as error:
                # Retry only if the branch has a new state, for example another schema. Otherwise a retry would fail,
                # too.
                if _is_same(view, self._store.capture(view.branch)):
                    raise
                raise self._retry(ReadConflict(error.member, error.expected, error.actual), error) from error
            if not isinstance(prepared, Prepared):
                prepared = Prepared(prepared)
            try:
                staging.stage(prepared.writes, reads, prepared.adopt)
            except ReadSetChangedError as error:
                raise self._retry(ReadConflict(error.member, error.expected, error.actual), error) from error
            if request.schema is not None:
                staging.add_schema(request.schema)
        except (StorageError, VersionReclaimedError) as error:
            current = self._store.capture(view.branch)
            if _is_same(view, current):
                raise
            # The branch has another state now. Files of the old state may be removed, for example with a deleted
            # branch.
            raise self._retry(ReadConflict(GRAPH_HEAD, view.head.id, current.head.id)) from error
        self._seen, self._replaced = view, staging.replaced
        if not staging.intents and staging.schema is None and prepared.merged_parent is None:
            staging.abandon()
            return None
        return prepared, reads

    def _conflict(self, view: Manifest, current: Manifest, prepared: Prepared, reads: ReadSet) -> ReadConflict | None:
        """Rebase the staged write onto a later state. Returns the conflict that prevents it; None on success."""
        head = ReadConflict(GRAPH_HEAD, view.head.id, current.head.id)
        if view.incarnation != current.incarnation:
            self._staging.abandon()
            return head
        if prepared.on_head or prepared.merged_parent is not None:
            return head
        if find_all_idempotent(current, prepared.keys):
            return head
        conflict = reads.find_conflict(self._store.tables, view, current)
        if conflict is not None:
            return conflict
        if any(intent.key not in current.tables for intent in self._staging.intents):
            return head
        stuck = self._staging.rebase(current)
        if stuck is None or (not self._request.replayable and self._restaged(current, prepared, reads)):
            return None
        return ReadConflict(stuck, view.tables[stuck].ref.version, current.tables[stuck].ref.version)

    def _restaged(self, current: Manifest, prepared: Prepared, reads: ReadSet) -> bool:
        """Stage the prepared writes again on a later state. The read set has not changed, so they are still valid.

        This is for writes that must not be prepared again. For example, two concurrent first writes to a table on a
        branch each create a fork (a Lance branch of the table), and the second must move to the fork of the first.
        """
        self._staging.begin(current)
        try:
            self._staging.stage(prepared.writes, reads)
        except ReadSetChangedError:
            return False
        return bool(self._staging.intents)

    def _retry(self, conflict: ReadConflict, error: ReadSetChangedError | None = None) -> _RetryError:
        """Allow another attempt.

        Raises:
            ReadSetChangedError: the write must not be replayed.
            WriteTimeoutError: there is no time left.
        """
        self._last_conflict = conflict
        refusal = error or ReadSetChangedError(conflict.member, conflict.expected, conflict.actual)
        if not self._request.replayable or self._is_overtaken(conflict):
            raise refusal
        if self._left <= 0:
            raise self._timeout(f"{refusal.message}, and there is no time left to run the write again") from error
        return _RetryError(conflict)

    def _is_overtaken(self, conflict: ReadConflict) -> bool:
        """Whether another process has changed the schema that this schema change was planned for.

        It is not planned again. If the graph now has the wanted schema, there is nothing left to change.
        """
        wanted = self._request.schema
        return wanted is not None and conflict.member == SCHEMA and conflict.actual != ir_hash(wanted.accepted)

    def _timeout(self, message: str) -> WriteTimeoutError:
        conflict = self._last_conflict
        return WriteTimeoutError(message, *((conflict.member, conflict.expected, conflict.actual) if conflict else ()))


def _is_same(view: Manifest, current: Manifest) -> bool:
    return (current.incarnation, current.version) == (view.incarnation, view.version)


def _check_heads(store: Store, view: Manifest, intents: list[TableIntent], held: Lease) -> None:
    """Check that no table is ahead of its version in the manifest."""
    for intent in intents:
        if store.tables.is_head(intent.base):
            continue
        head = store.tables.head(intent.base.path, intent.base.branch)
        if head is None or head < intent.base.version:
            raise CorruptionError(
                f"{intent.key} at {intent.base.path} lacks version {intent.base.version}, which the manifest points at",
                hint="another program removed files; restore the table from a backup",
            )
        if head > intent.base.version:
            try:
                held.check()
            except LeaseLostError as lost:
                # This writer was paused until its lease expired, and the new holder has written to the table.
                raise ReadSetChangedError(intent.key, intent.base.version, head) from lost
            waiting = _interrupted(store, view, intent)
            settled = settle_late_versions(store, view, held) if waiting is None else None
            if settled is not None:
                raise ReadSetChangedError(GRAPH_HEAD, view.head.id, settled.head.id)
            hint = waiting or "no interrupted write caused this: run 'omnigraph repair'"
            raise DriftError(intent.key, intent.base.version, head, hint=hint)


def _interrupted(store: Store, view: Manifest, intent: TableIntent) -> str | None:
    """Hint for a table that an interrupted write may have changed; None if there certainly is no such write."""
    try:
        waiting = [sidecar for sidecar in pending(store.objects) if sidecar.branch == view.branch]
    except OmnigraphError:
        return (
            "the sidecars in __recovery cannot be read: open the graph again for writing, then run 'omnigraph repair'"
        )
    if any(table.id == intent.id for sidecar in waiting for table in sidecar.tables):
        return "an interrupted write changed the table: open the graph again for writing, which runs recovery"
    return None
