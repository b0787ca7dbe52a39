"""Answers stream with back-pressure, and work stops when the client leaves."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.patience import PATIENCE, until
from tests.server.conftest import LIMITS, SELECT, Client, Serve

import omnigraph
from omnigraph.commit import turns
from omnigraph.read.budget import Cancellation
from omnigraph.server import history_routes, query_routes
from omnigraph.server.read_threads import ReadThreads
from omnigraph.server.streaming import chunked
from omnigraph.server.work import Deadline, limited
from omnigraph.write.mutation import Mutation

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
WIDE = "query wide() { match { $a: Person } return { $a.name as name, $a.text as text } order { name asc } }"
SLOW = """
query slow() {
    match { $a: Person  $b: Person  $c: Person  $a.name < $b.name  $b.name < $c.name }
    return { count($c.text) as n, max($a.text) as m }
}
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A graph of 20,000 persons with long texts."""
    path = tmp_path_factory.mktemp("large") / "graph"
    with omnigraph.init(path, "node Person { name: String @key  text: String }") as graph:
        names = [f"p{number:06}" for number in range(20_000)]
        rows = pa.table({"name": names, "text": [name * 60 for name in names]})
        graph.load({"Person": rows}, mode="append")
    return str(path)


@contextmanager
def opened(client: Client, path: str, body: Any, accept: str, buffer: int = 0) -> Iterator[socket.socket]:
    """Send a request, and leave the answer unread."""
    host, _, port = client.address.rpartition(":")
    connection = socket.socket()
    if buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.connect((host, int(port)))
    raw = json.dumps(body).encode()
    head = (
        f"POST /graphs/g{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Accept: {accept}\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    connection.sendall(head.encode() + raw)
    try:
        yield connection
    finally:
        connection.close()


def test_ndjson(client: Client) -> None:
    found = client.post("/query", {"query": SELECT}, headers={"Accept": f"text/html, {NDJSON}"})
    metadata, *rows = found.lines
    assert found.headers["content-type"].startswith(NDJSON)
    assert metadata["kind"] == "metadata"
    assert metadata["columns"] == ["name", "age"]
    assert rows == [{"name": "ann", "age": 30}, {"name": "bob", "age": 40}]
    assert found.headers["omnigraph-graph-commit-id"] == metadata["graph_commit_id"]


def test_arrow(client: Client) -> None:
    found = client.post("/query", {"query": SELECT}, headers={"Accept": f"application/json;q=0.5, {ARROW}"})
    table = pa.ipc.open_stream(found.body).read_all()
    assert table.to_pylist() == [{"name": "ann", "age": 30}, {"name": "bob", "age": 40}]
    assert json.loads(table.schema.metadata[b"omnigraph"])["target"] == {"branch": "main", "snapshot": None}


def test_an_empty_result_has_its_columns_in_arrow(client: Client) -> None:
    text = SELECT.replace("$p: Person", '$p: Person { name: "none" }')
    found = client.post("/query", {"query": text}, headers={"Accept": ARROW})
    assert pa.ipc.open_stream(found.body).read_all().schema.names == ["name", "age"]


def test_errors_come_before_the_status(client: Client) -> None:
    for accept in (NDJSON, ARROW):
        found = client.post("/query", {"query": "query q() { match }"}, headers={"Accept": accept})
        assert (found.status, found.json["code"]) == (400, "bad_request")


def test_the_formats_have_the_same_rows(large: str, serve: Serve) -> None:
    client = serve(graphs={"g": large})
    rows = client.post("/query", {"query": WIDE}).json["rows"]
    assert len(rows) == 20_000
    assert client.post("/query", {"query": WIDE}, headers={"Accept": NDJSON}).lines[1:] == rows
    arrow = client.post("/query", {"query": WIDE}, headers={"Accept": ARROW}).body
    assert pa.ipc.open_stream(arrow).read_all().to_pylist() == rows


@pytest.mark.parametrize("sizes", [[], [1], [3, 3], [10], [1, 7, 0, 2, 30]])
def test_chunks_join_and_split(sizes: list[int]) -> None:
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
    found = list(chunked(iter(pieces), 4))
    assert b"".join(found) == b"".join(pieces)
    assert all(len(piece) == 4 for piece in found[:-1])


class Counted:
    """Counts the pieces that an export produces, and whether it was closed."""

    def __init__(self) -> None:
        self.produced = 0
        self.closed = threading.Event()

    def lines(self, real: Any) -> Iterator[bytes]:
        try:
            for _ in range(100_000):
                self.produced += 1
                yield b"x" * 65_536
        finally:
            self.closed.set()


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Makes baselines almost endless."""
    counted = Counted()

    class Fake:
        def lines(self) -> Iterator[bytes]:
            return counted.lines(None)

    monkeypatch.setattr(history_routes, "baseline", lambda session, request: Fake())
    return counted


