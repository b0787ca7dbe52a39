"""The rows of a load on Spark: tasks read parts of the input and write fragments; the engine commits them.

Until the commit, fragments lie in the directories of their tables and no manifest names them. A failure leaves the
graph as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from omnigraph.commit.manifest import Manifest, Models, with_models
from omnigraph.commit.staged_writes import fork_table
from omnigraph.commit.table_writes import AppendFragments, Change, ChangeFragments, OverwriteFragments, TableWrite
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
from omnigraph.pipeline.load.blobs import Admitted
from omnigraph.pipeline.load.partition_task import Work, declared_type
from omnigraph.pipeline.load.plan import Planner, compared_values
from omnigraph.pipeline.load.reading import Parts
from omnigraph.pipeline.load.rules import Loaded, SparkRules
from omnigraph.pipeline.load.upsert import merge_by_tasks, merge_threshold, way_of
from omnigraph.pipeline.spark.shuffle import Exchange, Relation, first_of
from omnigraph.pipeline.spark.staging import Place
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
        source: the input, read once however often the load starts again.
        request: the request.
        spark: the context of the work on Spark.

    Raises:
        InputError: the merge threshold is no size.
    """

    stages_into_tables = True
    attempts = 5

    def __init__(self, session: Session, source: object, request: LoadRequest, spark: SparkWork) -> None:
        self.session = session
        self.store = session.store
        self.source = source
        self.request = request
        self.mode = LoadMode(request.mode)
        self.spark = spark
        self.place = spark.place
        self.threshold = merge_threshold(spark.options.merge_threshold)
        self.splits: list[Split] | None = None
        self.forks: dict[str, TableRef] = {}

    @property
    def work_name(self) -> str:
        return self.place.load

    def begin(self, attempt: int) -> None:
        self.direct = attempt == 0
        """Whether rows that may replace others are written as fragments at once, because their table is empty."""
        self.changes: dict[str, Loaded] = {}
        self.forks = {}
        self.handed: set[str] = set()
        self.merged: list[MergedType] = []
        self.work: Work | None = None

    def end_attempt(self) -> None:
        for key in self.forks:
            self._drop_fork(key)

    def _begin_reading(self, view: Manifest) -> AcceptedSchema:
        """Split the input at the first attempt. Later attempts use the same splits."""
        accepted = self.session.schemas.of(view)
        if self.splits is None:
            assert self.request.mapping is None or isinstance(self.request.mapping, TableMapping)
            with self.spark.job("planning the load"):
                size, mapping = self.spark.options.split_bytes, self.request.mapping
                planner = Planner(accepted, self.place, size, mapping, self.spark.session.spark)
                self.splits = list(planner.splits(self.source, self.request.type_name))
        self.parts = Parts(self.splits, self.spark)
        cuts = cut_parts(self.splits, self.spark.options.part_rows, self.spark.session.parallelism)
        self.cuts = cuts if self.place.has_parts else 0
        return accepted

    def digest(self, view: Manifest) -> str:
        accepted = self._begin_reading(view)
        self.parts.read(replace(self._work(view, accepted, write=False), rows=False))
        return self.parts.digest(accepted, self.request.embed)

    def read(self, view: Manifest) -> None:
        self.begun = view
        self.accepted = accepted = self._begin_reading(view)
        self.duplicates = DuplicateIds(accepted.catalog, last_wins=self.mode is LoadMode.MERGE)
        self._tell(LoadPhase.READING)
        self.work = self._work(view, accepted, write=not self.request.check)
        self.parts.read(self.work)
        self._collect()
        self._tell(LoadPhase.CHECKING)
        self._distinct(view, accepted)

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
        return self._prepare(now, self.accepted, self.begun)

    def _tell(self, phase: LoadPhase) -> None:
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
            self.place,
            accepted,
            time.time_ns() // 1_000_000,
            Ulids.seed(),
            bases,
            frozenset(staged),
            self.request.embed,
            self._embedder(accepted),
            memory_budget(self.request.memory_budget),
            self.cuts,
            self.request.idempotency_key is not None,
            lenient=self.request.lenient,
        )

    def _embedder(self, accepted: AcceptedSchema) -> Embedder | None:
        """What computes vectors, as this process is set up: tasks elsewhere need not know of keys."""
        computed = any(prop.embed for node in accepted.catalog.nodes.values() for prop in node.properties.values())
        try:
            return self.session.embedder if computed and self.request.embed else None
        except EmbeddingError:
            return None  # a task that has a vector to compute says so

    def _models(self, change: Loaded, now: Manifest) -> Models:
        """What computed the vectors of a type after the load."""
        models = () if change.replaced else now.tables[change.key].models
        for done in self.parts.done.values() if change.kind is TypeKind.NODE else ():
            models = with_models(models, done.models.get(change.name, {}))
        return models

    def _collect(self) -> None:
        """The rows of each type, part by part."""
        for _, done in sorted(self.parts.done.items()):
            for key, part in done.tables.items():
                if key not in self.changes:
                    kind, name = TypeKey.parse(key)
                    replaced = self.mode is LoadMode.OVERWRITE
                    self.changes[key] = Loaded(kind, name, [], replaced)
                self.changes[key].parts.append(part)
        self.changes = dict(sorted(self.changes.items()))

    # Checking

    def _rules(self, view: Manifest, accepted: AcceptedSchema) -> SparkRules:
        return SparkRules(accepted, self.changes, view, self.place, self.spark.exchange, self.cuts)

    def _distinct(self, view: Manifest, accepted: AcceptedSchema) -> None:
        """Find duplicate ids. The last record of an id wins where that is allowed.

        Raises:
            ConstraintError: two records have the same key.
        """
        rules = self._rules(view, accepted)
        named = [change for change in self.changes.values() if not change.fresh]
        keyed = {change.key: declared_type(accepted, change.key).key is not None for change in named}
        with self.spark.job("comparing ids"):
            twice = rules.exchange.gather([rules.twice(change) for change in named])
            named = [change for change, more in zip(named, twice, strict=True) if more.num_rows]
            found = rules.exchange.gather([_repeated(rules, change, keyed[change.key]) for change in named])
        for change, several in zip(named, found, strict=True):
            first, total = first_of(several, "id", SHOWN) if keyed[change.key] else (several, None)
            dropped = self.duplicates.superseded(change, first, total)
            if dropped is None:
                continue
            _drop(change, dropped)
            if (
                self.mode is LoadMode.MERGE
                and self.direct
                and any(part.fragments or part.aside for part in change.parts)
            ):
                # Fragments contain rows that do not count: start again, and stage all rows of the type.
                raise StagedRowsOutdatedError(f"{change.key} has duplicate ids")
        try:
            self.duplicates.check(
                self.changes, ((rows.first, describe, rows.total) for rows, describe in rules.values())
            )
        except ConstraintError as error:
            raise self._placed(error, accepted) from None

    def _placed(self, error: ConstraintError, accepted: AcceptedSchema) -> ConstraintError:
        """An error that names the places of rows, where there are so few that the input can be read again here."""
        if sum(change.read for change in self.changes.values()) > MOST:
            return error
        places = RowLocations()
        for number, split in sorted(self.parts.splits.items()):
            unheard = Problems()
            unheard.coerced = Coercions() if self.request.lenient else None
            for raw in split.read(accepted, unheard, self.parts.starts[number]):
                for piece in chunks_of(raw):
                    places.add(type_key(piece.kind, piece.name), piece.origin)
        ids = {}
        for key, change in self.changes.items():
            parts = [self.place.table(part.keys, ["id"]) for part in change.parts if part.keys is not None]
            rows = pa.concat_tables([pa.schema([("id", pa.utf8())]).empty_table(), *map(_plain_ids, parts)])
            kept = np.ones(rows.num_rows, bool)
            for i, first in enumerate(change.starts):
                if i in change.dropped:
                    kept[first + change.dropped[i]] = False
            if not kept.all():
                places.keep_rows(key, kept)
                rows = rows.filter(pa.array(kept))
            ids[key] = TableChange(change.kind, change.name, rows, _NONE)
        return places.with_locations(error, ids)

    # Writing

    def _prepare(self, now: Manifest, accepted: AcceptedSchema, begun: Manifest) -> Sequence[TableWrite]:
        self._check_bases(now, begun)
        self._tell(LoadPhase.CHECKING)
        rules = self._rules(now, accepted)
        with self.spark.job("checking"):
            try:
                taken = rules.validate(all_new=self.mode is LoadMode.APPEND)
            except ConstraintError as error:
                raise self._placed(error, accepted) from None
        self._fetch()
        self._check_bases(now, begun)  # of what has only now been written
        if self.duplicates.conflict is not None:
            raise self.duplicates.conflict
        if taken is not None:
            raise KeyConflictError(*taken)
        if self.request.check:
            return []
        self._tell(LoadPhase.WRITING)
        self.merged.clear()
        writes = [
            replace(self._write(change, rules.exchange, now, begun), models=self._models(change, now))
            for change in self.changes.values()
        ]
        self.handed |= {write.key for write in writes if write.fork is not None}
        return writes

    def _fetch(self) -> None:
        """Let tasks bring in the blobs that are given as addresses, after all of these are allowed and there."""
        keep = self.mode is LoadMode.OVERWRITE
        jobs = [(change, i) for change in self.changes.values() for i, part in enumerate(change.parts) if part.aside]
        if not jobs:
            return
        admitted = Admitted(self.changes, self.session.blobs, keep_references=keep)
        assert self.work is not None
        fetch, work, each = admitted.fetch, self.work, [(change.key, change.parts[i]) for change, i in jobs]
        done = self.parts.each(range(len(each)), lambda job: fetch.part(work, job, *each[job]), "fetching blobs")
        admitted.check(done.values())
        for job, (change, i) in enumerate(jobs):
            change.parts[i] = done[job].part

    def _check_bases(self, now: Manifest, begun: Manifest) -> None:
        """Make sure that what was written lies where this attempt would look for it.

        Raises:
            StagedRowsOutdatedError: it does not.
        """
        for key, change in self.changes.items():
            if not any(part.fragments for part in change.parts):
                continue
            before, pin = begun.tables[key], now.tables[key]
            if key in self.handed or (key in self.forks and pin.ref != before.ref):
                raise self._again(key, begun, now)
            if (pin.ref.path, pin.ref.branch) != (before.ref.path, before.ref.branch):
                raise self._again(key, begun, now)
            if self._is_direct(change) and pin.row_count:
                raise self._again(key, begun, now)

    def _again(self, key: str, begun: Manifest, now: Manifest) -> StagedRowsOutdatedError:
        error = StagedRowsOutdatedError(f"{key} has changed")
        error.__cause__ = ReadSetChangedError(key, begun.tables[key].ref.version, now.tables[key].ref.version)
        return error

    def _is_direct(self, change: Loaded) -> bool:
        """Whether rows that may replace others were written, because there were none when the load began."""
        return self.mode is LoadMode.MERGE and any(part.fragments and part.named for part in change.parts)

    def _write(self, change: Loaded, exchange: Exchange, now: Manifest, begun: Manifest) -> TableWrite:
        fragments = tuple(text for part in change.parts for text in part.fragments)
        base = self.forks.get(change.key) if fragments else None
        staged = [
            (part.staged, change.dropped.get(i)) for i, part in enumerate(change.parts) if part.staged is not None
        ]
        if staged:
            self.merged.append(way_of(change, self.threshold))
            if self.merged[-1].way is MergeWay.TASKS:
                return self._merged(change, fragments, exchange, now, begun)
            source = _StagedSource(self.place, tuple(staged))
            return Change(change.key, source, fragments=fragments, fork=base)
        operation = OverwriteFragments if self.mode is LoadMode.OVERWRITE else AppendFragments
        return operation(change.key, fragments, fork=base)

    def _merged(
        self, change: Loaded, fragments: tuple[str, ...], exchange: Exchange, now: Manifest, begun: Manifest
    ) -> TableWrite:
        """A merge by tasks. It is made for one state: when another commit comes first, it is made again."""
        base = self._beside(change.key, now, begun)
        with self.spark.job(f"merging {change.name}"):
            merged, gone = merge_by_tasks(exchange, self.place, base, change)
        fork = None if now.owns(now.tables[change.key]) else base
        return ChangeFragments(change.key, (*merged, *fragments), gone, fork=fork)

    def _beside(self, key: str, now: Manifest, begun: Manifest) -> TableRef:
        """The version of a table that tasks change: that of the graph, or a fork of it that nobody else has."""
        pin = now.tables[key]
        if now.owns(pin):
            return pin.ref
        fork = self.forks.get(key)
        same = (begun.incarnation, begun.tables[key].ref) == (now.incarnation, pin.ref)
        if fork is None or not same or key in self.handed:
            self._drop_fork(key)
            fork = self.forks[key] = fork_table(self.store, now, pin)
            self.handed.discard(key)
        return fork

    def _drop_fork(self, key: str) -> None:
        """Remove a fork that was made for nothing."""
        fork = self.forks.get(key)
        if fork is not None and key not in self.handed:
            assert fork.branch is not None
            with suppress(OmnigraphError):  # cleanup removes what is left
                self.store.tables.drop_fork(fork.path, fork.branch)


