"""The writer: how staged rows for any number of tables become one commit.

Here are the requests, staging, and the phases from the sidecar to its removal. How often a write is tried, and when it
is run again, is decided in `attempts`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc
from ulid_transform import ulid_now

from omnigraph.commit.ancestor_files import remove_ancestors, write_ancestors
from omnigraph.commit.ancestors import generation_of
from omnigraph.commit.clock import commit_time
from omnigraph.commit.condemned import files_token
from omnigraph.commit.distrust import distrust
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease
from omnigraph.commit.lineage import find_in
from omnigraph.commit.manifest import MAIN, Commit, Manifest, Models, TablePin, commit_rows
from omnigraph.commit.owner import Owner
from omnigraph.commit.read_set import ReadSet
from omnigraph.commit.recovery import Settled, settle
from omnigraph.commit.registry import create_table, table_keys
from omnigraph.commit.said import LONGEST_NAME, LONGEST_TEXT, check_actor, check_text, checked_labels
from omnigraph.commit.schema_files import promote_contract, stage_contract
from omnigraph.commit.sidecar import SchemaIntent, Sidecar, TableIntent, WriterKind
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store, now_micros
from omnigraph.commit.sums import fold_sums, record_sums
from omnigraph.commit.work_records import Work
from omnigraph.errors import (
    CorruptionError,
    FlushFailedError,
    InputError,
    KeyConflictError,
    LeaseLostError,
    ObjectChangedError,
    ObjectNotFoundError,
    OmnigraphError,
    ReadSetChangedError,
    RecoveryRequiredError,
    StorageError,
    VersionReclaimedError,
    WriteUndoneError,
)
from omnigraph.lang.schema import AcceptedSchema, ir_hash
from omnigraph.storage.change import Replaced, RowSource
from omnigraph.storage.indexes import IndexSpec
from omnigraph.storage.layouts import Layout, Layouts
from omnigraph.storage.tables import Staged, TableConflictError, TableRef

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
    DROP_DAMAGED_INDEXES = "drop_damaged_indexes"


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
        on_head: whether the writes hold for the very head that they were prepared on, and for no later one.
        matched: tells what the conditions of the write match in a state: type keys, and ids of entities.
    """

    writes: Sequence[TableWrite]
    labels: tuple[tuple[str, str], ...] = ()
    merged_parent: str | None = None
    merged_generation: int = 0
    ancestors: pa.Table | None = None
    needs: Collection[TableRef] = ()
    on_head: bool = False
    matched: Callable[[Snapshot], list[tuple[str, pa.Array]]] | None = None


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """A query whose result a write depends on."""

    text: str
    params: Mapping[str, object]
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The precondition that a write depends on nothing that has changed since a commit.

    Attributes:
        commit: the commit, which leads to the branch head.
        reads: queries on whose results the write depends, beside what it looks at by itself.
    """

    commit: str
    reads: tuple[ReadQuery, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What is said about a write beside its rows.

    Attributes:
        labels: of the commit; kept in name order.
        replayable: whether it may be prepared again when another commit changed what it depends on.
        timeout: seconds that it may wait for its turn and be run again; None is what the graph is set to.
        expect_head: write only if this commit is the branch head.
        unchanged: write only if nothing that the write depends on has changed since a commit.
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
    timeout: float | None = None
    expect_head: str | None = None
    unchanged: Unchanged | None = None
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
        if self.timeout is not None and not self.timeout >= 0:
            raise InputError("a timeout is a number of seconds, and not negative")
        if self.message is not None:
            check_text(self.message, "the message", LONGEST_TEXT)
        if self.expect_head is not None:
            check_text(self.expect_head, "the expected head", LONGEST_NAME)
        if self.unchanged is not None:
            check_text(self.unchanged.commit, "the commit since which nothing changed", LONGEST_NAME)
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


class StagedFilesGoneError(Exception):
    """A cleanup has looked for files of the dead since the write staged its own, and may take them."""

    def __init__(self, head: str) -> None:
        super().__init__(head)
        self.head = head


def fork_table(store: Store, view: Manifest, pin: TablePin) -> TableRef:
    """A fork of a table for the first write to it on a branch. Nothing points at it yet."""
    return store.tables.fork(pin.ref, f"{view.incarnation}-{ulid_now().lower()}")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A write whose files exist, and the table version that it becomes."""

    write: TableWrite
    staged: Staged
    intent: TableIntent


