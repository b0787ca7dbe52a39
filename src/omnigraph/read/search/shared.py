"""Work that is shared between threads, and never waits for one that is not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

_MUCH = 1 << 21
"""With fewer numbers than this, telling another thread costs about as much as it saves."""


def shared(work: Callable[[], None], size: int) -> None:
    """Do some work that takes its next portion whenever it has finished one, in several threads where there is much.

    The caller works as well. A thread that has not begun when everything is taken is not waited for: on a busy machine,
    or in a process that was forked, the caller does all of it.

    Args:
        work: takes portions from something that gives each to one thread only, such as an iterator, until it is empty.
        size: about how many numbers are computed with.
    """
    helpers = _helpers() if size >= _MUCH else None
    others = [] if helpers is None else [helpers[1].submit(work) for _ in range(helpers[0])]
    work()
    for other in others:
        if not other.cancel():
            other.result()


@cache
def _helpers() -> tuple[int, ThreadPoolExecutor] | None:
    """How many threads help, and the threads; None on a machine with one core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(cores, 4) - 1
    return (count, ThreadPoolExecutor(count, thread_name_prefix="omnigraph-products")) if count else None
