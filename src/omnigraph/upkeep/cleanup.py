"""Cleanup: removing what nobody can read any more, and what the dead left behind.

It looks twice. First it finds what may go and writes that to the list of condemned versions, durably. Then it looks at
everything again: references, tags, records, writes in flight, tables. Only what may go by both looks is removed, after
the list was made final. Whoever names a version in between has either been seen by the second look or sees the list, so
no pause between two steps can lose anything that was acknowledged. `commit/condemned.py` tells why.

Versions go first, by removing their manifests, and then the files that only they needed. Whoever is interrupted leaves
a final list, which the next cleanup finishes, and files that it finds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from omnigraph.commit import condemned, hidden
from omnigraph.commit.branches import withdraw_pending
from omnigraph.commit.condemned import Condemned, CondemnedTable, ListState
from omnigraph.commit.drift import settle_late_versions
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import lease_path
from omnigraph.commit.manifest import MANIFEST_PATH, Manifest, read_manifest
from omnigraph.commit.recovery import recover_all, recover_branch
from omnigraph.commit.registry import identity_in
from omnigraph.commit.sidecar import Sidecar, pending
from omnigraph.commit.staged_rows import DIRECTORY as STAGING
from omnigraph.commit.staged_rows import StagedRows, delete_empty, staged_rows
from omnigraph.commit.store import CLEANUP, Store
from omnigraph.commit.sums import drop_sums
from omnigraph.commit.work_records import WorkRecord, read_records, remove_dead, watch
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
)
from omnigraph.storage.objects import ObjectInfo, room
from omnigraph.storage.objects.room import is_full
from omnigraph.storage.tables import table_directory
from omnigraph.storage.uri import Scheme
from omnigraph.upkeep import reachable
from omnigraph.upkeep.reachable import Policy, Reach, unless_removed
from omnigraph.upkeep.sweep import TablePlanner, TableSweep, manifest_path

ORPHANS_OLDER_THAN = timedelta(days=7)
"""How old a file has to be that nothing points at."""

_SKEW = timedelta(minutes=5)
"""How exactly a store dates files."""

_SILENT = timedelta(hours=1)
"""How long nothing has to come to rows that somebody put aside without a record."""

_UNNAMED = timedelta(minutes=10)
"""How long a branch may take from its manifest to its reference. Longer, and its creation is taken back."""

T = TypeVar("T")
R = TypeVar("R")

_TABLE = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}(-[0-7][0-9a-hjkmnp-tv-z]{25})?")
_LEDGER = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{25}")
_ATTEMPTS = 8
_WORKERS = 8


@dataclass(frozen=True, slots=True)
class TableCleanup:
    """What was removed of one table, or would be.

    Attributes:
        type_key: `node:<Type>` or `edge:<Type>`; of a table that no type can be told of, its place.
        bytes_removed: the size of all files that went.
        old_versions_removed: versions that nothing could read any more.
        forks_removed: forks of branches that are gone, and of writes that died.
        orphans_removed: files that no version ever needed.
        error: what went wrong with this table; others are not concerned.
    """

    type_key: str
    bytes_removed: int
    old_versions_removed: int
    forks_removed: int
    orphans_removed: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LoadAtWork:
    """Work for whose sake something stayed that is old enough to go.

    Attributes:
        name: its ULID; what it put aside lies in a directory of that name below `__staging`.
        kind: what it is: `load`, `merge`, `export` and so on; None for rows that somebody put aside.
        began: when it began. If it is at work on tables, whatever came later and belongs to nothing stayed.
        seen: when it was last heard of.
        on_tables: whether it is at work on tables; else only the versions that it reads, or what it put aside, stayed.
        host: the machine of its process, when it is known.
        pid: its process there.
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
    """What a cleanup did, or would do.

    Attributes:
        preview: whether nothing was done.
        tables: by table, those of which nothing goes too.
        loads_removed: loads that died, and whose rows lay aside.
        load_bytes_removed: the size of those.
        loads_at_work: work for whose sake something stayed that is old enough to go.
        branches_removed: manifests of deleted branches that no merge needs any more.
    """

    preview: bool
    tables: tuple[TableCleanup, ...]
    loads_removed: int
    load_bytes_removed: int
    loads_at_work: tuple[LoadAtWork, ...] = ()
    branches_removed: int = 0

    @property
    def versions_removed(self) -> int:
        return sum(table.old_versions_removed for table in self.tables)

    @property
    def bytes_removed(self) -> int:
        return sum(table.bytes_removed for table in self.tables) + self.load_bytes_removed

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(f"{table.type_key}: {table.error}" for table in self.tables if table.error is not None)


