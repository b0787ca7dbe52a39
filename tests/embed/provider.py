"""A local embedding provider: it implements the real protocols, and misbehaves on request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread

Json = object


@dataclass(frozen=True)
class Seen:
    """A received request; header names are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Json]


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Behaviour = Callable[["Provider", Seen, BaseHTTPRequestHandler], Answer | None]
"""The answer, or None if the behaviour handles the connection itself."""


def vector(text: str, dimension: int) -> list[float]:
    """The vector of a text: not of length 1, and different for different texts."""
    return [float(len(text) + 1), *(float(ord(text[0]) + place) for place in range(1, dimension))]


def openai(_: Provider, seen: Seen, __: BaseHTTPRequestHandler) -> Answer:
    texts, dimension = seen.body["input"], seen.body["dimensions"]
    assert isinstance(texts, list)
    assert isinstance(dimension, int)
    data = [{"object": "embedding", "index": n, "embedding": vector(t, dimension)} for n, t in enumerate(texts)]
    return answer({"object": "list", "data": data[::-1], "model": seen.body["model"]})


def gemini(_: Provider, seen: Seen, __: BaseHTTPRequestHandler) -> Answer:
    match seen.body:
        case {"content": {"parts": [{"text": str(text)}]}, "outputDimensionality": int(dimension)}:
            return answer({"embedding": {"values": vector(text, dimension)}})
    raise AssertionError(seen.body)


def answer(body: Json, status: int = 200, **headers: str) -> Answer:
    return Answer(status, json.dumps(body).encode(), headers)


def always(given: Answer) -> Behaviour:
    return lambda *_: given


def hang(provider: Provider, _: Seen, __: BaseHTTPRequestHandler) -> None:
    """Accept the request and never answer."""
    provider.over.wait()


def drip(provider: Provider, _: Seen, handler: BaseHTTPRequestHandler) -> None:
    """Answer one byte at a time, without end."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(10**9))
    handler.end_headers()
    while not provider.over.wait(0.01):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def drop(_: Provider, __: Seen, handler: BaseHTTPRequestHandler) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True


def cut_off(status: int) -> Behaviour:
    """Announce more bytes than are sent."""

    def behave(_: Provider, __: Seen, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"data": [')
        handler.close_connection = True

    return behave


class Provider:
    """A running provider.

    Attributes:
        behaviours: one for each request; the last one repeats.
        seen: the requests so far.
        over: set at the end of the test.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self.behaviours: list[Behaviour] = [openai]
        self.seen: list[Seen] = []
        self.over = Event()
        self._lock = Lock()

    def receive(self, seen: Seen) -> Behaviour:
        with self._lock:
            self.seen.append(seen)
            return self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]


@contextmanager
def running_provider() -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen = Seen(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            given = provider.receive(seen)(provider, seen, self)
            if given is None:
                return
            self.send_response(given.status)
            for name, value in given.headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(given.body)))
            self.end_headers()
            self.wfile.write(given.body)

        def log_message(self, *_: object) -> None:
            """Write nothing to standard error."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Ignore clients that closed the connection."""

    server = Server(("127.0.0.1", 0), Handler)
    provider = Provider(server.server_port)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
