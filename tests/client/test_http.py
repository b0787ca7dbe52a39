"""The HTTP client alone: lost answers, timeouts, cancellation, redirects, identity, and answers of strangers."""

from __future__ import annotations

import asyncio
import copy
import inspect
import os
import pickle
import re
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from tests.client.conftest import INSERT, SELECT, ServerProcess
from tests.patience import PATIENCE, until

import omnigraph
from omnigraph.client import clients, members
from omnigraph.client.call_threads import THREADS
from omnigraph.client.clients import AsyncGraphClient, GraphClient
from omnigraph.client.proxies import proxy_for
from omnigraph.client.verbs import LazyVerb, Verb


class Peer:
    """A server of raw bytes.

    Attributes:
        requests: the bytes of each request.
        left: set when a client has closed its connection.
    """

    def __init__(self, answer: bytes | None, *, stay: bool) -> None:
        self.requests: list[bytes] = []
        self.left = threading.Event()
        self._answer = answer
        self._stay = stay
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                received = _request(connection)
                if not received:
                    continue
                self.requests.append(received)
                if self._answer is not None:
                    connection.sendall(self._answer)
                if self._stay:
                    with suppress(ConnectionError):
                        while connection.recv(65_536):
                            pass
                    self.left.set()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


def _request(connection: socket.socket) -> bytes:
    """A whole request, or what came of it."""
    received = b""
    with suppress(ConnectionError):
        while part := connection.recv(65_536):
            received += part
            head, end, body = received.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            if end and len(body) >= (int(length[1]) if length else 0):
                break
    return received


