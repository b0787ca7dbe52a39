"""A group is visible as a whole or not at all: after a kill, a pause, a failed flush, and beside other processes."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.commit.child import LINK, PAIR, Children, end, read_log
from tests.commit.graphs import SEED, assert_whole, create, ids, put, sidecars
from tests.commit.matrix import Kill, kills, outcome
from tests.commit.test_failed_flush import Flushes
from tests.commit.test_failed_flush import flushes as flushes
from tests.commit.test_pause_matrix import TTL, Paused
from tests.commit.test_pause_matrix import paused as paused
from tests.commit.together import together
from tests.patience import PATIENCE, until

from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.recovery import RECOVERY_ACTOR
from omnigraph.commit.sidecar import WriterKind
from omnigraph.errors import WriteUndoneError
from omnigraph.graph import Graph, open
from omnigraph.write.mutation import MutationReceipt

BOTH = ("node:A", "node:B")
NAMES = ("g1", "g2", "g3")


def shown(graph: Graph, branch: str = "main") -> list[str]:
    """The ids of both tables, without those that the graph began with. They must be the same in both."""
    left, right = (ids(graph, key, branch) for key in BOTH)
    assert left == right
    assert len(set(left)) == len(left), "something was written twice"
    return [name for name in left if name not in SEED]


def send(graph: Graph, name: str, branch: str = "main") -> MutationReceipt:
    return graph.mutate(PAIR, {"k": name}, branch=branch, idempotency_key=f"key {name}")


# Kills


@dataclass(frozen=True, slots=True)
class _Group:
    """A group of mutations of two tables, for the kill matrix."""

    forks: bool
    kind: WriterKind = WriterKind.MUTATION
    what: str = "group"
    tables: tuple[str, ...] = BOTH

    def __str__(self) -> str:
        return "first on a branch" if self.forks else "main"


KILLS = [(_Group(forks), kill) for forks in (False, True) for kill in kills(_Group(forks))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "kill"), KILLS, ids=[f"{kill}-{'branch' if w.forks else 'main'}" for w, kill in KILLS]
)
def test_a_killed_group_is_complete_or_undone(children: Children, place: Path, write: _Group, kill: Kill) -> None:
    expected, branch = outcome(write, kill), "dev" if write.forks else "main"
    with create(place) as graph:
        if write.forks:
            graph.branches.create(branch)
        job = {"uri": graph.uri, "branch": branch, "names": NAMES, "actor": "act-kim"}
        ending = children.run("group", failpoint=kill.setting, **job)
        assert ending.signal == signal.SIGKILL, f"{kill} was not reached: {ending}"
        assert bool(sidecars(graph)) is expected.audited
    with open(place, actor="act-kim") as reopened:
        assert shown(reopened, branch) == (list(NAMES) if expected.visible else [])
        assert_whole(reopened)
        settled = RecoveryKind.ROLLED_FORWARD if expected.visible else RecoveryKind.ROLLED_BACK
        records = reopened.recovery.list()
        assert [(one.kind, one.actor) for one in records] == ([(settled, "act-kim")] if expected.audited else [])
        head = reopened.snapshot(branch=branch).commit
        if expected.visible:
            assert [member.idempotency_key for member in head.members] == [f"key {name}" for name in NAMES]
        _check_again(reopened, branch, head.id if expected.visible else None)


def _check_again(graph: Graph, branch: str, made: str | None) -> None:
    """Repeat all members with their keys: they are written only if the group was not."""
    again = [send(graph, name, branch).commit for name in NAMES]
    assert None not in again
    if made is not None:
        assert {commit.id for commit in again if commit is not None} == {made}
    assert shown(graph, branch) == list(NAMES)
    put(graph, ["next"], BOTH, branch=branch)
    assert_whole(graph)


# Pauses


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        Failpoint.CAPTURED,
        Failpoint.STAGED,
        Failpoint.LEASED,
        Failpoint.SIDECAR_WRITTEN,
        Failpoint.TABLE_COMMITTED,
        Failpoint.TABLES_COMMITTED,
        Failpoint.BEFORE_PUBLISH,
        Failpoint.PUBLISHED,
    ],
)
def test_a_paused_group_is_written_once_beside_the_writes_of_another_process(
    paused: Callable[..., Paused], place: Path, point: Failpoint
) -> None:
    with create(place) as graph:
        graph.session.store.timeouts.ttl, graph.session.store.timeouts.wait = TTL, PATIENCE
        child = paused("group", point, names=NAMES)
        for name in ("other", "g2"):  # another process sends one of the members, too, with its key
            send(graph, name)
        child.go_on().ok()
        graph.refresh()
        assert shown(graph) == [*NAMES, "other"]
        assert_whole(graph)
        put(graph, ["after"], BOTH)
        assert shown(graph) == ["after", *NAMES, "other"]


@pytest.mark.slow
@pytest.mark.parametrize("point", [Failpoint.CAPTURED, Failpoint.LEASED, Failpoint.SIDECAR_WRITTEN])
def test_a_member_that_another_process_has_made_is_not_made_again(
    paused: Callable[..., Paused], place: Path, point: Failpoint
) -> None:
    """The edge has a new id, so that only the idempotency key shows that the request was made before."""
    with create(place) as graph:
        before = len(ids(graph, "edge:AB"))
        graph.session.store.timeouts.ttl, graph.session.store.timeouts.wait = TTL, PATIENCE
        child = paused("group", point, names=SEED, text=LINK)
        theirs = graph.mutate(LINK, {"k": "s2"}, idempotency_key="key s2").commit
        made = child.go_on().ok()
        assert theirs is not None
        assert made[1] == theirs.id
        graph.refresh()
        assert len(ids(graph, "edge:AB")) == before + len(SEED)
        assert_whole(graph)


# Failed flushes


@pytest.mark.parametrize("part", ["/data/", "__manifest/_versions/"])
def test_a_group_with_a_failed_flush_is_undone_for_all_members(place: Path, flushes: Flushes, part: str) -> None:
    with create(place) as graph:
        with flushes.failing_in(part):
            outcomes = together(graph, [partial(send, graph, name) for name in NAMES])
        assert [type(one) for one in outcomes] == [WriteUndoneError] * len(NAMES)
        assert len({id(one) for one in outcomes}) == len(NAMES), "each thread has an error of its own"
        assert shown(graph) == []
        _check_again(graph, "main", None)
    with open(place) as reopened:
        assert shown(reopened) == [*NAMES, "next"]
        assert send(reopened, "g1").commit is not None
        assert shown(reopened) == [*NAMES, "next"]


# Processes


@pytest.mark.slow
def test_processes_with_many_threads_lose_no_acknowledged_write(
    children: Children, place: Path, tmp_path: Path
) -> None:
    """Two processes group the writes of their threads. Readers never see a part of a group."""
    threads, commits = 6, 8
    with create(place) as graph:
        stop, ready = tmp_path / "stop", tmp_path / "ready"
        watching = {"uri": graph.uri, "stop": str(stop), "ready": str(ready), "keys": BOTH}
        watcher = children.start("watch", failpoint=None, **watching)
        until(ready.exists)
        job = {"uri": graph.uri, "threads": threads, "commits": commits}
        logs = [tmp_path / f"{number}.log" for number in range(2)]
        writers = [
            children.start("group_many", failpoint=None, log=str(log), name=f"w{number}", **job)
            for number, log in enumerate(logs)
        ]
        for pid in writers:
            children.wait(pid).ok()
        stop.touch()
        assert children.wait(watcher).ok().get("versions", 0) > 1
        acknowledged, _ = read_log(logs)
        assert sorted(acknowledged) == shown(graph)
        assert len(acknowledged) == 2 * threads * commits
        history = graph.commits.list().commits
        assert any(commit.members for commit in history)
        assert sum(len(commit.members) or 1 for commit in history if commit.writer == "Mutation") == len(acknowledged)
        assert_whole(graph)
        assert graph.recovery.list() == []


@pytest.mark.slow
def test_killed_and_paused_processes_with_many_threads_lose_no_acknowledged_write(
    children: Children, place: Path, tmp_path: Path
) -> None:
    """Each of two processes groups the writes of 16 threads. They are killed at any time, some after a pause."""
    threads, faults = 16, 8
    with create(place) as graph:
        job = {"uri": graph.uri, "threads": threads, "commits": 10_000, "ttl": TTL}
        logs: list[Path] = []

        def start() -> int:
            logs.append(tmp_path / f"{len(logs)}.log")
            name = f"w{len(logs)}"
            return children.start("group_many", failpoint=None, log=str(logs[-1]), name=name, **job)

        running = [start(), start()]
        for _ in range(faults):
            before = len(read_log(logs)[0])
            until(partial(_has_more, logs, before + random.randint(1, 2 * threads)))
            victim = running.pop(random.randrange(2))
            if random.random() < 0.5:
                end(victim, signal.SIGSTOP)
                time.sleep(random.uniform(0, 3 * TTL))  # the lease may expire meanwhile
                end(victim, signal.SIGCONT)
                time.sleep(random.uniform(0, TTL))
            end(victim)
            assert children.wait(victim).signal == signal.SIGKILL
            running.append(start())
        for pid in running:
            end(pid)
            assert children.wait(pid).signal == signal.SIGKILL
    with open(place) as reopened:
        acknowledged, made = read_log(logs)[0], shown(reopened)
        assert set(acknowledged) <= set(made)
        assert len(made) - len(acknowledged) <= threads * len(logs)
        assert_whole(reopened)
        history = [commit for commit in reopened.commits.list().commits if commit.actor != RECOVERY_ACTOR]
        assert sum(len(commit.members) or 1 for commit in history if commit.writer == "Mutation") == len(made)
        put(reopened, ["after"], BOTH)


def _has_more(logs: Sequence[Path], count: int) -> bool:
    return len(read_log(logs)[0]) >= count


@pytest.mark.slow
@pytest.mark.parametrize("faults", [4, pytest.param(60, marks=pytest.mark.soak)])
def test_writes_with_keys_that_many_processes_send_are_made_once(
    children: Children, place: Path, tmp_path: Path, faults: int
) -> None:
    """Threads of three processes send the same writes. Processes are killed, at failpoints too, or paused.

    All answers to a write are equal: they name one commit, with the numbers of that write alone.
    """
    stop, logs = tmp_path / "stop", list[Path]()
    with create(place) as graph:
        job = {"uri": graph.uri, "threads": 8, "writes": 60 * faults, "ttl": TTL, "stop": str(stop)}

    def start() -> int:
        logs.append(tmp_path / f"{len(logs)}.log")
        point = f"{random.choice(_POINTS)}#{random.randint(1, 12)}=kill" if random.random() < 0.5 else None
        return children.start("keyed_many", failpoint=point, log=str(logs[-1]), seed=len(logs), **job)

    running = [start() for _ in range(3)]
    for _ in range(faults):
        before = sum(map(_size, logs))
        until(lambda before=before: sum(map(_size, logs)) > before or all(map(_has_ended, running)))  # type: ignore[misc]
        number = random.randrange(3)
        if random.random() < 0.5 and not _has_ended(running[number]):
            end(running[number], signal.SIGSTOP)
            time.sleep(random.uniform(0, 2 * TTL))  # the lease may expire meanwhile
            end(running[number], signal.SIGCONT)
        else:
            end(running[number])
            assert children.wait(running[number]).signal == signal.SIGKILL
            running[number] = start()
    stop.touch()
    for pid in running:
        ending = children.wait(pid)
        assert ending.signal == signal.SIGKILL or ending.ok() < 30, "file descriptors are left open"
    answers: dict[str, set[str]] = {}
    for line in (line for log in logs if log.exists() for line in log.read_text().splitlines()):
        kind, name, *rest = line.split()
        if kind == "ok" and len(rest) == 2:  # the last line of a killed process may be incomplete
            answers.setdefault(name, set()).add(" ".join(rest))
    with open(place) as reopened:
        snapshot = reopened.snapshot()
        edges = Counter(snapshot.scan("edge:AB", columns=["src"])["src"].to_pylist())
        made = {name for name in ids(reopened, "node:A") if name.startswith("k")}
        assert {name: edges[name] for name in made} == dict.fromkeys(made, 1)
        assert answers.keys() <= made
        commits = {commit.id for commit in reopened.commits}
        for name, found in answers.items():
            assert len(found) == 1, f"{name}: {found}"
            commit, numbers = next(iter(found)).split()
            assert commit in commits
            assert numbers in ("1/1", "transaction")
        assert_whole(reopened)
        assert sidecars(reopened) == []


_POINTS = [point.value for point in Failpoint][: list(Failpoint).index(Failpoint.TRANSACTION_FORKS_REMOVED)]


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _has_ended(pid: int) -> bool:
    """Whether a process has ended, and waits for its parent."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
