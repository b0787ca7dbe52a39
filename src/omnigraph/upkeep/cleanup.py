"""Cleanup: removes table versions and files that no branch, tag, kept commit or running job needs.

Cleanup plans twice. The first plan is written durably to the removal list. Then everything is read again: references,
tags, work records, writes in flight, tables. Only versions that are in both plans are removed, after the list is made
final. If a process starts to use a version in between, either the second plan finds this use, or the process finds the
version on the list and fails. So no delay between two steps can lose acknowledged data. `commit/removal_list.py` has
the details.

Versions are removed first, by deleting their manifests, then the files that only they needed. An interrupted cleanup
leaves a final list, which the next cleanup completes, and orphan files, which it finds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from omnigraph.commit import removal_list, transaction_branches
from omnigraph.commit.branch_reset import finish_resets
from omnigraph.commit.branches import withdraw_pending
from omnigraph.commit.drift import settle_late_versions
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import lease_path
from omnigraph.commit.manifest import MANIFEST_PATH, Manifest
from omnigraph.commit.manifest_rows import read_manifest
from omnigraph.commit.recover_all import recover_all
from omnigraph.commit.recovery import recover_branch
from omnigraph.commit.removal_list import ListState, RemovalList, TableRemovals
from omnigraph.commit.retention import ORPHANS_OLDER_THAN
from omnigraph.commit.schema_tables import identity_in
from omnigraph.commit.sidecar import Sidecar, pending
from omnigraph.commit.staged_checksums import drop_checksums
from omnigraph.commit.staging_directories import DIRECTORY as STAGING
from omnigraph.commit.staging_directories import StagingDirectory, delete_empty, staging_directories
from omnigraph.commit.store import CLEANUP, Store
from omnigraph.commit.work_records import WorkRecord, read_records, remove_dead, watch
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    CorruptionError,
    DriftError,
    InputError,
    LeaseTimeoutError,
    ObjectChangedError,
    OmnigraphError,
    StorageError,
    VersionReclaimedError,
)
from omnigraph.storage.objects import ObjectInfo, disk_space
from omnigraph.storage.objects.disk_space import is_full
from omnigraph.storage.table_ref import table_directory
from omnigraph.storage.uri import Scheme
from omnigraph.upkeep import reachable
from omnigraph.upkeep.manifest_sweep import plan_manifest, remove_transactions
from omnigraph.upkeep.reachable import Policy, Reach, unless_removed
from omnigraph.upkeep.sweep import TablePlanner, TableSweep, manifest_path
from omnigraph.worker_pool import WorkerPool

_CLOCK_SKEW = timedelta(minutes=5)
"""Allowed error of the modification times of a store."""

_STAGED_TTL = timedelta(hours=1)
"""Minimum age of the newest file of staged rows without a work record. Older rows were left by a crashed process."""

_UNNAMED_BRANCH_TTL = timedelta(minutes=10)
"""Maximum time between the creation of a branch's manifest and its reference. A later cleanup removes the manifest."""

T = TypeVar("T")
R = TypeVar("R")

_TABLE = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}(-[0-7][0-9a-hjkmnp-tv-z]{25})?")
_LEDGER = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{25}")
_ATTEMPTS = 8
_WORKERS = 8


