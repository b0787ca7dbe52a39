"""Routes of queries and stored queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.responses import Response

from omnigraph.commit.manifest import MAIN
from omnigraph.commit.snapshots import Snapshot
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.engine.query import USE_MUTATE, on_snapshot
from omnigraph.engine.query import Call as QueryCall
from omnigraph.engine.query_requests import QueryRequest
from omnigraph.engine.query_text import query_text
from omnigraph.engine.session import Session
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.read.result.result import Result
from omnigraph.server import answers
from omnigraph.server.bodies import (
    BudgetBody,
    ConditionalInvokeBody,
    InvokeBody,
    QueryBody,
    ReadBody,
)
from omnigraph.server.call import Call
from omnigraph.server.mutate_routes import Mutation, answer_mutation
from omnigraph.server.operation import GRAPH, Operation
from omnigraph.server.paging import Paging
from omnigraph.server.query_parameters import CURSOR, LIMIT
from omnigraph.server.result_formats import JSON, NDJSON, RESULT_MEDIA, arrow_result, json_result, ndjson_result
from omnigraph.server.stored_queries import StoredQuery, hiding_stored, no_such_query

B = TypeVar("B", bound=BaseModel)

COMMIT_HEADER = "Omnigraph-Graph-Commit-Id"
"""The header of streamed results: the newest commit that the query could see."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A query that reads, as a request gives it.

    Attributes:
        stored: the name of the stored query; None if the request has the text.
    """

    text: str
    name: str | None
    params: Mapping[str, Any] | None
    branch: str | None
    snapshot: str | None
    budget: BudgetBody | None = None
    stored: str | None = None

    def run(self, call: Call, session: Session) -> Result:
        """Check the permission, and run the query.

        Raises:
            ForbiddenError: the actor may not read the branch.
            InputError: the query writes.
        """
        view = readable(call, session, self.branch, self.snapshot)
        text = query_text(self.text)
        request = QueryRequest(
            text,
            self.params,
            self.name,
            at=None if self.snapshot is None else view,
            budget=call.budget(self.budget),
            cancel=call.cancel,
        )
        try:
            with hiding_stored(session, self.stored):
                compiled = on_snapshot(session, text, self.name, view)
        except InputError as error:
            if error.hint != USE_MUTATE:
                raise
            raise InputError(f"{error.message}: send it to /mutate", hint="send the query to /mutate") from None
        return compiled.answer(QueryCall.of(request))


def readable(call: Call, session: Session, branch: str | None, snapshot: str | None) -> Snapshot:
    """The snapshot to read, if the actor may read its branch.

    Raises:
        InputError: both a branch and a snapshot are given.
        ForbiddenError: the actor may not read it.
    """
    if snapshot is None:
        name = session.branch_or_default(branch)
        call.authorize(Action.READ, name)
        return session.readable(name, None)
    if branch is not None:
        raise InputError("give branch or snapshot, not both: a snapshot already belongs to a branch")
    if session.access is not None:
        return session.readable(None, snapshot)  # a denial does not show whether the commit exists
    view = session.snapshot(commit=snapshot)
    call.authorize(Action.READ, view.commit.branch, names_branch=False)
    return view


async def answer_query(call: Call, reading: Reading) -> Response:
    """Run a query, and answer in the media type that the client prefers."""
    media = call.accepts(*RESULT_MEDIA)
    if media == JSON:
        return await call.answer_text(lambda session: json_result(reading.run(call, session)))
    found: list[Result] = []

    def produce(session: Session) -> Iterator[bytes]:
        found.append(reading.run(call, session))
        return ndjson_result(found[0]) if media == NDJSON else arrow_result(found[0])

    return await call.stream(produce, media, headers=lambda: {COMMIT_HEADER: str(found[0].graph_commit_id)})


async def run_query(call: Call) -> Response:
    body = await call.body(QueryBody)
    return await answer_query(
        call, Reading(body.query, body.name, body.params, body.branch, body.snapshot, body.budget)
    )


async def run_read(call: Call) -> Response:
    body = await call.body(ReadBody)
    reading = Reading(body.query_source, body.query_name, body.params, body.branch, body.snapshot)
    return await call.answer_text(lambda session: json_result(reading.run(call, session), frozen=True))


async def list_queries(call: Call) -> Response:
    call.authorize(Action.READ, MAIN)
    paging = Paging.of(call)

    def work(session: Session) -> dict[str, Any]:
        def sees(query: StoredQuery) -> bool:
            return session.whole is None or query.fits(session)

        queries = call.graph.queries
        entries = [query.to_json(queries.successor(query, sees)) for query in queries if sees(query)]
        return paging.of_names("queries", entries, itemgetter("name"))

    return await call.answer_read(work)


async def _invocable(call: Call, model: type[B]) -> tuple[StoredQuery, B]:
    """The stored query that the path names, and the body.

    Raises:
        NotFoundError: there is no such query, or the actor may not invoke it, or does not see all that it names.
    """
    name = call.path("name")
    if not call.is_allowed(Action.INVOKE_QUERY):
        raise no_such_query(name)
    named, is_limited = call.graph.queries.named(name), call.graph.limits(call.actor)
    if not named and not is_limited:
        raise no_such_query(name)
    body: B | OmnigraphError
    try:
        body = await call.body(model, optional=True)
    except OmnigraphError as error:
        body = error
    if is_limited:
        # After the body has arrived, but before its errors: those of a hidden query would show that it exists.
        named = await call.read(lambda session: [one for one in named if one.fits(session)][:1])
        if not named:
            raise no_such_query(name)
    query = named[0]
    if query.deprecated is not None:
        call.deprecate(await _successor(call, query))
    if isinstance(body, OmnigraphError):
        raise body
    return query, body


async def _successor(call: Call, query: StoredQuery) -> str:
    """The address of the query that replaces another one, relative to the path of the request; empty if none does."""
    queries = call.graph.queries
    if call.graph.limits(call.actor):
        found = await call.read(lambda session: queries.successor(query, lambda one: one.fits(session)))
    else:
        found = queries.successor(query, lambda one: True)
    return f"../{found}/if-graph-commit" if found and call.operation.conditional else found


async def invoke_query(call: Call) -> Response:
    query, body = await _invocable(call, InvokeBody)
    _check_kind(query, body.expect_mutation)
    if query.mutation:
        return await _invoke_mutation(call, query, body)
    if call.idempotency_key() is not None:
        raise InputError(f"'{query.name}' reads, so it takes no idempotency key", hint="send the request without it")
    reading = Reading(query.text, query.name, body.params, body.branch, body.snapshot, body.budget, call.path("name"))
    return await answer_query(call, reading)


async def invoke_conditionally(call: Call) -> Response:
    query, body = await _invocable(call, ConditionalInvokeBody)
    _check_kind(query, body.expect_mutation)
    if not query.mutation:
        raise InputError(f"'{query.name}' reads: only a query that writes takes a condition")
    return await _invoke_mutation(call, query, body)


async def _invoke_mutation(call: Call, query: StoredQuery, body: InvokeBody | ConditionalInvokeBody) -> Response:
    if body.snapshot is not None:
        raise InputError(f"'{query.name}' writes, so it cannot run on a snapshot", hint="give a branch")
    mutation = Mutation(query.text, query.name, body.params, body.branch, body.message, body.labels, call.path("name"))
    return await answer_mutation(call, mutation)


def _check_kind(query: StoredQuery, expected: bool | None) -> None:
    if expected is not None and expected != query.mutation:
        raise InputError(
            f"the stored query '{query.name}' {'writes' if query.mutation else 'reads'}",
            hint="send another value of expect_mutation, or none",
        )


OPERATIONS = (
    Operation(
        method="POST",
        path=f"{GRAPH}/query",
        id="query",
        summary="Run a query that reads.",
        handle=run_query,
        body=QueryBody,
        answer=answers.Read,
        media=RESULT_MEDIA,
        statuses=(503,),
    ),
    Operation(
        method="POST",
        path=f"{GRAPH}/read",
        id="read",
        summary="Run a query that reads. Use `query` instead.",
        handle=run_read,
        body=ReadBody,
        answer=answers.LegacyRead,
        statuses=(503,),
        successor="query",
    ),
    Operation(
        method="GET",
        path=f"{GRAPH}/queries",
        id="list_queries",
        summary="List the stored queries.",
        handle=list_queries,
        answer=answers.Queries,
        query=(LIMIT, CURSOR),
    ),
    Operation(
        method="POST",
        path=f"{GRAPH}/queries/{{name}}",
        id="invoke_query",
        summary="Run a stored query. The answer is that of `query` or of `mutate`.",
        handle=invoke_query,
        body=InvokeBody,
        body_required=False,
        answer=answers.Invoked,
        media=RESULT_MEDIA,
        statuses=(409, 424, 503),
        idempotent=True,
    ),
    Operation(
        method="POST",
        path=f"{GRAPH}/queries/{{name}}/if-graph-commit",
        id="invoke_query_if_graph_commit",
        summary="Run a stored query that writes, if a commit is still the head of the branch.",
        handle=invoke_conditionally,
        body=ConditionalInvokeBody,
        body_required=False,
        answer=answers.Change,
        statuses=(409, 412, 424, 503),
        conditional=True,
        idempotent=True,
    ),
)
