"""Short reads run in turn; a long read does not stop the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from tests.patience import PATIENCE, until
from tests.thresholds import Thresholds

from omnigraph.server import read_threads
from omnigraph.server.read_threads import ReadThreads


@pytest.fixture
def threads() -> Iterator[ReadThreads]:
    made = ReadThreads(2, "test")
    yield made
    made.close()


def test_short_work_runs_in_turn(threads: ReadThreads, thresholds: Thresholds) -> None:
    thresholds(read_threads, SHORT_SECONDS=PATIENCE)  # a busy machine may take long for the shortest work
    order: list[int] = []
    for number in range(2_000):
        threads.submit(lambda one=number: order.append(one))  # type: ignore[misc]
    until(lambda: len(order) == 2_000)
    assert order == list(range(2_000))


def test_long_work_does_not_stop_the_others(threads: ReadThreads) -> None:
    proceed, done = threading.Event(), threading.Event()

    def work() -> None:
        proceed.wait(PATIENCE)
        done.set()

    threads.submit(work)
    short: list[int] = []
    for number in range(20):
        threads.submit(lambda one=number: short.append(one))  # type: ignore[misc]
    until(lambda: short == list(range(20)))
    assert not done.is_set()
    proceed.set()
    assert done.wait(PATIENCE)


def test_no_more_work_runs_than_there_are_threads(threads: ReadThreads) -> None:
    proceed, running, ended = threading.Event(), threading.Semaphore(0), threading.Semaphore(0)

    def work() -> None:
        running.release()
        proceed.wait(PATIENCE)
        ended.release()

    for _ in range(4):
        threads.submit(work)
    assert all(running.acquire(timeout=PATIENCE) for _ in range(2))
    time.sleep(0.05)
    assert not running.acquire(blocking=False)
    proceed.set()
    assert all(ended.acquire(timeout=PATIENCE) for _ in range(4))


def test_closing_waits_for_running_work_and_drops_the_rest(threads: ReadThreads) -> None:
    proceed, running, done = threading.Event(), threading.Semaphore(0), []

    def work() -> None:
        running.release()
        proceed.wait(PATIENCE)
        done.append("long")

    for _ in range(2):
        threads.submit(work)
    assert all(running.acquire(timeout=PATIENCE) for _ in range(2))
    threads.submit(lambda: done.append("dropped"))
    closing = threading.Thread(target=threads.close)
    closing.start()
    time.sleep(0.02)
    assert closing.is_alive()
    proceed.set()
    closing.join()
    assert done == ["long", "long"]
    with pytest.raises(RuntimeError, match="have ended"):
        threads.submit(lambda: None)


def test_many_threads_submit_at_once(threads: ReadThreads) -> None:
    """All work is done, whatever the order of waits and wake-ups."""
    done: list[int] = []

    def submit(first: int) -> None:
        for number in range(200):
            ended = threading.Event()

            def work(pause: float = 0.006 if number % 50 == 0 else 0.0, ended: threading.Event = ended) -> None:
                time.sleep(pause)
                ended.set()

            threads.submit(work)
            assert ended.wait(PATIENCE)
            done.append(first + number)

    submitters = [threading.Thread(target=submit, args=(1_000 * number,)) for number in range(6)]
    for submitter in submitters:
        submitter.start()
    for submitter in submitters:
        submitter.join()
    assert len(set(done)) == 1_200
