"""A load generator in a process of its own, with little work per request: non-blocking sockets and prepared requests.

It uses the standard library only. A request costs it about a tenth of the CPU time that the server needs.
"""

from __future__ import annotations

import multiprocessing
import select
import socket
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any

NUMBER = b"{number}"
"""In a request, replaced by twelve digits that differ in each request. `Content-Length` counts twelve bytes for it."""

DIGITS = 12
_OK = b"HTTP/1.1 200"
_LENGTH = b"\r\ncontent-length: "
_RECEIVE_BYTES = 1 << 16
_LATE_SECONDS = 10.0
"""Requests that were due before the end of a run are awaited for so long."""


@dataclass(frozen=True, slots=True)
class Load:
    """One run of the generator.

    Attributes:
        address: host and port of the server.
        clients: number of connections. Each has at most one request in flight.
        requests: sent in turns.
        expected: for each of them, a text that its answer has to contain.
        seconds: the duration.
        rate: requests per second, at equal intervals; None to send the next request as soon as an answer arrives.
        first_number: the number of the first request.
    """

    address: str
    clients: int
    requests: Sequence[bytes]
    expected: Sequence[bytes]
    seconds: float
    rate: float | None = None
    first_number: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a run.

    Attributes:
        latencies: seconds from the time when a request was due to the end of its answer, sorted.
        seconds: the duration.
        cpu: CPU seconds of the generator.
        failed: number of answers other than 200, or without the text that they have to contain.
        failure: the start of the first of them.
        sent: number of requests.
    """

    latencies: Sequence[float]
    seconds: float
    cpu: float
    failed: int
    failure: bytes
    sent: int

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        """The latency that a share of the requests does not exceed."""
        return self.latencies[min(len(self.latencies) - 1, int(len(self.latencies) * share))]


class Generator:
    """Controls the process of the load generator."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Generator]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        try:
            yield cls(ours)
        finally:
            ours.close()
            process.join()

    def run(self, load: Load) -> Measured:
        """Run a load.

        Raises:
            RuntimeError: the generator failed.
        """
        self._pipe.send(load)
        found = self._pipe.recv()
        if isinstance(found, Measured):
            return found
        raise RuntimeError(found)


def _serve(pipe: Any) -> None:
    while True:
        try:
            load = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(run(load))
        except Exception as error:  # the other process raises it again
            pipe.send(f"{type(error).__name__}: {error}")


class _Client:
    """A connection, and the request that it waits for."""

    __slots__ = ("due", "received", "send", "size", "socket", "text")

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.send = self.socket.send
        self.due = 0.0
        self.received = b""
        self.size = 0
        self.text = b""


def run(load: Load) -> Measured:
    """Run a load in this process."""
    host, _, port = load.address.rpartition(":")
    clients = {}
    poll = select.epoll()
    try:
        for _ in range(load.clients):
            client = _Client((host, int(port)))
            clients[client.socket.fileno()] = client
            poll.register(client.socket, select.EPOLLIN)
        return _Run(load, clients, poll).measured()
    finally:
        poll.close()
        for client in clients.values():
            client.socket.close()


class _Run:
    def __init__(self, load: Load, clients: dict[int, _Client], poll: select.epoll) -> None:
        self._load = load
        self._clients = clients
        self._poll = poll
        self._idle = deque(clients.values())
        self._number = load.first_number
        self._requests = [tuple(request.split(NUMBER)) for request in load.requests]
        self._latencies = array("d")
        self._failed = 0
        self._failure = b""

    def measured(self) -> Measured:
        cpu, started = time.process_time(), time.perf_counter()
        if self._load.rate is None:
            ended = self._closed_loop(started + self._load.seconds)
        else:
            ended = self._open_loop(started, self._load.rate)
        cpu = time.process_time() - cpu
        sent = self._number - self._load.first_number
        return Measured(sorted(self._latencies), ended - started, cpu, self._failed, self._failure, sent)

    def _closed_loop(self, end: float) -> float:
        now = time.perf_counter()
        while self._idle:
            self._send(self._idle.popleft(), now)
        waiting = len(self._clients)
        poll, clients = self._poll.poll, self._clients
        late: list[float] = []
        while waiting:
            for file, _ in poll(_LATE_SECONDS) or _hanging():
                client = clients[file]
                if self._receive(client):
                    now = time.perf_counter()
                    if now < end:
                        self._latencies.append(now - client.due)
                        self._send(client, now)
                    else:
                        waiting -= 1
                        late.append(now - client.due)
        if self._latencies:
            return end
        self._latencies.extend(late)  # no answer came in time
        return now

    def _open_loop(self, started: float, rate: float) -> float:
        total = max(1, round(self._load.seconds * rate))
        sent = answered = 0
        due = started
        idle, clients = self._idle, self._clients
        while answered < total:
            now = time.perf_counter()
            while sent < total and idle and due <= now:
                self._send(idle.popleft(), due)
                sent += 1
                due = started + sent / rate
            if sent < total and idle:
                select.select([self._poll], [], [], max(0.0, due - time.perf_counter()))  # epoll waits for whole ms
                events = self._poll.poll(0)
            else:
                events = self._poll.poll(_LATE_SECONDS) or _hanging()
            for file, _ in events:
                client = clients[file]
                if self._receive(client):
                    answered += 1
                    self._latencies.append(time.perf_counter() - client.due)
                    idle.append(client)
        return time.perf_counter()

    def _send(self, client: _Client, due: float) -> None:
        client.due = due
        which = self._number % len(self._requests)
        parts, client.text = self._requests[which], self._load.expected[which]
        request = parts[0] if len(parts) == 1 else (b"%012d" % self._number).join(parts)
        self._number += 1
        if client.send(request) < len(request):
            raise OSError("the server does not read")

    def _receive(self, client: _Client) -> bool:
        """Receive from a client. Returns whether its answer is complete."""
        data = client.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the server closed a connection")
        if client.received:
            data = client.received + data
        if not client.size:
            head = data.find(b"\r\n\r\n")
            if head < 0:
                client.received = data
                return False
            start = data.index(_LENGTH) + len(_LENGTH)
            client.size = head + 4 + int(data[start : data.index(b"\r", start)])
        if len(data) < client.size:
            client.received = data
            return False
        if not data.startswith(_OK) or client.text not in data:
            self._failed += 1
            self._failure = self._failure or data[:1_000]
        client.received = b""
        client.size = 0
        return True


def _hanging() -> list[tuple[int, int]]:
    raise TimeoutError(f"no answer within {_LATE_SECONDS} s")
