"""Repairs one table: enters its newest version in the manifest (adopts it), or restores an earlier version.

A process may be paused after it has checked its lease, and continue after another process has repaired the table and
written to it. So nothing here depends on the lease. A file is quarantined only if its etag is unchanged. A restore is
marked as one of OmniGraph: if it is delayed, the next writer recognises the mark and undoes the restore. Adopting a
version only changes the manifest, and a delayed publish of the manifest fails.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease
from omnigraph.commit.manifest import Manifest, TableId, TablePin
from omnigraph.commit.store import Store
from omnigraph.dataclass import dataclass
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
_CHANGED = "another process changed the table; run 'omnigraph repair' again"


class Run(Protocol):
    """The repair run that a table is part of."""

    store: Store
    confirm: bool
    rows: list[Repaired]

    def decide(self, row: Repaired, *, needs_force: bool) -> bool:
        """Record a finding and its action. Returns whether to repair it now."""

    def quarantine(self, row: Repaired, path: str, etag: str) -> bool:
        """Quarantine a damaged file. Returns whether that was done."""


@dataclass(frozen=True, slots=True)
class _Step:
    """The operation that created a version.

    Attributes:
        operation: None if it is unknown.
        restores: the version that it restored, if it is a restore.
    """

    operation: str | None
    restores: int | None = None


@dataclass(slots=True)
class TableRepair:
    """One table of a branch.

    Attributes:
        held: the lease of the branch; None in a preview.
        covered: tables that recovery handles.
        abandoned: tables of writes that can be neither completed nor undone.
        went_back: whether newer manifest versions of the branch are lost. They may have pointed at newer versions of
            the table.
        drops_indexes: whether it has damaged indexes to drop.
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
        """Classify the table, and repair it with consent. Returns its new pin, if it changes."""
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
            row.error = f"{indexes[0].path}: {indexes[0].reason}; results are correct, but slow"
            row.plan = "drop the damaged indexes; 'omnigraph optimize' builds them again"
            if self.run.decide(row, needs_force=False):
                row.action, self.drops_indexes = Action.HEALED, True
            return None
        if row.classification is Classification.NO_DRIFT:
            self.run.rows.append(row)
        return None

    def _clear_head(self, row: Repaired) -> bool:
        """Find the newest version, after torn ones above the pin are quarantined. Returns whether to continue."""
        store, ref = self.run.store, self.pin.ref
        directory = table_directory(ref.path, ref.branch)
        while (torn := torn_version(store.objects, directory)) is not None and torn.version > ref.version:
            found = replace(row, head=torn.version, classification=Classification.UNREADABLE)
            found.error = f"{torn.path}: {torn.reason}"
            found.plan = "quarantine the file: the manifest does not need it"
            if self.pin.id in self.covered:
                found.plan = "nothing: opening the graph for writing recovers the interrupted write"
                found.error = f"{found.error}; its write is pending"
            if not self.run.decide(found, needs_force=False) or not self.run.quarantine(found, torn.path, torn.etag):
                return False
        try:
            row.head = store.tables.head(ref.path, ref.branch)
        except OmnigraphError:
            row.head = None  # the pinned version is unreadable: the next check reports it
        return True

    # The table is ahead of the manifest

    def _ahead(self, row: Repaired, head: int) -> TablePin | None:
        """Repair a table that is ahead of the manifest: adopt its newest version, or restore the pinned one."""
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
            row.plan = "nothing: opening the graph for writing recovers the interrupted write"
            row.error = "an interrupted write added the newer versions"
            self.run.rows.append(row)
            return None
        if self.pin.id in self.abandoned:
            row.error = "a write that can be neither completed nor undone added the newer versions"
            return self._restore_content(row, ref, head, free=False)
        good_version = self._version_to_keep(steps)
        if good_version < head:
            row.error = "it was restored to an earlier version, but not by a commit of the graph"
            # If OmniGraph created all these versions, the next writer would restore the content without consent.
            return self._restore_content(row, ref.at(good_version), head, free=self._is_ours(head))
        lost = [damage for damage in store.tables.at(ref.at(head)).damages() if damage.index is None]
        if lost:
            row.error = f"{lost[0].path}: {lost[0].reason}"
            return self._restore_content(row, self._intact_version(head), head, free=False)
        return self._adopt(row, ref.at(head))

    def _is_ours(self, head: int) -> bool:
        """Whether OmniGraph created all versions after the pinned one."""
        tables, ref = self.run.store.tables, self.pin.ref
        try:
            return all(tables.at(ref.at(version)).is_ours() for version in range(ref.version + 1, head + 1))
        except OmnigraphError:
            return False

    def _intact_version(self, head: int) -> TableRef:
        """The version whose content stays if the newest one is damaged."""
        tables, ref = self.run.store.tables, self.pin.ref
        for version in range(head - 1, ref.version, -1) if self.went_back else ():
            if not any(damage.index is None for damage in tables.at(ref.at(version)).damages()):
                return ref.at(version)
        return ref

    def _version_to_keep(self, steps: Sequence[_Step]) -> int:
        """The version whose content stays: the newest, unless a version after the pinned one is a restore.

        The restore may have been delayed, and may undo acknowledged writes. So the content of the pinned version stays.
        If newer manifest versions are lost, they may have pointed at restores. Then a restore is accepted if it
        restores the pinned version or a later one. Otherwise the content of the version before the restore stays.
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
        rows = self._compare(row, newest)
        row.plan = f"point the graph at version {newest.version}: {rows}"
        verified = row.classification is Classification.VERIFIED_MAINTENANCE
        if not self.run.decide(row, needs_force=not verified):
            return None
        row.action = Action.HEALED if verified else Action.FORCED
        return replace(self.pin, ref=newest, row_count=store.tables.at(newest).count())

    def _restore_content(self, row: Repaired, good_version: TableRef, head: int, *, free: bool) -> TablePin | None:
        """Make the content of an earlier version the newest one.

        Args:
            row: the finding.
            good_version: the version to restore.
            head: the newest version.
            free: whether the repair is allowed without `force`.
        """
        row.plan = f"restore the content of version {good_version.version}: {self._count(row, good_version)}"
        if not self.run.decide(row, needs_force=not free):
            return None
        row.action = Action.HEALED if free else Action.FORCED
        return self._restore(row, good_version, head)

    # The pinned version is damaged

    def _go_back(self, row: Repaired) -> TablePin | None:
        """Restore the newest intact version of the table."""
        store, ref = self.run.store, self.pin.ref
        intact = self._intact_version_before(ref)
        if intact is None:
            row.plan = "restore the file from a backup: no earlier version of the table is intact"
            row.action = Action.REFUSED if self.run.confirm else Action.PREVIEW
            self.run.rows.append(row)
            return None
        torn = torn_version(store.objects, table_directory(ref.path, ref.branch))
        row.plan = f"go back to version {intact.version}: {self._count(row, intact)}; later changes are lost"
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
            row.refuse(_CHANGED)
            return None
        row.action = Action.FORCED
        return self._restore(row, intact, newest)

    def _intact_version_before(self, ref: TableRef) -> TableRef | None:
        store = self.run.store
        listed = store.objects.list(f"{table_directory(ref.path, ref.branch)}/{VERSIONS}")
        versions = sorted(v for info in listed if (v := version_of(info.path.rpartition("/")[2])) is not None)
        for version in reversed([v for v in versions if v < ref.version]):
            if not any(damage.index is None for damage in store.tables.at(ref.at(version)).damages()):
                return ref.at(version)
        return None

    # Both cases

    def _restore(self, row: Repaired, good: TableRef, head: int) -> TablePin | None:
        tables = self.run.store.tables
        assert self.held is not None
        self.held.check()
        reach(Failpoint.REPAIR_TABLE_CHECKED)
        # Whether the manifest points, or may have pointed, at the content that the restore replaces.
        visible = self.went_back or good.version != self.pin.ref.version
        staged = stage_restore(tables.at(good.at(head)), good.version, visible=visible)
        try:
            for step in staged.steps:
                made = tables.commit_staged(step)
        except TableConflictError:
            row.refuse(_CHANGED)
            return None
        tables.make_durable([staged])
        reach(Failpoint.REPAIR_RESTORED)
        tables.forget(good.path)
        row.head = made.version
        return replace(self.pin, ref=made, row_count=tables.at(made).count())

    def _count(self, row: Repaired, after: TableRef) -> str:
        """Describe the row counts before and after."""
        row.rows_before = self.pin.row_count
        with suppress(OmnigraphError):
            row.rows_after = self.run.store.tables.at(after).count()
        after_it = "an unknown number" if row.rows_after is None else row.rows_after
        return f"{row.rows_before} rows before, {after_it} after"

    def _compare(self, row: Repaired, after: TableRef) -> str:
        """Describe the row counts before and after, and the numbers of added, removed and rewritten rows."""
        tables, before = self.run.store.tables, self.pin.ref
        counts = self._count(row, after)
        try:
            touched = [pa.array([], pa.utf8()), *tables.at(after).touched_since(before)]
            ids = pa.chunked_array(touched).unique()
            old, new = (
                tables.at(ref).lookup(_ID, pa.chunked_array([ids]), columns=[_ID])[_ID] for ref in (before, after)
            )
        except (OmnigraphError, KeyError, ValueError, pa.ArrowException):
            return f"{counts}; the added and removed rows are unknown"
        stay = pc.sum(pc.is_in(new, value_set=old.combine_chunks())).as_py() or 0
        if self.pin.row_count + len(new) - len(old) != row.rows_after:
            return f"{counts}; the added and removed rows are unknown"  # the steps contain an unknown restore
        row.rows_added, row.rows_removed = len(new) - stay, len(old) - stay
        return f"{counts}; {row.rows_added} added, {row.rows_removed} removed, {stay} rewritten"


def _step(store: Store, ref: TableRef) -> _Step:
    """The operation that created a version of a table."""
    directory = table_directory(ref.path, ref.branch)
    try:
        manifest = read(store.objects.get(f"{directory}/{VERSIONS}/{manifest_name(ref.version)}").data)
        if not manifest.transaction:
            return _Step(None)
        transaction = store.objects.get(f"{directory}/_transactions/{manifest.transaction}").data
        return _Step(operation(transaction), restored_version(transaction))
    except (StorageError, TornManifestError, InputError):
        return _Step(None)
