"""Waiting and measuring in tests, independent of the speed and load of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 600.0
"""Timeout in seconds for operations that should finish much sooner."""


def until(holds: Callable[[], object], *, pause: float = 0.005) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(pause)


@contextmanager
def at_most(units: float) -> Iterator[None]:
    """Check that the block takes at most this many times the CPU time of a fixed piece of work on the same machine.

    A unit is about 5 ms on a machine of 2023.
    """
    began = time.thread_time()
    yield
    taken = time.thread_time() - began
    limit = units * _unit()
    assert taken < limit, f"it took {taken:.2f} s of CPU time, and {limit:.2f} s are allowed on this machine"


def _unit() -> float:
    """The CPU time of a fixed piece of work, the best of several."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        sum(number * number for number in range(100_000))
        times.append(time.thread_time() - began)
    return min(times)