@dataclass(frozen=True, slots=True)
class TableCleanup:
    """The removed files of one table, or a preview of them.

    Attributes:
        type_key: `node:<Type>` or `edge:<Type>`; for a table of an unknown type, its path.
        bytes_removed: the size of all removed files.
        old_versions_removed: number of removed versions that no branch, tag or kept commit can read, also those of
            removed forks and of tables of dropped types.
        forks_removed: number of removed forks (Lance branches of the table) of deleted branches and of failed writes.
        orphans_removed: number of removed files that no version ever needed.
        error: the error of this table. It does not prevent the cleanup of other tables.
    """

    type_key: str
    bytes_removed: int
    old_versions_removed: int
    forks_removed: int
    orphans_removed: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LoadAtWork:
    """Running work that protects files which are old enough to be removed.

    Attributes:
        name: the ULID of the work. Its staged files are in the directory of this name below `__staging`.
        kind: the kind of work: `load`, `merge`, `export` and so on; None for staged rows without a record.
        began: its start. If it writes to tables, orphan files that are newer than this stay.
        seen: the time of its last heartbeat.
        on_tables: whether it writes to tables; if not, only the versions that it reads, or its staged files, stay.
        host: the host of its process, if known.
        pid: the id of its process.
    """

    name: str
    kind: str | None
    began: datetime
    seen: datetime
    on_tables: bool
    host: str | None
    pid: int | None


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """The result of a cleanup, or of its preview.

    Attributes:
        preview: whether nothing was removed.
        tables: the results by table, including tables without removals.
        loads_removed: number of failed loads whose staged rows were removed.
        load_bytes_removed: the size of those rows.
        loads_at_work: running work that protects files which are old enough to be removed.
        branches_removed: number of removed manifests of deleted branches that no merge needs.
        manifest: the removed versions and files of `__manifest`, without those of deleted branches.
    """

    preview: bool
    tables: tuple[TableCleanup, ...]
    loads_removed: int
    load_bytes_removed: int
    loads_at_work: tuple[LoadAtWork, ...] = ()
    branches_removed: int = 0
    manifest: TableCleanup = TableCleanup(MANIFEST_PATH, 0, 0, 0, 0)

    @property
    def versions_removed(self) -> int:
        """The number of removed table versions."""
        return sum(table.old_versions_removed for table in self.tables)

    @property
    def bytes_removed(self) -> int:
        return sum(table.bytes_removed for table in (*self.tables, self.manifest)) + self.load_bytes_removed

    @property
    def errors(self) -> tuple[str, ...]:
        failed = [table for table in (*self.tables, self.manifest) if table.error is not None]
        return tuple(f"{table.type_key}: {table.error}" for table in failed)


def cleanup(store: Store, policy: Policy, *, preview: bool = False) -> CleanupReport:
    """Remove everything that a policy allows. `Graph.cleanup` describes it."""
    if store.objects.uri.scheme is Scheme.MEMORY:
        raise InputError(
            "cleanup is not possible for a graph in memory", hint="cleanup is for graphs in a directory or in S3"
        )
    if preview:
        _check_recovered(store)
        return _Plan.of(store, policy, now(), now(), only_alive=True).report(preview=True)
    try:
        return _clean(store, policy)
    except OmnigraphError as error:
        # Cleanup must also work on a full disk, and its own small files need space.
        if not is_full(error) or not _free_space(store):
            raise
        return _clean(store, policy)
    finally:
        disk_space.remove_temporary(store.objects)
        disk_space.keep_reserve(store.objects)


