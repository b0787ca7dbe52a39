"""The route of blobs: conditional requests, ranges and streamed bytes."""

from __future__ import annotations

from contextlib import AsyncExitStack
from urllib.parse import quote

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from omnigraph.engine.blob import blob
from omnigraph.engine.session import Session
from omnigraph.errors import BlobRangeError, ConflictError, InputError
from omnigraph.read.blobs import Blob
from omnigraph.server.call import Call, started
from omnigraph.server.failures import error_body, error_response
from omnigraph.server.operation import GRAPH, Operation
from omnigraph.server.query_parameters import BRANCH, SNAPSHOT, QueryParameter
from omnigraph.server.query_routes import COMMIT_HEADER, readable
from omnigraph.server.ranges import (
    ByteRange,
    UnsatisfiableRangeError,
    allows_range,
    byte_range,
    matches_strongly,
    matches_weakly,
)
from omnigraph.server.streaming import Stream
from omnigraph.server.work import UNLIMITED, limited, run

OCTETS = "application/octet-stream"
_PLAIN = "!#$&'()*+,/:;=?@[]~"
"""Characters that stay as they are in headers."""


class WithoutBody(Response):
    """A response that names the length of a body which it does not have: to HEAD, or with status 304."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        super().__init__(None, status, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        # uvicorn checks that a body has its length, unless the method is HEAD. It does not know that 304 has no body.
        scope["method"] = "HEAD"
        await send({"type": "http.response.body", "body": b""})


async def answer_blob(call: Call) -> Response:
    kind, name = str(call.query("entity")), str(call.query("type"))
    if kind not in ("node", "edge"):
        raise InputError(f"entity: '{kind}' is neither 'node' nor 'edge'")

    def find(session: Session) -> Blob:
        view = readable(call, session, call.query("branch"), call.query("snapshot"))
        return blob(session, f"{kind}:{name}", str(call.query("id")), str(call.query("property")), at=view)

    pools, receive = call.service.pools, call.request.receive
    async with AsyncExitStack() as held:
        held.enter_context(call.service.admission.read(call.actor))
        found = await run(
            pools.reads, lambda: limited(lambda: find(call.session()), call.budget(), call.cancel), call.cancel, receive
        )
        answer = _without_bytes(call, found)
        if isinstance(answer, Response):
            return answer
        part, status = answer
        headers = _headers(found, part)
        if status == 206:
            headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{found.size}"
        if call.request.method == "HEAD":
            return WithoutBody(status, headers)
        pieces = found.iter(part.start, part.end)
        parts = await run(
            pools.streams, lambda: limited(lambda: started(pieces), UNLIMITED, call.cancel), call.cancel, receive
        )
        return Stream(
            parts, pools.streams, OCTETS, cancel=call.cancel, held=held.pop_all(), headers=headers, status=status
        )
    raise AssertionError("the block always returns")


def _without_bytes(call: Call, found: Blob) -> Response | tuple[ByteRange, int]:
    """The answer, if it needs no bytes of the blob; else the range of the bytes to send, and the status."""
    if found.uri is not None:
        # The graph stores addresses that are percent-encoded already.
        address = {"Location": quote(found.uri, safe=_PLAIN + "%"), "Cache-Control": "no-store"}
        return Response(None, 302, address | _state(found))
    size, etag = found.size or 0, str(found.etag)
    if_match, if_none_match = _joined(call, "if-match"), _joined(call, "if-none-match")
    if if_match is not None and not matches_strongly(if_match, etag):
        error = ConflictError("the blob has another entity tag", hint="read it again")
        raw = orjson.dumps(error_body(error, call.request_id))
        return Response(raw, 412, {"ETag": etag}, media_type="application/json")
    if if_none_match is not None and matches_weakly(if_none_match, etag):
        return WithoutBody(304, _headers(found, ByteRange(0, size)))
    if call.request.method == "HEAD" or not allows_range(_joined(call, "if-range"), etag):
        return ByteRange(0, size), 200
    try:
        part = byte_range(_joined(call, "range"), size)
        return (ByteRange(0, size), 200) if part is None else (part, 206)
    except UnsatisfiableRangeError as unsatisfiable:
        refusal = error_response(BlobRangeError(unsatisfiable.start, unsatisfiable.end, size), call.request_id)
        refusal.headers["Content-Range"] = f"bytes */{size}"
        return refusal


def _joined(call: Call, name: str) -> str | None:
    """A header. Several headers of one name are one list."""
    found = call.request.headers.getlist(name)
    return ", ".join(found) if found else None


def _headers(found: Blob, part: ByteRange) -> dict[str, str]:
    return {
        "Content-Type": OCTETS,
        "Content-Length": str(part.end - part.start),
        "Accept-Ranges": "bytes",
        "ETag": str(found.etag),
        **_state(found),
    }


def _state(found: Blob) -> dict[str, str]:
    """The headers that name the state that contains a blob. Names of branches may have letters of any script."""
    return {"Omnigraph-Snapshot-Id": quote(found.snapshot_id, safe=_PLAIN), COMMIT_HEADER: found.commit_id}


_QUERY = (
    QueryParameter("entity", "The kind of the entity.", required=True, values=("node", "edge")),
    QueryParameter("type", "The type of the entity.", required=True),
    QueryParameter("id", "The id of the entity.", required=True),
    QueryParameter("property", "The property, of type Blob.", required=True),
    BRANCH,
    SNAPSHOT,
)
_CONDITIONS = (
    ("If-Match", "Answer only if the blob has one of these entity tags."),
    ("If-None-Match", "Answer only if the blob has none of these entity tags."),
)
_RANGES = (
    ("Range", "The bytes to read, such as `bytes=0-1023`."),
    ("If-Range", "Answer with the whole blob if it has another entity tag."),
)
_OTHERS = (
    (302, "The blob is a reference; `Location` is its address."),
    (304, "The client has the blob already."),
)

OPERATIONS = (
    Operation(
        method="GET",
        path=f"{GRAPH}/blob",
        id="get_blob",
        summary="Read a blob, or a range of it.",
        handle=answer_blob,
        media=(OCTETS,),
        query=_QUERY,
        headers=(*_RANGES, *_CONDITIONS),
        statuses=(412, 416),
        others=((206, "A range of the blob."), *_OTHERS),
        redacted=True,
    ),
    Operation(
        method="HEAD",
        path=f"{GRAPH}/blob",
        id="stat_blob",
        summary="Show the size and the entity tag of a blob.",
        handle=answer_blob,
        media=(OCTETS,),
        query=_QUERY,
        headers=_CONDITIONS,
        statuses=(412,),
        others=_OTHERS,
        redacted=True,
    ),
)
