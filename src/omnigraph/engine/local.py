"""The local backend: build rows, compare tables, compute vectors and compact fragments in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from omnigraph.commit.manifest import Manifest, TablePin
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.table_writes import TableWrite
from omnigraph.commit.work_records import WorkKind, reading
from omnigraph.engine.backends import Computed, register_backend
from omnigraph.engine.engines import Engine, SparkOptions
from omnigraph.engine.requests import EmbedRequest, ExportRequest, LoadRequest
from omnigraph.engine.session import Session
from omnigraph.errors import CancelledError, KeyConflictError
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.merge.compare import LocalComparer
from omnigraph.migrate.checks import MigratedRows
from omnigraph.read.budget import Cancellation
from omnigraph.read.export.export import TypeExport
from omnigraph.read.export.files import ExportFormat, ExportReceipt, write_export
from omnigraph.storage.column_changes import NewValues, write_columns
from omnigraph.storage.table_view import TableView
from omnigraph.upkeep.optimize import LocalWorkers
from omnigraph.upkeep.vectors import BATCH_ROWS, Counts, EmbedPlan, new_vectors
from omnigraph.write.input.sources import Source, can_read_again, open_source
from omnigraph.write.input.table_mapping import TableMapping
from omnigraph.write.load import Load, LoadProgress, loaded
from omnigraph.write.receipt import LoadMode, MergedType
from omnigraph.write.request_digest import RowsDigest
from omnigraph.write.rows.chunking import chunks_of
from omnigraph.write.rows.problems import Coercion, Coercions, Problems
from omnigraph.write.rules.changes import TableChange
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.rules.search import LocalSearch
from omnigraph.write.spill import Spool, memory_budget


class LocalBackend:
    """Runs the expensive parts of verbs in this process.

    Args:
        cancel: cancels the work from another thread.
    """

    def __init__(self, cancel: Cancellation) -> None:
        self._cancel = cancel

    @contextmanager
    def load_rows(self, session: Session, source: object, request: LoadRequest) -> Iterator[LocalRows]:
        yield LocalRows(session, source, request, self._cancel)

    @contextmanager
    def comparer(self, session: Session, budget: int) -> Iterator[LocalComparer]:
        yield LocalComparer(session.store.tables, budget)

    @contextmanager
    def vectors(self, session: Session, request: EmbedRequest) -> Iterator[LocalVectors]:
        yield LocalVectors(session, memory_budget(request.memory_budget))

    @contextmanager
    def workers(self, session: Session) -> Iterator[LocalWorkers]:
        yield LocalWorkers(session.store.tables)

    @contextmanager
    def schema_work(self, session: Session) -> Iterator[LocalSchemaWork]:
        yield LocalSchemaWork(self._cancel)

    def write_export(
        self, session: Session, view: Snapshot, parts: Sequence[TypeExport], request: ExportRequest
    ) -> ExportReceipt:
        assert request.target is not None
        with reading(session.store.leases, WorkKind.EXPORT, view.manifest):
            return write_export(view, parts, request.target, ExportFormat(request.format))


class LocalRows:
    """The rows of a local load. Rows that exceed the memory budget spill to temporary files."""

    work_name = None
    stages_into_tables = False
    attempts = 5
    merges: tuple[MergedType, ...] = ()

    def __init__(self, session: Session, source: object, request: LoadRequest, cancel: Cancellation) -> None:
        self._session = session
        self._source = source
        self._request = request
        self._cancel = cancel
        self._load: Load
        self._digest: RowsDigest | None = None
        self._changes: dict[str, TableChange] = {}

    @property
    def can_read_again(self) -> bool:
        return can_read_again(self._source)

    def begin(self, attempt: int) -> None: ...

    def end_attempt(self) -> None: ...

    def digest(self, view: Manifest) -> str:
        session, problems = self._session, Problems()
        accepted = session.schemas.at(Snapshot(session.store, view))
        digest = RowsDigest(accepted, problems)
        for raw in self._open(accepted)(problems):
            for piece in chunks_of(raw):
                digest.take(piece)
        problems.check()
        return digest.value(self._request.embed)

    def read(self, view: Manifest) -> None:
        session, request = self._session, self._request
        accepted = session.schemas.of(view)
        if request.idempotency_key is not None:
            self._digest = RowsDigest(accepted, _ignored_problems(request.lenient))
        self._load = Load(
            accepted,
            LoadMode(request.mode),
            budget=memory_budget(request.memory_budget),
            embedder=(lambda: session.embedder) if request.embed else None,
            policy=session.blobs,
            progress=self._report,
            digest=self._digest,
        )
        self._load.read(self._open(accepted))
        self._changes = self._load.changes()

    def _report(self, progress: LoadProgress) -> None:
        if self._cancel.cancelled:
            raise CancelledError("the load was cancelled")
        if self._request.progress is not None:
            self._request.progress(progress)

    def _open(self, accepted: AcceptedSchema) -> Source:
        request = self._request
        assert request.mapping is None or isinstance(request.mapping, TableMapping)
        return open_source(
            self._source,  # type: ignore[arg-type]  # checked by `open_source`
            accepted,
            request.type_name,
            lenient=request.lenient,
            mapping=request.mapping,
            options=self._session.storage_options,
            format=request.format,
        )

    @property
    def counts(self) -> Mapping[str, int]:
        return loaded(self._changes)

    @property
    def coerced(self) -> tuple[Coercion, ...]:
        coercions = self._load.problems.coerced
        return () if coercions is None else coercions.all()

    @property
    def fingerprint(self) -> str | None:
        return None if self._digest is None else self._digest.value(self._request.embed)

    def check(self, view: Manifest) -> None:
        self._load.check(Snapshot(self._session.store, view), self._changes)

    def located(self, error: KeyConflictError) -> KeyConflictError:
        return self._load.located(error, self._changes)

    def prepare(self, now: Manifest) -> Sequence[TableWrite]:
        return self._load.prepare(Snapshot(self._session.store, now), self._changes)


def _ignored_problems(lenient: bool) -> Problems:
    """A collector that discards problems. The row builder reports the same problems."""
    problems = Problems()
    problems.coerced = Coercions() if lenient else None
    return problems


class LocalVectors:
    """Computes vectors in this process. Vectors that exceed the budget spill to temporary files."""

    def __init__(self, session: Session, budget: int) -> None:
        self._tables = session.store.tables
        self._budget = budget

    def __call__(self, chosen: EmbedPlan, pin: TablePin, report: Callable[[Counts], None]) -> Computed:
        spool, counts = Spool(self._budget), Counts()
        if pin.row_count == 0:
            return Computed(counts, lambda: iter(()))
        numbers = [fragment.number for fragment in self._tables.at(pin.ref).fragments()]
        batches = self._tables.at(pin.ref).read_fragments(
            numbers, columns=chosen.columns, without=chosen.lacking, batch_rows=BATCH_ROWS
        )
        for rows, more in new_vectors(chosen, batches):
            if rows is not None:
                spool.add(chosen.key, rows)
            counts += more
            report(counts)
        changed = [spool.take(chosen.key)] if counts.changed else []
        return Computed(counts, lambda: iter(changed))


class LocalSchemaWork:
    """Checks rows and writes the new columns of a schema change in this process, batch by batch."""

    def __init__(self, cancel: Cancellation) -> None:
        self._cancel = cancel

    def __call__(self, table: TableView, schema: pa.Schema, values: NewValues) -> Sequence[str]:
        def compute(rows: pa.RecordBatch) -> Sequence[pa.Array]:
            if self._cancel.cancelled:
                raise CancelledError("the schema change was cancelled")
            return values.compute(rows)

        numbers = [fragment.number for fragment in table.fragments()]
        return write_columns(table, schema, replace(values, compute=compute), numbers)

    def search(self, rows: MigratedRows, memory: MemoryLimit) -> LocalSearch:
        return LocalSearch(rows, memory)


def _make(options: SparkOptions, cancel: Cancellation) -> LocalBackend:
    return LocalBackend(cancel)


register_backend(Engine.LOCAL, _make, lambda options: None)
