"""Running a read: from a checked query and a snapshot to a table."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.lang.query import ir
from omnigraph.read.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.count import can_be_counted, counted
from omnigraph.read.match.frame import Frame
from omnigraph.read.match.match import solutions
from omnigraph.read.plan.plan import Plan
from omnigraph.read.plan.trace import Entry, Trace
from omnigraph.read.shape.shape import shape
from omnigraph.read.space.space import Numbers

_COUNT, _SHAPE = "count", "shape"


def run(read: ir.Read, context: Context) -> pa.Table:
    """The result of a read.

    Raises:
        BudgetExceededError: it would take more than it may.
        CancelledError: it was told to stop.
    """
    with context.budget.running():
        context.search.prepare(read)
        frame, weights = _rows(read, context)
        if context.trace is None:
            return shape(read, frame, context, weights)
        with context.trace.step(_SHAPE, _shape_text(read)) as entry:
            table = shape(read, frame, context, weights)
        entry.rows, entry.size = table.num_rows, table.nbytes
        return table


def _rows(read: ir.Read, context: Context) -> tuple[Frame, Numbers | None]:
    """The rows of the match, and how many each of them stands for, where that is not one."""
    countable = can_be_counted(read, context)
    if countable is None:
        return solutions(read.match, context), None
    if context.trace is None:
        return counted(countable, context)
    with context.trace.step(_COUNT, countable.text) as entry:
        found = counted(countable, context)
    entry.rows, entry.size = found[0].count, found[0].nbytes + found[1].nbytes
    return found


def plan(read: ir.Read, context: Context) -> None:
    """Note in the trace what `run` would do. Conditions on single variables are tried: the order depends on them."""
    assert context.trace is not None
    with context.budget.running():
        countable = can_be_counted(read, context)
        if countable is None:
            _plan_block(read.match, frozenset(), 1, context, context.trace)
        else:
            context.trace.note(Entry(_COUNT, countable.text))
            _plan_block(countable.block, frozenset(), 1, context, context.trace)
        context.trace.note(Entry(_SHAPE, _shape_text(read)))


def _plan_block(block: ir.Block, bound: frozenset[str], rows: float, context: Context, trace: Trace) -> None:
    candidates = Candidates({node.name: node for node in block.nodes}, block.filters, context)
    steps = Plan(block, bound, rows, candidates, context)
    for step in steps:
        if not isinstance(step.part, ir.Block):
            trace.note(Entry(step.action, step.text, step.estimate))
            continue
        with trace.step(step.action, step.text, step.estimate) as entry:
            _plan_block(step.part, frozenset(steps.bound), steps.rows, context, trace)
        entry.seconds = None


def _shape_text(read: ir.Read) -> str:
    parts = ["return" + (" distinct" if read.distinct else "")]
    if read.grouped:
        parts = [f"group by {', '.join(column.name for column in read.keys)}" if read.keys else "group everything"]
    if read.having:
        parts.append("having")
    if read.order:
        parts.append(f"order by {', '.join(ir.expression(key.expr) for key in read.order)}")
    for word, count in (("offset", read.offset), ("limit", read.limit)):
        if count is not None:
            parts.append(f"{word} {ir.expression(count)}")
    return ", ".join(parts)
