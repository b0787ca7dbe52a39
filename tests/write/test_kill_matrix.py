"""A killed load or mutation is applied completely or not at all, and can be repeated safely."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commit import child
from tests.commit.child import Children
from tests.commit.graphs import assert_whole, sidecars
from tests.commit.matrix import WRITE_POINTS, Kill, Outcome, kills, outcome
from tests.sampling import sampled
from tests.write.requests import SEED, Request, content, create, requests

from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.sidecar import WriterKind
from omnigraph.graph import Graph, open

KEY = "request 1"


def _every() -> list[object]:
    """All requests at all failpoints. Those on five tables of a branch always run: they reach every failpoint.

    Of the others, one in three runs outside `make soak`.
    """
    pairs = [(request, kill) for request in requests() for kill in kills(request)]
    return [
        pytest.param(request, kill, id=f"{request}-{kill}", marks=() if _is_widest(request) else sampled(number, 3))
        for number, (request, kill) in enumerate(pairs)
    ]


def _forking() -> list[object]:
    """A load that creates its branch, at all failpoints: before the first one, only the branch exists."""
    load = next(request for request in requests() if request.forks and request.kind is WriterKind.LOAD)
    load = replace(load, job={**load.job, "base": "main"})
    places = (Kill(Failpoint.BRANCH_REF_CREATED), *kills(load))
    return [pytest.param(load, kill, id=f"{load}, with its branch-{kill}", marks=pytest.mark.slow) for kill in places]


def _is_widest(request: Request) -> bool:
    return request.forks and len(request.tables) == 5 and request.what in ("merge, tables", "delete")


def _job(request: Request, graph: Graph) -> dict[str, object]:
    return {**request.job, "uri": graph.uri, "branch": request.branch, "actor": "act-kim", "idempotency_key": KEY}


def _check(graph: Graph, request: Request, expected: Outcome) -> None:
    assert content(graph, request.branch) == (request.after if expected.visible else SEED)
    assert_whole(graph)
    settled = RecoveryKind.ROLLED_FORWARD if expected.visible else RecoveryKind.ROLLED_BACK
    assert [record.kind for record in graph.recovery.list()] == ([settled] if expected.audited else [])
    head = graph.snapshot(branch=request.branch).commit
    if expected.visible:
        assert (head.actor, head.writer, head.idempotency_key) == ("act-kim", request.kind.value, KEY)
    _check_again(graph, request, expected, head.id)
    _check_next(graph, request)


def _check_again(graph: Graph, request: Request, expected: Outcome, head: str) -> None:
    """Repeat the request with its key: it is applied only if the first one was not."""
    job = _job(request, graph)
    send = child.JOBS[str(job["job"])]
    made = send(job)
    assert (made == head) is expected.visible
    if not expected.visible:
        assert send(job) == made
    graph.refresh()
    assert content(graph, request.branch) == request.after
    assert graph.snapshot(branch=request.branch).commit.id == made


def _check_next(graph: Graph, request: Request) -> None:
    graph.load({"C": pa.table({"k": ["next"], "n": [9]})}, mode="append", branch=request.branch)
    graph.mutate('query q() { insert B { k: "next", n: 9 } }', branch=request.branch)
    after = request.after
    wanted = {**after, "B": {**after["B"], ("next",): 9}, "C": {**after["C"], ("next",): 9}}
    assert content(graph, request.branch) == wanted
    if request.forks:
        assert content(graph) == SEED, "main is as it was"
    assert_whole(graph)


@pytest.mark.slow
@pytest.mark.parametrize(("request_", "kill"), [*_every(), *_forking()])
def test_a_killed_request_is_complete_or_undone(children: Children, place: Path, request_: Request, kill: Kill) -> None:
    expected = outcome(request_, kill) if kill.point in WRITE_POINTS else Outcome.NOTHING
    with create(place) as graph:
        if request_.forks and "base" not in request_.job:
            graph.branches.create(request_.branch)
        ending = children.run(failpoint=kill.setting, **_job(request_, graph))  # type: ignore[arg-type]
        assert ending.signal == signal.SIGKILL, f"{kill} was not reached: {ending}"
        assert bool(sidecars(graph)) is expected.audited
    with open(place) as reopened:
        _check(reopened, request_, expected)


def test_the_kill_matrix_covers_every_mode_and_kind_of_write() -> None:
    """Each mode and each kind of mutation, with one, two and five tables, and as the first write on a branch."""
    found = {(request.kind, request.what.split(",")[0], len(request.tables), request.forks) for request in requests()}
    modes = {(WriterKind.LOAD, mode) for mode in ("append", "merge", "overwrite")}
    kinds = {(WriterKind.MUTATION, kind) for kind in ("insert", "merge", "update", "delete")}
    sizes = {(1, False), (2, False), (5, False), (2, True), (5, True)}
    assert found == {(*what, *size) for what in modes | kinds for size in sizes}
