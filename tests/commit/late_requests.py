"""Storage that loses answers, on disk and in S3: the request took effect, never does, or takes effect later."""

from __future__ import annotations

import http.client
import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import lance
import pytest
from lance import LanceDataset
from tests.storage.faults import FaultyStore

from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.graph import Graph
from omnigraph.storage.objects import ObjectStore

T = TypeVar("T")


class Answer(StrEnum):
    """The fate of a request whose answer is lost. Its retries have no effect, except in the last case."""

    LOST = "took effect"
    NEVER = "no effect"
    LATE = "takes effect late"
    TWICE = "takes effect late, sent again"


class Choice:
    """Chooses the request that loses its answer: the nth of its kind.

    It does not count requests of all kinds together: the order of requests to two tables, and of heartbeats between
    them, depends on the machine.

    Attributes:
        seen: how many requests of each kind there were.
        hit: whether the answer was lost.
    """

    def __init__(self, kind: str = "", number: int = 0) -> None:
        self._kind, self._number = kind, number
        self._lock = Lock()
        self.seen: Counter[str] = Counter()
        self.hit = False

    def falls_on(self, kind: str) -> bool:
        """Count a request, and return whether it is the chosen one."""
        with self._lock:
            self.seen[kind] += 1
            if kind != self._kind or self.seen[kind] != self._number or self.hit:
                return False
            self.hit = True
            return True


class Lossy(Protocol):
    """Storage that loses one answer.

    Attributes:
        choice: which answer is lost, and which requests there were.
    """

    choice: Choice

    def arm(self, kind: str, number: int, answer: Answer) -> None:
        """Lose the answer to the nth request of a kind from now on. With n = 0, only count the requests."""

    def disarm(self) -> None:
        """Lose no more answers. Late requests stay pending."""

    def arrive(self) -> None:
        """Let the late requests take effect, if they still can."""


_KINDS = [
    (r"__recovery/", "sidecar"),
    (r"__lease/", "lease"),
    (r"__work/", "work record"),
    (r"__checksums/", "checksums"),
    (r"__staging/", "ancestors"),
    (r"__manifest/.*_versions/", "manifest version"),
    (r"__manifest/.*_transactions/", "manifest transaction"),
    (r"__manifest/.*data/", "manifest rows"),
    (r"_refs/branches/", "fork reference"),
    (r"_transactions/", "table transaction"),
    (r"tree/[^/]+/_versions/|_versions/", "table version"),
    (r"_deletions/", "deletion file"),
    (r"data/", "data file"),
]


def kind_of(path: str) -> str:
    """The kind of file that a request writes or removes."""
    return next((kind for pattern, kind in _KINDS if re.search(pattern, path)), "other")


# S3


