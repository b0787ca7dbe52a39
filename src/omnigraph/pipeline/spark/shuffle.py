"""Relations on Spark, and shuffles that bring rows with equal values together.

A relation is a set of rows on Spark. Spark moves rows in blocks: a block is a table that is encoded as an Arrow stream
in one cell of a DataFrame. So values keep their types, and Spark never splits a block into rows. Tasks process the rows
of blocks with the same functions as the local engine.
"""

# See docs/decisions/0090-spark-moves-blocks.md

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.engine.engines import PART_ROWS
from omnigraph.write.rows.hashing import digests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BLOCK_COLUMNS = "part int, side int, block binary"

_MAX_OVERFILL = 2
"""Existing hash partitions are reused if a task compares at most this many times the usual number of rows."""

TASKS_PER_SLOT = 8
"""Maximum number of tasks per parallel slot. It is limited because starting a task takes about 0.1 seconds."""

_EVEN_TASKS_PER_SLOT = 2
"""Maximum number of tasks per slot for tasks of equal size, such as hash partitions."""


class TaskInput(Protocol):
    """Input that a task can read."""

    def tables(self) -> Iterator[pa.Table]: ...


def block_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a block: the given schema without metadata, and with all columns nullable."""
    return pa.schema([(field.name, field.type) for field in schema])


def encode(rows: pa.Table) -> bytes:
    """Encode rows as a block."""
    schema = block_schema(rows.schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.table(rows.columns, schema=schema))
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode(block: Any) -> pa.Table:
    """Decode the rows of a block."""
    with pa.ipc.open_stream(block) as reader:
        return reader.read_all()


def _no_blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    yield from ()


Read = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.Table]]
"""Converts the batches that Spark passes to a task to tables."""


@dataclass(frozen=True, slots=True)
class HashPartitions:
    """Staged rows in hash partitions that all tasks can read.

    Attributes:
        by: the columns that are hashed.
        parts: the number of partitions.
        read: returns the rows of a partition.
    """

    by: tuple[str, ...]
    parts: int
    read: Callable[[int], Iterator[pa.Table]]


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows on Spark, as blocks.

    Attributes:
        frame: the DataFrame whose partitions the tasks receive.
        schema: the columns of each block.
        rows: the approximate number of rows.
        read: converts the input of a task to tables, and applies the functions of all `map` calls. If each function
            were a separate step of Spark, it would copy the rows to Java and back.
        partitions: the same rows in staged hash partitions, if there are any.
    """

    frame: DataFrame | None
    schema: pa.Schema
    rows: int
    read: Read = _no_blocks
    partitions: HashPartitions | None = None

    def map(self, change: Callable[[pa.Table], pa.Table]) -> Relation:
        """Apply a function to each block."""
        schema = block_schema(change(self.schema.empty_table()).schema)
        if self.frame is None:
            return Relation(None, schema, 0)
        before = self.read
        return Relation(self.frame, schema, self.rows, lambda batches: (change(rows) for rows in before(batches)))

    def first(self, order: str, most: int) -> Relation:
        """The first `most` rows of each block in the order of a column, and its row count. See `combine_first`."""

        def chosen(rows: pa.Table) -> pa.Table:
            best = rows.sort_by(order).slice(0, most)
            positions = np.arange(best.num_rows, dtype=np.int64)
            total = pa.array(np.where(positions == 0, rows.num_rows, 0))
            return best.append_column(_TOTAL, total)

        return self.map(chosen)

    def block_counts(self) -> Relation:
        """The row count of each block."""
        return self.map(lambda rows: pa.table({_TOTAL: pa.array([rows.num_rows], pa.int64())}))


_TOTAL = "__total"


def combine_first(found: pa.Table, order: str, most: int) -> tuple[pa.Table, int]:
    """Combine the result of `Relation.first`: the first rows, and the total row count."""
    return found.drop_columns([_TOTAL]).sort_by(order).slice(0, most), total_rows(found)


def total_rows(found: pa.Table) -> int:
    """The total row count of `Relation.first` or `Relation.block_counts`."""
    return int(found[_TOTAL].to_numpy().sum())


@dataclass(frozen=True, slots=True)
class Side:
    """An input of `Shuffle.cogroup`: a relation, and the columns to partition it by."""

    relation: Relation
    by: Sequence[str]


