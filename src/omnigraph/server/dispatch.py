"""Dispatch of requests to operations by method and path, without the layers of the framework."""

# See docs/decisions/0343-operations-are-called-directly.md

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from omnigraph.server.operation import GRAPH

Endpoint = Callable[[Request], Awaitable[Response]]

_GRAPHS, _, _ = GRAPH.partition("{")
"""The start of the paths of graphs."""


class Dispatch:
    """Calls the endpoint of a request. Other requests go to the application, which reports that there is no such route.

    Args:
        app: the application.
        endpoints: the endpoints by method and path.
    """

    def __init__(self, app: ASGIApp, endpoints: Mapping[tuple[str, str], Endpoint]) -> None:
        self._app = app
        self._of_graph: dict[tuple[str, str], Endpoint] = {}
        """Those whose only parameter is the graph, by method and the rest of the path."""
        self._others: dict[str, list[tuple[re.Pattern[str], Endpoint]]] = {}
        for (method, path), endpoint in endpoints.items():
            rest = path.removeprefix(GRAPH)
            if rest != path and "{" not in rest:
                self._of_graph[method, rest] = endpoint
            else:
                pattern, _, _ = compile_path(path)
                self._others.setdefault(method, []).append((pattern, endpoint))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        direct = scope["type"] == "http" and not scope.get("root_path")  # a path below another one has to be cut
        found = self._find(scope["method"], scope["path"]) if direct else None
        if found is None:
            await self._app(scope, receive, send)
            return
        endpoint, parameters = found
        scope["path_params"] = parameters
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)

    def _find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]] | None:
        """The endpoint of a method and a path, and the parameters of the path."""
        if path.startswith(_GRAPHS):
            graph_id, slash, rest = path[len(_GRAPHS) :].partition("/")
            endpoint = self._of_graph.get((method, slash + rest))
            if endpoint is not None and graph_id:
                return endpoint, {"graph_id": graph_id}
        for pattern, endpoint in self._others.get(method, ()):
            match = pattern.match(path)
            if match is not None:
                return endpoint, match.groupdict()
        return None