@contextmanager
def peer(answer: bytes | None, *, stay: bool = False) -> Iterator[Peer]:
    """A server that answers each request with these bytes.

    Args:
        answer: the bytes; None: it never answers.
        stay: whether it keeps the connection open until the client leaves.
    """
    found = Peer(answer, stay=stay or answer is None)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def unused_port() -> Iterator[int]:
    """A port that nobody else gets, and that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])


def connected(address: str) -> GraphClient:
    return omnigraph.connect(address, graph_id="g")


def test_no_server() -> None:
    with unused_port() as port, connected(f"http://127.0.0.1:{port}") as client:
        for call in (lambda: client.query(SELECT), lambda: client.mutate(INSERT)):
            with pytest.raises(omnigraph.NetworkError) as caught:
                call()
            assert caught.value.retryable


EXPORT = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"
"""The first line of an export that does not end."""

LOST = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"


@pytest.mark.parametrize("answer", [b"", LOST], ids=["no answer", "half an answer"])
def test_a_lost_answer_of_a_write_is_an_unknown_outcome(answer: bytes) -> None:
    with peer(answer) as server, connected(server.address) as client:
        with pytest.raises(omnigraph.OutcomeUnknownError) as caught:
            client.mutate(INSERT, {"n": "cat"})
        assert "idempotency key" in str(caught.value.hint)
        assert "IncompleteRead" not in str(caught.value)
        assert len(server.requests) == 1
        with pytest.raises(omnigraph.NetworkError):
            client.query(SELECT)
        assert len(server.requests) == 2


def test_a_proxy_that_answers_for_the_server() -> None:
    answer = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops"
    with peer(answer) as server, connected(server.address) as client:
        with pytest.raises(omnigraph.OutcomeUnknownError):
            client.mutate(INSERT)
        with pytest.raises(omnigraph.NetworkError):
            client.query(SELECT)


def answer(body: bytes, *, status: str = "200 OK", media: str = "application/json", head: str = "") -> bytes:
    """An answer, whose connection is closed after it."""
    given = f"HTTP/1.1 {status}\r\nContent-Type: {media}\r\n{head}Connection: close\r\n"
    return f"{given}Content-Length: {len(body)}\r\n\r\n".encode() + body


STRANGERS = {
    "a page": answer(b"<html>", media="text/html"),
    "nothing": answer(b""),
    "a list": answer(b"[]"),
    "another object": answer(b'{"a": 1}'),
    "no content": b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a compressed body": answer(b"\x1f\x8b1234", head="Content-Encoding: gzip\r\n"),
    "an unknown kind": answer(b'{"error": "x", "kind": ["y"]}', status="400 Bad Request"),
    "strange details": answer(b'{"error": "x", "kind": "bad_rows", "problems": [1]}', status="400 Bad Request"),
    "a date to try again": answer(b"", status="429 Busy", head="Retry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n"),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_answers_of_strangers_are_errors_of_the_family(name: str) -> None:
    with peer(STRANGERS[name]) as server, connected(server.address) as client:
        for read in (
            lambda: client.query(SELECT),
            lambda: client.branches.list(),
            lambda: client.commits.list(),
            lambda: client.blobs.get("Person", "ann", "photo"),
            lambda: client.blobs.stat("Person", "ann", "photo"),
        ):
            with pytest.raises(omnigraph.OmnigraphError):
                read()
        with pytest.raises(omnigraph.OmnigraphError) as caught:
            client.mutate(INSERT, {"n": "cat"})
        if b" 200 " in STRANGERS[name] or b"HTTP" not in STRANGERS[name]:
            assert isinstance(caught.value, omnigraph.OutcomeUnknownError)


def test_a_page_in_place_of_an_export_is_an_error() -> None:
    with peer(STRANGERS["a page"]) as server, connected(server.address) as client:
        for lines in (client.export(), client.export_parts(), client.changes.baseline()):
            with pytest.raises(omnigraph.NetworkError, match="not that of an OmniGraph server"):
                list(lines)


def test_an_answer_whose_end_nobody_can_know_is_an_error() -> None:
    """Without a length, an answer that was cut looks like a whole one."""
    cut = b'HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n{"type":"Person"}\n'
    with peer(cut) as server, connected(server.address) as client:
        with pytest.raises(omnigraph.NetworkError):
            list(client.export())
        with pytest.raises(omnigraph.OutcomeUnknownError):
            client.mutate(INSERT, {"n": "cat"})


def test_members_of_newer_servers_are_ignored() -> None:
    stored = b'{"queries": [{"name": "a", "tool_name": "a", "mutation": false, "params": [], "changed": 7}], "more": 1}'
    with peer(answer(stored)) as server, connected(server.address) as client:
        assert [one.name for one in client.queries.list()] == ["a"]
    problem = b'{"record": 1, "place": "line 1", "subject": "Person", "message": "bad", "column": 3}'
    body = b'{"error": "x", "kind": "bad_rows", "total_problems": 1, "problems": [%s]}' % problem
    with peer(answer(body, status="400 Bad Request")) as server, connected(server.address) as client:
        with pytest.raises(omnigraph.BadRowsError) as caught:
            client.load_ndjson("{}", mode="merge")
        assert caught.value.problems[0].place == "line 1"


def test_redirects_are_not_followed() -> None:
    with peer(None) as target:
        head = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {target.address}/graphs/g/query\r\nContent-Length: 0\r\n"
        with peer(head.encode() + b"Connection: close\r\n\r\n") as server:
            client = omnigraph.connect(server.address, graph_id="g", token="secret")
            with client, pytest.raises(omnigraph.InputError):
                client.query(SELECT)
            assert len(server.requests) == 1
        assert target.requests == []


def test_timeouts() -> None:
    with peer(None) as server, connected(server.address) as client:

        def outcome(call: Callable[[], object]) -> type[omnigraph.OmnigraphError]:
            """The error of a call that reached the server. On a busy machine, its time may be over before that."""
            while True:
                before = len(server.requests)
                with pytest.raises(omnigraph.OmnigraphError) as caught:
                    call()
                if len(server.requests) > before:
                    return caught.type

        started = time.monotonic()
        hasty = client.with_options(timeout=0.2)
        assert outcome(lambda: hasty.query(SELECT)) is omnigraph.RequestTimeoutError
        assert time.monotonic() - started < PATIENCE / 2
        assert server.left.wait(PATIENCE)
        assert outcome(lambda: hasty.mutate(INSERT)) is omnigraph.OutcomeUnknownError


def test_cancellation_closes_the_connection() -> None:
    with peer(None) as server, connected(server.address) as client:
        cancel = omnigraph.Cancellation()

        def cancel_after_the_request() -> None:
            until(lambda: server.requests)
            cancel.cancel()

        canceller = threading.Thread(target=cancel_after_the_request)
        canceller.start()
        with pytest.raises(omnigraph.CancelledError):
            client.query(SELECT, cancel=cancel)
        canceller.join()
        assert server.left.wait(PATIENCE)


def test_cancellation_ends_the_wait_for_a_connection() -> None:
    with socket.socket() as listening, ExitStack() as waiting:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(3):  # the queue of the listener is full, so that further connections wait
            caller = waiting.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listening.getsockname())
        cancel = omnigraph.Cancellation()
        timer = threading.Timer(0.2, cancel.cancel)
        timer.start()
        started = time.monotonic()
        with (
            connected(f"http://127.0.0.1:{listening.getsockname()[1]}") as client,
            pytest.raises(omnigraph.CancelledError),
        ):
            client.query(SELECT, cancel=cancel)
        timer.join()
        assert time.monotonic() - started < 20  # the limit for a connection is 30 seconds


def test_a_cancelled_task_does_not_wait_for_a_free_thread() -> None:
    async def run(address: str) -> None:
        async with omnigraph.connect_async(address, graph_id="g") as client:
            running = [asyncio.create_task(client.query(SELECT)) for _ in range(THREADS)]
            while len(server.requests) < 1:
                await asyncio.sleep(0.01)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.query(SELECT), 0.2)
            for task in running:
                task.cancel()
            assert all(
                isinstance(one, asyncio.CancelledError)
                for one in await asyncio.gather(*running, return_exceptions=True)
            )

    with peer(None) as server:
        asyncio.run(asyncio.wait_for(run(server.address), PATIENCE))


def test_an_asynchronous_iterator_that_is_left_closes_its_connection() -> None:
    async def run(address: str) -> None:
        client = omnigraph.connect_async(address, graph_id="g")
        lines = client.export()
        assert await anext(lines) == b"{}\n"
        await client.aclose()  # before the iterator
        await lines.aclose()

    with peer(EXPORT, stay=True) as server:
        asyncio.run(run(server.address))
        assert server.left.wait(PATIENCE)


def test_a_forked_process_has_connections_and_threads_of_its_own(server: ServerProcess) -> None:
    async def names(client: AsyncGraphClient) -> int:
        return (await client.query(SELECT)).row_count

    with omnigraph.connect(server.address, graph_id="default") as client:
        twin = omnigraph.connect_async(server.address, graph_id="default")
        assert client.query(SELECT).row_count == 2
        assert asyncio.run(names(twin)) == 2
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # this process has threads, and has imported Lance, which the child does not use
            child = os.fork()
        if child == 0:
            try:
                both = [client.query(SELECT).row_count, asyncio.run(asyncio.wait_for(names(twin), PATIENCE))]
                os._exit(0 if both == [2, 2] else 1)
            finally:
                os._exit(2)
        for _ in range(20):
            assert client.query(SELECT).row_count == 2
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.query(SELECT).row_count == 2
        asyncio.run(twin.aclose())


REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_of_the_environment(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with peer(REFUSED) as proxy:
        port = proxy.address.rpartition(":")[2]
        monkeypatch.setenv(f"{scheme}_proxy", f"http://kim:w0rd@127.0.0.1:{port}")
        client = omnigraph.connect(f"{scheme}://graphs.example/base", graph_id="g", token="s3cret")
        with client, pytest.raises(omnigraph.OmnigraphError) as caught:
            client.mutate(INSERT, {"n": "cat"})
        request = proxy.requests[0]
    assert b"Proxy-Authorization: Basic a2ltOncwcmQ=" in request
    if scheme == "http":
        assert request.startswith(b"POST http://graphs.example/base/graphs/g/mutate HTTP/1.1\r\n")
        assert b"Host: graphs.example\r\n" in request
    else:  # the request has not been sent, so nothing was written
        assert request.startswith(b"CONNECT graphs.example:443 HTTP/1.")
        assert b"s3cret" not in request
        assert isinstance(caught.value, omnigraph.NetworkError)
    assert "w0rd" not in caught.value.render()


@pytest.mark.parametrize(
    ("variables", "host", "expected"),
    [
        ({}, "graphs.example", None),
        ({"HTTPS_PROXY": "proxy:3128"}, "graphs.example", ("proxy", 3128)),
        ({"ALL_PROXY": "http://proxy"}, "graphs.example", ("proxy", 80)),
        ({"ALL_PROXY": "socks5h://other:1080"}, "graphs.example", None),
        ({"ALL_PROXY": "socks5h://other:1080", "HTTPS_PROXY": "HTTP://proxy:3128"}, "graphs.example", ("proxy", 3128)),
        ({"HTTP_PROXY": "proxy:3128"}, "graphs.example", None),
        ({"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "a.example,.example"}, "graphs.example", None),
        ({"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "*"}, "graphs.example", None),
        ({"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "other.example"}, "graphs.example", ("proxy", 3128)),
        ({"HTTPS_PROXY": "proxy:3128"}, "127.0.0.1", None),
        ({"HTTPS_PROXY": "proxy:3128"}, "::1", None),
        ({"HTTPS_PROXY": "proxy:3128"}, "localhost", None),
    ],
)
def test_the_choice_of_a_proxy(
    variables: dict[str, str], host: str, expected: tuple[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = proxy_for("https", host, None)
    assert (None if found is None else (found.host, found.port)) == expected


@pytest.mark.parametrize(
    ("variable", "address"),
    [
        ("https_proxy", "socks5://kim:w0rd@proxy:1080"),
        ("https_proxy", "https://kim:w0rd@proxy:1080"),
        ("https_proxy", "http://:80"),
        ("https_proxy", "http://proxy:port"),
        ("all_proxy", "http://kim:w0rd@proxy:port"),
    ],
)
def test_a_proxy_that_is_not_supported(variable: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable that was used, and the way to do without a proxy."""
    monkeypatch.setenv("all_proxy", "socks5h://other:1080")
    monkeypatch.setenv(variable, address)
    with pytest.raises(omnigraph.ConfigurationError, match=f"^{variable.upper()} is not .*SOCKS") as caught:
        omnigraph.connect("https://graphs.example")
    assert "w0rd" not in caught.value.render()
    assert "NO_PROXY" in str(caught.value.hint)
    monkeypatch.setenv("no_proxy", "graphs.example")
    omnigraph.connect("https://graphs.example").close()


