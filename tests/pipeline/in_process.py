"""What a load asks of Spark, done in this process: quick enough to try many inputs.

It is no Spark: tasks never fail, and nothing crosses to Java. That the real one does the same is tested with a few of
the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from omnigraph.pipeline.jobs import Watch
from omnigraph.pipeline.session import Session

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_KINDS = {"int": pa.int32(), "binary": pa.binary()}


class Frame:
    """Batches in partitions."""

    def __init__(self, partitions: list[list[pa.RecordBatch]], schema: pa.Schema) -> None:
        self.partitions = partitions
        self.schema = schema

    def mapInArrow(self, task: Task, columns: str) -> Frame:  # noqa: N802
        schema = pa.schema([(name, _KINDS[kind]) for name, kind in (each.split() for each in columns.split(", "))])
        shipped: Task = cloudpickle.loads(cloudpickle.dumps(task))  # type: ignore[no-untyped-call]
        done = [list(shipped(iter(batches))) for batches in self.partitions]
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

    def toArrow(self) -> pa.Table:  # noqa: N802
        return pa.Table.from_batches([batch for batches in self.partitions for batch in batches], self.schema)


class _Catalog:
    def tableExists(self, name: str) -> bool:  # noqa: N802
        return False


class _Spark:
    catalog = _Catalog()

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
    def job(self, what: str, watch: Watch | None = None) -> Iterator[Any]:
        (watch or Watch()).check()
        yield _Spark()
