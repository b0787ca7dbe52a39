"""Repair: what to do about tables and files that are not what the graph points at, and nothing explains.

Looking changes nothing. With consent, what is ahead of the graph is adopted, what cannot be read is put back to its
last readable version, and files that block others are set aside under another name. No file is deleted, so no only
copy goes. Repair may be interrupted and run again: whatever it did by then is what the next run finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ulid_transform import ulid_now

from omnigraph.commit import audit
from omnigraph.commit.ancestors import generation_of
from omnigraph.commit.attempts import write
from omnigraph.commit.audit import RecoveryKind, RecoveryRecord, TableOutcome
from omnigraph.commit.clock import commit_time
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease
from omnigraph.commit.manifest import MAIN, Change, Commit, Manifest, TablePin
from omnigraph.commit.names import recorded_branch
from omnigraph.commit.recovery import recover_all
from omnigraph.commit.refs import branch_ref_names, branch_ref_path, find_branch, find_tag, tag_ref_names
from omnigraph.commit.sidecar import Sidecar, WriterKind, pending, unreadable
from omnigraph.commit.store import Store, now_micros
from omnigraph.commit.torn import correct_hint, set_aside
from omnigraph.commit.writer import Operation, TableWrite, WriteRequest
from omnigraph.errors import (
    CorruptionError,
    DamagedFileError,
    InputError,
    OmnigraphError,
    StorageError,
)
from omnigraph.storage.lance_manifest import TornManifestError, operation, read, version_of
from omnigraph.storage.newest import VERSIONS, torn_version
from omnigraph.storage.tables import TableRef, manifest_name, table_directory
from omnigraph.storage.uri import Scheme

REPAIR_ACTOR = "omnigraph:repair"
FORCED_ACTOR = "omnigraph:repair:force"

_MAINTENANCE = frozenset({"Rewrite", "ReserveFragments"})


class Classification(StrEnum):
    """How a table stands to what the graph points at."""

    NO_DRIFT = "no_drift"
    VERIFIED_MAINTENANCE = "verified_maintenance"
    SUSPICIOUS = "suspicious"
    UNVERIFIABLE = "unverifiable"
    UNREADABLE = "unreadable"


class Action(StrEnum):
    """What is done about it."""

    NO_OP = "no_op"
    PREVIEW = "preview"
    HEALED = "healed"
    FORCED = "forced"
    QUARANTINED = "quarantined"
    REFUSED = "refused"


@dataclass(slots=True)
class Repaired:
    """A table, or a file, and what is done about it.

    Attributes:
        branch: the branch that it belongs to; None for files of no branch.
        type_key: `node:<Type>` or `edge:<Type>`; `__manifest`; or the path of a file.
        published: the version that the graph points at.
        head: its newest version.
        operations: what was done to the table since, oldest first, as far as that can be told.
        plan: what repair does with consent, in words.
        error: what is wrong, or why nothing was done.
    """

    branch: str | None
    type_key: str
    published: int | None
    head: int | None
    classification: Classification
    action: Action = Action.NO_OP
    operations: tuple[str, ...] = ()
    plan: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What repair found and did.

    Attributes:
        manifest_version: that of `main` afterwards; None when it cannot be read.
        rows: by branch and table; files that cannot be read come first.
    """

    confirm: bool
    force: bool
    manifest_version: int | None
    rows: tuple[Repaired, ...]

    @property
    def refused(self) -> tuple[Repaired, ...]:
        return tuple(row for row in self.rows if row.action is Action.REFUSED)

    @property
    def ok(self) -> bool:
        """Whether there is nothing to repair."""
        return all(row.classification is Classification.NO_DRIFT for row in self.rows)


def repair(store: Store, *, confirm: bool = False, force: bool = False) -> RepairReport:
    """Look at every table of every branch, and with consent repair what can be; `Graph.repair` describes it."""
    if force and not confirm:
        raise InputError("force goes with confirm", hint="look at the plan first, then give both")
    if store.objects.uri.scheme is Scheme.MEMORY:
        raise InputError("a graph in memory goes with its process", hint="repair is for graphs in files")
    run = _Repair(store, confirm, force)
    run.sidecars()
    run.references()
    for branch in [MAIN, *referenced_branches(store)]:
        run.branch(branch)
    version = None
    with suppress(OmnigraphError):
        version = store.capture(MAIN).version
    return RepairReport(confirm, force, version, tuple(run.rows))


