"""Engines: where work runs, why it was chosen, and the settings of Spark."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from omnigraph.amounts import parse_amount
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.upkeep.optimize import SEGMENT_ROWS
from omnigraph.write.input.splits import SPLIT_BYTES

PART_ROWS = 1_000_000
"""The approximate number of rows that one Spark task compares."""


class Engine(StrEnum):
    """The execution engine of a request."""

    AUTO = "auto"
    """Chosen by the size of the work."""
    LOCAL = "local"
    """In this process."""
    SPARK = "spark"
    """On Spark."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine that was chosen, and the reason.

    Attributes:
        engine: `local` or `spark`.
        why: the reason, for users.
        spark_missing: whether the size calls for Spark, but Spark is not available.
    """

    engine: Engine
    why: str
    spark_missing: bool = False

    def __str__(self) -> str:
        return f"{'on Spark' if self.engine is Engine.SPARK else 'in this process'}: {self.why}"


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a Spark job.

    Attributes:
        job: the name of the job.
        stages: the number of stages that are known so far. It grows while Spark plans.
        stages_done: the number of finished stages.
        tasks: the number of tasks of all known stages.
        tasks_done: the number of finished tasks.
        tasks_failed: the number of failed and retried attempts.
    """

    job: str
    stages: int
    stages_done: int
    tasks: int
    tasks_done: int
    tasks_failed: int = 0


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Settings of Spark jobs. The local engine ignores them.

    Attributes:
        session: a Spark session of `omnigraph.pipeline`; by default the session of this process.
        master: the Spark master; by default from the environment, else all cores of this machine.
        jobs: a callback for the progress. An error that it raises stops the work.
        seconds: the time limit.
        split_bytes: the approximate size of the input that one task reads.
        part_rows: the approximate number of rows that one task compares.
        tasks: the number of tasks that compare the rows of a merge; by default computed from the number of rows.
        merge_threshold: if the changed rows of a type have at least this size, Spark tasks write them. Bytes, or a text
            such as `"512 MiB"`; by default `OMNIGRAPH_MERGE_THRESHOLD`, or 1 GiB.
        segment_rows: the approximate number of rows that one task indexes.

    Raises:
        InputError: the threshold is not a valid size.
    """

    session: object | None = None
    master: str | None = None
    jobs: Callable[[JobProgress], None] | None = None
    seconds: float | None = None
    split_bytes: int = SPLIT_BYTES
    part_rows: int = PART_ROWS
    tasks: int | None = None
    merge_threshold: int | str | None = None
    segment_rows: int = SEGMENT_ROWS

    def __post_init__(self) -> None:
        if self.merge_threshold is not None:
            parse_amount("merge_threshold", str(self.merge_threshold))


def parse_engine(name: Engine | str) -> Engine:
    """Parse the name of an engine.

    Raises:
        InputError: there is no such engine.
    """
    try:
        return Engine(name)
    except ValueError:
        raise InputError(f"'{name}' is not an engine", hint="use auto, local or spark") from None
