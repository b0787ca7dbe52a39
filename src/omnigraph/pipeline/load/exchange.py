"""Tables in parts on Spark, and how parts come together whose rows have to be compared.

Spark moves blocks and knows nothing of what is in them: a table is an Arrow stream in one cell, so no type changes on
its way, and rows are never taken apart. What is done with the rows is done by the functions that do it in process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from omnigraph.write.digests import digests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BLOCK = pa.schema([pa.field("block", pa.large_binary())])
_ROUTED = pa.schema([pa.field("part", pa.int32()), pa.field("side", pa.int32()), pa.field("block", pa.large_binary())])
PART_ROWS = 1_000_000
"""About how many rows are compared in one task."""

_TASKS = 8
"""How many tasks there are at most for each that can run at once."""


class Piece(Protocol):
    """Rows that a task can read."""

    def tables(self) -> Iterator[pa.Table]: ...


def plain(schema: pa.Schema) -> pa.Schema:
    """The columns and their types, and nothing else: what a block is known by."""
    return pa.schema([(field.name, field.type) for field in schema])


def encoded(rows: pa.Table) -> bytes:
    schema = plain(rows.schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.table(rows.columns, schema=schema))
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decoded(block: Any) -> pa.Table:
    with pa.ipc.open_stream(block) as reader:
        return reader.read_all()


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows in blocks on Spark.

    Attributes:
        frame: the blocks.
        schema: the columns of each.
        rows: about how many rows there are.
    """

    frame: DataFrame | None
    schema: pa.Schema
    rows: int

    def mapped(self, change: Callable[[pa.Table], pa.Table]) -> Relation:
        """The same rows, each block changed by itself."""
        schema = plain(change(self.schema.empty_table()).schema)
        if self.frame is None:
            return Relation(None, schema, 0)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for rows in _blocks(batches):
                yield _block(change(rows))

        return Relation(self.frame.mapInArrow(task, _spark_schema(_BLOCK)), schema, self.rows)

    def first(self, order: str, most: int) -> Relation:
        """The rows of each block that come first, and how many it has; `first_of` makes one answer of them."""

        def chosen(rows: pa.Table) -> pa.Table:
            best = rows.sort_by(order).slice(0, most)
            places = np.arange(best.num_rows, dtype=np.int64)
            total = pa.array(np.where(places == 0, rows.num_rows, 0))
            return best.append_column(_TOTAL, total)

        return self.mapped(chosen)

    def counted(self) -> Relation:
        """How many rows each block has."""
        return self.mapped(lambda rows: pa.table({_TOTAL: pa.array([rows.num_rows], pa.int64())}))


_TOTAL = "__total"


def first_of(found: pa.Table, order: str, most: int) -> tuple[pa.Table, int]:
    """The rows that come first, and how many there are in all."""
    return found.drop_columns([_TOTAL]).sort_by(order).slice(0, most), total_of(found)


def total_of(found: pa.Table) -> int:
    """How many rows there are in all."""
    return int(found[_TOTAL].to_numpy().sum())


@dataclass(frozen=True, slots=True)
class Side:
    """Rows that are compared with others by the values of some columns."""

    relation: Relation
    by: Sequence[str]


class Exchange:
    """Brings rows together.

    Args:
        spark: the session.
        parallelism: how many tasks run at once.
        part_rows: about how many rows are compared in one task.
    """

    def __init__(self, spark: SparkSession, parallelism: int, part_rows: int = PART_ROWS) -> None:
        self._spark = spark
        self._parallelism = parallelism
        self._part_rows = part_rows

    def read(self, pieces: Sequence[Piece], schema: pa.Schema, rows: int) -> Relation:
        """The rows of pieces, each read by a task."""
        schema = plain(schema)
        if not pieces:
            return Relation(None, schema, 0)
        held = list(pieces)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for table in held[number].tables():
                        if table.num_rows:
                            yield _block(table)

        tasks = min(len(held), self._parallelism * _TASKS)
        numbers = self._spark.range(0, len(held), 1, tasks)
        return Relation(numbers.mapInArrow(task, _spark_schema(_BLOCK)), schema, rows)

    def gather(self, relations: Sequence[Relation]) -> list[pa.Table]:
        """The rows of some relations, here and all at once: for what is known to be little."""
        frames = [(i, relation.frame) for i, relation in enumerate(relations) if relation.frame is not None]
        found = [[relation.schema.empty_table()] for relation in relations]
        if frames:
            marked = [frame.mapInArrow(_router(i, (), 1), _spark_schema(_ROUTED)) for i, frame in frames]
            answers = reduce(lambda all_, one: all_.unionAll(one), marked).toArrow()
            for side, block in zip(answers["side"].to_pylist(), answers["block"], strict=True):
                found[side].append(decoded(block.as_buffer()))
        return [pa.concat_tables(tables) for tables in found]

    def together(self, sides: Sequence[Side], compare: Callable[..., pa.Table]) -> Relation:
        """What a comparison says of rows, where those with equal values are compared in one task.

        Args:
            sides: the rows.
            compare: is given one table for each side.
        """
        schemas = [side.relation.schema for side in sides]
        schema = plain(compare(*(schema.empty_table() for schema in schemas)).schema)
        known = [(number, side) for number, side in enumerate(sides) if side.relation.frame is not None]
        if not known:
            return Relation(None, schema, 0)
        rows = sum(side.relation.rows for side in sides)
        parts = max(1, -(-rows // self._part_rows))
        if parts > 1:
            parts = max(parts, self._parallelism)
        routed = None
        for number, side in known:
            frame = side.relation.frame
            assert frame is not None
            part = frame.mapInArrow(_router(number, tuple(side.by), parts), _spark_schema(_ROUTED))
            routed = part if routed is None else routed.unionAll(part)
        assert routed is not None

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            found: list[list[pa.Table]] = [[one.empty_table()] for one in schemas]
            for batch in batches:
                for side, block in zip(batch.column("side").to_pylist(), batch.column("block"), strict=True):
                    found[side].append(decoded(block.as_buffer()))
            made = compare(*(pa.concat_tables(tables) for tables in found))
            if made.num_rows:
                yield _block(made)

        frame = routed.repartitionById(parts, "part").mapInArrow(task, _spark_schema(_BLOCK))
        return Relation(frame, schema, rows)


def _router(side: int, by: tuple[str, ...], parts: int) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Cuts blocks so that equal values go the same way, whatever block they were in."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in _blocks(batches):
            if parts == 1:
                yield _routed(0, side, rows)
                continue
            place = (digests([rows[name] for name in by]) % np.uint64(parts)).astype(np.int64)
            order = np.argsort(place, kind="stable")
            bounds = np.searchsorted(place[order], np.arange(parts + 1))
            ordered = rows.take(pa.array(order))
            for part in range(parts):
                if bounds[part] < bounds[part + 1]:
                    yield _routed(part, side, ordered.slice(bounds[part], bounds[part + 1] - bounds[part]))

    return task


def _blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    for batch in batches:
        for block in batch.column("block"):
            yield decoded(block.as_buffer())


def _block(rows: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([encoded(rows)], pa.binary())], names=["block"])


def _routed(part: int, side: int, rows: pa.Table) -> pa.RecordBatch:
    cells = [pa.array([part], pa.int32()), pa.array([side], pa.int32()), pa.array([encoded(rows)], pa.binary())]
    return pa.RecordBatch.from_arrays(cells, names=_ROUTED.names)


def _spark_schema(schema: pa.Schema) -> str:
    kinds = {pa.int32(): "int", pa.large_binary(): "binary"}
    return ", ".join(f"{field.name} {kinds[field.type]}" for field in schema)