def test_a_client_that_does_not_read_stops_the_producer(client: Client, endless: Counted) -> None:
    with opened(client, "/changes/baseline", {}, NDJSON, buffer=4096):
        until(lambda: endless.produced > 2)
        seen = -1
        while endless.produced != seen:  # it fills the buffers of the sockets first
            seen = endless.produced
            time.sleep(0.3)
        assert seen < 200
        assert not endless.closed.is_set()
    assert endless.closed.wait(PATIENCE)


def test_a_client_that_does_not_read_is_disconnected(serve: Serve, endless: Counted) -> None:
    client = serve(limits=replace(LIMITS, send_seconds=0.2))
    with opened(client, "/changes/baseline", {}, NDJSON, buffer=4096):
        assert endless.closed.wait(PATIENCE)


def test_exports_have_a_limited_number_of_slots(serve: Serve, endless: Counted) -> None:
    client = serve(limits=replace(LIMITS, streams=1, stream_wait=0.05))
    with opened(client, "/changes/baseline", {}, NDJSON, buffer=4096):
        until(lambda: endless.produced > 2)
        found = client.post("/export", {})
        assert (found.status, found.json["code"]) == (413, "bad_request")
        assert found.json["resource_limit"]["resource"] == "stream_export_transport_bytes"
    assert endless.closed.wait(PATIENCE)
    until(lambda: client.post("/export", {}).status == 200)