class Shuffle:
    """Shuffles rows between tasks.

    Args:
        spark: the session.
        parallelism: the number of tasks that run at once.
        part_rows: the approximate number of rows per task.
    """

    def __init__(self, spark: SparkSession, parallelism: int, part_rows: int = PART_ROWS) -> None:
        self._spark = spark
        self._parallelism = parallelism
        self._part_rows = part_rows

    def read(self, inputs: Sequence[TaskInput], schema: pa.Schema, rows: int) -> Relation:
        """A relation whose rows are read from `inputs` by tasks."""
        schema = block_schema(schema)
        if not inputs:
            return Relation(None, schema, 0)
        held = list(inputs)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from (table for table in held[number].tables() if table.num_rows)

        return Relation(self._numbers(len(held), TASKS_PER_SLOT), schema, rows, task)

    def from_partitions(self, partitions: HashPartitions, schema: pa.Schema, rows: int) -> Relation:
        """A relation of rows that are already staged in hash partitions."""

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
            for batch in batches:
                for part in batch.column(0).to_pylist():
                    yield from (table for table in partitions.read(part) if table.num_rows)

        return Relation(self._numbers(partitions.parts), block_schema(schema), rows, task, partitions)

    def _numbers(self, count: int, each: int = _EVEN_TASKS_PER_SLOT) -> DataFrame:
        """A DataFrame with the numbers from 0 to `count` - 1, with up to `each` partitions per parallel slot."""
        return self._spark.range(0, count, 1, min(count, self._parallelism * each))

    def collect(self, relations: Sequence[Relation]) -> list[pa.Table]:
        """Collect the rows of several relations to the driver, in one job. For small relations only."""
        found = [[relation.schema.empty_table()] for relation in relations]
        marked = [
            relation.frame.mapInArrow(_split_blocks(i, relation.read, (), 1), _BLOCK_COLUMNS)
            for i, relation in enumerate(relations)
            if relation.frame is not None
        ]
        if marked:
            answers = reduce(lambda all_, one: all_.unionAll(one), marked).toArrow()
            for side, block in zip(answers["side"].to_pylist(), answers["block"], strict=True):
                found[side].append(decode(block.as_buffer()))
        return [pa.concat_tables(tables) for tables in found]

    def cogroup(self, sides: Sequence[Side], compare: Callable[..., pa.Table], tasks: int | None = None) -> Relation:
        """Partition several relations by the hash of their columns, and call a function for each partition, in a task.

        Args:
            sides: the relations, and their columns. Rows with equal values are in the same partition.
            compare: receives one table for each side, with the rows of the partition.
            tasks: the number of tasks; by default chosen from the number of rows.
        """
        schemas = [side.relation.schema for side in sides]
        schema = block_schema(compare(*(schema.empty_table() for schema in schemas)).schema)
        known = [(number, side) for number, side in enumerate(sides) if side.relation.frame is not None]
        if not known:
            return Relation(None, schema, 0)
        rows = sum(side.relation.rows for side in sides)
        parts = self._partition_count(sides, rows) if tasks is None else max(1, tasks)
        here = {
            number: staged.read for number, side in known if (staged := _matching_partitions(side, parts)) is not None
        }
        moved = [
            side.relation.frame.mapInArrow(
                _split_blocks(number, side.relation.read, tuple(side.by), parts), _BLOCK_COLUMNS
            )
            for number, side in known
            if number not in here and side.relation.frame is not None
        ]

        def compared(part: int, found: list[list[pa.Table]]) -> Iterator[pa.Table]:
            for number, read in here.items():
                found[number] += read(part)
            made = compare(
                *(pa.concat_tables([one.empty_table(), *of]) for one, of in zip(schemas, found, strict=True))
            )
            if made.num_rows:
                yield made

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
            found: list[list[pa.Table]] = [[] for _ in schemas]
            part = 0
            for batch in batches:
                part = batch.column("part")[0].as_py()
                for side, block in zip(batch.column("side").to_pylist(), batch.column("block"), strict=True):
                    if side >= 0:
                        found[side].append(decode(block.as_buffer()))
            yield from compared(part, found)

        def task_here(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
            for batch in batches:
                for part in batch.column(0).to_pylist():
                    yield from compared(part, [[] for _ in schemas])

        if not moved:
            return Relation(self._numbers(parts), schema, rows, task_here)
        if here:
            # A task must run for every partition, even without rows: so each gets an empty block with its number.
            moved.append(self._numbers(parts).mapInArrow(_partition_markers, _BLOCK_COLUMNS))
        routed = reduce(lambda all_, one: all_.unionAll(one), moved)
        return Relation(routed.repartitionById(parts, "part"), schema, rows, task)

    def _partition_count(self, sides: Sequence[Side], rows: int) -> int:
        """The number of tasks.

        If inputs are already hash-partitioned, it is their number of partitions, unless the inputs that still have to
        be partitioned have too many rows for it.
        """
        parts = max(1, -(-rows // self._part_rows))
        parts = parts if parts == 1 else max(parts, self._parallelism)
        staged = [(side.relation.partitions, side) for side in sides if side.relation.frame is not None]
        existing = [found.parts for found, side in staged if found is not None and found.by == tuple(side.by)]
        if not existing or (len(existing) < len(staged) and parts > max(existing) * _MAX_OVERFILL):
            return parts
        return max(existing)


def _matching_partitions(side: Side, parts: int) -> HashPartitions | None:
    """The staged hash partitions of a side; None if their columns or their number differ."""
    found = side.relation.partitions
    return found if found is not None and (found.by, found.parts) == (tuple(side.by), parts) else None


def _partition_markers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield an empty block for each partition, with the number of the partition."""
    for batch in batches:
        for part in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_arrays(
                [pa.array([part], pa.int32()), pa.array([-1], pa.int32()), pa.array([b""], pa.binary())],
                names=["part", "side", "block"],
            )


def _split_blocks(side: int, read: Read, by: tuple[str, ...], parts: int) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Split blocks by hash, so that rows with equal values go to the same partition."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in read(batches):
            if parts == 1:
                yield _block(0, side, rows)
                continue
            for part, chosen in enumerate(hash_partition(rows, by, parts)):
                if chosen.num_rows:
                    yield _block(part, side, chosen)

    return task


def hash_partition(rows: pa.Table, by: Sequence[str], parts: int) -> Iterator[pa.Table]:
    """Hash-partition rows. Equal values get the same partition number in every task."""
    small = np.uint16 if parts <= 1 << 16 else np.int64  # a small integer type is faster to sort
    partition = (digests([rows[name] for name in by]) % np.uint64(parts)).astype(small)
    order = np.argsort(partition, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(partition, minlength=parts))])
    ordered = rows.take(pa.array(order))
    for low, high in pairwise(bounds.tolist()):
        yield ordered.slice(low, high - low)


def _block(part: int, side: int, rows: pa.Table) -> pa.RecordBatch:
    cells = [pa.array([part], pa.int32()), pa.array([side], pa.int32()), pa.array([encode(rows)], pa.binary())]
    return pa.RecordBatch.from_arrays(cells, names=["part", "side", "block"])
