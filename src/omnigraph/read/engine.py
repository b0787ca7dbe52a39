"""Running a read: from a checked query and a snapshot to a table."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from omnigraph.errors import BudgetExceededError
from omnigraph.lang.query import ir
from omnigraph.read.context import Context
from omnigraph.read.match.blocks import blocks, is_short_of_memory
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.count import Counting, can_be_counted, counted
from omnigraph.read.match.first import first_rows, in_portions
from omnigraph.read.match.frame import Frame
from omnigraph.read.match.match import solutions
from omnigraph.read.match.ranked import Ranked, best_nodes, ranked_first, rows_of
from omnigraph.read.plan.plan import Operator
from omnigraph.read.plan.trace import Entry, Trace
from omnigraph.read.planning import expect, plan
from omnigraph.read.shape.shape import shape, wanted
from omnigraph.read.shape.spilled import can_be_spilled, lists_too_much, shape_blocks
from omnigraph.read.space.space import Numbers

__all__ = ["plan", "run"]

_LOG = logging.getLogger("omnigraph.read.plan")
"""Is told of every step how many rows were expected and how many there were, when it listens at DEBUG."""

_BLOCKS = "blocks"

_LARGEST = 2**31 - 1
"""How many bytes of text a column of a result holds at most."""

_OVERFLOWS = ("overflowed binary array capacity", "offset overflow")
"""What an array says that would have to hold more."""

_AT_ONCE = 1
"""All rows of a match may take one of so many parts of the memory. Beyond it, they come in blocks."""


def run(read: ir.Read, context: Context) -> pa.Table:
    """The result of a read.

    Raises:
        BudgetExceededError: it would take more than it may.
        CancelledError: it was told to stop.
    """
    if context.trace is None and _LOG.isEnabledFor(logging.DEBUG):
        trace = Trace()
        table = run(read, replace(context, trace=trace))
        trace.log(_LOG)
        return table
    with context.budget.running():
        context.search.prepare(read)
        most = context.budget.most
        if most is None or not can_be_spilled(read):
            with _told_apart(context):
                return _at_once(read, context)
        try:
            with context.budget.at_most(most // _AT_ONCE), _told_apart(context):
                return _at_once(read, context)
        except BudgetExceededError as error:
            if not is_short_of_memory(error) or lists_too_much(read, error.actual, context):
                raise
        with _told_apart(context):
            return _in_blocks(read, context)


@contextmanager
def _told_apart(context: Context) -> Iterator[None]:
    """What there is no memory for is told as what exceeds a budget. Other errors are what they are.

    Raises:
        BudgetExceededError: there is no more memory, or an array cannot be as large as it would have to.
    """
    try:
        yield
    except pa.ArrowCapacityError as error:
        raise _too_long() from error
    except pa.ArrowInvalid as error:
        if not any(said in str(error) for said in _OVERFLOWS):
            raise
        raise _too_long() from error
    except MemoryError as error:  # pa.ArrowMemoryError is one, too
        taken = context.budget.peak
        hint = "the process got no more memory: make the query more selective, or give it a smaller budget"
        raise BudgetExceededError("bytes", taken, taken, hint=hint) from error


def _too_long() -> BudgetExceededError:
    hint = "a column holds 2 GiB of text at most: return fewer rows, or shorter texts"
    return BudgetExceededError("bytes", _LARGEST, _LARGEST + 1, hint=hint)


def _at_once(read: ir.Read, context: Context) -> pa.Table:
    frame, weights = _rows(read, context)
    if context.trace is not None:
        expect(read, _expected(context.trace, frame), context, context.trace)
    return shape(read, frame, context, weights)


def _expected(trace: Trace, frame: Frame) -> float:
    """About how many rows were expected after the match."""
    estimates = [entry.estimate for entry in trace.steps if entry.estimate is not None]
    return estimates[-1] if estimates else float(frame.count)


def _in_blocks(read: ir.Read, context: Context) -> pa.Table:
    """The result, where all rows of the match at once would take too much memory."""
    context.budget.start_again()
    if context.trace is None:
        return shape_blocks(read, blocks(read, context), context)
    quiet = replace(context, trace=None)
    context.trace.steps.clear()
    with context.trace.step(_BLOCKS, f"block by block, {_shape_text(read)}") as entry:
        quiet.search.go_on_from(context.search)
        table = shape_blocks(read, blocks(read, quiet), quiet)
    entry.rows, entry.size = table.num_rows, table.nbytes
    return table


def _rows(read: ir.Read, context: Context) -> tuple[Frame, Numbers | None]:
    """The rows of the match, and how many each of them stands for, where that is not one."""
    countable = can_be_counted(read, context)
    if countable is None:
        return _listed(read, context), None
    return _counted(countable, context)


def _counted(counting: Counting, context: Context, most: int | None = None) -> tuple[Frame, Numbers]:
    if context.trace is None or not counting.leaves:
        return counted(counting, context, most)
    with context.trace.step(Operator.COUNT, counting.text) as entry:
        found = counted(counting, context, most)
    entry.rows, entry.size = found[0].count, found[0].nbytes + found[1].nbytes
    return found


def _listed(read: ir.Read, context: Context) -> Frame:
    """The rows of the match, or those among which the result is."""
    candidates, most = Candidates.of_block(read.match, context), wanted(read, context)
    ranked = ranked_first(read, most, candidates, context)
    if ranked is not None:
        return rows_of(read, ranked, _best_nodes(read, ranked, context), context)
    portions = in_portions(read, most, candidates, context)
    if portions is None:
        return solutions(read.match, context, candidates)
    if context.trace is None:
        return first_rows(read, portions, context)
    entry = Entry(Operator.PORTIONS, portions.text, portions.wanted, reason=portions.reason)
    with context.trace.taking(entry):
        frame = first_rows(read, portions, context)
    entry.rows, entry.size = frame.count, frame.nbytes
    return frame


def _best_nodes(read: ir.Read, ranked: Ranked, context: Context) -> Frame:
    if context.trace is None:
        return best_nodes(read, ranked, counted(ranked.counting, context, ranked.wanted), context)
    entry = Entry(Operator.RANK, ranked.text, ranked.nodes, reason=ranked.reason)
    with context.trace.taking(entry):
        nodes = best_nodes(read, ranked, _counted(ranked.counting, context, ranked.wanted), context)
    entry.rows, entry.size = nodes.count, nodes.nbytes
    return nodes


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