class Staging:
    """The staged writes of one attempt, and the forks that were made for them.

    Rows that were written for an attempt serve the next one, as far as that writes the same rows to the same files.

    Attributes:
        view: the state that they are staged against.
        schema: the change of schema that goes with them.
    """

    def __init__(self, store: Store, work: Work | None) -> None:
        self.store = store
        self._work = work
        self._token: str | None = None
        self.view: Manifest
        self.schema: SchemaIntent | None = None
        self._entries: list[_Entry] = []
        self._earlier: dict[str, _Entry] = {}
        self._forks: list[TableRef] = []

    @property
    def staged(self) -> list[Staged]:
        return [entry.staged for entry in self._entries]

    @property
    def intents(self) -> list[TableIntent]:
        return [entry.intent for entry in self._entries]

    @property
    def replaced(self) -> set[str]:
        """The tables of which nothing stays."""
        return {entry.intent.key for entry in self._entries if entry.write.replaces}

    def begin(self, view: Manifest) -> None:
        """Begin an attempt on a state."""
        self._earlier |= {entry.intent.key: entry for entry in self._entries}
        if self._work is None and not self._earlier:
            # Files of earlier attempts are used again, so what was true before the first of them has to stay true.
            self._token = files_token(self.store.objects)
        self._entries = []
        self.schema = None
        self.view = view

    def stage(self, writes: Sequence[TableWrite], reads: ReadSet) -> None:
        """Write the files of an attempt, and note what was looked at for it."""
        keys = [write.key for write in writes]
        if len(set(keys)) != len(keys):
            raise InputError("a write has one operation per table")
        for write in sorted(writes, key=lambda write: write.key):
            pin = self.view.tables.get(write.key)
            if pin is None:
                raise InputError(f"the graph has no table {write.key}")
            if write.replaces:
                reads.whole.add(write.key)
            if write.operation is Operation.DELETE and write.where is not None:
                reads.add_filter(write.key, write.where)
            if _is_empty(self.store, write, pin):
                continue
            staged, base = self._written_before(write, pin), None
            if staged is None:
                base = self._adopted(write, pin) or self._base(pin)
                staged = self._stage(write, base)
            if staged is None:
                assert base is not None
                self._unfork(base)
                continue
            if staged.ids is not None:
                reads.add_lookup(write.key, "id", staged.ids)
            self._entries.append(_entry(write, staged, pin))
        reach(Failpoint.STAGED)

    def check_kept(self) -> None:
        """See that cleanup has taken no staged file. To be called when the sidecar is written: it is seen from then on.

        Raises:
            StagedFilesGoneError: it may have; stage everything again.
            VersionReclaimedError: it took the work that staged the files for dead.
        """
        if self._work is not None:
            self._work.check()
        elif files_token(self.store.objects) != self._token:
            raise StagedFilesGoneError(self.view.head.id)

    def _written_before(self, write: TableWrite, pin: TablePin) -> Staged | None:
        """The rows of a write as an earlier attempt wrote them, if they can be used again."""
        earlier = self._earlier.get(write.key)
        if earlier is None or write.rows is None or earlier.write.rows is not write.rows:
            return None
        rows: pa.Table = write.rows
        ids = rows["id"]
        if earlier.write.operation is not write.operation or write.operation not in _ADOPTED:
            return None
        base = earlier.intent.base if earlier.intent.pin == pin.ref else pin.ref
        if not self.view.owns(replace(pin, ref=base)):
            return None
        if write.operation is Operation.INSERT:
            taken = self.store.tables.lookup(pin.ref, "id", ids, columns=["id"])
            if taken.num_rows:
                raise KeyConflictError(write.key, pc.min(taken["id"]).as_py())
        staged = earlier.staged.again(base)
        if staged is not None and write.operation is Operation.INSERT:
            staged = replace(staged, ids=ids)
        return staged

    def rebase(self, view: Manifest) -> str | None:
        """Make what is staged hold for a later state that differs in nothing that was read.

        Returns:
            The key of a table for which that cannot be done. None when all is well.
        """
        entries = []
        for entry in self._entries:
            pin = view.tables[entry.intent.key]
            before = self.view.tables[entry.intent.key]
            if pin == before:
                entries.append(entry)
                continue
            staged = entry.staged.again(pin.ref) if pin.models == before.models and view.owns(pin) else None
            if staged is None:
                return pin.key
            entries.append(_entry(entry.write, staged, pin))
        self._entries = entries
        self.view = view
        return None

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
            return tables.stage_fragments(base, write.fragments, replacing=write.replace)
        if write.operation is Operation.INDEX:
            return tables.stage_indexes(base, write.indexes, kept=write.kept)
        if write.operation is Operation.DROP_DAMAGED_INDEXES:
            return tables.stage_indexes(base, ())
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
        self._entries, self._earlier = [], {}
        for fork in list(self._forks):
            self._unfork(fork)

    def committed(self) -> None:
        """Remove the forks that were made for earlier attempts, and leave the others to the commit."""
        used = {entry.intent.base for entry in self._entries}
        for fork in [fork for fork in self._forks if fork not in used]:
            self._unfork(fork)

    def _unfork(self, base: TableRef) -> None:
        """Remove a fork that was made for nothing."""
        if base in self._forks:
            assert base.branch is not None
            self._forks.remove(base)
            with suppress(Exception):  # cleanup removes what is left
                self.store.tables.drop_fork(base.path, base.branch)