MISSPELT = ["graphs..example", "a" * 70 + ".example"]


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", MISSPELT)
def test_a_misspelt_host_is_a_network_error(scheme: str, host: str) -> None:
    async def health() -> None:
        async with omnigraph.connect_async(f"{scheme}://{host}:8080", graph_id="g") as client:
            await client.health()

    with pytest.raises(omnigraph.NetworkError, match=f"cannot be reached: '{host}' is not the name of a host"):
        asyncio.run(health())
    with omnigraph.connect(f"{scheme}://{host}:8080", graph_id="g") as client:
        for call in (client.health, lambda: client.mutate(INSERT, {"n": "cat"})):
            with pytest.raises(omnigraph.NetworkError, match=f"cannot be reached: '{host}' is not the name of a host"):
                call()


def test_a_misspelt_host_of_a_proxy_is_a_network_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy..example:3128")
    client = omnigraph.connect("https://graphs.example", graph_id="g")
    with client, pytest.raises(omnigraph.NetworkError, match=r"'proxy\.\.example' is not the name of a host"):
        client.health()


def test_a_client_is_not_copied() -> None:
    with omnigraph.connect("http://127.0.0.1:1", token="s3cret") as client:
        for call in (lambda: pickle.dumps(client), lambda: copy.copy(client), lambda: copy.deepcopy(client.branches)):
            with pytest.raises(TypeError, match="connect in each process"):
                call()
        assert "s3cret" not in repr(client) + repr(vars(client))


