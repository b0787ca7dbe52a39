"""Budgets: what a read may take of time and rows, checked while it runs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Event

from omnigraph.errors import BudgetExceededError, CancelledError


@dataclass(frozen=True, slots=True)
class Budget:
    """What a read may take; None is no limit.

    Attributes:
        seconds: time.
        rows: rows that the match may pass through, intermediate ones included.
        returned: rows of the result.
    """

    seconds: float | None = 60.0
    rows: int | None = 200_000_000
    returned: int | None = 10_000_000


@dataclass(slots=True)
class Spending:
    """What a read has used of its budget."""

    budget: Budget = field(default_factory=Budget)
    cancelled: Event = field(default_factory=Event)
    started: float = field(default_factory=time.monotonic)
    rows: int = 0

    def spend(self, rows: int = 0) -> None:
        """Note rows that were passed through.

        Raises:
            BudgetExceededError: that is more than the read may take.
            CancelledError: it was told to stop.
        """
        self.rows += rows
        if self.cancelled.is_set():
            raise CancelledError("the query was cancelled")
        allowed = self.budget
        if allowed.rows is not None and self.rows > allowed.rows:
            raise BudgetExceededError("rows", allowed.rows, self.rows)
        if allowed.seconds is not None:
            taken = time.monotonic() - self.started
            if taken > allowed.seconds:
                raise BudgetExceededError("seconds", allowed.seconds, taken)

    def give(self, rows: int) -> None:
        """Note rows of the result.

        Raises:
            BudgetExceededError: that is more than the read may return.
        """
        self.spend()
        if self.budget.returned is not None and rows > self.budget.returned:
            raise BudgetExceededError("rows of result", self.budget.returned, rows, hint="add a limit")
