"""The changes of a branch as a stream: every commit once, in the order of its first-parent line.

A position in the stream is a commit: everything up to it was delivered. Spark writes positions down before it works
on what lies between them, and reads the same rows again after a failure, because commits never change. So a sink that
writes a batch once has every change once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from omnigraph.commit.lineage import commits
from omnigraph.commit.manifest import Commit
from omnigraph.commit.snapshots import Snapshot
from omnigraph.errors import InputError, NotFoundError
from omnigraph.graph.graph import Graph
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.pipeline.fragment_groups import BATCH_ROWS, grouped
from omnigraph.pipeline.source.changes import Kind, changed, names_of
from omnigraph.pipeline.source.options import Options
from omnigraph.pipeline.source.pinned import Pinned, Place, pinned_at
from omnigraph.pipeline.source.reader import check_schema
from omnigraph.pipeline.source.types import batch_schema, for_spark, stored_name
from omnigraph.storage.table_ref import TableRef

Offset = dict[str, str]

CHANGE, COMMIT, COMMITTED = "_change", "_commit", "_committed"
SNAPSHOT, BEGINNING, LATEST = "snapshot", "beginning", "latest"
"""Where a stream begins, beside commits: with all entities as they are, with the first commit, or after the newest."""

_SAID = spark.StructType(
    [
        spark.StructField(CHANGE, spark.StringType(), False),
        spark.StructField(COMMIT, spark.StringType(), False),
        spark.StructField(COMMITTED, spark.TimestampType(), False),
    ]
)


def stream_schema(pinned: Pinned) -> spark.StructType:
    """The columns of a stream: what happened, in which commit, when; then those of the entity.

    Raises:
        InputError: a property has one of those names.
    """
    taken = set(_SAID.names) & set(pinned.columns)
    if taken:
        raise InputError(
            f"the property '{min(taken)}' has a name of the stream's own", hint="leave it out in 'columns'"
        )
    return spark.StructType([*_SAID, *pinned.schema])


@dataclass
class Part(InputPartition):
    """What one task reads.

    Attributes:
        begin: the table before the commit; None when everything is new.
        end: the table after it.
        fragments: the fragments of the later one, where everything is new.
        commit: the commit.
        committed: its time, in microseconds since 1970.
    """

    begin: TableRef | None
    end: TableRef
    fragments: tuple[int, ...]
    commit: str
    committed: int


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of a type on a branch.

    Args:
        options: what is read.
        schema: the columns that Spark wants.
        pinned: the type as it was when the stream was declared.
    """

    def __init__(self, options: Options, schema: spark.StructType, pinned: Pinned) -> None:
        check_schema(schema, stream_schema(pinned))
        self._options = options
        self._schema = schema
        self._place = Place.of(options)
        self._kind = pinned.kind
        self._columns: Mapping[str, ValueType] = pinned.columns
        self._until: Offset | None = None

    # On the driver

    def initialOffset(self) -> Offset:  # noqa: N802 (the names are Spark's)
        start = self._options.text("startingCommit") or SNAPSHOT
        if start == SNAPSHOT:
            return {"commit": ""}
        if start == LATEST:
            return self._head()
        graph = self._place.open()
        if start == BEGINNING:
            *_, first = self._newest_first(graph)
            return {"commit": first.id}
        wanted = graph.snapshot(commit=start).commit.id
        self._after(graph, wanted)
        return {"commit": wanted}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        last = self._head() if self._until is None else self._until
        if start["commit"] == "":
            return last
        line = [commit.id for commit in self._after(self._place.open(), start["commit"])]
        if last["commit"] in line:
            line = line[: line.index(last["commit"]) + 1]
        elif self._until is not None:
            return start  # what was available is delivered
        if isinstance(limit, ReadMaxFiles):
            line = line[: limit.max_files]
        return {"commit": line[-1]} if line else start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.number("maxCommitsPerTrigger")
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = self._head()

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return self._head()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start == end:
            return []
        graph = self._place.open()
        if start["commit"] == "":
            view = graph.snapshot(commit=end["commit"])
            return list(self._whole(self._pinned_at(graph, view).ref, view.commit))
        before = self._pinned_or_none(graph, graph.snapshot(commit=start["commit"]))
        parts: list[Part] = []
        for commit in self._after(graph, start["commit"]):
            after = self._pinned_or_none(graph, graph.snapshot(commit=commit.id))
            parts += self._between(before, after, commit)
            before = after
            if commit.id == end["commit"]:
                return parts
        raise self._not_there(end["commit"])

    def _between(self, before: TableRef | None, after: TableRef | None, commit: Commit) -> Iterator[Part]:
        if after is None or before == after:
            return
        if before is None or self._place.tables().at(before).count() == 0:
            yield from self._whole(after, commit)
        else:
            yield Part(before, after, (), commit.id, commit.created_at)

    def _whole(self, ref: TableRef, commit: Commit) -> Iterator[Part]:
        for group in grouped(self._place.tables().at(ref).fragments()):
            yield Part(None, ref, group, commit.id, commit.created_at)

    def _head(self) -> Offset:
        return {"commit": self._place.open().snapshot(branch=self._options.text("branch")).commit.id}

    def _newest_first(self, graph: Graph) -> Iterator[Commit]:
        """The first-parent line of the branch. Older parts of it are read only when they are reached."""
        return commits(graph.snapshot(branch=self._options.text("branch")).manifest)

    def _after(self, graph: Graph, commit_id: str) -> list[Commit]:
        """The commits that came after one, oldest first.

        Raises:
            NotFoundError: the branch has no such commit.
        """
        found: list[Commit] = []
        for commit in self._newest_first(graph):
            if commit.id == commit_id:
                return found[::-1]
            found.append(commit)
        raise self._not_there(commit_id)

    def _not_there(self, commit_id: str) -> NotFoundError:
        branch = self._options.text("branch") or "main"
        return NotFoundError(
            f"commit {commit_id} is not in the history of branch '{branch}'",
            hint="the branch was deleted and made again: begin a new stream, with a new checkpoint",
        )

    def _pinned_at(self, graph: Graph, view: Snapshot) -> Pinned:
        """The type in a snapshot.

        Raises:
            InputError: it has other columns there.
        """
        found = pinned_at(self._place, view, graph.session.schemas.at(view), self._options)
        if dict(found.columns) != dict(self._columns):
            raise InputError(
                f"the columns of {self._options.type} are others at commit {view.commit.id}",
                hint="name those that stayed in 'columns', or begin a new stream after the change of the schema",
            )
        return found

    def _pinned_or_none(self, graph: Graph, view: Snapshot) -> TableRef | None:
        """The table of the type in a snapshot, or None when there was no such type yet."""
        catalog, name = graph.session.schemas.at(view).catalog, self._options.type.rpartition(":")[2]
        if name not in (catalog.nodes if self._kind is TypeKind.NODE else catalog.edges):
            return None
        return self._pinned_at(graph, view).ref

    # In the tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        tables = self._place.tables()
        types = {stored_name(name, self._kind): type_ for name, type_ in self._columns.items()}
        wanted = [stored_name(name, self._kind) for name in self._schema.names if name not in _SAID.names]
        if partition.begin is None:
            batches = tables.at(partition.end).read_fragments(
                partition.fragments, columns=names_of(wanted), batch_rows=BATCH_ROWS
            )
            for batch in batches:
                yield self._batch(Kind.INSERT, batch, partition)
            return
        columns = {name: types.get(name, ValueType(Scalar.STRING)) for name in names_of(list(types))}
        for part in changed(tables, partition.begin, partition.end, columns):
            for batch in part.rows.combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
                yield self._batch(part.kind, batch, partition)

    def _batch(self, kind: Kind, rows: pa.RecordBatch, part: Part) -> pa.RecordBatch:
        count = rows.num_rows
        said = {
            CHANGE: lambda: pa.repeat(pa.scalar(kind.value), count),
            COMMIT: lambda: pa.repeat(pa.scalar(part.commit), count),
            COMMITTED: lambda: pa.repeat(pa.scalar(part.committed, pa.timestamp("us", "UTC")), count),
        }
        columns = [
            said[name]() if name in said else rows.column(stored_name(name, self._kind)) for name in self._schema.names
        ]
        return for_spark(columns, batch_schema(self._schema))


class ChangesReader(DataSourceReader):
    """Reads the changes up to a commit, without a stream.

    Args:
        stream: what reads them.
        until: the last commit.
    """

    def __init__(self, stream: StreamReader, until: str) -> None:
        self._stream = stream
        self._until = until

    def partitions(self) -> Sequence[InputPartition]:
        return self._stream.partitions(self._stream.initialOffset(), {"commit": self._until})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Part):  # nothing to read is a partition of nothing
            yield from self._stream.read(partition)
