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
from omnigraph.read.execute.stages import as_query, rows_of_table, stage_text
from omnigraph.read.match.all_rows import AllRows
from omnigraph.read.match.chunked_match import is_out_of_memory, match_in_chunks
from omnigraph.read.match.count import Count
from omnigraph.read.plan.explain_steps import explain_steps, shape_rows
from omnigraph.read.plan.plan import Plan
from omnigraph.read.plan.planner import Planner
from omnigraph.read.plan.statistics import Statistics
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.rows.frame import Frame
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


def explain(query: ReadQuery, context: Context) -> Plan:
    """Choose the plan of a read and record its operators in the trace, without running it.

    Conditions on single variables are evaluated if this is cheap, because the join order depends on the number of nodes
    that satisfy them.
    """
    assert context.trace is not None
    with context.budget.running():
        stage, rows = None, 1.0
        statistics: tuple[Statistics, ...] = ()
        for part in (*query.stages, query):
            planner = Planner(part, context, stage, rows)
            plan = planner.plan()
            steps = explain_steps(plan, planner.match)
            if part.is_stage:
                entry = Entry(OperatorName.STAGE, stage_text(part), steps[-1].estimate)
                entry.steps.extend(steps)
                steps = [entry]
            context.trace.adopt(steps)
            stage, rows = part, steps[-1].estimate or 0.0
            statistics = (*statistics, *plan.statistics)
        return replace(plan, statistics=statistics)


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
            most is None or query.has_fusion or any(stage.has_fusion for stage in query.stages)
        ):  # the scores of a rank fusion depend on all rows, so such a read is not divided into chunks
            with _allocation_errors(context):
                return _in_memory(query, context)
        try:
            with context.budget.at_most(most // MEMORY_RATIO), _allocation_errors(context):
                return _in_memory(query, context)
        except BudgetExceededError as error:
            if not is_out_of_memory(error) or (not query.stages and rows_exceed_disk(query, error.actual, context)):
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
    stage, before = None, None
    statistics: tuple[Statistics, ...] = ()
    for part in query.stages:
        with _room_beside(before, context):
            rows, plan = _run_stage(part, context, stage, before)
        stage, before, statistics = part, rows, (*statistics, *plan.statistics)
    with _room_beside(before, context):
        table, plan = _run(query, context, stage, before)
    assert isinstance(table, pa.Table)
    return Execution(table, replace(plan, statistics=(*statistics, *plan.statistics)))


@contextmanager
def _room_beside(rows: Frame | None, context: Context) -> Iterator[None]:
    """Reserve the memory of the rows of a stage, while the next stage runs."""
    most = context.budget.most
    if rows is None or most is None:
        yield
        return
    context.budget.hold(rows.nbytes)
    with context.budget.at_most(most - rows.nbytes):
        context.budget.hold(0)
        yield


def _run_stage(query: ReadQuery, context: Context, stage: ReadQuery | None, before: Frame | None) -> tuple[Frame, Plan]:
    """Run a stage in memory. Returns the rows that go on."""
    if context.trace is None:
        rows, plan = _run(query, context, stage, before)
        assert isinstance(rows, MatchRows)
        return rows.frame, plan
    with context.trace.step(OperatorName.STAGE, stage_text(query)) as entry:
        rows, plan = _run(query, context, stage, before)
    assert isinstance(rows, MatchRows)
    entry.rows, entry.size = rows.frame.count, rows.frame.nbytes
    return rows.frame, plan


def _run(query: ReadQuery, context: Context, stage: ReadQuery | None, before: Frame | None) -> tuple[ShapeRows, Plan]:
    """Run a match and its shape operators in memory, with the rows of the stage before it."""
    planner = Planner(query, context, stage, 1.0 if before is None else before)
    plan = planner.plan()
    rows: ShapeRows = MatchRows(*plan.match.execute(planner.match))
    run_, trace = ShapeRun(query, context), context.trace
    if trace is None:
        for operator in plan.shape:
            rows = operator.execute(rows, run_)
        return rows, plan
    for operator, estimate in zip(plan.shape, list(shape_rows(plan, query, context)), strict=True):
        with trace.running(Entry(operator.name, operator.text, estimate)) as entry:
            rows = operator.execute(rows, run_)
        entry.rows, entry.size = row_count(rows), row_bytes(rows)
    return rows, plan


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
    stage, before = None, None
    for part in query.stages:
        with _room_beside(before, context):
            before = _stage_in_chunks(part, context, stage, before)
        stage = part
    with _room_beside(before, context):
        return _table_in_chunks(query, context, stage, before)


def _stage_in_chunks(query: ReadQuery, context: Context, stage: ReadQuery | None, before: Frame | None) -> Frame:
    """Run a stage in memory if it fits the budget, else in chunks. Returns the rows that go on."""
    most, seen = context.budget.most, context.budget.rows
    try:
        with context.budget.at_most(None if most is None else most // MEMORY_RATIO):
            return _run_stage(query, context, stage, before)[0]
    except BudgetExceededError as error:
        if not is_out_of_memory(error) or query.has_fusion:
            raise
    context.budget.rows = seen
    context.budget.hold(0)
    with context.budget.within_stage():
        table = _table_in_chunks(as_query(query), context, stage, before).table
    return rows_of_table(table, query, before, context)


def _table_in_chunks(query: ReadQuery, context: Context, stage: ReadQuery | None, before: Frame | None) -> Execution:
    planner = Planner(query, context, stage, 1.0 if before is None else before)
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
