"""The changes of a branch as a stream: each commit of the branch once, oldest first.

For a merge commit, the stream has the changes since its first parent, and not the commits of the merged branch.

An offset of the stream is a commit id: the changes up to and including this commit are delivered. It also has the id
of the type, so that the stream follows a renamed type, and does not continue with another type. Spark stores the
offsets of a batch before it processes the batch. After a failure, it reads the same rows again, because commits never
change. So if the consumer of the stream (the sink) writes each batch exactly once, it gets every change exactly once.

The columns of the stream are properties with fixed numbers. So the stream follows renamed properties, and it stops only
at a schema boundary of the change feed that affects its type and its columns.
"""

# See docs/decisions/0163-a-schema-change-is-a-boundary.md

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from omnigraph.changes.aligned_types import TypePair, TypeState, types_of
from omnigraph.changes.commit_page import PHYSICAL
from omnigraph.changes.hash_parts import changed_rows
from omnigraph.changes.row_images import OPS, ChangeOp
from omnigraph.changes.schema_boundary import is_boundary
from omnigraph.commit.lineage import commits
from omnigraph.commit.manifest import Commit, TablePin
from omnigraph.commit.snapshots import Snapshot
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, NotFoundError
from omnigraph.graph.graph import Graph
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.schema.type_key import type_key
from omnigraph.lang.types import ValueType
from omnigraph.pipeline.fragment_groups import BATCH_ROWS, grouped
from omnigraph.pipeline.source.options import Options
from omnigraph.pipeline.source.pinned import GraphLocation, Pinned
from omnigraph.pipeline.source.reader import check_schema
from omnigraph.pipeline.source.types import ENDS, batch_schema, for_spark, stored_name
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

Offset = dict[str, str]

CHANGE, COMMIT, COMMITTED = "_change", "_commit", "_committed"
SNAPSHOT, BEGINNING, LATEST = "snapshot", "beginning", "latest"
"""The start positions of a stream, other than a commit: all entities of the head, the first commit, or the head."""

ROWS_PER_TASK = 500_000
"""Approximate number of written rows of a commit that one task compares: the default of the option `rowsPerTask`."""

MOST_TASKS = 64
"""Maximum number of tasks per commit. Each task reads the ids of all changed rows of the commit."""

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


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """The columns of the stream in a version of the table.

    Attributes:
        ref: the version.
        names: the stored name of each column of the stream, in their order. A rename changes it.
    """

    ref: TableRef
    names: tuple[str, ...]


