"""A proxy in front of the S3 server that loses chosen answers of real connections and requests."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit


class Trouble(Enum):
    """The fault of the next write."""

    LOST_ANSWER = auto()
    """It takes effect, and the connection closes without an answer."""
    LATE_ERROR = auto()
    """It takes effect, and is answered with 500."""
    EARLY_ERROR = auto()
    """It does not take effect, and is answered with 500."""
    BUSY = auto()
    """It does not take effect, and is answered with 503 SlowDown."""


class FlakyProxy:
    def __init__(self, target: str) -> None:
        self.target = urlsplit(target).netloc
        self.troubles: list[Trouble] = []
        self.writes = 0
        self.after_write: Iterator[None] | None = None
        """Steps to run after each faulty write, before its client gets an answer."""

    def pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        trouble = None
        if handler.command == "PUT":
            self.writes += 1
            trouble = self.troubles.pop(0) if self.troubles else None
        if trouble in (Trouble.EARLY_ERROR, Trouble.BUSY):
            self._answer_error(
                handler, *((500, "InternalError") if trouble is Trouble.EARLY_ERROR else (503, "SlowDown"))
            )
            return
        connection = http.client.HTTPConnection(self.target, timeout=300)
        headers = {name: value for name, value in handler.headers.items() if name.lower() != "connection"}
        connection.request(handler.command, handler.path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if trouble is not None and self.after_write is not None:
            next(self.after_write, None)
        if trouble is Trouble.LOST_ANSWER:
            handler.connection.shutdown(socket.SHUT_RDWR)
        elif trouble is Trouble.LATE_ERROR:
            self._answer_error(handler, 500, "InternalError")
        else:
            handler.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding"):
                    handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(data)

    def _answer_error(self, handler: BaseHTTPRequestHandler, status: int, code: str) -> None:
        data = f"<Error><Code>{code}</Code><Message>trouble</Message></Error>".encode()
        handler.send_response_only(status)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


@contextmanager
def flaky_proxy(target: str) -> Iterator[tuple[FlakyProxy, str]]:
    """A running proxy, and its address."""
    proxy = FlakyProxy(target)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.close_connection = True
            proxy.pass_on(self)

        do_PUT = do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield proxy, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