def test_a_cancelled_task_closes_the_connection() -> None:
    async def run(server: Peer) -> None:
        async with omnigraph.connect_async(server.address, graph_id="g") as client:
            task = asyncio.create_task(client.query(SELECT))
            while not server.requests:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with peer(None) as server:
        asyncio.run(asyncio.wait_for(run(server), PATIENCE))
        assert server.left.wait(PATIENCE)


def test_calls_of_an_asynchronous_client_run_together(server: ServerProcess) -> None:
    async def run() -> list[int]:
        async with omnigraph.connect_async(server.address, graph_id="default") as client:
            found = await asyncio.gather(*(client.query(SELECT) for _ in range(20)))
            return [result.row_count for result in found]

    assert asyncio.run(run()) == [2] * 20


def test_an_export_that_ends_early_closes_the_connection() -> None:
    with peer(EXPORT) as server, connected(server.address) as client:
        lines = client.export()
        assert server.requests == []
        assert next(lines) == b"{}\n"
        with pytest.raises(omnigraph.NetworkError):
            next(lines)


def test_a_baseline_without_its_end_is_an_error() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    body = b'{"type":"Person","data":{"id":"a"}}\n'
    whole = head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with peer(whole) as server, connected(server.address) as client, pytest.raises(omnigraph.NetworkError) as caught:
        list(client.changes.baseline())
    assert "last record" in str(caught.value)


