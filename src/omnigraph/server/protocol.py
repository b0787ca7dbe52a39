"""The HTTP protocol of connections: limits of headers, of slow requests, and of clients that do not read."""

# See docs/decisions/0293-slow-clients-are-disconnected.md
# See docs/decisions/0335-trailers-are-not-headers.md
# See docs/decisions/0336-clients-have-a-least-rate.md

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from ulid_transform import ulid_now
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from omnigraph.errors import InputError
from omnigraph.server.call import BODY_IS_COMPLETE
from omnigraph.server.failures import error_body
from omnigraph.server.options import LEAST_RATE, Limits
from omnigraph.server.request_heads import RequestHead

TOO_LARGE = "the headers are too large"
MALFORMED = "this is not a valid HTTP request"


def _nothing() -> None:
    """The default of `count_ended`."""


def limited_protocol(limits: Limits, count_ended: Callable[[], None] = _nothing) -> type[HttpToolsProtocol]:
    """The protocol class of a server.

    Args:
        limits: its limits.
        count_ended: called when a connection has ended.
    """

    class LimitedProtocol(HttpToolsProtocol):
        """An HTTP connection that is closed if its client is too slow, or sends too many headers."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._in_head = True
            self._head = RequestHead()
            self._uncounted = 0
            self._request_timer: asyncio.TimerHandle | None = None
            self._send_timer: asyncio.TimerHandle | None = None
            self._unsent = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._start_request_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_request_timer()
            self._stop_send_timer()
            super().connection_lost(exc)
            count_ended()

        # Requests

        def data_received(self, data: bytes) -> None:
            # Counts what the application cannot count: headers, and the extensions of chunks and trailers of a body.
            self._uncounted += len(data)
            while data and not self.transport.is_closing():
                part, data = self._head.split(data) if self._in_head else (data, b"")
                if part:
                    super().data_received(part)
            if self._uncounted and self._in_head and self._request_timer is None and not self._is_answering:
                self._start_request_timer()  # the rest of the headers is still to come
            if self._uncounted > limits.header_bytes and not self.transport.is_closing():
                self._refuse(TOO_LARGE)

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._in_head:  # not a trailer
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._uncounted = 0
            self._stop_request_timer()
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > limits.header_bytes:
                # They came in one piece, so that nothing has counted them before.
                self.headers[:] = [(b"connection", b"close")]
                self.scope["state"]["headers_too_large"] = True
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._uncounted = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._in_head = True
            self._uncounted = 0
            self._stop_request_timer()
            self.scope["state"][BODY_IS_COMPLETE] = True
            super().on_message_complete()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if (not self._in_head or self._uncounted) and not self.transport.is_closing():
                # The rest of a body that nobody reads, or the beginning of the next request.
                self._start_request_timer()

        def send_400_response(self, msg: str) -> None:
            self._refuse(MALFORMED)

        def _refuse(self, message: str) -> None:
            """Answer a request that no route sees, and close the connection."""
            if not self._is_answering:  # else the error would be in the middle of an answer
                request_id = str(ulid_now())
                body = orjson.dumps(error_body(InputError(message), request_id))
                head = (
                    "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
                    f"content-length: {len(body)}\r\nx-request-id: {request_id}\r\nx-content-type-options: nosniff\r\n"
                    "connection: close\r\n\r\n"
                )
                self.transport.write(head.encode() + body)
            self.transport.close()

        @property
        def _is_answering(self) -> bool:
            cycle: RequestResponseCycle | None = self.cycle
            return cycle is not None and not cycle.response_complete

        def _start_request_timer(self) -> None:
            self._stop_request_timer()
            self._request_timer = self.loop.call_later(limits.header_seconds, self._close)

        def _stop_request_timer(self) -> None:
            if self._request_timer is not None:
                self._request_timer.cancel()
                self._request_timer = None

        def _close(self) -> None:
            if not self.transport.is_closing():
                self.transport.close()

        # Clients that do not read

        def pause_writing(self) -> None:
            super().pause_writing()
            self._start_send_timer()

        def resume_writing(self) -> None:
            self._stop_send_timer()
            super().resume_writing()

        def _start_send_timer(self) -> None:
            self._unsent = self.transport.get_write_buffer_size()
            self._send_timer = self.loop.call_later(limits.send_seconds, self._check_progress)

        def _check_progress(self) -> None:
            """Disconnect a client that has read too little since the last look."""
            read = self._unsent - self.transport.get_write_buffer_size()
            if read < LEAST_RATE * limits.send_seconds:
                self.transport.abort()
            else:
                self._start_send_timer()

        def _stop_send_timer(self) -> None:
            if self._send_timer is not None:
                self._send_timer.cancel()
                self._send_timer = None

    return LimitedProtocol
