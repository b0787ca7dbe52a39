"""Optimize: compacts small files into large ones, and updates the indexes.

Query results, row ids and the change feed stay the same. All changed tables are part of one commit. If there is nothing
to do, there is no commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from omnigraph.commit.attempts import write
from omnigraph.commit.manifest import MAIN, Commit, Manifest, TablePin, commit_json
from omnigraph.commit.read_set import untracked
from omnigraph.commit.recovery import recover_branch
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.store import Store
from omnigraph.commit.table_writes import BuildIndexes, Compact, TableWrite
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.commit.write_request import WriteRequest
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.lang.schema import Catalog
from omnigraph.lang.schema.catalog import IndexKind
from omnigraph.settings import MAINTENANCE_CONCURRENCY
from omnigraph.storage.compaction import CompactedGroup, CompactionGroup
from omnigraph.storage.indexes import IndexSpec
from omnigraph.storage.layouts import (
    Layout,
    build_index_segment,
    compact,
    lay_out,
    merge_index_segments,
    plan_compaction,
    still_valid,
    unbuilt_fragments,
    without_scattered_segments,
)
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage
from omnigraph.upkeep.declared_indexes import declared
from omnigraph.upkeep.indexes import FEWEST_VECTORS, IndexPlan, PendingIndex
from omnigraph.worker_pool import WorkerPool

ROWS_PER_FRAGMENT = 1 << 20
"""Approximate number of rows per file after compaction."""

SEGMENT_ROWS = 8 << 20
"""Approximate number of rows per index segment, if several processes build it."""

DRIFT = "drift_needs_repair"


@dataclass(frozen=True, slots=True)
class CompactJob:
    """A group of fragments of a version to compact."""

    ref: TableRef
    group: CompactionGroup


@dataclass(frozen=True, slots=True)
class BuildJob:
    """An index to build for some fragments of a version."""

    ref: TableRef
    spec: IndexSpec
    parts: tuple[int, ...]


class Workers(Protocol):
    """Runs the jobs. The files that it writes are not visible yet."""

    @property
    def shares(self) -> bool:
        """Whether several processes share the work, so that an index is built in segments."""
        ...

    def compact(self, jobs: Sequence[CompactJob]) -> list[CompactedGroup]: ...

    def build(self, jobs: Sequence[BuildJob]) -> list[bytes]: ...


@dataclass(frozen=True, slots=True)
class LocalWorkers:
    """Runs the jobs in this process."""

    tables: TableStorage

    @property
    def shares(self) -> bool:
        return False

    def compact(self, jobs: Sequence[CompactJob]) -> list[CompactedGroup]:
        with WorkerPool(_concurrency()) as pool:
            return list(pool.map(lambda job: compact(self.tables.at(job.ref), job.group), jobs))

    def build(self, jobs: Sequence[BuildJob]) -> list[bytes]:
        with WorkerPool(_concurrency()) as pool:
            return list(pool.map(lambda job: build_index_segment(self.tables.at(job.ref), job.spec, job.parts), jobs))


def _concurrency() -> int:
    text = MAINTENANCE_CONCURRENCY.text()
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"{MAINTENANCE_CONCURRENCY.name}: '{text}' is not a number of parallel jobs")
    return int(text)


@dataclass(frozen=True, slots=True)
class TableOptimized:
    """The result of optimizing one table.

    Attributes:
        type_key: `node:<Type>` or `edge:<Type>`.
        fragments_removed: number of files that were replaced.
        fragments_added: number of files that replace them.
        committed: whether the table changed.
        skipped: the reason why nothing was done; `drift_needs_repair` if the table is ahead of the manifest.
        published_dataset_version: the version in the manifest.
        lance_head_version: the newest version.
        pending_indexes: indexes that do not cover all rows, with the reasons.
    """

    type_key: str
    fragments_removed: int
    fragments_added: int
    committed: bool
    skipped: str | None
    published_dataset_version: int
    lance_head_version: int | None
    pending_indexes: tuple[PendingIndex, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The result as the JSON object that all user interfaces return."""
        return {
            "type_key": self.type_key,
            "fragments_removed": self.fragments_removed,
            "fragments_added": self.fragments_added,
            "committed": self.committed,
            "skipped": self.skipped,
            "published_dataset_version": self.published_dataset_version,
            "lance_head_version": self.lance_head_version,
            "pending_indexes": [{"property": each.property, "reason": each.reason} for each in self.pending_indexes],
        }


@dataclass(frozen=True, slots=True)
class OptimizeReceipt:
    """The result of optimize.

    Attributes:
        commit: the commit; None if there was nothing to do.
        tables: the results by table.
        engine: where the work ran: `local` or `spark`.
        why: the reason for that choice.
    """

    commit: Commit | None
    tables: tuple[TableOptimized, ...]
    engine: str = "local"
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """The receipt as the JSON object that all user interfaces return."""
        return {
            "datasets": [table.to_json() for table in self.tables],
            "commit": None if self.commit is None else commit_json(self.commit),
            "engine": self.engine,
            "why": self.why,
        }