def cleanup(store: Store, policy: Policy, *, preview: bool = False) -> CleanupReport:
    """Remove what a policy lets go; `Graph.cleanup` describes it."""
    if store.objects.uri.scheme is Scheme.MEMORY:
        raise InputError("a graph in memory goes with its process", hint="cleanup is for graphs in files")
    if preview:
        _look_settled(store)
        return _Plan.of(store, policy, now(), now(), only_alive=True).report(preview=True)
    try:
        return _clean(store, policy)
    except OmnigraphError as error:
        # A full disk is when cleanup is needed, and its own few files need room, too.
        if not is_full(error) or not _make_room(store):
            raise
        return _clean(store, policy)
    finally:
        room.remove_temporary(store.objects)
        room.keep_reserve(store.objects)


def _clean(store: Store, policy: Policy) -> CleanupReport:
    _settle(store)
    try:
        with store.exclusive_cleanup():
            for _ in range(_ATTEMPTS):
                with suppress(ObjectChangedError):  # this process slept, and another cleanup took over
                    return _clean_once(store, policy)
    except LeaseTimeoutError as error:
        raise LeaseTimeoutError("another cleanup is at work", hint="try again later") from error
    raise ConflictError("other cleanups took over again and again", hint="try again")


def _clean_once(store: Store, policy: Policy) -> CleanupReport:
    earlier = condemned.read(store.objects)
    if earlier.state is ListState.FINAL:
        _finish(store, earlier)
    if earlier.state is not ListState.NONE:
        earlier = condemned.finish(store.objects, earlier)  # a proposal that nobody decided on is discarded
    _, dead = watch.live(store.leases, store.timeouts.ttl, wait=True)
    awake = {record.name for record in remove_dead(store.leases, dead)}
    ended = {record.name for record in dead} - awake
    first = _Plan.of(store, policy, now(), _store_time(store), ended)
    reach(Failpoint.CLEANUP_LOOKED)
    if first.is_empty:
        first.remove_staged(store)
        return first.report(preview=False)
    proposed = condemned.propose(store.objects, earlier, first.condemned)
    reach(Failpoint.CLEANUP_PROPOSED)
    plan = _Plan.of(store, policy, first.now, first.began, ended).within(first)
    reach(Failpoint.CLEANUP_CHECKED)
    final = condemned.decide(store.objects, proposed, plan.condemned)
    reach(Failpoint.CLEANUP_DECIDED)
    plan.remove_versions(store)
    reach(Failpoint.CLEANUP_VERSIONS_REMOVED)
    plan.remove_files(store)
    plan.remove_staged(store)
    drop_sums(store)
    reach(Failpoint.CLEANUP_FILES_REMOVED)
    with suppress(ObjectChangedError):  # whoever took over has finished it
        condemned.finish(store.objects, final)
    return plan.report(preview=False)


