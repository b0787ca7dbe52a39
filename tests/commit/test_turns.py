"""Threads that write to one branch take turns: they neither slow each other down nor overtake each other.

The writes here have a message, so that each of them is a commit of its own.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from tests.commit.together import together, turn_taken
from tests.patience import PATIENCE

import omnigraph
from omnigraph.commit import attempts, process_locks, turns
from omnigraph.commit.turns import WriterQueue
from omnigraph.errors import WriteTimeoutError
from omnigraph.graph import Graph

SCHEMA = "node P { name: String @key  age: I32? }"
ADD = "query add($name: String) { insert P { name: $name } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        yield graph


def names(graph: Graph) -> list[str]:
    return sorted(graph.snapshot().scan("node:P", columns=["id"])["id"].to_pylist())


def test_threads_write_in_the_order_of_their_requests(graph: Graph) -> None:
    wanted = [f"p{number}" for number in range(8)]
    together(graph, [partial(graph.mutate, ADD, {"name": name}, message=name) for name in wanted])
    made = [commit.message for commit in graph.commits.list().commits if commit.writer == "Mutation"]
    assert made[::-1] == wanted


def test_no_write_of_a_thread_meets_a_new_head(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that waited captures its state afterwards, so it has nothing to compare and nothing to repeat."""
    compared: list[object] = []
    monkeypatch.setattr(attempts._Write, "_conflict", lambda *arguments: compared.append(arguments))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: graph.mutate(ADD, {"name": f"p{number}"}, message="m"), range(40)))
    assert compared == []
    assert len(names(graph)) == 40


def test_a_write_waits_for_its_turn_only_until_its_timeout(graph: Graph) -> None:
    with turn_taken(graph), pytest.raises(WriteTimeoutError, match="this process"):
        graph.mutate(ADD, {"name": "late"}, timeout=0.05)
    assert names(graph) == []
    graph.mutate(ADD, {"name": "next"})


def test_writers_of_other_branches_do_not_wait(graph: Graph) -> None:
    graph.branches.create("other")
    with turn_taken(graph):
        graph.mutate(ADD, {"name": "p"}, branch="other", timeout=60)
    assert names(graph) == []


def test_a_write_inside_the_preparation_of_another_does_not_wait_for_itself(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = attempts._Write._staged
    inner: list[object] = []

    def staged_later(self: attempts._Write, view: object) -> object:
        if not inner:
            inner.append(None)
            inner.append(graph.mutate(ADD, {"name": "inner"}, timeout=60))
        return staged(self, view)  # type: ignore[arg-type]

    monkeypatch.setattr(attempts._Write, "_staged", staged_later)
    graph.mutate(ADD, {"name": "outer"}, timeout=60)
    assert names(graph) == ["inner", "outer"]


# Forks


_FORKS = """
import os, sys, threading, time, traceback
import omnigraph
from omnigraph.commit.group import Waiting
from omnigraph.commit.process_locks import branch_lock
from omnigraph.commit.turns import queue_of
from omnigraph.commit.write_request import WriteRequest

place, held, add = sys.argv[1:]
graph = omnigraph.open(place)
os.environ["OMNIGRAPH_FAILPOINT"] = f"captured=hold:{held}"
writer = threading.Thread(target=graph.mutate, args=(add, {"name": "parent"}))
writer.start()
while not os.path.exists(held):
    time.sleep(0.01)
del os.environ["OMNIGRAPH_FAILPOINT"]
identity = graph.session.store.objects.uri.identity
lock = branch_lock(identity, "main")
held_here = lock.turn()
assert held_here.take(0)
waiting = Waiting(graph.session.store, WriteRequest(), lambda view: [], time.monotonic() + 600, alone=True)
child = os.fork()
if child == 0:
    # A write would need Lance, which does not survive a fork beside running threads: the child may crash.
    try:
        queue = queue_of(identity, "main")
        queue.enter(waiting)
        own = branch_lock(identity, "main")
        right = waiting.has_turn and len(queue) == 0 and own is not lock and own.turn().take(0)
        os._exit(0 if right else 4)
    except BaseException:
        traceback.print_exc()
        os._exit(3)
ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
held_here.end()
os.remove(held)
writer.join()
sys.exit(ended)
"""


def test_a_forked_process_does_not_wait_for_the_threads_of_its_parent(graph: Graph, tmp_path: Path) -> None:
    """One thread of the parent has the turn, another waits for the lease. Neither exists in the child."""
    command = [sys.executable, "-c", _FORKS, graph.uri, str(tmp_path / "held"), ADD]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 0, ended.stderr
    assert names(graph) == ["parent"]


# Interrupts (Ctrl-C)


@pytest.mark.parametrize("step", ["enter", "_abandon", "_passed_on"])
@pytest.mark.parametrize("before", [False, True])
def test_an_interrupt_does_not_keep_the_turn(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, step: str, before: bool
) -> None:
    """An interrupt at any step of a turn, before or after it."""
    original = getattr(WriterQueue, step)
    interrupts = iter([KeyboardInterrupt()])

    def interrupted(self: WriterQueue, *arguments: object, **more: object) -> object:
        if before:
            for interrupt in interrupts:
                raise interrupt
        found = original(self, *arguments, **more)
        for interrupt in interrupts:
            raise interrupt
        return found

    monkeypatch.setattr(WriterQueue, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        graph.mutate(ADD, {"name": "one"})
    graph.mutate(ADD, {"name": "two"}, timeout=60)
    written = together(graph, [partial(graph.mutate, ADD, {"name": f"p{number}"}) for number in range(3)])
    assert not any(isinstance(one, Exception) for one in written)
    assert set(names(graph)) >= {"p0", "p1", "p2", "two"}


def test_queues_and_locks_of_transactions_are_forgotten(graph: Graph) -> None:
    """Each of these transactions has a branch of its own, because it reads what it has written."""
    for number in range(3):
        with graph.branch().transaction() as tx:
            tx.mutate(ADD, {"name": f"t{number}"})
            tx.snapshot()
    gc.collect()
    assert [name for _, name in [*turns._QUEUES, *process_locks._GATES] if name.startswith("__tx")] == []