@dataclass
class ChangePartition(InputPartition):
    """The rows that one task reads.

    Attributes:
        begin: the columns before the commit; None if all rows are new.
        end: the columns after the commit.
        fragments: the fragments to read, if all rows are new.
        commit: the commit.
        committed: the time of the commit, in microseconds since 1970.
        part: the number of the part of the changes to read. The hash of its id assigns an entity to a part.
        parts: the number of parts.
    """

    begin: StoredColumns | None
    end: StoredColumns
    fragments: tuple[int, ...]
    commit: str
    committed: int
    part: int = 0
    parts: int = 1


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
        self._type = pinned.id
        self._columns: Mapping[str, ValueType] = pinned.columns
        properties = {name: type_ for name, type_ in pinned.columns.items() if name in pinned.numbers}
        pin = TablePin("", pinned.id, pinned.ref, 0)
        self._properties = TypeState(pinned.kind, options.type, pin, properties, pinned.numbers)
        self._rows_per_task = options.number("rowsPerTask") or ROWS_PER_TASK
        self._until: Offset | None = None

    # Methods that run in the driver

    def initialOffset(self) -> Offset:  # noqa: N802 (the names are Spark's)
        start = self._options.text("startingCommit") or SNAPSHOT
        if start == SNAPSHOT:
            return self._offset("")
        if start == LATEST:
            return self._head()
        graph = self._location.open()
        if start == BEGINNING:
            *_, first = self._newest_first(graph)
            return self._offset(first.id)
        wanted = graph.snapshot(commit=start).commit.id
        self._commits_after(graph, wanted)
        return self._offset(wanted)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        last = self._head() if self._until is None else self._until
        graph = self._location.open()
        if start["commit"] == "":
            self._check_type(graph, start)
            return last
        line = [commit.id for commit in self._commits_after(graph, start["commit"])]
        self._check_type(graph, start)
        if last["commit"] in line:
            line = line[: line.index(last["commit"]) + 1]
        elif self._until is not None:
            return start  # all changes up to `_until` are already delivered
        if isinstance(limit, ReadMaxFiles):
            line = line[: limit.max_files]
        return self._offset(line[-1]) if line else start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.number("maxCommitsPerTrigger")
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = self._head()

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return self._head()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start["commit"] == end["commit"]:
            return []
        graph = self._location.open()
        self._check_type(graph, start)
        if start["commit"] == "":
            view = graph.snapshot(commit=end["commit"])
            found = self._state_at(graph, view)
            if found is None:
                raise self._missing_type(view.commit)
            return list(self._all_rows(found, view.commit))
        before = self._state_at(graph, graph.snapshot(commit=start["commit"]))
        parts: list[ChangePartition] = []
        for commit in self._commits_after(graph, start["commit"]):
            after = self._state_at(graph, graph.snapshot(commit=commit.id))
            if before is None and is_boundary(None, after):
                raise self._added_type(commit)
            if after is None and is_boundary(before, None):
                raise self._missing_type(commit)
            parts += self._between(before, after, commit)
            before = after
            if commit.id == end["commit"]:
                return parts
        raise self._missing_commit(end["commit"])

    def _between(self, before: TypeState | None, after: TypeState | None, commit: Commit) -> Iterator[ChangePartition]:
        if before is None or after is None or before.pin.ref == after.pin.ref or commit.writer in PHYSICAL:
            return
        if before.pin.row_count == 0:
            yield from self._all_rows(after, commit)
        else:
            written = self._location.tables().at(after.pin.ref).count_written_since(before.pin.ref)
            parts = min(MOST_TASKS, max(1, -(-written // self._rows_per_task)))
            begin, end = self._stored(before), self._stored(after)
            for part in range(parts):
                yield ChangePartition(begin, end, (), commit.id, commit.created_at, part, parts)

    def _all_rows(self, state: TypeState, commit: Commit) -> Iterator[ChangePartition]:
        for group in grouped(self._location.tables().at(state.pin.ref).fragments()):
            yield ChangePartition(None, self._stored(state), group, commit.id, commit.created_at)

    def _stored(self, state: TypeState) -> StoredColumns:
        stored = {number: name for name, number in state.numbers.items()}
        numbers = self._properties.numbers
        names = (stored[numbers[c]] if c in numbers else stored_name(c, self._kind) for c in self._columns)
        return StoredColumns(state.pin.ref, tuple(names))

    def _head(self) -> Offset:
        return self._offset(self._view(self._location.open()).commit.id)

    def _view(self, graph: Graph) -> Snapshot:
        """The head of the branch."""
        return graph.snapshot(branch=self._options.text("branch"))

    def _offset(self, commit_id: str) -> Offset:
        return {"commit": commit_id, "type": str(self._type)}

    def _newest_first(self, graph: Graph) -> Iterator[Commit]:
        """The commits of the branch along the first parents, newest first. Reads older history on demand."""
        return commits(self._view(graph).manifest)

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

    def _missing_type(self, commit: Commit) -> InputError:
        return InputError(
            f"{self._options.type} does not exist at commit {commit.id}: it was dropped, or it is a newer type",
            hint="start a new stream with a new checkpoint",
        )

    def _added_type(self, commit: Commit) -> InputError:
        return InputError(
            f"commit {commit.id} adds {self._options.type} with its rows",
            hint="start a new stream with a new checkpoint: by default, it begins with all current entities",
        )

    def _check_type(self, graph: Graph, start: Offset) -> None:
        """Check that an offset belongs to the type of this stream.

        Raises:
            InputError: it belongs to another type: that type was renamed or dropped, and another type got its name.
        """
        stored, expected = start.get("type"), str(self._type)
        if stored == expected or (stored is None and start["commit"] == ""):
            return
        view = graph.snapshot(commit=start["commit"]) if start["commit"] else self._view(graph)
        if stored is None:  # an offset of an older release has no type: the type with this name at its commit counts
            pin = view.tables.get(type_key(self._kind, self._options.type.rpartition(":")[2]))
            stored = expected if pin is None else str(pin.id)
        if stored != expected:
            now = next((pin.key.rpartition(":")[2] for pin in view.tables.values() if str(pin.id) == stored), None)
            raise InputError(
                f"the checkpoint of the stream does not belong to {self._options.type}, but to "
                + ("a type that was dropped" if now is None else f"the type {now} of commit {view.commit.id}"),
                hint="use the current name of that type, or start a new stream with a new checkpoint",
            )

    def _state_at(self, graph: Graph, view: Snapshot) -> TypeState | None:
        """The type in a snapshot, where it may have another name; None if it does not exist there.

        Raises:
            InputError: the type has other columns, or columns of other types, in this snapshot than in the stream.
        """
        found = types_of(graph.session.graph_state(view.manifest)).get(self._type)
        selected = None if self._options.columns is None else set(self._properties.numbers.values())
        if found is not None and is_boundary(found, self._properties, selected):
            raise InputError(
                f"the columns of {self._options.type} differ at commit {view.commit.id}",
                hint="list only unchanged columns in 'columns', or start a new stream after the schema change",
            )
        return found

    # Methods that run in tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ChangePartition)
        tables = self._location.tables()
        end = dict(zip(self._columns, partition.end.names, strict=True))
        if partition.begin is None:
            wanted = [end[name] for name in self._schema.names if name in end]
            batches = tables.at(partition.end.ref).read_fragments(
                partition.fragments, columns=list(dict.fromkeys(["id", *wanted])), batch_rows=BATCH_ROWS
            )
            for batch in batches:
                yield self._batch(ChangeOp.INSERT, batch, end, partition)
            return
        begin = dict(zip(self._columns, partition.begin.names, strict=True))
        pair = TypePair(self._state(tables, partition.begin), self._state(tables, partition.end))
        for found in changed_rows(tables, pair, partition.part, partition.parts):
            for op in OPS:
                chosen = found.of(op)
                rows, stored = (chosen.before, begin) if op is ChangeOp.DELETE else (chosen.after, end)
                for batch in rows.combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
                    yield self._batch(op, batch, stored, partition)

    def _state(self, tables: TableStorage, stored: StoredColumns) -> TypeState:
        """The type before or after the commit, with the columns of the stream."""
        ends = tuple(name for name in stored.names if self._kind is TypeKind.EDGE and name in ENDS.values())
        named = zip(stored.names, self._columns, self._columns.values(), strict=True)
        properties = {name: (column, type_) for name, column, type_ in named if column in self._properties.numbers}
        types = {name: type_ for name, (_, type_) in properties.items()}
        numbers = {name: self._properties.numbers[column] for name, (column, _) in properties.items()}
        pin = TablePin("", self._type, stored.ref, tables.at(stored.ref).count())
        return TypeState(self._kind, "", pin, types, numbers, end_columns=ends)

    def _batch(
        self, kind: ChangeOp, rows: pa.RecordBatch, stored: Mapping[str, str], part: ChangePartition
    ) -> pa.RecordBatch:
        count = rows.num_rows
        values = {
            CHANGE: lambda: pa.repeat(pa.scalar(kind.value), count),
            COMMIT: lambda: pa.repeat(pa.scalar(part.commit), count),
            COMMITTED: lambda: pa.repeat(pa.scalar(part.committed, pa.timestamp("us", "UTC")), count),
        }
        columns = [values[name]() if name in values else rows.column(stored[name]) for name in self._schema.names]
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