def test_large_json_does_not_wait_for_exports(large: str, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """All exports that may run collect and sort the rows of their first parts, or have parts to produce."""
    begun, proceed = threading.Semaphore(0), threading.Event()

    class Sorting:
        def __init__(self, parts: int) -> None:
            self.parts = parts

        def lines(self) -> Iterator[bytes]:
            yield from [b"x" * 65_536] * self.parts
            begun.release()
            assert proceed.wait(PATIENCE)
            yield b"{}\n"

    made = iter([Sorting(0), Sorting(2)])
    monkeypatch.setattr(history_routes, "baseline", lambda session, request: next(made))
    client = serve(graphs={"g": large}, limits=replace(LIMITS, streams=2, stream_threads=2))
    with opened(client, "/changes/baseline", {}, NDJSON), opened(client, "/changes/baseline", {}, NDJSON):
        assert begun.acquire(timeout=PATIENCE)
        assert begun.acquire(timeout=PATIENCE)
        try:
            for accept in ("application/json", NDJSON):
                found = client.post("/query", {"query": WIDE}, headers={"Accept": accept})
                assert len(found.body) > 20_000 * 60
        finally:
            proceed.set()


def counted(monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> Callable[[], int]:
    """Count the calls of a method from now on. Returns a function that returns their number."""
    calls: list[object] = []
    method = getattr(kind, name)

    def call(self: object, *arguments: object) -> object:
        done = method(self, *arguments)
        calls.append(self)
        return done

    monkeypatch.setattr(kind, name, call)
    return lambda: len(calls)


class Blocking:
    """A query that runs until it is cancelled, and notes when."""

    def __init__(self) -> None:
        self.running = threading.Event()
        self.stopped_at = 0.0

    def run(self, call: Any, session: Any) -> None:
        from omnigraph.read.budget import checkpoint

        self.running.set()
        try:
            while True:
                checkpoint()
                time.sleep(0.001)
        finally:
            self.stopped_at = time.monotonic()


@pytest.mark.parametrize("accept", ["application/json", NDJSON, ARROW])
def test_a_client_that_leaves_stops_the_work(client: Client, monkeypatch: pytest.MonkeyPatch, accept: str) -> None:
    blocking = Blocking()
    monkeypatch.setattr(query_routes.Reading, "run", lambda self, call, session: blocking.run(call, session))
    with opened(client, "/query", {"query": SELECT}, accept):
        assert blocking.running.wait(PATIENCE)
        left = time.monotonic()
    until(lambda: blocking.stopped_at)
    assert blocking.stopped_at - left < LIMITS.request_seconds / 2  # the benchmark measures how soon
    monkeypatch.undo()
    assert client.post("/query", {"query": SELECT}).status == 200


@pytest.mark.parametrize("parts", [0, 1])
def test_an_export_stops_when_its_client_leaves(client: Client, monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    """Also while it sorts or filters rows, and has no part to send."""
    blocking = Blocking()

    class Slow:
        def lines(self) -> Iterator[bytes]:
            yield from [b"x" * 65_536] * parts
            blocking.run(None, None)

    monkeypatch.setattr(history_routes, "baseline", lambda session, request: Slow())
    with opened(client, "/changes/baseline", {}, NDJSON):
        assert blocking.running.wait(PATIENCE)
        left = time.monotonic()
    until(lambda: blocking.stopped_at)
    assert blocking.stopped_at - left < LIMITS.request_seconds / 2


def test_a_large_json_answer_is_in_flight_until_it_is_read(large: str, serve: Serve) -> None:
    client = serve(graphs={"g": large}, limits=replace(LIMITS, actor_reads=1))
    with opened(client, "/query", {"query": WIDE}, "application/json", buffer=4096) as connection:
        assert connection.recv(12) == b"HTTP/1.1 200"
        assert client.post("/query", {"query": SLOW}).status == 429
    until(lambda: client.post("/query", {"query": WIDE}).status == 200)


def test_a_waiting_mutation_of_a_client_that_left_is_dropped(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the turn of its branch. The others of its group are written."""
    entered, proceed = threading.Event(), threading.Event()
    real = Mutation.prepare

    def prepare(self: Mutation, snapshot: Any) -> Any:
        entered.set()
        assert proceed.wait(PATIENCE)
        return real(self, snapshot)

    def insert(name: str) -> dict[str, str]:
        return {"query": f'query q() {{ insert Person {{ name: "{name}" }} }}'}

    monkeypatch.setattr(Mutation, "prepare", prepare)
    cancelled = counted(monkeypatch, Cancellation, "cancel")
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda one=name: answers.append(client.post("/mutate", insert(one)).status))
        for name in ("first", "second", "third")
    ]
    threads[0].start()
    assert entered.wait(PATIENCE)
    with opened(client, "/mutate", insert("dropped"), "*/*"):
        for thread in threads[1:]:
            thread.start()
        until(lambda: sum(len(queue) for queue in list(turns._QUEUES.values())) == 3)
        assert cancelled() == 0
    until(cancelled)
    proceed.set()
    for thread in threads:
        thread.join()
    assert answers == [200, 200, 200]
    names = {row["name"] for row in client.post("/query", {"query": SELECT}).json["rows"]}
    assert names == {"ann", "bob", "first", "second", "third"}


def test_queued_work_of_a_client_that_left_is_dropped(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(limits=replace(LIMITS, threads=1))
    blocking, started = Blocking(), []
    real = query_routes.Reading.run

    def run(self: query_routes.Reading, call: Any, session: Any) -> Any:
        started.append(self.name)
        return blocking.run(call, session) if self.name == "slow" else real(self, call, session)

    monkeypatch.setattr(query_routes.Reading, "run", run)
    submitted = counted(monkeypatch, ReadThreads, "submit")
    cancelled = counted(monkeypatch, Cancellation, "cancel")
    with opened(client, "/query", {"query": SELECT, "name": "slow"}, "*/*"):
        assert blocking.running.wait(PATIENCE)
        with opened(client, "/query", {"query": SELECT, "name": "queued"}, "*/*"):
            until(lambda: submitted() == 2)
        until(cancelled)
    until(lambda: blocking.stopped_at)
    assert client.post("/query", {"query": SELECT}).status == 200
    assert started == ["slow", None]


def test_a_real_query_stops_soon_after_the_client_has_left(large: str, serve: Serve) -> None:
    client = serve(graphs={"g": large}, limits=replace(LIMITS, threads=1))
    with opened(client, "/query", {"query": SLOW}, "*/*"):
        time.sleep(1)
    # The only thread is free again: the query alone would take much longer than its time limit.
    started = time.monotonic()
    assert client.post("/query", {"query": WIDE + " "}).status == 200
    assert time.monotonic() - started < 30


def test_the_deadline_of_a_request(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(limits=replace(LIMITS, request_seconds=0.2))
    blocking = Blocking()
    monkeypatch.setattr(query_routes.Reading, "run", lambda self, call, session: blocking.run(call, session))
    found = client.post("/query", {"query": SELECT})
    assert (found.status, found.json["code"], found.json["kind"]) == (413, "bad_request", "budget_exceeded")
    assert found.json["resource_limit"]["resource"] == "seconds"
    assert found.json["resource_limit"]["limit"] <= 0.2


def test_budgets_of_rows_and_memory(serve: Serve, large: str) -> None:
    client = serve(graphs={"g": large}, limits=replace(LIMITS, request_rows=100))
    found = client.post("/query", {"query": WIDE})
    assert (found.status, found.json["resource_limit"]["resource"]) == (413, "rows of result")
    asked = client.post("/query", {"query": WIDE, "budget": {"returned": 1_000_000}})
    assert asked.status == 413
    less = client.post("/query", {"query": SLOW, "budget": {"rows": 10}})
    assert (less.status, less.json["resource_limit"]["resource"]) == (413, "rows")
    assert client.post("/query", {"query": SELECT, "budget": {"seconds": -1}}).status == 400


def test_the_event_loop_answers_while_all_threads_are_busy(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(limits=replace(LIMITS, threads=1))
    blocking = Blocking()
    monkeypatch.setattr(query_routes.Reading, "run", lambda self, call, session: blocking.run(call, session))
    with opened(client, "/query", {"query": SELECT}, "*/*"):
        assert blocking.running.wait(PATIENCE)
        assert client.get("//healthz").status == 200
        assert client.post("/mutate", {"query": 'query q() { insert Person { name: "eve" } }'}).status == 200


def test_a_cancelled_read_does_not_start() -> None:
    from omnigraph.errors import CancelledError
    from omnigraph.read.budget import Budget

    cancel = Cancellation()
    cancel.cancel()
    with pytest.raises(CancelledError):
        limited(lambda: pytest.fail("it ran"), Budget(), cancel)
    assert Deadline(5).left() > 0
