"""Tables in parts on Spark, and how parts come together whose rows have to be compared.

Spark moves blocks and knows nothing of what is in them: a table is an Arrow stream in one cell, so no type changes on
its way, and rows are never taken apart. What is done with the rows is done by the functions that do it in process.
"""

# See docs/decisions/0090-spark-moves-blocks.md

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from omnigraph.engine.engines import PART_ROWS
from omnigraph.write.rows.hashing import digests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROUTED = "part int, side int, block binary"

_FULLER = 2
"""How many times as many rows may be compared in one task where some of them are cut already."""

TASKS = 8
"""How many tasks there are at most for each that can run at once: each costs a tenth of a second by itself."""

_EVEN = 2
"""The same for tasks that have as much to do as each other: the parts of what is cut are alike."""


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


def _no_blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    yield from ()


Read = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.Table]]
"""What a task makes of what Spark hands it."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Rows that lie in parts where every task reaches them, those with equal values in the same one.

    Attributes:
        by: the columns whose values that are.
        parts: how many parts there are.
        read: the rows of a part.
    """

    by: tuple[str, ...]
    parts: int
    read: Callable[[int], Iterator[pa.Table]]


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows in blocks on Spark.

    Attributes:
        frame: what tasks are handed.
        schema: the columns of each block.
        rows: about how many rows there are.
        read: how a task makes blocks of what it is handed. All that is done with a block on its own is done there:
            every step of Spark's that calls Python would move the rows to Java and back.
        cut: the same rows once more, if they are cut.
    """

    frame: DataFrame | None
    schema: pa.Schema
    rows: int
    read: Read = _no_blocks
    cut: Cut | None = None

    def mapped(self, change: Callable[[pa.Table], pa.Table]) -> Relation:
        """The same rows, each block changed by itself."""
        schema = plain(change(self.schema.empty_table()).schema)
        if self.frame is None:
            return Relation(None, schema, 0)
        before = self.read
        return Relation(self.frame, schema, self.rows, lambda batches: (change(rows) for rows in before(batches)))

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

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from (table for table in held[number].tables() if table.num_rows)

        return Relation(self._numbers(len(held), TASKS), schema, rows, task)

    def lying(self, cut: Cut, schema: pa.Schema, rows: int) -> Relation:
        """Rows that are cut already."""

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
            for batch in batches:
                for part in batch.column(0).to_pylist():
                    yield from (table for table in cut.read(part) if table.num_rows)

        return Relation(self._numbers(cut.parts), plain(schema), rows, task, cut)

    def _numbers(self, count: int, each: int = _EVEN) -> DataFrame:
        """So many numbers, in tasks that are not too many."""
        return self._spark.range(0, count, 1, min(count, self._parallelism * each))

    def gather(self, relations: Sequence[Relation]) -> list[pa.Table]:
        """The rows of some relations, here and all at once: for what is known to be little."""
        found = [[relation.schema.empty_table()] for relation in relations]
        marked = [
            relation.frame.mapInArrow(_router(i, relation.read, (), 1), _ROUTED)
            for i, relation in enumerate(relations)
            if relation.frame is not None
        ]
        if marked:
            answers = reduce(lambda all_, one: all_.unionAll(one), marked).toArrow()
            for side, block in zip(answers["side"].to_pylist(), answers["block"], strict=True):
                found[side].append(decoded(block.as_buffer()))
        return [pa.concat_tables(tables) for tables in found]

    def together(self, sides: Sequence[Side], compare: Callable[..., pa.Table], tasks: int | None = None) -> Relation:
        """What a comparison says of rows, where those with equal values are compared in one task.

        Args:
            sides: the rows.
            compare: is given one table for each side.
            tasks: how many tasks there are; by default that follows from the number of rows.
        """
        schemas = [side.relation.schema for side in sides]
        schema = plain(compare(*(schema.empty_table() for schema in schemas)).schema)
        known = [(number, side) for number, side in enumerate(sides) if side.relation.frame is not None]
        if not known:
            return Relation(None, schema, 0)
        rows = sum(side.relation.rows for side in sides)
        parts = self._parts(sides, rows) if tasks is None else max(1, tasks)
        here = {number: cut.read for number, side in known if (cut := _lying(side, parts)) is not None}
        moved = [
            side.relation.frame.mapInArrow(_router(number, side.relation.read, tuple(side.by), parts), _ROUTED)
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
                        found[side].append(decoded(block.as_buffer()))
            yield from compared(part, found)

        def task_here(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
            for batch in batches:
                for part in batch.column(0).to_pylist():
                    yield from compared(part, [[] for _ in schemas])

        if not moved:
            return Relation(self._numbers(parts), schema, rows, task_here)
        if here:
            # A part that nothing is moved to is compared as well, and has to be told which one it is.
            moved.append(self._numbers(parts).mapInArrow(_told, _ROUTED))
        routed = reduce(lambda all_, one: all_.unionAll(one), moved)
        return Relation(routed.repartitionById(parts, "part"), schema, rows, task)

    def _parts(self, sides: Sequence[Side], rows: int) -> int:
        """How many tasks compare rows: as many as parts that some lie in, unless too many others are moved there."""
        parts = max(1, -(-rows // self._part_rows))
        parts = parts if parts == 1 else max(parts, self._parallelism)
        cuts = [(side.relation.cut, side) for side in sides if side.relation.frame is not None]
        lying = [cut.parts for cut, side in cuts if cut is not None and cut.by == tuple(side.by)]
        if not lying or (len(lying) < len(cuts) and parts > max(lying) * _FULLER):
            return parts
        return max(lying)


def _lying(side: Side, parts: int) -> Cut | None:
    """The rows of a side, if they are cut as they are compared."""
    cut = side.relation.cut
    return cut if cut is not None and (cut.by, cut.parts) == (tuple(side.by), parts) else None


def _told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Says to each part which one it is."""
    for batch in batches:
        for part in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_arrays(
                [pa.array([part], pa.int32()), pa.array([-1], pa.int32()), pa.array([b""], pa.binary())],
                names=["part", "side", "block"],
            )


def _router(side: int, read: Read, by: tuple[str, ...], parts: int) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Cuts blocks so that equal values go the same way, whatever block they were in."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in read(batches):
            if parts == 1:
                yield _routed(0, side, rows)
                continue
            for part, chosen in enumerate(cut(rows, by, parts)):
                if chosen.num_rows:
                    yield _routed(part, side, chosen)

    return task


def cut(rows: pa.Table, by: Sequence[str], parts: int) -> Iterator[pa.Table]:
    """Rows in so many parts: those with equal values are in the same one, and that has the same number everywhere."""
    small = np.uint16 if parts <= 1 << 16 else np.int64  # which is quicker to sort
    place = (digests([rows[name] for name in by]) % np.uint64(parts)).astype(small)
    order = np.argsort(place, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=parts))])
    ordered = rows.take(pa.array(order))
    for low, high in pairwise(bounds.tolist()):
        yield ordered.slice(low, high - low)


def _routed(part: int, side: int, rows: pa.Table) -> pa.RecordBatch:
    cells = [pa.array([part], pa.int32()), pa.array([side], pa.int32()), pa.array([encoded(rows)], pa.binary())]
    return pa.RecordBatch.from_arrays(cells, names=["part", "side", "block"])
