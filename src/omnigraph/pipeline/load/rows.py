"""The rows of a load on Spark: tasks read parts of the input and write fragments; the engine commits them.

Until the commit, fragments are in the directories of their tables, but no manifest refers to them. A failure leaves the
graph unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from omnigraph.commit.manifest import Manifest, Models, with_models
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.staged_writes import fork_table
from omnigraph.commit.table_writes import AppendFragments, Change, ChangeFragments, OverwriteFragments, TableWrite
from omnigraph.dataclass import dataclass
from omnigraph.embed import Embedder
from omnigraph.engine.backends import StagedRowsOutdatedError
from omnigraph.engine.requests import LoadRequest
from omnigraph.engine.session import Session
from omnigraph.errors import (
    ConstraintError,
    EmbeddingError,
    KeyConflictError,
    OmnigraphError,
    ReadSetChangedError,
)
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.type_key import TypeKey, type_key
from omnigraph.pipeline.load.blobs import AllowedReferences
from omnigraph.pipeline.load.input_parts import InputParts
from omnigraph.pipeline.load.partition_task import Work
from omnigraph.pipeline.load.plan import Planner, compared_values
from omnigraph.pipeline.load.rules import LoadedType, SparkValidator
from omnigraph.pipeline.load.upsert import choose_merge, merge_by_tasks, merge_threshold
from omnigraph.pipeline.load.validate import validate_load
from omnigraph.pipeline.spark.shuffle import Relation, Shuffle, combine_first
from omnigraph.pipeline.spark.staging import Staging
from omnigraph.pipeline.spark.tasks import SparkWork
from omnigraph.storage.table_ref import TableRef
from omnigraph.write.input.splits import Split
from omnigraph.write.input.table_mapping import TableMapping
from omnigraph.write.load import LoadPhase, LoadProgress
from omnigraph.write.receipt import LoadMode, MergedType, MergeWay
from omnigraph.write.row_locations import MOST, RowLocations
from omnigraph.write.rows.chunking import chunks_of
from omnigraph.write.rows.identity import Ulids
from omnigraph.write.rows.problems import SHOWN, Coercion, Coercions, Problems
from omnigraph.write.rules.changes import TableChange
from omnigraph.write.rules.duplicate_keys import DuplicateIds, RowNumbers
from omnigraph.write.spill import memory_budget

_NONE = pa.array([], pa.utf8())


class SparkRows:
    """The rows of one load, built by tasks.

    Args:
        session: the engine session.
        source: the input. It is split only once, even if the load starts again after a concurrent commit.
        request: the request.
        spark: the context of the work on Spark.

    Raises:
        InputError: the merge threshold is not a valid size.
    """

    stages_into_tables = True
    attempts = 5
    can_read_again = False  # its parts are planned for the types of one schema

    def __init__(self, session: Session, source: object, request: LoadRequest, spark: SparkWork) -> None:
        self.session = session
        self.store = session.store
        self.source = source
        self.request = request
        self.mode = LoadMode(request.mode)
        self.spark = spark
        self.staging = spark.staging
        self.threshold = merge_threshold(spark.options.merge_threshold)
        self.splits: list[Split] | None = None
        self.forks: dict[str, TableRef] = {}

    @property
    def work_name(self) -> str:
        return self.staging.job_id

    def begin(self, attempt: int) -> None:
        self.direct = attempt == 0
        """Whether a load in mode `merge` writes the rows of an empty table directly as fragments, without staging."""
        self.changes: dict[str, LoadedType] = {}
        self.forks = {}
        self.used_forks: set[str] = set()
        self.merged: list[MergedType] = []
        self.work: Work | None = None

    def end_attempt(self) -> None:
        for key in self.forks:
            self._drop_fork(key)

    def _begin_reading(self, view: Manifest) -> AcceptedSchema:
        """Split the input in the first attempt. Later attempts use the same parts."""
        accepted = self.session.schemas.at(Snapshot(self.session.store, view))
        if self.splits is None:
            assert self.request.mapping is None or isinstance(self.request.mapping, TableMapping)
            with self.spark.job("planning the load"):
                size, mapping = self.spark.options.split_bytes, self.request.mapping
                spark = self.spark.session.spark
                planner = Planner(accepted, self.staging, size, mapping, spark, self.request.format)
                self.splits = list(planner.splits(self.source, self.request.type_name))
        self.parts = InputParts(self.splits, self.spark)
        count = partition_count(self.splits, self.spark.options.part_rows, self.spark.session.parallelism)
        self.partitions = count if self.staging.has_parts else 0
        return accepted

    def digest(self, view: Manifest) -> str:
        accepted = self._begin_reading(view)
        self.parts.read(replace(self._work(view, accepted, write=False), rows=False))
        return self.parts.digest(accepted, self.request.embed)

    def read(self, view: Manifest) -> None:
        self.start_view = view
        self.accepted = accepted = self._begin_reading(view)
        self.duplicates = DuplicateIds(accepted.catalog, last_wins=self.mode is LoadMode.MERGE)
        self._report_progress(LoadPhase.READING)
        self.work = self._work(view, accepted, write=not self.request.check)
        self.parts.read(self.work)
        self._collect()
        self._report_progress(LoadPhase.CHECKING)
        self._find_duplicates(view, accepted)

    @property
    def counts(self) -> Mapping[str, int]:
        return {key: change.count for key, change in self.changes.items()}

    @property
    def coerced(self) -> tuple[Coercion, ...]:
        return self.parts.coerced

    @property
    def fingerprint(self) -> str | None:
        keyed = self.request.idempotency_key is not None
        return self.parts.digest(self.accepted, self.request.embed) if keyed else None

    @property
    def merges(self) -> tuple[MergedType, ...]:
        return tuple(self.merged)

    def check(self, view: Manifest) -> None:
        self._prepare(view, self.accepted, view)

    def prepare(self, now: Manifest) -> Sequence[TableWrite]:
        return self._prepare(now, self.accepted, self.start_view)

    def _report_progress(self, phase: LoadPhase) -> None:
        if self.request.progress is not None:
            tables = {key: change.read for key, change in self.changes.items()}
            size = sum(part.size for change in self.changes.values() for part in change.parts)
            self.request.progress(LoadProgress(phase, sum(tables.values()), size, tables))

    # Reading

    def _work(self, view: Manifest, accepted: AcceptedSchema, *, write: bool) -> Work:
        bases: dict[str, TableRef] = {}
        staged: set[str] = set()
        if write:
            for key, pin in view.tables.items():
                if not self.parts.may_have(key):
                    continue
                if not view.owns(pin):
                    self.forks[key] = fork_table(self.store, view, pin)
                bases[key] = self.forks.get(key, pin.ref)
                if self.mode is LoadMode.MERGE and not (self.direct and pin.row_count == 0):
                    staged.add(key)
        return Work(
            self.staging,
            accepted,
            time.time_ns() // 1_000_000,
            Ulids.seed(),
            bases,
            frozenset(staged),
            self.request.embed,
            self._embedder(accepted),
            memory_budget(self.request.memory_budget),
            self.partitions,
            self.request.idempotency_key is not None,
            lenient=self.request.lenient,
        )

    def _embedder(self, accepted: AcceptedSchema) -> Embedder | None:
        """The embedder of this process. It is sent to the tasks, so other machines need no credentials."""
        computed = any(prop.embed for node in accepted.catalog.nodes.values() for prop in node.properties.values())
        try:
            return self.session.embedder if computed and self.request.embed else None
        except EmbeddingError:
            return None  # tasks create the embedder themselves, and the first that needs it reports the error

    def _models(self, change: LoadedType, now: Manifest) -> Models:
        """The embedding models recorded for the vectors of a type after the load."""
        models = () if change.replaced else now.tables[change.key].models
        for done in self.parts.done.values() if change.kind is TypeKind.NODE else ():
            models = with_models(models, done.models.get(change.name, {}))
        return models

    def _collect(self) -> None:
        """Collect the rows of each type, part by part."""
        for _, done in sorted(self.parts.done.items()):
            for key, part in done.tables.items():
                if key not in self.changes:
                    kind, name = TypeKey.parse(key)
                    replaced = self.mode is LoadMode.OVERWRITE
                    self.changes[key] = LoadedType(kind, name, [], replaced)
                self.changes[key].parts.append(part)
        self.changes = dict(sorted(self.changes.items()))

    # Checking

    def _rules(self, view: Manifest, accepted: AcceptedSchema) -> SparkValidator:
        return SparkValidator(accepted, self.changes, view, self.staging, self.spark.shuffle, self.partitions)

    def _find_duplicates(self, view: Manifest, accepted: AcceptedSchema) -> None:
        """Find duplicate ids. In mode `merge`, the last record with an id counts.

        Raises:
            ConstraintError: two records have the same key.
        """
        rules = self._rules(view, accepted)
        named = [change for change in self.changes.values() if not change.fresh]
        keyed = {change.key: accepted.catalog.declared(*TypeKey.parse(change.key)).key is not None for change in named}
        with self.spark.job("comparing ids"):
            duplicate_counts = rules.shuffle.collect([rules.duplicate_counts(change) for change in named])
            named = [change for change, more in zip(named, duplicate_counts, strict=True) if more.num_rows]
            found = rules.shuffle.collect([_duplicates(rules, change, keyed[change.key]) for change in named])
        for change, several in zip(named, found, strict=True):
            first, total = combine_first(several, "id", SHOWN) if keyed[change.key] else (several, None)
            dropped = self.duplicates.superseded(change, first, total)
            if dropped is None:
                continue
            _drop(change, dropped)
            if (
                self.mode is LoadMode.MERGE
                and self.direct
                and any(part.fragments or part.unfetched for part in change.parts)
            ):
                # The fragments contain rows that later records replace: start again without direct fragments.
                raise StagedRowsOutdatedError(f"{change.key} has duplicate ids")
        try:
            self.duplicates.check(
                self.changes, ((rows.first, describe, rows.total) for rows, describe in rules.values())
            )
        except ConstraintError as error:
            raise self._with_locations(error, accepted) from None

    def _with_locations(self, error: ConstraintError, accepted: AcceptedSchema) -> ConstraintError:
        """Add the locations of rows to an error, if the input is small enough for the driver to read it again."""
        locations = self._locations(accepted)
        return error if locations is None else locations[0].with_locations(error, locations[1])

    def _locations(self, accepted: AcceptedSchema) -> tuple[RowLocations, dict[str, TableChange]] | None:
        """The locations of the rows in the input, and the ids of the rows; None if the input is large."""
        if sum(change.read for change in self.changes.values()) > MOST:
            return None
        places = RowLocations()
        for number, split in sorted(self.parts.splits.items()):
            ignored = Problems()
            ignored.coerced = Coercions() if self.request.lenient else None
            for raw in split.read(accepted, ignored, self.parts.starts[number]):
                for piece in chunks_of(raw):
                    places.add(type_key(piece.kind, piece.name), piece.origin)
        ids = {}
        for key, change in self.changes.items():
            parts = [self.staging.table(part.keys, ["id"]) for part in change.parts if part.keys is not None]
            rows = pa.concat_tables([pa.schema([("id", pa.utf8())]).empty_table(), *map(_plain_ids, parts)])
            # Also the rows that later records replace: violations have the row numbers of the input.
            ids[key] = TableChange(change.kind, change.name, rows, _NONE)
        return places, ids

    # Writing

    def located(self, error: KeyConflictError) -> KeyConflictError:
        return error

    def _prepare(self, now: Manifest, accepted: AcceptedSchema, start_view: Manifest) -> Sequence[TableWrite]:
        self._check_bases(now, start_view)
        self._report_progress(LoadPhase.CHECKING)
        rules = self._rules(now, accepted)
        with self.spark.job("checking"):
            try:
                taken = validate_load(rules, all_new=self.mode is LoadMode.APPEND)
            except ConstraintError as error:
                raise self._with_locations(error, accepted) from None
        self._fetch()
        self._check_bases(now, start_view)  # again, because `_fetch` may have written fragments
        conflict = self.duplicates.conflict or taken
        if conflict is not None:
            locations = self._locations(accepted)
            raise conflict if locations is None else locations[0].conflict_with_locations(conflict, locations[1])
        if self.request.check:
            return []
        self._report_progress(LoadPhase.WRITING)
        self.merged.clear()
        writes = [
            replace(self._write(change, rules.shuffle, now, start_view), models=self._models(change, now))
            for change in self.changes.values()
        ]
        self.used_forks |= {write.key for write in writes if write.fork is not None}
        return writes

    def _fetch(self) -> None:
        """Fetch external blobs by tasks. First checks that all sources are allowed and exist."""
        keep = self.mode is LoadMode.OVERWRITE
        jobs = [
            (change, i) for change in self.changes.values() for i, part in enumerate(change.parts) if part.unfetched
        ]
        if not jobs:
            return
        allowed = AllowedReferences(self.staging, self.changes, self.session.blobs, keep_references=keep)
        assert self.work is not None
        fetch, work, each = allowed.fetch, self.work, [(change.key, change.parts[i]) for change, i in jobs]
        done = self.parts.map(range(len(each)), lambda job: fetch.part(work, job, *each[job]), "fetching blobs")
        allowed.check(done.values())
        for job, (change, i) in enumerate(jobs):
            change.parts[i] = done[job].part

    def _check_bases(self, now: Manifest, start_view: Manifest) -> None:
        """Check that the written fragments fit the current table versions.

        Raises:
            StagedRowsOutdatedError: a table has changed.
        """
        for key, change in self.changes.items():
            if not any(part.fragments for part in change.parts):
                continue
            before, pin = start_view.tables[key], now.tables[key]
            if key in self.used_forks or (key in self.forks and pin.ref != before.ref):
                raise self._outdated(key, start_view, now)
            if (pin.ref.path, pin.ref.branch) != (before.ref.path, before.ref.branch):
                raise self._outdated(key, start_view, now)
            if self._is_direct(change) and pin.row_count:
                raise self._outdated(key, start_view, now)

    def _outdated(self, key: str, start_view: Manifest, now: Manifest) -> StagedRowsOutdatedError:
        error = StagedRowsOutdatedError(f"{key} has changed")
        error.__cause__ = ReadSetChangedError(key, start_view.tables[key].ref.version, now.tables[key].ref.version)
        return error

    def _is_direct(self, change: LoadedType) -> bool:
        """Whether a load in mode `merge` wrote rows directly as fragments, because the table was empty."""
        return self.mode is LoadMode.MERGE and any(part.fragments and part.named for part in change.parts)

    def _write(self, change: LoadedType, shuffle: Shuffle, now: Manifest, start_view: Manifest) -> TableWrite:
        fragments = tuple(text for part in change.parts for text in part.fragments)
        base = self.forks.get(change.key) if fragments else None
        staged = [
            (part.staged, change.dropped.get(i)) for i, part in enumerate(change.parts) if part.staged is not None
        ]
        if staged:
            self.merged.append(choose_merge(change, self.threshold))
            if self.merged[-1].way is MergeWay.TASKS:
                return self._task_merge(change, fragments, shuffle, now, start_view)
            source = _StagedSource(self.staging, tuple(staged))
            return Change(change.key, source, fragments=fragments, fork=base)
        operation = OverwriteFragments if self.mode is LoadMode.OVERWRITE else AppendFragments
        return operation(change.key, fragments, fork=base)

    def _task_merge(
        self, change: LoadedType, fragments: tuple[str, ...], shuffle: Shuffle, now: Manifest, start_view: Manifest
    ) -> TableWrite:
        """Merge rows by tasks. The result is for one table version, so they run again after a concurrent commit."""
        base = self._writable_version(change.key, now, start_view)
        with self.spark.job(f"merging {change.name}"):
            merged, removed = merge_by_tasks(shuffle, self.staging, base, change)
        fork = None if now.owns(now.tables[change.key]) else base
        return ChangeFragments(change.key, (*merged, *fragments), removed, fork=fork)

    def _writable_version(self, key: str, now: Manifest, start_view: Manifest) -> TableRef:
        """The table version that tasks change.

        This is the current version. For the first write of a branch to a table, it is a fork: a new Lance branch.
        """
        pin = now.tables[key]
        if now.owns(pin):
            return pin.ref
        fork = self.forks.get(key)
        same = (start_view.incarnation, start_view.tables[key].ref) == (now.incarnation, pin.ref)
        if fork is None or not same or key in self.used_forks:
            self._drop_fork(key)
            fork = self.forks[key] = fork_table(self.store, now, pin)
            self.used_forks.discard(key)
        return fork

    def _drop_fork(self, key: str) -> None:
        """Remove a fork that no write uses."""
        fork = self.forks.get(key)
        if fork is not None and key not in self.used_forks:
            assert fork.branch is not None
            with suppress(OmnigraphError):  # if this fails, cleanup removes the fork later
                self.store.tables.drop_fork(fork.path, fork.branch)


@dataclass(frozen=True, slots=True)
class _StagedSource:
    """Staged rows, without those that a later record with the same id replaces."""

    staging: Staging
    parts: tuple[tuple[str, np.ndarray[tuple[int], np.dtype[np.int64]] | None], ...]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        for path, dropped in self.parts:
            first = 0
            for batch in self.staging.batches(path, columns):
                keep = np.ones(batch.num_rows, bool)
                if dropped is not None:
                    positions = dropped[(dropped >= first) & (dropped < first + batch.num_rows)] - first
                    keep[positions] = False
                first += batch.num_rows
                yield batch if keep.all() else batch.filter(pa.array(keep))


def _duplicates(rules: SparkValidator, change: LoadedType, keyed: bool) -> Relation:
    """Duplicate ids. If the type has a key, duplicates are an error, so only the first ones are collected."""
    found = rules.duplicate_rows(change)
    return found.map(lambda rows: rows.select(["id"])).first("id", SHOWN) if keyed else found


def partition_count(splits: Sequence[Split], part_rows: int, parallelism: int) -> int:
    """The number of hash partitions of the compared columns. A partition is small enough for one task."""
    parts = -(-compared_values(splits) // part_rows)
    return 1 if parts <= 1 else max(parts, parallelism)


def _plain_ids(rows: pa.Table) -> pa.Table:
    return pa.table({"id": rows["id"]})


def _drop(change: LoadedType, dropped: RowNumbers) -> None:
    """Record, part by part, the positions of rows that a later record with the same id replaces."""
    bounds = np.append(np.array(change.starts), change.read)
    for i, (low, high) in enumerate(pairwise(bounds.tolist())):
        positions = dropped[(dropped >= low) & (dropped < high)] - low
        if len(positions):
            change.dropped[i] = positions
