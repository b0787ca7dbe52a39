"""A read through the handle of a graph: the query, the view it sees, and the result."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, TypeVar

from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.work_records import WorkKind, reading_if_long
from omnigraph.errors import BudgetExceededError, InputError, OmnigraphError, cut, shown
from omnigraph.evaluate import Request, bind, undeclared
from omnigraph.lang.query import ir
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.read.budget import Budget, Cancellation, Spending
from omnigraph.read.context import Context
from omnigraph.read.context.trace import Trace
from omnigraph.read.execute.executor import execute, run
from omnigraph.read.execute.executor import explain as explain_plan
from omnigraph.read.plan.explanation import Explanation
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.result.network import Network
from omnigraph.read.result.result import Result, for_people

if TYPE_CHECKING:
    from omnigraph.graph.graph import Graph

T = TypeVar("T")

QueryText = str | os.PathLike[str]
"""Queries, or the path of a `.gq` file."""


def query_text(given: object) -> str:
    """The queries of a text or of a file.

    Raises:
        InputError: the file cannot be read, or the text is the name of one.
    """
    if isinstance(given, str):
        if given.endswith(".gq") and len(given.split()) == 1:
            hint = "this looks like the name of a file: give a pathlib.Path, or the text of the file"
            raise InputError(f"'{cut(given)}' is not a query", hint=hint)
        return given
    if not isinstance(given, os.PathLike):
        hint = "give its text, or the path of a file"
        raise InputError(f"the query is {shown(given)}, of type {type(given).__name__}", hint=hint)
    path = Path(given)
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8") from error


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a caller says about a read; `Graph.query` describes it."""

    text: str
    params: Mapping[str, object]
    name: str | None
    budget: Budget = field(default_factory=Budget)
    cancel: Cancellation = field(default_factory=Cancellation)

    def __post_init__(self) -> None:
        expected: tuple[tuple[str, object, type | tuple[type, ...], str], ...] = (
            ("params", self.params, Mapping, "give a mapping from names to values"),
            ("name", self.name, (str, NoneType), "give the name of a query in the text"),
            ("budget", self.budget, Budget, "give an omnigraph.Budget"),
            ("cancel", self.cancel, Cancellation, "give an omnigraph.Cancellation"),
        )
        for what, value, kind, hint in expected:
            if not isinstance(value, kind):
                raise InputError(f"{what} is {shown(value)}, of type {type(value).__name__}", hint=hint)


@dataclass(frozen=True, slots=True)
class _Prepared:
    query: ir.Query
    read: ReadQuery
    warnings: tuple[str, ...]
    accepted: AcceptedSchema
    context: Context


def query(graph: Graph, request: ReadRequest, view: Snapshot, *, named: bool) -> Result:
    """Run a query that reads.

    Args:
        graph: the handle.
        request: what is asked for.
        view: what it sees.
        named: whether the caller named this state, and not just the branch.
    """
    prepared = _prepared(graph, request, view)
    with _telling(prepared), reading_if_long(graph._store.leases, WorkKind.QUERY, view.manifest):
        table = run(prepared.read, prepared.context)
    branch, snapshot = _target(view, named)
    return Result(
        query_name=prepared.query.name,
        branch=branch,
        snapshot=snapshot,
        graph_commit_id=view.commit.id,
        _table=for_people(table),
        _network=Network(prepared.read.read, prepared.accepted.catalog),
        warnings=tuple(_warnings(prepared, request)),
    )


def explain(graph: Graph, request: ReadRequest, view: Snapshot, *, named: bool, analyze: bool) -> Explanation:
    """Say how a query that reads is answered; `query` describes the arguments.

    Args:
        graph: the handle.
        request: what is asked for.
        view: what it sees.
        named: whether the caller named this state, and not just the branch.
        analyze: run it, too.
    """
    trace = Trace()
    prepared = _prepared(graph, request, view, trace)
    branch, snapshot = _target(view, named)
    if not analyze:
        plan = explain_plan(prepared.read, prepared.context)
        return Explanation(prepared.query, branch, snapshot, tuple(trace.steps), statistics=plan.statistics)
    spent = prepared.context.budget
    started = time.perf_counter()
    with _telling(prepared), reading_if_long(graph._store.leases, WorkKind.QUERY, view.manifest):
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


def _target(view: Snapshot, named: bool) -> tuple[str | None, str | None]:
    return (None, view.commit.id) if named else (view.branch, None)


async def aside(work: Callable[[], T], cancel: Cancellation) -> T:
    """Do something in a thread. When the task is cancelled, so is the work, and the thread has ended then."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        cancel.cancel()
        with suppress(OmnigraphError):
            await running
        raise


def _prepared(graph: Graph, request: ReadRequest, view: Snapshot, trace: Trace | None = None) -> _Prepared:
    """A query, compiled and with its parameters, for the schema of a view.

    Raises:
        InputError: it writes.
    """
    spending = Spending(request.budget, request.cancel)
    accepted = graph._schema_at(view)
    compiled = graph._compiled.find(request.text, request.name, accepted.catalog, view.schema_hash)
    query = compiled.query
    if compiled.read is None:
        raise InputError(f"'{query.name}' is a query that writes", hint="give it to mutate")
    bound = Request(bind(query.params, request.params), time.time_ns() // 1_000_000)
    shared = graph._views.of(view, accepted)
    context = Context(view, accepted, bound, shared.tables, shared.topologies, spending, lambda: graph.embedder, trace)
    return _Prepared(query, compiled.read, compiled.warnings, accepted, context)


@contextmanager
def _telling(prepared: _Prepared) -> Iterator[None]:
    """What may not be as it was meant is the likely reason when a query takes too much: say it then, too."""
    try:
        yield
    except BudgetExceededError as error:
        if not prepared.warnings:
            raise
        hint = "; ".join([*prepared.warnings, *([error.hint] if error.hint else [])])
        told = BudgetExceededError(error.resource, error.limit, error.actual, hint=hint)
        raise told.with_traceback(error.__traceback__) from None


def _warnings(prepared: _Prepared, request: ReadRequest) -> Iterator[str]:
    for name in undeclared(prepared.query.params, request.params):
        yield f"the query has no parameter ${name}"
    yield from prepared.warnings
