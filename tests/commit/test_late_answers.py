"""A request whose answer was lost may take effect at any time: nothing is lost, doubled, torn or stuck by it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from pathlib import Path

import pytest
from tests.commit.faults_page import PAGE, REQUESTS, page
from tests.commit.graphs import NODES, SEED, Operation, assert_whole, create, ids, put
from tests.commit.late_requests import Answer, Lossy, LossyDisk, behind, lossy_proxy
from tests.s3_server import S3Root

from omnigraph.errors import Disposition, OmnigraphError
from omnigraph.graph import Graph, open

SOAK = bool(os.environ.get("OMNIGRAPH_SOAK"))
PAIR = ("node:A", "node:B")
HEARTBEATS = {"lease, write": 2, "work record, write": 1}
"""Requests that come again while a write lasts, and how many of them every write makes."""


class When(IntEnum):
    """When a late request arrives."""

    GAVE_UP = 0
    RECOVERED = 1
    WRITTEN = 2
    CLEANED = 3


@dataclass(frozen=True, slots=True)
class Write:
    """A write, of which each request loses its answer once.

    Attributes:
        prepare: what is done before, without trouble; returns the branch that is written.
        do: the write, with the name that it brings.
    """

    name: str
    keys: tuple[str, ...]
    prepare: Callable[[Graph, str], str]
    do: Callable[[Graph, str, str], object]

    def __str__(self) -> str:
        return self.name


def _on_main(graph: Graph, name: str) -> str:
    return "main"


def _on_a_branch(graph: Graph, name: str) -> str:
    graph.branches.create(name)
    return name


def _changed_branch(graph: Graph, name: str) -> str:
    graph.branches.create(name)
    put(graph, [name], PAIR, branch=name)
    put(graph, [f"{name}-on-main"], ["node:C"])  # so that it is no fast-forward
    return "main"


def _put(*keys: str, operation: Operation = Operation.APPEND) -> Callable[[Graph, str, str], object]:
    return lambda graph, name, branch: put(graph, [name], keys, operation=operation, branch=branch)


DO = {
    "append to 1 table": (_on_main, _put("node:A")),
    "append to 2 tables": (_on_main, _put(*PAIR)),
    "upsert of 2 tables": (_on_main, _put(*PAIR, operation=Operation.UPSERT)),
    "change of 2 tables": (_on_main, _put(*PAIR, operation=Operation.CHANGE)),
    "append to 1 table, first on a branch": (_on_a_branch, _put("node:A")),
    "append to 3 tables, first on a branch": (_on_a_branch, _put(*NODES)),
    "merge of 2 tables": (_changed_branch, lambda graph, name, _: graph.merge(name)),
}


def written(name: str) -> Write:
    count = next(int(word) for word in name.split() if word.isdigit())
    return Write(name, NODES[:count], *DO[name])


def cases(short: Mapping[str, tuple[Answer, ...]]) -> list[object]:
    """All writes with all answers. All but those in `short` are left to `make soak`."""
    soak = pytest.mark.soak
    return [
        pytest.param(name, answer, marks=() if answer in short.get(name, ()) else soak, id=f"{name}: {answer}")
        for name in DO
        for answer in Answer
    ]


@dataclass
class Place:
    """A graph behind storage that loses answers, and a way to open it beside that."""

    graph: Graph
    lossy: Lossy
    reopen: Callable[[], Graph]


@pytest.fixture
def disk(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with create(place) as graph:
        lossy = LossyDisk(monkeypatch)
        behind(graph, lossy)
        yield Place(graph, lossy, lambda: open(place))


@pytest.fixture
def s3(s3_root: S3Root) -> Iterator[Place]:
    with ExitStack() as stack:
        stack.enter_context(create(s3_root.uri, s3_root.options))
        proxy, address = stack.enter_context(lossy_proxy(s3_root.options["endpoint"]))
        options = s3_root.options | {"endpoint": address, "client_max_retries": "0", "client_retry_timeout": "1"}
        graph = stack.enter_context(open(s3_root.uri, storage_options=options))
        yield Place(graph, proxy, lambda: open(s3_root.uri, storage_options=s3_root.options))


def lose_each(place: Place, write: Write, answer: Answer, whens: tuple[When, ...], requests: Mapping[str, int]) -> None:
    """Lose the answer to each request of a write in turn, in one graph."""
    for kind, count in requests.items():
        for number in range(1, count + 1):
            for when in whens:
                _lose(place, write, answer, (kind, number), when)
    clean(place.graph)
    assert_whole(place.graph)


def count(place: Place, write: Write) -> Mapping[str, int]:
    """The requests of a write that loses nothing, without the heartbeats of a slow one."""
    branch = write.prepare(place.graph, "counted")
    place.lossy.arm("", 0, Answer.LOST)
    write.do(place.graph, "counted", branch)
    place.lossy.disarm()
    seen = dict(place.lossy.choice.seen)
    return seen | {kind: min(most, seen[kind]) for kind, most in HEARTBEATS.items() if kind in seen}


def clean(graph: Graph) -> None:
    """Remove all that may be removed, files of this very moment included."""
    report = graph.cleanup(keep=4, orphans_older_than=timedelta(0))
    assert [table.error for table in report.tables if table.error] == []


def _lose(place: Place, write: Write, answer: Answer, request: tuple[str, int], when: When) -> None:
    graph, lossy = place.graph, place.lossy
    kind, number = request
    name = f"{kind.replace(', ', '-').replace(' ', '-')}-{number}-{when}-{answer.name}"
    branch = write.prepare(graph, name)
    lossy.arm(kind, number, answer)
    error: OmnigraphError | None = None
    try:
        write.do(graph, name, branch)
    except OmnigraphError as raised:
        error = raised
    lossy.disarm()
    where = f"{write}, {answer}: {kind} {number}, arrives {when.name}: {error!r}"
    assert lossy.choice.hit, where

    def arrive(now: When) -> None:
        if when is now:
            lossy.arrive()

    def seen(at: Graph) -> list[int]:
        return [ids(at, key, branch).count(name) for key in write.keys]

    arrive(When.GAVE_UP)
    with place.reopen() as other:
        other.refresh()
        outcome = seen(other)
        assert outcome in ([0] * len(write.keys), [1] * len(write.keys)), where
        if error is None:
            assert outcome[0] == 1, where
        elif error.disposition is not Disposition.UNKNOWN:
            assert outcome[0] == 0, where
        arrive(When.RECOVERED)
        put(other, [f"{name}-next"], write.keys, branch=branch)
        arrive(When.WRITTEN)
        if when is When.CLEANED:
            clean(other)
        arrive(When.CLEANED)
        put(graph, [f"{name}-last"], write.keys, branch=branch)
        other.refresh()
        assert seen(other) == outcome == seen(graph), where
        assert_whole(other)
        if branch != "main":
            graph.branches.delete(branch)


def check(place: Place, store: str, name: str, answer: Answer) -> None:
    whens: tuple[When, ...] = (When.GAVE_UP,)
    if answer in (Answer.LATE, Answer.TWICE):
        whens = tuple(When) if SOAK else (When.RECOVERED,)
    requests = REQUESTS[store][name]
    assert count(place, written(name)) == requests
    lose_each(place, written(name), answer, whens, requests)
    assert set(SEED) <= set(ids(place.graph, "edge:AB"))


DISK = dict.fromkeys(DO, (Answer.LATE,)) | {"append to 2 tables": tuple(Answer)}
S3 = {"append to 2 tables": (Answer.LATE,), "append to 1 table, first on a branch": (Answer.LATE,)}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "answer"), cases(DISK))
def test_on_disk(disk: Place, name: str, answer: Answer) -> None:
    check(disk, "disk", name, answer)


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.parametrize(("name", "answer"), cases(S3))
def test_in_s3(s3: Place, name: str, answer: Answer) -> None:
    check(s3, "s3", name, answer)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.commit.faults_page`"
    assert all(set(writes) == set(DO) for writes in REQUESTS.values())