@dataclass(slots=True)
class _Repair:
    store: Store
    confirm: bool
    force: bool
    rows: list[Repaired] = field(default_factory=list)
    waiting: list[Sidecar] = field(default_factory=list)

    def _decide(self, row: Repaired, *, needs_force: bool) -> bool:
        """Note what is done about something that is wrong. Whether it is to be done now."""
        self.rows.append(row)
        if not self.confirm:
            row.action = Action.PREVIEW
        elif needs_force and not self.force:
            row.action = Action.REFUSED
        return row.action is Action.NO_OP

    # Files that stop everything

    def sidecars(self) -> None:
        """Set sidecars aside that cannot be read, and settle the others."""
        for path, reason in unreadable(self.store.objects).items():
            row = Repaired(None, path, None, None, Classification.UNREADABLE, error=reason)
            row.plan = "set it aside; tables that its write moved are classified below"
            if self._decide(row, needs_force=False):
                self._set_aside(row, path)
        if self.confirm:
            try:
                recover_all(self.store)
            except OmnigraphError as error:
                row = Repaired(None, "__recovery", None, None, Classification.UNREADABLE, Action.REFUSED)
                row.error = f"an interrupted write cannot be settled: {error}"
                self.rows.append(row)
        with suppress(CorruptionError):
            self.waiting = pending(self.store.objects)

    def references(self) -> None:
        """Set references of branches aside that cannot be read. What the branches hold stays where it is."""
        for path, reason in damaged_references(self.store).items():
            row = Repaired(None, path, None, None, Classification.UNREADABLE, error=reason)
            row.plan = "set it aside; there is no such branch then, and its files stay"
            if self._decide(row, needs_force=True):
                self._set_aside(row, path)

    def _set_aside(self, row: Repaired, path: str) -> None:
        try:
            set_aside(self.store, path)
        except OmnigraphError as error:
            row.action, row.error = Action.REFUSED, str(error)
            return
        reach(Failpoint.REPAIR_SET_ASIDE)
        row.action = Action.QUARANTINED
        outcome = TableOutcome(row.type_key, f"{path}: {row.error}", row.head, row.published)
        kind, actor = RecoveryKind.TORN_FILE_SET_ASIDE, FORCED_ACTOR if self.force else REPAIR_ACTOR
        with suppress(OmnigraphError):  # the audit may be what is damaged
            record = RecoveryRecord(
                ulid_now(), None, kind, actor, WriterKind.REPAIR.value, row.branch or MAIN, (outcome,), now_micros()
            )
            audit.append(self.store.audit, record)

    # Branches

    def branch(self, name: str) -> None:
        recorded = recorded_branch(name)
        try:
            view, damaged = self._readable(recorded)
        except OmnigraphError as error:
            row = Repaired(name, "__manifest", None, None, Classification.UNREADABLE, error=str(error))
            row.action = Action.REFUSED if self.confirm else Action.PREVIEW
            self.rows.append(row)
            return
        if not self.confirm:
            if damaged is not None:
                self._decide(self._manifest_row(name, view, damaged), needs_force=True)
            for _ in self._tables(view, None):
                pass
            return
        dropping: list[str] = []
        with self.store.exclusive(recorded, view=view) as held:
            force_commit = False
            if damaged is not None:
                row = self._manifest_row(name, view, damaged)
                if not self._decide(row, needs_force=True):
                    return
                held.check()
                self._past_manifest(row, recorded)
                force_commit = True
                self.store.forget(recorded)
                view = self.store.capture(recorded)
            pins = list(self._tables(view, held, dropping))
            if pins or force_commit:
                self._publish(view, pins, held, forced=force_commit)
        if dropping:
            self._drop_indexes(recorded, dropping)

    def _readable(self, branch: str) -> tuple[Manifest, DamagedFileError | None]:
        """The newest state of a branch that can be read, and what is wrong with the newest if that is not it."""
        try:
            return self.store.capture(branch), None
        except DamagedFileError as error:
            directory = table_directory(self.store.manifest.path, self.store.ledger_of(branch))
            listed = self.store.objects.list(f"{directory}/{VERSIONS}")
            found = sorted(v for info in listed if (v := version_of(info.path.rpartition("/")[2])) is not None)
            for version in reversed(found):
                with suppress(OmnigraphError):
                    return self.store.manifest_at(branch, version), error
            raise

    def _manifest_row(self, name: str, view: Manifest, damaged: DamagedFileError) -> Repaired:
        row = Repaired(name, "__manifest", None, view.version, Classification.UNREADABLE, error=str(damaged))
        row.plan = (
            f"go back to version {view.version}, commit {view.head.id}, and adopt what the tables hold; "
            "the damaged version is set aside"
        )
        return row

    def _past_manifest(self, row: Repaired, branch: str) -> None:
        """Set aside all versions of a branch's manifest that are newer than the newest that can be read."""
        directory = table_directory(self.store.manifest.path, self.store.ledger_of(branch))
        listed = self.store.objects.list(f"{directory}/{VERSIONS}")
        for info in listed:
            version = version_of(info.path.rpartition("/")[2])
            if version is not None and row.head is not None and version > row.head:
                self._set_aside(row, info.path)
        if self.store.objects.uri.scheme is Scheme.S3 and row.head is not None:
            # Who died while setting a file aside may have left a tombstone, which Lance takes for a version.
            path = f"{directory}/{VERSIONS}/{manifest_name(row.head + 1)}"
            if not self.store.objects.exists(path):
                self.store.objects.delete(path)
        correct_hint(self.store, directory)
        row.action = Action.QUARANTINED

    def _publish(self, view: Manifest, pins: list[TablePin], held: Lease, *, forced: bool) -> None:
        mine = [row for row in self.rows if row.branch == view.branch]
        forced = forced or any(row.action is Action.FORCED for row in mine)
        commit = Commit(
            id=ulid_now(),
            branch=view.branch,
            manifest_version=view.version + 1,
            parent=view.head.id,
            merged_parent=None,
            actor=FORCED_ACTOR if forced else REPAIR_ACTOR,
            created_at=commit_time(view),
            message="repair: " + (", ".join(pin.key for pin in pins) or "go on from the newest readable version"),
            writer=WriterKind.REPAIR.value,
            operation_id=ulid_now(),
            generation=1 + generation_of(self.store, view),
        )
        held.check()
        self.store.publish(view, Change(tuple(pins)), commit, held)
        reach(Failpoint.REPAIR_PUBLISHED)

    def _drop_indexes(self, branch: str, keys: list[str]) -> None:
        """Drop damaged indexes as one commit, like any other write. `optimize` builds them again."""
        said = "repair: drop damaged indexes"
        request = WriteRequest(branch=branch, kind=WriterKind.REPAIR, actor=REPAIR_ACTOR, message=said)
        write(self.store, request, lambda _: [TableWrite(key, Operation.DROP_DAMAGED_INDEXES) for key in keys])

    # Tables

    def _tables(self, view: Manifest, held: Lease | None, dropping: list[str] | None = None) -> Iterator[TablePin]:
        """Classify the tables of a branch. Yields what the graph should point at instead, with consent."""
        for key, pin in view.tables.items():
            if view.owns(pin):
                table = _Table(self, view, key, pin, held)
                found = table.repair()
                if found is not None:
                    yield found
                if table.drops_indexes and dropping is not None:
                    dropping.append(key)


