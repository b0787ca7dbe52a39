"""The application: routes from operations, identity, and the bodies of errors."""

# See docs/decisions/0338-slashes-are-encoded-in-branches-only.md

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp

from omnigraph.errors import (
    AccessDeniedError,
    ForbiddenError,
    InputError,
    MethodNotAllowedError,
    NotFoundError,
    OmnigraphError,
    RetryableError,
)
from omnigraph.server import (
    blob_routes,
    branch_routes,
    graph_routes,
    history_routes,
    load_routes,
    mutate_routes,
    query_routes,
    server_routes,
    tag_routes,
)
from omnigraph.server.arenas import return_freed_memory
from omnigraph.server.authorize import AccessState, Authorizer
from omnigraph.server.call import SUCCESSOR, Call, json_response
from omnigraph.server.dispatch import Dispatch, Endpoint
from omnigraph.server.failures import error_response
from omnigraph.server.identity import Identity
from omnigraph.server.openapi import document, operation_id
from omnigraph.server.operation import Operation
from omnigraph.server.options import Limits
from omnigraph.server.request_log import RequestLog
from omnigraph.server.served_graphs import GraphConfig
from omnigraph.server.service import Service

OPERATIONS: tuple[Operation, ...] = (
    *server_routes.OPERATIONS,
    *query_routes.OPERATIONS,
    *mutate_routes.OPERATIONS,
    *load_routes.OPERATIONS,
    *branch_routes.OPERATIONS,
    *tag_routes.OPERATIONS,
    *history_routes.OPERATIONS,
    *graph_routes.OPERATIONS,
    *blob_routes.OPERATIONS,
)
"""All operations, in the order of the OpenAPI document."""

WATCH_SECONDS = 2.0
"""Seconds between two looks at the files of credentials."""

TRIM_SECONDS = 10.0
"""Seconds between two times that freed memory is returned to the operating system."""

_CROSS_SITE = ("cross-site", "same-site")
_log = logging.getLogger("omnigraph.server")


def create_app(
    graphs: Mapping[str, str | GraphConfig],
    *,
    identity: Identity | None = None,
    tokens: Mapping[str, str] | None = None,
    policies: Mapping[str, Authorizer] | None = None,
    server_policy: Authorizer | Path | None = None,
    unauthenticated: bool = False,
    limits: Limits | None = None,
    require_all: bool = False,
) -> FastAPI:
    """An ASGI application that serves graphs.

    Args:
        graphs: the address or the configuration of each graph, by id.
        identity: the credentials.
        tokens: bearer tokens by actor, instead of `identity`.
        policies: the authorizers of graphs by id. Sessions are bound to those that are policies.
        server_policy: the authorizer of the server itself, or the file of a policy.
        unauthenticated: whether the server may run without credentials.
        limits: the limits; by default from the environment.
        require_all: whether all graphs have to be served.

    Raises:
        InputError: the credentials, the policies or the graphs do not fit together.
    """
    configs = {
        graph_id: config if isinstance(config, GraphConfig) else GraphConfig(config)
        for graph_id, config in graphs.items()
    }
    service = Service(
        configs,
        identity=identity or Identity.of_tokens(tokens or {}),
        policies=policies,
        server_policy=server_policy,
        unauthenticated=unauthenticated,
        limits=limits or Limits.of_settings(),
        require_all=require_all,
    )
    return application(service)


def application(service: Service) -> FastAPI:
    """The application of a service. `app.state.service` is the service."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        for warning in service.warnings:
            _log.warning(warning)
        watchers = [asyncio.create_task(_watch(service)), asyncio.create_task(_return_memory())]
        try:
            yield
        finally:
            for watcher in watchers:
                watcher.cancel()
                with suppress(asyncio.CancelledError):
                    await watcher
            await asyncio.get_running_loop().run_in_executor(None, service.close)

    app = FastAPI(
        title="OmniGraph",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # the request log makes the spans
    )
    app.state.service = service
    endpoints: dict[tuple[str, str], Endpoint] = {}
    for operation in OPERATIONS:
        path, endpoint = operation.path.replace("{branch}", "{branch:path}"), _endpoint(service, operation)
        endpoints[operation.method, path] = endpoint
        app.add_api_route(
            path,
            endpoint,
            methods=[operation.method],
            operation_id=operation_id(operation),
            response_class=Response,
            response_model=None,
            include_in_schema=False,
        )
    openapi = document(OPERATIONS, secured=service.state is not AccessState.OPEN)

    async def show_document(request: Request) -> Response:
        request.scope["state"]["route"] = "/openapi.json"
        return json_response(openapi)

    app.add_api_route("/openapi.json", show_document, methods=["GET"], include_in_schema=False)
    app.add_exception_handler(HTTPException, _routing_error)
    app.add_middleware(_RequestLog, service=service, endpoints=endpoints)
    return app


class _RequestLog(RequestLog):
    """The request log with the dispatch below it, as FastAPI adds middleware."""

    def __init__(self, app: ASGIApp, service: Service, endpoints: Mapping[tuple[str, str], Endpoint]) -> None:
        super().__init__(Dispatch(app, endpoints), lambda: service.metrics)


async def _watch(service: Service) -> None:
    """Reload the credentials when their files change."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            await loop.run_in_executor(None, service.identity.reload_if_changed)
        except Exception:  # the next look may succeed; without this, no later change would be seen
            _log.exception("the credentials could not be read")