def optimize(
    store: Store,
    catalog_of: Callable[[Manifest], Catalog],
    workers: Callable[[int], Workers] | None = None,
    *,
    branch: str = MAIN,
    rows_per_fragment: int = ROWS_PER_FRAGMENT,
    segment_rows: int = SEGMENT_ROWS,
    fewest_vectors: int = FEWEST_VECTORS,
    timeout: float | None = None,
) -> OptimizeReceipt:
    """Compact the tables of a branch, and update their indexes.

    Tables that the branch shares with the branch that it was created from are left to that branch: compacting them here
    would copy all their rows.

    Args:
        store: the graph.
        catalog_of: returns the catalogue of a state.
        workers: returns the workers for a number of bytes to rewrite; by default this process.
        branch: the branch.
        rows_per_fragment: approximate number of rows per file after compaction.
        segment_rows: approximate number of rows per index segment, for workers that share the work.
        fewest_vectors: with fewer vectors, no vector index is built.
        timeout: seconds to wait for the lease; by default the setting of the graph.

    Raises:
        WriteTimeoutError: it did not get the lease in time.
    """
    if rows_per_fragment < 1:
        raise InputError("rows_per_fragment must be at least 1")
    drifted = _drifted(store, branch)
    plan = IndexPlan(store.tables, fewest_vectors)
    made = workers or (lambda size: LocalWorkers(store.tables))
    work = _Work(store, branch, made, plan, rows_per_fragment, segment_rows, drifted)

    def prepare(view: Manifest) -> list[TableWrite]:
        # Rows do not change, so the tables are not in the read set. Each table conflicts only with its own changes.
        return work.prepare(untracked(view), catalog_of(view))

    try:
        with at_work(store.leases, WorkKind.OPTIMIZE) as record:
            request = WriteRequest(branch=branch, kind=WriterKind.OPTIMIZE, timeout=timeout, work=record)
            commit = write(store, request, prepare)
    finally:
        work.remove_layouts()
    return OptimizeReceipt(commit, tuple(work.outcomes(commit is not None)))


def _drifted(store: Store, branch: str) -> set[str]:
    """Recover interrupted writes of a branch, and return its tables that are ahead of the manifest.

    This needs the lease, because a table that a write in flight changes is also ahead of the manifest.
    """
    with store.exclusive(branch) as held:
        recover_branch(store, branch, held)
        view = store.capture(branch)
        own = {key: pin for key, pin in view.tables.items() if view.owns(pin)}
        heads = {key: store.tables.head(pin.ref.path, pin.ref.branch) for key, pin in own.items()}
        return {key for key, pin in own.items() if heads[key] != pin.ref.version}


@dataclass(frozen=True, slots=True)
class _Compaction:
    """The compacted fragments of a table version."""

    ref: TableRef
    trimmed: Layout | None
    groups: list[CompactedGroup]


