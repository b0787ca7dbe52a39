"""A real server on the loopback interface, in a thread, and a client for it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from tests.patience import PATIENCE, until
from tests.server.contract import CONTRACT

import omnigraph
from omnigraph.dataclass import dataclass
from omnigraph.server.app import create_app
from omnigraph.server.options import Limits
from omnigraph.server.process import address_of, bind, make_server
from omnigraph.server.service import Service

collect_ignore = ["fuzzing.py"]  # schemathesis imports it

SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob?  film: Blob? }
edge Knows: Person -> Person { since: I32? }
"""
LIMITS = Limits(drain_seconds=0.0, stop_seconds=5.0)

INSERT = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
SELECT = "query all() { match { $p: Person } return { $p.name as name, $p.age as age } order { name asc } }"


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


@dataclass(frozen=True, slots=True)
class Client:
    """Sends requests to a server. Each has its own connection.

    Attributes:
        address: host and port.
        token: the bearer token; None for none.
        prefix: the start of all paths.
    """

    address: str
    token: str | None = None
    prefix: str = "/graphs/g"

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        media_type: str = "application/json",
    ) -> Answer:
        """Send a request. A body that is not bytes is sent as JSON. The answer has to fit the contract."""
        given = dict(headers or {})
        if self.token is not None:
            given.setdefault("Authorization", f"Bearer {self.token}")
        if body is not None:
            given.setdefault("Content-Type", media_type)
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        target = (path if path.startswith("//") else f"/{self.prefix.strip('/')}{path}").replace("//", "/", 1)
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        try:
            connection.request(method, target, raw, given)
            found = connection.getresponse()
            answer = Answer(found.status, {name.lower(): text for name, text in found.getheaders()}, found.read())
        finally:
            connection.close()
        CONTRACT.check(method, target, answer.status, answer.headers, answer.body)
        return answer

    def get(self, path: str, **options: Any) -> Answer:
        return self.send("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.send("POST", path, body, **options)

    def delete(self, path: str, **options: Any) -> Answer:
        return self.send("DELETE", path, **options)

    def with_token(self, token: str | None) -> Client:
        return replace(self, token=token)


def in_time(answer: Callable[[], bytes]) -> bytes:
    """The answer to a request whose head arrives in time. On a busy machine, it may be late: then there is none."""
    found = b""

    def arrives() -> bool:
        nonlocal found
        with suppress(ConnectionError):
            found = answer()
        return found != b""

    until(arrives)
    return found


@contextmanager
def serving(app: FastAPI) -> Iterator[Client]:
    """Serve an application until the end of the block."""
    listening = bind("127.0.0.1:0")
    server = make_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive())
        yield Client(address_of(listening))
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


Serve = Callable[..., Client]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A graph with two persons who know each other."""
    path = tmp_path / "graph"
    with omnigraph.init(path, SCHEMA) as graph:
        rows = [{"name": "ann", "age": 30}, {"name": "bob", "age": 40}]
        graph.load({"Person": rows}, mode="append")
        graph.load({"Knows": [{"from": "ann", "to": "bob", "since": 2020}]}, mode="append")
    return path


@pytest.fixture
def serve(root: Path) -> Iterator[Serve]:
    """Serves the graph `g` until the end of the test: `serve(tokens={…})`. The default is an open server."""
    with ExitStack() as servers:

        def start(**options: Any) -> Client:
            options.setdefault("limits", LIMITS)
            if not options.keys() & {"tokens", "identity"}:
                options.setdefault("unauthenticated", True)
            graphs = options.pop("graphs", {"g": str(root)})
            return servers.enter_context(serving(create_app(graphs, **options)))

        yield start


@pytest.fixture
def client(serve: Serve) -> Client:
    """A client of an open server."""
    return serve()


def service_of(app: FastAPI) -> Service:
    service: Service = app.state.service
    return service
