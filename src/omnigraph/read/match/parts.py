"""Parts: run operators on parts of their input rows, in several threads, and concatenate the results.

Each operator that is run in parts produces the output rows of an input row from this row alone, and keeps the order of
the rows. So the result does not depend on the number of parts or threads. Intermediate rows exist only for the parts
that run at the time.
"""

# See docs/decisions/0202-a-match-runs-in-parts-on-all-cores.md

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from itertools import pairwise

import numpy as np

from omnigraph.read.budget.allocator import keep_freed_memory
from omnigraph.read.budget.budget import Spending, query_threads
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.rows.frame import Frame, concat_frames
from omnigraph.worker_pool import WorkerPool

PART_ROWS = 1 << 19
"""Expected number of output rows per part. Smaller parts gain less from threads, larger ones take more memory."""

FIRST_PART_RATIO = 8
"""The first part has 1 / `FIRST_PART_RATIO` of the rows of the other parts.

It runs alone, before threads are started, so that columns and topologies are loaded once.
"""

MIN_PARALLEL_ROWS = 1 << 20
"""If fewer output rows are expected, only one thread is used."""

MIN_PARALLEL_BYTES = 128 << 20
"""With a smaller memory budget, only one thread is used, because each thread keeps some free memory."""

_PART_MEMORY_RATIO = 32
"""All parts that run at the same time may take 1 / `_PART_MEMORY_RATIO` of the memory budget."""

_BYTES_PER_CELL = 8

Run = Callable[[Frame], Frame]
"""Runs the operators on the rows of one part."""


def is_one_part(rows: float) -> bool:
    """Whether a number of output rows is so small that the rows need not be divided."""
    return rows <= PART_ROWS


def part_bounds(work: Numbers, width: int, budget: Spending) -> list[int] | None:
    """Divide rows into parts. Returns the index of the first row of each part, and the number of rows.

    Returns None if the rows need not be divided.

    Args:
        work: expected number of output rows of each row.
        width: number of array elements per output row.
        budget: the limits of the read.
    """
    size = _part_rows(width, budget)
    ends = np.cumsum(work)
    if len(work) < 2 or int(ends[-1]) <= size:
        return None
    steps = np.arange(size, int(ends[-1]), size)
    if int(ends[-1]) >= MIN_PARALLEL_ROWS:
        steps = np.concatenate([[size // FIRST_PART_RATIO], steps])
    inner = np.unique(np.searchsorted(ends, steps, "right"))
    bounds = [0, *(place for place in inner.tolist() if 0 < place < len(work)), len(work)]
    return bounds if len(bounds) > 2 else None


def _part_rows(width: int, budget: Spending) -> int:
    if budget.most is None:
        return PART_ROWS
    return max(1, min(PART_ROWS, budget.most // (_PART_MEMORY_RATIO * max(width, 1) * _BYTES_PER_CELL)))


def run_parts(run: Run, frame: Frame, bounds: Sequence[int], budget: Spending, *, parallel: bool) -> Frame:
    """Run operators on parts of the rows, and concatenate the results in the order of the rows.

    Args:
        run: runs the operators on one part. It is called in several threads.
        frame: the rows.
        bounds: the index of the first row of each part, and the number of rows.
        budget: the limits of the read. The results count as memory in use until all parts are done.
        parallel: whether threads may be used.
    """
    keep_freed_memory()
    kept: list[int] = []

    def run_part(part: tuple[int, int]) -> Frame:
        found = run(frame.part(*part))
        kept.append(found.nbytes)
        budget.keep(found.nbytes)
        return found

    parts = list(pairwise(bounds))
    enough = budget.most is None or budget.most >= MIN_PARALLEL_BYTES
    threads = query_threads() if parallel and enough else 1
    try:
        if threads == 1 or len(parts) < 3:
            found = [run_part(part) for part in parts]
        else:
            found = [run_part(parts[0]), *_in_threads(run_part, parts[1:], threads, budget)]
        # While the results are concatenated, they are in memory twice.
        budget.need(sum(kept))
        return concat_frames(found)
    finally:
        budget.release(sum(kept))


def _in_threads(
    run: Callable[[tuple[int, int]], Frame], parts: Sequence[tuple[int, int]], threads: int, budget: Spending
) -> Iterator[Frame]:
    is_over = False

    def run_unless_over(part: tuple[int, int]) -> Frame | None:
        nonlocal is_over
        if is_over:
            return None
        try:
            return run(part)
        except BaseException:
            is_over = True
            raise
        finally:
            budget.forget_thread()

    try:
        with WorkerPool(threads, "omnigraph-read") as pool:
            tasks: list[Future[Frame | None]] = []
            try:
                for part in parts:
                    tasks.append(pool.submit(copy_context().run, run_unless_over, part))
                for task in tasks:
                    found = task.result()
                    if found is not None:
                        yield found
            except BaseException:
                # Parts that are running stop at their next check. Else an interrupted read would wait for them.
                budget.stopping = True
                raise
            finally:
                is_over = True
    finally:
        budget.stopping = False
