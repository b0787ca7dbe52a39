"""A replacement of Spark in this process, quick enough to try many inputs.

Tasks never fail, and nothing goes through Java. Other tests run a few of the inputs on real Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import Row

from omnigraph.pipeline.frames import NAME
from omnigraph.pipeline.source.source import OmnigraphSource
from omnigraph.pipeline.source.types import batch_schema
from omnigraph.pipeline.spark.jobs import JobMonitor
from omnigraph.pipeline.spark.session import Session

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_KINDS = {"int": pa.int32(), "binary": pa.binary(), "string": pa.string()}


class Frame:
    """Batches in partitions."""

    def __init__(self, partitions: list[list[pa.RecordBatch]], schema: pa.Schema) -> None:
        self.partitions = partitions
        self.schema = schema

    def mapInArrow(self, task: Task, columns: str) -> Frame:  # noqa: N802
        schema = pa.schema([(name, _KINDS[kind]) for name, kind in (each.split() for each in columns.split(", "))])
        shipped: Task = cloudpickle.loads(cloudpickle.dumps(task))  # type: ignore[no-untyped-call]
        done = []
        for number, batches in enumerate(self.partitions):
            with _task(number):
                done.append(list(shipped(iter(batches))))
        for batches in done:
            for batch in batches:
                assert batch.schema == schema
        return Frame(done, schema)

    def unionAll(self, other: Frame) -> Frame:  # noqa: N802
        return Frame([*self.partitions, *other.partitions], self.schema)

    def repartitionById(self, count: int, column: str) -> Frame:  # noqa: N802
        partitions: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
        for batches in self.partitions:
            for batch in batches:
                place = batch.column(column).to_numpy()
                for part in np.unique(place):
                    partitions[part].append(batch.filter(pa.array(place == part)))
        return Frame(partitions, self.schema)

    def coalesce(self, count: int) -> Frame:
        assert count == 1
        return Frame([[batch for batches in self.partitions for batch in batches]], self.schema)

    def repartitionByRange(self, count: int, column: str) -> Frame:  # noqa: N802
        rows = self.toArrow().sort_by(column)
        ends = np.linspace(0, rows.num_rows, count + 1).astype(int)
        cut = [rows.slice(low, high - low).to_batches() for low, high in pairwise(ends.tolist())]
        return Frame([batches[::-1] for batches in cut], self.schema)  # unordered within a partition

    def sortWithinPartitions(self, column: str) -> Frame:  # noqa: N802
        whole = [pa.Table.from_batches(batches, self.schema) for batches in self.partitions]
        return Frame([rows.sort_by(column).to_batches() for rows in whole], self.schema)

    def collect(self) -> list[Row]:
        return [Row(**row) for row in self.toArrow().to_pylist()]

    def toArrow(self) -> pa.Table:  # noqa: N802
        return pa.Table.from_batches([batch for batches in self.partitions for batch in batches], self.schema)


@contextmanager
def _task(number: int) -> Iterator[None]:
    """The context of a task."""
    context = TaskContext()
    context._partitionId = number
    TaskContext._taskContext = context
    try:
        yield
    finally:
        TaskContext._taskContext = None


class _Read:
    """Reads types of a graph."""

    def format(self, name: str) -> _Read:
        assert name == NAME
        return self

    def options(self, **said: str) -> _Read:
        self._said = said
        return self

    def load(self) -> Frame:
        source = OmnigraphSource(self._said)
        columns = source.schema()
        reader = source.reader(columns)
        parts = [list(reader.read(part)) for part in reader.partitions()]
        return Frame(parts, batch_schema(columns))


class _Catalog:
    def tableExists(self, name: str) -> bool:  # noqa: N802
        return False


class _Spark:
    catalog = _Catalog()

    @property
    def read(self) -> _Read:
        return _Read()

    def range(self, start: int, end: int, step: int, partitions: int) -> Frame:
        schema = pa.schema([("id", pa.int64())])
        each = np.array_split(np.arange(start, end, step), partitions)
        return Frame([[pa.record_batch([pa.array(numbers)], schema)] for numbers in each], schema)


class InProcess(Session):
    """A session without Spark."""

    @property
    def spark(self) -> Any:
        return _Spark()

    @property
    def work(self) -> Any:
        return _Spark()

    @property
    def parallelism(self) -> int:
        return 3

    @contextmanager
    def job(self, what: str, monitor: JobMonitor | None = None) -> Iterator[Any]:
        (monitor or JobMonitor()).check()
        yield _Spark()
