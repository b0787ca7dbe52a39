"""Loading: rows from files or tables become one commit. All rows are validated before anything is stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np
import pyarrow as pa

from omnigraph.commit.manifest import with_models
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.table_writes import Append, Insert, Overwrite, TableWrite, Upsert
from omnigraph.dataclass import dataclass
from omnigraph.embed import Embedder, Tally
from omnigraph.errors import ConstraintError, KeyConflictError
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.type_key import type_key
from omnigraph.storage.staging import key_conflict
from omnigraph.write.external_blobs import BlobPolicy, admit
from omnigraph.write.receipt import LoadMode, LoadReceipt
from omnigraph.write.request_digest import RowsDigest
from omnigraph.write.row_locations import RowLocations
from omnigraph.write.rows.builder import RowBuilder
from omnigraph.write.rows.chunking import chunks_of
from omnigraph.write.rows.identity import Ulids
from omnigraph.write.rows.problems import Problems
from omnigraph.write.rows.raw_rows import RawRows
from omnigraph.write.rules.changes import TableChange
from omnigraph.write.rules.constraints import ROW, MemoryLimit, possible_duplicates
from omnigraph.write.rules.duplicate_keys import DuplicateIds, duplicate_ids
from omnigraph.write.rules.validator import validate, value_violations, wrong_records
from omnigraph.write.spill import DEFAULT_BUDGET, Spool

__all__ = ["Load", "LoadMode", "LoadPhase", "LoadProgress", "LoadReceipt"]

_NONE = pa.array([], pa.utf8())

_OPERATIONS: dict[LoadMode, type[Insert | Upsert | Overwrite]] = {
    LoadMode.APPEND: Insert,
    LoadMode.MERGE: Upsert,
    LoadMode.OVERWRITE: Overwrite,
}


class LoadPhase(StrEnum):
    """The current phase of a load."""

    READING = "reading"
    CHECKING = "checking"
    WRITING = "writing"


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The progress of a load.

    Attributes:
        rows: number of records read.
        bytes: size of their rows in memory.
        tables: number of records by type key.
    """

    phase: LoadPhase
    rows: int
    bytes: int
    tables: Mapping[str, int]


