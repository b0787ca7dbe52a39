"""A load on Spark: parts of the input are read by tasks, compared on Spark, and committed here as one commit.

Until the commit, nothing of a load can be seen: fragments lie in the directories of their tables, and nothing points
at them. Whatever fails on the way leaves the graph as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.commit.lineage import find_idempotent
from omnigraph.commit.manifest import Commit, Manifest, Models, with_models
from omnigraph.commit.staged_writes import fork_table
from omnigraph.commit.table_writes import AppendFragments, Change, ChangeFragments, OverwriteFragments, TableWrite
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.commit.write_request import Prepared, WriteRequest
from omnigraph.embed import Embedder
from omnigraph.errors import (
    ConstraintError,
    EmbeddingError,
    InputError,
    KeyConflictError,
    OmnigraphError,
    PreconditionFailedError,
    ReadSetChangedError,
)
from omnigraph.graph import Graph
from omnigraph.graph.loading import LoadRequest, fork_for, is_own, said_about, take_back, target_of
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.pipeline.jobs import Watch
from omnigraph.pipeline.load.blobs import Admitted
from omnigraph.pipeline.load.exchange import PART_ROWS, Exchange, Relation, first_of
from omnigraph.pipeline.load.plan import Planner, compared_values
from omnigraph.pipeline.load.reading import Parts
from omnigraph.pipeline.load.rules import Loaded, SparkRules, numbers_of
from omnigraph.pipeline.load.staging import Place
from omnigraph.pipeline.load.tasks import Work, declared_type
from omnigraph.pipeline.load.upsert import merge_by_tasks, merge_threshold, way_of
from omnigraph.pipeline.session import Session
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.uri import Scheme
from omnigraph.write.changes import TableChange
from omnigraph.write.identity import Ulids
from omnigraph.write.load import LoadPhase, LoadProgress
from omnigraph.write.pieces import pieces
from omnigraph.write.places import MOST, Places
from omnigraph.write.problems import SHOWN, Coercions, Problems
from omnigraph.write.receipt import LoadAnswer, LoadMode, LoadReceipt, MergedType, MergeWay, answered
from omnigraph.write.spill import memory_budget
from omnigraph.write.splits import SPLIT_BYTES, Split
from omnigraph.write.validate import Violations, in_order, spell_twin, unique_subject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPTS = 5
_NONE = pa.array([], pa.utf8())


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """How a load is spread.

    Attributes:
        session: the session.
        watch: who looks on, and when it has to stop.
        split_bytes: about how many bytes of the input one task reads.
        part_rows: about how many rows one task compares.
        merge_threshold: from how many bytes of rows of a type on tasks merge them; None is what the environment says.
    """

    session: Session
    watch: Watch = field(default_factory=Watch)
    split_bytes: int = SPLIT_BYTES
    part_rows: int = PART_ROWS
    merge_threshold: int | str | None = None


class _AgainError(Exception):
    """What was written cannot be used: the graph has changed under it. Nobody but this module sees it."""


def load(graph: Graph, source: Any, request: LoadRequest, options: SparkOptions) -> LoadReceipt:
    """Carry out a load on Spark; `Graph.load` describes it."""
    uri = graph._store.objects.uri
    if uri.scheme is Scheme.MEMORY:
        raise InputError("tasks cannot reach a graph in the memory of this process", hint="load with engine='local'")
    said = said_about(graph, request)
    place = Place.at(uri)
    try:
        with at_work(graph._store.leases, WorkKind.LOAD, name=place.load) as work:
            return _attempts(graph, source, request, options, replace(said, work=work), place)
    finally:
        with suppress(OmnigraphError):  # what is left is found by cleanup
            place.clear()


def _attempts(
    graph: Graph, source: Any, request: LoadRequest, options: SparkOptions, said: WriteRequest, place: Place
) -> LoadReceipt:
    # A source that can be read once is read once, however often the load has to begin again.
    view, _ = target_of(graph, said.branch, request.base, heal=not request.check)
    accepted = graph._schema_of(view)[1]
    with options.session.job("planning the load", options.watch):
        planner = Planner(accepted, place, options.split_bytes, request.mapping, options.session.spark)
        splits = list(planner.splits(source, request.type_name))
    for attempt in range(_ATTEMPTS):
        try:
            return _SparkLoad(graph, splits, request, options, said, place, direct=attempt == 0).run()
        except _AgainError as error:
            last = error
    raise last.__cause__ or last


class _SparkLoad:
    """One attempt at a load."""

    def __init__(
        self,
        graph: Graph,
        splits: Sequence[Split],
        request: LoadRequest,
        options: SparkOptions,
        said: WriteRequest,
        place: Place,
        *,
        direct: bool,
    ) -> None:
        self.graph = graph
        self.store = graph._store
        self.request = request
        self.options = options
        self.said = said
        self.place = place
        self.direct = direct
        self.parts = Parts(splits, options.session, options.watch)
        self.cuts = cut_parts(splits, options) if place.has_parts else 0
        self.changes: dict[str, Loaded] = {}
        self.conflict: KeyConflictError | None = None
        self.forks: dict[str, TableRef] = {}
        self.handed: set[str] = set()
        self.merges: list[MergedType] = []
        self.work: Work | None = None
        self.threshold = merge_threshold(options.merge_threshold)

    @property
    def spark(self) -> SparkSession:
        return self.options.session.spark

    def run(self) -> LoadReceipt:
        request, target = self.request, self.said.branch
        view, missing = target_of(self.graph, target, request.base, heal=not request.check)
        if not missing:
            earlier = find_idempotent(view, request.idempotency_key)
            if earlier is not None:
                return answered(target, request.mode, lambda: self._read_digest(view), earlier)
        if request.expect_head not in (None, view.head.id):
            raise PreconditionFailedError(target, str(request.expect_head), view.head.id)
        base = view
        made = fork_for(self.graph, target, view) if missing and not request.check else None
        try:
            if missing and not request.check:
                view = self.store.capture(target)
            return self._load(view, made is not None)
        except BaseException:
            if made is not None:
                take_back(self.graph, made, base)
            raise
        finally:
            for key in self.forks:
                self._drop_fork(key)

    def _load(self, view: Manifest, created: bool) -> LoadReceipt:
        request = self.request
        accepted = self.graph._schema_of(view)[1]
        self._tell(LoadPhase.READING)
        self.work = self._work(view, accepted, write=not request.check)
        self.parts.read(self.work)
        self._collect()
        self._tell(LoadPhase.CHECKING)
        self._distinct(view, accepted)
        loaded = {key: change.count for key, change in self.changes.items()}
        fingerprint = (
            None
            if request.idempotency_key is None or request.check
            else self.parts.digest(accepted, self.request.embed)
        )
        answer = LoadAnswer(request.mode, loaded, self.parts.coerced, request.base, created, fingerprint)
        if request.check:
            self._prepare(view, accepted, view)
            return answer.receipt(self.said.branch, self.graph.actor, None)

        def prepare(now: Manifest) -> Prepared:
            if now.schema_hash != view.schema_hash:
                raise ReadSetChangedError("schema", view.schema_hash, now.schema_hash)
            return Prepared(self._prepare(now, accepted, view), (answer.label(),))

        commit: Commit | None = self.graph.write_tables(self.said, prepare)
        if commit is not None and not is_own(commit, answer):
            return answered(self.said.branch, request.mode, lambda: str(fingerprint), commit)
        return replace(answer.receipt(self.said.branch, self.graph.actor, commit), merges=tuple(self.merges))

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
                if self.request.mode is LoadMode.MERGE and not (self.direct and pin.row_count == 0):
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
            return self.graph.embedder if computed and self.request.embed else None
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
                    kind, _, name = key.partition(":")
                    replaced = self.request.mode is LoadMode.OVERWRITE
                    self.changes[key] = Loaded(TypeKind(kind), name, [], replaced)
                self.changes[key].parts.append(part)
        self.changes = dict(sorted(self.changes.items()))

    # Checking

    def _rules(self, view: Manifest, accepted: AcceptedSchema) -> SparkRules:
        session = self.options.session
        exchange = Exchange(session.work, session.parallelism, self.options.part_rows)
        return SparkRules(accepted, self.changes, view, self.place, exchange, self.cuts)

    def _distinct(self, view: Manifest, accepted: AcceptedSchema) -> None:
        """See that no two records have one id, or let the last of them count.

        Raises:
            ConstraintError: two records have the same key.
        """
        rules = self._rules(view, accepted)
        named = [change for change in self.changes.values() if not change.fresh]
        keyed = {change.key: declared_type(accepted, change.key).key is not None for change in named}
        with self.options.session.job("comparing ids", self.options.watch):
            twice = rules.exchange.gather([rules.twice(change) for change in named])
            named = [change for change, more in zip(named, twice, strict=True) if more.num_rows]
            found = rules.exchange.gather([_repeated(rules, change, keyed[change.key]) for change in named])
        twins: dict[str, tuple[pa.Table, int]] = {}
        for change, several in zip(named, found, strict=True):
            if several.num_rows == 0:
                continue
            if keyed[change.key]:
                twins[change.key] = first_of(several, "id", SHOWN)
                continue
            several = several.sort_by("id")
            if self.request.mode is not LoadMode.MERGE and self.conflict is None:
                self.conflict = KeyConflictError(change.key, several["id"][0].as_py())
            _drop(change, several)
            if any(part.fragments or part.aside for part in change.parts):
                self._again_staged(change)
        if twins:
            self._refuse_twins(rules, twins)

    def _again_staged(self, change: Loaded) -> None:
        """Rows that were or will be written although they do not count: begin again, and put them aside."""
        if self.request.mode is LoadMode.MERGE and self.direct:
            raise _AgainError(f"{change.key} has ids that several records give")

    def _refuse_twins(self, rules: SparkRules, twins: Mapping[str, tuple[pa.Table, int]]) -> None:
        found = Violations()
        for known, spell in rules.values():
            found.add(known.first, spell, known.total)
        for change in in_order(self.changes):
            if change.key in twins:
                key = declared_type(rules.accepted, change.key).key
                assert key is not None
                rows, total = twins[change.key]
                found.add(rows, spell_twin(unique_subject(change.name, key)), total)
        raise self._placed(ConstraintError(tuple(found.first), found.total), rules.accepted)

    def _placed(self, error: ConstraintError, accepted: AcceptedSchema) -> ConstraintError:
        """An error that names the places of rows, where there are so few that the input can be read again here."""
        if sum(change.read for change in self.changes.values()) > MOST:
            return error
        places = Places()
        for number, split in sorted(self.parts.splits.items()):
            unheard = Problems()
            unheard.coerced = Coercions() if self.request.lenient else None
            for raw in split.read(accepted, unheard, self.parts.starts[number]):
                for piece in pieces(raw):
                    places.add(f"{piece.kind.value}:{piece.name}", piece.origin)
        ids = {}
        for key, change in self.changes.items():
            parts = [self.place.table(part.keys, ["id"]) for part in change.parts if part.keys is not None]
            rows = pa.concat_tables([pa.schema([("id", pa.utf8())]).empty_table(), *map(_plain_ids, parts)])
            kept = np.ones(rows.num_rows, bool)
            for i, first in enumerate(change.starts):
                if i in change.dropped:
                    kept[first + change.dropped[i]] = False
            if not kept.all():
                places.keep(key, kept)
                rows = rows.filter(pa.array(kept))
            ids[key] = TableChange(change.kind, change.name, rows, _NONE)
        return places.named(error, ids)

    # Writing

    def _prepare(self, now: Manifest, accepted: AcceptedSchema, begun: Manifest) -> Sequence[TableWrite]:
        self._check_bases(now, begun)
        self._tell(LoadPhase.CHECKING)
        rules = self._rules(now, accepted)
        with self.options.session.job("checking", self.options.watch):
            try:
                taken = rules.validate(all_new=self.request.mode is LoadMode.APPEND)
            except ConstraintError as error:
                raise self._placed(error, accepted) from None
        self._fetch()
        self._check_bases(now, begun)  # of what has only now been written
        if self.conflict is not None:
            raise self.conflict
        if taken is not None:
            raise KeyConflictError(*taken)
        if self.request.check:
            return []
        self._tell(LoadPhase.WRITING)
        self.merges.clear()
        writes = [
            replace(self._write(change, rules.exchange, now, begun), models=self._models(change, now))
            for change in self.changes.values()
        ]
        self.handed |= {write.key for write in writes if write.fork is not None}
        return writes

    def _fetch(self) -> None:
        """Let tasks bring in the blobs that are given as addresses, after all of these are allowed and there."""
        keep = self.request.mode is LoadMode.OVERWRITE
        jobs = [(change, i) for change in self.changes.values() for i, part in enumerate(change.parts) if part.aside]
        if not jobs:
            return
        admitted = Admitted(self.changes, self.graph._blobs, keep_references=keep)
        assert self.work is not None
        fetch, work, each = admitted.fetch, self.work, [(change.key, change.parts[i]) for change, i in jobs]
        done = self.parts.each(range(len(each)), lambda job: fetch.part(work, job, *each[job]), "fetching blobs")
        admitted.check(done.values())
        for job, (change, i) in enumerate(jobs):
            change.parts[i] = done[job].part

    def _check_bases(self, now: Manifest, begun: Manifest) -> None:
        """Make sure that what was written lies where this attempt would look for it.

        Raises:
            _AgainError: it does not.
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

    def _again(self, key: str, begun: Manifest, now: Manifest) -> _AgainError:
        error = _AgainError(f"{key} has changed")
        error.__cause__ = ReadSetChangedError(key, begun.tables[key].ref.version, now.tables[key].ref.version)
        return error

    def _is_direct(self, change: Loaded) -> bool:
        """Whether rows that may replace others were written, because there were none when the load began."""
        return self.request.mode is LoadMode.MERGE and any(part.fragments and part.named for part in change.parts)

    def _write(self, change: Loaded, exchange: Exchange, now: Manifest, begun: Manifest) -> TableWrite:
        fragments = tuple(text for part in change.parts for text in part.fragments)
        base = self.forks.get(change.key) if fragments else None
        staged = [
            (part.staged, change.dropped.get(i)) for i, part in enumerate(change.parts) if part.staged is not None
        ]
        if staged:
            self.merges.append(way_of(change, self.threshold))
            if self.merges[-1].way is MergeWay.TASKS:
                return self._merged(change, fragments, exchange, now, begun)
            source = _StagedSource(self.place, tuple(staged))
            return Change(change.key, source, fragments=fragments, fork=base)
        operation = OverwriteFragments if self.request.mode is LoadMode.OVERWRITE else AppendFragments
        return operation(change.key, fragments, fork=base)

    def _merged(
        self, change: Loaded, fragments: tuple[str, ...], exchange: Exchange, now: Manifest, begun: Manifest
    ) -> TableWrite:
        """A merge by tasks. It is made for one state: when another commit comes first, it is made again."""
        base = self._beside(change.key, now, begun)
        with self.options.session.job(f"merging {change.name}", self.options.watch):
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

    def _read_digest(self, view: Manifest) -> str:
        """The same before anything is loaded: the parts are read for it.

        Raises:
            BadRowsError: records cannot be read.
        """
        accepted = self.graph._schema_of(view)[1]
        self.parts.read(replace(self._work(view, accepted, write=False), rows=False))
        return self.parts.digest(accepted, self.request.embed)


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


def cut_parts(splits: Sequence[Split], options: SparkOptions) -> int:
    """Into how many parts what is compared is cut, so that a task can compare one of them."""
    parts = -(-compared_values(splits) // options.part_rows)
    return 1 if parts <= 1 else max(parts, options.session.parallelism)


def _plain_ids(rows: pa.Table) -> pa.Table:
    return pa.table({"id": rows["id"]})


def _drop(change: Loaded, several: pa.Table) -> None:
    """Let the last record of each id count."""
    gone = np.sort(np.concatenate([rows[:-1] for rows in numbers_of(several)]))
    bounds = np.append(np.array(change.starts), change.read)
    for i, (low, high) in enumerate(pairwise(bounds.tolist())):
        own = gone[(gone >= low) & (gone < high)] - low
        if len(own):
            change.dropped[i] = own
