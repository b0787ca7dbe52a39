"""Writes a DataFrame or a stream to one type of a graph: tasks stage rows, and one load commits them.

Spark commits a write in a separate Python process without a Spark session. This process loads the staged rows of all
tasks with the local engine, with all checks, as one commit. The load copies the staged rows, so they are removed when
the write succeeds or fails. During the load, a work record protects them from cleanup. Before the load, there is no
work record, because no process of OmniGraph runs during the whole write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from omnigraph.commit.lineage import find_any_idempotent
from omnigraph.commit.manifest import MAIN
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.dataclass import dataclass
from omnigraph.errors import BranchNotFoundError, InputError, OmnigraphError
from omnigraph.lang.schema.type_key import type_key
from omnigraph.pipeline.source.options import Options
from omnigraph.pipeline.source.pinned import GraphLocation, type_of
from omnigraph.pipeline.spark.staging import Staging
from omnigraph.storage.uri import GraphUri
from omnigraph.write.receipt import LoadMode, load_mode

OBJECT_BYTES = 32 * 1024 * 1024
"""Approximate bytes of rows per staged object."""


@dataclass
class StagedOutput(WriterCommitMessage):
    """The rows that one task staged.

    Attributes:
        job_id: the name of the staging directory. It is part of this message, because for the commit of a stream batch
            Spark creates a new writer object, which has another staging directory.
        paths: the staged objects, in the order of the rows.
        schema: the columns; None if there were no rows.
    """

    job_id: str
    paths: tuple[str, ...]
    schema: pa.Schema | None


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a write.

    Attributes:
        location: the location of the graph.
        staging: the staging directory of the tasks.
        type_name: the type, as `Graph.load` takes it.
    """

    location: GraphLocation
    staging: Staging
    type_name: str
    mode: LoadMode
    branch: str | None
    base: str | None
    message: str | None

    @classmethod
    def of(cls, options: Options, *, overwrite: bool) -> Target:
        """The target that the options name.

        Raises:
            InputError: the graph has no such type, or the options contradict each other.
        """
        mode_option = options.text("mode")
        if overwrite and mode_option not in (None, LoadMode.OVERWRITE):
            raise InputError(
                f"the write has .mode(\"overwrite\"), but the option 'mode' is '{mode_option}'",
                hint='use only one of .mode(...) and .option("mode", ...)',
            )
        mode = LoadMode.OVERWRITE if overwrite else load_mode(mode_option or LoadMode.APPEND)
        location = GraphLocation.of(options)
        graph = location.open()
        kind, name = type_of(graph.catalog, options.type)
        staging = Staging.new(GraphUri.parse(location.uri, dict(location.storage)))
        shared = name in graph.catalog.nodes and name in graph.catalog.edges
        key = type_key(kind, name) if shared else name
        branch, base, message = (options.text(option) for option in ("branch", "base", "message"))
        return cls(location, staging, key, mode, branch, base, message)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> StagedOutput:
        """Stage the rows of a task."""
        paths: list[str] = []
        held: list[pa.RecordBatch] = []
        schema: pa.Schema | None = None

        def put() -> None:
            paths.append(self.staging.put("rows", pa.Table.from_batches(held)))
            held.clear()

        for batch in batches:
            if batch.num_rows == 0:
                continue
            held.append(batch)
            schema = held[0].schema
            if sum(batch.nbytes for batch in held) >= OBJECT_BYTES:
                put()
        if held:
            put()
        return StagedOutput(self.staging.job_id, tuple(paths), schema)

    def load(self, messages: Sequence[WriterCommitMessage | None], key: str | None) -> None:
        """Load the staged rows of all tasks as one commit, and remove the staged files."""
        parts = [message for message in messages if isinstance(message, StagedOutput) and message.schema is not None]
        rows = pa.RecordBatchReader.from_batches(parts[0].schema, self._rows(parts)) if parts else self._no_rows()
        name = parts[0].job_id if parts else self.staging.job_id
        with at_work(self.staging.objects, WorkKind.LOAD, name=name), self.location.open(read_only=False) as graph:
            graph.load(
                {self.type_name: rows},
                mode=self.mode,
                branch=self.branch,
                base=self.base,
                message=self.message,
                idempotency_key=key,
                engine="local",
            )
        self.clear(messages)

    def is_committed(self, key: str) -> bool:
        """Whether the branch has a commit with this idempotency key."""
        with self.location.open() as graph:
            try:
                return find_any_idempotent(graph.session.store.capture(self.branch or MAIN), key) is not None
            except BranchNotFoundError:
                return False

    def clear(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the staging directory, with the files of successful and failed tasks.

        If all tasks of a stream batch fail, no message has the name of the directory, so cleanup removes it later.
        """
        job_ids = {message.job_id for message in messages if isinstance(message, StagedOutput)}
        for job_id in {self.staging.job_id, *job_ids}:
            with suppress(OmnigraphError):  # if this fails, cleanup removes the remaining files later
                replace(self.staging, job_id=job_id).clear()

    def _rows(self, parts: Sequence[StagedOutput]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            for path in part.paths:
                yield from (batch.cast(parts[0].schema) for batch in self.staging.batches(path))

    def _no_rows(self) -> pa.Table:
        return pa.table({"id": pa.array([], pa.utf8())})


class Writer(DataSourceArrowWriter):
    """Writes a DataFrame.

    Args:
        target: the target.
        key: the idempotency key, if given.
    """

    def __init__(self, target: Target, key: str | None) -> None:
        self._target = target
        self._key = key

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._target.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._target.load(messages, self._key)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files.

        Spark also calls this if the commit failed. This is safe even if the graph was changed, because no table uses
        files in the staging directory.
        """
        self._target.clear(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a stream as one commit, exactly once.

    Args:
        target: the target.
        key: the key that identifies the stream, see `stream_key`.
    """

    def __init__(self, target: Target, key: str) -> None:
        self._target = target
        self._key = key

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._target.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (the name is Spark's)
        key = f"{self._key}:{batchId}"
        if self._target.is_committed(key):
            # The batch is already committed. Do not load it again: a shuffle may have changed the order of its rows.
            self._target.clear(messages)
        elif any(isinstance(message, StagedOutput) and message.paths for message in messages):
            self._target.load(messages, key)
        else:
            self._target.clear(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the staged files: see `Writer.abort`."""
        self._target.clear(messages)


def stream_key(options: Options, spark_options: Mapping[str, str]) -> str:
    """The key that identifies a stream. It stays the same when the stream is restarted.

    Raises:
        InputError: there is neither a key nor a checkpoint.
    """
    key = options.text("idempotencyKey")
    if key is not None:
        return key
    checkpoint = next((value for name, value in spark_options.items() if name.lower() == "checkpointlocation"), None)
    if checkpoint is None:
        raise InputError(
            "the stream has neither a checkpoint location nor an idempotency key",
            hint='set .option("checkpointLocation", ...) or .option("idempotencyKey", ...)',
        )
    return f"spark-{blake2b(checkpoint.rstrip('/').encode(), digest_size=12).hexdigest()}"
