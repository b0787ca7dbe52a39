"""The Spark backend: builds rows, compares tables, computes vectors and compacts fragments in Spark tasks.

Importing this module registers the backend with the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.engine.backends import register_backend
from omnigraph.engine.engines import Engine, SparkOptions
from omnigraph.engine.requests import EmbedRequest, ExportRequest, LoadRequest
from omnigraph.engine.session import Session
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.pipeline.columns import SparkSchemaWork
from omnigraph.pipeline.embed import SparkVectors
from omnigraph.pipeline.export import write_export
from omnigraph.pipeline.load.rows import SparkRows
from omnigraph.pipeline.merge import SparkComparer
from omnigraph.pipeline.optimize import SparkWorkers
from omnigraph.pipeline.spark.jobs import JobMonitor
from omnigraph.pipeline.spark.session import check_available, session_for
from omnigraph.pipeline.spark.staging import Staging
from omnigraph.pipeline.spark.tasks import SparkWork
from omnigraph.read.budget import Cancellation
from omnigraph.read.export.export import TypeExport
from omnigraph.read.export.files import ExportReceipt
from omnigraph.storage.uri import Scheme


class SparkBackend:
    """Runs operations such as load, merge and export on Spark.

    Args:
        options: the settings of Spark and of its tasks.
        cancel: stops the work from another thread.
    """

    def __init__(self, options: SparkOptions, cancel: Cancellation) -> None:
        self._options = options
        self._monitor = JobMonitor(options.jobs, cancel, options.seconds)

    @contextmanager
    def load_rows(self, session: Session, source: object, request: LoadRequest) -> Iterator[SparkRows]:
        with self._work(session) as work:
            yield SparkRows(session, source, request, work)

    @contextmanager
    def comparer(self, session: Session, budget: int) -> Iterator[SparkComparer]:
        with self._recorded(session, WorkKind.MERGE) as work:
            yield SparkComparer(session.store, work, budget)

    @contextmanager
    def vectors(self, session: Session, request: EmbedRequest) -> Iterator[SparkVectors]:
        with self._recorded(session, WorkKind.EMBED) as work:
            yield SparkVectors(work)

    @contextmanager
    def workers(self, session: Session) -> Iterator[SparkWorkers]:
        with self._recorded(session, WorkKind.OPTIMIZE) as work:
            yield SparkWorkers(work)

    @contextmanager
    def schema_work(self, session: Session) -> Iterator[SparkSchemaWork]:
        with self._recorded(session, WorkKind.SCHEMA) as work:
            yield SparkSchemaWork(work)

    def write_export(
        self, session: Session, view: Snapshot, parts: Sequence[TypeExport], request: ExportRequest
    ) -> ExportReceipt:
        with self._work(session) as work:
            return write_export(session, view, parts, request, work)

    @contextmanager
    def _recorded(self, session: Session, kind: WorkKind) -> Iterator[SparkWork]:
        """The context of the work, with a work record, so that cleanup does not remove staged files that are in use."""
        with self._work(session) as work, at_work(session.store.leases, kind, name=work.staging.job_id):
            yield work

    @contextmanager
    def _work(self, session: Session) -> Iterator[SparkWork]:
        """The context of the work. Its staging directory is removed at the end of the `with` block.

        Raises:
            InputError: the graph is in the memory of this process, where tasks cannot reach it.
        """
        uri = session.store.objects.uri
        if uri.scheme is Scheme.MEMORY:
            raise InputError(
                "Spark tasks cannot reach a graph in the memory of this process", hint="use engine='local'"
            )
        staging = Staging.new(uri)
        try:
            yield SparkWork(session_for(self._options), self._monitor, self._options, staging)
        finally:
            with suppress(OmnigraphError):  # if this fails, cleanup removes the remaining files later
                staging.clear()


def _check_available(options: SparkOptions) -> None:
    if not session_for(options).started:
        check_available()


register_backend(Engine.SPARK, SparkBackend, _check_available)
