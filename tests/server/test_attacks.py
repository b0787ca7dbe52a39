"""Hostile requests over raw sockets: paths, headers, bodies and connections that no honest client sends."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.patience import PATIENCE, until
from tests.server.conftest import LIMITS, SELECT, Client, Serve, in_time
from tests.server.contract import ERROR
from tests.server.test_process import processes, start  # noqa: F401

import omnigraph
from omnigraph.dataclass import dataclass
from omnigraph.server.served_graphs import GraphConfig

SECRET = "the-content-of-a-file-that-nobody-may-read"
KNOWN = {
    "content-type",
    "content-length",
    "date",
    "x-request-id",
    "x-content-type-options",
    "allow",
    "connection",
    "retry-after",
    "location",
    "cache-control",
    "transfer-encoding",
    "link",
    "deprecation",
    "omnigraph-snapshot-id",
    "omnigraph-graph-commit-id",
}
"""The headers that answers to hostile requests may have."""


@dataclass(frozen=True, slots=True)
class Raw:
    """The bytes of an answer, in parts."""

    status: int
    headers: dict[str, str]
    body: bytes


@contextmanager
def connected(client: Client) -> Iterator[socket.socket]:
    host, _, port = client.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        yield connection


def received(connection: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
    found = b""
    try:
        while part := connection.recv(65_536):
            found += part
    except ConnectionResetError:
        pass
    return found


def parsed(answer: bytes) -> Raw:
    """The answer, whose headers have known names only."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    found = dict(line.lower().split(": ", 1) for line in lines)
    assert found.keys() <= KNOWN, found
    return Raw(int(status.split()[1]), found, body)


def request(client: Client, head: bytes, body: bytes = b"") -> Raw:
    """Send a request line with headers, and close the connection afterwards."""
    with connected(client) as connection:
        connection.sendall(head + b"\r\nHost: x\r\nConnection: close\r\n\r\n" + body)
        return parsed(received(connection))


def is_error(answer: Raw, *statuses: int) -> bool:
    """Whether an answer is an error of the one shape."""
    return answer.status in statuses and ERROR.model_validate_json(answer.body) is not None


# Paths


@pytest.fixture
def beside(root: Path, tmp_path: Path, serve: Serve) -> Client:
    """A server of a graph, whose directory has files beside it that are no business of a client."""
    for place in (tmp_path / "secret.txt", root / "secret.txt", tmp_path / "assets" / "ok.jpg"):
        place.parent.mkdir(exist_ok=True)
        place.write_text(SECRET)
    return serve(graphs={"g": GraphConfig(str(root), blob_sources=((tmp_path / "assets").as_uri() + "/",))})


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


TRAVERSALS = [
    "../secret.txt",
    "../../secret.txt",
    "..",
    ".",
    "/etc/passwd",
    "..\\secret.txt",
    "secret.txt\0",
    "~",
    "c:\\x",
]


def encodings(text: str) -> list[str]:
    """A text as a part of a path: plain, encoded, doubly encoded, and with overlong UTF-8."""
    once = quote(text, safe="")
    return [
        text.replace("\0", "%00"),
        once,
        quote(once, safe=""),
        once.replace(".", "%2e"),
        once.replace(".", "%c0%ae").replace("%2F", "%c0%af"),
    ]


def test_no_path_leads_to_a_file(beside: Client, tmp_path: Path) -> None:
    before = files(tmp_path)
    for text in TRAVERSALS:
        for part in encodings(text):
            for method, path in (
                ("GET", f"/{part}"),
                ("GET", f"/graphs/{part}/schema"),
                ("GET", f"/graphs/g/{part}"),
                ("GET", f"/graphs/g/commits/{part}"),
                ("GET", f"/graphs/g/commits/{part}/changes"),
                ("POST", f"/graphs/g/queries/{part}"),
                ("DELETE", f"/graphs/g/branches/{part}"),
                ("DELETE", f"/graphs/g/tags/{part}"),
                ("GET", f"/graphs/g/snapshot?branch={part}"),
                ("GET", f"/graphs/g/diff?from={part}&to=main"),
                ("GET", f"/graphs/g/changes?branch={part}"),
                ("GET", f"/graphs/g/changes?cursor={part}"),
                *(("GET", f"/graphs/g/blob?{selector}") for selector in selectors(part)),
            ):
                answer = request(beside, f"{method} {path} HTTP/1.1".encode())
                assert is_error(answer, 400, 404, 405), (method, path, answer)
                assert SECRET.encode() not in answer.body
    assert files(tmp_path) == before


