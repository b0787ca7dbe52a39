"""The changes of a branch as a stream: each commit of the branch once, oldest first.

For a merge commit, the stream has the changes since its first parent, and not the commits of the merged branch.

An offset of the stream is a commit id: the changes up to and including this commit are delivered. Spark stores the
offsets of a batch before it processes the batch. After a failure, it reads the same rows again, because commits never
change. So if the consumer of the stream (the sink) writes each batch exactly once, it gets every change exactly once.
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
from omnigraph.pipeline.source.changes import Kind, changed_rows, with_id
from omnigraph.pipeline.source.options import Options
from omnigraph.pipeline.source.pinned import GraphLocation, Pinned, pinned_at
from omnigraph.pipeline.source.reader import check_schema
from omnigraph.pipeline.source.types import batch_schema, for_spark, stored_name
from omnigraph.storage.table_ref import TableRef

Offset = dict[str, str]

CHANGE, COMMIT, COMMITTED = "_change", "_commit", "_committed"
SNAPSHOT, BEGINNING, LATEST = "snapshot", "beginning", "latest"
"""The start positions of a stream, other than a commit: all entities of the head, the first commit, or the head."""

_CHANGE_COLUMNS = spark.StructType(
    [
        spark.StructField(CHANGE, spark.StringType(), False),
        spark.StructField(COMMIT, spark.StringType(), False),
        spark.StructField(COMMITTED, spark.TimestampType(), False),
    ]
)


def stream_schema(pinned: Pinned) -> spark.StructType:
    """The columns of a stream: `_change`, `_commit` and `_committed`, then the columns of the entity.

    Raises:
        InputError: a property has the name of one of the first three columns.
    """
    taken = set(_CHANGE_COLUMNS.names) & set(pinned.columns)
    if taken:
        raise InputError(
            f"the property '{min(taken)}' has the name of a column that the stream adds",
            hint="list the other properties in the option 'columns'",
        )
    return spark.StructType([*_CHANGE_COLUMNS, *pinned.schema])


@dataclass
class ChangePartition(InputPartition):
    """The rows that one task reads.

    Attributes:
        begin: the table before the commit; None if all rows are new.
        end: the table after the commit.
        fragments: the fragments to read, if all rows are new.
        commit: the commit.
        committed: the time of the commit, in microseconds since 1970.
    """

    begin: TableRef | None
    end: TableRef
    fragments: tuple[int, ...]
    commit: str
    committed: int


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of a type on a branch.

    Args:
        options: the options.
        schema: the columns that Spark needs.
        pinned: the type, at the commit that was the head when the stream was created.
    """

    def __init__(self, options: Options, schema: spark.StructType, pinned: Pinned) -> None:
        check_schema(schema, stream_schema(pinned))
        self._options = options
        self._schema = schema
        self._location = GraphLocation.of(options)
        self._kind = pinned.kind
        self._columns: Mapping[str, ValueType] = pinned.columns
        self._until: Offset | None = None

    # Methods that run in the driver

    def initialOffset(self) -> Offset:  # noqa: N802 (the names are Spark's)
        start = self._options.text("startingCommit") or SNAPSHOT
        if start == SNAPSHOT:
            return {"commit": ""}
        if start == LATEST:
            return self._head()
        graph = self._location.open()
        if start == BEGINNING:
            *_, first = self._newest_first(graph)
            return {"commit": first.id}
        wanted = graph.snapshot(commit=start).commit.id
        self._commits_after(graph, wanted)
        return {"commit": wanted}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        last = self._head() if self._until is None else self._until
        if start["commit"] == "":
            return last
        line = [commit.id for commit in self._commits_after(self._location.open(), start["commit"])]
        if last["commit"] in line:
            line = line[: line.index(last["commit"]) + 1]
        elif self._until is not None:
            return start  # all changes up to `_until` are already delivered
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
        graph = self._location.open()
        if start["commit"] == "":
            view = graph.snapshot(commit=end["commit"])
            return list(self._all_rows(self._pinned_at(graph, view).ref, view.commit))
        before = self._pinned_or_none(graph, graph.snapshot(commit=start["commit"]))
        parts: list[ChangePartition] = []
        for commit in self._commits_after(graph, start["commit"]):
            after = self._pinned_or_none(graph, graph.snapshot(commit=commit.id))
            parts += self._between(before, after, commit)
            before = after
            if commit.id == end["commit"]:
                return parts
        raise self._missing_commit(end["commit"])

    def _between(self, before: TableRef | None, after: TableRef | None, commit: Commit) -> Iterator[ChangePartition]:
        if after is None or before == after:
            return
        if before is None or self._location.tables().at(before).count() == 0:
            yield from self._all_rows(after, commit)
        else:
            yield ChangePartition(before, after, (), commit.id, commit.created_at)

    def _all_rows(self, ref: TableRef, commit: Commit) -> Iterator[ChangePartition]:
        for group in grouped(self._location.tables().at(ref).fragments()):
            yield ChangePartition(None, ref, group, commit.id, commit.created_at)

    def _head(self) -> Offset:
        return {"commit": self._location.open().snapshot(branch=self._options.text("branch")).commit.id}

    def _newest_first(self, graph: Graph) -> Iterator[Commit]:
        """The commits of the branch along the first parents, newest first. Reads older history on demand."""
        return commits(graph.snapshot(branch=self._options.text("branch")).manifest)

    def _commits_after(self, graph: Graph, commit_id: str) -> list[Commit]:
        """The commits after a commit, oldest first.

        Raises:
            NotFoundError: the branch has no such commit.
        """
        found: list[Commit] = []
        for commit in self._newest_first(graph):
            if commit.id == commit_id:
                return found[::-1]
            found.append(commit)
        raise self._missing_commit(commit_id)

    def _missing_commit(self, commit_id: str) -> NotFoundError:
        branch = self._options.text("branch") or "main"
        return NotFoundError(
            f"commit {commit_id} is not in the history of branch '{branch}'",
            hint="if the branch was deleted and created again, start a new stream with a new checkpoint",
        )

    def _pinned_at(self, graph: Graph, view: Snapshot) -> Pinned:
        """The type in a snapshot.

        Raises:
            InputError: the columns of the type in this snapshot differ from those of the stream.
        """
        found = pinned_at(self._location, view, graph.session.schemas.at(view), self._options)
        if dict(found.columns) != dict(self._columns):
            raise InputError(
                f"the columns of {self._options.type} differ at commit {view.commit.id}",
                hint="list only unchanged columns in 'columns', or start a new stream after the schema change",
            )
        return found

    def _pinned_or_none(self, graph: Graph, view: Snapshot) -> TableRef | None:
        """The table of the type in a snapshot; None if the type did not exist yet."""
        catalog, name = graph.session.schemas.at(view).catalog, self._options.type.rpartition(":")[2]
        if name not in (catalog.nodes if self._kind is TypeKind.NODE else catalog.edges):
            return None
        return self._pinned_at(graph, view).ref

    # Methods that run in tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ChangePartition)
        tables = self._location.tables()
        types = {stored_name(name, self._kind): type_ for name, type_ in self._columns.items()}
        wanted = [stored_name(name, self._kind) for name in self._schema.names if name not in _CHANGE_COLUMNS.names]
        if partition.begin is None:
            batches = tables.at(partition.end).read_fragments(
                partition.fragments, columns=with_id(wanted), batch_rows=BATCH_ROWS
            )
            for batch in batches:
                yield self._batch(Kind.INSERT, batch, partition)
            return
        columns = {name: types.get(name, ValueType(Scalar.STRING)) for name in with_id(list(types))}
        for part in changed_rows(tables, partition.begin, partition.end, columns):
            for batch in part.rows.combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
                yield self._batch(part.kind, batch, partition)

    def _batch(self, kind: Kind, rows: pa.RecordBatch, part: ChangePartition) -> pa.RecordBatch:
        count = rows.num_rows
        values = {
            CHANGE: lambda: pa.repeat(pa.scalar(kind.value), count),
            COMMIT: lambda: pa.repeat(pa.scalar(part.commit), count),
            COMMITTED: lambda: pa.repeat(pa.scalar(part.committed, pa.timestamp("us", "UTC")), count),
        }
        columns = [
            values[name]() if name in values else rows.column(stored_name(name, self._kind))
            for name in self._schema.names
        ]
        return for_spark(columns, batch_schema(self._schema))


class ChangesReader(DataSourceReader):
    """Reads the changes up to a commit as a batch.

    Args:
        stream: reads the changes.
        until: the last commit.
    """

    def __init__(self, stream: StreamReader, until: str) -> None:
        self._stream = stream
        self._until = until

    def partitions(self) -> Sequence[InputPartition]:
        return self._stream.partitions(self._stream.initialOffset(), {"commit": self._until})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ChangePartition):  # if there are no changes, Spark passes an empty partition
            yield from self._stream.read(partition)
