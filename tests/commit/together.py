"""Writes of several threads that wait at the same time, so that they become one group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from tests.patience import PATIENCE, until

from omnigraph.commit.group import Waiting
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.turns import WriterQueue, queue_of
from omnigraph.commit.write_request import WriteRequest
from omnigraph.graph import Graph

Write = Callable[[], object]


def queue(graph: Graph, branch: str = "main") -> WriterQueue:
    return queue_of(graph.session.store.objects.uri.identity, branch)


@contextmanager
def turn_taken(graph: Graph, branch: str = "main") -> Iterator[WriterQueue]:
    """Another writer of this process has the turn until the block ends."""
    request = WriteRequest(branch, WriterKind.MUTATION)
    waiting = Waiting(graph.session.store, request, lambda view: [], time.monotonic() + PATIENCE, alone=True)
    found = queue(graph, branch)
    found.enter(waiting)
    try:
        yield found
    finally:
        found.leave(waiting)


def together(graph: Graph, writes: Sequence[Write], branch: str = "main") -> list[object]:
    """Run writes on threads that all wait before the first of them begins. Returns results and errors, in order."""
    outcomes: list[object] = [None] * len(writes)

    def run(number: int, write: Write) -> None:
        try:
            outcomes[number] = write()
        except Exception as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=(number, write)) for number, write in enumerate(writes)]
    with turn_taken(graph, branch) as waiting:
        for number, thread in enumerate(threads, 1):
            thread.start()
            until(partial(_has, waiting, number))
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    return outcomes


def _has(waiting: WriterQueue, count: int) -> bool:
    return len(waiting) >= count
