"""Runs a function for each item in tasks on Spark, and defines the context that all jobs of an operation share."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar, cast

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.engine.engines import SparkOptions
from omnigraph.pipeline.spark.jobs import JobMonitor
from omnigraph.pipeline.spark.session import Session
from omnigraph.pipeline.spark.shuffle import Shuffle
from omnigraph.pipeline.spark.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_NUMBER, _DONE = "number", "done"


@dataclass(frozen=True, slots=True)
class SparkWork:
    """The context of one operation on Spark, such as a load.

    Attributes:
        session: the Spark session.
        monitor: reports progress, and stops the work.
        options: the sizes of tasks.
        staging: the staging directory of the operation.
    """

    session: Session
    monitor: JobMonitor
    options: SparkOptions
    staging: Staging

    @property
    def shuffle(self) -> Shuffle:
        """A shuffle with the task sizes of this operation."""
        return Shuffle(self.session.work, self.session.parallelism, self.options.part_rows)

    def job(self, what: str) -> AbstractContextManager[SparkSession]:
        """Run the code of a `with` block as a job on Spark. Progress and logs show the name of the job."""
        return self.session.job(what, self.monitor)

    def map(self, what: str, items: Sequence[T], do: Callable[[T], R], *, tasks: int | None = None) -> list[R]:
        """Call a function for each item, in tasks. The results have the order of the items.

        Args:
            what: the name of the job, for progress and logs.
            items: the items. They are sent to every task, so they have to be small.
            do: the function.
            tasks: the number of tasks; by default one per item.

        Raises:
            SparkError: a task failed repeatedly.
            CancelledError: the work was cancelled.
        """
        listed = list(items)
        if not listed:
            return []

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    done = pickle.dumps(do(listed[number]))
                    cells = [pa.array([number], pa.int32()), pa.array([done], pa.binary())]
                    yield pa.RecordBatch.from_arrays(cells, names=[_NUMBER, _DONE])

        with self.job(what) as spark:
            count = min(tasks or len(listed), len(listed))
            frame = spark.range(0, len(listed), 1, count).mapInArrow(task, f"{_NUMBER} int, {_DONE} binary")
            answers = frame.toArrow().sort_by(_NUMBER)
        return [cast(R, pickle.loads(done)) for done in answers[_DONE].to_pylist()]
