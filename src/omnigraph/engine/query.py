"""Query and explain: compile a query that reads, bind its parameters, and run it on one snapshot."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.work_records import WorkKind, reading_if_long
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.engine.former_names import hints_for_former_types
from omnigraph.engine.query_requests import ExplainRequest, QueryRequest
from omnigraph.engine.query_text import query_text
from omnigraph.engine.session import Session
from omnigraph.errors import BudgetExceededError, InputError, OmnigraphError
from omnigraph.evaluate import Request, bind, undeclared
from omnigraph.lang.query import ir
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.read.budget.budget import Budget, Cancellation, Spending, default_budget
from omnigraph.read.columns.cache import ColumnCache, process_cache
from omnigraph.read.context import Context
from omnigraph.read.context.views import View, Views
from omnigraph.read.execute.run import run
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.result.network import Network
from omnigraph.read.result.result import Result, for_people

if TYPE_CHECKING:
    from omnigraph.read.context.trace import Trace
    from omnigraph.read.plan.explanation import Explanation

_NEVER = Cancellation()
"""The cancellation of calls that no one can cancel."""

USE_MUTATE = "run it with mutate"
"""The hint of the error for a query that writes."""


@dataclass(frozen=True, slots=True)
class SnapshotQuery:
    """A query that reads, compiled for one snapshot.

    Attributes:
        query: the query.
        read: the query with a cache of values that all its runs use.
        warnings: constructs that are allowed but probably a mistake.
        view: the snapshot.
        accepted: its schema.
        shared: its columns and topologies.
    """

    session: Session
    query: ir.Query
    read: ReadQuery
    warnings: tuple[str, ...]
    view: Snapshot
    accepted: AcceptedSchema
    shared: View

    def context(self, call: Call, trace: Trace | None = None) -> Context:
        """Bind the parameters of a call.

        Raises:
            ParameterError: a parameter is missing or of the wrong type.
        """
        spending = Spending(call.budget or default_budget(), call.cancel or _NEVER)
        bound = Request(bind(self.query.params, call.params or {}), time.time_ns() // 1_000_000)
        shared = self.shared
        return Context(
            self.view,
            self.accepted,
            bound,
            shared.tables,
            lambda: shared.topologies,
            spending,
            lambda: self.session.embedder,
            trace,
        )

    def answer(self, call: Call) -> Result:
        """Run the query. Raises the same errors as `query`, except those of compilation."""
        context = self.context(call)
        with self.naming_warnings(), self.recorded():
            table = run(self.read, context)
        at = self.view.commit.id
        return Result(
            query_name=self.query.name,
            branch=None if call.fixed else self.view.branch,
            snapshot=at if call.fixed else None,
            graph_commit_id=at,
            _table=for_people(table),
            _network=Network(self.read.read, self.accepted.catalog),
            warnings=(*self._undeclared(call.params or {}), *self.warnings),
        )

    def recorded(self) -> AbstractContextManager[None]:
        """Keep a record of the read if it takes long."""
        return reading_if_long(self.session.store.leases, WorkKind.QUERY, self.view.manifest)

    @contextmanager
    def naming_warnings(self) -> Iterator[None]:
        """If the query exceeds its budget, add its warnings to the hint. They are the likely reason."""
        try:
            yield
        except BudgetExceededError as error:
            if not self.warnings:
                raise
            hint = "; ".join([*self.warnings, *([error.hint] if error.hint else [])])
            exceeded = BudgetExceededError(error.resource, error.limit, error.actual, hint=hint)
            raise exceeded.with_traceback(error.__traceback__) from None

    def _undeclared(self, given: Mapping[str, object]) -> list[str]:
        return [f"the query has no parameter ${name}" for name in undeclared(self.query.params, given)]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a query.

    Attributes:
        fixed: whether the caller named the snapshot, and not a branch.
    """

    params: Mapping[str, object] | None
    budget: Budget | None
    cancel: Cancellation | None
    fixed: bool

    @classmethod
    def of(cls, request: QueryRequest) -> Call:
        return cls(request.params, request.budget, request.cancel, request.at is not None)


def query(
    session: Session, request: QueryRequest, view: Snapshot | None = None, rules_of: Manifest | None = None
) -> Result:
    """Run a query on one snapshot.

    Args:
        session: the session.
        request: the query.
        view: the snapshot, if the caller has it, and has checked that the actor may read it. Then the request names no
            other.
        rules_of: the state whose rules apply; by default the snapshot itself.

    Raises:
        AccessDeniedError: the policy does not allow the actor to read the branch or a type.
        CompileError: the query does not compile.
        InputError: the query writes.
        ParameterError: a parameter is missing or of the wrong type.
        BudgetExceededError: the query exceeds its budget.
    """
    if view is None:
        view = session.readable(request.branch, request.at)
    return on_snapshot(session, query_text(request.text), request.name, view, rules_of).answer(Call.of(request))


def on_snapshot(
    session: Session, text: str, name: str | None, view: Snapshot, rules_of: Manifest | None = None
) -> SnapshotQuery:
    """Compile a query against the schema of a snapshot.

    Args:
        session: the session.
        text: one or more queries.
        name: the name of the query; None if the text has only one.
        view: the snapshot.
        rules_of: the state whose rules apply; by default the snapshot itself.

    Raises:
        AccessDeniedError: the policy does not allow the actor to read a type.
        CompileError: the query does not compile.
        InputError: the query writes.
    """
    accepted = session.schemas.at(view)
    with hints_for_former_types(session.store, view.manifest):
        compiled = session.compiled.find(text, name, accepted.catalog, view.schema_hash)
    if compiled.read is None:
        raise InputError(f"'{compiled.query.name}' is a query that writes", hint=USE_MUTATE)
    if session.access is not None:
        _require_types(session, compiled.query, accepted, rules_of or view.manifest)
    shared = session.views.of(view, accepted)
    return SnapshotQuery(session, compiled.query, compiled.read, compiled.warnings, view, accepted, shared)


def _require_types(session: Session, query: ir.Query, accepted: AcceptedSchema, view: Manifest) -> None:
    """Check that the actor may read the types of a query."""
    scope = session.scope(Action.READ, view)
    if scope is not None and scope.has_hidden_types:
        from omnigraph.lang.query import describe

        session.require_types(Action.READ, view, [ref.key for ref in describe(query, accepted.catalog).reads])


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
    from omnigraph.read.context.trace import Trace
    from omnigraph.read.execute.executor import execute
    from omnigraph.read.execute.executor import explain as explain_plan
    from omnigraph.read.plan.explanation import Explanation

    trace = Trace()
    view = session.readable(request.branch, request.at)
    one = on_snapshot(session, query_text(request.text), request.name, view)
    is_restricted = session.whole is not None
    if is_restricted:
        # With the cache of the process, the plan would tell whether somebody has written hidden rows since the last
        # read of a type.
        one = replace(one, shared=Views(ColumnCache(process_cache().limit)).of(view, one.accepted))
    context = one.context(Call.of(request), trace)
    branch, snapshot = (None, view.commit.id) if request.at is not None else (view.branch, None)
    if not request.analyze:
        plan = explain_plan(one.read, context)
        return Explanation(one.query, branch, snapshot, tuple(trace.steps), statistics=plan.statistics)
    started = time.perf_counter()
    with one.naming_warnings(), one.recorded():
        done = execute(one.read, context)
    seconds = time.perf_counter() - started
    made = Explanation(
        one.query,
        branch,
        snapshot,
        tuple(trace.steps),
        context.budget,
        seconds,
        done.table.num_rows,
        done.plan.statistics,
    )
    return made.without_bytes() if is_restricted else made
