"""A load of files into a new graph by a warm Spark session: `python bench/bulk/on_spark.py FILES PLACE`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import omnigraph
from bulk.data import SCHEMA, write_files
from bulk.measure import report
from bulk.processes import Workers, java_peak, processor_seconds
from bulk.state import Phases, state
from omnigraph.engine.engines import JobProgress
from omnigraph.graph import Graph
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.pipeline.spark.session import Session

WARM = 20_000


class Jobs:
    """How many stages and tasks there were, by what was done."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[int, int]] = {}

    def __call__(self, progress: JobProgress) -> None:
        self.known[progress.job] = (progress.stages, progress.tasks)


def warm(session: Session, kind: str) -> None:
    """Let Java and the tasks do all of it once, in small."""
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder) / "files", WARM, WARM * 5)
        for number in range(2):
            with omnigraph.init(Path(folder) / f"{number}", SCHEMA) as graph:
                Pipeline(graph, session).load(str(Path(folder) / "files" / kind), mode="append")


def load(graph: Graph, session: Session, files: str, phases: Phases, jobs: Jobs) -> None:
    Pipeline(graph, session).load(files, mode="append", progress=phases, jobs=jobs)
    phases.end()


def main(files: str, place: str) -> None:
    session = Session()
    begun = time.perf_counter()
    assert session.spark is not None
    started = time.perf_counter() - begun
    warm(session, Path(files).name)
    phases, jobs = Phases(), Jobs()
    before = processor_seconds()
    with omnigraph.init(place, SCHEMA) as graph, Workers() as workers:

        def after() -> dict[str, object]:
            used = {whose: seconds - before[whose] for whose, seconds in processor_seconds().items()}
            memory = {"java": java_peak(), "workers": workers.most, "worker": workers.each}
            figures = {"cpu": sum(used.values()), "processor": used, **memory, "start": started}
            return {**figures, "phases": phases.seconds, "jobs": jobs.known, **state(graph)}

        report(lambda: load(graph, session, files, phases, jobs), after)
    session.stop()


if __name__ == "__main__":  # tasks import what they are given, and that may be this
    main(*sys.argv[1:])