def removable_versions(store: Store, tables: Collection[str]) -> dict[str, TableRemovals]:
    """The versions of some tables that neither branches nor tags, merge bases or running jobs need. Changes nothing.

    Of `main`, only the newest state counts. A fork of an existing branch counts as needed if one of its commits needs a
    version of it. So the cost does not depend on the number of commits. Writes in flight do not prevent this: the
    versions that they start from are not counted.

    Args:
        store: the graph.
        tables: the paths of the tables.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _removable_versions(store, tables)
        except VersionReclaimedError:  # another cleanup has removed a version that was being read
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _removable_versions(store: Store, tables: Collection[str]) -> dict[str, TableRemovals]:
    policy = Policy(1, None, ORPHANS_OLDER_THAN, tables=frozenset(tables), only_forks=True)
    # As in a plan: first the files, then running work, then the references to files.
    listed = {path: infos for path in sorted(tables) if (infos := store.objects.list(path))}
    records = [record for record in read_records(store.leases) if watch.is_alive(record, store.timeouts.ttl)]
    sidecars = pending(store.objects)
    found = reachable.reach(store, policy, now(), records, sidecars)
    pins, cutoff = found.versions(), _cutoff(now() - policy.orphans, records)
    planner = TablePlanner(store.tables, found.identifiers, cutoff, _tables_in_flight(sidecars), tables)
    removable = {}
    for path, infos in listed.items():
        sweep = _planned(planner.plan_versions, store, path, infos, pins.get(path, {}))
        if sweep.error is None:
            forks = [fork for fork in sweep.versions if fork is None or planner.is_deleted(fork)]
            removable[path] = replace(sweep, versions={fork: sweep.versions[fork] for fork in forks}).removals
    return removable


def _planned(
    plan: Callable[[str, Sequence[ObjectInfo], Mapping[str | None, set[int]]], TableSweep],
    store: Store,
    path: str,
    infos: Sequence[ObjectInfo],
    pins: Mapping[str | None, set[int]],
) -> TableSweep:
    """The plan for a table, by a method of `TablePlanner`. An error becomes part of the plan."""
    for attempt in range(_ATTEMPTS):
        try:
            return plan(path, infos, pins)
        except OmnigraphError as error:
            if attempt == _ATTEMPTS - 1:
                return TableSweep(path, error=str(error))
            # Another process may have removed a fork during the scan.
            existing = {info.path for info in store.objects.list(path)}
            infos = [info for info in infos if info.path in existing]
    raise AssertionError("unreachable")


def _cutoff(limit: datetime, records: Iterable[WorkRecord]) -> datetime:
    """Orphan files older than this are removed: no running work can have created them."""
    return min([limit, *(record.began - _CLOCK_SKEW for record in records if record.writes)])


def _clean(store: Store, policy: Policy) -> CleanupReport:
    _recover(store)
    try:
        with store.exclusive_cleanup():
            for _ in range(_ATTEMPTS):
                # This process was paused, and another cleanup took over, or has removed a version that was being read.
                with suppress(ObjectChangedError, VersionReclaimedError):
                    return _clean_once(store, policy)
    except LeaseTimeoutError as error:
        raise LeaseTimeoutError("another cleanup is running", hint="try again later") from error
    raise ConflictError("other cleanups took over repeatedly", hint="try again")


def _clean_once(store: Store, policy: Policy) -> CleanupReport:
    earlier = removal_list.read(store.objects)
    if earlier.state is ListState.FINAL:
        _finish(store, earlier)
    if earlier.state is not ListState.NONE:
        earlier = removal_list.finish(store.objects, earlier)  # discards a proposal that was never made final
    _, dead = watch.live(store.leases, store.timeouts.ttl, wait=True)
    awake = {record.name for record in remove_dead(store.leases, dead)}
    ended = {record.name for record in dead} - awake
    first = _Plan.of(store, policy, now(), _store_time(store), ended)
    reach(Failpoint.CLEANUP_LOOKED)
    if first.is_empty:
        first.remove_staged(store)
        return first.report(preview=False)
    proposed = removal_list.propose(store.objects, earlier, first.removals)
    reach(Failpoint.CLEANUP_PROPOSED)
    plan = _Plan.of(store, policy, first.now, first.began, ended).within(first)
    reach(Failpoint.CLEANUP_CHECKED)
    final = removal_list.decide(store.objects, proposed, plan.removals)
    reach(Failpoint.CLEANUP_DECIDED)
    plan.remove_versions(store)
    reach(Failpoint.CLEANUP_VERSIONS_REMOVED)
    plan.remove_files(store)
    plan.remove_staged(store)
    drop_checksums(store)
    reach(Failpoint.CLEANUP_FILES_REMOVED)
    with suppress(ObjectChangedError):  # another cleanup has taken over and completed it
        removal_list.finish(store.objects, final)
    return plan.report(preview=False)


@dataclass(slots=True)
class _Plan:
    """The removals of one plan.

    Attributes:
        manifest: the removals in `__manifest`, except whole Lance branches.
        staged: staged rows of dead processes.
        ledgers: Lance branches of the manifest to remove.
        at_work: running work that protects files which are old enough to be removed.
        now: the current time, for the age of commits.
        began: the current time by the clock of the store, for the age of files.
        limit: orphan files older than this are removed, unless running work may have created them.
    """

    reach: Reach
    sweeps: list[TableSweep]
    manifest: TableSweep
    staged: list[StagingDirectory]
    ledgers: list[str]
    at_work: list[LoadAtWork]
    now: datetime
    began: datetime
    limit: datetime

    @classmethod
    def of(
        cls,
        store: Store,
        policy: Policy,
        now: datetime,
        began: datetime,
        ended: Collection[str] = (),
        *,
        only_alive: bool = False,
    ) -> _Plan:
        """Make a plan. The order of reads matters: files first, then running work, then the references to files.

        So for a write that created one of the files, either its work record or its commit is seen.

        Args:
            store: the graph.
            policy: the commits to keep.
            now: the current time.
            began: the current time by the clock of the store.
            ended: names of work whose process died and whose work record was removed.
            only_alive: whether to ignore work records of dead processes. Otherwise these records are already removed.
        """
        listed = _by_table([*store.objects.list("nodes"), *store.objects.list("edges")])
        manifest_files = store.objects.list(MANIFEST_PATH)
        trees = _newest_files(info for info in manifest_files if info.path.startswith(f"{MANIFEST_PATH}/tree/"))
        staged = staging_directories(store.objects)
        if policy.tables is not None:
            listed = {path: infos for path, infos in listed.items() if path in policy.tables}
            trees, staged = {}, []
        records = read_records(store.leases)
        if only_alive:
            records = [record for record in records if watch.is_alive(record, store.timeouts.ttl)]
        sidecars = pending(store.objects)
        found = reachable.reach(store, policy, now, records, sidecars)
        pins = found.versions()
        limit = began - policy.orphans
        cutoff = _cutoff(limit, records)
        busy = _tables_in_flight(sidecars)
        dropped = {path for path in listed if identity_in(path) in found.dropped} | set(policy.tables or ())
        planner = TablePlanner(store.tables, found.identifiers, cutoff, busy, dropped)

        def plan(path: str) -> TableSweep:
            return _planned(planner.plan, store, path, listed[path], pins.get(path, {}))

        # A merge in flight has staged a file that recovery needs to complete the merge.
        names = {record.name for record in records} | {one.operation_id.lower() for one in sidecars}
        idle = [rows for rows in staged if rows.name not in names]
        dead = [
            rows for rows in idle if rows.newest < (limit if rows.name in ended else min(limit, began - _STAGED_TTL))
        ]
        at_work = [_at_work(record) for record in records if _protects(record, limit, found)]
        at_work += [_staged_work(rows) for rows in idle if rows not in dead and rows.newest < limit]
        unnamed = [
            name
            for name in sorted({*found.ledgers, *trees})
            if _is_dead_ledger(store, found, name, trees.get(name), began)
        ]
        ledgers = found.deletable(unnamed) if policy.tables is None else []
        manifest = TableSweep(MANIFEST_PATH)
        if policy.tables is None:
            manifest = plan_manifest(store, found, manifest_files, ledgers, cutoff, _CLOCK_SKEW, busy=bool(sidecars))
        return cls(found, _in_parallel(plan, listed), manifest, dead, ledgers, at_work, now, began, limit)

    def within(self, first: _Plan) -> _Plan:
        """The removals that are also in the first plan."""
        earlier = {sweep.path: sweep for sweep in first.sweeps}
        sweeps = [sweep.within(earlier.get(sweep.path, TableSweep(sweep.path))) for sweep in self.sweeps]
        staged = {rows.name for rows in first.staged}
        return replace(
            self,
            sweeps=sweeps,
            manifest=self.manifest.within(first.manifest),
            staged=[rows for rows in self.staged if rows.name in staged],
            ledgers=self.reach.deletable([name for name in self.ledgers if name in first.ledgers]),
        )

    @property
    def is_empty(self) -> bool:
        """Whether the plan has no removals that must be written to the removal list."""
        return not self.ledgers and all(sweep.is_empty for sweep in (*self.sweeps, self.manifest))

    @property
    def removals(self) -> dict[str, TableRemovals]:
        found = {sweep.path: sweep.removals for sweep in self.sweeps if sweep.error is None and not sweep.is_empty}
        if self.ledgers or not self.manifest.is_empty:
            found[MANIFEST_PATH] = replace(self.manifest.removals, forks=frozenset(self.ledgers))
        return found

    def remove_versions(self, store: Store) -> None:
        store.objects.delete_files(
            manifest_path(sweep.path, fork, version)
            for sweep in (*self.sweeps, self.manifest)
            if sweep.error is None
            for fork, versions in sweep.versions.items()
            for version in versions
        )

    def remove_files(self, store: Store) -> None:
        def remove(sweep: TableSweep) -> None:
            try:
                sweep.remove(store.tables, store.objects)
            except OmnigraphError as error:
                sweep.error = str(error)

        _in_parallel(remove, [sweep for sweep in self.sweeps if sweep.error is None and not sweep.is_empty])
        store.objects.delete_files(self.manifest.files)
        _remove_ledgers(store, self.ledgers)

    def remove_staged(self, store: Store) -> None:
        for rows in self.staged:
            store.objects.delete_prefix(rows.directory)
        delete_empty(store.objects, self.limit)

    def report(self, *, preview: bool) -> CleanupReport:
        tables = [_outcome(self.reach.keys.get(identity_in(sweep.path), sweep.path), sweep) for sweep in self.sweeps]
        tables.sort(key=lambda table: table.type_key)
        return CleanupReport(
            preview,
            tuple(tables),
            len(self.staged),
            sum(rows.size for rows in self.staged),
            tuple(self.at_work),
            len(self.ledgers),
            _outcome(MANIFEST_PATH, self.manifest),
        )


def _outcome(key: str, sweep: TableSweep) -> TableCleanup:
    return TableCleanup(key, sweep.size, sweep.version_count, len(sweep.forks), sweep.orphans, sweep.error)


def _tables_in_flight(sidecars: Iterable[Sidecar]) -> set[str]:
    """The tables that writes in flight change or create."""
    found = set()
    for sidecar in sidecars:
        found |= {table.base.path for table in sidecar.tables}
        if sidecar.schema is not None:
            found |= {pin.ref.path for pin in sidecar.schema.added}
        if sidecar.adopted is not None:
            found |= {pin.ref.path for pin in sidecar.adopted.pins}
    return found


def _protects(record: WorkRecord, limit: datetime, found: Reach) -> bool:
    """Whether a work record protects anything that would otherwise be removed."""
    return (record.writes and record.began - _CLOCK_SKEW < limit) or bool(record.needs & found.only_recorded)


def _at_work(record: WorkRecord) -> LoadAtWork:
    host, pid = (None, None) if record.owner is None else (record.owner.host, record.owner.pid)
    kind = None if record.kind is None else record.kind.value
    return LoadAtWork(record.name, kind, record.began, record.seen, record.writes, host, pid)


def _staged_work(rows: StagingDirectory) -> LoadAtWork:
    return LoadAtWork(rows.name, None, rows.began, rows.newest, False, None, None)


def _newest_files(listed: Iterable[ObjectInfo]) -> dict[str, datetime]:
    """The Lance branches of the manifest that have files, each with the time of its newest file."""
    found: dict[str, datetime] = {}
    for info in listed:
        for name in info.path.split("/")[2:3]:
            found[name] = max(info.modified, found.get(name, info.modified))
    return found


def _is_dead_ledger(store: Store, found: Reach, name: str, written: datetime | None, began: datetime) -> bool:
    """Whether to remove a Lance branch of the manifest: no reference leads to it, and nothing in it is needed.

    Args:
        store: the graph.
        found: everything that has to stay.
        name: the Lance branch.
        written: the time of its newest file; None when it has no files.
        began: the current time by the clock of the store, which also sets `written`.
    """
    if name in found.needed_ledgers:
        return False
    newest = unless_removed(store, name, lambda: store.manifest.open(name)) if name in found.ledgers else None
    if newest is not None and unless_removed(store, name, lambda: read_manifest(name, name, newest).closed):
        return True
    # An older release deleted the branch without closing its manifest, or the creation of the branch failed before its
    # reference was written.
    if _LEDGER.fullmatch(name) is None:
        return False
    return written is None or written < began - _UNNAMED_BRANCH_TTL


def _by_table(listed: Iterable[ObjectInfo]) -> dict[str, list[ObjectInfo]]:
    """Files by table. Other directories do not belong to the graph."""
    found: dict[str, list[ObjectInfo]] = {}
    for info in listed:
        names = info.path.split("/", 2)
        if len(names) == 3 and _TABLE.fullmatch(names[1]) is not None:
            found.setdefault("/".join(names[:2]), []).append(info)
    return found


def _in_parallel(do: Callable[[T], R], items: Iterable[T]) -> list[R]:
    with WorkerPool(_WORKERS) as workers:
        return list(workers.map(do, items))


def now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


def _store_time(store: Store) -> datetime:
    """The current time by the clock of the store. File times have the same clock, so ages of files are exact."""
    if store.objects.uri.scheme is Scheme.LOCAL:
        return now()
    return store.leases.head(lease_path(CLEANUP)).modified  # this object was written just now


# Removing


def _finish(store: Store, listed: RemovalList) -> None:
    """Complete the removals of an interrupted cleanup. If that cleanup was only paused, it may repeat them later."""
    for path, table in listed.tables.items():
        store.objects.delete_files(
            manifest_path(path, fork, version)
            for fork, runs in table.versions.items()
            for first, last in runs
            for version in range(first, last + 1)
        )
        if path == MANIFEST_PATH:
            remove_transactions(store, table)
            _remove_ledgers(store, table.forks)
            continue
        if table.whole:
            store.objects.delete_prefix(path)
        elif table.forks:
            _remove_forks(store, path, table.forks)
        store.tables.forget(path)


def _remove_forks(store: Store, path: str, forks: Collection[str]) -> None:
    known = set(store.tables.forks(path)) & set(forks)
    _remove_leaves_first(known, lambda fork: store.tables.drop_fork(path, fork))
    for fork in forks:
        store.objects.delete_prefix(table_directory(path, fork))


def _remove_ledgers(store: Store, ledgers: Collection[str]) -> None:
    known = set(store.manifest.branches()) & set(ledgers) if ledgers else set()
    _remove_leaves_first(known, store.manifest.delete_branch)
    for name in ledgers:
        store.objects.delete_prefix(table_directory(MANIFEST_PATH, name))


def _remove_leaves_first(names: Iterable[str], remove: Callable[[str], None]) -> None:
    """Remove Lance branches. A branch with children can only be removed after them."""
    remaining = sorted(names)
    while remaining:
        failed: dict[str, StorageError] = {}
        for name in remaining:
            try:
                remove(name)
            except StorageError as error:
                failed[name] = error
        if len(failed) == len(remaining):
            raise next(iter(failed.values()))
        remaining = list(failed)


def _free_space(store: Store) -> bool:
    """Remove files of dead processes, and release the reserved disk space. Returns False if nothing was freed."""
    freed = disk_space.remove_temporary(store.objects) > 0
    for record in read_records(store.leases):
        if record.owner is not None and record.owner.is_dead():
            store.objects.delete_prefix(f"{STAGING}/{record.name}")
            store.objects.delete(record.path)
            freed = True
    return disk_space.release_reserve(store.objects) or freed


# Recovery of interrupted writes


def _recover(store: Store) -> None:
    """Recover interrupted writes, and check that every table is at the version in the manifest.

    A branch that is deleted meanwhile is skipped.

    Raises:
        CorruptionError: a write cannot be recovered.
        DriftError: a table is ahead of the manifest for an unknown reason.
    """
    transaction_branches.reclaim(store, watch=True)
    withdraw_pending(store)
    finish_resets(store)
    recover_all(store)
    for branch in store.branch_names():
        with suppress(BranchNotFoundError):
            if not any(True for _ in _drift_errors(store, store.capture(branch))):
                continue
            # A running writer may have advanced a table. Holding the lease rules this out.
            with store.exclusive(branch) as held:
                recover_branch(store, branch, held)
                view = store.capture(branch)
                for drift in _drift_errors(store, view):
                    if settle_late_versions(store, view, held) is None:
                        raise drift
                    break


def _check_recovered(store: Store) -> None:
    """Do the checks of `_recover` without changes. Reads twice, since a running writer may have advanced a table."""
    for branch in store.branch_names():
        with suppress(BranchNotFoundError):
            for drift in _drift_errors(store, view := store.capture(branch)):
                if pending(store.objects):
                    break
                if store.capture(branch).version == view.version:
                    raise drift
    if pending(store.objects):
        raise ConflictError(
            "cleanup cannot be previewed while a write is in flight or interrupted",
            hint="try again later; opening the graph for writing recovers interrupted writes",
        )


def _drift_errors(store: Store, view: Manifest) -> Iterator[CorruptionError | DriftError]:
    for key, pin in view.tables.items():
        if not view.owns(pin):
            continue
        head = store.tables.head(pin.ref.path, pin.ref.branch)
        if head is None or head < pin.ref.version:
            yield CorruptionError(
                f"{key} at {pin.ref.path} lacks version {pin.ref.version}, which the manifest points at",
                hint="another program removed files; restore the table from a backup",
            )
        elif head > pin.ref.version:
            yield DriftError(
                key, pin.ref.version, head, hint="no interrupted write caused this: run 'omnigraph repair'"
            )
