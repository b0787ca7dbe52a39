"""Operations: the declaration of each route, from which the routes, their checks and the OpenAPI document are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pydantic import BaseModel
from starlette.responses import Response

from omnigraph.dataclass import dataclass
from omnigraph.server.call import Call
from omnigraph.server.query_parameters import QueryParameter

Handler = Callable[[Call], Awaitable[Response]]

GRAPH = "/graphs/{graph_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One route and method.

    Attributes:
        method: the HTTP method.
        path: the path, with parameters in braces.
        id: the operation id of the OpenAPI document.
        summary: one sentence for the document.
        handle: answers a call.
        answer: the model of the JSON answer; None if the answer is not JSON.
        media: the media types of the answer.
        body: the model of the JSON body.
        body_required: whether there must be a body.
        body_media: the media type of a body that is not JSON.
        query: the query parameters.
        headers: the names of optional headers, with their descriptions.
        statuses: the statuses of errors, besides those of every operation.
        others: the other statuses that are not errors, with their descriptions.
        successor: the operation that replaces this deprecated one, as the last part of its path.
        conditional: whether it requires the header of conditional writes.
        idempotent: whether it takes an idempotency key.
        changes: whether it is a change route, with reduced error bodies.
        redacted: whether internal errors show no cause.
        large: whether the larger limit of bodies applies.
        public: whether it needs no credential.
        links: operations that take a value of the answer: the operation, its parameter, and the place of the value.
    """

    method: str
    path: str
    id: str
    summary: str
    handle: Handler
    answer: type[BaseModel] | None = None
    media: tuple[str, ...] = ("application/json",)
    body: type[BaseModel] | None = None
    body_required: bool = True
    body_media: str | None = None
    query: tuple[QueryParameter, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    statuses: tuple[int, ...] = ()
    others: tuple[tuple[int, str], ...] = ()
    successor: str | None = None
    conditional: bool = False
    idempotent: bool = False
    changes: bool = False
    redacted: bool = False
    large: bool = False
    public: bool = False
    links: tuple[tuple[str, str, str], ...] = ()
