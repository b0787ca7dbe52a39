"""Attempts: a write is prepared, gets its turn, and is published, or run again on what others published meanwhile.

The first attempt prepares without holding anything. With its turn, it looks whether the branch has moved. Commits that
changed nothing of its read set do not matter: its staged transactions are moved onto the new state and published.
Otherwise it is run again at once, without giving up its turn, so it cannot lose a second time. Writes that take long to
prepare give up their turn once and prepare aside; should that be in vain too, they keep it.

Nothing is refused because somebody else wrote, except a write that would discard or contradict what it never saw: an
overwrite of a table that changed, a precondition that no longer holds, and a write that may not be replayed. The
timeout of the write bounds how long it waits for its turn and is run again; preparing aside, where it keeps nobody
waiting, may take as long as it takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

from omnigraph.commit.condemned import check_present
from omnigraph.commit.drift import settle_late_versions
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease
from omnigraph.commit.lineage import find_idempotent
from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.names import branch_name
from omnigraph.commit.read_set import Moved, ReadSet, noting
from omnigraph.commit.recovery import interrupted, recover_branch
from omnigraph.commit.sidecar import TableIntent, WriterKind, pending
from omnigraph.commit.staged_files import check_staged
from omnigraph.commit.store import Store
from omnigraph.commit.writer import (
    GRAPH_HEAD,
    Prepare,
    Prepared,
    StagedFilesGoneError,
    Staging,
    WriteRequest,
    commit_staged,
)
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
from omnigraph.storage.objects.store_clock import check_clock

_LONG = frozenset({WriterKind.LOAD, WriterKind.EMBED, WriterKind.OPTIMIZE, WriterKind.ENSURE_INDEXES})
"""Kinds of writes that take long to prepare, so that their second attempt does not keep others waiting either."""

_MOST_CLEANUPS = 32
"""How many attempts may be lost to cleanups that take staged files."""

_ASIDE = 2
"""How many attempts of those prepare without the lease."""


def write(store: Store, request: WriteRequest, prepare: Prepare) -> Commit | None:
    """Carry out a write. None means that there was nothing to do.

    Raises:
        PreconditionFailedError: the branch head is not the expected one.
        ReadSetChangedError: another commit changed what the write depends on, and it may not be run again.
        WriteTimeoutError: its deadline passed before it got its turn.
        RecoveryRequiredError: the write stopped half way, and nobody can say yet how it ends.
    """
    return _Write(store, replace(request, branch=branch_name(request.branch)), prepare).run()


class _AgainError(Exception):
    """The attempt came to nothing, and left nothing: begin another. Nobody but this module sees it."""

    def __init__(self, moved: Moved) -> None:
        super().__init__(moved.member)
        self.moved = moved


class _Write:
    """One write, through all its attempts."""

    def __init__(self, store: Store, request: WriteRequest, prepare: Prepare) -> None:
        self._store = store
        self._request = request
        self._prepare = prepare
        self._left = store.timeouts.wait if request.timeout is None else request.timeout
        """Seconds that it may still wait and be run again."""
        self._staging = Staging(store, request.work)
        self._only_at: str | None = None
        """The head that it has to be staged again for, if it may not be replayed on another."""
        self._removed: set[str] = set()
        """Staged files that were gone at the gate."""
        self._tries = 0
        self._moved: Moved | None = None
        self._seen: Manifest | None = None
        """The state that the last attempt was prepared on."""
        self._replaced: set[str] = set()
        """The tables that it replaces as a whole."""

    def run(self) -> Commit | None:
        # Two changes of schema would make their new tables in the same places.
        lease_first = self._request.schema is not None
        try:
            # An interrupted writer is settled first: this write may have to see what it did.
            if not lease_first and not self._request.healed and interrupted(self._store, self._request.branch):
                with ExitStack() as stack:
                    self._lease(stack, None)
            while True:
                try:
                    return self._attempt(lease_first)
                except _AgainError:
                    lease_first = not self._prepares_aside
        except BaseException as error:
            self._staging.abandon()
            if isinstance(error, LeaseTimeoutError) and not isinstance(error, WriteTimeoutError):
                raise self._timeout(error.message) from error
            raise

    @property
    def _prepares_aside(self) -> bool:
        return self._request.kind in _LONG and self._tries < _ASIDE

    def _attempt(self, lease_first: bool) -> Commit | None:
        """Prepare, and publish with the lease; again and again while the lease is held."""
        request, store = self._request, self._store
        with ExitStack() as stack:
            held = self._lease(stack, None) if lease_first else None
            view = store.capture(request.branch)
            while True:
                self._tries += 1
                repeated = self._before(view)
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
                    held.check()  # a writer that slept through its turn stands in line again
                except LeaseLostError:
                    raise self._again(Moved(GRAPH_HEAD, view.head.id, current.head.id)) from None
                repeated = self._before(current)
                if repeated is not None:
                    self._staging.abandon()
                    return repeated
                moved = self._conflict(view, current, prepared, reads)
                if moved is None:
                    view = current
                    break
                again = self._again(moved)
                if self._prepares_aside:
                    raise again
                view = current
            try:
                check_present(store.objects, prepared.needs)  # without those, staging again would be in vain
                with check_staged(store, self._staging.intents, self._staging.staged):
                    _check_heads(store, view, self._staging.intents, held)
                # From here on, recovery knows what to remove.
                staging, self._staging = self._staging, Staging(store, request.work)
                return commit_staged(store, request, prepared, view, staging, held)
            except StagedFilesGoneError as error:
                raise self._staged_again(error) from error
            except ReadSetChangedError as error:
                # Whatever it began is settled by now, or it would be another error.
                if isinstance(error, StagedFilesRemovedError):
                    self._refuse_twice(error)
                raise self._again(Moved(error.member, error.expected, error.actual), error) from error

    def _staged_again(self, error: StagedFilesGoneError) -> _AgainError:
        """Nobody else wrote anything, so even a write that may not be replayed over others is staged again."""
        if self._tries >= _MOST_CLEANUPS:
            said = "cleanups took the staged files of this write again and again"
            raise RetryableError(said, hint="try again") from error
        self._only_at = None if self._request.replayable and self._request.schema is None else error.head
        return _AgainError(Moved(GRAPH_HEAD, error.head, error.head))

    def _refuse_twice(self, error: StagedFilesRemovedError) -> None:
        """Stage files again that are gone, unless the write cannot make them: other processes wrote them."""
        if error.path in self._removed:
            raise error
        self._removed.add(error.path)
        self._staging.abandon()

    def _lease(self, stack: ExitStack, view: Manifest | None) -> Lease:
        """The lease, with the branch healed: whatever an earlier writer left is settled before this one goes on."""
        with self._timed():
            wait = max(self._left, 0.0)
            held = stack.enter_context(self._store.exclusive(self._request.branch, wait=wait, view=view))
        recover_branch(self._store, self._request.branch, held)
        return held

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Take the time that something takes off what is left."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._left -= time.monotonic() - began

    def _before(self, view: Manifest) -> Commit | None:
        """Check what has to hold for any state that the write goes to. Returns the commit of the same request."""
        request = self._request
        repeated = find_idempotent(view, request.idempotency_key)
        if repeated is not None:
            return repeated
        if request.expect_head is not None and view.head.id != request.expect_head:
            raise PreconditionFailedError(request.branch, request.expect_head, view.head.id)
        if self._only_at not in (None, view.head.id):
            raise ReadSetChangedError(GRAPH_HEAD, self._only_at, view.head.id)
        if self._seen is not None and self._replaced:
            if self._seen.incarnation != view.incarnation:
                raise ReadSetChangedError(GRAPH_HEAD, self._seen.head.id, view.head.id)
            moved = ReadSet(set(self._replaced)).moved(self._store.tables, self._seen, view)
            if moved is not None:  # it would discard what it never saw
                raise ReadSetChangedError(moved.member, moved.expected, moved.actual)
        return None

    def _staged(self, view: Manifest) -> tuple[Prepared, ReadSet] | None:
        """Prepare and stage the write on a state. None when there is nothing to write."""
        request, staging = self._request, self._staging
        noted, reads = noting(view)
        staging.begin(view)
        try:
            prepared = self._prepare(noted)
            if not isinstance(prepared, Prepared):
                prepared = Prepared(prepared)
            try:
                staging.stage(prepared.writes, reads)
            except ReadSetChangedError as error:
                raise self._again(Moved(error.member, error.expected, error.actual), error) from error
            if request.schema is not None:
                staging.add_schema(request.schema)
        except (StorageError, VersionReclaimedError) as error:
            current = self._store.capture(view.branch)
            if _is_same(view, current):
                raise
            # A branch that is deleted meanwhile takes its files along.
            raise self._again(Moved(GRAPH_HEAD, view.head.id, current.head.id)) from error
        self._seen, self._replaced = view, staging.replaced
        if not staging.intents and staging.schema is None and prepared.merged_parent is None:
            staging.abandon()
            return None
        return prepared, reads

    def _conflict(self, view: Manifest, current: Manifest, prepared: Prepared, reads: ReadSet) -> Moved | None:
        """What keeps the staged write from being published on a later state. None after it was moved there."""
        head = Moved(GRAPH_HEAD, view.head.id, current.head.id)
        if view.incarnation != current.incarnation:
            self._staging.abandon()
            return head
        if prepared.on_head or prepared.merged_parent is not None or self._request.schema is not None:
            return head
        moved = reads.moved(self._store.tables, view, current)
        if moved is not None:
            return moved
        if any(intent.key not in current.tables for intent in self._staging.intents):
            return head
        stuck = self._staging.rebase(current)
        if stuck is None:
            return None
        return Moved(stuck, view.tables[stuck].ref.version, current.tables[stuck].ref.version)

    def _again(self, moved: Moved, error: ReadSetChangedError | None = None) -> _AgainError:
        """Let the write be run again, if it may be.

        Raises:
            ReadSetChangedError: it may not.
            WriteTimeoutError: there is no time left.
        """
        self._moved = moved
        refusal = error or ReadSetChangedError(moved.member, moved.expected, moved.actual)
        if not self._request.replayable or self._request.schema is not None:
            raise refusal
        if self._left <= 0:
            raise self._timeout(f"{refusal.message}, and there is no time left to run the write again") from error
        return _AgainError(moved)

    def _timeout(self, message: str) -> WriteTimeoutError:
        moved = self._moved
        return WriteTimeoutError(message, *((moved.member, moved.expected, moved.actual) if moved else ()))


def _is_same(view: Manifest, current: Manifest) -> bool:
    return (current.incarnation, current.version) == (view.incarnation, view.version)


def _check_heads(store: Store, view: Manifest, intents: list[TableIntent], held: Lease) -> None:
    """No table has moved past what the graph points at."""
    for intent in intents:
        head = store.tables.head(intent.base.path, intent.base.branch)
        if head is None or head < intent.base.version:
            raise CorruptionError(
                f"{intent.key} at {intent.base.path} has lost version {intent.base.version}, which the graph points at",
                hint="files were removed from outside; restore the table from a backup",
            )
        if head > intent.base.version:
            try:
                held.check()
            except LeaseLostError as lost:
                # It slept through its turn, and whoever has the turn now has moved the table.
                raise ReadSetChangedError(intent.key, intent.base.version, head) from lost
            waiting = _interrupted(store, view, intent)
            settled = settle_late_versions(store, view, held) if waiting is None else None
            if settled is not None:
                raise ReadSetChangedError(GRAPH_HEAD, view.head.id, settled.head.id)
            hint = waiting or "nothing that the graph knows of moved it: run 'omnigraph repair'"
            raise DriftError(intent.key, intent.base.version, head, hint=hint)


def _interrupted(store: Store, view: Manifest, intent: TableIntent) -> str | None:
    """What to do about a table that an interrupted write may have moved, although this writer has settled all it found.

    None when there certainly is no such write.
    """
    try:
        waiting = [sidecar for sidecar in pending(store.objects) if sidecar.branch == view.branch]
    except OmnigraphError:
        return "what writes are in flight cannot be told: open the graph again for writing, then run 'omnigraph repair'"
    if any(table.id == intent.id for sidecar in waiting for table in sidecar.tables):
        return "a write that stopped half way moved it: open the graph again for writing, which settles it"
    return None
