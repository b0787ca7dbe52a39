"""The executor: runs a physical plan, in memory or in chunks with spill files."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import BudgetExceededError
from omnigraph.lang.query import ir
from omnigraph.read.context.context import Context
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.context.trace import Entry, Trace
from omnigraph.read.execute.point_lookup import point_lookup
from omnigraph.read.match.all_rows import AllRows
from omnigraph.read.match.chunked_match import is_out_of_memory, match_in_chunks
from omnigraph.read.match.count import Count
from omnigraph.read.plan.explain_steps import explain_steps, shape_rows
from omnigraph.read.plan.plan import Plan
from omnigraph.read.plan.planner import Planner
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.shape.operator import MatchRows, ShapeRows, ShapeRun, row_bytes, row_count
from omnigraph.read.shape.out_of_core import rows_exceed_disk, shape_chunks

_LOG = logging.getLogger("omnigraph.read.plan")
"""At level DEBUG, logs the estimated and actual number of output rows of every operator."""

_MAX_ARRAY_BYTES = 2**31 - 1
"""Maximum number of bytes of text in one Arrow array."""

OVERFLOW_MESSAGES = ("overflowed binary array capacity", "offset overflow")
"""Texts in the error messages of Arrow that mean that an array is too large."""

MEMORY_RATIO = 1
"""The rows of a match are processed in chunks if they take more than 1 / `MEMORY_RATIO` of the memory budget."""


@dataclass(frozen=True, slots=True)
class Execution:
    """A finished read: its result, and the plan that was executed."""

    table: pa.Table
    plan: Plan


def run(query: ReadQuery, context: Context) -> pa.Table:
    """Plan and run a read, and return its result.

    Raises:
        BudgetExceededError: the read exceeds a limit.
        CancelledError: the read was cancelled.
    """
    found = None if _LOG.isEnabledFor(logging.DEBUG) else point_lookup(query, context)
    return execute(query, context).table if found is None else found


def explain(query: ReadQuery, context: Context) -> Plan:
    """Choose the plan of a read and record its operators in the trace, without running it.

    Conditions on single variables are evaluated if this is cheap, because the join order depends on the number of nodes
    that satisfy them.
    """
    assert context.trace is not None
    with context.budget.running():
        planner = Planner(query, context)
        plan = planner.plan()
        context.trace.adopt(explain_steps(plan, planner.match))
        return plan


def execute(query: ReadQuery, context: Context) -> Execution:
    """Plan and run a read, and return its result and the executed plan.

    Raises:
        BudgetExceededError: the read exceeds a limit.
        CancelledError: the read was cancelled.
    """
    if context.trace is None and _LOG.isEnabledFor(logging.DEBUG):
        trace = Trace()
        done = execute(query, replace(context, trace=trace))
        trace.log(_LOG)
        return done
    with context.budget.running():
        context.search.prepare(query)
        most = context.budget.most
        if (
            most is None or query.has_fusion
        ):  # the scores of a rank fusion depend on all rows, so such a read is not divided into chunks
            with _allocation_errors(context):
                return _in_memory(query, context)
        try:
            with context.budget.at_most(most // MEMORY_RATIO), _allocation_errors(context):
                return _in_memory(query, context)
        except BudgetExceededError as error:
            if not is_out_of_memory(error) or rows_exceed_disk(query, error.actual, context):
                raise
        with _allocation_errors(context):
            return _in_chunks(query, context)


@contextmanager
def _allocation_errors(context: Context) -> Iterator[None]:
    """Re-raise allocation failures as BudgetExceededError."""
    try:
        yield
    except pa.ArrowCapacityError as error:
        raise _column_too_large() from error
    except pa.ArrowInvalid as error:
        if not any(message in str(error) for message in OVERFLOW_MESSAGES):
            raise
        raise _column_too_large() from error
    except MemoryError as error:  # pa.ArrowMemoryError is a subclass
        taken = context.budget.peak
        hint = (
            "the operating system gave the process no more memory: make the query more selective, or lower its memory "
            "budget, so that it writes rows to disk earlier"
        )
        raise BudgetExceededError("bytes", taken, taken, hint=hint) from error


def _column_too_large() -> BudgetExceededError:
    hint = "a result column can have at most 2 GiB of text: return fewer rows, or shorter texts"
    return BudgetExceededError("bytes", _MAX_ARRAY_BYTES, _MAX_ARRAY_BYTES + 1, hint=hint)


def _in_memory(query: ReadQuery, context: Context) -> Execution:
    planner = Planner(query, context)
    plan = planner.plan()
    rows: ShapeRows = MatchRows(*plan.match.execute(planner.match))
    run_, trace = ShapeRun(query, context), context.trace
    if trace is None:
        for operator in plan.shape:
            rows = operator.execute(rows, run_)
        return Execution(rows, plan)
    for operator, estimate in zip(plan.shape, list(shape_rows(plan, query, context)), strict=True):
        with trace.running(Entry(operator.name, operator.text, estimate)) as entry:
            rows = operator.execute(rows, run_)
        entry.rows, entry.size = row_count(rows), row_bytes(rows)
    return Execution(rows, plan)


def _in_chunks(query: ReadQuery, context: Context) -> Execution:
    """Run a read whose rows do not fit the memory budget at once."""
    context.budget.restart()
    if context.trace is None:
        return _shape_in_chunks(query, context)
    untraced = replace(context, trace=None)
    untraced.search.share_queries(context.search)
    context.trace.steps.clear()
    with context.trace.step(OperatorName.CHUNKS, f"in chunks, {_shape_text(query.read)}") as entry:
        done = _shape_in_chunks(query, untraced)
    entry.rows, entry.size = done.table.num_rows, done.table.nbytes
    return done


def _shape_in_chunks(query: ReadQuery, context: Context) -> Execution:
    planner = Planner(query, context)
    plan = planner.plan(in_chunks=True)
    assert isinstance(plan.match, AllRows | Count)
    chunks = (MatchRows(*rows) for rows in match_in_chunks(plan.match, planner.match))
    return Execution(shape_chunks(plan.shape, chunks, query, context), plan)


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
