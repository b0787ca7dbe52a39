"""Compares tables for a merge on Spark: a shuffle brings rows with equal ids together, and tasks compare them.

Tasks stage the rows that change. The driver reads the columns that constraint checks need, and checks them. The driver
writes a small change itself. A large change is written by tasks, and the driver receives only file names. Then the
driver commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest, Models
from omnigraph.commit.staged_writes import fork_table
from omnigraph.commit.store import Store
from omnigraph.commit.table_writes import ChangeFragments, TableWrite
from omnigraph.dataclass import dataclass
from omnigraph.engine.engines import Engine
from omnigraph.errors import OmnigraphError
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.choices import Choice, Resolved
from omnigraph.merge.classify import DIFFERS, UNDECIDED, VERDICT, Verdict
from omnigraph.merge.compare import (
    CONFLICT_SCHEMA,
    MAX_CONFLICTS,
    Collected,
    Compared,
    LocalComparer,
    compare_sides,
    rows_write,
)
from omnigraph.merge.located_rows import compared_names
from omnigraph.merge.schema_alignment import AlignedTables, AlignedView, Conversion
from omnigraph.merge.sides import Columns, Versions, differing_fragments, fragment_rows
from omnigraph.merge.touched import Touched, touched
from omnigraph.pipeline.load.partition_task import PartRows
from omnigraph.pipeline.load.rules import LoadedType
from omnigraph.pipeline.load.upsert import merge_by_tasks, merge_threshold
from omnigraph.pipeline.spark.shuffle import Relation, Shuffle, Side, decode, encode
from omnigraph.pipeline.spark.staging import Staging
from omnigraph.pipeline.spark.tasks import SparkWork
from omnigraph.storage.row_changes import RemovedRows
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

MAX_CANDIDATES = 1_000_000
"""Maximum number of ids of rows that may have changed. With more, tasks compare all rows of the changed fragments."""

_MAX_TASK_FRAGMENTS = 4
"""Maximum number of fragments per task."""


@dataclass(frozen=True, slots=True)
class StagedPart:
    """Staged rows of one task.

    Attributes:
        path: the staged file.
        count: the number of rows in the file.
    """

    path: str
    count: int


@dataclass(frozen=True, slots=True)
class StagedComparison(Compared):
    """A comparison whose rows are in staged files. Only the columns that constraint checks need are in memory.

    Attributes:
        parts: the staged rows.
        extra: rows that were added after the comparison, with all columns. They replace staged rows with the same id.
        staging: reads the staged rows.
    """

    parts: tuple[StagedPart, ...] = ()
    extra: pa.Table | None = None
    staging: Staging | None = None

    def _with(self, rows: pa.Table, inserted: int) -> StagedComparison:
        if rows.num_rows == 0:
            return self
        extra = rows if self.extra is None else pa.concat_tables([self.extra, rows])
        known = pa.concat_tables([self.rows, rows.select(self.rows.column_names)])
        return replace(self, rows=known, inserted=self.inserted + inserted, extra=extra)

    def whole_rows(self, ids: pa.Array) -> pa.Table:
        assert self.staging is not None
        added = self.versions.schema.empty_table() if self.extra is None else self.extra
        found = [added.filter(pc.is_in(added["id"], value_set=ids))]
        staged = ids.filter(pc.invert(pc.is_in(ids, value_set=found[0]["id"])))
        for part in self.parts:
            rows = self.staging.table(part.path, self.versions.schema.names)
            found.append(rows.filter(pc.is_in(rows["id"], value_set=staged)))
        return pa.concat_tables(found)


class SparkComparer:
    """Compares tables on Spark.

    Args:
        store: the graph.
        spark: the context of the work on Spark.
        budget: the bytes of rows that stay in the memory of the driver.
        aligned: the tables with the columns of the target, if the versions have different schemas.
    """

    def __init__(self, store: Store, spark: SparkWork, budget: int, aligned: AlignedTables | None = None) -> None:
        self._store = store
        self._spark = spark
        self._staging = spark.staging
        self._budget = budget
        self._threshold = merge_threshold(spark.options.merge_threshold)
        self._aligned = aligned
        self._engines: set[Engine] = set()

    @property
    def engine(self) -> str:
        return (Engine.LOCAL if self._engines == {Engine.LOCAL} else Engine.SPARK).value

    def aligned(self, tables: TableStorage) -> SparkComparer:
        made = SparkComparer(self._store, self._spark, self._budget, cast(AlignedTables, tables))
        made._engines = self._engines
        return made

    def compare(self, versions: Versions, choice: Choice, checked: Sequence[str]) -> Compared:
        tables = self._staging.tables
        conversions = self._conversions(versions)
        if any(one.may_refuse for one in conversions.values()):
            # The error of a refused value has to name it, and rows that the source has not changed are not converted.
            self._engines.add(Engine.LOCAL)
            return LocalComparer(self._tables, self._budget).compare(versions, choice, checked)
        self._engines.add(Engine.SPARK)
        candidates = None
        if not versions.is_unclear:
            names = compared_names(tables, versions) if conversions else None
            candidates = touched(tables, versions.base, versions.source, MAX_CANDIDATES, names)
        differing = dict(zip(versions.all, differing_fragments(tables, versions), strict=True))
        with self._spark.job(f"comparing {versions.key}"):
            shuffle = self._spark.shuffle
            sides = {
                ref: self._rows(shuffle, versions, ref, numbers, candidates, conversions)
                for ref, numbers in differing.items()
            }
            order = list(sides)
            indexes = [order.index(ref) for ref in versions.all]
            compared = shuffle.cogroup(
                [Side(relation, ["id"]) for relation in sides.values()],
                _comparison(self._staging, versions.for_tasks(), indexes, choice),
                self._spark.options.tasks,
            )
            (answers,) = shuffle.collect([compared])
        return self._collected(versions, answers.to_pylist(), checked)

    @property
    def _tables(self) -> TableStorage:
        return self._store.tables if self._aligned is None else cast(TableStorage, self._aligned)

    def _conversions(self, versions: Versions) -> dict[TableRef, Conversion]:
        """The conversions of the versions to the columns of the target; empty if all have the same schema."""
        return {} if self._aligned is None else {ref: self._aligned.conversion(ref) for ref in versions.all}

    def _collected(self, versions: Versions, answers: list[dict[str, Any]], checked: Sequence[str]) -> Compared:
        """Collect the results of the tasks. For a large change, reads only the columns that constraints check."""
        size = sum(answer["size"] for answer in answers)
        # The rows of another schema may need other values to be valid, so the driver reads all of their columns.
        large = size >= self._threshold and not (versions.columns.blobs or versions.complete or self._aligned)
        columns = [*checked, VERDICT] if large else None
        nothing = versions.schema.empty_table().append_column(VERDICT, pa.array([], pa.int8()))
        collected = Collected(versions, self._budget, checked if large else None)
        parts = []
        for answer in answers:
            conflicts, named = decode(answer["conflict_rows"]), decode(answer["named"])["id"].combine_chunks()
            rows = nothing if answer["rows"] is None else self._staging.table(answer["rows"], columns)
            found = Resolved(rows, conflicts, answer["resolved"], named, decode(answer["settled"]))
            collected.add(found, answer["conflicts"])
            if answer["rows"] is not None:
                parts.append(StagedPart(answer["rows"], rows.num_rows))
            if answer["deleted"] is not None:
                collected.delete(self._staging.table(answer["deleted"])["id"].combine_chunks())
        whole = collected.compared()
        if not large:
            return whole
        members = {member.name: getattr(whole, member.name) for member in fields(whole)}
        return StagedComparison(**members, parts=tuple(parts), staging=self._staging)

    def writes(self, changes: Sequence[tuple[Compared, Models]], target: Manifest) -> list[TableWrite]:
        found: list[TableWrite] = []
        try:
            for compared, models in changes:
                found.append(self._write(compared, target, models))
        except BaseException:
            for write in found:
                self._drop_fork(write.fork)
            raise
        return found

    def _write(self, compared: Compared, target: Manifest, models: Models) -> TableWrite:
        if compared.rows.num_rows == 0:
            compared = replace(compared, rows=compared.versions.schema.empty_table())
        elif isinstance(compared, StagedComparison):
            return self._tasks_write(compared, target, models)
        return rows_write(self._tables, compared, target, models)

    def _tasks_write(self, compared: StagedComparison, target: Manifest, models: Models) -> TableWrite:
        """Write a change by tasks. The result is for one table version, so they run again after a concurrent commit."""
        key = compared.versions.key
        pin = target.tables[key]
        fork = None if target.owns(pin) else fork_table(self._store, target, pin)
        try:
            fragments, replaced = self._by_tasks(compared, fork or pin.ref)
        except BaseException:
            self._drop_fork(fork)
            raise
        return ChangeFragments(key, fragments, replaced, fork=fork, models=models)

    def _by_tasks(self, compared: StagedComparison, base: TableRef) -> tuple[tuple[str, ...], RemovedRows]:
        key = compared.versions.key
        kind, name = TypeKey.parse(key)
        change = LoadedType(kind, name, list(self._parts(compared)), False)
        self._drop(change, compared)
        deleted_rows = pa.table({"id": compared.deleted})
        deleted = [self._staging.put("merge/deleted", deleted_rows)] if deleted_rows.num_rows else []
        with self._spark.job(f"writing {key}"):
            return merge_by_tasks(self._spark.shuffle, self._staging, base, change, deleted)

    def _parts(self, compared: StagedComparison) -> Iterator[PartRows]:
        for part in compared.parts:
            yield PartRows(part.count, 0, True, staged=part.path, keys=part.path)
        if compared.extra is not None:
            path = self._staging.put("merge/extra", compared.extra)
            yield PartRows(compared.extra.num_rows, 0, True, staged=path, keys=path)

    def _drop(self, change: LoadedType, compared: StagedComparison) -> None:
        """Mark staged rows as dropped, if they are not part of the merge after conflicts were resolved."""
        if compared.rows.num_rows == change.read:
            return
        for i, part in enumerate(change.parts):
            assert part.keys is not None
            ids = self._staging.table(part.keys, ["id"])["id"]
            taken = pc.is_in(ids, value_set=compared.rows["id"]).to_numpy()
            if compared.extra is not None and i < len(compared.parts):
                taken &= ~pc.is_in(ids, value_set=compared.extra["id"]).to_numpy()
            if not taken.all():
                change.dropped[i] = np.flatnonzero(~taken)

    def _drop_fork(self, fork: TableRef | None) -> None:
        """Remove the fork (Lance branch of the table) of a failed write."""
        if fork is not None and fork.branch is not None:
            with suppress(OmnigraphError):  # if this fails, cleanup removes the fork later
                self._store.tables.drop_fork(fork.path, fork.branch)

    def _rows(
        self,
        shuffle: Shuffle,
        versions: Versions,
        ref: TableRef,
        numbers: tuple[int, ...],
        candidates: Touched | None,
        conversions: Mapping[TableRef, Conversion],
    ) -> Relation:
        """The rows of a version that have to be compared."""
        step = max(1, min(_MAX_TASK_FRAGMENTS, len(numbers) // 16))
        inputs = [
            VersionRows(self._staging, ref, numbers[i : i + step], versions.columns, candidates, conversions.get(ref))
            for i in range(0, len(numbers), step)
        ]
        chosen = set(numbers)
        count = sum(part.rows for part in self._staging.tables.at(ref).fragments() if part.number in chosen)
        return shuffle.read(inputs, versions.schema, count if candidates is None else min(count, candidates.count))


@dataclass(frozen=True, slots=True)
class VersionRows:
    """The rows of some fragments of a version, as a task reads them."""

    staging: Staging
    ref: TableRef
    numbers: tuple[int, ...]
    columns: Columns
    candidates: Touched | None
    conversion: Conversion | None = None

    def tables(self) -> Iterator[pa.Table]:
        tables = self.staging.tables if self.conversion is None else self
        return fragment_rows(cast(TableStorage, tables), self.ref, self.numbers, self.columns, self.candidates)

    def at(self, ref: TableRef) -> AlignedView:
        """The version with the columns of the target. So this object replaces the table storage in a task."""
        conversion = self.conversion
        assert conversion is not None
        return AlignedView(self.staging.tables.at(ref), lambda: conversion)


def _comparison(staging: Staging, versions: Versions, order: list[int], choice: Choice) -> Callable[..., pa.Table]:
    """The comparison in a task: compares rows with equal ids, and stages the rows that change."""
    name = f"merge/{versions.key.replace(':', '-')}"

    def compare(*sides: pa.Table) -> pa.Table:
        base, source, target = (sides[number] for number in order)
        found = compare_sides(versions, (base, source, target), choice)
        done, conflicts = found.done, found.conflict_rows
        is_delete = pc.equal(done[VERDICT], pa.scalar(int(Verdict.DELETE), pa.int8()))
        rows, deleted_rows = (
            done.drop_columns([DIFFERS, UNDECIDED]).filter(pc.invert(is_delete)),
            done.select(["id"]).filter(is_delete),
        )
        first = (
            conflicts.select(CONFLICT_SCHEMA.names)
            .sort_by("id")
            .slice(0, conflicts.num_rows if versions.complete else MAX_CONFLICTS)
        )
        return pa.table(
            {
                "rows": pa.array([staging.put(name, rows) if rows.num_rows else None], pa.utf8()),
                "size": pa.array([rows.nbytes], pa.int64()),
                "deleted": pa.array([staging.put(name, deleted_rows) if deleted_rows.num_rows else None], pa.utf8()),
                "conflicts": pa.array([conflicts.num_rows], pa.int64()),
                "conflict_rows": pa.array([encode(first)], pa.binary()),
                "resolved": pa.array([found.count], pa.int64()),
                "named": pa.array([encode(pa.table({"id": found.named}))], pa.binary()),
                "settled": pa.array([encode(found.resolved_deletes)], pa.binary()),
            }
        )

    return compare
