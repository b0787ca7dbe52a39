"""The outermost layer of each request: its id, log record and metrics, and errors that nothing else has handled."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from opentelemetry import trace
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from ulid_transform import ulid_now

from omnigraph.errors import OmnigraphError
from omnigraph.server.failures import error_response
from omnigraph.server.metrics import Metrics

_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_log = logging.getLogger("omnigraph.server")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""The methods that metrics name. Others could fill the memory."""

_LEFT = 499
"""The status of the log record of a client that has left."""


class RequestLog:
    """Wraps an application.

    Args:
        app: the application.
        metrics: returns the metrics.
    """

    def __init__(self, app: ASGIApp, metrics: Callable[[], Metrics]) -> None:
        self._app = app
        self._metrics = metrics
        self._tracer = trace.get_tracer("omnigraph.server")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._tracer.start_as_current_span(f"HTTP {scope['method']}", kind=trace.SpanKind.SERVER) as span:
            await _Exchange(self._app, self._metrics(), scope, span).run(receive, send)


class _Exchange:
    """One request and its answer."""

    def __init__(self, app: ASGIApp, metrics: Metrics, scope: Scope, span: trace.Span) -> None:
        self._app = app
        self._metrics = metrics
        self._scope = scope
        self._span = span
        self._method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        self._started = time.perf_counter()
        self._id = _request_id(scope)
        self._status = 0
        self._sent = 0
        self._complete = False
        scope.setdefault("state", {})["request_id"] = self._id

    async def run(self, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._status = message["status"]
                added = [(b"x-request-id", self._id.encode()), (b"x-content-type-options", b"nosniff")]
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            else:
                self._sent += len(message.get("body", b""))
                self._complete = not message.get("more_body", False)
            await send(message)

        self._metrics.in_flight.inc()
        try:
            await self._app(self._scope, receive, sending)
        except ClientDisconnect:
            self._status = self._status or _LEFT
        except Exception as error:
            if self._status:
                # The status is sent: only a broken connection tells the client that the answer is not complete.
                self._record(error)
                raise
            await error_response(OmnigraphError("internal error"), self._id)(self._scope, receive, sending)
            self._record(error)
            return
        finally:
            self._metrics.in_flight.dec()
        self._record(None)

    def _record(self, error: Exception | None) -> None:
        route = self._scope["state"].get("route", "none")
        seconds = time.perf_counter() - self._started
        metrics = self._metrics
        if not self._complete:
            metrics.disconnects.inc()
        metrics.requests.labels(route, self._method, str(self._status)).inc()
        metrics.seconds.labels(route, self._method).observe(seconds)
        metrics.sent.inc(self._sent)
        if self._status == 429:
            metrics.refused.inc()
        if self._span.is_recording():
            self._span.update_name(f"{self._method} {route}")
            self._span.set_attribute("http.request.method", self._method)
            self._span.set_attribute("http.route", route)
            self._span.set_attribute("http.response.status_code", self._status)
            self._span.set_attribute("omnigraph.request_id", self._id)
        level = logging.ERROR if error is not None else logging.INFO
        if not _log.isEnabledFor(level):
            return
        state = self._scope["state"]
        fields = {
            "request_id": self._id,
            "method": self._method,
            "route": route,
            "graph": state.get("graph"),
            "actor": state.get("actor"),
            "status": self._status or _LEFT,
            "complete": self._complete,
            "bytes": self._sent,
            "seconds": round(seconds, 6),
            "kind": state.get("error_kind"),
        }
        _log.log(level, "request", extra={"fields": fields}, exc_info=error)


def _request_id(scope: Scope) -> str:
    """The id that the client gave, if it is a plain word; else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text = value.decode("latin-1")
            if _ID.fullmatch(text):
                return str(text)
    return str(ulid_now())