async def _return_memory() -> None:
    """Return freed memory to the operating system from time to time."""
    while True:
        await asyncio.sleep(TRIM_SECONDS)
        await asyncio.get_running_loop().run_in_executor(None, return_freed_memory)


def _endpoint(service: Service, operation: Operation) -> Endpoint:
    """The function that answers the requests of an operation."""

    async def answer(request: Request) -> Response:
        state = request.scope["state"]
        state["route"] = operation.path
        request_id = str(state["request_id"])
        try:
            if state.get("headers_too_large"):
                raise InputError("the headers of the request are too large")
            _refuse_other_sites(request)
            _refuse_encoded_slashes(request, operation)
            actor = None
            if not operation.public:
                actor = service.identity.actor_of(*request.headers.getlist("authorization"))
                state["actor"] = actor
            call = Call(service, operation, request, actor)
            state["graph"] = request.path_params.get("graph_id")
            call.check()
            try:
                response = await operation.handle(call)
            except asyncio.CancelledError:
                raise RetryableError("the server is stopping", hint="send it again") from None
            finally:
                await call.record_denials()
        except OmnigraphError as error:
            state["error_kind"] = error.code
            if isinstance(error, AccessDeniedError):
                service.metrics.denied.labels(error.action).inc()
            response = error_response(error, request_id, change_route=operation.changes, redacted=operation.redacted)
            if response.status_code == 500:
                _log.error("internal error", extra={"fields": {"request_id": request_id}}, exc_info=error)
        successor = operation.successor if operation.successor is not None else state.get(SUCCESSOR)
        if successor is not None:
            response.headers["Deprecation"] = "true"
        if successor:
            response.headers["Link"] = f'<{successor}>; rel="successor-version"'
        return response

    return answer


def _refuse_other_sites(request: Request) -> None:
    """Refuse writes that a web page of another site makes a browser send.

    Raises:
        ForbiddenError: the browser says that the request comes from another site.
    """
    if request.method not in ("GET", "HEAD") and request.headers.get("sec-fetch-site") in _CROSS_SITE:
        raise ForbiddenError("a page of another site may not use this server")


def _refuse_encoded_slashes(request: Request, operation: Operation) -> None:
    """Refuse slashes that are percent-encoded, except in the name of a branch.

    The path is decoded before it is routed. A proxy that allows some paths only would not see the slashes.

    Raises:
        NotFoundError: the path has such a slash.
    """
    raw = request.scope["raw_path"].lower()
    if b"%2f" in raw:
        before, found, _ = raw.partition(b"/branches/")
        if b"%2f" in before or not found or "{branch}" not in operation.path:
            raise NotFoundError("there is no such route", hint="percent-encode slashes in names of branches only")


async def _routing_error(request: Request, error: Exception) -> Response:
    """The answer to a path or method without an operation. All methods of the path are allowed, not those of one."""
    assert isinstance(error, HTTPException)
    request_id = str(request.scope["state"]["request_id"])
    methods = _methods(request)
    found: OmnigraphError
    if error.status_code == 405 or methods:
        found = MethodNotAllowedError(request.method, methods)
    elif error.status_code == 404:
        found = NotFoundError("there is no such route")
    else:
        found = InputError(str(error.detail))
    return error_response(found, request_id)


def _methods(request: Request) -> tuple[str, ...]:
    """The methods that the path of a request answers."""
    found: set[str] = set()
    for route in request.app.routes:
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return tuple(sorted(found))


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document of a server with credentials."""
    return document(OPERATIONS, secured=True)
