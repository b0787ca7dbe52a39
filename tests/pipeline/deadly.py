"""Tasks that kill the processes they run on, once: for tests of what becomes of a load then."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph.pipeline.load.partition_task import PartResult, Work, run


class Victim(StrEnum):
    """Who dies: the executor of a task, or the worker that the executor belongs to as well."""

    EXECUTOR = "executor"
    WORKER = "worker"


def kill(victim: Victim, marker: Path) -> None:
    """Kill the Java process that this task belongs to, unless somebody was killed for this marker before."""
    executor = _parent_of(os.getppid())  # between them is the daemon that forks the tasks
    worker = _parent_of(executor)
    try:
        with marker.open("x") as file:
            file.write(str(worker if victim is Victim.WORKER else executor))
    except FileExistsError:
        return
    if victim is Victim.WORKER:
        os.kill(worker, signal.SIGKILL)
    os.kill(executor, signal.SIGKILL)
    time.sleep(600)  # until the death has come round


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@dataclass(frozen=True)
class DeadlyReading:
    """Does what a task of a load does; the first one to come by dies before or after its rows are written."""

    marker: Path
    after: bool
    victim: Victim = Victim.EXECUTOR

    def __call__(self, work: Work, number: int, *part: Any) -> PartResult:
        if not self.after:
            kill(self.victim, self.marker)
        done = run(work, number, *part)
        if self.after:
            kill(self.victim, self.marker)
        return done


@dataclass(frozen=True)
class SlowReading:
    """Does what a task of a load does; the first attempt at the first part never ends, after its rows are written."""

    marker: Path

    def __call__(self, work: Work, number: int, *part: Any) -> PartResult:
        done = run(work, number, *part)
        if number == 0:
            try:
                self.marker.touch(exist_ok=False)
            except FileExistsError:
                return done
            time.sleep(600)
        return done


@dataclass(frozen=True)
class DeadlyComparison:
    """Compares rows; the first one to do so on an executor dies."""

    compare: Callable[..., pa.Table]
    marker: Path
    driver: int

    def __call__(self, *tables: pa.Table) -> Any:
        if os.getpid() != self.driver:
            kill(Victim.EXECUTOR, self.marker)
        return self.compare(*tables)


@dataclass(frozen=True)
class DeadlyRouting:
    """Sends rows to the tasks that compare them; the first one to do so dies when it has sent them all."""

    route: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    marker: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.route(batches)
        kill(Victim.EXECUTOR, self.marker)