class _Work:
    """The work of all attempts to commit. Later attempts reuse compacted files and index segments that are valid."""

    def __init__(
        self,
        store: Store,
        branch: str,
        workers: Callable[[int], Workers],
        plan: IndexPlan,
        rows_per_fragment: int,
        segment_rows: int,
        drifted: set[str],
    ) -> None:
        self._store = store
        self._branch = branch
        self._suspects = drifted
        self._tables = store.tables
        self._workers = workers
        self._plan = plan
        self._rows_per_fragment = rows_per_fragment
        self._segment_rows = segment_rows
        self._compactions: dict[str, _Compaction] = {}
        self._layouts: list[Layout] = []
        self._writes: dict[str, Compact] = {}
        self._drifted: dict[str, int | None] = {}
        self._view: Manifest | None = None

    def prepare(self, view: Manifest, catalog: Catalog) -> list[TableWrite]:
        before = {} if self._view is None else self._view.tables
        same = {key for key in self._writes if key in view.tables and before[key].ref == view.tables[key].ref}
        kept = {key: self._writes[key] for key in same}
        self._view = view
        self._plan.clear()
        suspects = {key: view.tables[key].ref for key in self._suspects & view.tables.keys()}
        heads = {key: self._tables.head(ref.path, ref.branch) for key, ref in suspects.items()}
        self._drifted = {key: head for key, head in heads.items() if head != suspects[key].version}
        own = {key: pin for key, pin in sorted(view.tables.items()) if view.owns(pin)}
        pins = {key: pin for key, pin in own.items() if key not in self._drifted}
        indexes = declared(catalog)
        fresh = {key: pin for key, pin in pins.items() if key not in kept}
        jobs = {
            key: self._compact_jobs(pin, [index.spec for index in indexes.get(key, ())]) for key, pin in fresh.items()
        }
        workers = self._workers(sum(job.group.size for each in jobs.values() for job in each))
        self._compact(workers, jobs)
        layouts = {key: kept[key].layout if key in kept else self._layout(key, pin) for key, pin in pins.items()}
        planned = {}
        for key, pin in pins.items():
            layout = layouts[key]
            ref = pin.ref if layout is None else layout.ref
            planned[key] = self._plan.add(replace(pin, ref=ref), indexes.get(key, ()))
        built = self._build(workers, fresh, layouts, planned)
        self._writes = kept | {
            key: Compact(key, layouts[key], tuple(built[key]), planned[key].allowed) for key in fresh
        }
        return list(self._writes.values())

    def _compact_jobs(self, pin: TablePin, specs: Sequence[IndexSpec]) -> list[CompactJob]:
        """The fragments of a table to compact. Index segments that should be merged into one are dropped first.

        Files that an earlier attempt compacted are reused if their rows have not changed.
        """
        trimmed = without_scattered_segments(self._tables.at(pin.ref), specs)
        self._layouts += [] if trimmed is None else [trimmed]
        ref = pin.ref if trimmed is None else trimmed.ref
        earlier = self._compactions.get(pin.key)
        groups: list[CompactedGroup] = []
        if earlier is not None and _dropped_segments(earlier.trimmed) == _dropped_segments(trimmed):
            groups = still_valid(self._tables.at(pin.ref), earlier.groups)
        self._compactions[pin.key] = _Compaction(pin.ref, trimmed, groups)
        laid_out = self._layout(pin.key, pin) if groups else None
        ref = ref if laid_out is None else laid_out.ref
        return [
            CompactJob(ref, group) for group in plan_compaction(self._tables.at(ref), self._rows_per_fragment, laid_out)
        ]

    def _compact(self, workers: Workers, jobs_by_table: dict[str, list[CompactJob]]) -> None:
        jobs = [job for each in jobs_by_table.values() for job in each]
        found = iter(workers.compact(jobs) if jobs else ())
        for key, each in jobs_by_table.items():
            self._compactions[key].groups.extend(next(found) for _ in each)

    def _layout(self, key: str, pin: TablePin) -> Layout | None:
        compaction = self._compactions[key]
        if not compaction.groups:
            return compaction.trimmed
        layout = lay_out(self._tables.at(pin.ref), compaction.trimmed, compaction.groups)
        self._layouts.append(layout)
        return layout

    def _build(
        self,
        workers: Workers,
        pins: dict[str, TablePin],
        layouts: dict[str, Layout | None],
        planned: dict[str, BuildIndexes],
    ) -> dict[str, list[bytes]]:
        """The index segments of each table, one per index."""
        jobs: list[BuildJob] = []
        owners: list[tuple[str, IndexSpec]] = []
        for key, pin in pins.items():
            layout = layouts[key]
            ref = pin.ref if layout is None else layout.ref
            for spec in planned[key].indexes:
                for parts in self._fragment_groups(ref, spec, shares=workers.shares):
                    jobs.append(BuildJob(ref, spec, parts))
                    owners.append((key, spec))
        segments: dict[tuple[str, IndexSpec], list[bytes]] = {}
        for owner, segment in zip(owners, workers.build(jobs) if jobs else [], strict=True):
            segments.setdefault(owner, []).append(segment)
        refs = {owner: job.ref for owner, job in zip(owners, jobs, strict=True)}
        built: dict[str, list[bytes]] = {key: [] for key in pins}
        for (key, spec), each in segments.items():
            built[key].append(merge_index_segments(self._tables.at(refs[key, spec]), each))
        return built

    def _fragment_groups(self, ref: TableRef, spec: IndexSpec, *, shares: bool) -> Iterator[tuple[int, ...]]:
        """The fragments to build an index for, in groups for workers that share the work."""
        numbers = unbuilt_fragments(self._tables.at(ref), spec)
        if not shares or spec.kind is IndexKind.VECTOR:
            # A vector index gets one segment for all fragments: two segments would have different partitions.
            yield tuple(numbers)
            return
        rows = {part.number: part.rows for part in self._tables.at(ref).fragments()}
        held: list[int] = []
        count = 0
        for number in numbers:
            held.append(number)
            count += rows[number]
            if count >= self._segment_rows:
                yield tuple(held)
                held, count = [], 0
        if held:
            yield tuple(held)

    def remove_layouts(self) -> None:
        """Remove the version files of temporary table layouts. Committed versions do not use them."""
        for layout in self._layouts:
            for manifest in layout.manifests:
                with suppress(OmnigraphError):  # a file that stays is small and does no harm
                    self._store.objects.delete(manifest)

    def outcomes(self, committed: bool) -> Iterator[TableOptimized]:
        """The results by table."""
        assert self._view is not None
        after = self._store.capture(self._branch).tables if committed else self._view.tables
        for key, pin in sorted(self._view.tables.items()):
            if not self._view.owns(pin):
                yield TableOptimized(key, 0, 0, False, None, pin.ref.version, pin.ref.version)
                continue
            if key in self._drifted:
                yield TableOptimized(key, 0, 0, False, DRIFT, pin.ref.version, self._drifted[key])
                continue
            layout = self._writes[key].layout
            removed, added = (0, 0) if layout is None else (layout.removed, layout.added)
            now = after[key].ref if key in after else pin.ref
            pending = tuple(each for each in self._plan.pending if each.type_key == key)
            head = self._tables.head(now.path, now.branch)
            yield TableOptimized(key, removed, added, now != pin.ref, None, now.version, head, pending)


def _dropped_segments(trimmed: Layout | None) -> frozenset[str]:
    return frozenset() if trimmed is None else trimmed.dropped
