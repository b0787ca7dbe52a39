"""Vectors computed on Spark: tasks read parts of a table, ask the model, and put aside what changes.

The rows are written by the driver, as one commit. What a task asked for stays in the cache of its machine, so that a
task that is tried again, or the next attempt at the commit, asks for nothing twice.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from omnigraph.commit.manifest import TablePin
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.errors import EmbeddingError, InputError, OmnigraphError
from omnigraph.graph.embedding import Computed, EmbedRequest, embed
from omnigraph.graph.graph import Graph
from omnigraph.pipeline.engine import Choice, Engine, choose, engine_named
from omnigraph.pipeline.jobs import Watch
from omnigraph.pipeline.load.staging import Place
from omnigraph.pipeline.session import Session
from omnigraph.storage.fragments import Fragment
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.uri import Scheme
from omnigraph.upkeep.vectors import BATCH_ROWS, Chosen, Counts, EmbedReceipt, revised

PART_BYTES = 64 << 20
"""About how many bytes of vectors one task computes."""

_NUMBER, _DONE = "number", "done"


def embed_on_spark(graph: Graph, request: EmbedRequest, session: Session, watch: Watch) -> EmbedReceipt:
    """Bring vectors up to date by tasks on Spark; `Graph.embed` describes it.

    Raises:
        InputError: tasks cannot reach the graph.
        SparkError: work on Spark failed, again and again.
    """
    uri = graph._store.objects.uri
    if uri.scheme is Scheme.MEMORY:
        raise InputError("tasks cannot reach a graph in the memory of this process", hint="use engine='local'")
    place = Place.at(uri)
    try:
        with at_work(graph._store.leases, WorkKind.EMBED, name=place.load):
            return embed(graph, request, _OnSpark(session, watch, place))
    finally:
        with suppress(OmnigraphError):  # what is left is found by cleanup
            place.clear()


@dataclass(frozen=True, slots=True)
class _Stored:
    """Tables, as far as their size is concerned."""

    nbytes: int


def way(graph: Graph, engine: Engine | str, branch: str, types: Sequence[str], *, started: bool = False) -> Choice:
    """Where vectors are computed, by the size of the tables that have some.

    Raises:
        InputError: there is no such engine.
    """
    if engine_named(engine) is not Engine.AUTO:
        return choose(engine, _Stored(0))
    store = graph._store
    view = store.capture(branch)
    nodes = graph._schema_of(view)[1].catalog.nodes
    keys = [
        f"node:{name}"
        for name, node in nodes.items()
        if (not types or name in types) and any(prop.embed for prop in node.properties.values())
    ]
    fragments = (fragment for key in keys for fragment in store.tables.at(view.tables[key].ref).fragments())
    return choose(engine, _Stored(sum(fragment.size for fragment in fragments)), started=started)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one task looks at: every so-many-th batch of some fragments.

    Attributes:
        fragments: the fragments.
        first: the number of the first batch.
        step: from one batch to the next.
    """

    fragments: tuple[int, ...]
    first: int
    step: int


@dataclass(frozen=True, slots=True)
class _Done:
    """What became of a part.

    Attributes:
        path: where the vectors lie that change.
        failed: why vectors could not be computed.
    """

    counts: Counts
    path: str | None = None
    failed: EmbeddingError | None = None


class _OnSpark:
    """Computes the vectors of a type by tasks."""

    def __init__(self, session: Session, watch: Watch, place: Place) -> None:
        self._session = session
        self._watch = watch
        self._place = place

    def __call__(self, chosen: Chosen, pin: TablePin, tell: Callable[[Counts], None]) -> Computed:
        place, ref = self._place, pin.ref
        parts = _parts(place.tables.at(ref).fragments(), chosen, self._session.parallelism) if pin.row_count else []
        done = self._run(parts, chosen, ref)
        failed = next((part.failed for part in done if part.failed is not None), None)
        if failed is not None:
            raise failed
        counts = sum((part.counts for part in done), Counts())
        tell(counts)
        paths = [part.path for part in done if part.path is not None]
        return Computed(counts, lambda: (place.table(path) for path in paths))

    def _run(self, parts: Sequence[_Part], chosen: Chosen, ref: TableRef) -> list[_Done]:
        """What became of each part, in order."""
        place = self._place

        def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
                done = pickle.dumps(_computed(place, chosen, ref, parts[number], number))
                cells = [pa.array([number], pa.int32()), pa.array([done], pa.binary())]
                yield pa.RecordBatch.from_arrays(cells, names=[_NUMBER, _DONE])

        if not parts:
            return []
        with self._session.job(f"embedding {chosen.declared.name}", self._watch) as spark:
            frame = spark.range(0, len(parts), 1, len(parts)).mapInArrow(task, f"{_NUMBER} int, {_DONE} binary")
            answers = frame.toArrow().sort_by(_NUMBER)
        return [pickle.loads(done) for done in answers[_DONE].to_pylist()]


def _parts(fragments: Sequence[Fragment], chosen: Chosen, parallelism: int) -> list[_Part]:
    """What each task looks at. Vectors cost more than reading, so several tasks may read one fragment."""
    width = 4 * sum(prop.type.dim or 0 for prop in chosen.properties)
    total = sum(fragment.rows for fragment in fragments)
    rows = max(BATCH_ROWS, min(PART_BYTES // width, -(-total // (2 * parallelism))))
    parts = []
    held: list[Fragment] = []
    for fragment in [*fragments, None]:
        if held and (fragment is None or sum(each.rows for each in held) + fragment.rows > rows):
            step = -(-sum(each.rows for each in held) // rows)
            numbers = tuple(each.number for each in held)
            parts += [_Part(numbers, first, step) for first in range(step)]
            held = []
        if fragment is not None:
            held.append(fragment)
    return parts


def _computed(place: Place, chosen: Chosen, ref: TableRef, part: _Part, number: int) -> _Done:
    """What a task does."""
    batches = place.tables.at(ref).read_fragments(
        part.fragments, columns=chosen.columns, without=chosen.lacking, batch_rows=BATCH_ROWS
    )
    changed, counts = [], Counts()
    try:
        for rows, more in revised(chosen, islice(batches, part.first, None, part.step)):
            counts += more
            if rows is not None:
                changed.append(rows)
    except EmbeddingError as error:
        return _Done(counts, failed=error)
    path = place.put(f"vectors/{number:06d}-{chosen.declared.name}", pa.concat_tables(changed)) if changed else None
    return _Done(counts, path)
