"""Threads that write to one branch take turns: they neither slow each other down nor overtake each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.patience import PATIENCE, until

import omnigraph
from omnigraph.commit import attempts
from omnigraph.commit.process_locks import turn_lock
from omnigraph.errors import WriteTimeoutError
from omnigraph.graph import Graph

SCHEMA = "node P { name: String @key  age: I32? }"
ADD = "query add($name: String) { insert P { name: $name } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        yield graph


@contextmanager
def turn_taken(graph: Graph, branch: str = "main") -> Iterator[threading.Event]:
    """Another writer of this process has the turn until the block ends, or until the event is set."""
    taken, release = threading.Event(), threading.Event()

    def hold() -> None:
        lock = turn_lock(graph.session.store.objects.uri.identity, branch)
        assert lock.acquire(PATIENCE)
        taken.set()
        release.wait(PATIENCE)
        lock.release()

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(PATIENCE)
    try:
        yield release
    finally:
        release.set()
        holder.join()


def has_waiting(graph: Graph, count: int) -> bool:
    return len(turn_lock(graph.session.store.objects.uri.identity, "main")._waiting) == count


def names(graph: Graph) -> list[str]:
    return sorted(graph.snapshot().scan("node:P", columns=["id"])["id"].to_pylist())


def test_threads_write_in_the_order_of_their_requests(graph: Graph) -> None:
    wanted = [f"p{number}" for number in range(8)]
    with ThreadPoolExecutor(len(wanted)) as pool, turn_taken(graph):
        for number, name in enumerate(wanted):
            pool.submit(graph.mutate, ADD, {"name": name}, labels={"name": name})
            until(partial(has_waiting, graph, number + 1))
    made = [dict(commit.labels)["name"] for commit in graph.commits.list().commits if "name" in dict(commit.labels)]
    assert made[::-1] == wanted


def test_no_write_of_a_thread_meets_a_new_head(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that waited captures its state afterwards, so it has nothing to compare and nothing to repeat."""
    compared: list[object] = []
    monkeypatch.setattr(attempts._Write, "_conflict", lambda *arguments: compared.append(arguments))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: graph.mutate(ADD, {"name": f"p{number}"}), range(40)))
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
        graph.mutate(ADD, {"name": "p"}, branch="other", timeout=5)
    assert names(graph) == []


def test_a_write_inside_the_preparation_of_another_does_not_wait_for_itself(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = attempts._Write._staged
    inner: list[object] = []

    def staged_later(self: attempts._Write, view: object) -> object:
        if not inner:
            inner.append(None)
            inner.append(graph.mutate(ADD, {"name": "inner"}, timeout=5))
        return staged(self, view)  # type: ignore[arg-type]

    monkeypatch.setattr(attempts._Write, "_staged", staged_later)
    graph.mutate(ADD, {"name": "outer"}, timeout=5)
    assert names(graph) == ["inner", "outer"]
