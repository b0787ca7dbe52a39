"""Random limits of a read: threads, a memory budget, and a cancellation after some checks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from random import Random
from unittest.mock import patch

from omnigraph.read.budget import Budget, Cancellation, Spending
from omnigraph.settings import THREADS

SMALL_MEMORY = (50, 200, 800, 3_000, 20_000)
"""Memory budgets of which the smaller ones are too small for most queries, and the larger ones make some spill."""

FEW_CHECKS = (0, 1, 2, 5, 10, 20, 40, 100)


class Countdown(Cancellation):
    """Cancels a read at a point that does not depend on time: after a number of checks."""

    def __init__(self, checks: int) -> None:
        super().__init__()
        self.left = checks

    @property
    def cancelled(self) -> bool:
        self.left -= 1
        return self.left < 0

    @property
    def expired(self) -> bool:
        """Whether the read was cancelled."""
        return self.left < 0


@dataclass(frozen=True)
class Limits:
    """The limits of one read; none by default.

    Attributes:
        threads: number of threads; None for the number of the environment.
        memory: the memory budget in bytes; None for no limit.
        checks: number of checks after which the read is cancelled; None if it is not cancelled.
    """

    threads: int | None = None
    memory: int | None = field(default_factory=lambda: Budget().memory)
    checks: int | None = None

    @contextmanager
    def applied(self) -> Iterator[Spending]:
        """The usage of a read with these limits."""
        cancel = Cancellation() if self.checks is None else Countdown(self.checks)
        environment = (
            nullcontext() if self.threads is None else patch.dict(os.environ, {THREADS.name: str(self.threads)})
        )
        with environment:
            # Without a time limit, because the machine may be busy.
            yield Spending(Budget(seconds=None, memory=self.memory), cancel)


def some_limits(rng: Random) -> Limits:
    """Half of all reads have a default budget, and one in eight is cancelled."""
    memory = rng.choice((Budget().memory, None))
    if rng.random() < 0.4:
        memory = rng.choice(SMALL_MEMORY)
    checks = rng.choice(FEW_CHECKS) if rng.random() < 0.125 else None
    return Limits(rng.choice((1, 2, 4)), memory, checks)
