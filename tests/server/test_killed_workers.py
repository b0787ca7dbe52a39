"""A worker that is killed while it writes loses nothing that was acknowledged, and doubles nothing.

The writers are clients of `omnigraph.connect`. A write whose answer is lost raises `OutcomeUnknownError`, and the same
request with the same key settles it.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.patience import PATIENCE, until
from tests.server.test_process import processes, start, workers_of

import omnigraph
from omnigraph.client.clients import GraphClient
from omnigraph.errors import Disposition, NetworkError, OmnigraphError, OutcomeUnknownError

__all__ = ["processes"]

INSERT = "query add($n: I32) { insert Event { n: $n } }"
WRITERS = 16


class Writer(threading.Thread):
    """Inserts events until it is stopped.

    Attributes:
        written: the numbers of the events whose inserts were acknowledged.
        first: those that were acknowledged by the answer to their first request.
        unknown: the errors of requests with an unknown outcome.
        commits: the commit of each number.
    """

    def __init__(self, client: GraphClient, first: int, stop: threading.Event) -> None:
        super().__init__()
        self._client = client
        self._numbers = range(first, 10_000_000, WRITERS)
        self._stop_event = stop
        self.written: list[int] = []
        self.commits: dict[int, str] = {}
        self.unknown: list[OutcomeUnknownError] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for number in self._numbers:
                if self._stop_event.is_set():
                    return
                self._insert(number)
        except BaseException as error:
            self.failure = error

    def _insert(self, number: int) -> None:
        """Insert an event, and send the request again with the same key until its outcome is known."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                receipt = self._client.mutate(INSERT, {"n": number}, idempotency_key=f"event-{number}")
            except OutcomeUnknownError as error:
                self.unknown.append(error)
            except NetworkError:
                time.sleep(0.02)  # no worker runs: nothing was sent
            except OmnigraphError as error:
                if error.disposition is not Disposition.RETRY:
                    raise
            else:
                assert receipt.commit is not None
                self.commits[number] = receipt.commit.id
                self.written.append(number)
                return
        raise AssertionError("the write never settled")


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "workers"), [(3, 2), pytest.param(60, 2, marks=pytest.mark.soak)])
def test_nothing_is_lost_and_nothing_is_doubled(tmp_path: Path, processes: ExitStack, kills: int, workers: int) -> None:
    path = tmp_path / "events"
    omnigraph.init(path, "node Event { n: I32 }").close()
    process = start(processes, "--store", str(path), "--unauthenticated", "--workers", str(workers))
    client = processes.enter_context(
        omnigraph.connect(f"http://{process.client.address}", graph_id="default", timeout=PATIENCE)
    )
    stop = threading.Event()
    writers = [Writer(client, first, stop) for first in range(WRITERS)]
    moments = random.Random(14)
    killed = 0
    for writer in writers:
        writer.start()
    try:
        # On a busy machine, all answers of a worker may be on their way when it is killed.
        while killed < kills or not any(writer.unknown or writer.failure for writer in writers):
            before = {writer: len(writer.written) for writer in writers}
            until(lambda: all(len(one.written) > before[one] or one.failure for one in writers))  # noqa: B023
            time.sleep(moments.uniform(0.0, 0.05))  # so that kills hit all phases of a commit
            until(lambda: workers_of(process.id))
            victim = moments.choice(workers_of(process.id))
            os.kill(victim, signal.SIGKILL)
            killed += 1
            assert killed < kills + 100, "no kill has hit a write"
            until(lambda: victim not in workers_of(process.id))  # noqa: B023
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert [writer.failure for writer in writers if writer.failure is not None] == []
    acknowledged = {number for writer in writers for number in writer.written}
    with omnigraph.open(path) as graph:
        stored = Counter(row["n"] for row in graph.query("query q() { match { $e: Event } return { $e.n as n } }"))
        history = {commit.id for commit in graph.commits.list(limit=None).commits}
    assert acknowledged == set(stored)
    assert set(stored.values()) == {1}
    assert {commit for writer in writers for commit in writer.commits.values()} <= history
    unknown = [error for writer in writers for error in writer.unknown]
    assert {error.disposition for error in unknown} == {Disposition.UNKNOWN}
    messages = ("a worker has ended", "a worker did not start")  # a kill may hit a worker that has just been started
    until(lambda: sum(record["message"] in messages for record in process.records) == killed)


@pytest.mark.slow
def test_the_same_request_at_two_workers_is_written_once_and_a_stop_loses_nothing(
    tmp_path: Path, processes: ExitStack
) -> None:
    path = tmp_path / "events"
    omnigraph.init(path, "node Event { n: I32 }").close()
    process = start(processes, "--store", str(path), "--unauthenticated", "--workers", "2")
    # Each client keeps its connection, and the workers take turns with connections.
    clients = [
        processes.enter_context(omnigraph.connect(f"http://{process.client.address}", graph_id="default"))
        for _ in range(2)
    ]
    assert all(client.query("query q() { match { $e: Event } return { $e.n as n } }") is not None for client in clients)
    together = threading.Barrier(2)
    commits: list[dict[int, str]] = [{}, {}]
    failures: list[BaseException] = []

    def write(client: GraphClient, of: dict[int, str]) -> None:
        try:
            for number in range(20):
                together.wait(PATIENCE)
                receipt = client.mutate(INSERT, {"n": number}, idempotency_key=f"event-{number}")
                assert receipt.commit is not None
                of[number] = receipt.commit.id
        except BaseException as error:
            failures.append(error)
            together.abort()

    threads = [threading.Thread(target=write, args=pair) for pair in zip(clients, commits, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert commits[0] == commits[1]

    acknowledged: list[int] = []

    def write_until_the_end(first: int) -> None:
        client = clients[first % 2]
        for number in range(100 + first, 10_000, 8):
            try:
                client.mutate(INSERT, {"n": number})
            except (NetworkError, OutcomeUnknownError):
                return
            acknowledged.append(number)

    threads = [threading.Thread(target=write_until_the_end, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: len(acknowledged) > 20)
    process.signal(signal.SIGTERM)
    for thread in threads:
        thread.join()
    assert process.wait() == 0
    with omnigraph.open(path, read_only=True) as graph:
        stored = Counter(row["n"] for row in graph.query("query q() { match { $e: Event } return { $e.n as n } }"))
        assert not graph.recovery.pending()
    assert {*range(20), *acknowledged} <= set(stored)
    assert set(stored.values()) == {1}
    assert len(stored) <= 20 + len(acknowledged) + len(threads)
