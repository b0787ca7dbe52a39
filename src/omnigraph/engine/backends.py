"""Backends run the expensive parts of each verb, in this process or on Spark.

Verbs and commits are the same for all backends. A backend registers itself when its module is imported. The Spark
backend is in a higher layer, so it is imported by name at first use.
"""

# See docs/decisions/0154-backends-register-themselves.md

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

import pyarrow as pa

from omnigraph.amounts import format_size
from omnigraph.commit.manifest import Manifest, TablePin
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.table_writes import TableWrite
from omnigraph.engine.engines import Choice, Engine, SparkOptions, parse_engine
from omnigraph.engine.requests import EmbedRequest, ExecutionFields, ExportRequest, LoadRequest
from omnigraph.engine.session import Session
from omnigraph.errors import OmnigraphError, SparkUnavailableError
from omnigraph.merge.compare import Comparer
from omnigraph.read.budget import Cancellation
from omnigraph.read.export.export import TypeExport
from omnigraph.read.export.files import ExportReceipt
from omnigraph.settings import SPARK_THRESHOLD
from omnigraph.storage.uri import Scheme
from omnigraph.upkeep.optimize import Workers
from omnigraph.upkeep.vectors import Counts, EmbedPlan
from omnigraph.write.input.row_files import row_files
from omnigraph.write.receipt import MergedType
from omnigraph.write.rows.problems import Coercion

_COMPRESSION_RATIO = 4
"""Estimated ratio of the size of a text to its compressed size."""


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
        """Whether `read` writes into table directories. If so, the branch must exist before."""
        ...

    @property
    def attempts(self) -> int:
        """Maximum number of attempts when staged rows are outdated."""
        ...

    def begin(self, attempt: int) -> None:
        """Begin an attempt, numbered from 0."""
        ...

    def digest(self, view: Manifest) -> str:
        """A digest of the input, computed without building rows.

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
        """The merge method of each type, for types where a choice existed."""
        ...

    def check(self, view: Manifest) -> None:
        """Check all constraints against a branch state. Writes nothing."""
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
        counts: the amount of work.
        parts: yields tables of ids, row ids and vectors. It can be called more than once.
    """

    counts: Counts
    parts: Callable[[], Iterator[pa.Table]]


class ComputeVectors(Protocol):
    """Compute the vectors of a type."""

    def __call__(self, chosen: EmbedPlan, pin: TablePin, report: Callable[[Counts], None]) -> Computed: ...


class Backend(Protocol):
    """Runs the expensive parts of verbs. Each context manager holds its resources until the work ends."""

    def load_rows(self, session: Session, source: object, request: LoadRequest) -> AbstractContextManager[LoadRows]:
        """Build the rows of a load."""
        ...

    def comparer(self, session: Session, budget: int) -> AbstractContextManager[Comparer]:
        """Compare the tables of a merge."""
        ...

    def vectors(self, session: Session, request: EmbedRequest) -> AbstractContextManager[ComputeVectors]:
        """Compute the vectors of a type."""
        ...

    def workers(self, session: Session) -> AbstractContextManager[Workers]:
        """Compact fragments and build index segments."""
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


def _registered(engine: Engine) -> _Registered:
    if engine not in _registry:
        import_module(_MODULES[engine])
    return _registry[engine]


def choose(
    session: Session, request: ExecutionFields, size: Callable[[], int | None], unit: str = "in tables"
) -> Choice:
    """Choose the engine of a request, and call the callback of the request with the choice.

    Args:
        session: the graph. Other processes cannot read a graph in memory.
        request: the request.
        size: computes the size of the work in bytes; None if it is unknown.
        unit: the words after the size in the printed reason.

    Raises:
        InputError: there is no such engine, or the environment variable of the threshold is not a size.
    """
    chosen = _chosen(session, request, size, unit)
    if request.chosen is not None:
        request.chosen(chosen)
    return chosen


def _chosen(session: Session, request: ExecutionFields, size: Callable[[], int | None], unit: str) -> Choice:
    requested = parse_engine(request.engine)
    if requested is not Engine.AUTO:
        return Choice(requested, "as requested")
    if session.store.objects.uri.scheme is Scheme.MEMORY:
        return Choice(Engine.LOCAL, "the graph is in the memory of this process")
    total = size()
    if total is None:
        return Choice(Engine.LOCAL, "the size of the input is unknown")
    threshold = SPARK_THRESHOLD.amount()
    why = f"{format_size(total)} {unit}; Spark is used from {format_size(threshold)}"
    if total < threshold:
        return Choice(Engine.LOCAL, why)
    try:
        _registered(Engine.SPARK).check_available(request.spark or SparkOptions())
    except SparkUnavailableError as error:
        return Choice(Engine.LOCAL, f"{why}, but {error.message}", spark_missing=True)
    return Choice(Engine.SPARK, why)


def backend_of(choice: Choice, request: ExecutionFields) -> Backend:
    """The backend that runs the work of a request."""
    return _registered(choice.engine).make(request.spark or SparkOptions(), request.cancel or Cancellation())


def input_bytes(source: object, options: Mapping[str, str] | None = None) -> int | None:
    """The approximate size of the input of a load, in bytes; None if only reading it would show the size.

    None also for files that cannot be listed: the load reports that, after it has checked the rest of the request.
    """
    if isinstance(source, str | os.PathLike):
        try:
            files = row_files(source, options)
        except OmnigraphError:
            return None
        return sum(file.input.size * (1 if file.compression is None else _COMPRESSION_RATIO) for file in files)
    if isinstance(source, bytes | bytearray):
        return len(source)
    if isinstance(source, Mapping):
        return _sum(source.values(), options)
    if hasattr(source, "nbytes"):
        return int(source.nbytes)
    if isinstance(source, list | tuple) and source and all(isinstance(item, str | os.PathLike) for item in source):
        return _sum(source, options)
    return None


def _sum(sources: Iterable[object], options: Mapping[str, str] | None) -> int | None:
    sizes = [input_bytes(source, options) for source in sources]
    return None if None in sizes else sum(size for size in sizes if size is not None)
