"""A small thread pool for numeric computations."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

from omnigraph.worker_pool import WorkerPool

MIN_PARALLEL_ELEMENTS = 1 << 21
"""With fewer array elements than this, one thread does all the work, because using more threads would be slower."""


def run_parallel(work: Callable[[], None], size: int) -> None:
    """Run work in several threads, if there are enough elements.

    The thread of the caller works, too. When all chunks are done, a pool thread that has not started yet is cancelled.
    So if the pool threads do not start (on a busy machine, or after a process fork), the caller does all the work.

    Args:
        work: function that processes chunks from an iterator, which all threads share, until the iterator is exhausted.
        size: number of array elements to process.
    """
    helpers = _helpers() if size >= MIN_PARALLEL_ELEMENTS else None
    others = [] if helpers is None else [helpers[1].submit(work) for _ in range(helpers[0])]
    work()
    for other in others:
        if not other.cancel():
            other.result()


@cache
def _helpers() -> tuple[int, WorkerPool] | None:
    """Number of threads in the pool, and the pool; None on a machine with one core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(cores, 4) - 1
    return (count, WorkerPool(count, thread_name_prefix="omnigraph-products")) if count else None