class LossyProxy:
    """A proxy in front of an S3 server. All requests of a graph, also those of Lance, go through it."""

    def __init__(self, target: str) -> None:
        self.target = urlsplit(target).netloc
        self.choice = Choice()
        self._lock = Lock()
        self._armed = False
        self._answer = Answer.LOST
        self._key: str | None = None
        self._late: Callable[[], object] | None = None

    def arm(self, kind: str, number: int, answer: Answer) -> None:
        with self._lock:
            self.choice, self._answer, self._key, self._late = Choice(kind, number), answer, None, None
            self._armed = True

    def disarm(self) -> None:
        with self._lock:
            self._armed, self._key = False, None

    def arrive(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            late()

    def pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        path = handler.path
        headers = {name: value for name, value in handler.headers.items() if name.lower() != "connection"}

        def send() -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection(self.target, timeout=300)
            connection.request(handler.command, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            return answer.status, answer.getheaders(), data

        # Objects are removed by a request that names them in its body.
        removes = handler.command == "DELETE" or (handler.command == "POST" and "delete" in urlsplit(path).query)
        kind = kind_of(unquote(path) if handler.command != "POST" else body.decode(errors="replace"))
        fate = self._fate(handler.command, path, f"{kind}, {'remove' if removes else 'write'}")
        if fate is Answer.LOST:
            send()
        elif fate in (Answer.LATE, Answer.TWICE):
            self._late = send
        if fate is not None:
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        status, answered, data = send()
        handler.send_response_only(status)
        for name, value in answered:
            if name.lower() not in ("connection", "transfer-encoding"):
                handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    def _fate(self, command: str, path: str, kind: str) -> Answer | None:
        """The fate of a request, or None if it is passed on and answered."""
        if command not in ("PUT", "POST", "DELETE"):
            return None
        with self._lock:
            if self._key is not None:
                again = self._key == path and self._answer is not Answer.TWICE
                return Answer.NEVER if again else None
            if not self._armed or not self.choice.falls_on(kind):
                return None
            self._key = path
            return self._answer


@contextmanager
def lossy_proxy(target: str) -> Iterator[tuple[LossyProxy, str]]:
    """A running proxy, and its address."""
    proxy = LossyProxy(target)

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


# A disk


class LossyDisk:
    """A disk that loses answers of the object store and of Lance commits."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.choice = Choice()
        self._armed = False
        self._answer = Answer.LOST
        self._late: Callable[[], object] | None = None
        commit, create_branch = LanceDataset.commit, LanceDataset.create_branch

        def committed(target: Any, *arguments: Any, **more: Any) -> Any:
            def version() -> LanceDataset:
                return commit(target, *arguments, **more)

            place = target if isinstance(target, str) else target.uri
            kind = "manifest version" if "__manifest" in place else "table version"
            if "recoveries" in place or more.get("detached"):
                return version()
            return self._lance(f"{kind}, write", version, lambda: _hidden(commit, target, arguments, more))

        def forked(dataset: LanceDataset, *arguments: Any) -> Any:
            def branch() -> LanceDataset:
                return create_branch(dataset, *arguments)

            return self._lance("fork reference, write", branch, lambda: branch)

        patch.setattr(LanceDataset, "commit", staticmethod(committed))
        patch.setattr(LanceDataset, "create_branch", forked)

    def arm(self, kind: str, number: int, answer: Answer) -> None:
        self.choice, self._answer, self._late = Choice(kind, number), answer, None
        self._armed = True

    def disarm(self) -> None:
        self._armed = False

    def arrive(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            with suppress(StorageError, OSError):  # the target exists, or has changed
                late()

    def _lance(self, kind: str, do: Callable[[], T], later: Callable[[], Callable[[], object]]) -> T:
        if not self._is_hit(kind):
            return do()
        if self._answer is Answer.LOST:
            do()
        elif self._answer is not Answer.NEVER:
            self._late = later()
        raise OSError("LanceError(IO): the answer was lost")

    def call(self, kind: str, do: Callable[[], T]) -> T:
        """Pass a call to the store of control objects, or lose its answer."""
        if not self._is_hit(kind):
            return do()
        if self._answer is Answer.LOST:
            do()
        elif self._answer is Answer.LATE:
            self._late = do
        elif self._answer is Answer.TWICE:
            self._late = do
            return do()
        raise StorageError("the answer was lost", kind=StorageErrorKind.UNKNOWN, uri="disk")

    def _is_hit(self, kind: str) -> bool:
        return self._armed and self.choice.falls_on(kind)


def _hidden(commit: Callable[..., LanceDataset], target: Any, arguments: Any, more: Any) -> Callable[[], object]:
    """Commit a version that is not visible yet. It is published later, unless its version number is taken."""
    fresh = target if isinstance(target, str) else lance.dataset(target.uri, version=target.version)
    made = commit(fresh, *arguments, **more)
    versions = Path(made.uri) / "_versions"
    (name,) = (path for path in versions.iterdir() if path.name == f"{2**64 - 1 - made.version:020d}.manifest")
    held = name.with_suffix(".held")
    name.rename(held)
    (versions / "latest_version_hint.json").unlink(missing_ok=True)

    def appear() -> None:
        try:
            os.link(held, name)
        finally:
            held.unlink()

    return appear


class LossyObjects(FaultyStore):
    """A store of control objects whose changes pass through a lossy disk."""

    def __init__(self, inner: ObjectStore, disk: LossyDisk) -> None:
        super().__init__(inner)
        self._disk = disk

    def put(self, path: str, data: bytes) -> str:
        return self._disk.call(f"{kind_of(path)}, write", lambda: self.inner.put(path, data))

    def create(self, path: str, data: bytes) -> str:
        return self._disk.call(f"{kind_of(path)}, write", lambda: self.inner.create(path, data))

    def replace(self, path: str, data: bytes, etag: str) -> str:
        return self._disk.call(f"{kind_of(path)}, write", lambda: self.inner.replace(path, data, etag))

    def delete(self, path: str) -> None:
        return self._disk.call(f"{kind_of(path)}, remove", lambda: self.inner.delete(path))


def behind(graph: Graph, disk: LossyDisk) -> None:
    """Put a graph behind a lossy disk."""
    graph.session.store.objects = LossyObjects(graph.session.store.objects, disk)
    graph.session.store.leases = LossyObjects(graph.session.store.leases, disk)
