"""Optimize on Spark: tasks pack fragments and build segments of indexes, and the driver commits.

What is done is what one process does; a task gets a description of its work and gives one of what it wrote. An index of
vectors is built by one task: its segments would be divided differently.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import pyarrow as pa

from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.pipeline.engine import Choice, Engine, choose_by_size
from omnigraph.pipeline.jobs import Watch
from omnigraph.pipeline.load.staging import Place
from omnigraph.pipeline.session import Session
from omnigraph.storage.compaction import CompactedGroup
from omnigraph.storage.layouts import build_index_segment, compact
from omnigraph.storage.uri import Scheme
from omnigraph.upkeep.optimize import (
    SEGMENT_ROWS,
    BuildJob,
    Here,
    OptimizeReceipt,
    PackJob,
    Workers,
    optimize,
)

J = TypeVar("J")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class OnSpark:
    """Tasks."""

    session: Session
    place: Place
    watch: Watch

    @property
    def shares(self) -> bool:
        return True

    def pack(self, jobs: Sequence[PackJob]) -> list[CompactedGroup]:
        place = self.place
        return self._each("packing", jobs, lambda job: compact(place.tables.at(job.ref), job.pack))

    def build(self, jobs: Sequence[BuildJob]) -> list[bytes]:
        place = self.place
        return self._each(
            "building indexes", jobs, lambda job: build_index_segment(place.tables.at(job.ref), job.spec, job.parts)
        )

    def _each(self, what: str, jobs: Sequence[J], do: Callable[[J], R]) -> list[R]:
        """Do something in a task for each of some jobs."""
        listed = list(jobs)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    done = pickle.dumps(do(listed[number]))
                    cells = [pa.array([number], pa.int32()), pa.array([done], pa.binary())]
                    yield pa.RecordBatch.from_arrays(cells, names=["number", "done"])

        with self.session.job(what, self.watch) as spark:
            frame = spark.range(0, len(listed), 1, len(listed)).mapInArrow(task, "number int, done binary")
            answers = frame.toArrow()
        done = dict(zip(answers["number"].to_pylist(), answers["done"].to_pylist(), strict=True))
        return [cast(R, pickle.loads(done[number])) for number in range(len(listed))]


def optimize_by(
    graph: Graph,
    engine: Engine | str,
    session_of: Callable[[], Session],
    watch: Watch,
    *,
    rows_per_fragment: int,
    segment_rows: int = SEGMENT_ROWS,
    chosen: Callable[[Choice], None] | None = None,
) -> OptimizeReceipt:
    """Optimize a graph, wherever the amount of work says.

    Args:
        graph: the graph.
        engine: what the caller asks for.
        session_of: gives the session; asked only if tasks do the work.
        watch: who looks on.
        rows_per_fragment: about how many rows a file has afterwards.
        segment_rows: about how many rows of an index one task builds.
        chosen: is told where the work is done.
    """
    choices: list[Choice] = []
    objects = graph._store.objects
    places: list[Place] = []

    def workers(size: int) -> Workers:
        choice = choose_by_size(engine, size, "to write anew")
        choices.append(choice)
        if chosen is not None:
            chosen(choice)
        if choice.engine is not Engine.SPARK:
            return Here(graph._store.tables)
        if objects.uri.scheme is Scheme.MEMORY:
            raise InputError("tasks cannot reach a graph in the memory of this process", hint="use engine='local'")
        if not places:
            places.append(Place.at(objects.uri))
            # What tasks put aside is not cleared away meanwhile.
            held.enter_context(at_work(graph._store.leases, WorkKind.OPTIMIZE, name=places[0].load))
        return OnSpark(session_of(), places[0], watch)

    try:
        with ExitStack() as held:
            done = optimize(
                graph._store,
                lambda view: graph._checked_schema(view).catalog,
                workers,
                rows_per_fragment=rows_per_fragment,
                segment_rows=segment_rows,
            )
    finally:
        for place in places:
            with suppress(OmnigraphError):  # what is left is found by cleanup
                place.clear()
    last = choices[-1]
    return replace(done, engine=last.engine.value, why=last.why)
