"""Writing a DataFrame or a stream into one type of a graph: tasks put rows aside, and one load takes them all.

Spark ends a write in a Python process of its own, where there is no session. So the rows of all tasks are loaded there
as a stream, by the loader that works in one process: with every check, as one commit. What tasks put aside lies below
the graph, belongs to nobody until then, and goes with the write, whether that succeeds or fails: the commit copies it.
A record of the write is there while its rows are loaded. Before that no process of ours lives long enough to keep one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from omnigraph.commit.lineage import find_idempotent
from omnigraph.commit.manifest import MAIN
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.engine.load import load_mode
from omnigraph.errors import BranchNotFoundError, InputError, OmnigraphError
from omnigraph.lang.schema.type_key import type_key
from omnigraph.pipeline.source.options import Options
from omnigraph.pipeline.source.pinned import Place, type_of
from omnigraph.pipeline.spark.staging import Place as Staging
from omnigraph.storage.uri import GraphUri
from omnigraph.write.receipt import LoadMode

_TOGETHER = 32 * 1024 * 1024
"""About how many bytes of rows are put aside as one object."""


@dataclass
class Written(WriterCommitMessage):
    """What one task put aside.

    Attributes:
        load: that of its writer. For the commit Spark makes the writer of a stream anew, and then that is another load.
        paths: where, in the order of the rows.
        schema: the columns; None when there were no rows.
    """

    load: str
    paths: tuple[str, ...]
    schema: pa.Schema | None


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go.

    Attributes:
        place: the graph.
        staging: what the tasks put rows aside with.
        type_name: the type, as `Graph.load` takes it.
    """

    place: Place
    staging: Staging
    type_name: str
    mode: LoadMode
    branch: str | None
    base: str | None
    message: str | None

    @classmethod
    def of(cls, options: Options, *, overwrite: bool) -> Target:
        """The target that options name.

        Raises:
            InputError: they name no type of the graph, or contradict each other.
        """
        said = options.text("mode")
        if overwrite and said not in (None, LoadMode.OVERWRITE):
            raise InputError(f"the mode is overwrite for Spark, and {said} for the graph", hint="name one of them")
        mode = LoadMode.OVERWRITE if overwrite else load_mode(said or LoadMode.APPEND)
        place = Place.of(options)
        graph = place.open()
        kind, name = type_of(graph.catalog, options.type)
        staging = Staging.at(GraphUri.parse(place.uri, dict(place.storage)))
        shared = name in graph.catalog.nodes and name in graph.catalog.edges
        key = type_key(kind, name) if shared else name
        branch, base, message = (options.text(option) for option in ("branch", "base", "message"))
        return cls(place, staging, key, mode, branch, base, message)

    def put(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Put the rows of a task aside."""
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
            if sum(batch.nbytes for batch in held) >= _TOGETHER:
                put()
        if held:
            put()
        return Written(self.staging.load, tuple(paths), schema)

    def load(self, messages: Sequence[WriterCommitMessage | None], key: str | None) -> None:
        """Load what all tasks put aside, as one commit, and remove it."""
        parts = [message for message in messages if isinstance(message, Written) and message.schema is not None]
        rows = pa.RecordBatchReader.from_batches(parts[0].schema, self._rows(parts)) if parts else self._nothing()
        name = parts[0].load if parts else self.staging.load
        with at_work(self.staging.objects, WorkKind.LOAD, name=name), self.place.open(read_only=False) as graph:
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

    def has(self, key: str) -> bool:
        """Whether a commit of the branch carries a key."""
        with self.place.open() as graph:
            try:
                return find_idempotent(graph.session.store.capture(self.branch or MAIN), key) is not None
            except BranchNotFoundError:
                return False

    def clear(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what tasks put aside, those too that failed: they used the same directory.

        Only of a batch of a stream in which all of them failed nobody can tell where that is.
        """
        loads = {message.load for message in messages if isinstance(message, Written)}
        for load in {self.staging.load, *loads}:
            with suppress(OmnigraphError):  # what is left is found by cleanup
                replace(self.staging, load=load).clear()

    def _rows(self, parts: Sequence[Written]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            for path in part.paths:
                yield from (batch.cast(parts[0].schema) for batch in self.staging.batches(path))

    def _nothing(self) -> pa.Table:
        return pa.table({"id": pa.array([], pa.utf8())})


class Writer(DataSourceArrowWriter):
    """Writes a DataFrame.

    Args:
        target: where to.
        key: the idempotency key, if there is one.
    """

    def __init__(self, target: Target, key: str | None) -> None:
        self._target = target
        self._key = key

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._target.put(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._target.load(messages, self._key)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was put aside.

        Spark also calls this when the commit failed half way. Even if that was after the graph had changed, nothing of
        the graph lies there.
        """
        self._target.clear(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each as one commit that is not repeated.

    Args:
        target: where to.
        key: what tells the stream from others.
    """

    def __init__(self, target: Target, key: str) -> None:
        self._target = target
        self._key = key

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._target.put(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (the name is Spark's)
        key = f"{self._key}:{batchId}"
        if self._target.has(key):
            # It is the same batch, whatever it looks like now: behind a shuffle rows come in any order.
            self._target.clear(messages)
        elif any(isinstance(message, Written) and message.paths for message in messages):
            self._target.load(messages, key)
        else:
            self._target.clear(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what was put aside: see `Writer.abort`."""
        self._target.clear(messages)


def stream_key(options: Options, said: Mapping[str, str]) -> str:
    """What tells a stream from others, and is the same when it is started again.

    Raises:
        InputError: nothing does.
    """
    own = options.text("idempotencyKey")
    if own is not None:
        return own
    checkpoint = next((value for name, value in said.items() if name.lower() == "checkpointlocation"), None)
    if checkpoint is None:
        raise InputError(
            "nothing tells this stream from others",
            hint='name its checkpoint: .option("checkpointLocation", ...), or give an idempotencyKey of its own',
        )
    return f"spark-{blake2b(checkpoint.rstrip('/').encode(), digest_size=12).hexdigest()}"
