"""Backends run the expensive parts of each verb, in this process or on Spark.

Verbs and commits are the same for all backends. A backend registers itself when its module is imported. The Spark
backend is in a higher layer, so it is imported by name at first use.
"""

# See docs/decisions/0154-backends-register-themselves.md

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Protocol

import pyarrow as pa

from omnigraph.commit.manifest import Manifest, TablePin
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.table_writes import TableWrite, WriteColumns
from omnigraph.dataclass import dataclass
from omnigraph.engine.engines import Choice, Engine, SparkOptions
from omnigraph.engine.requests import EmbedRequest, ExecutionFields, ExportRequest, LoadRequest
from omnigraph.engine.session import Session
from omnigraph.errors import KeyConflictError
from omnigraph.merge.compare import Comparer
from omnigraph.migrate.checks import MigratedRows
from omnigraph.read.budget import Cancellation
from omnigraph.read.export.export import TypeExport
from omnigraph.read.export.files import ExportReceipt
from omnigraph.upkeep.optimize import Workers
from omnigraph.upkeep.vectors import Counts, EmbedPlan
from omnigraph.write.receipt import MergedType
from omnigraph.write.rows.problems import Coercion
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.rules.search import Search


class StagedRowsOutdatedError(Exception):
    """The graph has changed, and staged rows cannot be used. The load starts again and stages the rows once more."""


class LoadRows(Protocol):
    """The rows of one load. They are built once, and checked against the branch state of each commit attempt."""

    @property
    def work_name(self) -> str | None:
        """Name of the work record that protects staged files from cleanup; None if the load stages no files."""
        ...

    @property
    def stages_into_tables(self) -> bool:
        """Whether `read` writes into table directories. If so, the branch must exist before the call of `read`."""
        ...

    @property
    def attempts(self) -> int:
        """Maximum number of attempts when staged rows are outdated, or the schema has changed."""
        ...

    @property
    def can_read_again(self) -> bool:
        """Whether the rows can be built again for another schema."""
        ...

    def begin(self, attempt: int) -> None:
        """Begin an attempt, numbered from 0."""
        ...

    def digest(self, view: Manifest) -> str:
        """A digest of the input, computed without building rows.

        Args:
            view: a state with the schema of the load. It may be older than the newest one.

        Raises:
            BadRowsError: records cannot be read.
        """
        ...

    def read(self, view: Manifest) -> None:
        """Build the rows, and find duplicate ids among them.

        Raises:
            BadRowsError: records cannot become rows of their type.
            ConstraintError: two records have the same key.
        """
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of entities of each type, by type key."""
        ...

    @property
    def coerced(self) -> tuple[Coercion, ...]:
        """The values that the lenient reader changed."""
        ...

    @property
    def fingerprint(self) -> str | None:
        """A digest of the input that was read; None for a request without an idempotency key."""
        ...

    @property
    def merges(self) -> tuple[MergedType, ...]:
        """For each type, whether the driver or Spark tasks merged its rows; empty for a local load."""
        ...

    def check(self, view: Manifest) -> None:
        """Check all constraints against a branch state. Writes nothing."""
        ...

    def located(self, error: KeyConflictError) -> KeyConflictError:
        """The error with the places of the existing ids in the input, where they are known."""
        ...

    def prepare(self, now: Manifest) -> Sequence[TableWrite]:
        """Check all constraints against a branch state, and return the table writes.

        Raises:
            ConstraintError: rows break a constraint.
            KeyConflictError: an id exists that should be new.
            StagedRowsOutdatedError: staged rows do not fit the state.
        """
        ...

    def end_attempt(self) -> None:
        """Remove files of the attempt that its commit does not use."""
        ...


@dataclass(frozen=True, slots=True)
class Computed:
    """The changed vectors of a type.

    Attributes:
        counts: the numbers of rows and vectors, for receipts.
        parts: yields tables of ids, row ids and vectors. It can be called more than once.
    """

    counts: Counts
    parts: Callable[[], Iterator[pa.Table]]


class ComputeVectors(Protocol):
    """Compute the vectors of a type."""

    def __call__(self, chosen: EmbedPlan, pin: TablePin, report: Callable[[Counts], None]) -> Computed: ...


class SchemaWork(WriteColumns, Protocol):
    """The expensive parts of a schema change: a call writes new columns, and `search` finds rows that do not fit."""

    def search(self, rows: MigratedRows, memory: MemoryLimit) -> Search:
        """Search the stored rows of a schema change."""
        ...


class Backend(Protocol):
    """Runs the expensive parts of verbs. Each context manager holds its resources until the work ends."""

    def load_rows(self, session: Session, source: object, request: LoadRequest) -> AbstractContextManager[LoadRows]:
        """Build the rows of a load."""
        ...

    def comparer(self, session: Session, budget: int) -> AbstractContextManager[Comparer]:
        """The comparer of the tables of a merge."""
        ...

    def vectors(self, session: Session, request: EmbedRequest) -> AbstractContextManager[ComputeVectors]:
        """Compute the vectors of a type."""
        ...

    def workers(self, session: Session) -> AbstractContextManager[Workers]:
        """The workers that compact fragments and build index segments."""
        ...

    def schema_work(self, session: Session) -> AbstractContextManager[SchemaWork]:
        """Check the rows and write the new columns of a schema change."""
        ...

    def write_export(
        self, session: Session, view: Snapshot, parts: Sequence[TypeExport], request: ExportRequest
    ) -> ExportReceipt:
        """Write an export to its target."""
        ...


MakeBackend = Callable[[SparkOptions, Cancellation], Backend]


@dataclass(slots=True)
class _Registered:
    make: MakeBackend
    check_available: Callable[[SparkOptions], None]


_MODULES = {Engine.LOCAL: "omnigraph.engine.local", Engine.SPARK: "omnigraph.pipeline.backend"}
"""The module that registers a backend when it is imported."""

_registry: dict[Engine, _Registered] = {}


def register_backend(engine: Engine, make: MakeBackend, check_available: Callable[[SparkOptions], None]) -> None:
    """Register the backend of an engine.

    Args:
        engine: the engine.
        make: creates a backend from its settings and the cancellation of a request.
        check_available: raises `SparkUnavailableError` if the backend cannot run.
    """
    _registry[engine] = _Registered(make, check_available)


def check_available(engine: Engine, options: SparkOptions) -> None:
    """Check that an engine can run.

    Raises:
        SparkUnavailableError: it is Spark, and Spark or Java is missing.
    """
    _registered(engine).check_available(options)


def _registered(engine: Engine) -> _Registered:
    if engine not in _registry:
        import_module(_MODULES[engine])
    return _registry[engine]


def backend_of(choice: Choice, request: ExecutionFields) -> Backend:
    """The backend that runs the work of a request."""
    return _registered(choice.engine).make(request.spark or SparkOptions(), request.cancel or Cancellation())
