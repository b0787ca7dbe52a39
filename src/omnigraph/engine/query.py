"""Query and explain: compile a query that reads, bind its parameters, and run it on one snapshot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.work_records import WorkKind, reading_if_long
from omnigraph.dataclass import dataclass
from omnigraph.engine.former_names import hints_for_former_types
from omnigraph.engine.query_requests import ExplainRequest, QueryRequest
from omnigraph.engine.query_text import query_text
from omnigraph.engine.session import Session
from omnigraph.errors import BudgetExceededError, InputError, OmnigraphError
from omnigraph.evaluate import Request, bind, undeclared
from omnigraph.lang.query import ir
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.read.budget.budget import Cancellation, Spending, default_budget
from omnigraph.read.context import Context
from omnigraph.read.context.trace import Trace
from omnigraph.read.execute.executor import execute, run
from omnigraph.read.execute.executor import explain as explain_plan
from omnigraph.read.plan.explanation import Explanation
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.result.network import Network
from omnigraph.read.result.result import Result, for_people


@dataclass(frozen=True, slots=True)
class _Prepared:
    query: ir.Query
    read: ReadQuery
    warnings: tuple[str, ...]
    accepted: AcceptedSchema
    context: Context


def query(session: Session, request: QueryRequest) -> Result:
    """Run a query on one snapshot.

    Raises:
        CompileError: the query does not compile.
        InputError: the query writes.
        ParameterError: a parameter is missing or of the wrong type.
        BudgetExceededError: the query exceeds its budget.
    """
    view = session.snapshot_at(request.branch, request.at)
    prepared = _prepared(session, request, view)
    with _with_warnings(prepared), reading_if_long(session.store.leases, WorkKind.QUERY, view.manifest):
        table = run(prepared.read, prepared.context)
    branch, snapshot = _target(view, request)
    return Result(
        query_name=prepared.query.name,
        branch=branch,
        snapshot=snapshot,
        graph_commit_id=view.commit.id,
        _table=for_people(table),
        _network=Network(prepared.read.read, prepared.accepted.catalog),
        warnings=tuple(_warnings(prepared, request)),
    )


async def async_query(session: Session, request: QueryRequest) -> Result:
    """Run a query in a thread. Cancelling the task cancels the query and waits for the thread to end."""
    import asyncio

    cancel = request.cancel or Cancellation()
    running = asyncio.ensure_future(asyncio.to_thread(query, session, replace(request, cancel=cancel)))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        cancel.cancel()
        with suppress(OmnigraphError):
            await running
        raise


def explain(session: Session, request: ExplainRequest) -> Explanation:
    """Plan a query. With `analyze`, also run it. Raises the same errors as `query`."""
    trace = Trace()
    view = session.snapshot_at(request.branch, request.at)
    prepared = _prepared(session, request, view, trace)
    branch, snapshot = _target(view, request)
    if not request.analyze:
        plan = explain_plan(prepared.read, prepared.context)
        return Explanation(prepared.query, branch, snapshot, tuple(trace.steps), statistics=plan.statistics)
    spent = prepared.context.budget
    started = time.perf_counter()
    with _with_warnings(prepared), reading_if_long(session.store.leases, WorkKind.QUERY, view.manifest):
        done = execute(prepared.read, prepared.context)
    seconds = time.perf_counter() - started
    return Explanation(
        prepared.query,
        branch,
        snapshot,
        tuple(trace.steps),
        spent,
        seconds,
        done.table.num_rows,
        done.plan.statistics,
    )


def _target(view: Snapshot, request: QueryRequest) -> tuple[str | None, str | None]:
    """The branch of the request, or its snapshot."""
    return (None, view.commit.id) if request.at is not None else (view.branch, None)


def _prepared(session: Session, request: QueryRequest, view: Snapshot, trace: Trace | None = None) -> _Prepared:
    """Compile a query against the schema of a snapshot, and bind its parameters.

    Raises:
        InputError: the query writes.
    """
    spending = Spending(request.budget or default_budget(), request.cancel or Cancellation())
    accepted = session.schemas.at(view)
    with hints_for_former_types(session.store, view.manifest):
        compiled = session.compiled.find(query_text(request.text), request.name, accepted.catalog, view.schema_hash)
    query = compiled.query
    if compiled.read is None:
        raise InputError(f"'{query.name}' is a query that writes", hint="run it with mutate")
    bound = Request(bind(query.params, request.params or {}), time.time_ns() // 1_000_000)
    shared = session.views.of(view, accepted)
    context = Context(
        view, accepted, bound, shared.tables, shared.topologies, spending, lambda: session.embedder, trace
    )
    return _Prepared(query, compiled.read, compiled.warnings, accepted, context)


@contextmanager
def _with_warnings(prepared: _Prepared) -> Iterator[None]:
    """If the query exceeds its budget, add its warnings to the hint. They are the likely reason."""
    try:
        yield
    except BudgetExceededError as error:
        if not prepared.warnings:
            raise
        hint = "; ".join([*prepared.warnings, *([error.hint] if error.hint else [])])
        exceeded = BudgetExceededError(error.resource, error.limit, error.actual, hint=hint)
        raise exceeded.with_traceback(error.__traceback__) from None


def _warnings(prepared: _Prepared, request: QueryRequest) -> Iterator[str]:
    for name in undeclared(prepared.query.params, request.params or {}):
        yield f"the query has no parameter ${name}"
    yield from prepared.warnings
