"""Routes of the schema, of snapshots, of recovered writes and of exports."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, cast

from starlette.responses import Response

from omnigraph.commit.manifest import MAIN
from omnigraph.engine.access import Action
from omnigraph.engine.export import export
from omnigraph.engine.requests import ExportRequest, SchemaApplyRequest
from omnigraph.engine.schema import apply_schema
from omnigraph.engine.session import Session
from omnigraph.errors import InputError
from omnigraph.graph.collections import Recovery
from omnigraph.migrate.allow import Allow
from omnigraph.server import answers
from omnigraph.server.bodies import ExportBody, SchemaBody
from omnigraph.server.call import Call
from omnigraph.server.mutate_routes import without_null_actor
from omnigraph.server.operation import GRAPH, Operation
from omnigraph.server.paging import Paging
from omnigraph.server.query_parameters import BRANCH, CURSOR, LIMIT, SNAPSHOT
from omnigraph.server.query_routes import readable
from omnigraph.server.result_formats import NDJSON


async def show_snapshot(call: Call) -> Response:
    def work(session: Session) -> dict[str, Any]:
        return readable(call, session, call.query("branch"), call.query("snapshot")).to_json(session.format)

    return await call.answer_read(work)


async def show_schema(call: Call) -> Response:
    branch, snapshot = call.query("branch"), call.query("snapshot")
    if branch is None and snapshot is None:
        call.authorize(Action.READ)

    def work(session: Session) -> dict[str, str]:
        if branch is None and snapshot is None:
            return {"schema_source": session.schemas.version_of(session.store.capture(MAIN))[0]}
        return {"schema_source": session.schemas.version_at(readable(call, session, branch, snapshot))[0]}

    return await call.answer_read(work)


async def list_recoveries(call: Call) -> Response:
    call.authorize(Action.ADMIN)
    paging = Paging.of(call)

    def work(session: Session) -> dict[str, Any]:
        recovery = Recovery(session)
        settled = [record.to_json() for record in recovery.list()]
        pending = [sidecar.to_json() for sidecar in recovery.pending()]
        return paging.of_records("recoveries", settled, itemgetter("operation_id")) | {"pending": pending}

    return await call.answer_read(work)


async def change_schema(call: Call) -> Response:
    body = await call.body(SchemaBody)
    call.authorize(Action.SCHEMA_APPLY, None, MAIN)
    request = SchemaApplyRequest(
        body.schema_source,
        allow=Allow.DATA_LOSS if body.allow_data_loss else Allow.DROPS,
        message=body.message,
        labels=body.labels,
        engine="local",
        cancel=call.cancel,
    )

    def work(session: Session) -> dict[str, Any]:
        receipt = apply_schema(session, request)
        members = {"uri": session.uri, **receipt.to_json(), "lines": receipt.lines(), "warnings": receipt.warnings}
        return without_null_actor(members | {"actor_id": session.actor})

    return await call.answer_write(work, size=call.received)


async def stream_export(call: Call) -> Response:
    call.check_media_type("application/json")
    body = await call.body(ExportBody)
    if body.branch is not None and body.snapshot is not None:
        raise InputError("give branch or snapshot, not both: a snapshot already belongs to a branch")
    types = body.type_names or None  # an empty list stands for all types, as in older servers

    def produce(session: Session) -> Iterator[bytes]:
        if body.snapshot is None:
            name = session.branch_or_default(body.branch)
            call.authorize(Action.EXPORT, name)
            request = ExportRequest(types=types, branch=name)
        else:
            if session.access is None:  # with a policy, the export checks it
                branch = session.snapshot(commit=body.snapshot).commit.branch
                call.authorize(Action.EXPORT, branch, names_branch=False)
            request = ExportRequest(types=types, at=body.snapshot)
        return cast("Iterator[bytes]", export(session, request))

    return await call.stream(produce, NDJSON, export=True)


OPERATIONS = (
    Operation(
        method="GET",
        path=f"{GRAPH}/snapshot",
        id="get_snapshot",
        summary="Show the version of every table at the head of a branch, or at a commit.",
        handle=show_snapshot,
        answer=answers.SnapshotAnswer,
        query=(BRANCH, SNAPSHOT),
    ),
    Operation(
        method="GET",
        path=f"{GRAPH}/schema",
        id="get_schema",
        summary="Show the schema of a branch, by default `main`, or of a commit.",
        handle=show_schema,
        answer=answers.Schema,
        query=(BRANCH, SNAPSHOT),
    ),
    Operation(
        method="GET",
        path=f"{GRAPH}/recoveries",
        id="list_recoveries",
        summary="List the interrupted writes that recovery has settled, oldest first, and those that are pending.",
        handle=list_recoveries,
        answer=answers.Recoveries,
        query=(LIMIT, CURSOR),
    ),
    Operation(
        method="POST",
        path=f"{GRAPH}/schema/apply",
        id="apply_schema",
        summary="Change the schema of `main` and its rows, as one commit.",
        handle=change_schema,
        body=SchemaBody,
        answer=answers.SchemaApplied,
        statuses=(409, 503),
    ),
    Operation(
        method="POST",
        path=f"{GRAPH}/export",
        id="export",
        summary="Stream all entities of a branch.",
        handle=stream_export,
        body=ExportBody,
        media=(NDJSON,),
    ),
)
