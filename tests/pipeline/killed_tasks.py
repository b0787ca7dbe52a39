"""Tasks that kill their own process once, for tests of a load after a lost executor or worker."""

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
    """The process to kill: the executor of a task, or its worker as well."""

    EXECUTOR = "executor"
    WORKER = "worker"


def kill(victim: Victim, marker: Path) -> None:
    """Kill the Java process of this task, unless the marker shows that one was killed before."""
    executor = _parent_of(os.getppid())  # the daemon that forks the tasks is between them
    worker = _parent_of(executor)
    try:
        with marker.open("x") as file:
            file.write(str(worker if victim is Victim.WORKER else executor))
    except FileExistsError:
        return
    if victim is Victim.WORKER:
        os.kill(worker, signal.SIGKILL)
    os.kill(executor, signal.SIGKILL)
    time.sleep(600)  # until the process is killed


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@dataclass(frozen=True)
class DeadlyReading:
    """A task of a load; the first one is killed before or after its rows are written."""

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
    """A task of a load; the first attempt of the first partition never ends, after its rows are written."""

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
    """Compares rows; the first task that does so on an executor is killed."""

    compare: Callable[..., pa.Table]
    marker: Path
    driver: int

    def __call__(self, *tables: pa.Table) -> Any:
        if os.getpid() != self.driver:
            kill(Victim.EXECUTOR, self.marker)
        return self.compare(*tables)


@dataclass(frozen=True)
class DeadlyRouting:
    """Sends rows to the comparing tasks; the first one is killed after it has sent all rows."""

    route: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    marker: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.route(batches)
        kill(Victim.EXECUTOR, self.marker)
