"""Many processes write at once: no acknowledged write is lost, and no reader sees a torn commit."""

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
from tests.sampling import every_nth

from omnigraph.graph import Graph, open

pytestmark = pytest.mark.slow

PAIR = ("node:A", "node:B")
"""The tables that every commit of these tests writes the same ids to."""
WRITERS = 4
COMMITS = 15
"""The number of commits per writer in an object store, where commits are slow."""


def _start(children: Children, graph: Graph, logs: Path, number: int, commits: int, **more: object) -> int:
    log = str(logs / f"{number}-{time.monotonic_ns()}.log")
    more |= {"uri": graph.uri, "log": log, "name": f"w{number}", "keys": PAIR, "commits": commits}
    return children.start("commit_many", failpoint=None, **more)


def _acknowledged(logs: Path) -> int:
    """The number of acknowledged steps in all logs."""
    return sum(log.read_text().count("ok ") for log in logs.glob("*.log"))


def _check(graph: Graph, logs: Path, branches: tuple[str, ...] = ("main",), unacknowledged: int = 0) -> Counter[str]:
    """Check that every acknowledged id is in both tables exactly once, and that the history is a chain."""
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
    """Start readers, and wait until they read."""
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


def test_processes_on_one_branch_lose_no_acknowledged_write(children: Children, place: Path, tmp_path: Path) -> None:
    with create(place) as graph:
        watchers = _watchers(children, graph, tmp_path / "stop", ("main", "main"))
        writers = [_start(children, graph, tmp_path, number, 50) for number in range(WRITERS)]
        for pid in writers:
            children.wait(pid).ok()
        _stop(children, tmp_path / "stop", watchers)
        assert _check(graph, tmp_path) == Counter(), "an append never conflicts for good"
        assert len(ids(graph)) == len(SEED) + WRITERS * 50
        assert graph.recovery.list() == []


def test_processes_on_four_branches_never_conflict(children: Children, place: Path, tmp_path: Path) -> None:
    """Writers on different branches never conflict, although all fork the same tables at once."""
    with create(place) as graph:
        names = tuple(graph.branches.create(f"branch-{number}").name for number in range(WRITERS))
        watchers = _watchers(children, graph, tmp_path / "stop", names[:1])
        writers = [_start(children, graph, tmp_path, number, 50, branch=branch) for number, branch in enumerate(names)]
        for pid in writers:
            children.wait(pid).ok()
        _stop(children, tmp_path / "stop", watchers)
        assert _check(graph, tmp_path, names) == Counter()
        assert ids(graph) == sorted(SEED)


def test_writers_lose_nothing_while_branches_are_created_and_deleted(
    children: Children, place: Path, tmp_path: Path
) -> None:
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


def test_killed_branch_creations_and_deletions_leave_only_working_branches(
    children: Children, place: Path, tmp_path: Path
) -> None:
    """Killed at any moment, also inside Lance: every listed branch works, and every name can be used."""
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
    """Wait until the running processes have logged this many more steps."""
    wanted = _acknowledged(logs) + count
    until(lambda: _acknowledged(logs) >= wanted)


def _killing(children: Children, graph: Graph, logs: Path, *, kills: int, **more: object) -> int:
    """Run writers, kill one after each bit of progress, and all at the end. Returns the number of killed writers."""
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
def test_killed_writers_lose_no_acknowledged_write(
    children: Children, place: Path, tmp_path: Path, branch: str
) -> None:
    """Acknowledged commits are visible. All others are visible completely or not at all."""
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
@pytest.mark.parametrize("apart", every_nth([False, True], 2), ids=["one branch", "four branches"])
def test_processes_on_an_object_store_lose_no_acknowledged_write(
    children: Children, s3_root: S3Root, tmp_path: Path, apart: bool
) -> None:
    """The same, while other processes create and delete branches."""
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
def test_killed_writers_on_an_object_store_lose_no_acknowledged_write(
    children: Children, s3_root: S3Root, tmp_path: Path
) -> None:
    with create(s3_root.uri, s3_root.options) as graph:
        watchers = _watchers(children, graph, tmp_path / "stop", ("main",), options=s3_root.options)
        killed = _killing(children, graph, tmp_path, kills=8, branch="main", options=s3_root.options)
        _stop(children, tmp_path / "stop", watchers)
    with open(s3_root.uri, storage_options=s3_root.options) as reopened:
        assert _check(reopened, tmp_path, unacknowledged=killed) == Counter()
        assert len(reopened.recovery.list()) <= killed