def selectors(part: str) -> list[str]:
    """Selectors of blobs with a hostile value in each place."""
    good = {"entity": "node", "type": "Person", "id": "ann", "property": "photo"}
    return ["&".join(f"{name}={value}" for name, value in (good | {place: part}).items()) for place in good]


def test_no_body_leads_to_a_file(beside: Client, tmp_path: Path) -> None:
    before = files(tmp_path)
    for text in TRAVERSALS:
        for path, body in (
            ("/branches", {"name": text}),
            ("/branches", {"name": "x", "from": text}),
            ("/branches", {"name": "x", "commit": text}),
            ("/branches/merge", {"source": text}),
            ("/tags", {"name": text}),
            ("/tags", {"name": "x", "commit": text}),
            ("/query", {"query": SELECT, "branch": text}),
            ("/query", {"query": SELECT, "snapshot": text}),
            ("/query", {"query": text}),
            ("/export", {"type_names": [text]}),
            ("/export", {"snapshot": text}),
            ("/changes/baseline", {"type": [text]}),
            ("/load", {"data": "", "branch": text}),
            ("/load", {"data": "", "branch": "x", "from": text}),
            ("/load", {"data": json.dumps({"type": text, "data": {"name": "x"}})}),
            ("/schema/apply", {"schema_source": text}),
        ):
            answer = beside.post(path, body)
            assert answer.status in (400, 404), (path, body, answer)
            assert SECRET.encode() not in answer.body
    assert files(tmp_path) == before


def test_no_blob_reference_leads_to_a_file(beside: Client, tmp_path: Path) -> None:
    assets = (tmp_path / "assets").as_uri()
    hostile = [
        (tmp_path / "secret.txt").as_uri(),
        f"{assets}/../secret.txt",
        f"{assets}/%2e%2e/secret.txt",
        f"{assets}/..%2fsecret.txt",
        f"{assets}/%252e%252e/secret.txt",
        f"{assets}/ok.jpg/../../secret.txt",
        f"{assets}\\..\\secret.txt",
        f"{assets}/ok.jpg?x",
        f"{assets}/ok.jpg#x",
        "file:///etc/passwd",
        "http://127.0.0.1:1/x",
        "s3://bucket/x",
    ]
    link = tmp_path / "assets" / "link.jpg"
    link.symlink_to(tmp_path / "secret.txt")
    for uri in [*hostile, f"{assets}/link.jpg"]:
        for mode in ("append", "merge", "overwrite"):
            row = {"type": "Person", "data": {"name": "x", "photo": uri}}
            answer = beside.post("/load", {"data": json.dumps(row), "mode": mode})
            assert answer.status in (400, 424), (uri, mode, answer)
            assert SECRET.encode() not in answer.body
    assert beside.post("/query", {"query": SELECT}).json["row_count"] == 2


def test_encoded_slashes_do_not_change_the_route(client: Client) -> None:
    """A proxy that allows some paths only must see the path that the server routes."""
    for path in (
        "/graphs%2fg/branches",
        "/graphs/g%2Fbranches",
        "/graphs/g/queries%2fx",
        "/graphs%2fg/branches/x",
        "/graphs/g/commits%2F00000000000000000000000000/changes",
    ):
        for method in ("GET", "POST", "DELETE"):
            answer = request(client, f"{method} {path} HTTP/1.1".encode())
            assert is_error(answer, 404, 405), (method, path, answer)
    assert client.post("/branches", {"name": "a/b"}).status == 200
    assert client.delete("/branches/a%2Fb").status == 200


# Headers

INJECTION = "x\r\nSet-Cookie: a=b\r\n\r\n<script>"


