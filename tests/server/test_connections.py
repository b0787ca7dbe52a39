"""Connections are spread evenly over the workers, and idle ones stay open."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from pathlib import Path

import pytest
from tests.patience import PATIENCE, until
from tests.server.conftest import Client
from tests.server.test_process import processes, start, workers_of

from omnigraph.server.connections import Dispatcher, Inlet, link
from omnigraph.server.process import address_of, bind

__all__ = ["processes"]


class Worker:
    """A worker that only takes connections.

    Attributes:
        connections: the open ones.
    """

    def __init__(self, inlet: Inlet) -> None:
        self._inlet = inlet
        self.connections: list[socket.socket] = []

    def take(self) -> int:
        """Take all connections that were passed. Returns the number of open ones."""
        while True:
            try:
                received, files, _, _ = socket.recv_fds(self._inlet.channel, 1, 1)
            except BlockingIOError:
                return len(self.connections)
            assert received
            self.connections.append(socket.socket(fileno=files[0]))

    def end(self) -> None:
        """Close a connection."""
        self.connections.pop().close()
        self._inlet.count_ended()

    def die(self) -> None:
        """Close everything, as the system does for a process that was killed."""
        self._inlet.channel.close()
        for connection in self.connections:
            connection.close()
        self.connections.clear()


class Setup:
    """A dispatcher with workers, and its clients."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        listening = stack.enter_context(bind("127.0.0.1:0"))
        self._address = address_of(listening)
        self.dispatcher = Dispatcher(listening)
        self.dispatcher.start()
        stack.callback(self.dispatcher.stop)

    def worker(self) -> Worker:
        outlet, inlet = link(get_context("spawn"))
        worker = Worker(inlet)
        self._stack.callback(worker.die)
        self.dispatcher.add(outlet)
        return worker

    def connect(self, count: int) -> None:
        host, _, port = self._address.rpartition(":")
        for _ in range(count):
            self._stack.enter_context(socket.create_connection((host, int(port))))


@pytest.fixture
def setup() -> Iterator[Setup]:
    with ExitStack() as stack:
        yield Setup(stack)


def test_each_worker_gets_as_many(setup: Setup) -> None:
    workers = [setup.worker() for _ in range(3)]
    setup.connect(12)
    until(lambda: [worker.take() for worker in workers] == [4, 4, 4])


def test_the_worker_with_the_fewest_open_connections_gets_the_next(setup: Setup) -> None:
    first, second = setup.worker(), setup.worker()
    setup.connect(8)
    until(lambda: (first.take(), second.take()) == (4, 4))
    for _ in range(3):
        second.end()
    setup.connect(3)
    until(lambda: (first.take(), second.take()) == (4, 4))


def test_workers_take_turns_if_each_connection_ends_before_the_next(setup: Setup) -> None:
    workers = [setup.worker(), setup.worker()]
    taken = [0, 0]
    for _ in range(6):
        setup.connect(1)
        until(lambda: sum(worker.take() for worker in workers) == 1)
        for place, worker in enumerate(workers):
            if worker.connections:
                worker.end()
                taken[place] += 1
    assert taken == [3, 3]


def test_a_dead_worker_gets_nothing(setup: Setup) -> None:
    first, second = setup.worker(), setup.worker()
    first.die()
    setup.connect(5)
    until(lambda: second.take() == 5)


def test_connections_wait_for_a_worker(setup: Setup) -> None:
    setup.worker().die()
    setup.connect(3)
    worker = setup.worker()
    until(lambda: worker.take() == 3)


def connections_of(process: int) -> int:
    """The number of open TCP connections of a process."""
    table = (line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:])
    established = {f"socket:[{fields[9]}]" for fields in table if fields[3] == "01"}
    found = 0
    for file in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):
            found += os.readlink(file) in established
    return found


@pytest.mark.slow
def test_two_workers_share_connections_also_after_one_was_killed(root: Path, processes: ExitStack) -> None:
    process = start(processes, "--store", str(root), "--unauthenticated", "--workers", "2")
    host, _, port = process.client.address.rpartition(":")

    def connect(count: int) -> None:
        for _ in range(count):
            connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
            processes.callback(connection.close)
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()

    workers = workers_of(process.id)
    connect(10)
    assert [connections_of(worker) for worker in workers] == [5, 5]
    killed = workers[0]
    os.kill(killed, signal.SIGKILL)
    until(lambda: len(set(workers_of(process.id)) - {killed}) == 2)
    (new,) = set(workers_of(process.id)) - set(workers)

    def has_caught_up() -> bool:
        connect(1)
        return connections_of(new) >= 5

    until(has_caught_up)


def test_an_idle_connection_is_kept_longer_than_proxies_keep_it(client: Client) -> None:
    connection = http.client.HTTPConnection(client.address, timeout=PATIENCE)
    connection.request("GET", "/healthz")
    assert connection.getresponse().read()
    used = connection.sock
    time.sleep(5.5)  # the default of uvicorn is 5 seconds, that of proxies up to 60
    connection.request("GET", "/healthz")
    assert connection.getresponse().read()
    assert connection.sock is used
    connection.close()


def test_connections_are_refused_when_all_workers_have_stopped(setup: Setup) -> None:
    worker = setup.worker()
    setup.connect(1)
    until(lambda: worker.take() == 1)
    setup.dispatcher.finish()
    setup.connect(1)  # a worker that drains still takes connections
    until(lambda: worker.take() == 2)
    worker.die()

    def is_refused() -> bool:
        try:
            setup.connect(1)
        except ConnectionError:
            return True
        return False

    until(is_refused)
