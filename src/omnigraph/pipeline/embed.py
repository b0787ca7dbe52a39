"""Computes vectors on Spark: tasks read parts of a table, call the embedding model, and stage the changed vectors.

The driver writes the rows as one commit. Each machine stores computed vectors in a cache on its disk. So if a task or
the commit is tried again, these vectors are not computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import pyarrow as pa

from omnigraph.commit.manifest import TablePin
from omnigraph.dataclass import dataclass
from omnigraph.engine.backends import Computed
from omnigraph.errors import EmbeddingError
from omnigraph.pipeline.spark.staging import Staging
from omnigraph.pipeline.spark.tasks import SparkWork
from omnigraph.storage.fragments import Fragment
from omnigraph.storage.table_ref import TableRef
from omnigraph.upkeep.vectors import BATCH_ROWS, Counts, EmbedPlan, new_vectors

PART_BYTES = 64 << 20
"""Approximate bytes of vectors that one task computes."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The input of one task: every `step`-th batch of rows of some fragments.

    Attributes:
        fragments: the numbers of the fragments.
        first: the number of the first batch, from 0.
        step: the number of tasks that share these fragments.
    """

    fragments: tuple[int, ...]
    first: int
    step: int


@dataclass(frozen=True, slots=True)
class _PartResult:
    """The result of a task.

    Attributes:
        counts: the numbers of computed and cached vectors.
        path: the staged file of the changed vectors; None if no vector changed.
        failed: the error, if vectors could not be computed.
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

    def __call__(self, chosen: EmbedPlan, pin: TablePin, report: Callable[[Counts], None]) -> Computed:
        staging, ref = self._spark.staging, pin.ref
        parallelism = self._spark.session.parallelism
        parts = _parts(staging.tables.at(ref).fragments(), chosen, parallelism) if pin.row_count else []
        numbered = list(enumerate(parts))
        what = f"embedding {chosen.declared.name}"
        done = self._spark.map(what, numbered, lambda part: _computed(staging, chosen, ref, part[1], part[0]))
        failed = next((part.failed for part in done if part.failed is not None), None)
        if failed is not None:
            raise failed
        counts = sum((part.counts for part in done), Counts())
        report(counts)
        paths = [part.path for part in done if part.path is not None]
        return Computed(counts, lambda: (staging.table(path) for path in paths))


def _parts(fragments: Sequence[Fragment], chosen: EmbedPlan, parallelism: int) -> list[_Part]:
    """The inputs of the tasks. Several tasks may share a fragment, because computing takes longer than reading."""
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


def _computed(staging: Staging, chosen: EmbedPlan, ref: TableRef, part: _Part, number: int) -> _PartResult:
    """Compute the vectors of the rows in `part`, and stage the changed ones. Runs in a Spark task."""
    batches = staging.tables.at(ref).read_fragments(
        part.fragments, columns=chosen.columns, without=chosen.lacking, batch_rows=BATCH_ROWS
    )
    changed, counts = [], Counts()
    try:
        for rows, more in new_vectors(chosen, islice(batches, part.first, None, part.step)):
            counts += more
            if rows is not None:
                changed.append(rows)
    except EmbeddingError as error:
        return _PartResult(counts, failed=error)
    path = staging.put(f"vectors/{number:06d}-{chosen.declared.name}", pa.concat_tables(changed)) if changed else None
    return _PartResult(counts, path)
