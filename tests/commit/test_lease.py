"""One writer at a time on a branch, whatever becomes of the one before."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from threading import Timer
from uuid import uuid4

import orjson
import pytest
from tests.commit.child import Children, end
from tests.commit.graphs import SEED, assert_whole, ids, put, sidecars
from tests.storage.faults import FaultyStore

from omnigraph.commit import lease
from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.lease import LeaseRecord, Owner, lease_path
from omnigraph.commit.writer import Operation
from omnigraph.errors import LeaseLostError, LeaseTimeoutError, RecoveryRequiredError, StorageError
from omnigraph.graph import Graph
from omnigraph.storage.objects import ObjectStore, open_store

pytestmark = pytest.mark.slow

PAIR = ("node:A", "node:B")
TTL = 0.6


@pytest.fixture
def store() -> ObjectStore:
    return open_store(f"memory://{uuid4().hex}")


def record(store: ObjectStore, branch: str = "main") -> LeaseRecord:
    return LeaseRecord.load(store.get(lease_path(branch)).data)


def slow_write(
    children: Children, graph: Graph, point: Failpoint, seconds: float, *, ttl: float = TTL, branch: str = "main"
) -> int:
    """A child that writes and waits at a place. Returns when it is there."""
    writes = [(key, "append", ["slow"]) for key in PAIR]
    job = {"uri": graph.uri, "branch": branch, "ttl": ttl, "writes": writes}
    pid = children.start("write", failpoint=f"{point}=pause:{seconds}", **job)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            owner = record(graph._store.objects, branch).owner
        except StorageError:
            owner = None
        if owner is not None and owner.pid == pid and (point is Failpoint.LEASED or sidecars(graph)):
            time.sleep(0.15)  # from the sidecar to the place are a few milliseconds
            return pid
        time.sleep(0.002)
    raise AssertionError("the child did not come that far")


# Taking it


def test_two_cannot_have_it(store: ObjectStore) -> None:
    with lease.acquire(store, "main"):
        assert record(store).owner == Owner.here()
        with pytest.raises(LeaseTimeoutError) as caught:
            lease.acquire(store, "main", wait=0.05)
        assert caught.value.retryable
        with lease.acquire(store, "dev", wait=0):
            pass
    with lease.acquire(store, "main", wait=0):
        pass


def test_waiting_ends_when_it_is_given_back(store: ObjectStore) -> None:
    held = lease.acquire(store, "main")
    Timer(0.2, held.release).start()
    started = time.monotonic()
    lease.acquire(store, "main", wait=5).release()
    assert 0.15 < time.monotonic() - started < 2


def test_the_number_only_grows(store: ObjectStore) -> None:
    numbers = []
    for _ in range(3):
        with lease.acquire(store, "main") as held:
            numbers.append(held.fence)
    assert numbers == [1, 2, 3]
    with lease.acquire(store, "main", at_least=lambda: 40) as held:
        assert held.fence == 41


def test_the_number_grows_though_the_object_is_deleted(graph: Graph) -> None:
    fences = []
    for number in range(3):
        put(graph, [f"n{number}"])
        fences.append(graph._store.capture("main").fence)
        graph._store.objects.delete(lease_path("main"))
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"fence": "x"}', b'{"fence":1,"owner":{"pid":1},"beat":0}'])
def test_an_unreadable_object_is_a_free_lease(graph: Graph, content: bytes) -> None:
    """After a power failure: lease objects are not flushed to disk."""
    put(graph, ["one"])
    before = graph._store.capture("main").fence
    graph._store.objects.put(lease_path("main"), content)
    put(graph, ["two"])
    assert graph._store.capture("main").fence > before
    assert_whole(graph)


def test_an_owner_elsewhere_has_its_time(store: ObjectStore) -> None:
    """Nobody can see from here whether a process on another machine lives: silence decides."""
    elsewhere = LeaseRecord(5, Owner("another machine", 1, "1"))
    store.put(lease_path("main"), elsewhere.dump())
    with pytest.raises(LeaseTimeoutError):
        lease.acquire(store, "main", wait=0.1, ttl=0.5)
    started = time.monotonic()
    with lease.acquire(store, "main", wait=5, ttl=0.4) as held:
        assert held.fence == 6
    assert time.monotonic() - started >= 0.4


def test_a_process_that_reuses_the_number_of_a_dead_one(store: ObjectStore) -> None:
    here = Owner.here()
    store.put(lease_path("main"), LeaseRecord(5, Owner(here.host, here.pid, "an earlier life")).dump())
    with lease.acquire(store, "main", wait=0) as held:
        assert held.fence == 6


# Keeping it


def test_the_heartbeat_keeps_it(store: ObjectStore) -> None:
    with lease.acquire(store, "main", ttl=0.3) as held:
        beats = record(store).beat
        with pytest.raises(LeaseTimeoutError):
            lease.acquire(store, "main", wait=1, ttl=0.3)
        assert record(store).beat > beats
        held.check()


def test_a_heartbeat_whose_answer_is_lost(store: ObjectStore) -> None:
    """The object has changed, and it was this owner who changed it."""
    faults = FaultyStore(store)
    with lease.acquire(faults, "main", ttl=0.3) as held:
        faults.fail_after("replace")
        time.sleep(0.5)
        assert faults.count("replace") >= 2
        held.check()
    assert record(store).owner is None, "it was given back"


def test_a_store_out_of_reach_for_a_moment(store: ObjectStore) -> None:
    faults = FaultyStore(store)
    with lease.acquire(faults, "main", ttl=0.3) as held:
        faults.fail_before("replace")
        time.sleep(0.4)
        held.check()


def test_it_is_lost_when_another_has_it(store: ObjectStore) -> None:
    with lease.acquire(store, "main") as held:
        other = LeaseRecord(held.fence + 1, Owner("another machine", 1, "1"))
        store.put(lease_path("main"), other.dump())
        with pytest.raises(LeaseLostError):
            held.check()
    assert record(store) == other, "what is not ours is not given back"


@pytest.mark.parametrize("answer", [b"", None])
def test_it_is_lost_when_the_object_is(store: ObjectStore, answer: bytes | None) -> None:
    with lease.acquire(store, "main") as held:
        if answer is None:
            store.delete(lease_path("main"))
        else:
            store.put(lease_path("main"), answer)
        with pytest.raises(LeaseLostError):
            held.check()


# Between processes


def test_processes_take_turns(children: Children, graph: Graph) -> None:
    writer = slow_write(children, graph, Failpoint.SIDECAR_WRITTEN, 1.0, ttl=30)
    graph._store.timeouts.wait = 0.2
    with pytest.raises(LeaseTimeoutError, match=str(writer)):
        put(graph, ["hasty"])
    graph._store.timeouts.wait = 30
    put(graph, ["patient"])
    children.wait(writer).ok()
    assert ids(graph) == sorted([*SEED, "slow", "patient"])
    assert_whole(graph)


def test_a_long_write_stays_alive(children: Children, graph: Graph) -> None:
    """It takes several times as long as an owner may be silent."""
    writer = slow_write(children, graph, Failpoint.TABLE_COMMITTED, 2.0, ttl=0.4)
    graph._store.timeouts.ttl, graph._store.timeouts.wait = 0.4, 1.2
    with pytest.raises(LeaseTimeoutError):
        put(graph, ["other"])
    children.wait(writer).ok()
    assert graph.recovery.list() == []
    assert_whole(graph)


def test_a_killed_owner_is_replaced_at_once(children: Children, graph: Graph) -> None:
    """On the same machine nobody waits for a lease to run out."""
    writes = [("node:A", "append", ["slow"])]
    job = {"uri": graph.uri, "writes": writes}
    assert children.run("write", failpoint="before_publish=kill", **job).signal == signal.SIGKILL
    started = time.monotonic()
    put(graph, ["next"])
    assert time.monotonic() - started < 5 < graph._store.timeouts.ttl
    assert ids(graph) == sorted([*SEED, "slow", "next"])


def test_a_silent_owner_is_replaced_in_time(children: Children, graph: Graph) -> None:
    writer = slow_write(children, graph, Failpoint.LEASED, 0.5)
    end(writer, signal.SIGSTOP)
    graph._store.timeouts.ttl = TTL
    started = time.monotonic()
    put(graph, ["next"])
    assert time.monotonic() - started >= TTL * 0.9


SLEEPY = [
    Failpoint.LEASED,
    Failpoint.SIDECAR_WRITTEN,
    Failpoint.TABLE_COMMITTED,
    Failpoint.TABLES_COMMITTED,
    Failpoint.BEFORE_PUBLISH,
    Failpoint.PUBLISHED,
]


@pytest.mark.parametrize("meanwhile", ["recovers", "writes the same tables", "writes other tables"])
@pytest.mark.parametrize("point", SLEEPY)
def test_a_sleeper_cannot_publish(children: Children, graph: Graph, point: Failpoint, meanwhile: str) -> None:
    """An owner that wakes up after it was replaced changes nothing, and leaves a graph that works."""
    writer = slow_write(children, graph, point, 0.5)
    end(writer, signal.SIGSTOP)
    graph._store.timeouts.ttl = TTL
    if meanwhile == "recovers":
        with graph._store.exclusive("main"):
            pass
        graph.refresh()
    else:
        put(graph, ["next"], PAIR if meanwhile.endswith("same tables") else ["node:C"])
    settled = graph.recovery.list()
    moved = SLEEPY.index(point) >= SLEEPY.index(Failpoint.TABLES_COMMITTED)
    assert [entry.kind for entry in settled] == (
        [] if point is Failpoint.LEASED else [RecoveryKind.ROLLED_FORWARD if moved else RecoveryKind.ROLLED_BACK]
    )
    end(writer, signal.SIGCONT)
    ending = children.wait(writer)
    if point is Failpoint.LEASED and meanwhile == "recovers":
        # Nobody has published: it finds out when it looks, and says so. What it left is settled by the next writer.
        assert ending.error in ("LeaseLostError", "RecoveryRequiredError")
    elif point is Failpoint.LEASED:
        assert ending.ok(), "nothing of it had happened, so it began again, with a lease of its own"
    elif moved:
        assert ending.ok(), "the other writer finished it, so it is done"
    else:
        assert ending.error in ("LeaseLostError", "RecoveryRequiredError", "ReadSetChangedError"), ending.text
    graph.refresh()
    visible = ["slow"] * ("slow" in ids(graph))
    if ending.error in ("LeaseLostError", "ReadSetChangedError"):
        assert visible == [], "a refusal means that nothing happened"
    assert ids(graph) == ids(graph, "node:B"), "all or nothing"
    assert visible == ["slow"] or ending.error is not None
    assert_whole(graph)
    put(graph, ["after"], PAIR, operation=Operation.UPSERT)
    assert_whole(graph)
    assert len({entry.operation_id for entry in graph.recovery.list()}) == len(graph.recovery.list())


@pytest.mark.parametrize("point", [Failpoint.SIDECAR_WRITTEN, Failpoint.TABLE_COMMITTED, Failpoint.TABLES_COMMITTED])
def test_a_sleeper_on_its_own_forks(children: Children, graph: Graph, point: Failpoint) -> None:
    """The first write on a branch: its forks were removed, or taken over, while it slept."""
    graph.branches.create("dev")
    writer = slow_write(children, graph, point, 0.5, branch="dev")
    end(writer, signal.SIGSTOP)
    graph._store.timeouts.ttl = TTL
    put(graph, ["next"], PAIR, branch="dev")
    end(writer, signal.SIGCONT)
    ending = children.wait(writer)
    finished = point is Failpoint.TABLES_COMMITTED
    assert (ending.error is None) is finished, ending.text
    graph.refresh()
    for key in PAIR:
        assert ids(graph, key, "dev") == sorted([*SEED, "next", *(["slow"] if finished else [])])
    assert ids(graph) == sorted(SEED)
    assert_whole(graph)


def test_a_lease_deleted_under_a_writer(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer cannot know that it is alone any more, so it stops; the next one finishes what it began."""
    durable = graph._store.tables.make_durable

    def careless(*arguments: object) -> None:
        durable(*arguments)  # type: ignore[arg-type]
        graph._store.objects.delete(lease_path("main"))

    monkeypatch.setattr(type(graph._store.tables), "make_durable", lambda self, staged: careless(staged))
    with pytest.raises(RecoveryRequiredError):
        put(graph, ["unlucky"], PAIR)
    monkeypatch.undo()
    put(graph, ["next"], PAIR)
    assert ids(graph) == ids(graph, "node:B") == sorted([*SEED, "unlucky", "next"])
    assert_whole(graph)


def test_the_owner_is_this_process(place: Path, graph: Graph) -> None:
    here = Owner.here()
    assert here.pid == os.getpid()
    assert not here.is_dead()
    assert Owner(here.host, 2**22 + 1, "1").is_dead()
    assert not Owner("elsewhere", 2**22 + 1, "1").is_dead()
    free = orjson.loads(graph._store.objects.get(lease_path("main")).data)
    assert free["owner"] is None


def test_a_hidden_process_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may hide the processes of others: then only their silence tells."""
    monkeypatch.setattr(lease, "_start_time", lambda pid: None)
    assert not Owner(Owner.here().host, os.getppid(), "12345").is_dead()
    assert Owner(Owner.here().host, 2**22 + 1, "12345").is_dead()
