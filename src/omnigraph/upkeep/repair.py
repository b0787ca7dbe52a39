"""Repair: what to do about tables and files that are not what the graph points at, and nothing explains.

Looking changes nothing. With consent, what is ahead of the graph is adopted or put back, what cannot be read is put
back to its last readable version, and files that block others are set aside under another name. No file is deleted, so
no only copy goes. Repair may be interrupted and run again: whatever it did by then is what the next run finds.

It runs when recovery cannot: a sidecar whose write can be neither finished nor undone is shown, and by force the tables
get back what the graph points at, that is published, and the sidecar is set aside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

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
from omnigraph.commit.recovery import is_permanent, obstacle, settle
from omnigraph.commit.ref_names import recorded_branch
from omnigraph.commit.refs import (
    branch_ref_names,
    branch_ref_path,
    find_branch,
    find_tag,
    tag_ref_names,
    tag_ref_path,
)
from omnigraph.commit.sidecar import Sidecar, WriterKind, sort_out
from omnigraph.commit.store import Store, now_micros
from omnigraph.commit.table_writes import DropDamagedIndexes
from omnigraph.commit.torn_versions import correct_hint, quarantine, quarantine_torn
from omnigraph.commit.write_request import WriteRequest
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

_PASSING = (StorageErrorKind.TRANSIENT, StorageErrorKind.CONFIGURATION)


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
    run.left_sidecars()
    version = None
    with suppress(OmnigraphError):
        version = store.capture(MAIN).version
    return RepairReport(confirm, force, version, tuple(run.rows))


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A newest state of a branch that cannot be read.

    Attributes:
        error: what is wrong with it.
        files: the version files after the newest that can be read, each with its etag before it was read.
    """

    error: DamagedFileError
    files: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Abandoned:
    """A sidecar whose write can be neither finished nor undone.

    Attributes:
        etag: the state of the file that was read; empty when it may not be set aside.
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
        """Note what is done about something that is wrong. Whether it is to be done now."""
        self.rows.append(row)
        if not self.confirm:
            row.action = Action.PREVIEW
        elif needs_force and not self.force:
            row.action = Action.REFUSED
        return row.action is Action.NO_OP

    def quarantine(self, row: Repaired, path: str, etag: str) -> bool:
        """Set a file aside that blocks others, if it still is the one that was looked at. Whether that was done."""
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
        with suppress(OmnigraphError):  # the audit may be what is damaged
            record = RecoveryRecord(
                ulid_now(), None, kind, actor, WriterKind.REPAIR.value, row.branch or MAIN, (outcome,), now_micros()
            )
            audit.append(self.store.audit, record)
        return True

    # Sidecars

    def sidecars(self) -> None:
        """Set sidecars aside that cannot be read, settle the others, and find those that cannot be settled."""
        found, damaged = sort_out(self.store.objects)
        for each in damaged:
            row = Repaired(None, each.path, None, None, Classification.UNREADABLE, error=each.reason)
            row.plan = "set it aside; tables that its write moved are classified below"
            if self.decide(row, needs_force=False):
                self.quarantine(row, each.path, each.etag)
        for branch in sorted({sidecar.branch for sidecar in found}):
            mine = [sidecar for sidecar in found if sidecar.branch == branch]
            if self.confirm:
                self._settle_branch(branch, mine)
            else:
                self._look_at(branch, mine)

    def _look_at(self, branch: str, sidecars: list[Sidecar]) -> None:
        at_work = owner_of(self.store.leases, branch)
        for sidecar in sidecars:
            reason = None if sidecar.owner == at_work else obstacle(self.store, sidecar)
            if reason is None:
                self.waiting.append(sidecar)
            else:
                self._abandon(sidecar, reason)

    def _settle_branch(self, branch: str, sidecars: list[Sidecar]) -> None:
        try:
            with self.store.exclusive(branch, wait=0) as held:
                for sidecar in sidecars:
                    self._settle(sidecar, held)
        except LeaseTimeoutError:
            self.waiting += sidecars  # their writer is at work
        except OmnigraphError as error:
            self.waiting += sidecars
            row = Repaired(None, "__recovery", None, None, Classification.UNREADABLE, Action.REFUSED)
            row.error = f"an interrupted write cannot be settled: {error}"
            self.rows.append(row)

    def _settle(self, sidecar: Sidecar, held: Lease) -> None:
        try:
            quarantine_torn(self.store, sidecar.branch, [sidecar], alone=True)
            settle(self.store, sidecar, held)
        except ObjectNotFoundError:
            return  # another process has settled it
        except OmnigraphError as error:
            if not is_permanent(error):
                raise
            self._abandon(sidecar, error.message)

    def _abandon(self, sidecar: Sidecar, reason: str) -> None:
        """A write can be neither finished nor undone: with consent, the graph goes on without it."""
        row = Repaired(sidecar.branch, sidecar.path, None, None, Classification.UNSETTLED, error=reason)
        row.plan = f"set the sidecar aside, and {self._without(sidecar)}"
        found = _Abandoned(sidecar, row)
        self.abandoned.append(found)
        if self.decide(row, needs_force=True):
            with suppress(ObjectNotFoundError):
                found.etag = self.store.objects.get(sidecar.path).etag

    def _without(self, sidecar: Sidecar) -> str:
        """What becomes of a write that is given up."""
        visible = False
        with suppress(OmnigraphError):
            visible = find_in(self.store.capture(sidecar.branch), sidecar.commit.id) is not None
        if not visible:
            return "give up its write, of which nothing is visible: the tables get back what the graph points at"
        doubt = (
            "; its files may not have reached the disk: run 'omnigraph verify' then" if sidecar.rollback_only else ""
        )
        return f"keep its write, which is visible as commit {sidecar.commit.id}{doubt}"

    def _leave_behind(self, branch: str, held: Lease) -> None:
        """Set the sidecars of a branch aside whose tables are where the graph points by now."""
        for found in self.abandoned:
            if found.sidecar.branch == branch and found.etag:
                if self._is_needed(found.sidecar):
                    continue
                held.check()
                reach(Failpoint.REPAIR_SIDECAR_CHECKED)
                self.quarantine(found.row, found.sidecar.path, found.etag)
                found.etag = ""

    def _is_needed(self, sidecar: Sidecar) -> bool:
        """Whether a table of a write that can be read could not be put back: the next run tries again."""
        keys = {table.key for table in sidecar.tables}
        mine = [row for row in self.rows if row.branch == sidecar.branch and row.type_key in keys]
        left = [row for row in mine if row.action is Action.REFUSED]
        return any(row.classification is not Classification.UNREADABLE for row in left)

    def left_sidecars(self) -> None:
        """Sidecars of branches that are gone, or could not be looked at."""
        for found in self.abandoned:
            if not found.etag:
                continue
            if self.store.branch_identifier(found.sidecar.branch) is None:
                self.quarantine(found.row, found.sidecar.path, found.etag)
            else:
                found.row.refuse(f"{found.row.error}; the branch or its tables have to be repaired first")

    # References

    def references(self) -> None:
        """Set references of branches aside that cannot be read. What the branches hold stays where it is."""
        for path, (reason, etag) in _damaged_references(self.store).items():
            row = Repaired(None, path, None, None, Classification.UNREADABLE, error=reason)
            row.plan = "set it aside; there is no such branch then, and its files stay"
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
            found = self._found(name, recorded)  # whoever had the lease may have repaired it
            if found is None:
                return
            view, damaged = found
            if damaged is not None:
                row = self._manifest_row(name, view, damaged)
                if not self.decide(row, needs_force=True):
                    return
                held.check()
                reach(Failpoint.REPAIR_MANIFEST_CHECKED)
                if not self._past_manifest(row, damaged):
                    return
                # The hint still names the lost version, so nobody goes on from this one before it is published anew.
                self.store.forget(recorded)
                view = self.store.manifest_at(recorded, view.version)
            pins = list(self._tables(view, held, dropping, went_back=damaged is not None))
            given_up = [found for found in self.abandoned if found.sidecar.branch == recorded and found.etag]
            # A late request to publish a write that is given up must find its version taken.
            if pins or damaged is not None or given_up:
                self._publish(view, pins, held, forced=damaged is not None or bool(given_up))
            if damaged is not None:
                correct_hint(self.store, table_directory(self.store.manifest.path, view.ledger.branch))
            self._leave_behind(recorded, held)
        if dropping:
            self._drop_indexes(recorded, dropping)

    def _found(self, name: str, branch: str) -> tuple[Manifest, _Unreadable | None] | None:
        """The same as `_readable`; None when nothing can be read, which is noted."""
        try:
            return self._readable(branch)
        except OmnigraphError as error:
            row = Repaired(name, "__manifest", None, None, Classification.UNREADABLE, error=str(error))
            row.action = Action.REFUSED if self.confirm else Action.PREVIEW
            self.rows.append(row)
            return None

    def _readable(self, branch: str) -> tuple[Manifest, _Unreadable | None]:
        """The newest state of a branch that can be read, and what is wrong with the newest if that is not it."""
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
                    if isinstance(unreadable, StorageError) and unreadable.kind in _PASSING:
                        raise  # it may be whole
                    continue
                return view, _Unreadable(error, tuple(each for each in unread if each[0] != path))
            raise

    def _manifest_row(self, name: str, view: Manifest, damaged: _Unreadable) -> Repaired:
        row = Repaired(name, "__manifest", None, view.version, Classification.UNREADABLE, error=str(damaged.error))
        row.plan = (
            f"go back to version {view.version}, commit {view.head.id}, and adopt what the tables hold; "
            "the damaged version is set aside"
        )
        return row

    def _past_manifest(self, row: Repaired, damaged: _Unreadable) -> bool:
        """Set aside the versions of a branch's manifest that cannot be read. Whether nobody else was at it."""
        for path, etag in damaged.files:
            if not self.quarantine(row, path, etag):
                return False
        row.action = Action.QUARANTINED
        return True

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
        reach(Failpoint.REPAIR_PUBLISH_CHECKED)
        self.store.publish(view, Change(tuple(pins)), commit, held)
        reach(Failpoint.REPAIR_PUBLISHED)

    def _drop_indexes(self, branch: str, keys: list[str]) -> None:
        """Drop damaged indexes as one commit, like any other write. `optimize` builds them again."""
        said = "repair: drop damaged indexes"
        request = WriteRequest(branch=branch, kind=WriterKind.REPAIR, actor=REPAIR_ACTOR, message=said)
        write(self.store, request, lambda _: [DropDamagedIndexes(key) for key in keys])

    # Tables

    def _tables(
        self, view: Manifest, held: Lease | None, dropping: list[str] | None = None, *, went_back: bool
    ) -> Iterator[TablePin]:
        """Classify the tables of a branch. Yields what the graph should point at instead, with consent."""
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
    """The branches that have a readable reference, sorted; also if the manifest of `main` cannot be read."""
    damaged = _damaged_references(store)
    whole = [name for name in branch_ref_names(store.objects) if branch_ref_path(name) not in damaged]
    return [name for name in whole if find_branch(store.objects, name) is not None]  # others are being created


def _damaged_references(store: Store) -> dict[str, tuple[str, str]]:
    """The references of branches and tags that cannot be read, by path: why, and the etag of what was read."""
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
