"""Cleanup: removing what nobody can read any more, and what the dead left behind.

Nothing that a branch, a tag or a kept commit points at is touched, and nothing that a write at work may still need. It
looks first and removes afterwards: versions while no branch or tag can be made, so that none is made of what goes, and
then the files that only they needed. Whoever is interrupted leaves files that the next cleanup finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from omnigraph.commit import hidden
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.loads import StagedLoad, at_work_since, delete_empty, now, staged_loads
from omnigraph.commit.manifest import Manifest
from omnigraph.commit.recovery import recover_all, recover_branch
from omnigraph.commit.sidecar import pending
from omnigraph.commit.store import Store
from omnigraph.commit.sums import drop_sums
from omnigraph.commit.writer import owns
from omnigraph.errors import ConflictError, CorruptionError, DriftError, InputError, OmnigraphError
from omnigraph.storage.objects import ObjectInfo
from omnigraph.storage.uri import Scheme
from omnigraph.upkeep import reachable
from omnigraph.upkeep.reachable import Policy, Reach
from omnigraph.upkeep.sweep import TablePlanner, TableSweep

ORPHANS_OLDER_THAN = timedelta(days=7)
"""How old a file has to be that nothing points at. A write in one process has to end within this time."""

_SKEW = timedelta(minutes=5)
"""How far the clock of a store may be from ours."""

T = TypeVar("T")
R = TypeVar("R")

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
    """A load for whose sake something stayed that is old enough to go.

    Attributes:
        name: its ULID, the name of its directory below `__staging`.
        began: when it began. If it is at work on tables, whatever came later and belongs to nothing stayed.
        seen: when it was last heard of.
        on_tables: whether it is at work on tables; else only what it put aside stayed.
        host: the machine of its process, when it is known.
        pid: its process there.
    """

    name: str
    began: datetime
    seen: datetime
    on_tables: bool
    host: str | None
    pid: int | None

    @classmethod
    def of(cls, load: StagedLoad) -> LoadAtWork:
        host, pid = (None, None) if load.owner is None else (load.owner.host, load.owner.pid)
        return cls(load.name, load.began, load.seen, load.recorded, host, pid)


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """What a cleanup did, or would do.

    Attributes:
        preview: whether nothing was done.
        tables: by table, those of which nothing goes too.
        loads_removed: loads that died, and whose rows lay aside.
        load_bytes_removed: the size of those.
        loads_at_work: loads for whose sake something stayed that is old enough to go.
    """

    preview: bool
    tables: tuple[TableCleanup, ...]
    loads_removed: int
    load_bytes_removed: int
    loads_at_work: tuple[LoadAtWork, ...] = ()

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
    else:
        _settle(store)
    for _ in range(_ATTEMPTS):
        plan = _Plan.of(store, policy)
        if preview or plan.removed_versions(store):
            if not preview:
                plan.remove_files(store)
                drop_sums(store)
            return plan.report(preview=preview)
    raise ConflictError("branches and tags came while versions of theirs were about to go", hint="try again")


@dataclass(slots=True)
class _Plan:
    reach: Reach
    sweeps: list[TableSweep]
    loads: list[StagedLoad]
    at_work: list[StagedLoad]
    cutoff: datetime

    @classmethod
    def of(cls, store: Store, policy: Policy) -> _Plan:
        """Look. The order matters: the files first, then whoever is at work, and then what points at files.

        So a load that has written one of the files is seen at work, or what it committed is.
        """
        began = now()
        listed = _by_table([*store.objects.list("nodes"), *store.objects.list("edges")])
        loads = staged_loads(store.objects)
        found = reachable.reach(store, policy, began)
        pins = found.versions()
        planner = TablePlanner(store.tables, found.identifiers, _cutoff(loads, began, policy))

        def plan(path: str) -> TableSweep:
            try:
                return planner.plan(path, listed[path], pins.get(path, {}))
            except OmnigraphError as error:
                return TableSweep(path, error=str(error))

        cutoff = began - policy.orphans
        dead = [load for load in loads if _is_dead(load, began, cutoff)]
        at_work = [load for load in loads if load.is_running(began) and _keeps(load, cutoff)]
        return cls(found, _each(plan, listed), dead, at_work, cutoff)

    def removed_versions(self, store: Store) -> bool:
        """Remove versions, unless a branch or a tag was made meanwhile of what goes."""
        going = {sweep.path: sweep for sweep in self.sweeps}
        with store.exclusive_refs() as held:
            pinned = reachable.newly_pinned(store, self.reach.refs)
            if any(ref.path in going and going[ref.path].takes(ref) for ref in pinned):
                return False
            held.check()
            store.objects.delete_files(path for sweep in self.sweeps for path in sweep.manifests)
        reach(Failpoint.CLEANUP_VERSIONS_REMOVED)
        return True

    def remove_files(self, store: Store) -> None:
        def remove(sweep: TableSweep) -> None:
            try:
                sweep.remove(store.tables, store.objects)
            except OmnigraphError as error:
                sweep.error = str(error)

        _each(remove, [sweep for sweep in self.sweeps if sweep.error is None])
        for load in self.loads:
            store.objects.delete_prefix(load.directory)
        delete_empty(store.objects, self.cutoff)

    def report(self, *, preview: bool) -> CleanupReport:
        tables = [
            TableCleanup(
                self.reach.keys.get(sweep.path, sweep.path),
                sweep.size,
                sum(map(len, sweep.versions.values())),
                len(sweep.forks),
                sweep.orphans,
                sweep.error,
            )
            for sweep in self.sweeps
        ]
        tables.sort(key=lambda table: table.type_key)
        size = sum(load.size for load in self.loads)
        at_work = tuple(map(LoadAtWork.of, self.at_work))
        return CleanupReport(preview, tuple(tables), len(self.loads), size, at_work)


def _cutoff(loads: list[StagedLoad], began: datetime, policy: Policy) -> datetime:
    """What belongs to nothing and is younger stays: a load that is at work may have written it."""
    since = at_work_since(loads, began)
    return min(began - policy.orphans, since if since == began else since - _SKEW)


def _is_dead(load: StagedLoad, began: datetime, cutoff: datetime) -> bool:
    return not load.is_running(began) and load.began < cutoff and load.newest < cutoff


def _keeps(load: StagedLoad, cutoff: datetime) -> bool:
    """Whether a load that is at work keeps anything that is old enough to go."""
    return load.began - _SKEW < cutoff if load.recorded else load.began < cutoff and load.newest < cutoff


def _by_table(listed: Iterable[ObjectInfo]) -> dict[str, list[ObjectInfo]]:
    found: dict[str, list[ObjectInfo]] = {}
    for info in listed:
        kind, table, *rest = info.path.split("/", 2)
        if rest:
            found.setdefault(f"{kind}/{table}", []).append(info)
    return found


def _each(do: Callable[[T], R], items: Iterable[T]) -> list[R]:
    with ThreadPoolExecutor(_WORKERS) as workers:
        return list(workers.map(do, items))


def _settle(store: Store) -> None:
    """Settle what interrupted writers left, and see that every table is where the graph points.

    Raises:
        CorruptionError: something cannot be settled.
        DriftError: a table has moved, and nobody knows why.
    """
    hidden.reclaim(store)
    recover_all(store)
    for branch in store.branch_names():
        with store.exclusive(branch) as held:
            recover_branch(store, branch, held)
            view = store.capture(branch)
            for drift in _drifts(store, view):
                raise drift


def _look_settled(store: Store) -> None:
    """The same by looking only. A writer at work may have moved a table, so a second look decides."""
    for branch in store.branch_names():
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


def _drifts(store: Store, view: Manifest) -> Iterable[CorruptionError | DriftError]:
    for key, pin in view.tables.items():
        if not owns(view, pin):
            continue
        head = store.tables.head(pin.ref.path, pin.ref.branch)
        if head is None or head < pin.ref.version:
            yield CorruptionError(
                f"{key} has lost version {pin.ref.version}, which the graph points at",
                hint="files were removed from outside; restore the table from a backup",
            )
        elif head > pin.ref.version:
            yield DriftError(
                key, pin.ref.version, head, hint="nothing that the graph knows of moved it: run 'omnigraph repair'"
            )