@dataclass(slots=True)
class _Table:
    """One table of a branch."""

    run: _Repair
    view: Manifest
    key: str
    pin: TablePin
    held: Lease | None
    drops_indexes: bool = False

    def repair(self) -> TablePin | None:
        """Classify the table, and repair it if there is consent. Returns where the graph should point instead."""
        store, ref = self.run.store, self.pin.ref
        row = Repaired(self.view.branch, self.key, ref.version, None, Classification.NO_DRIFT)
        if not self._clear_head(row):
            return None
        lost = [damage for damage in store.tables.damages(ref) if damage.index is None]
        if lost:
            row.classification, row.error = Classification.UNREADABLE, f"{lost[0].path}: {lost[0].reason}"
            return self._restore(row)
        if row.head is not None and row.head > ref.version:
            return self._adopt(row)
        indexes = store.tables.damages(ref)
        if indexes:
            row.classification = Classification.UNREADABLE
            row.error = f"{indexes[0].path}: {indexes[0].reason}; answers are right, and slow"
            row.plan = "drop the damaged indexes; 'omnigraph optimize' builds them again"
            if self.run._decide(row, needs_force=False):
                row.action, self.drops_indexes = Action.HEALED, True
            return None
        if row.classification is Classification.NO_DRIFT:
            self.run.rows.append(row)
        return None

    def _clear_head(self, row: Repaired) -> bool:
        """Find the newest version, after torn ones above the graph's are set aside. Whether to go on."""
        store, ref = self.run.store, self.pin.ref
        directory = table_directory(ref.path, ref.branch)
        while (torn := torn_version(store.objects, directory)) is not None and torn.version > ref.version:
            found = replace(row, head=torn.version, classification=Classification.UNREADABLE)
            found.error = f"{torn.path}: {torn.reason}"
            found.plan = "set it aside: the graph does not point at it"
            if self._is_covered():
                found.plan, found.error = "nothing: opening the graph for writing settles it", f"{found.error}; pending"
            if not self.run._decide(found, needs_force=False):
                return False
            self.run._set_aside(found, torn.path)
            if found.action is not Action.QUARANTINED:
                return False
        try:
            row.head = store.tables.head(ref.path, ref.branch)
        except OmnigraphError:
            row.head = None  # what the graph points at cannot be read: that is found next
        return True

    def _is_covered(self) -> bool:
        return any(table.id == self.pin.id for sidecar in self.run.waiting for table in sidecar.tables)

    def _adopt(self, row: Repaired) -> TablePin | None:
        """The table is ahead of the graph: let the graph point at where it is."""
        store, ref = self.run.store, self.pin.ref
        assert row.head is not None
        done = [_operation(store, ref.at(version)) for version in range(ref.version + 1, row.head + 1)]
        row.operations = tuple(each or "unknown" for each in done)
        if any(each is None for each in done):
            row.classification = Classification.UNVERIFIABLE
        elif all(each in _MAINTENANCE for each in done):
            row.classification = Classification.VERIFIED_MAINTENANCE
        else:
            row.classification = Classification.SUSPICIOUS
        row.plan = f"let the graph point at version {row.head}"
        if self._is_covered():
            row.plan = "nothing: opening the graph for writing settles it"
            row.error = "a write that stopped half way moved it"
            row.action = Action.NO_OP
            self.run.rows.append(row)
            return None
        verified = row.classification is Classification.VERIFIED_MAINTENANCE
        if not self.run._decide(row, needs_force=not verified):
            return None
        newest = ref.at(row.head)
        lost = [damage for damage in store.tables.damages(newest) if damage.index is None]
        if lost:
            row.action, row.error = Action.REFUSED, f"{lost[0].path}: {lost[0].reason}"
            return None
        row.action = Action.HEALED if verified else Action.FORCED
        return replace(self.pin, ref=newest, row_count=store.tables.count(newest))

    def _restore(self, row: Repaired) -> TablePin | None:
        """What the graph points at is damaged: go back to the newest version of the table that is whole."""
        store, ref = self.run.store, self.pin.ref
        whole = self._whole_before(ref)
        row.plan = None if whole is None else f"go back to version {whole.version}: what came after it is lost"
        if whole is None:
            row.plan = "put the file back from a backup: no earlier version of the table is whole"
            row.action = Action.REFUSED if self.run.confirm else Action.PREVIEW
            self.run.rows.append(row)
            return None
        if not self.run._decide(row, needs_force=True):
            return None
        assert self.held is not None
        self.held.check()
        torn = torn_version(store.objects, table_directory(ref.path, ref.branch))
        if torn is not None:
            self.run._set_aside(row, torn.path)
        store.tables.forget(ref.path)
        head = store.tables.head(ref.path, ref.branch)
        if head is None:
            row.action, row.error = Action.REFUSED, f"{row.error}; the table has no newest version"
            return None
        restored = store.tables.commit_restore(whole, head)
        reach(Failpoint.REPAIR_RESTORED)
        row.action, row.head = Action.FORCED, restored.version
        return replace(self.pin, ref=restored, row_count=store.tables.count(restored))

    def _whole_before(self, ref: TableRef) -> TableRef | None:
        store = self.run.store
        listed = store.objects.list(f"{table_directory(ref.path, ref.branch)}/{VERSIONS}")
        versions = sorted(v for info in listed if (v := version_of(info.path.rpartition("/")[2])) is not None)
        for version in reversed([v for v in versions if v < ref.version]):
            if not any(damage.index is None for damage in store.tables.damages(ref.at(version))):
                return ref.at(version)
        return None


def _operation(store: Store, ref: TableRef) -> str | None:
    """How a version of a table was made; None when that cannot be told."""
    directory = table_directory(ref.path, ref.branch)
    try:
        manifest = read(store.objects.get(f"{directory}/{VERSIONS}/{manifest_name(ref.version)}").data)
        if not manifest.transaction:
            return None
        return operation(store.objects.get(f"{directory}/_transactions/{manifest.transaction}").data)
    except (StorageError, TornManifestError, InputError):
        return None


def referenced_branches(store: Store) -> list[str]:
    """The branches that have a readable reference, sorted; also if the manifest of `main` cannot be read."""
    damaged = damaged_references(store)
    return [name for name in branch_ref_names(store.objects) if branch_ref_path(name) not in damaged]


def damaged_references(store: Store) -> dict[str, str]:
    """The references of branches and tags that cannot be read, by path, and why."""
    found: dict[str, str] = {}
    for names, find in ((branch_ref_names, find_branch), (tag_ref_names, find_tag)):
        for name in names(store.objects):
            try:
                find(store.objects, name)
            except DamagedFileError as error:
                found[error.path] = error.reason
    return found
