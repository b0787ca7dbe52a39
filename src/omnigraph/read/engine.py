"""Running a read: from a checked query and a snapshot to a table."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.lang.query import ir
from omnigraph.read.context import Context
from omnigraph.read.count import counted
from omnigraph.read.match import solutions
from omnigraph.read.shape import shape


def run(read: ir.Read, context: Context) -> pa.Table:
    """The result of a read."""
    context.search.prepare(read)
    few = counted(read, context)
    if few is not None:
        return shape(read, few[0], context, few[1])
    return shape(read, solutions(read.match, context), context)
