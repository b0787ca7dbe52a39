"""Routes that load rows."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from omnigraph.commit.manifest import MAIN
from omnigraph.commit.ref_names import branch_name
from omnigraph.engine.access import Action
from omnigraph.engine.load import load
from omnigraph.engine.requests import LoadRequest
from omnigraph.engine.session import Session
from omnigraph.errors import InputError, cut
from omnigraph.server import answers
from omnigraph.server.bodies import LoadBody
from omnigraph.server.call import Call
from omnigraph.server.mutate_routes import without_null_actor
from omnigraph.server.operation import GRAPH, Operation
from omnigraph.server.query_parameters import BRANCH, QueryParameter

MODES = ("append", "merge", "overwrite")
NDJSON_TYPES = ("application/x-ndjson", "application/ndjson")


def _load(call: Call, session: Session, data: bytes, request: LoadRequest) -> dict[str, Any]:
    """Run a load. Creating its branch needs its own permission."""
    branch, base = str(request.branch), request.base
    if base is not None and branch != MAIN and session.store.branch_identifier(branch) is None:
        call.authorize(Action.BRANCH_CREATE, base, branch)
    members = without_null_actor(load(session, data, request).to_json())
    for name in ("engine", "why"):
        del members[name]
    for name in ("base_branch", "commit"):
        if members[name] is None:
            del members[name]
    if not members["coerced"]:
        del members["coerced"]
    return members


def _request(call: Call, branch: str | None, base: str | None, mode: str, **options: Any) -> LoadRequest:
    """The request of a load, after the check of its permission."""
    name = call.graph.session.branch_or_default(branch)
    call.authorize(Action.CHANGE, name)
    return LoadRequest(
        mode=mode,
        branch=name,
        base=None if base is None else branch_name(base),
        idempotency_key=call.idempotency_key(),
        engine="local",
        cancel=call.cancel,
        **options,
    )


async def _answer(call: Call, data: str, request: LoadRequest) -> Response:
    def work(session: Session) -> dict[str, Any]:
        return {"uri": session.uri} | _load(call, session, data.encode(), request)

    return await call.answer_write(work, size=call.received)


async def load_rows(call: Call) -> Response:
    body = await call.body(LoadBody)
    options = {"message": body.message, "labels": body.labels, "lenient": True}
    return await _answer(call, body.data, _request(call, body.branch, body.from_, body.mode, **options))


async def ingest(call: Call) -> Response:
    body = await call.body(LoadBody)
    options = {"message": body.message, "labels": body.labels, "lenient": True}
    return await _answer(call, body.data, _request(call, body.branch, body.from_ or MAIN, body.mode, **options))


async def load_ndjson(call: Call) -> Response:
    mode = call.query("mode") or "merge"
    if mode not in MODES:
        raise InputError(f"mode: '{cut(mode)}' is not a load mode", hint=f"use {', '.join(MODES)}")
    request = _request(call, call.query("branch"), call.query("from"), mode, message=call.query("message"))
    call.check_media_type(*NDJSON_TYPES)
    data = await call.raw_body(call.service.limits.load_body, "graph_batch_request_bytes")
    return await call.answer_write(lambda session: _load(call, session, data, request), size=call.received)


_STATUSES = (409, 424, 503)

OPERATIONS = (
    Operation(
        method="POST",
        path=f"{GRAPH}/load",
        id="load",
        summary="Load rows, given as a text of NDJSON, as one commit. Wrong values are converted where possible.",
        handle=load_rows,
        body=LoadBody,
        answer=answers.Ingest,
        statuses=_STATUSES,
        large=True,
        idempotent=True,
    ),
    Operation(
        method="POST",
        path=f"{GRAPH}/load/ndjson",
        id="load_ndjson",
        summary="Load rows, given as NDJSON, as one commit.",
        handle=load_ndjson,
        body_media=NDJSON_TYPES[0],
        answer=answers.BatchLoad,
        query=(
            BRANCH,
            QueryParameter("from", "The branch from which a missing branch is created."),
            QueryParameter("mode", "The load mode; `merge` by default.", values=MODES),
            QueryParameter("message", "The message of the commit."),
        ),
        statuses=(*_STATUSES,),
        large=True,
        idempotent=True,
    ),
    Operation(
        method="POST",
        path=f"{GRAPH}/ingest",
        id="ingest",
        summary="Load rows, and create a missing branch from `main`. Use `load` instead.",
        handle=ingest,
        body=LoadBody,
        answer=answers.Ingest,
        statuses=_STATUSES,
        successor="load",
        large=True,
        idempotent=True,
    ),
)
