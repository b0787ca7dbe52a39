"""Routes of queries that write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.engine.mutate import mutate
from omnigraph.engine.requests import MutateRequest
from omnigraph.engine.session import Session
from omnigraph.errors import InputError
from omnigraph.server import answers
from omnigraph.server.bodies import MutateBody
from omnigraph.server.call import Call
from omnigraph.server.operation import GRAPH, Operation
from omnigraph.server.stored_queries import hiding_stored
from omnigraph.server.work import UNLIMITED, limited


@dataclass(frozen=True, slots=True)
class Mutation:
    """A query that writes, as a request gives it.

    Attributes:
        stored: the name of the stored query; None if the request has the text.
    """

    text: str
    name: str | None
    params: Mapping[str, Any] | None
    branch: str | None
    message: str | None = None
    labels: Mapping[str, str] | None = None
    stored: str | None = None


async def answer_mutation(call: Call, given: Mutation) -> Response:
    """Check the permission, and run a query that writes."""
    branch = call.graph.session.branch_or_default(given.branch)
    call.authorize(Action.CHANGE, branch)
    request = MutateRequest(
        given.text,
        given.params,
        given.name,
        branch,
        expect_head=call.condition(),
        idempotency_key=call.idempotency_key(),
        message=given.message,
        labels=given.labels,
    )

    def work(session: Session) -> dict[str, Any]:
        with hiding_stored(session, given.stored):
            done = limited(lambda: mutate(session, request), UNLIMITED, call.cancel)
        return without_null_actor(done.to_json())

    return await call.answer_write(work, size=len(given.text) + call.received)


def without_null_actor(members: dict[str, Any]) -> dict[str, Any]:
    """An answer without `actor_id` if there is no actor."""
    if members.get("actor_id") is None:
        members.pop("actor_id", None)
    return members


async def run_mutation(call: Call) -> Response:
    body = await call.body(MutateBody)
    text = body.query if body.query is not None else body.query_source
    if text is None:
        raise InputError("body: query: the text of the query is missing")
    name = body.name if body.name is not None else body.query_name
    return await answer_mutation(call, Mutation(text, name, body.params, body.branch, body.message, body.labels))


OPERATIONS = (
    Operation(
        method="POST",
        path=f"{GRAPH}/mutate",
        id="mutate",
        summary="Run a query that writes, as one commit.",
        handle=run_mutation,
        body=MutateBody,
        answer=answers.Change,
        statuses=(409, 424, 503),
        idempotent=True,
    ),
    Operation(
        method="POST",
        path=f"{GRAPH}/mutate/if-graph-commit",
        id="mutate_if_graph_commit",
        summary="Run a query that writes, if a commit is still the head of the branch.",
        handle=run_mutation,
        body=MutateBody,
        answer=answers.Change,
        statuses=(409, 412, 424, 503),
        conditional=True,
        idempotent=True,
    ),
    Operation(
        method="POST",
        path=f"{GRAPH}/change",
        id="change",
        summary="Run a query that writes. Use `mutate` instead.",
        handle=run_mutation,
        body=MutateBody,
        answer=answers.Change,
        statuses=(409, 424, 503),
        successor="mutate",
        idempotent=True,
    ),
)