@dataclass(slots=True)
class _Plan:
    """What goes, by one look.

    Attributes:
        staged: rows that somebody put aside who is dead.
        ledgers: Lance branches of the manifest that go.
        at_work: whoever something stayed for that is old enough to go.
        now: the time, for the ages of commits.
        began: the same by the clock of the store, for the ages of files.
        limit: files that nothing points at go if they are older, unless work in progress may have made them.
    """

    reach: Reach
    sweeps: list[TableSweep]
    staged: list[StagedRows]
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
        """Look. The order matters: the files first, then whoever is at work, and then what points at files.

        So a write that has made one of the files is seen at work, or what it committed is.

        Args:
            store: the graph.
            policy: which commits stay.
            now: the time.
            began: the same by the clock of the store.
            ended: names of work whose record was removed, because it is dead.
            only_alive: leave out records of the dead; otherwise there are none any more.
        """
        listed = _by_table([*store.objects.list("nodes"), *store.objects.list("edges")])
        trees = _newest_files(store.objects.list(f"{MANIFEST_PATH}/tree"))
        staged = staged_rows(store.objects)
        records = read_records(store.leases)
        if only_alive:
            records = [record for record in records if watch.is_alive(record, store.timeouts.ttl)]
        sidecars = pending(store.objects)
        found = reachable.reach(store, policy, now, records, sidecars)
        pins = found.versions()
        limit = began - policy.orphans
        cutoff = min([limit, *(record.began - _SKEW for record in records if record.writes)])
        planner = TablePlanner(store.tables, found.identifiers, cutoff, _busy(sidecars))

        def plan(path: str) -> TableSweep:
            infos = listed[path]
            for attempt in range(_ATTEMPTS):
                try:
                    return planner.plan(path, infos, pins.get(path, {}))
                except OmnigraphError as error:
                    if attempt == _ATTEMPTS - 1:
                        return TableSweep(path, error=str(error))
                    # Somebody may have removed a fork while it was looked at.
                    there = {info.path for info in store.objects.list(path)}
                    infos = [info for info in infos if info.path in there]
            raise AssertionError("unreachable")

        # A merge in flight has put a file aside that whoever finishes it needs.
        names = {record.name for record in records} | {one.operation_id.lower() for one in sidecars}
        idle = [rows for rows in staged if rows.name not in names]
        dead = [rows for rows in idle if rows.newest < (limit if rows.name in ended else min(limit, began - _SILENT))]
        at_work = [_at_work(record) for record in records if _keeps(record, limit, found)]
        at_work += [_put_aside(rows) for rows in idle if rows not in dead and rows.newest < limit]
        unnamed = [
            name
            for name in sorted({*found.ledgers, *trees})
            if _is_dead_ledger(store, found, name, trees.get(name), began)
        ]
        ledgers = found.without_made_from(unnamed)
        return cls(found, _each(plan, listed), dead, ledgers, at_work, now, began, limit)

    def within(self, first: _Plan) -> _Plan:
        """What goes by this look and by the first one."""
        earlier = {sweep.path: sweep for sweep in first.sweeps}
        sweeps = [sweep.within(earlier.get(sweep.path, TableSweep(sweep.path))) for sweep in self.sweeps]
        staged = {rows.name for rows in first.staged}
        return replace(
            self,
            sweeps=sweeps,
            staged=[rows for rows in self.staged if rows.name in staged],
            ledgers=self.reach.without_made_from([name for name in self.ledgers if name in first.ledgers]),
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing goes that has to be condemned first."""
        return not self.ledgers and all(sweep.is_empty for sweep in self.sweeps)

    @property
    def condemned(self) -> dict[str, CondemnedTable]:
        found = {sweep.path: sweep.condemned for sweep in self.sweeps if sweep.error is None and not sweep.is_empty}
        if self.ledgers:
            found[MANIFEST_PATH] = CondemnedTable(forks=frozenset(self.ledgers))
        return found

    def remove_versions(self, store: Store) -> None:
        store.objects.delete_files(
            manifest_path(sweep.path, fork, version)
            for sweep in self.sweeps
            if sweep.error is None
            for fork, gone in sweep.versions.items()
            for version in gone
        )

    def remove_files(self, store: Store) -> None:
        def remove(sweep: TableSweep) -> None:
            try:
                sweep.remove(store.tables, store.objects)
            except OmnigraphError as error:
                sweep.error = str(error)

        _each(remove, [sweep for sweep in self.sweeps if sweep.error is None and not sweep.is_empty])
        _remove_ledgers(store, self.ledgers)

    def remove_staged(self, store: Store) -> None:
        for rows in self.staged:
            store.objects.delete_prefix(rows.directory)
        delete_empty(store.objects, self.limit)

    def report(self, *, preview: bool) -> CleanupReport:
        tables = [
            TableCleanup(
                self.reach.keys.get(identity_in(sweep.path), sweep.path),
                sweep.size,
                sum(map(len, sweep.versions.values())),
                len(sweep.forks),
                sweep.orphans,
                sweep.error,
            )
            for sweep in self.sweeps
        ]
        tables.sort(key=lambda table: table.type_key)
        size = sum(rows.size for rows in self.staged)
        return CleanupReport(
            preview, tuple(tables), len(self.staged), size, tuple(self.at_work), branches_removed=len(self.ledgers)
        )


def _busy(sidecars: Iterable[Sidecar]) -> set[str]:
    """The tables that writes in flight move or make."""
    found = set()
    for sidecar in sidecars:
        found |= {table.base.path for table in sidecar.tables}
        if sidecar.schema is not None:
            found |= {pin.ref.path for pin in sidecar.schema.added}
    return found


def _keeps(record: WorkRecord, limit: datetime, found: Reach) -> bool:
    """Whether a record keeps anything that could go otherwise."""
    return (record.writes and record.began - _SKEW < limit) or bool(record.needs & found.only_recorded)


def _at_work(record: WorkRecord) -> LoadAtWork:
    host, pid = (None, None) if record.owner is None else (record.owner.host, record.owner.pid)
    kind = None if record.kind is None else record.kind.value
    return LoadAtWork(record.name, kind, record.began, record.seen, record.writes, host, pid)


def _put_aside(rows: StagedRows) -> LoadAtWork:
    return LoadAtWork(rows.name, None, rows.began, rows.newest, False, None, None)


def _newest_files(listed: Iterable[ObjectInfo]) -> dict[str, datetime]:
    """The Lance branches of the manifest that have files, and when the newest of those was written."""
    found: dict[str, datetime] = {}
    for info in listed:
        for name in info.path.split("/")[2:3]:
            found[name] = max(info.modified, found.get(name, info.modified))
    return found


def _is_dead_ledger(store: Store, found: Reach, name: str, written: datetime | None, began: datetime) -> bool:
    """Whether a Lance branch of the manifest goes: no name leads to it, and nothing in it is needed.

    Args:
        store: the graph.
        found: everything that has to stay.
        name: the Lance branch.
        written: when its newest file was written; None when it has no files.
        began: the time, by the same clock.
    """
    if name in found.needed_ledgers:
        return False
    newest = unless_removed(store, name, lambda: store.manifest.open(name)) if name in found.ledgers else None
    if newest is not None and unless_removed(store, name, lambda: read_manifest(name, name, newest).closed):
        return True
    # Its branch was deleted by a release that did not close it, or its creation has not come to the reference.
    if _LEDGER.fullmatch(name) is None:
        return False
    return written is None or written < began - _UNNAMED


def _by_table(listed: Iterable[ObjectInfo]) -> dict[str, list[ObjectInfo]]:
    """Files by table. Directories that are no table are not ours."""
    found: dict[str, list[ObjectInfo]] = {}
    for info in listed:
        names = info.path.split("/", 2)
        if len(names) == 3 and _TABLE.fullmatch(names[1]) is not None:
            found.setdefault("/".join(names[:2]), []).append(info)
    return found


def _each(do: Callable[[T], R], items: Iterable[T]) -> list[R]:
    with ThreadPoolExecutor(_WORKERS) as workers:
        return list(workers.map(do, items))


def now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


def _store_time(store: Store) -> datetime:
    """The time by the clock that dates files: no file's age depends on the clocks of two machines."""
    if store.objects.uri.scheme is Scheme.LOCAL:
        return now()
    return store.leases.head(lease_path(CLEANUP)).modified  # which was written just now


# Removing


def _finish(store: Store, listed: Condemned) -> None:
    """Remove what a cleanup that stopped has decided to remove. It may still be asleep, and do the same later."""
    for path, table in listed.tables.items():
        if path == MANIFEST_PATH:
            _remove_ledgers(store, table.forks)
            continue
        store.objects.delete_files(
            manifest_path(path, fork, version)
            for fork, runs in table.versions.items()
            for first, last in runs
            for version in range(first, last + 1)
        )
        if table.whole:
            store.objects.delete_prefix(path)
        elif table.forks:
            _remove_forks(store, path, table.forks)
        store.tables.forget(path)


def _remove_forks(store: Store, path: str, forks: Collection[str]) -> None:
    known = set(store.tables.forks(path)) & set(forks)
    _in_any_order(known, lambda fork: store.tables.drop_fork(path, fork))
    for fork in forks:
        store.objects.delete_prefix(table_directory(path, fork))


def _remove_ledgers(store: Store, ledgers: Collection[str]) -> None:
    known = set(store.manifest.branches()) & set(ledgers) if ledgers else set()
    _in_any_order(known, store.manifest.delete_branch)
    for name in ledgers:
        store.objects.delete_prefix(table_directory(MANIFEST_PATH, name))


def _in_any_order(names: Iterable[str], remove: Callable[[str], None]) -> None:
    """Remove Lance branches. One that others were made from can only go after them."""
    left = sorted(names)
    while left:
        failed: dict[str, StorageError] = {}
        for name in left:
            try:
                remove(name)
            except StorageError as error:
                failed[name] = error
        if len(failed) == len(left):
            raise next(iter(failed.values()))
        left = list(failed)


def _make_room(store: Store) -> bool:
    """Remove what is certainly dead, and give up the room that is kept for this. False when there is nothing."""
    freed = room.remove_temporary(store.objects) > 0
    for record in read_records(store.leases):
        if record.owner is not None and record.owner.is_dead():
            store.objects.delete_prefix(f"{STAGING}/{record.name}")
            store.objects.delete(record.path)
            freed = True
    return room.release_reserve(store.objects) or freed


# What interrupted writers left


def _settle(store: Store) -> None:
    """Settle what interrupted writers left, and see that every table is where the graph points.

    A branch that somebody deletes meanwhile is no concern any more.

    Raises:
        CorruptionError: something cannot be settled.
        DriftError: a table has moved, and nobody knows why.
    """
    hidden.reclaim(store, watch=True)
    withdraw_pending(store)
    recover_all(store)
    for branch in store.branch_names():
        with suppress(BranchNotFoundError):
            if not any(True for _ in _drifts(store, store.capture(branch))):
                continue
            # A writer at work may have moved a table: whoever has the lease knows.
            with store.exclusive(branch) as held:
                recover_branch(store, branch, held)
                view = store.capture(branch)
                for drift in _drifts(store, view):
                    if settle_late_versions(store, view, held) is None:
                        raise drift
                    break


def _look_settled(store: Store) -> None:
    """The same by looking only. A writer at work may have moved a table, so a second look decides."""
    for branch in store.branch_names():
        with suppress(BranchNotFoundError):
            for drift in _drifts(store, view := store.capture(branch)):
                if pending(store.objects):
                    break
                if store.capture(branch).version == view.version:
                    raise drift
    if pending(store.objects):
        raise ConflictError(
            "cleanup requires a clean recovery state, and a write is in flight or stopped half way",
            hint="try again; opening the graph for writing settles what was interrupted",
        )


def _drifts(store: Store, view: Manifest) -> Iterator[CorruptionError | DriftError]:
    for key, pin in view.tables.items():
        if not view.owns(pin):
            continue
        head = store.tables.head(pin.ref.path, pin.ref.branch)
        if head is None or head < pin.ref.version:
            yield CorruptionError(
                f"{key} at {pin.ref.path} has lost version {pin.ref.version}, which the graph points at",
                hint="files were removed from outside; restore the table from a backup",
            )
        elif head > pin.ref.version:
            yield DriftError(
                key, pin.ref.version, head, hint="nothing that the graph knows of moved it: run 'omnigraph repair'"
            )
