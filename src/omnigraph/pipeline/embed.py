"""Vectors computed on Spark: tasks read parts of a table, ask the model, and put aside what changes.

The rows are written by the driver, as one commit. What a task asked for stays in the cache of its machine, so that a
task that is tried again, or the next attempt at the commit, asks for nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from omnigraph.commit.manifest import TablePin
from omnigraph.engine.backends import Computed
from omnigraph.errors import EmbeddingError
from omnigraph.pipeline.spark.staging import Place
from omnigraph.pipeline.spark.tasks import SparkWork
from omnigraph.storage.fragments import Fragment
from omnigraph.storage.table_ref import TableRef
from omnigraph.upkeep.vectors import BATCH_ROWS, Counts, EmbedPlan, new_vectors

PART_BYTES = 64 << 20
"""About how many bytes of vectors one task computes."""


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


class SparkVectors:
    """Computes the vectors of a type by tasks.

    Args:
        spark: the context of the work on Spark.
    """

    def __init__(self, spark: SparkWork) -> None:
        self._spark = spark

    def __call__(self, chosen: EmbedPlan, pin: TablePin, tell: Callable[[Counts], None]) -> Computed:
        place, ref = self._spark.place, pin.ref
        parallelism = self._spark.session.parallelism
        parts = _parts(place.tables.at(ref).fragments(), chosen, parallelism) if pin.row_count else []
        numbered = list(enumerate(parts))
        what = f"embedding {chosen.declared.name}"
        done = self._spark.map(what, numbered, lambda part: _computed(place, chosen, ref, part[1], part[0]))
        failed = next((part.failed for part in done if part.failed is not None), None)
        if failed is not None:
            raise failed
        counts = sum((part.counts for part in done), Counts())
        tell(counts)
        paths = [part.path for part in done if part.path is not None]
        return Computed(counts, lambda: (place.table(path) for path in paths))


def _parts(fragments: Sequence[Fragment], chosen: EmbedPlan, parallelism: int) -> list[_Part]:
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


def _computed(place: Place, chosen: EmbedPlan, ref: TableRef, part: _Part, number: int) -> _Done:
    """What a task does."""
    batches = place.tables.at(ref).read_fragments(
        part.fragments, columns=chosen.columns, without=chosen.lacking, batch_rows=BATCH_ROWS
    )
    changed, counts = [], Counts()
    try:
        for rows, more in new_vectors(chosen, islice(batches, part.first, None, part.step)):
            counts += more
            if rows is not None:
                changed.append(rows)
    except EmbeddingError as error:
        return _Done(counts, failed=error)
    path = place.put(f"vectors/{number:06d}-{chosen.declared.name}", pa.concat_tables(changed)) if changed else None
    return _Done(counts, path)
