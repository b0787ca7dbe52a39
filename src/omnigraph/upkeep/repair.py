"""Repair: classifies and fixes tables and files that do not match the manifest.

Without consent, nothing changes. With consent, a table that is ahead of the manifest is adopted (its newest version is
entered in the manifest) or restored, an unreadable table is restored to its last readable version, and damaged files
are quarantined: they get another name. No file is deleted, so no last copy is lost. Repair can be interrupted and run
again: the next run continues from the current state.

Repair also works when recovery fails. A sidecar whose write can be neither completed nor undone is reported. With
force, the tables are restored to the versions in the manifest, a new manifest version is published, and the sidecar is
quarantined.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field

from ulid_transform import ulid_now

from omnigraph.commit import audit
from omnigraph.commit.ancestors import generation_of
from omnigraph.commit.attempts import write
from omnigraph.commit.audit import RecoveryKind, RecoveryRecord, TableOutcome
from omnigraph.commit.clock import commit_time
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease, owner_of
from omnigraph.commit.lineage import find_in
from omnigraph.commit.manifest import MAIN, Change, Commit, Manifest, TablePin
from omnigraph.commit.recovery import is_permanent, settle, unrecoverable_reason
from omnigraph.commit.ref_names import recorded_branch
from omnigraph.commit.refs import (
    branch_ref_names,
    branch_ref_path,
    find_branch,
    find_tag,
    tag_ref_names,
    tag_ref_path,
)
from omnigraph.commit.sidecar import Sidecar, WriterKind, read_sidecars
from omnigraph.commit.store import Store, now_micros
from omnigraph.commit.table_writes import DropDamagedIndexes
from omnigraph.commit.torn_versions import correct_hint, quarantine, quarantine_torn
from omnigraph.commit.write_request import WriteRequest
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    DamagedFileError,
    InputError,
    LeaseTimeoutError,
    ObjectNotFoundError,
    OmnigraphError,
    StorageError,
    StorageErrorKind,
)
from omnigraph.storage.lance_manifest import version_of
from omnigraph.storage.latest_version import VERSIONS
from omnigraph.storage.table_ref import table_directory
from omnigraph.storage.uri import Scheme
from omnigraph.upkeep.repair_report import Action as Action
from omnigraph.upkeep.repair_report import Classification as Classification
from omnigraph.upkeep.repair_report import Repaired as Repaired
from omnigraph.upkeep.repair_report import RepairReport as RepairReport
from omnigraph.upkeep.table_repair import TableRepair

REPAIR_ACTOR = "omnigraph:repair"
FORCED_ACTOR = "omnigraph:repair:force"

_TEMPORARY = (StorageErrorKind.TRANSIENT, StorageErrorKind.CONFIGURATION)


def repair(store: Store, *, confirm: bool = False, force: bool = False) -> RepairReport:
    """Check every table of every branch, and repair them with consent. `Graph.repair` describes it."""
    if force and not confirm:
        raise InputError(
            "force has no effect without confirm",
            hint="first run repair without options to see the plan; then give both (--confirm --force)",
        )
    if store.objects.uri.scheme is Scheme.MEMORY:
        raise InputError(
            "repair is not possible for a graph in memory", hint="repair is for graphs in a directory or in S3"
        )
    run = _Repair(store, confirm, force)
    run.sidecars()
    run.references()
    for branch in [MAIN, *referenced_branches(store)]:
        run.branch(branch)
    run.remaining_sidecars()
    version = None
    with suppress(OmnigraphError):
        version = store.capture(MAIN).version
    return RepairReport(confirm, force, version, tuple(run.rows))


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """The damage of a branch whose newest state cannot be read.

    Attributes:
        error: the error.
        files: the version files after the newest readable one, each with its etag before it was read.
    """

    error: DamagedFileError
    files: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Abandoned:
    """A sidecar whose write can be neither completed nor undone.

    Attributes:
        etag: the etag of the file that was read; empty if it must not be quarantined.
    """

    sidecar: Sidecar
    row: Repaired
    etag: str = ""


@dataclass(slots=True)
class _Repair:
    store: Store
    confirm: bool
    force: bool
    rows: list[Repaired] = field(default_factory=list)
    waiting: list[Sidecar] = field(default_factory=list)
    abandoned: list[_Abandoned] = field(default_factory=list)

    def decide(self, row: Repaired, *, needs_force: bool) -> bool:
        """Record a finding and its action. Returns whether to repair it now."""
        self.rows.append(row)
        if not self.confirm:
            row.action = Action.PREVIEW
        elif needs_force and not self.force:
            row.action = Action.REFUSED
        return row.action is Action.NO_OP

    def quarantine(self, row: Repaired, path: str, etag: str) -> bool:
        """Quarantine a damaged file if its etag is unchanged. Returns whether that was done."""
        reach(Failpoint.REPAIR_FILE_CHECKED)
        try:
            quarantine(self.store, path, etag)
        except OmnigraphError as error:
            row.refuse(error)
            return False
        reach(Failpoint.REPAIR_SET_ASIDE)
        row.action = Action.QUARANTINED
        outcome = TableOutcome(row.type_key, f"{path}: {row.error}", row.head, row.published)
        kind, actor = RecoveryKind.TORN_FILE_SET_ASIDE, FORCED_ACTOR if self.force else REPAIR_ACTOR
        with suppress(OmnigraphError):  # the audit itself may be damaged
            record = RecoveryRecord(
                ulid_now(), None, kind, actor, WriterKind.REPAIR.value, row.branch or MAIN, (outcome,), now_micros()
            )
            audit.append(self.store.audit, record)
        return True

    # Sidecars

    def sidecars(self) -> None:
        """Quarantine unreadable sidecars, recover the others, and collect those that cannot be recovered."""
        found, damaged = read_sidecars(self.store.objects)
        for each in damaged:
            row = Repaired(None, each.path, None, None, Classification.UNREADABLE, error=each.reason)
            row.plan = "quarantine the sidecar; tables that its write has changed are listed below"
            if self.decide(row, needs_force=False):
                self.quarantine(row, each.path, each.etag)
        for branch in sorted({sidecar.branch for sidecar in found}):
            own_rows = [sidecar for sidecar in found if sidecar.branch == branch]
            if self.confirm:
                self._recover_branch(branch, own_rows)
            else:
                self._preview_branch(branch, own_rows)

    def _preview_branch(self, branch: str, sidecars: list[Sidecar]) -> None:
        at_work = owner_of(self.store.leases, branch)
        for sidecar in sidecars:
            reason = None if sidecar.owner == at_work else unrecoverable_reason(self.store, sidecar)
            if reason is None:
                self.waiting.append(sidecar)
            else:
                self._abandon(sidecar, reason)

    def _recover_branch(self, branch: str, sidecars: list[Sidecar]) -> None:
        try:
            with self.store.exclusive(branch, wait=0) as held:
                for sidecar in sidecars:
                    self._recover_sidecar(sidecar, held)
        except LeaseTimeoutError:
            self.waiting += sidecars  # their writer is running
        except OmnigraphError as error:
            self.waiting += sidecars
            row = Repaired(None, "__recovery", None, None, Classification.UNREADABLE, Action.REFUSED)
            row.error = f"an interrupted write cannot be recovered: {error}"
            self.rows.append(row)

    def _recover_sidecar(self, sidecar: Sidecar, held: Lease) -> None:
        try:
            quarantine_torn(self.store, sidecar.branch, [sidecar], alone=True)
            settle(self.store, sidecar, held)
        except ObjectNotFoundError:
            return  # another process has recovered it
        except OmnigraphError as error:
            if not is_permanent(error):
                raise
            self._abandon(sidecar, error.message)

    def _abandon(self, sidecar: Sidecar, reason: str) -> None:
        """Report a write that can be neither completed nor undone. With force, it is given up."""
        row = Repaired(sidecar.branch, sidecar.path, None, None, Classification.UNSETTLED, error=reason)
        row.plan = f"quarantine the sidecar, and {self._effect(sidecar)}"
        found = _Abandoned(sidecar, row)
        self.abandoned.append(found)
        if self.decide(row, needs_force=True):
            with suppress(ObjectNotFoundError):
                found.etag = self.store.objects.get(sidecar.path).etag

    def _effect(self, sidecar: Sidecar) -> str:
        """The effect of giving up a write."""
        visible = False
        with suppress(OmnigraphError):
            visible = find_in(self.store.capture(sidecar.branch), sidecar.commit.id) is not None
        if not visible:
            return "give up its write, of which nothing is visible: the tables are restored to the manifest's versions"
        doubt = (
            "; its files may be incomplete: run 'omnigraph verify' after the repair" if sidecar.rollback_only else ""
        )
        return f"keep its write, which is visible as commit {sidecar.commit.id}{doubt}"

    def _quarantine_sidecars(self, branch: str, held: Lease) -> None:
        """Quarantine the sidecars of a branch after its tables match the manifest."""
        for found in self.abandoned:
            if found.sidecar.branch == branch and found.etag:
                if self._is_needed(found.sidecar):
                    continue
                held.check()
                reach(Failpoint.REPAIR_SIDECAR_CHECKED)
                self.quarantine(found.row, found.sidecar.path, found.etag)
                found.etag = ""

    def _is_needed(self, sidecar: Sidecar) -> bool:
        """Whether the next run needs the sidecar, because a readable table of its write could not be restored."""
        keys = {table.key for table in sidecar.tables}
        own_rows = [row for row in self.rows if row.branch == sidecar.branch and row.type_key in keys]
        left = [row for row in own_rows if row.action is Action.REFUSED]
        return any(row.classification is not Classification.UNREADABLE for row in left)

    def remaining_sidecars(self) -> None:
        """Quarantine the sidecars of deleted branches, and refuse those of branches that could not be checked."""
        for found in self.abandoned:
            if not found.etag:
                continue
            if self.store.branch_identifier(found.sidecar.branch) is None:
                self.quarantine(found.row, found.sidecar.path, found.etag)
            else:
                found.row.refuse(f"{found.row.error}; the branch or its tables have to be repaired first")

    # References

    def references(self) -> None:
        """Quarantine unreadable references of branches. The files of the branches stay."""
        for path, (reason, etag) in _damaged_references(self.store).items():
            row = Repaired(None, path, None, None, Classification.UNREADABLE, error=reason)
            row.plan = "quarantine the reference; the branch then no longer exists, but its files stay"
            if self.decide(row, needs_force=True):
                self.quarantine(row, path, etag)

    # Branches

    def branch(self, name: str) -> None:
        recorded = recorded_branch(name)
        found = self._found(name, recorded)
        if found is None:
            return
        view, damaged = found
        if not self.confirm:
            if damaged is not None:
                self.decide(self._manifest_row(name, view, damaged), needs_force=True)
            for _ in self._tables(view, None, went_back=damaged is not None):
                pass
            return
        dropping: list[str] = []
        with self.store.exclusive(recorded, view=view) as held:
            found = self._found(name, recorded)  # the previous owner of the lease may have repaired it
            if found is None:
                return
            view, damaged = found
            if damaged is not None:
                row = self._manifest_row(name, view, damaged)
                if not self.decide(row, needs_force=True):
                    return
                held.check()
                reach(Failpoint.REPAIR_MANIFEST_CHECKED)
                if not self._quarantine_manifests(row, damaged):
                    return
                # Lance's version hint still has the number of the lost version. So no writer commits on top of the
                # older version before the repair is published.
                self.store.forget(recorded)
                view = self.store.manifest_at(recorded, view.version)
            pins = list(self._tables(view, held, dropping, went_back=damaged is not None))
            given_up = [found for found in self.abandoned if found.sidecar.branch == recorded and found.etag]
            # Publish a new manifest version, so that a delayed publish of a write that is given up fails.
            if pins or damaged is not None or given_up:
                self._publish(view, pins, held, forced=damaged is not None or bool(given_up))
            if damaged is not None:
                correct_hint(self.store, table_directory(self.store.manifest.path, view.ledger.branch))
            self._quarantine_sidecars(recorded, held)
        if dropping:
            self._drop_indexes(recorded, dropping)

    def _found(self, name: str, branch: str) -> tuple[Manifest, _Unreadable | None] | None:
        """The result of `_readable`. If no state can be read, reports this and returns None."""
        try:
            return self._readable(branch)
        except OmnigraphError as error:
            row = Repaired(name, "__manifest", None, None, Classification.UNREADABLE, error=str(error))
            row.action = Action.REFUSED if self.confirm else Action.PREVIEW
            self.rows.append(row)
            return None

    def _readable(self, branch: str) -> tuple[Manifest, _Unreadable | None]:
        """The newest readable state of a branch, and the damage if a newer state exists."""
        try:
            return self.store.capture(branch), None
        except DamagedFileError as error:
            directory = table_directory(self.store.manifest.path, self.store.ledger_of(branch))
            listed = self.store.objects.list(f"{directory}/{VERSIONS}")
            found = {v: info.path for info in listed if (v := version_of(info.path.rpartition("/")[2])) is not None}
            unread: list[tuple[str, str]] = []
            for version, path in sorted(found.items(), reverse=True):
                with suppress(ObjectNotFoundError):
                    unread.append((path, self.store.objects.get(path).etag))
                try:
                    view = self.store.manifest_at(branch, version)
                except OmnigraphError as unreadable:
                    if isinstance(unreadable, StorageError) and unreadable.kind in _TEMPORARY:
                        raise  # the store cannot be reached now, so the file may be intact
                    continue
                lost = version_of(error.path.rpartition("/")[2]) if error.path else None
                newest = max([*found, 0 if lost is None else lost - 1])
                if any(number not in found for number in range(version, newest + 1)):
                    # The next version would get the number of a version that cleanup has removed or will remove.
                    reason = f"{error.reason}; and cleanup has removed the versions after {version}"
                    raise DamagedFileError(
                        error.uri or "", error.path or "", reason, hint="restore the file from a backup"
                    ) from error
                return view, _Unreadable(error, tuple(each for each in unread if each[0] != path))
            raise

    def _manifest_row(self, name: str, view: Manifest, damaged: _Unreadable) -> Repaired:
        row = Repaired(name, "__manifest", None, view.version, Classification.UNREADABLE, error=str(damaged.error))
        row.plan = (
            f"go back to version {view.version}, commit {view.head.id}, with the current versions of the tables; "
            "the damaged version is quarantined"
        )
        return row

    def _quarantine_manifests(self, row: Repaired, damaged: _Unreadable) -> bool:
        """Quarantine unreadable manifest versions of a branch. Returns False if another process changed one."""
        for path, etag in damaged.files:
            if not self.quarantine(row, path, etag):
                return False
        row.action = Action.QUARANTINED
        return True

    def _publish(self, view: Manifest, pins: list[TablePin], held: Lease, *, forced: bool) -> None:
        own_rows = [row for row in self.rows if row.branch == view.branch]
        forced = forced or any(row.action is Action.FORCED for row in own_rows)
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
        reach(Failpoint.REPAIR_PUBLISH_CHECKED)
        self.store.publish(view, Change(tuple(pins)), commit, held)
        reach(Failpoint.REPAIR_PUBLISHED)

    def _drop_indexes(self, branch: str, keys: list[str]) -> None:
        """Drop damaged indexes as one commit, like any other write. `optimize` builds them again."""
        message = "repair: drop damaged indexes"
        request = WriteRequest(branch=branch, kind=WriterKind.REPAIR, actor=REPAIR_ACTOR, message=message)
        write(self.store, request, lambda _: [DropDamagedIndexes(key) for key in keys])

    # Tables

    def _tables(
        self, view: Manifest, held: Lease | None, dropping: list[str] | None = None, *, went_back: bool
    ) -> Iterator[TablePin]:
        """Classify the tables of a branch. With consent, yields the new pins of repaired tables."""
        covered = {table.id for sidecar in self.waiting if sidecar.branch == view.branch for table in sidecar.tables}
        given_up = [found.sidecar for found in self.abandoned if found.sidecar.branch == view.branch]
        abandoned = {table.id for sidecar in given_up for table in sidecar.tables}
        for key, pin in view.tables.items():
            if view.owns(pin):
                table = TableRepair(self, view, key, pin, held, covered, abandoned, went_back)
                found = table.repair()
                if found is not None:
                    yield found
                if table.drops_indexes and dropping is not None:
                    dropping.append(key)


def referenced_branches(store: Store) -> list[str]:
    """The branches that have a readable reference, sorted. Works even if the manifest of `main` cannot be read."""
    damaged = _damaged_references(store)
    whole = [name for name in branch_ref_names(store.objects) if branch_ref_path(name) not in damaged]
    return [name for name in whole if find_branch(store.objects, name) is not None]  # without branches being created


def _damaged_references(store: Store) -> dict[str, tuple[str, str]]:
    """The unreadable references of branches and tags, by path: the reason, and the etag of the file."""
    found: dict[str, tuple[str, str]] = {}
    kinds = ((branch_ref_names, branch_ref_path, find_branch), (tag_ref_names, tag_ref_path, find_tag))
    for names, place, find in kinds:
        for name in names(store.objects):
            with suppress(ObjectNotFoundError):
                etag = store.objects.get(place(name)).etag
                try:
                    find(store.objects, name)
                except DamagedFileError as error:
                    found[error.path] = error.reason, etag
    return found