def test_no_value_becomes_a_header_of_the_answer(client: Client) -> None:
    encoded = quote(INJECTION, safe="")
    for line in (
        f"GET /graphs/g/commits/{encoded} HTTP/1.1",
        f"GET /graphs/g/branches?{encoded}={encoded} HTTP/1.1",
        f"GET /graphs/g/branches?cursor={encoded} HTTP/1.1",
        f"GET /graphs/{encoded}/branches HTTP/1.1",
        f"DELETE /graphs/g/branches/{encoded} HTTP/1.1",
        f"POST /graphs/g/queries/{encoded} HTTP/1.1",
        f"GET /graphs/g/blob?entity=node&type=Person&id={encoded}&property=photo HTTP/1.1",
        f"GET /{encoded} HTTP/1.1",
        "GET /graphs/g/branches HTTP/1.1\r\nX-Request-Id: a\tb",
        "GET /graphs/g/branches HTTP/1.1\r\nX-Request-Id: a\xff",
        "GET /graphs/g/branches HTTP/1.1\r\nAccept: \xff/\xff;q=\xff",
        "POST /graphs/g/load/ndjson HTTP/1.1\r\nIdempotency-Key: \xff\x80",
        "POST /graphs/g/query HTTP/1.1\r\nContent-Type: \xff",
    ):
        answer = request(client, line.encode("latin-1"))
        assert answer.status in (200, 400, 404, 415), (line, answer)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert re.fullmatch(r"[a-z0-9._-]{1,128}", answer.headers["x-request-id"]), answer


def test_the_address_of_a_reference_is_one_header(beside: Client, tmp_path: Path) -> None:
    """The address is stored text. Whatever a reference may contain is percent-encoded in `Location`."""
    assets = tmp_path / "assets"
    redirected = 0
    assert beside.post("/mutate", {"query": "query q() { delete Person where age > 0 }"}).status == 200
    for number, name in enumerate(["plain.jpg", "a\r\nSet-Cookie: a=b.jpg", "ü.jpg", 'q"<>.jpg', "a b.jpg"]):
        (assets / name).write_bytes(b"x")
        for uri in ((assets / name).as_uri(), f"{assets.as_uri()}/{name}"):
            row = {"type": "Person", "data": {"name": "x", "photo": uri}}
            branch = f"b{number}"
            beside.post("/branches", {"name": branch})
            loaded = beside.post("/load", {"data": json.dumps(row), "mode": "overwrite", "branch": branch})
            assert loaded.status in (200, 400), loaded
            if loaded.status == 200:
                path = f"/graphs/g/blob?entity=node&type=Person&id=x&property=photo&branch={branch}"
                answer = request(beside, f"GET {path} HTTP/1.1".encode())
                assert (answer.status, answer.headers["cache-control"]) == (302, "no-store")
                assert answer.headers["location"].isascii()
                redirected += 1
    assert redirected >= 5


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nA\r\n B: folded",
        b"GET /healthz HTTP/1.1\r\nA: b\rC: d",
        b"GET /healthz HTTP/1.1\r\nA: b\nC\0: d",
        b"GET /healthz HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4",
        b"GET /healthz HTTP/1.1\r\nContent-Length: -1",
        b"GET /healthz HTTP/1.1\r\nContent-Length: 99999999999999999999999999",
        b"POST /graphs/g/query HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked",
        b"POST /graphs/g/query HTTP/1.1\r\nTransfer-Encoding: chunked, identity",
        b"GET /\xff HTTP/1.1",
        b"GET http:// HTTP/1.1",
        b"CONNECT example.com:443 HTTP/1.1",
        b"BREW /healthz HTTP/1.1",
        b"GET /healthz HTTP/9.9",
        b"PRI * HTTP/2.0",
    ],
)
def test_malformed_requests_have_the_one_shape_of_errors(client: Client, head: bytes) -> None:
    answer = request(client, head, b"0\r\n\r\n")
    assert is_error(answer, 400), answer
    assert answer.headers["connection"] == "close"
    assert client.get("//healthz").status == 200


@pytest.mark.parametrize("offer", ["Upgrade: h2c", "upgrade:websocket", "UPGRADE: h2c\r\nHTTP2-Settings: AAMAAABk"])
def test_an_offer_of_another_protocol_is_ignored(client: Client, offer: str) -> None:
    body = json.dumps({"query": SELECT}).encode()
    head = (
        f"POST /graphs/g/query HTTP/1.1\r\n{offer}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        "\r\nConnection: Upgrade, HTTP2-Settings"
    )
    answer = request(client, head.encode(), body)
    assert (answer.status, json.loads(answer.body)["row_count"]) == (200, 2)