@dataclass(frozen=True, slots=True)
class _StagedSource:
    """Rows that were put aside, without those that do not count."""

    place: Place
    parts: tuple[tuple[str, np.ndarray[tuple[int], np.dtype[np.int64]] | None], ...]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        for path, dropped in self.parts:
            first = 0
            for batch in self.place.batches(path, columns):
                kept = np.ones(batch.num_rows, bool)
                if dropped is not None:
                    own = dropped[(dropped >= first) & (dropped < first + batch.num_rows)] - first
                    kept[own] = False
                first += batch.num_rows
                yield batch if kept.all() else batch.filter(pa.array(kept))


def _repeated(rules: SparkRules, change: Loaded, keyed: bool) -> Relation:
    """Ids that several records have. Of keys, which are refused, only the first matter."""
    found = rules.repeated(change)
    return found.mapped(lambda rows: rows.select(["id"])).first("id", SHOWN) if keyed else found


def cut_parts(splits: Sequence[Split], part_rows: int, parallelism: int) -> int:
    """The number of hash partitions of the compared values, so that one task can compare a partition."""
    parts = -(-compared_values(splits) // part_rows)
    return 1 if parts <= 1 else max(parts, parallelism)


def _plain_ids(rows: pa.Table) -> pa.Table:
    return pa.table({"id": rows["id"]})


def _drop(change: Loaded, dropped: RowNumbers) -> None:
    """Note the rows that do not count, part by part."""
    bounds = np.append(np.array(change.starts), change.read)
    for i, (low, high) in enumerate(pairwise(bounds.tolist())):
        own = dropped[(dropped >= low) & (dropped < high)] - low
        if len(own):
            change.dropped[i] = own
