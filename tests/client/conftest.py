"""The same client four times: of a graph in this process, and of a server process, blocking and asynchronous."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE

import omnigraph
from omnigraph.client.clients import AsyncGraphClient, GraphClient

SCHEMA = """
node Person { name: String @key  age: I32?  born: Date?  seen: DateTime?  photo: Blob?  film: Blob? }
edge Knows: Person -> Person { since: I32? }
"""
PEOPLE = "\n".join(
    [
        '{"type":"Person","data":{"name":"ann","age":30,"born":"1990-03-14","photo":"base64:YSBwaWN0dXJl"}}',
        '{"type":"Person","data":{"name":"bob","age":40,"seen":"2026-03-14T09:30:00Z"}}',
        '{"edge":"Knows","from":"ann","to":"bob","data":{"since":2020}}',
    ]
)
SELECT = "query all() { match { $p: Person } return { $p.name as name, $p.age as age } order { name asc } }"
INSERT = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
STORED = {
    "people.gq": "query people() { match { $p: Person } return { $p.name as name } order { name asc } }",
    "add_person.gq": "query add_person($n: String) { insert Person { name: $n } }",
}


class Waiting:
    """An asynchronous client that is used like a blocking one: each call waits for its coroutine."""

    def __init__(self, of: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._of, self._loop = of, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, "aclose" if name == "close" else name)
        if not inspect.ismethod(found) and not inspect.isfunction(found):
            return Waiting(found, self._loop) if type(found).__module__.startswith("omnigraph.client") else found
        return lambda *args, **kwargs: self._settled(found(*args, **kwargs))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._settled(self._of(*args, **kwargs))

    def _settled(self, given: Any) -> Any:
        if inspect.iscoroutine(given):
            return self._loop.run_until_complete(asyncio.wait_for(given, PATIENCE))
        if inspect.isasyncgen(given):
            return self._steps(given)
        return Waiting(given, self._loop) if type(given).__module__.startswith("omnigraph.client") else given

    def _steps(self, given: Any) -> Iterator[Any]:
        try:
            while (part := self._loop.run_until_complete(anext(given, None))) is not None:
                yield part
        finally:
            self._loop.run_until_complete(given.aclose())


class ServerProcess:
    """A running `omnigraph serve`.

    Args:
        root: the storage of the graph `default`, or a YAML file with several graphs.
        arguments: more options.
        more: environment variables.

    Attributes:
        address: `http://host:port`.
    """

    def __init__(self, root: Path, *arguments: str, **more: str) -> None:
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OMNIGRAPH_FSYNC": "0",
            "OMNIGRAPH_SERVER_DRAIN_SECONDS": "0",
            **more,
        }
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "omnigraph", "serve", "--bind", "127.0.0.1:0"),
                *("--config" if root.suffix == ".yaml" else "--store", str(root)),
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
        )
        self.log: list[str] = []
        assert self._process.stderr is not None
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self.log.extend, args=(self._process.stderr,))
        self._reader.start()
        line = self._process.stdout.readline().strip()
        if not line:
            self.stop()
            raise AssertionError("\n".join(self.log))
        self.address = "http://" + line.partition("=")[2]

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._reader.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


def build(path: Path) -> None:
    with omnigraph.init(path, SCHEMA) as graph:
        graph.load(PEOPLE.encode(), mode="append")


class ServedGraphs:
    """Equal graphs of a server. Each is given to one test. A server of more graphs follows if there is none left."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._left: list[str] = []
        self._count = 0
        self._process: ServerProcess | None = None

    def take(self) -> tuple[str, str, Path]:
        """The address of the server, and the id and the storage of a graph that no test has used."""
        if not self._left:
            self.stop()
            self._count += 1
            self._left = [f"g{self._count}-{number}" for number in range(_GRAPHS_OF_A_SERVER)]
            for name in self._left:
                build(self._directory / name)
            config = self._directory / f"serve-{self._count}.yaml"
            config.write_text(json.dumps({"graphs": {name: str(self._directory / name) for name in self._left}}))
            self._process = ServerProcess(config, "--unauthenticated")
        assert self._process is not None
        name = self._left.pop()
        return self._process.address, name, self._directory / name

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()


_GRAPHS_OF_A_SERVER = 20


@pytest.fixture(scope="session")
def served_graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGraphs]:
    found = ServedGraphs(tmp_path_factory.mktemp("served"))
    yield found
    found.stop()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> tuple[str, str, Path] | None:
    """The graph of a server, if the client of the test is one of a server."""
    form = getattr(request.node, "callspec", None)
    of_server = form is not None and str(form.params.get("client")).startswith("http")
    return request.getfixturevalue("served_graphs").take() if of_server else None


@pytest.fixture
def root(tmp_path: Path, place: tuple[str, str, Path] | None) -> Path:
    if place is not None:
        return place[2]
    path = tmp_path / "graph"
    build(path)
    return path


@pytest.fixture
def serve(root: Path, tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Starts `omnigraph serve` for the graph, until the end of the test."""
    directory = tmp_path / "queries"
    directory.mkdir()
    for name, text in STORED.items():
        (directory / name).write_text(text)
    with ExitStack() as running:

        def start(**environ: str) -> ServerProcess:
            process = ServerProcess(
                root, "--queries", str(directory), *([] if environ else ["--unauthenticated"]), **environ
            )
            running.callback(process.stop)
            return process

        yield start


@pytest.fixture
def server(serve: Callable[..., ServerProcess]) -> ServerProcess:
    return serve()


@pytest.fixture(params=["embedded", "embedded-async", "http", "http-async"])
def client(request: pytest.FixtureRequest, root: Path, place: tuple[str, str, Path] | None) -> Iterator[Any]:
    """A client of the graph, in each of its forms."""
    address, graph_id = (root, None) if place is None else place[:2]
    if not request.param.endswith("async"):
        with omnigraph.connect(address, graph_id=graph_id) as found:
            yield found
        return
    loop = asyncio.new_event_loop()
    twin: AsyncGraphClient = omnigraph.connect_async(address, graph_id=graph_id)
    try:
        yield Waiting(twin, loop)
    finally:
        loop.run_until_complete(twin.aclose())
        loop.close()


@pytest.fixture
def remote(server: ServerProcess) -> Iterator[GraphClient]:
    """A blocking client of a server."""
    with omnigraph.connect(server.address, graph_id="default") as found:
        yield found
