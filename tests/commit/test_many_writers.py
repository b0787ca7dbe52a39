"""Any number of processes may write at once: nothing acknowledged is lost, and nobody sees half a commit."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.commit.child import Children, end, read_log
from tests.commit.graphs import SEED, assert_chain, assert_whole, create, ids, put
from tests.patience import until
from tests.s3_server import S3Root

from omnigraph.graph import Graph, open

pytestmark = pytest.mark.slow

PAIR = ("node:A", "node:B")
"""The tables that every commit of these tests writes the same ids to."""
WRITERS = 4
COMMITS = 15
"""What each of them makes in an object store, where a commit takes long."""


def _start(children: Children, graph: Graph, logs: Path, number: int, commits: int, **more: object) -> int:
    log = str(logs / f"{number}-{time.monotonic_ns()}.log")
    more |= {"uri": graph.uri, "log": log, "name": f"w{number}", "keys": PAIR, "commits": commits}
    return children.start("commit_many", failpoint=None, **more)


def _acknowledged(logs: Path) -> int:
    """How much is written down as done by now."""
    return sum(log.read_text().count("ok ") for log in logs.glob("*.log"))


def _check(graph: Graph, logs: Path, branches: tuple[str, ...] = ("main",), unacknowledged: int = 0) -> Counter[str]:
    """Every acknowledged id is there exactly once, in both tables, in a history that is one line."""
    acknowledged, conflicts = read_log(sorted(logs.glob("*.log")))
    seen: list[str] = []
    made = 0
    for branch in branches:
        left, right = (ids(graph, key, branch) for key in PAIR)
        assert left == right
        assert len(set(left)) == len(left), "something was written twice"
        seen += [name for name in left if name not in SEED]
        history = [commit for commit in assert_chain(graph, branch) if commit.branch == branch]
        made += sum(1 for commit in history if (commit.actor or "").startswith("w"))
    assert set(acknowledged) <= set(seen)
    assert 0 <= len(seen) - len(acknowledged) <= unacknowledged
    assert made == len(seen)
    assert_whole(graph)
    return Counter(conflicts)


def _watchers(children: Children, graph: Graph, stop: Path, branches: tuple[str, ...], **more: object) -> list[int]:
    """Readers that are at work already."""
    started = []
    for number, branch in enumerate(branches):
        ready = stop.with_name(f"watching-{number}")
        job = {"uri": graph.uri, "branch": branch, "stop": str(stop), "ready": str(ready), "keys": PAIR, **more}
        started.append(children.start("watch", failpoint=None, **job))
        until(ready.exists)
    return started


def _stop(children: Children, stop: Path, watchers: list[int]) -> None:
    stop.touch()
    for pid in watchers:
        seen = children.wait(pid).ok()
        assert seen.get("versions", 0) > 1, seen


def test_one_branch(children: Children, place: Path, tmp_path: Path) -> None:
    with create(place) as graph:
        watchers = _watchers(children, graph, tmp_path / "stop", ("main", "main"))
        writers = [_start(children, graph, tmp_path, number, 50) for number in range(WRITERS)]
        for pid in writers:
            children.wait(pid).ok()
        _stop(children, tmp_path / "stop", watchers)
        assert _check(graph, tmp_path) == Counter(), "an append never conflicts for good"
        assert len(ids(graph)) == len(SEED) + WRITERS * 50
        assert graph.recovery.list() == []


def test_four_branches(children: Children, place: Path, tmp_path: Path) -> None:
    """Writers on different branches do not meet at all, though all fork the same tables at once."""
    with create(place) as graph:
        names = tuple(graph.branches.create(f"branch-{number}").name for number in range(WRITERS))
        watchers = _watchers(children, graph, tmp_path / "stop", names[:1])
        writers = [_start(children, graph, tmp_path, number, 50, branch=branch) for number, branch in enumerate(names)]
        for pid in writers:
            children.wait(pid).ok()
        _stop(children, tmp_path / "stop", watchers)
        assert _check(graph, tmp_path, names) == Counter()
        assert ids(graph) == sorted(SEED)


def test_branches_come_and_go_meanwhile(children: Children, place: Path, tmp_path: Path) -> None:
    with create(place) as graph:
        watchers = _watchers(children, graph, tmp_path / "stop", ("main",))
        names = ["x", "y/1", "y/2"]
        job = {"uri": str(place), "names": names, "seconds": 4, "rounds": 8, "log": str(tmp_path / "gardeners")}
        gardeners = [children.start("come_and_go", failpoint=None, **job) for _ in range(2)]
        writers = [_start(children, graph, tmp_path, number, 50) for number in range(2)]
        for pid in (*writers, *gardeners):
            children.wait(pid).ok()
        _stop(children, tmp_path / "stop", watchers)
        assert _check(graph, tmp_path) == Counter()
        for branch in list(graph.branches):
            if branch.name != "main":
                graph.branches.delete(branch.name)
        assert [branch.name for branch in graph.branches] == ["main"]
        graph.cleanup(keep=1)
        for pin in graph.snapshot().tables.values():
            assert graph.session.store.tables.forks(pin.ref.path) == [], "no fork outlives its branch"


def test_those_who_make_and_delete_branches_die(children: Children, place: Path, tmp_path: Path) -> None:
    """At any moment, also within Lance: every branch that is listed works, and every name can be used."""
    with create(place):
        names = ["x", "y/1", "y/2"]
        job = {
            "uri": str(place),
            "names": names,
            "seconds": 0,
            "rounds": 10_000,
            "log": str(tmp_path / "gardeners.log"),
        }
        gardeners = [children.start("come_and_go", failpoint=None, **job) for _ in range(2)]
        for _ in range(50):
            _wait_for_more(tmp_path, random.randint(0, 3))
            time.sleep(random.uniform(0, 0.1))
            number = random.randrange(len(gardeners))
            end(gardeners[number])
            assert children.wait(gardeners[number]).signal == signal.SIGKILL
            gardeners[number] = children.start("come_and_go", failpoint=None, **job)
        for pid in gardeners:
            end(pid)
            assert children.wait(pid).signal == signal.SIGKILL
    with open(place) as reopened:
        assert_whole(reopened)
        assert ids(reopened) == sorted(SEED)
        for name in names:
            if name in reopened.branches:
                assert ids(reopened, "node:A", name) == ids(reopened, "node:B", name)
                put(reopened, ["still works"], PAIR, branch=name)
                reopened.branches.delete(name)
            reopened.branches.create(name)
            put(reopened, ["works again"], PAIR, branch=name)
            assert ids(reopened, branch=name) == sorted([*SEED, "works again"])
        assert_whole(reopened)


def _wait_for_more(logs: Path, count: int) -> None:
    """Wait until so much more is done by those who are at work."""
    wanted = _acknowledged(logs) + count
    until(lambda: _acknowledged(logs) >= wanted)


def _killing(children: Children, graph: Graph, logs: Path, *, kills: int, **more: object) -> int:
    """Have writers at work, kill one whenever they have got on, and all in the end. Returns how many were killed."""
    writers = {number: _start(children, graph, logs, number, 10_000, **more) for number in range(WRITERS)}
    for _ in range(kills):
        _wait_for_more(logs, random.randint(1, 5))
        time.sleep(random.uniform(0, 0.3))
        number = random.choice(sorted(writers))
        end(writers[number])
        assert children.wait(writers[number]).signal == signal.SIGKILL
        writers[number] = _start(children, graph, logs, number, 10_000, **more)
    _wait_for_more(logs, 1)
    for pid in writers.values():
        end(pid)
        assert children.wait(pid).signal == signal.SIGKILL
    return kills + len(writers)


@pytest.mark.parametrize("branch", ["main", pytest.param("dev", marks=pytest.mark.slow)])
def test_writers_die_again_and_again(children: Children, place: Path, tmp_path: Path, branch: str) -> None:
    """What was acknowledged before the kill is there; what was not is there completely or not at all."""
    with create(place) as graph:
        if branch != "main":
            graph.branches.create(branch)
        watchers = _watchers(children, graph, tmp_path / "stop", (branch,))
        killed = _killing(children, graph, tmp_path, kills=20, branch=branch)
        _stop(children, tmp_path / "stop", watchers)
    with open(place) as reopened:
        assert _check(reopened, tmp_path, (branch,), unacknowledged=killed) == Counter()
        assert len(reopened.recovery.list()) <= killed


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True], ids=["one branch", "four branches"])
def test_in_an_object_store(children: Children, s3_root: S3Root, tmp_path: Path, apart: bool) -> None:
    """The same, with branches that come and go meanwhile."""
    with create(s3_root.uri, s3_root.options) as graph:
        reach = {"options": s3_root.options}
        made = tuple(graph.branches.create(f"branch-{number}").name for number in range(WRITERS if apart else 0))
        names = made or ("main",)
        watchers = _watchers(children, graph, tmp_path / "stop", names[:1], **reach)
        job = {"uri": graph.uri, "names": ["x", "y/1"], "seconds": 4, "rounds": 4, "log": str(tmp_path / "gardener")}
        gardener = children.start("come_and_go", failpoint=None, **job, **reach)
        writers = [
            _start(children, graph, tmp_path, number, COMMITS, branch=names[number % len(names)], **reach)
            for number in range(WRITERS)
        ]
        for pid in (*writers, gardener):
            children.wait(pid).ok()
        _stop(children, tmp_path / "stop", watchers)
        graph.refresh()
        assert _check(graph, tmp_path, names) == Counter()
        assert sum(len(ids(graph, branch=name)) - len(SEED) for name in names) == WRITERS * COMMITS


@pytest.mark.s3
@pytest.mark.slow
def test_writers_die_again_and_again_in_an_object_store(children: Children, s3_root: S3Root, tmp_path: Path) -> None:
    with create(s3_root.uri, s3_root.options) as graph:
        watchers = _watchers(children, graph, tmp_path / "stop", ("main",), options=s3_root.options)
        killed = _killing(children, graph, tmp_path, kills=8, branch="main", options=s3_root.options)
        _stop(children, tmp_path / "stop", watchers)
    with open(s3_root.uri, storage_options=s3_root.options) as reopened:
        assert _check(reopened, tmp_path, unacknowledged=killed) == Counter()
        assert len(reopened.recovery.list()) <= killed
