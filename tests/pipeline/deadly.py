"""Tasks that kill the executor they run on, once: for tests of what becomes of a load then."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph.pipeline.load.tasks import PartDone, Work, run
from omnigraph.write.splits import Split


def kill_executor(marker: Path) -> None:
    """Kill the Java process that this task belongs to, unless somebody was killed for this marker before."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(executor, signal.SIGKILL)
    time.sleep(600)  # until the death has come round


@dataclass(frozen=True)
class DeadlyReading:
    """Does what a task of a load does; the first one to come by dies before or after its rows are written."""

    marker: Path
    after: bool

    def __call__(self, work: Work, number: int, split: Split) -> PartDone:
        if not self.after:
            kill_executor(self.marker)
        done = run(work, number, split)
        if self.after:
            kill_executor(self.marker)
        return done


@dataclass(frozen=True)
class DeadlyComparison:
    """Compares rows; the first one to do so on an executor dies."""

    compare: Callable[..., pa.Table]
    marker: Path
    driver: int

    def __call__(self, *tables: pa.Table) -> Any:
        if os.getpid() != self.driver:
            kill_executor(self.marker)
        return self.compare(*tables)