def test_a_second_credential_is_refused(serve: Serve) -> None:
    client = serve(tokens={"kim": "secret"})
    line = b"GET /graphs/g/branches HTTP/1.1\r\nAuthorization: Bearer secret"
    assert request(client, line).status == 200
    with connected(client) as connection:
        connection.sendall(line + b"\r\nAuthorization: Bearer secret\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert received(connection).startswith(b"HTTP/1.1 401 ")


def test_trailers_are_no_headers(serve: Serve) -> None:
    """A proxy that checks or removes headers does not look at what follows a body."""
    client = serve(tokens={"kim": "secret"})
    with connected(client) as connection:
        connection.sendall(
            b"POST /graphs/g/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nAuthorization: Bearer secret\r\n\r\n"
        )
        assert received(connection).startswith(b"HTTP/1.1 401 ")


# Sizes


def flood(client: Client, start_of: bytes, part: bytes, count: int = 400) -> bytes:
    """Send a beginning, and then the same part again and again, until the server closes the connection."""
    with connected(client) as connection:
        connection.sendall(start_of)
        try:
            for _ in range(count):
                connection.sendall(part)
        except OSError:
            return b"closed"
        connection.shutdown(socket.SHUT_WR)
        return received(connection)


CHUNKED = (
    b"POST /graphs/g/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@pytest.mark.parametrize(
    ("start_of", "part"),
    [
        (b"GET /" + b"a" * 1000, b"a" * 65_536),
        (b"GET /healthz HTTP/1.1\r\nA: ", b"a" * 65_536),
        (b"GET /healthz HTTP/1.1\r\n", b"A: b\r\n" * 10_000),
        (CHUNKED + b"1;", b"x" * 65_536),
        (CHUNKED + b"1\r\n{\r\n0\r\n", b"A: b\r\n" * 10_000),
        (CHUNKED + b"1\r\n{\r\n0\r\nA: ", b"a" * 65_536),
        (b"\r\n" * 10, b"\r\n" * 30_000),
    ],
    ids=["url", "header", "headers", "chunk extension", "trailers", "trailer", "empty lines"],
)
def test_endless_heads_are_cut(client: Client, start_of: bytes, part: bytes) -> None:
    answer = flood(client, start_of, part)
    assert answer == b"closed" or answer == b"" or parsed(answer).status == 400
    assert client.get("//healthz").status == 200


def test_a_large_body_is_refused_before_it_is_sent(client: Client) -> None:
    for path in ("query", "load", "load/ndjson"):
        media = b"application/x-ndjson" if path == "load/ndjson" else b"application/json"
        with connected(client) as connection:
            head = f"POST /graphs/g/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n".encode()
            connection.sendall(
                head + b"Expect: 100-continue\r\nConnection: close\r\nContent-Type: " + media + b"\r\n\r\n"
            )
            answer = parsed(received(connection))
        assert is_error(answer, 413), answer
        assert "resource_limit" in json.loads(answer.body)


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deep_bodies(client: Client, depth: int) -> None:
    nested = f"query q() {{ match {{ $p: Person }} return {{ {'(' * depth}1{')' * depth} }} }}"
    for body in (
        '{"query":"x","params":{"a":' + "[" * depth + "]" * depth + "}}",
        '{"query":"x","params":' + '{"a":' * depth + "1" + "}" * depth + "}",
        json.dumps({"query": nested}),
    ):
        assert client.post("/query", body.encode()).status == 400
    line = '{"type":"Person","data":' + '{"a":' * depth + "1" + "}" * depth + "}"
    assert client.post("/load/ndjson", line.encode(), media_type="application/x-ndjson").status in (400, 413)


def test_compressed_bodies_are_refused(client: Client) -> None:
    for path, media in (("/query", "application/json"), ("/load/ndjson", "application/x-ndjson")):
        found = client.post(path, b"\x1f\x8b", headers={"Content-Encoding": "gzip"}, media_type=media)
        assert (found.status, found.json["code"]) == (415, "bad_request")


def test_numbers_without_end(client: Client) -> None:
    for number in ("1e999", "-1e999", "1" * 5000, "0." + "1" * 5000, "1e-9999"):
        body = '{"query":"query q($n: F64) { match { $p: Person } return { $n as n } limit 1 }","params":{"n":NUMBER}}'
        assert client.post("/query", body.replace("NUMBER", number).encode()).status in (200, 400)
        assert client.get(f"/commits?limit={number}").status == 400
        budget = '{"query":"x","budget":{"rows":NUMBER}}'.replace("NUMBER", number)
        assert client.post("/query", budget.encode()).status == 400


# Slow clients


def test_a_body_that_drips_is_cut(serve: Serve) -> None:
    """Each part comes in time, but the whole body would take hours."""
    client = serve(limits=replace(LIMITS, header_seconds=0.5))

    def answer() -> bytes:
        with connected(client) as connection:
            connection.sendall(
                b"POST /graphs/g/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: 10000\r\nConnection: close\r\n\r\n"
            )
            for _ in range(500):  # far less than the body
                with suppress(ConnectionError):  # the answer may have come since the last look
                    connection.sendall(b" ")
                if select.select([connection], [], [], 0.1)[0]:
                    return connection.recv(65_536)
        raise AssertionError("the body was not cut")

    assert is_error(parsed(in_time(answer)), 400)


def test_the_rest_of_a_body_that_nobody_reads_has_little_time(serve: Serve) -> None:
    """The answer comes before the body. The connection does not stay open for a body that never ends."""
    client = serve(limits=replace(LIMITS, header_seconds=0.5))
    with ExitStack() as open_connections:

        def answer() -> bytes:
            open_connections.close()
            connection = open_connections.enter_context(connected(client))
            connections.append(connection)
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n ")
            return connection.recv(65_536)

        connections: list[socket.socket] = []
        assert in_time(answer).startswith(b"HTTP/1.1 200 ")
        connection = connections[-1]

        def is_closed() -> bool:
            try:
                connection.sendall(b" ")
            except OSError:
                return True
            return False

        until(is_closed, pause=0.05)


def test_a_client_that_reads_drop_by_drop_is_disconnected(root: Path, serve: Serve) -> None:
    """It reads on and on, but too little to keep the only slot of exports."""
    with omnigraph.open(root) as graph:
        graph.load({"Person": [{"name": "eve", "photo": bytes(16 << 20)}]}, mode="append")
    for seconds in (2.0, 20.0, 200.0):  # a busy machine may need long until it asks for the slot
        client = serve(limits=replace(LIMITS, send_seconds=seconds, streams=1, stream_wait=0.05))
        if _loses_its_slot(client):
            return
    raise AssertionError("there was no time in which it had the slot")


def _loses_its_slot(client: Client) -> bool:
    """Read drop by drop until another export has the slot. Returns whether that had to wait for it."""
    with connected(client) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"POST /graphs/g/export HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        connection.sendall(b"Content-Length: 2\r\n\r\n{}")
        assert connection.recv(1)
        had_slot = client.post("/export", {"type_names": ["Knows"]}).status == 413

        def has_lost_its_slot() -> bool:
            connection.recv(1)
            return client.post("/export", {"type_names": ["Knows"]}).status == 200

        until(has_lost_its_slot, pause=0.05)
        return had_slot


# Connections


def handles(process: int) -> int:
    """The open files of a process and its children."""
    children = [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return len(os.listdir(f"/proc/{process}/fd")) + sum(handles(child) for child in children)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc to count handles")
@pytest.mark.parametrize(("workers", "count"), [(1, 10_000), (2, 2_000)])
def test_connections_are_opened_and_dropped(
    root: Path,
    processes: ExitStack,  # noqa: F811
    workers: int,
    count: int,
) -> None:
    process = start(processes, "--store", str(root), "--unauthenticated", "--workers", str(workers))
    for _ in range(8):  # so that each worker has opened its files
        assert process.client.post("/query", {"query": SELECT}).status == 200
    base = handles(process.id)
    host, _, port = process.client.address.rpartition(":")
    starts = [b"", b"GET /graphs/default/branches HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"\0"]
    for number in range(count):
        connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
        connection.sendall(starts[number % len(starts)])
        if number % 8 < 4:  # reset instead of closed
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    until(lambda: handles(process.id) <= base, pause=0.05)
    assert process.client.post("/query", {"query": SELECT}).status == 200
