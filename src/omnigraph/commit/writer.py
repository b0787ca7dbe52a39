"""The writer: how rows for any number of tables become one commit.

The steps are those of the protocol. Preparing is optimistic: it holds nothing, and is thrown away when another commit
comes first. A second attempt takes the lease before it prepares, so that it cannot lose again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc
from ulid_transform import ulid_now

from omnigraph.commit.ancestor_files import remove_ancestors, write_ancestors
from omnigraph.commit.ancestors import generation_of
from omnigraph.commit.clock import commit_time
from omnigraph.commit.condemned import check_present, files_token
from omnigraph.commit.distrust import distrust
from omnigraph.commit.drift import settle_late_versions
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease, Owner
from omnigraph.commit.lineage import find_idempotent, find_in
from omnigraph.commit.manifest import MAIN, Commit, Manifest, Models, TablePin, commit_rows
from omnigraph.commit.names import branch_name
from omnigraph.commit.recovery import Settled, recover_branch, settle
from omnigraph.commit.registry import create_table, table_keys
from omnigraph.commit.said import LONGEST_NAME, LONGEST_TEXT, check_actor, check_text, checked_labels
from omnigraph.commit.schema_files import promote_contract, stage_contract
from omnigraph.commit.sidecar import SchemaIntent, Sidecar, TableIntent, WriterKind, pending
from omnigraph.commit.staged_files import check_staged
from omnigraph.commit.store import Store, now_micros
from omnigraph.commit.work_records import Work
from omnigraph.errors import (
    CorruptionError,
    DriftError,
    FlushFailedError,
    InputError,
    KeyConflictError,
    LeaseLostError,
    ObjectChangedError,
    ObjectNotFoundError,
    OmnigraphError,
    PreconditionFailedError,
    ReadSetChangedError,
    RecoveryRequiredError,
    RetryableError,
    StagedFilesRemovedError,
    StorageError,
    VersionReclaimedError,
    WriteUndoneError,
)
from omnigraph.lang.schema import AcceptedSchema, ir_hash
from omnigraph.storage.change import Replaced, RowSource
from omnigraph.storage.indexes import IndexSpec
from omnigraph.storage.layouts import Layout, Layouts
from omnigraph.storage.objects.store_clock import check_clock
from omnigraph.storage.tables import Staged, TableConflictError, TableRef

ATTEMPTS = 32
GRAPH_HEAD = "graph_head"
_REPAIR = "nothing that the graph knows of moved it: run 'omnigraph repair'"
_NONE = pa.array([], pa.utf8())


class Operation(StrEnum):
    """What a write does to a table."""

    APPEND = "append"
    INSERT = "insert"
    UPSERT = "upsert"
    OVERWRITE = "overwrite"
    DELETE = "delete"
    CHANGE = "change"
    FRAGMENTS = "fragments"
    INDEX = "index"
    OPTIMIZE = "optimize"


@dataclass(frozen=True, slots=True)
class TableWrite:
    """One operation on one table. A write has at most one per table.

    Attributes:
        key: the type key, `node:<Type>` or `edge:<Type>`.
        rows: for all operations that bring rows.
        where: for `DELETE`: which rows go, unless `deleted` says it.
        deleted: for `DELETE` and `CHANGE`: the ids of the rows that go.
        source: for `CHANGE`: the rows, where they need not fit memory.
        fragments: for `FRAGMENTS` and `CHANGE`: what other processes wrote, as JSON, in order.
        replace: for `FRAGMENTS`: whether they replace everything that is there.
        replaced: for `CHANGE`: what other processes wrote about the rows that those of the fragments replace.
        base: for `FRAGMENTS` and `CHANGE`: the version that the fragments were written beside, if that is a fork
            which was made for this write. It is the write's from now on.
        indexes: for `INDEX`: those to build, wherever they do not cover a row yet.
        kept: for `INDEX` and `OPTIMIZE`: those that the table may have; all others go.
        layout: for `OPTIMIZE`: how the rows are packed; None leaves them as they lie.
        segments: for `OPTIMIZE`: what was built of indexes.
        models: what computed the vectors that the table has afterwards, when the write changes that. What replaces
            everything brings no computed vectors unless it says so here.
    """

    key: str
    operation: Operation
    rows: pa.Table | None = None
    where: pc.Expression | None = None
    deleted: pa.Array | None = None
    source: RowSource | None = None
    fragments: tuple[str, ...] = ()
    replace: bool = False
    replaced: Replaced | None = None
    base: TableRef | None = None
    indexes: tuple[IndexSpec, ...] = ()
    kept: tuple[IndexSpec, ...] = ()
    layout: Layout | None = None
    segments: tuple[bytes, ...] = ()
    models: Models | None = None

    @property
    def replaces(self) -> bool:
        """Whether nothing stays of what is there."""
        return self.operation is Operation.OVERWRITE or self.replace


@dataclass(frozen=True, slots=True)
class Prepared:
    """The writes of one attempt, with what only preparing them could tell.

    Attributes:
        labels: of the commit, beside those of the request.
        merged_parent: the head of the branch that the write merges. With one there is a commit, also if no table
            changes.
        merged_generation: the generation of that head.
        ancestors: the rows of the commits that lead there and that the branch lacks, as `History.brought` gives them.
        needs: versions that have to be readable still when the write is published: those of the base and the source
            of a merge.
    """

    writes: Sequence[TableWrite]
    labels: tuple[tuple[str, str], ...] = ()
    merged_parent: str | None = None
    merged_generation: int = 0
    ancestors: pa.Table | None = None
    needs: Collection[TableRef] = ()


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What is said about a write beside its rows.

    Attributes:
        labels: of the commit; kept in name order.
        replayable: whether it may be prepared again when another commit came first.
        expect_head: write only if this commit is the branch head.
        idempotency_key: a write with a key that an earlier commit of the branch carries returns that commit.
        schema: the schema that takes force with it.
        work: the record that keeps files which were written before; a write that stages all its files by itself needs
            none.
        healed: whether the caller has just settled what interrupted writers left on the branch.
    """

    branch: str = MAIN
    kind: WriterKind = WriterKind.LOAD
    actor: str | None = None
    message: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    replayable: bool = True
    expect_head: str | None = None
    idempotency_key: str | None = None
    schema: SchemaChange | None = None
    work: Work | None = None
    healed: bool = False

    def __post_init__(self) -> None:
        """Refuse what a commit cannot hold.

        Raises:
            InputError: something that is said is no text, or too long.
        """
        check_actor(self.actor)
        if self.message is not None:
            check_text(self.message, "the message", LONGEST_TEXT)
        if self.expect_head is not None:
            check_text(self.expect_head, "the expected head", LONGEST_NAME)
        if self.idempotency_key is not None:
            check_text(self.idempotency_key, "the idempotency key", LONGEST_NAME, empty=False)
        object.__setattr__(self, "labels", checked_labels(self.labels))


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A schema that takes force with a write, on `main`.

    Attributes:
        replaces: the hash of the schema that it was made from, which must be in force still.
    """

    source: str
    accepted: AcceptedSchema
    replaces: str


Prepare = Callable[[Manifest], Sequence[TableWrite] | Prepared]
"""Turns a captured view into writes. Called again for every attempt; validation belongs here."""


def write(store: Store, request: WriteRequest, prepare: Prepare) -> Commit | None:
    """Carry out a write. None means that there was nothing to do.

    Raises:
        PreconditionFailedError: the branch head is not the expected one.
        ReadSetChangedError: another commit came first, and the write may not be replayed.
        RecoveryRequiredError: the write stopped half way, and nobody can say yet how it ends.
    """
    request = replace(request, branch=branch_name(request.branch))
    # What an interrupted writer left is settled first: it may be what this write has to see.
    interrupted = not request.healed and any(s.branch == request.branch for s in pending(store.objects))
    # Two changes of schema would make their new tables in the same places.
    alone = interrupted or request.schema is not None
    # A change of schema was made from one schema, and means nothing to another.
    replayable = request.replayable and request.schema is None
    only_at: str | None = None
    removed: set[str] = set()
    for attempt in range(ATTEMPTS):
        try:
            return _attempt(store, request, prepare, lease_first=alone or attempt > 0, only_at=only_at)
        except _StagedFilesGoneError as error:
            # Nobody else wrote anything, so even a write that may not be replayed over others is staged again.
            only_at = None if replayable else error.head
            last = error
        except ReadSetChangedError as error:
            if isinstance(error, StagedFilesRemovedError):
                if error.path in removed:
                    raise  # files that the write cannot make again: other processes wrote them
                removed.add(error.path)
            if error.member == GRAPH_HEAD and request.expect_head not in (None, error.actual):
                raise PreconditionFailedError(request.branch, str(request.expect_head), str(error.actual)) from error
            if not replayable or attempt + 1 == ATTEMPTS:
                raise
    raise RetryableError("cleanups took the staged files of this write again and again", hint="try again") from last


class _StagedFilesGoneError(Exception):
    """A cleanup has looked for files of the dead since the write staged its own, and may take them."""

    def __init__(self, head: str) -> None:
        super().__init__(head)
        self.head = head


def _attempt(
    store: Store, request: WriteRequest, prepare: Prepare, *, lease_first: bool, only_at: str | None = None
) -> Commit | None:
    with ExitStack() as stack:
        held = _exclusive(store, request.branch, stack) if lease_first else None
        view = store.capture(request.branch)
        repeated = find_idempotent(view, request.idempotency_key)
        if repeated is not None:
            return repeated
        if request.expect_head is not None and view.head.id != request.expect_head:
            raise PreconditionFailedError(request.branch, request.expect_head, view.head.id)
        if only_at not in (None, view.head.id):
            raise ReadSetChangedError(GRAPH_HEAD, only_at, view.head.id)
        reach(Failpoint.CAPTURED)
        staging = _Staging(store, view, request.work)
        try:
            prepared = prepare(view)
            if not isinstance(prepared, Prepared):
                prepared = Prepared(prepared)
            staging.stage(prepared.writes)
            if request.schema is not None:
                staging.add_schema(request.schema)
            if not staging.intents and staging.schema is None and prepared.merged_parent is None:
                return None
            if held is None:
                held = _exclusive(store, request.branch, stack, view)
            reach(Failpoint.LEASED)
            check_clock(store.leases, held.check)
            with check_staged(store, staging.intents, staging.staged):
                _check_current(store, view, staging.intents, held)
            check_present(store.objects, prepared.needs)
        except (StorageError, VersionReclaimedError):
            staging.abandon()
            _check_head(store, view)  # a branch that is deleted meanwhile takes its files along
            raise
        except BaseException:
            staging.abandon()
            raise
        return _commit(store, request, prepared, view, staging, held)


def _exclusive(store: Store, branch: str, stack: ExitStack, view: Manifest | None = None) -> Lease:
    """The lease, with the branch healed: whatever an earlier writer left is settled before this one goes on."""
    held = stack.enter_context(store.exclusive(branch, view=view))
    recover_branch(store, branch, held)
    return held


def _check_head(store: Store, view: Manifest) -> None:
    """The captured view is still the newest of the same branch."""
    current = store.capture(view.branch)
    if (current.incarnation, current.version) != (view.incarnation, view.version):
        raise ReadSetChangedError(GRAPH_HEAD, view.head.id, current.head.id)


def _check_current(store: Store, view: Manifest, intents: Sequence[TableIntent], held: Lease) -> None:
    """The captured view is still the newest, and no table has moved past it."""
    _check_head(store, view)
    for intent in intents:
        head = store.tables.head(intent.base.path, intent.base.branch)
        if head is None or head < intent.base.version:
            raise CorruptionError(
                f"{intent.key} has lost version {intent.base.version}, which the graph points at",
                hint="files were removed from outside; restore the table from a backup",
            )
        if head > intent.base.version:
            remedy = _remedy(store, view, intent)
            settled = settle_late_versions(store, view, held) if remedy == _REPAIR else None
            if settled is not None:
                raise ReadSetChangedError(GRAPH_HEAD, view.head.id, settled.head.id)
            raise DriftError(intent.key, intent.base.version, head, hint=remedy)


def _remedy(store: Store, view: Manifest, intent: TableIntent) -> str:
    """What to do about a table that is ahead of the graph, although this writer has settled what it found."""
    try:
        waiting = [sidecar for sidecar in pending(store.objects) if sidecar.branch == view.branch]
    except OmnigraphError:
        return "what writes are in flight cannot be told: open the graph again for writing, then run 'omnigraph repair'"
    if any(table.id == intent.id for sidecar in waiting for table in sidecar.tables):
        return "a write that stopped half way moved it: open the graph again for writing, which settles it"
    return _REPAIR


def fork_table(store: Store, view: Manifest, pin: TablePin) -> TableRef:
    """A fork of a table for the first write to it on a branch. Nothing points at it yet."""
    return store.tables.fork(pin.ref, f"{view.incarnation}-{ulid_now().lower()}")


class _Staging:
    """The staged writes of one attempt, and the forks that were made for them."""

    def __init__(self, store: Store, view: Manifest, work: Work | None) -> None:
        self.store = store
        self.view = view
        self._work = work
        self._token = files_token(store.objects) if work is None else None
        self.staged: list[Staged] = []
        self.intents: list[TableIntent] = []
        self.schema: SchemaIntent | None = None
        self._forks: list[TableRef] = []

    def stage(self, writes: Sequence[TableWrite]) -> None:
        keys = [write.key for write in writes]
        if len(set(keys)) != len(keys):
            raise InputError("a write has one operation per table")
        for write in sorted(writes, key=lambda write: write.key):
            pin = self.view.tables.get(write.key)
            if pin is None:
                raise InputError(f"the graph has no table {write.key}")
            if _is_empty(self.store, write, pin):
                continue
            base = self._adopted(write, pin) or self._base(pin)
            staged = self._stage(write, base)
            if staged is None:
                self._unfork(base)
            else:
                rows = pin.row_count + staged.rows_added - staged.rows_removed
                self.staged.append(staged)
                models = write.models
                if models is None:
                    models = () if write.replaces else pin.models
                steps = list(staged.steps)
                last = steps[-1].transaction_id
                intent = TableIntent(pin.key, pin.id, pin.ref, base, last, rows, models, len(steps))
                self.intents.append(intent)
        reach(Failpoint.STAGED)

    def check_kept(self) -> None:
        """See that cleanup has taken no staged file. To be called when the sidecar is written: it is seen from then on.

        Raises:
            _StagedFilesGoneError: it may have; stage everything again.
            VersionReclaimedError: it took the work that staged the files for dead.
        """
        if self._work is not None:
            self._work.check()
        elif files_token(self.store.objects) != self._token:
            raise _StagedFilesGoneError(self.view.head.id)

    def _adopted(self, write: TableWrite, pin: TablePin) -> TableRef | None:
        """The fork that fragments were written into before the table had files of its own on the branch."""
        if not write.fragments or (self.view.owns(pin) and write.base is None):
            return None
        fork = write.base
        if fork is None:
            raise InputError(
                f"{write.key} has no files of its own on '{self.view.branch}', so its fragments lie elsewhere",
                hint="write other rows to it on the branch first, and the fragments into that version",
            )
        if self.view.owns(pin) or (fork.path, fork.version) != (pin.ref.path, pin.ref.version):
            raise ReadSetChangedError(write.key, fork.version, pin.ref.version)
        self._forks.append(fork)
        return fork

    def _base(self, pin: TablePin) -> TableRef:
        """The version to stage against. The first write to a table on a branch forks it."""
        if self.view.owns(pin):
            return pin.ref
        fork = fork_table(self.store, self.view, pin)
        self._forks.append(fork)
        reach(Failpoint.FORKED)
        return fork

    def _stage(self, write: TableWrite, base: TableRef) -> Staged | None:
        tables = self.store.tables
        rows = write.rows
        if write.operation is Operation.DELETE and write.deleted is not None:
            return tables.stage_delete_ids(base, pa.chunked_array([write.deleted]))
        if write.operation is Operation.DELETE:
            assert write.where is not None
            return tables.stage_delete(base, write.where)
        if write.operation is Operation.FRAGMENTS:
            return tables.stage_fragments(base, write.fragments, replace=write.replace)
        if write.operation is Operation.INDEX:
            return tables.stage_indexes(base, write.indexes, kept=write.kept)
        if write.operation is Operation.OPTIMIZE:
            return Layouts(tables).stage(base, write.layout, write.segments, kept=write.kept)
        if write.operation is Operation.CHANGE and write.replaced is not None:
            return tables.stage_replaced(base, write.fragments, write.replaced)
        if write.operation is Operation.CHANGE:
            changed = rows if rows is not None else write.source
            assert changed is not None
            gone = _NONE if write.deleted is None else write.deleted
            return tables.stage_change(base, changed, gone, write.fragments)
        assert rows is not None
        if write.operation is Operation.APPEND:
            return tables.stage_append(base, rows)
        if write.operation is Operation.UPSERT:
            return tables.stage_upsert(base, rows)
        if write.operation is Operation.OVERWRITE:
            return tables.stage_overwrite(base, rows)
        try:
            return tables.stage_insert(base, rows)
        except KeyConflictError as error:
            raise KeyConflictError(write.key, error.entity_id) from error

    def add_schema(self, change: SchemaChange) -> None:
        """Make the tables of new types, and note which go and which change their name."""
        if self.view.branch != MAIN:
            raise InputError("a schema changes on 'main'")
        schema_hash = ir_hash(change.accepted)
        if schema_hash == self.view.schema_hash:
            return
        if change.replaces != self.view.schema_hash:
            raise ReadSetChangedError("schema", change.replaces, self.view.schema_hash)
        wanted = table_keys(change.accepted)
        keys = {pin.id: key for key, pin in self.view.tables.items()}
        kept = {identity: key for key, identity in wanted.items() if identity in keys}
        self.schema = SchemaIntent(
            schema_hash,
            tuple(create_table(self.store, change.accepted, k, i) for k, i in wanted.items() if i not in keys),
            tuple(key for identity, key in keys.items() if identity not in kept),
            tuple((keys[identity], key) for identity, key in kept.items() if keys[identity] != key),
        )

    def abandon(self) -> None:
        """Remove the forks that were made for the write: nothing points at them. Cleanup removes new tables."""
        for fork in list(self._forks):
            self._unfork(fork)

    def _unfork(self, base: TableRef) -> None:
        """Remove a fork that was made for nothing."""
        if base in self._forks:
            assert base.branch is not None
            self._forks.remove(base)
            with suppress(Exception):  # cleanup removes what is left
                self.store.tables.drop_fork(base.path, base.branch)


def _is_empty(store: Store, write: TableWrite, pin: TablePin) -> bool:
    """Whether a write certainly changes nothing, so that not even a fork is made for it."""
    if write.operation is Operation.FRAGMENTS:
        return not write.fragments and not (write.replace and pin.row_count > 0)
    if write.operation is Operation.INDEX:
        return not store.tables.lacks_indexes(pin.ref, write.indexes, write.kept)
    if write.operation is Operation.OPTIMIZE:
        settled = write.layout is None and not write.segments
        return settled and not store.tables.lacks_indexes(pin.ref, (), write.kept)
    if write.operation is Operation.DELETE:
        if write.deleted is not None:
            return len(write.deleted) == 0
        assert write.where is not None
        return store.tables.count(pin.ref, write.where) == 0
    if write.operation is Operation.CHANGE:
        rows = 1 if write.rows is None else len(write.rows)  # nobody has counted those of a source
        return rows == 0 and not write.fragments and (write.deleted is None or len(write.deleted) == 0)
    assert write.rows is not None
    replaces = write.operation is Operation.OVERWRITE and pin.row_count > 0
    return not replaces and len(write.rows) == 0


def _commit(
    store: Store,
    request: WriteRequest,
    prepared: Prepared,
    view: Manifest,
    staging: _Staging,
    held: Lease,
) -> Commit:
    """Phases A to D. From the sidecar on, the outcome is either finished here or left for recovery."""
    file = None
    try:
        sidecar = _sidecar(store, request, prepared, view, staging)
        commit_rows([sidecar.commit])  # what cannot be published must not be promised
        if prepared.ancestors is not None and prepared.ancestors.num_rows:
            file = write_ancestors(store.objects, sidecar.operation_id, prepared.ancestors)
            sidecar = replace(sidecar, ancestors=file)
        store.objects.create(sidecar.path, sidecar.dump())
    except BaseException:
        # If the sidecar is there all the same, or comes later, it speaks of tables that never moved: it is rolled back.
        staging.abandon()
        remove_ancestors(store.objects, file)
        raise
    try:
        staging.check_kept()
    except (_StagedFilesGoneError, VersionReclaimedError):
        # No table has moved, so the write is simply taken back.
        store.objects.delete(sidecar.path)
        staging.abandon()
        raise
    except OmnigraphError as error:
        return _finish(store, sidecar, held, error)
    try:
        reach(Failpoint.SIDECAR_WRITTEN)
        if request.schema is not None and sidecar.schema is not None:
            held.check()  # files of a writer that was overtaken would have nobody to remove them
            stage_contract(store.objects, request.schema.source, request.schema.accepted, sidecar.operation_id)
        for intent, staged in zip(staging.intents, staging.staged, strict=True):
            _commit_table(store, intent, staged)
            reach(Failpoint.TABLE_COMMITTED)
        store.tables.make_durable(staging.staged)
        reach(Failpoint.TABLES_COMMITTED)
        held.check()
        reach(Failpoint.BEFORE_PUBLISH)
        change = replace(sidecar.change, ancestors=prepared.ancestors)
        published = store.publish(view, change, sidecar.commit, held).head
    except Exception as error:
        return _finish(store, sidecar, held, error)
    reach(Failpoint.PUBLISHED)
    with suppress(OmnigraphError):
        # The write is durable. A sidecar that stays is consumed by the next heal.
        if sidecar.schema is not None:
            promote_contract(store.objects, sidecar.schema.schema_hash, sidecar.operation_id)
        store.objects.delete(sidecar.path)
        remove_ancestors(store.objects, sidecar.ancestors)
    reach(Failpoint.SIDECAR_REMOVED)
    return published


def _commit_table(store: Store, intent: TableIntent, staged: Staged) -> None:
    try:
        for step in staged.steps:
            store.tables.commit_staged(step)
            if step.then is not None:
                reach(Failpoint.TABLE_PACKED)
    except TableConflictError as error:
        head = store.tables.head(intent.base.path, intent.base.branch)
        raise ReadSetChangedError(intent.key, intent.base.version, head) from error


def _finish(store: Store, sidecar: Sidecar, held: Lease, error: Exception) -> Commit:
    """A write that failed after its sidecar was written: settle it now if the lease is still ours."""
    unflushed = error if isinstance(error, FlushFailedError) else None
    try:
        if unflushed is not None:
            # Before anything else: from here on nobody rolls the write forward.
            sidecar = distrust(store, sidecar)
        held.check()
        settled = settle(store, sidecar, held)
    except (LeaseLostError, ObjectNotFoundError, ObjectChangedError) as lost:
        return _overtaken(store, sidecar, lost, unflushed)
    except Exception as second:
        raise RecoveryRequiredError(sidecar.operation_id, f"{error}; then: {second}") from error
    if settled.outcome is Settled.FORWARD and unflushed is None:
        assert settled.commit is not None
        return settled.commit
    if settled.outcome is Settled.BACK and unflushed is not None:
        raise WriteUndoneError(unflushed) from error
    raise error


def _overtaken(
    store: Store, sidecar: Sidecar, lost: LeaseLostError | StorageError, unflushed: FlushFailedError | None
) -> Commit:
    """Another writer took the lease, and settles this write before its own. See how it ended."""
    try:
        if not store.objects.exists(sidecar.path):
            published = find_in(store.capture(sidecar.branch), sidecar.commit.id)
            if published is not None and unflushed is not None:
                # The other one flushed the files with success, after we had failed. That proves nothing.
                raise FlushFailedError(
                    unflushed.reason,
                    uri=unflushed.uri,
                    path=unflushed.path,
                    in_effect=True,
                    hint="another process has finished the write; check the disk, then look at the graph",
                )
            if published is not None:
                return published
            raise lost
    except FlushFailedError:
        raise
    except StorageError as error:
        raise RecoveryRequiredError(sidecar.operation_id, f"{lost}; then: {error}") from lost
    raise RecoveryRequiredError(sidecar.operation_id, str(lost)) from lost


def _sidecar(store: Store, request: WriteRequest, prepared: Prepared, view: Manifest, staging: _Staging) -> Sidecar:
    operation = ulid_now()
    commit = Commit(
        id=ulid_now(),
        branch=request.branch,
        manifest_version=view.version + 1,
        parent=view.head.id,
        merged_parent=prepared.merged_parent,
        actor=request.actor,
        created_at=commit_time(view),
        message=request.message,
        labels=tuple(sorted((dict(request.labels) | dict(prepared.labels)).items())),
        writer=request.kind.value,
        operation_id=operation,
        idempotency_key=request.idempotency_key,
        ledger=view.ledger.branch,
        generation=1 + max(generation_of(store, view), prepared.merged_generation),
    )
    return Sidecar(
        operation,
        Owner.here(),
        now_micros(),
        request.branch,
        view.incarnation,
        request.kind,
        view.head.id,
        commit,
        tuple(staging.intents),
        staging.schema,
    )
