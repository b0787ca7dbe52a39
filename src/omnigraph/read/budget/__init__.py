"""Budget of a read: limits for time, memory, rows and disk, checked while it runs."""

from omnigraph.read.budget.budget import (
    DEFAULT_DISK,
    Budget,
    Cancellation,
    Spending,
    checkpoint,
    query_memory,
)

__all__ = [
    "DEFAULT_DISK",
    "Budget",
    "Cancellation",
    "Spending",
    "checkpoint",
    "query_memory",
]
