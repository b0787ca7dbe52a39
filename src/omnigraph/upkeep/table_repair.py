"""Repairing one table: its newest content is adopted, or an earlier content is put back.

A process may be paused right after it made sure of its lease, and act when another one has repaired the table and
written to it. So nothing here depends on the lease. A file is set aside only if it still is the one that was looked at.
A restore is marked as ours: if it comes late, the next writer undoes it. Adopting only changes what is published, and a
publish that comes late is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease
from omnigraph.commit.manifest import Manifest, TableId, TablePin
from omnigraph.commit.store import Store
from omnigraph.errors import InputError, OmnigraphError, StorageError
from omnigraph.storage.lance_manifest import TornManifestError, operation, read, restored_version, version_of
from omnigraph.storage.latest_version import VERSIONS, torn_version
from omnigraph.storage.staged import TableConflictError
from omnigraph.storage.staging import stage_restore
from omnigraph.storage.table_ref import TableRef, manifest_name, table_directory
from omnigraph.upkeep.repair_report import Action, Classification, Repaired

_MAINTENANCE = frozenset({"Rewrite", "ReserveFragments"})
_RESTORE = "Restore"
_ID = "id"
_MOVED = "another process moved the table meanwhile; run 'omnigraph repair' again"


class Run(Protocol):
    """The repair that a table is a part of."""

    store: Store
    confirm: bool
    rows: list[Repaired]

    def decide(self, row: Repaired, *, needs_force: bool) -> bool:
        """Note what is done about something that is wrong. Whether it is to be done now."""

    def quarantine(self, row: Repaired, path: str, etag: str) -> bool:
        """Set a file aside that blocks others. Whether that was done."""


@dataclass(frozen=True, slots=True)
class _Step:
    """How a version was made.

    Attributes:
        operation: None when that cannot be told.
        restores: the version whose content it brought back, if it did.
    """

    operation: str | None
    restores: int | None = None


@dataclass(slots=True)
class TableRepair:
    """One table of a branch.

    Attributes:
        held: the lease of the branch; None when nothing is to be done.
        covered: tables that recovery settles.
        abandoned: tables of writes that can be neither finished nor undone.
        went_back: whether newer states of the branch are lost, so that the table may hold what they pointed at.
        drops_indexes: whether it has damaged indexes that are to be dropped.
    """

    run: Run
    view: Manifest
    key: str
    pin: TablePin
    held: Lease | None
    covered: Collection[TableId] = ()
    abandoned: Collection[TableId] = ()
    went_back: bool = False
    drops_indexes: bool = False

    def repair(self) -> TablePin | None:
        """Classify the table, and repair it if there is consent. Returns where the graph should point instead."""
        store, ref = self.run.store, self.pin.ref
        row = Repaired(self.view.branch, self.key, ref.version, None, Classification.NO_DRIFT)
        if not self._clear_head(row):
            return None
        lost = [damage for damage in store.tables.at(ref).damages() if damage.index is None]
        if lost:
            row.classification, row.error = Classification.UNREADABLE, f"{lost[0].path}: {lost[0].reason}"
            return self._go_back(row)
        if row.head is not None and row.head > ref.version:
            return self._ahead(row, row.head)
        indexes = store.tables.at(ref).damages()
        if indexes:
            row.classification = Classification.UNREADABLE
            row.error = f"{indexes[0].path}: {indexes[0].reason}; answers are right, and slow"
            row.plan = "drop the damaged indexes; 'omnigraph optimize' builds them again"
            if self.run.decide(row, needs_force=False):
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
            if self.pin.id in self.covered:
                found.plan, found.error = "nothing: opening the graph for writing settles it", f"{found.error}; pending"
            if not self.run.decide(found, needs_force=False) or not self.run.quarantine(found, torn.path, torn.etag):
                return False
        try:
            row.head = store.tables.head(ref.path, ref.branch)
        except OmnigraphError:
            row.head = None  # what the graph points at cannot be read: that is found next
        return True

    # The table is ahead of the graph

    def _ahead(self, row: Repaired, head: int) -> TablePin | None:
        """The table is ahead of the graph: let the graph point at where it is, or put back what the graph points at."""
        store, ref = self.run.store, self.pin.ref
        steps = [_step(store, ref.at(version)) for version in range(ref.version + 1, head + 1)]
        row.operations = tuple(step.operation or "unknown" for step in steps)
        if any(step.operation is None for step in steps):
            row.classification = Classification.UNVERIFIABLE
        elif all(step.operation in _MAINTENANCE for step in steps):
            row.classification = Classification.VERIFIED_MAINTENANCE
        else:
            row.classification = Classification.SUSPICIOUS
        if self.pin.id in self.covered:
            row.plan = "nothing: opening the graph for writing settles it"
            row.error = "a write that stopped half way moved it"
            self.run.rows.append(row)
            return None
        if self.pin.id in self.abandoned:
            row.error = "a write that can be neither finished nor undone moved it"
            return self._put_back(row, ref, head, free=False)
        kept = self._kept(steps)
        if kept < head:
            row.error = "an earlier version was brought back, which no commit explains"
            # Of our own versions alone, the next writer would do it without asking.
            return self._put_back(row, ref.at(kept), head, free=self._is_ours(head))
        lost = [damage for damage in store.tables.at(ref.at(head)).damages() if damage.index is None]
        if lost:
            row.error = f"{lost[0].path}: {lost[0].reason}"
            return self._put_back(row, self._whole(head), head, free=False)
        return self._adopt(row, ref.at(head))

    def _is_ours(self, head: int) -> bool:
        """Whether this engine made all versions that the graph does not point at."""
        tables, ref = self.run.store.tables, self.pin.ref
        try:
            return all(tables.at(ref.at(version)).is_ours() for version in range(ref.version + 1, head + 1))
        except OmnigraphError:
            return False

    def _whole(self, head: int) -> TableRef:
        """The version whose content stays if the newest one is damaged."""
        tables, ref = self.run.store.tables, self.pin.ref
        for version in range(head - 1, ref.version, -1) if self.went_back else ():
            if not any(damage.index is None for damage in tables.at(ref.at(version)).damages()):
                return ref.at(version)
        return ref

    def _kept(self, steps: Sequence[_Step]) -> int:
        """The version whose content stays: the newest, unless somebody brought back an earlier one.

        A restore that nobody can explain may have come late, and takes rows away that were acknowledged after it was
        begun. So the content that the graph points at stays. If newer states of the graph are lost, restores among
        what they pointed at are followed as long as they go back to nothing older than what is left.
        """
        pinned = self.pin.ref.version
        for version, step in enumerate(steps, pinned + 1):
            if step.operation != _RESTORE:
                continue
            if not self.went_back:
                return pinned
            if step.restores is None or step.restores < pinned:
                return version - 1
        return pinned + len(steps)

    def _adopt(self, row: Repaired, newest: TableRef) -> TablePin | None:
        store = self.run.store
        said = self._compare(row, newest)
        row.plan = f"let the graph point at version {newest.version}: {said}"
        verified = row.classification is Classification.VERIFIED_MAINTENANCE
        if not self.run.decide(row, needs_force=not verified):
            return None
        row.action = Action.HEALED if verified else Action.FORCED
        return replace(self.pin, ref=newest, row_count=store.tables.at(newest).count())

    def _put_back(self, row: Repaired, kept: TableRef, head: int, *, free: bool) -> TablePin | None:
        """Make the content of a version the newest that the newer ones are not to replace.

        Args:
            row: what is said about it.
            kept: the version.
            head: the newest version.
            free: whether no force is needed.
        """
        row.plan = f"put the content of version {kept.version} back: {self._count(row, kept)}"
        if not self.run.decide(row, needs_force=not free):
            return None
        row.action = Action.HEALED if free else Action.FORCED
        return self._restore(row, kept, head)

    # What the graph points at is damaged

    def _go_back(self, row: Repaired) -> TablePin | None:
        """Go back to the newest version of the table that is whole."""
        store, ref = self.run.store, self.pin.ref
        whole = self._whole_before(ref)
        if whole is None:
            row.plan = "put the file back from a backup: no earlier version of the table is whole"
            row.action = Action.REFUSED if self.run.confirm else Action.PREVIEW
            self.run.rows.append(row)
            return None
        torn = torn_version(store.objects, table_directory(ref.path, ref.branch))
        row.plan = f"go back to version {whole.version}: {self._count(row, whole)}; what came after it is lost"
        if not self.run.decide(row, needs_force=True):
            return None
        head = row.head
        if torn is not None and not self.run.quarantine(row, torn.path, torn.etag):
            return None
        store.tables.forget(ref.path)
        newest = store.tables.head(ref.path, ref.branch)
        if newest is None:
            row.refuse(f"{row.error}; the table has no newest version")
            return None
        if head is not None and newest != head:
            row.refuse(_MOVED)
            return None
        row.action = Action.FORCED
        return self._restore(row, whole, newest)

    def _whole_before(self, ref: TableRef) -> TableRef | None:
        store = self.run.store
        listed = store.objects.list(f"{table_directory(ref.path, ref.branch)}/{VERSIONS}")
        versions = sorted(v for info in listed if (v := version_of(info.path.rpartition("/")[2])) is not None)
        for version in reversed([v for v in versions if v < ref.version]):
            if not any(damage.index is None for damage in store.tables.at(ref.at(version)).damages()):
                return ref.at(version)
        return None

    # Both

    def _restore(self, row: Repaired, good: TableRef, head: int) -> TablePin | None:
        tables = self.run.store.tables
        assert self.held is not None
        self.held.check()
        reach(Failpoint.REPAIR_TABLE_CHECKED)
        # The graph has pointed, or may have, at what is taken back.
        visible = self.went_back or good.version != self.pin.ref.version
        staged = stage_restore(tables.at(good.at(head)), good.version, visible=visible)
        try:
            for step in staged.steps:
                made = tables.commit_staged(step)
        except TableConflictError:
            row.refuse(_MOVED)
            return None
        tables.make_durable([staged])
        reach(Failpoint.REPAIR_RESTORED)
        tables.forget(good.path)
        row.head = made.version
        return replace(self.pin, ref=made, row_count=tables.at(made).count())

    def _count(self, row: Repaired, after: TableRef) -> str:
        """Say how many rows the table has before and after."""
        row.rows_before = self.pin.row_count
        with suppress(OmnigraphError):
            row.rows_after = self.run.store.tables.at(after).count()
        after_it = "an unknown number" if row.rows_after is None else row.rows_after
        return f"{row.rows_before} rows before, {after_it} after"

    def _compare(self, row: Repaired, after: TableRef) -> str:
        """Say how many rows the table has before and after, and how many come and go. It costs what the change does."""
        tables, before = self.run.store.tables, self.pin.ref
        said = self._count(row, after)
        try:
            touched = [pa.array([], pa.utf8()), *tables.at(after).touched_since(before)]
            ids = pa.chunked_array(touched).unique()
            old, new = (
                tables.at(ref).lookup(_ID, pa.chunked_array([ids]), columns=[_ID])[_ID] for ref in (before, after)
            )
        except (OmnigraphError, KeyError, ValueError, pa.ArrowException):
            return f"{said}; which come and go cannot be told"
        stay = pc.sum(pc.is_in(new, value_set=old.combine_chunks())).as_py() or 0
        if self.pin.row_count + len(new) - len(old) != row.rows_after:
            return f"{said}; which come and go cannot be told"  # a restore among steps of which nothing is known
        row.rows_added, row.rows_removed = len(new) - stay, len(old) - stay
        return f"{said}; {row.rows_added} come, {row.rows_removed} go, {stay} were written anew"


def _step(store: Store, ref: TableRef) -> _Step:
    """How a version of a table was made."""
    directory = table_directory(ref.path, ref.branch)
    try:
        manifest = read(store.objects.get(f"{directory}/{VERSIONS}/{manifest_name(ref.version)}").data)
        if not manifest.transaction:
            return _Step(None)
        transaction = store.objects.get(f"{directory}/_transactions/{manifest.transaction}").data
        return _Step(operation(transaction), restored_version(transaction))
    except (StorageError, TornManifestError, InputError):
        return _Step(None)
