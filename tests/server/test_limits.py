"""Admission, and clients that are slow, too large or malformed."""

from __future__ import annotations

import socket
import threading
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.patience import PATIENCE, until
from tests.server.conftest import INSERT, LIMITS, SELECT, Client, Serve, in_time
from tests.server.test_identity import EVERYTHING, TOKENS

from omnigraph.errors import TooManyRequestsError
from omnigraph.server import mutate_routes, query_routes
from omnigraph.server.admission import Admission
from omnigraph.server.options import Limits

BODY = {"query": INSERT, "params": {"n": "eve"}}


def is_refused(admission: AbstractContextManager[None]) -> bool:
    try:
        with admission:
            return False
    except TooManyRequestsError:
        return True


def test_admission_counts_per_actor() -> None:
    admission = Admission(Limits(actor_writes=1, actor_reads=2, actor_bytes=100))
    with admission.write("kim", 60):
        assert is_refused(admission.write("kim", 1))
        with admission.write("lee", 60), admission.read("kim"), admission.read("kim"):
            assert is_refused(admission.read("kim"))
            assert not is_refused(admission.read("lee"))
    assert not is_refused(admission.write("kim", 100))
    assert is_refused(admission.write("kim", 101))
    assert admission.actors == 0


def test_bodies_in_transfer_count_as_bytes_of_their_actor(serve: Serve) -> None:
    admission = Admission(Limits(actor_bytes=100))
    with admission.body("kim", 60):
        assert is_refused(admission.body("kim", 50))
        assert is_refused(admission.write("kim", 50))
        assert not is_refused(admission.body("lee", 100))
    assert admission.actors == 0
    client = serve(limits=replace(LIMITS, actor_bytes=1000))
    found = client.post("/load", {"data": " " * 2000})
    assert (found.status, found.headers["retry-after"]) == (429, "60")


def test_an_actor_named_anonymous_is_another_one() -> None:
    admission = Admission(Limits(actor_writes=1))
    with admission.write(None, 1), admission.write("anonymous", 1):
        assert admission.actors == 2


@pytest.mark.parametrize(
    ("path", "module", "name"), [("/query", query_routes, "on_snapshot"), ("/mutate", mutate_routes, "mutate")]
)
def test_too_many_requests(serve: Serve, monkeypatch: pytest.MonkeyPatch, path: str, module: Any, name: str) -> None:
    client = serve(tokens=TOKENS, policies={"g": EVERYTHING}, limits=replace(LIMITS, actor_writes=1, actor_reads=1))
    client = client.with_token("secret-of-kim")
    entered, go = threading.Event(), threading.Event()
    real = getattr(module, name)

    def waiting(*args: Any) -> Any:
        entered.set()
        assert go.wait(PATIENCE)
        return real(*args)

    monkeypatch.setattr(module, name, waiting)
    body = {"query": SELECT} if path == "/query" else BODY
    first: list[int] = []
    thread = threading.Thread(target=lambda: first.append(client.post(path, body).status))
    thread.start()
    assert entered.wait(PATIENCE)
    refused = client.post(path, body)
    assert (refused.status, refused.json["code"], refused.headers["retry-after"]) == (429, "too_many_requests", "60")
    monkeypatch.undo()
    assert client.with_token("secret-of-lee").post(path, body).status == 200
    go.set()
    thread.join()
    assert first == [200]


def test_denied_requests_use_no_slot(serve: Serve) -> None:
    client = serve(tokens=TOKENS, limits=replace(LIMITS, actor_writes=0)).with_token("secret-of-kim")
    assert client.post("/mutate", BODY).status == 403


def connect(client: Client) -> socket.socket:
    host, _, port = client.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def answer_to(connection: socket.socket) -> bytes:
    found = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            found += part
    return found


def test_large_headers_are_refused(client: Client) -> None:
    with connect(client) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000)
        found = answer_to(connection)
    assert found.startswith(b"HTTP/1.1 400 ")
    assert b"the headers are too large" in found


def test_headers_that_do_not_arrive_end_the_connection(serve: Serve) -> None:
    client = serve(limits=replace(LIMITS, header_seconds=0.2))
    for start in (b"", b"GET /healthz HTTP/1.1\r\nHost"):
        with connect(client) as connection:
            connection.sendall(start)
            assert answer_to(connection) == b""
    with connect(client) as connection:  # slowly, byte by byte

        def is_closed() -> bool:
            try:
                connection.sendall(b"G")
            except OSError:
                return True
            return False

        until(is_closed, pause=0.05)


def test_a_body_that_does_not_arrive_is_refused(serve: Serve) -> None:
    client = serve(limits=replace(LIMITS, header_seconds=0.2))

    def answer() -> bytes:
        with connect(client) as connection:
            connection.sendall(
                b"POST /graphs/g/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: 100\r\nConnection: close\r\n\r\n{"
            )
            return answer_to(connection)

    assert in_time(answer).startswith(b"HTTP/1.1 400 ")


def test_a_chunked_body_is_counted(client: Client) -> None:
    with connect(client) as connection:
        connection.sendall(
            b"POST /graphs/g/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )
        for _ in range(20):
            connection.sendall(b"10000\r\n" + b" " * 65_536 + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 413"


@pytest.mark.parametrize(
    "request_text", [b"\r\n\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n"]
)
def test_malformed_requests_end_their_connection_only(client: Client, request_text: bytes) -> None:
    with connect(client) as connection:
        connection.sendall(request_text)
        connection.shutdown(socket.SHUT_WR)
        answer_to(connection)
    assert client.get("//healthz").status == 200


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.soak)])
def test_connections_that_are_opened_and_dropped(client: Client, count: int) -> None:
    for number in range(count):
        connection = connect(client)
        if number % 2:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        connection.close()
    until(lambda: client.get("//healthz").status == 200)


def test_paths_do_not_leave_the_routes(client: Client) -> None:
    for path in ("/../../etc/passwd", "/branches/..%2F..%2Fetc", "/commits/%2e%2e", "/queries/..%2f..%2fx"):
        assert client.get(path).status in (400, 404, 405)
    assert client.delete("/branches/..%2F..%2Fetc").status == 400


def test_no_header_can_be_injected(client: Client) -> None:
    found = client.get("/branches?x=%0d%0aSet-Cookie:%20a=b", headers={"X-Request-Id": "a%0d%0aSet-Cookie: a=b"})
    assert "set-cookie" not in found.headers
    assert client.get("/commits/%0d%0aSet-Cookie:a").status == 404
