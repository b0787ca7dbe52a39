"""What a read may use: time, memory, rows and disk. Checked while it runs, so that it stops soon after a limit."""

from omnigraph.read.budget.budget import (
    DEFAULT_DISK,
    DEFAULT_MEMORY,
    MEMORY_VARIABLE,
    Budget,
    Cancellation,
    Spending,
    checkpoint,
    query_memory,
)

__all__ = [
    "DEFAULT_DISK",
    "DEFAULT_MEMORY",
    "MEMORY_VARIABLE",
    "Budget",
    "Cancellation",
    "Spending",
    "checkpoint",
    "query_memory",
]