def test_identity(serve: Callable[..., ServerProcess], tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text('{"kim": "k-secret"}')
    server = serve(OMNIGRAPH_SERVER_BEARER_TOKENS_FILE=str(tokens))
    with omnigraph.connect(server.address, graph_id="default") as client:
        with pytest.raises(omnigraph.UnauthorizedError) as missing:
            client.query(SELECT)
        assert missing.value.request_id
    with omnigraph.connect(server.address, graph_id="default", token="k-secret") as client:
        assert client.query(SELECT).row_count == 2
        with pytest.raises(omnigraph.ForbiddenError):
            client.mutate(INSERT, {"n": "cat"})


def test_errors_have_the_id_of_the_request(remote: GraphClient) -> None:
    with pytest.raises(omnigraph.ParseError) as caught:
        remote.query("query")
    assert caught.value.request_id


def test_stored_queries(remote: GraphClient) -> None:
    assert [(one.name, one.mutation) for one in remote.queries.list()] == [("add_person", True), ("people", False)]
    assert [row["name"] for row in remote.queries.invoke("people")] == ["ann", "bob"]
    head = remote.snapshot().graph_commit_id
    receipt = remote.queries.invoke_mutation("add_person", {"n": "cat"}, if_graph_commit=head)
    assert receipt.affected_nodes == 1
    with pytest.raises(omnigraph.PreconditionFailedError):
        remote.queries.invoke_mutation("add_person", {"n": "dog"}, if_graph_commit=head)
    with pytest.raises(omnigraph.InputError):
        remote.queries.invoke("add_person", {"n": "dog"})
    with pytest.raises(omnigraph.NotFoundError):
        remote.queries.invoke("none")


def test_nothing_is_sent_for_options_that_a_server_does_not_take() -> None:
    with peer(b"") as server, connected(server.address) as client:
        for call in (
            lambda: client.query(SELECT, at=3),
            lambda: client.mutate(INSERT, reads=[SELECT]),
            lambda: client.mutate(INSERT, timeout=1.0),
            lambda: client.load("{}", mode="merge", memory_budget="1 GiB"),
            lambda: client.load_ndjson("{}", mode="merge", labels={"a": "b"}),
            lambda: client.branches.merge("a", engine="spark"),
            lambda: client.schema.apply("node A { name: String @key }", allow="safe"),
            lambda: client.changes.poll(wait=2.0),
            lambda: client.load("{}", mode="merge", embed=False),
            lambda: client.mutate(INSERT, idempotency_key="a\nb: c"),
            lambda: client.mutate(INSERT, idempotency_key="żółw"),
            lambda: client.mutate(INSERT, if_graph_commit="a\r\nb"),
        ):
            with pytest.raises(omnigraph.ConfigurationError):
                call()
        assert server.requests == []


def test_a_call_without_a_graph_sends_nothing(server: ServerProcess) -> None:
    with omnigraph.connect(server.address) as client:
        assert client.health().status == "ok"
        with pytest.raises(omnigraph.ConfigurationError):
            client.query(SELECT)
        assert client.graph("default").query(SELECT).row_count == 2
        with pytest.raises(omnigraph.NotFoundError):
            client.graph("other").query(SELECT)


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("http://", {}),
        ("http://host:1/?a=b", {}),
        ("http://user:word@host", {}),
        ("http://host", {"token": "a\r\nX: b"}),
        ("http://host", {"graph_id": "a/b"}),
        ("http://host:port", {}),
        ("http://host:99999", {}),
        ("http://host:0", {}),
        ("http://[::1", {}),
        ("http://kim:w0rd@host:port/?a", {}),
        ("https://host/żółw", {}),
        ("https://host/a b", {}),
        ("https://host\n", {}),
        ("https:host", {}),
        ("http://host", {"read_only": True}),
        ("graph.omni", {"token": "t"}),
    ],
)
def test_configuration(address: str, options: dict[str, str]) -> None:
    with pytest.raises(omnigraph.ConfigurationError) as caught:
        omnigraph.connect(address, **options)  # type: ignore[arg-type]
    assert "w0rd" not in str(caught.value)


def test_a_closed_client(server: ServerProcess) -> None:
    client = omnigraph.connect(server.address, graph_id="default")
    assert client.query(SELECT).row_count == 2
    client.close()
    with pytest.raises(omnigraph.ConfigurationError):
        client.query(SELECT)


def test_a_killed_server(server: ServerProcess) -> None:
    with omnigraph.connect(server.address, graph_id="default") as client:
        assert client.query(SELECT).row_count == 2
        server.kill()
        with pytest.raises(omnigraph.NetworkError):
            client.query(SELECT)


def test_both_clients_have_the_same_members() -> None:
    blocking = {name for name in dir(GraphClient) if not name.startswith("_")} - {"close"}
    awaiting = {name for name in dir(AsyncGraphClient) if not name.startswith("_")} - {"aclose"}
    assert blocking == awaiting
    for _, kind in inspect.getmembers(members, inspect.isclass):
        if kind.__module__ == members.__name__:
            public = [member for name, member in vars(kind).items() if not name.startswith("_")]
            assert public
            assert all(isinstance(member, Verb | LazyVerb) for member in public)
    for name in ("Branches", "Commits", "Changes", "Schema", "Queries", "Graphs", "Blobs"):
        assert getattr(clients, name).__mro__[1] is getattr(clients, f"Async{name}").__mro__[1]
