"""A request whose answer is lost can take effect at any time, without lost, duplicate, torn or blocked writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commit.faults_page import PAGE, REQUESTS, page
from tests.commit.graphs import NODES, SEED, Operation, assert_whole, create, ids, put, rows
from tests.commit.late_requests import Answer, Lossy, LossyDisk, behind, lossy_proxy
from tests.s3_server import S3Root

from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.table_writes import Change
from omnigraph.commit.write_request import WriteRequest
from omnigraph.errors import Disposition, OmnigraphError
from omnigraph.graph import Graph, open

SOAK = bool(os.environ.get("OMNIGRAPH_SOAK"))
PAIR = ("node:A", "node:B")
HEARTBEATS = {"lease, write": 2, "work record, write": 1}
"""Requests that are repeated during a write, and how many of them every write makes."""


class When(IntEnum):
    """When a late request arrives."""

    GAVE_UP = 0
    RECOVERED = 1
    WRITTEN = 2
    CLEANED = 3


@dataclass(frozen=True, slots=True)
class Write:
    """A write. Each of its requests loses its answer once.

    Attributes:
        prepare: runs before, without faults; returns the branch that is written.
        do: the write, with the name of the row that it adds.
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
    put(graph, [f"{name}-on-main"], ["node:C"])  # so that the merge is not a fast-forward
    return "main"


def _with_rows(graph: Graph, name: str) -> str:
    put(graph, [f"{name}-old", f"{name}-stays"], PAIR)
    return "main"


def _change(graph: Graph, name: str, branch: str) -> object:
    """Replace the row that was there before, so that each write deletes from a file of other rows as well."""
    old = pa.array([f"{name}-old"], pa.utf8())
    request = WriteRequest(branch=branch, kind=WriterKind.LOAD)
    return graph.write_tables(request, lambda view: [Change(key, rows(key, [name]), deleted=old) for key in PAIR])


def _put(*keys: str, operation: Operation = Operation.APPEND) -> Callable[[Graph, str, str], object]:
    return lambda graph, name, branch: put(graph, [name], keys, operation=operation, branch=branch)


DO = {
    "append to 1 table": (_on_main, _put("node:A")),
    "append to 2 tables": (_on_main, _put(*PAIR)),
    "upsert of 2 tables": (_on_main, _put(*PAIR, operation=Operation.UPSERT)),
    "change of 2 tables": (_with_rows, _change),
    "append to 1 table, first on a branch": (_on_a_branch, _put("node:A")),
    "append to 3 tables, first on a branch": (_on_a_branch, _put(*NODES)),
    "merge of 2 tables": (_changed_branch, lambda graph, name, _: graph.merge(name)),
}


def written(name: str) -> Write:
    count = next(int(word) for word in name.split() if word.isdigit())
    return Write(name, NODES[:count], *DO[name])


def cases(short: Mapping[str, tuple[Answer, ...]]) -> list[object]:
    """All writes with all answers. Only those in `short` run without `make soak`."""
    soak = pytest.mark.soak
    return [
        pytest.param(name, answer, marks=() if answer in short.get(name, ()) else soak, id=f"{name}: {answer}")
        for name in DO
        for answer in Answer
    ]


@dataclass
class Place:
    """A graph behind storage that loses answers, and a way to open it without faults."""

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
    """The requests of a write without faults, without the heartbeats of a slow write."""
    branch = write.prepare(place.graph, "counted")
    place.lossy.arm("", 0, Answer.LOST)
    write.do(place.graph, "counted", branch)
    place.lossy.disarm()
    seen = dict(place.lossy.choice.seen)
    return seen | {kind: min(most, seen[kind]) for kind, most in HEARTBEATS.items() if kind in seen}


def clean(graph: Graph) -> None:
    """Run a cleanup that also removes files that were just written."""
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
        found = [ids(at, key, branch) for key in write.keys]
        if write.name.startswith("change"):
            assert [each.count(f"{name}-old") for each in found] == [1 - each.count(name) for each in found], where
        return [each.count(name) for each in found]

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
S3 = {"append to 2 tables": (Answer.LATE,)}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "answer"), cases(DISK))
def test_a_lost_answer_of_the_disk_does_not_break_a_write(disk: Place, name: str, answer: Answer) -> None:
    check(disk, "disk", name, answer)


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.parametrize(("name", "answer"), cases(S3))
def test_a_lost_answer_of_s3_does_not_break_a_write(s3: Place, name: str, answer: Answer) -> None:
    check(s3, "s3", name, answer)


def test_the_fault_matrix_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.commit.faults_page`"
    assert all(set(writes) == set(DO) for writes in REQUESTS.values())