_ADOPTED = (Operation.APPEND, Operation.INSERT, Operation.UPSERT)
"""Operations whose rows are the same in every attempt."""


def _entry(write: TableWrite, staged: Staged, pin: TablePin) -> _Entry:
    rows = pin.row_count + staged.rows_added - staged.rows_removed
    models = write.models
    if models is None:
        models = () if write.replaces else pin.models
    steps = list(staged.steps)
    last = steps[-1].transaction_id
    return _Entry(write, staged, TableIntent(pin.key, pin.id, pin.ref, staged.base, last, rows, models, len(steps)))


def _is_empty(store: Store, write: TableWrite, pin: TablePin) -> bool:
    """Whether a write certainly changes nothing, so that not even a fork is made for it."""
    if write.operation is Operation.FRAGMENTS:
        return not write.fragments and not (write.replace and pin.row_count > 0)
    if write.operation is Operation.INDEX:
        return not store.tables.lacks_indexes(pin.ref, write.indexes, write.kept)
    if write.operation is Operation.DROP_DAMAGED_INDEXES:
        return False
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


def commit_staged(
    store: Store,
    request: WriteRequest,
    prepared: Prepared,
    view: Manifest,
    staging: Staging,
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
        staging.committed()
        record_sums(store, sidecar.operation_id, staging.staged)
        store.objects.create(sidecar.path, sidecar.dump())
    except BaseException:
        # If the sidecar is there all the same, or comes later, it speaks of tables that never moved: it is rolled back.
        staging.abandon()
        remove_ancestors(store.objects, file)
        raise
    try:
        staging.check_kept()
    except (StagedFilesGoneError, VersionReclaimedError):
        # No table has moved, so the write is simply taken back.
        store.objects.delete(sidecar.path)
        staging.abandon()
        remove_ancestors(store.objects, file)
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
    fold_sums(store)
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
    except CorruptionError as second:
        hint = f"do not send it again; {second.hint}"
        raise RecoveryRequiredError(sidecar.operation_id, f"{error}; then: {second}", hint=hint) from error
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
            current = store.capture(sidecar.branch)
            published = find_in(current, sidecar.commit.id)
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
            if unflushed is None and current.incarnation == sidecar.branch_identifier:
                # It was undone, so it can be run again.
                raise ReadSetChangedError(GRAPH_HEAD, sidecar.base_head, current.head.id) from lost
            raise lost
    except FlushFailedError:
        raise
    except StorageError as error:
        raise RecoveryRequiredError(sidecar.operation_id, f"{lost}; then: {error}") from lost
    raise RecoveryRequiredError(sidecar.operation_id, str(lost)) from lost


def _sidecar(store: Store, request: WriteRequest, prepared: Prepared, view: Manifest, staging: Staging) -> Sidecar:
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
