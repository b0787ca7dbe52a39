"""A driver that loads many graphs at once, stops each load at another step, and is then killed.

Run as a program, it reads the jobs from a file: for each the graph, the input, and where to stop. It creates a file
for each job that has reached its step, and waits to be killed.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread, current_thread
from typing import Any

from omnigraph.commit import attempts, publish, staged_writes
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.graph import open
from omnigraph.pipeline.load import input_parts
from omnigraph.pipeline.load.partition_task import PartResult, Work, run
from omnigraph.pipeline.load.rows import SparkRows
from omnigraph.pipeline.spark.session import Session, SparkSettings

READING = "reading"
"""Inside a task that has written its rows, while other tasks still run."""

READ = "read"
"""After all tasks have written their rows, before any comparison."""


@dataclass(frozen=True)
class StoppedReading:
    """A task of a load that stops after its work; in the first partition only."""

    sign: Path

    def __call__(self, work: Work, number: int, *part: Any) -> PartResult:
        done = run(work, number, *part)
        if number == 0:
            self.sign.touch()
            _stop()
        return done


def _stop() -> None:
    time.sleep(3600)


def main(file: str) -> None:
    jobs = json.loads(Path(file).read_text())
    places: dict[str, dict[str, Any]] = {job["name"]: job for job in jobs}

    def stops(place: str) -> None:
        job = places.get(current_thread().name)
        if job is not None and job["place"] == place:
            Path(job["sign"]).touch()
            _stop()

    collect = SparkRows._collect

    def reached(point: Failpoint) -> None:
        stops(point.value)
        reach(point)

    def collected(self: SparkRows) -> None:
        stops(READ)
        collect(self)

    for module in (attempts, publish, staged_writes):
        module.reach = reached  # type: ignore[attr-defined]  # imported there by name
    SparkRows._collect = collected  # type: ignore[method-assign]
    session = Session(
        SparkSettings(
            master="local[2,4]",
            memory="1g",
            options={
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                "spark.python.daemon.module": "tests.pipeline.warm_daemon",
            },
            archive=False,
        )
    )
    threads = [Thread(target=_load, args=(session, job), name=job["name"], daemon=True) for job in jobs]
    # A stopped task occupies a slot that others need, so its load comes last.
    for thread, job in zip(threads, jobs, strict=True):
        if job["place"] != READING:
            thread.start()
    for job in jobs:
        while job["place"] != READING and not Path(job["sign"]).exists():
            time.sleep(0.02)
    for thread, job in zip(threads, jobs, strict=True):
        if job["place"] == READING:
            input_parts.run = StoppedReading(Path(job["sign"]))  # type: ignore[assignment,attr-defined]  # the same
            thread.start()
    _stop()


def _load(session: Session, job: dict[str, Any]) -> None:
    from omnigraph.pipeline.pipeline import Pipeline

    with suppress(BaseException):  # the test misses the sign of a load that fails
        said = {"mode": job["mode"], "branch": job["branch"], "idempotency_key": job["key"]}
        Pipeline(open(job["graph"]), session).load(job["source"], split_bytes=6_000, **said)


if __name__ == "__main__":
    main(sys.argv[1])
