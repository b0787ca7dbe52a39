"""Engines: the names of the places where work runs, the reason of a choice, and the settings of Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.amounts import parse_amount
from omnigraph.errors import InputError
from omnigraph.upkeep.optimize import SEGMENT_ROWS
from omnigraph.write.input.splits import SPLIT_BYTES

PART_ROWS = 1_000_000
"""The approximate number of rows that one Spark task compares."""


class Engine(StrEnum):
    """Where work runs."""

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
        why: the reason, as shown to users.
        amiss: whether Spark would be the right choice but is not available.
    """

    engine: Engine
    why: str
    amiss: bool = False

    def __str__(self) -> str:
        return f"{'on Spark' if self.engine is Engine.SPARK else 'in this process'}: {self.why}"


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of work on Spark.

    Attributes:
        what: the name of the job.
        stages: the stages known so far; the number grows while Spark plans.
        stages_done: how many of them are done.
        tasks: the tasks of all these stages.
        tasks_done: how many of them are done.
        tasks_failed: how many attempts failed and were retried.
    """

    what: str
    stages: int
    stages_done: int
    tasks: int
    tasks_done: int
    tasks_failed: int = 0


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Settings of work on Spark. They have no effect on work in this process.

    Attributes:
        session: a Spark session of `omnigraph.pipeline`; by default that of the process.
        master: the Spark master; by default the one that the environment names, else all cores of this machine.
        jobs: is called with the progress. An error that it raises ends the work.
        seconds: the time limit.
        split_bytes: the approximate size of the input that one task reads.
        part_rows: the approximate number of rows that one task compares.
        tasks: the number of tasks that compare the rows of a merge; by default it follows from the number of rows.
        merge_threshold: the size of the changed rows of a type from which tasks write them: bytes, or a text such as
            `"512 MiB"`; by default `OMNIGRAPH_MERGE_THRESHOLD`, or 1 GiB.
        segment_rows: the approximate number of index rows that one task builds.

    Raises:
        InputError: the threshold is not an amount.
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


def engine_named(name: Engine | str) -> Engine:
    """The engine of a name.

    Raises:
        InputError: there is no such engine.
    """
    try:
        return Engine(name)
    except ValueError:
        raise InputError(f"'{name}' is not an engine", hint="auto, local or spark") from None