class Load:
    """The rows of one load. They are built once. If another commit is published first, they are validated again.

    Args:
        accepted: the accepted schema.
        mode: how entities that already exist are treated.
        budget: bytes of rows that stay in memory. Each constraint check may take the same amount in addition.
        embedder: creates the client of the embedding model. Called only if `@embed` vectors are missing.
        policy: the directories that external blobs may come from; by default none.
        progress: called with the progress of the load. An error that it raises ends the load.
        digest: computes the digest of the input.
    """

    def __init__(
        self,
        accepted: AcceptedSchema,
        mode: LoadMode,
        *,
        budget: int = DEFAULT_BUDGET,
        embedder: Callable[[], Embedder] | None = None,
        policy: BlobPolicy | None = None,
        progress: Callable[[LoadProgress], None] | None = None,
        digest: RowsDigest | None = None,
    ) -> None:
        self.accepted = accepted
        self.mode = mode
        self.problems = Problems()
        self._embedder = embedder
        self._tally = Tally()
        self._policy = policy or BlobPolicy()
        self._progress = progress
        self._digest = digest
        self._now = time.time_ns() // 1_000_000
        self._ulids = Ulids()
        self._builders: dict[str, RowBuilder] = {}
        self._with_given_ids: set[str] = set()
        """Type keys of the types for which the input has at least one id, or a key that an id is derived from."""
        self._counts: dict[str, int] = {}
        self._bytes = 0
        self._spool = Spool(budget)
        self._memory = MemoryLimit(budget)
        self._checked_changes: dict[str, TableChange] | None = None
        self._duplicates = DuplicateIds(accepted.catalog, last_wins=mode is LoadMode.MERGE)
        self._locations = RowLocations()

    @property
    def spilled(self) -> int:
        """Bytes of rows that were spilled to disk."""
        return self._spool.spilled

    def read(self, source: Callable[[Problems], Iterable[RawRows]]) -> None:
        """Build the rows of a source.

        Raises:
            BadRowsError: some records cannot become rows.
            StorageError: the rows exceed the memory budget, and there is no disk space to spill them.
        """
        self.report_progress(LoadPhase.READING)
        for raw in source(self.problems):
            for chunk in chunks_of(raw):
                self._add_rows(chunk)
                if len(chunk.origin.records):
                    self.report_progress(LoadPhase.READING)
        self.problems.check()

    def _add_rows(self, raw: RawRows) -> None:
        key = type_key(raw.kind, raw.name)
        builder = self._builders.get(key)
        if builder is None:
            builder = RowBuilder(
                self.accepted,
                raw.kind,
                raw.name,
                self._now,
                self.problems,
                self._embedder,
                self._ulids.take,
                self._tally,
            )
            self._builders[key] = builder
        if self._digest is not None:
            self._digest.take(raw)
        rows = builder.build(raw.columns, raw.origin, raw.absent)
        ids = raw.columns.get("id")
        if builder.key_order is not None or (ids is not None and ids.null_count < len(ids)):
            self._with_given_ids.add(key)
        self._locations.add(key, raw.origin)
        self._counts[key] = self._counts.get(key, 0) + rows.num_rows
        self._bytes += rows.nbytes
        if not self.problems:
            self._spool.add(key, rows)

    def report_progress(self, phase: LoadPhase) -> None:
        """Report the progress of the load."""
        if self._progress is not None:
            self._progress(LoadProgress(phase, sum(self._counts.values()), self._bytes, dict(self._counts)))

    def changes(self) -> dict[str, TableChange]:
        """The change of each type, with one row per id. Can be called only once, because it takes the collected rows.

        Raises:
            ConstraintError: two records have the same key.
            ResourceLimitError: there are too many ids to compare within the memory budget.
        """
        self.report_progress(LoadPhase.CHECKING)
        changes = {}
        for key in self._spool.keys:
            builder = self._builders[key]
            fresh = key not in self._with_given_ids
            rows = self._spool.take(key)
            change = TableChange(
                builder.kind, builder.type.name, rows, _NONE, replaced=self.mode is LoadMode.OVERWRITE, fresh=fresh
            )
            changes[key] = change if fresh else self._distinct(change)
        self._check_duplicates(changes)
        return changes

    def _distinct(self, change: TableChange) -> TableChange:
        """The change with one row per id. Drops rows that a later record replaces, but checks their values first."""
        key, rows = change.key, change.rows
        candidates_mask = possible_duplicates([rows["id"]], f"the ids of {key}", self._memory)
        if candidates_mask is None:
            return change
        candidates = pa.table(
            {"id": rows["id"].filter(candidates_mask), ROW: np.flatnonzero(candidates_mask.to_numpy())}
        )
        dropped = self._duplicates.superseded(change, duplicate_ids(candidates))
        if dropped is None:
            return change
        wrong = tuple(wrong_records(self.accepted.catalog, change))
        remaining = np.ones(rows.num_rows, bool)
        remaining[dropped] = False
        self._locations.keep_rows(key, remaining)
        for part in _masked(rows, pa.array(remaining)):
            self._spool.add(key, part)
        return replace(change, rows=self._spool.take(key), wrong=wrong)

    def _check_duplicates(self, changes: dict[str, TableChange]) -> None:
        bad_values = value_violations(self.accepted.catalog, changes)
        try:
            self._duplicates.check(changes, ((rows, describe, None) for rows, describe in bad_values))
        except ConstraintError as error:
            raise self._locations.with_locations(error, changes) from None

    def prepare(self, snapshot: Snapshot, changes: dict[str, TableChange]) -> Sequence[TableWrite]:
        """Validate the changes against a snapshot. Returns the writes.

        Raises:
            ConstraintError: a constraint is violated.
            ExternalBlobPolicyError: a blob comes from a source that is not allowed.
            KeyConflictError: two records have the same id, but every id must be new.
            ResourceLimitError: a check exceeds the memory budget.
        """
        self.report_progress(LoadPhase.CHECKING)
        try:
            validate(self.accepted, changes, snapshot, self._memory)
        except ConstraintError as error:
            raise self._locations.with_locations(error, changes) from None
        if self._checked_changes is None:
            self._checked_changes = admit(changes, self._policy, keep_references=self.mode is LoadMode.OVERWRITE)
        if self._duplicates.conflict is not None:
            raise self._duplicates.conflict
        self.report_progress(LoadPhase.WRITING)
        return [self._write(snapshot, change) for change in self._checked_changes.values()]

    def _write(self, snapshot: Snapshot, change: TableChange) -> TableWrite:
        before = () if change.replaced else snapshot.models(change.key)
        computed = self._tally.models.get(change.name, {}) if change.kind is TypeKind.NODE else {}
        models = with_models(before, computed)
        return self._operation(change)(change.key, change.rows, models=models)

    def check(self, snapshot: Snapshot, changes: dict[str, TableChange]) -> None:
        """Run all checks of a load against a snapshot, and write nothing.

        Raises:
            ConstraintError: a constraint is violated.
            ExternalBlobPolicyError: a blob comes from a source that is not allowed.
            KeyConflictError: an id must be new, but it exists, or two records have this id.
            ResourceLimitError: a check exceeds the memory budget.
        """
        for write in sorted(self.prepare(snapshot, changes), key=lambda write: write.key):
            if isinstance(write, Insert):
                taken = snapshot.lookup(write.key, "id", write.rows["id"], columns=["id"])
                if taken.num_rows:
                    raise key_conflict(write.key, taken)

    def located(self, error: KeyConflictError, changes: Mapping[str, TableChange]) -> KeyConflictError:
        """The error with the places of the existing ids in the input."""
        return self._locations.conflict_with_locations(error, changes)

    def _operation(self, change: TableChange) -> type[Append | Insert | Upsert | Overwrite]:
        # Generated ids are new, so stored rows with the same ids need not be looked up.
        return Append if change.fresh and not change.replaced else _OPERATIONS[self.mode]


def _masked(rows: pa.Table, mask: pa.Array) -> Iterator[pa.Table]:
    """The rows that a mask selects, one batch at a time."""
    first = 0
    for batch in rows.to_batches():
        yield pa.Table.from_batches([batch.filter(mask.slice(first, batch.num_rows))])
        first += batch.num_rows


def loaded(changes: Mapping[str, TableChange]) -> dict[str, int]:
    """The number of loaded entities per type key."""
    return {key: change.rows.num_rows for key, change in changes.items()}
