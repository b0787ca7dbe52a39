"""The comparison of tables on Spark: rows of an id meet in a task, and there they are compared as they are in process.

What comes of it, the rows that change, is put aside by the tasks. The driver fetches the columns that constraints look
at, and checks them. A change that is small enough it also writes; a large one is written by tasks, and the driver gets
names of files. It makes the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest, Models
from omnigraph.commit.staged_writes import fork_table
from omnigraph.commit.store import Store
from omnigraph.commit.table_writes import ChangeFragments, TableWrite
from omnigraph.errors import OmnigraphError
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.choices import Choice, Resolved, resolved
from omnigraph.merge.classify import DIFFERS, UNDECIDED, VERDICT, Verdict, classify
from omnigraph.merge.compare import CONFLICT_SCHEMA, MAX_CONFLICTS, Collected, Compared, rows_write
from omnigraph.merge.sides import Columns, Versions, differing_fragments, fragment_rows
from omnigraph.merge.touched import Touched, touched
from omnigraph.pipeline.load.partition_task import PartRows
from omnigraph.pipeline.load.rules import Loaded
from omnigraph.pipeline.load.upsert import merge_by_tasks, merge_threshold
from omnigraph.pipeline.spark.shuffle import Exchange, Relation, Side, decoded, encoded
from omnigraph.pipeline.spark.staging import Place
from omnigraph.pipeline.spark.tasks import SparkWork
from omnigraph.storage.row_changes import RemovedRows
from omnigraph.storage.table_ref import TableRef

_SIFTED = 1_000_000
"""Up to so many rows that may differ, tasks are told which these are; beyond it they compare all rows of a part."""

_FRAGMENTS = 4
"""So many parts of a table are read by one task at most."""


@dataclass(frozen=True, slots=True)
class AsidePart:
    """What a task put aside.

    Attributes:
        path: where the rows are that are taken.
        count: how many those are.
    """

    path: str
    count: int


@dataclass(frozen=True, slots=True)
class CompareAside(Compared):
    """A change whose rows lie aside. Of those only the columns are here that constraints look at.

    Attributes:
        parts: what lies aside.
        extra: whole rows that were taken beside those.
    """

    parts: tuple[AsidePart, ...] = ()
    extra: pa.Table | None = None

    def _with(self, rows: pa.Table, inserted: int) -> CompareAside:
        if rows.num_rows == 0:
            return self
        extra = rows if self.extra is None else pa.concat_tables([self.extra, rows])
        known = pa.concat_tables([self.rows, rows.select(self.rows.column_names)])
        return replace(self, rows=known, inserted=self.inserted + inserted, extra=extra)


class SparkComparer:
    """Compares on Spark.

    Args:
        store: the graph.
        spark: the context of the work on Spark.
        budget: how many bytes of rows stay in the memory of the driver.
    """

    def __init__(self, store: Store, spark: SparkWork, budget: int) -> None:
        self._store = store
        self._spark = spark
        self._place = spark.place
        self._budget = budget
        self._threshold = merge_threshold(spark.options.merge_threshold)

    def compare(self, versions: Versions, choice: Choice, checked: Sequence[str]) -> Compared:
        tables = self._place.tables
        may = touched(tables, versions.all, _SIFTED)
        apart = dict(zip(versions.all, differing_fragments(tables, versions), strict=True))
        with self._spark.job(f"comparing {versions.key}"):
            exchange = self._spark.exchange
            sides = {ref: self._rows(exchange, versions, ref, numbers, may) for ref, numbers in apart.items()}
            order = list(sides)
            places = [order.index(ref) for ref in versions.all]
            told = exchange.together(
                [Side(relation, ["id"]) for relation in sides.values()],
                _comparison(self._place, versions, places, choice),
                self._spark.options.tasks,
            )
            (answers,) = exchange.gather([told])
        return self._collected(versions, answers.to_pylist(), checked)

    def _collected(self, versions: Versions, answers: list[dict[str, Any]], checked: Sequence[str]) -> Compared:
        """What tasks found. Of a large change, only what is checked is fetched."""
        size = sum(answer["size"] for answer in answers)
        large = size >= self._threshold and not versions.columns.blobs and not versions.virtual
        columns = [*checked, VERDICT] if large else None
        nothing = versions.schema.empty_table().append_column(VERDICT, pa.array([], pa.int8()))
        collected = Collected(versions, self._budget, checked if large else None)
        parts = []
        for answer in answers:
            torn, named = decoded(answer["torn"]), decoded(answer["named"])["id"].combine_chunks()
            rows = nothing if answer["rows"] is None else self._place.table(answer["rows"], columns)
            found = Resolved(rows, torn, answer["resolved"], named, decoded(answer["settled"]))
            collected.add(found, answer["conflicts"])
            if answer["rows"] is not None:
                parts.append(AsidePart(answer["rows"], rows.num_rows))
            if answer["deleted"] is not None:
                collected.delete(self._place.table(answer["deleted"])["id"].combine_chunks())
        whole = collected.compared()
        if not large:
            return whole
        members = {member.name: getattr(whole, member.name) for member in fields(whole)}
        return CompareAside(**members, parts=tuple(parts))

    def writes(self, changes: Sequence[tuple[Compared, Models]], target: Manifest) -> list[TableWrite]:
        found: list[TableWrite] = []
        try:
            for compared, models in changes:
                found.append(self._write(compared, target, models))
        except BaseException:
            for write in found:
                self._unfork(write.fork)
            raise
        return found

    def _write(self, compared: Compared, target: Manifest, models: Models) -> TableWrite:
        if compared.rows.num_rows == 0:
            compared = replace(compared, rows=compared.versions.schema.empty_table())
        elif isinstance(compared, CompareAside):
            return self._tasks_write(compared, target, models)
        return rows_write(self._store.tables, compared, target, models)

    def _tasks_write(self, compared: CompareAside, target: Manifest, models: Models) -> TableWrite:
        """Have tasks write a change. It is made for one state: when another commit comes first, it is made again."""
        key = compared.versions.key
        pin = target.tables[key]
        fork = None if target.owns(pin) else fork_table(self._store, target, pin)
        try:
            fragments, replaced = self._by_tasks(compared, fork or pin.ref)
        except BaseException:
            self._unfork(fork)
            raise
        return ChangeFragments(key, fragments, replaced, fork=fork, models=models)

    def _by_tasks(self, compared: CompareAside, base: TableRef) -> tuple[tuple[str, ...], RemovedRows]:
        key = compared.versions.key
        kind, name = TypeKey.parse(key)
        change = Loaded(kind, name, list(self._parts(compared)), False)
        self._drop(change, compared)
        gone = pa.table({"id": compared.deleted})
        deleted = [self._place.put("merge/deleted", gone)] if gone.num_rows else []
        with self._spark.job(f"writing {key}"):
            return merge_by_tasks(self._spark.exchange, self._place, base, change, deleted)

    def _parts(self, compared: CompareAside) -> Iterator[PartRows]:
        for part in compared.parts:
            yield PartRows(part.count, 0, True, staged=part.path, keys=part.path)
        if compared.extra is not None:
            path = self._place.put("merge/extra", compared.extra)
            yield PartRows(compared.extra.num_rows, 0, True, staged=path, keys=path)

    def _drop(self, change: Loaded, compared: CompareAside) -> None:
        """Leave out rows that were put aside and are not taken after all, because a conflict was resolved so."""
        if compared.rows.num_rows == change.read:
            return
        for i, part in enumerate(change.parts):
            assert part.keys is not None
            ids = self._place.table(part.keys, ["id"])["id"]
            taken = pc.is_in(ids, value_set=compared.rows["id"]).to_numpy()
            if not taken.all():
                change.dropped[i] = np.flatnonzero(~taken)

    def _unfork(self, fork: TableRef | None) -> None:
        """Remove a fork that was made for a write which came to nothing."""
        if fork is not None and fork.branch is not None:
            with suppress(OmnigraphError):  # cleanup removes what is left
                self._store.tables.drop_fork(fork.path, fork.branch)

    def _rows(
        self,
        exchange: Exchange,
        versions: Versions,
        ref: TableRef,
        numbers: tuple[int, ...],
        may: Touched | None,
    ) -> Relation:
        """The rows of a version that have to be compared."""
        step = max(1, min(_FRAGMENTS, len(numbers) // 16))
        pieces = [
            VersionRows(self._place, ref, numbers[i : i + step], versions.columns, may)
            for i in range(0, len(numbers), step)
        ]
        chosen = set(numbers)
        count = sum(part.rows for part in self._place.tables.at(ref).fragments() if part.number in chosen)
        return exchange.read(pieces, versions.schema, count if may is None else min(count, may.count))


@dataclass(frozen=True, slots=True)
class VersionRows:
    """The rows of some parts of a version, as a task reads them."""

    place: Place
    ref: TableRef
    numbers: tuple[int, ...]
    columns: Columns
    may: Touched | None

    def tables(self) -> Iterator[pa.Table]:
        return fragment_rows(self.place.tables, self.ref, self.numbers, self.columns, self.may)


def _comparison(place: Place, versions: Versions, order: list[int], choice: Choice) -> Callable[..., pa.Table]:
    """What a task does with rows that have met: it compares them, and puts aside what changes."""
    name = f"merge/{versions.key.replace(':', '-')}"

    def compare(*sides: pa.Table) -> pa.Table:
        base, source, target = (versions.without_separate_ids(sides[number]) for number in order)
        found = resolved(classify(base, source, target, unknown=versions.unknown), choice)
        done, torn = found.done, found.conflict_rows
        goes = pc.equal(done[VERDICT], pa.scalar(int(Verdict.DELETE), pa.int8()))
        rows, gone = done.drop_columns([DIFFERS, UNDECIDED]).filter(pc.invert(goes)), done.select(["id"]).filter(goes)
        first = (
            torn.select(CONFLICT_SCHEMA.names)
            .sort_by("id")
            .slice(0, torn.num_rows if versions.virtual else MAX_CONFLICTS)
        )
        return pa.table(
            {
                "rows": pa.array([place.put(name, rows) if rows.num_rows else None], pa.utf8()),
                "size": pa.array([rows.nbytes], pa.int64()),
                "deleted": pa.array([place.put(name, gone) if gone.num_rows else None], pa.utf8()),
                "conflicts": pa.array([torn.num_rows], pa.int64()),
                "torn": pa.array([encoded(first)], pa.binary()),
                "resolved": pa.array([found.count], pa.int64()),
                "named": pa.array([encoded(pa.table({"id": found.named}))], pa.binary()),
                "settled": pa.array([encoded(found.resolved_deletes)], pa.binary()),
            }
        )

    return compare
