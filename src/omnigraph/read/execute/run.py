"""Run a read: a point lookup directly, any other read with the executor."""

from __future__ import annotations

import logging

import pyarrow as pa

from omnigraph.read.context.context import Context
from omnigraph.read.execute.point_lookup import point_lookup
from omnigraph.read.query.read_query import ReadQuery

_LOG = logging.getLogger("omnigraph.read.plan")
"""At level DEBUG, the executor runs all reads, because it logs their operators."""


def run(query: ReadQuery, context: Context) -> pa.Table:
    """Plan and run a read, and return its result.

    Raises:
        BudgetExceededError: the read exceeds a limit.
        CancelledError: the read was cancelled.
    """
    found = None if _LOG.isEnabledFor(logging.DEBUG) else point_lookup(query, context)
    if found is not None:
        return found
    from omnigraph.read.execute.executor import execute  # a process that only looks up nodes does not load it

    return execute(query, context).table
