"""The comparison of tables on Spark: rows of an id meet in a task, and there they are compared as they are in process.

What comes of it, the rows that change, is put aside by the tasks and fetched by the driver, which checks it and makes
the commit. Rows that stay as they are never reach it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.errors import InputError, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.graph.merging import MergeRequest, Way
from omnigraph.graph.merging import merge as merge_in
from omnigraph.merge.choices import Choice, resolved
from omnigraph.merge.classify import DIFFERS, classify
from omnigraph.merge.compare import MOST, Collected, Compared
from omnigraph.merge.receipt import MergeReceipt
from omnigraph.merge.sides import Columns, Versions, differing_parts, part_rows
from omnigraph.merge.touched import Touched, touched
from omnigraph.pipeline.jobs import Watch
from omnigraph.pipeline.load.exchange import PART_ROWS, Exchange, Relation, Side, decoded, encoded
from omnigraph.pipeline.load.staging import Place
from omnigraph.pipeline.session import Session
from omnigraph.storage.tables import TableRef
from omnigraph.storage.uri import Scheme

_SIFTED = 1_000_000
"""Up to so many rows that may differ, tasks are told which these are; beyond it they compare all rows of a part."""

_FRAGMENTS = 4
"""So many parts of a table are read by one task at most."""


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """How a merge is spread.

    Attributes:
        session: the session.
        watch: who looks on, and when it has to stop.
        part_rows: about how many rows one task compares.
        tasks: how many tasks compare; by default that follows from the number of rows.
    """

    session: Session
    watch: Watch = field(default_factory=Watch)
    part_rows: int = PART_ROWS
    tasks: int | None = None


def merge(graph: Graph, request: MergeRequest, options: MergeOptions) -> MergeReceipt:
    """Carry out a merge whose tables are compared on Spark; `Graph.merge` describes it.

    Raises:
        InputError: tasks cannot reach the graph.
    """
    uri = graph._store.objects.uri
    if uri.scheme is Scheme.MEMORY:
        raise InputError("tasks cannot reach a graph in the memory of this process", hint="merge with engine='local'")
    place = Place.at(uri)
    try:
        return merge_in(graph, request, Way("spark", lambda _, budget: SparkComparer(place, options, budget)))
    finally:
        with suppress(OmnigraphError):  # what is left is found by cleanup
            place.clear()


class SparkComparer:
    """Compares on Spark.

    Args:
        place: the graph as tasks reach it.
        options: how the work is spread.
        budget: how many bytes of rows stay in the memory of the driver.
    """

    def __init__(self, place: Place, options: MergeOptions, budget: int) -> None:
        self._place = place
        self._options = options
        self._budget = budget

    def compare(self, versions: Versions, choice: Choice) -> Compared:
        session, tables = self._options.session, self._place.tables
        may = touched(tables, versions.all, _SIFTED)
        apart = dict(zip(versions.all, differing_parts(tables, versions), strict=True))
        with session.job(f"comparing {versions.key}", self._options.watch):
            exchange = Exchange(session.work, session.parallelism, self._options.part_rows)
            sides = {ref: self._rows(exchange, versions, ref, numbers, may) for ref, numbers in apart.items()}
            order = list(sides)
            places = [order.index(ref) for ref in versions.all]
            told = exchange.together(
                [Side(relation, ["id"]) for relation in sides.values()],
                _comparison(self._place, versions.key, places, choice),
                self._options.tasks,
            )
            (answers,) = exchange.gather([told])
        collected = Collected(versions, self._budget)
        for answer in answers.to_pylist():
            torn, met = decoded(answer["torn"]), decoded(answer["met"])["id"].combine_chunks()
            done = None if answer["path"] is None else self._place.table(answer["path"])
            collected.add(torn.slice(0, 0) if done is None else done, torn, met, answer["conflicts"])
        return collected.compared()

    def _rows(
        self,
        exchange: Exchange,
        versions: Versions,
        ref: TableRef,
        numbers: tuple[int, ...],
        may: Touched | None,
    ) -> Relation:
        """The rows of a version that have to be compared."""
        step = max(1, min(_FRAGMENTS, len(numbers) // 16))
        pieces = [
            VersionRows(self._place, ref, numbers[i : i + step], versions.columns, may)
            for i in range(0, len(numbers), step)
        ]
        chosen = set(numbers)
        count = sum(part.rows for part in self._place.tables.fragments(ref) if part.number in chosen)
        return exchange.read(pieces, versions.schema, count if may is None else min(count, may.count))


@dataclass(frozen=True, slots=True)
class VersionRows:
    """The rows of some parts of a version, as a task reads them."""

    place: Place
    ref: TableRef
    numbers: tuple[int, ...]
    columns: Columns
    may: Touched | None

    def tables(self) -> Iterator[pa.Table]:
        return part_rows(self.place.tables, self.ref, self.numbers, self.columns, self.may)


def _comparison(place: Place, key: str, order: list[int], choice: Choice) -> Callable[..., pa.Table]:
    """What a task does with rows that have met: it compares them, and puts aside what changes."""
    name = f"merge/{key.replace(':', '-')}"

    def compare(*sides: pa.Table) -> pa.Table:
        base, source, target = (sides[number] for number in order)
        done, torn, met = resolved(classify(base, source, target), choice)
        path = place.put(name, done.drop_columns([DIFFERS])) if done.num_rows else None
        first = torn.sort_by("id").slice(0, MOST)
        return pa.table(
            {
                "path": pa.array([path], pa.utf8()),
                "conflicts": pa.array([torn.num_rows], pa.int64()),
                "torn": pa.array([encoded(first)], pa.binary()),
                "met": pa.array([encoded(pa.table({"id": met}))], pa.binary()),
            }
        )

    return compare
