"""One writer at a time publishes on a branch, also after a writer is killed or paused."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import orjson
import pytest
from tests.commit.child import Children, end
from tests.commit.graphs import SEED, Operation, assert_whole, ids, put
from tests.patience import PATIENCE, until
from tests.storage.faults import FaultyStore

from omnigraph.commit import lease, owner
from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.lease import LeaseRecord, Owner, lease_path
from omnigraph.commit.store import StagedManifest, Store
from omnigraph.errors import LeaseLostError, LeaseTimeoutError, RecoveryRequiredError
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


@dataclass(frozen=True, slots=True)
class Held:
    """A process that stays at a failpoint while its signal file exists."""

    pid: int
    sign: Path

    def fall_asleep(self) -> None:
        """Stop the whole process, including its heartbeat."""
        end(self.pid, signal.SIGSTOP)

    def wake_up(self) -> None:
        self.go_on()
        end(self.pid, signal.SIGCONT)

    def go_on(self) -> None:
        self.sign.unlink()


def held_write(children: Children, graph: Graph, point: Failpoint, *, ttl: float = TTL, branch: str = "main") -> Held:
    """Start a child that writes and is held at a failpoint. Returns when it is there."""
    writes = [(key, "append", ["slow"]) for key in PAIR]
    job = {"uri": graph.uri, "branch": branch, "ttl": ttl, "writes": writes}
    sign = Path(f"{graph.uri}.held")
    writer = Held(children.start("write", failpoint=f"{point}=hold:{sign}", **job), sign)
    until(sign.exists)
    return writer


# Acquiring


def test_a_lease_has_one_owner(store: ObjectStore) -> None:
    with lease.acquire(store, "main"):
        assert record(store).owner == Owner.here()
        with pytest.raises(LeaseTimeoutError) as caught:
            lease.acquire(store, "main", wait=0.05)
        assert caught.value.retryable
        with lease.acquire(store, "dev", wait=0):
            pass
    with lease.acquire(store, "main", wait=0):
        pass


def test_a_waiter_gets_the_lease_when_it_is_released(store: ObjectStore) -> None:
    looks = FaultyStore(store)
    events = []

    def give_back() -> None:
        until(lambda: looks.count("get") > 3)
        events.append("given back")
        held.release()

    held = lease.acquire(store, "main")
    giver = Thread(target=give_back)
    giver.start()
    with lease.acquire(looks, "main", wait=PATIENCE, ttl=PATIENCE) as taken:
        events.append("taken")
        assert taken.fence == held.fence + 1
    giver.join()
    assert events == ["given back", "taken"]


def test_fencing_numbers_increase(store: ObjectStore) -> None:
    numbers = []
    for _ in range(3):
        with lease.acquire(store, "main") as held:
            numbers.append(held.fence)
    assert numbers == [1, 2, 3]
    with lease.acquire(store, "main", at_least=lambda: 40) as held:
        assert held.fence == 41


def test_fencing_numbers_increase_after_the_lease_object_is_deleted(graph: Graph) -> None:
    fences = []
    for number in range(3):
        put(graph, [f"n{number}"])
        fences.append(graph.session.store.capture("main").fence)
        graph.session.store.objects.delete(lease_path("main"))
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"fence": "x"}', b'{"fence":1,"owner":{"pid":1},"beat":0}'])
def test_an_unreadable_lease_object_counts_as_free(graph: Graph, content: bytes) -> None:
    """Lease objects are not flushed, so a power failure can damage them."""
    put(graph, ["one"])
    before = graph.session.store.capture("main").fence
    graph.session.store.objects.put(lease_path("main"), content)
    put(graph, ["two"])
    assert graph.session.store.capture("main").fence > before
    assert_whole(graph)


def test_a_lease_of_another_machine_is_taken_over_only_after_it_expires(store: ObjectStore) -> None:
    """A process on another machine cannot be checked, so only a missing heartbeat means that it is dead."""
    elsewhere = LeaseRecord(5, Owner("another machine", 1, "1"))
    store.put(lease_path("main"), elsewhere.dump())
    with pytest.raises(LeaseTimeoutError):
        lease.acquire(store, "main", wait=0.1, ttl=PATIENCE)
    started = time.monotonic()
    with lease.acquire(store, "main", wait=PATIENCE, ttl=0.4) as held:
        assert held.fence == 6
    assert time.monotonic() - started >= 0.4


def test_a_reused_process_id_does_not_keep_a_lease_alive(store: ObjectStore) -> None:
    here = Owner.here()
    store.put(lease_path("main"), LeaseRecord(5, Owner(here.host, here.pid, "an earlier life")).dump())
    with lease.acquire(store, "main", wait=0) as held:
        assert held.fence == 6


# Renewing


def test_a_heartbeat_keeps_the_lease(store: ObjectStore, beaten_clock: Callable[[ObjectStore, float], None]) -> None:
    with lease.acquire(store, "main", ttl=0.1) as held:
        beaten_clock(store, 0.09)
        with pytest.raises(LeaseTimeoutError):
            lease.acquire(store, "main", wait=1, ttl=0.1)
        assert record(store).beat > 10
        held.check()


def test_a_heartbeat_with_a_lost_answer_keeps_the_lease(store: ObjectStore) -> None:
    """The object has changed because of this owner's own request."""
    faults = FaultyStore(store)
    with lease.acquire(faults, "main", ttl=0.3) as held:
        faults.fail_after("replace")
        until(lambda: faults.count("replace") > 2)
        held.check()
    assert record(store).owner is None, "it was given back"


def test_one_failed_heartbeat_does_not_lose_the_lease(store: ObjectStore) -> None:
    faults = FaultyStore(store)
    with lease.acquire(faults, "main", ttl=0.3) as held:
        faults.fail_before("replace")
        until(lambda: faults.count("replace") > 2)
        held.check()


def test_a_lease_is_lost_when_another_owner_has_it(store: ObjectStore) -> None:
    with lease.acquire(store, "main") as held:
        other = LeaseRecord(held.fence + 1, Owner("another machine", 1, "1"))
        store.put(lease_path("main"), other.dump())
        with pytest.raises(LeaseLostError):
            held.check()
    assert record(store) == other, "what is not ours is not given back"


@pytest.mark.parametrize("answer", [b"", None])
def test_a_lease_is_lost_when_its_object_is_deleted_or_unreadable(store: ObjectStore, answer: bytes | None) -> None:
    with lease.acquire(store, "main") as held:
        if answer is None:
            store.delete(lease_path("main"))
        else:
            store.put(lease_path("main"), answer)
        with pytest.raises(LeaseLostError):
            held.check()


# Between processes


def test_processes_publish_one_at_a_time(children: Children, graph: Graph) -> None:
    writer = held_write(children, graph, Failpoint.SIDECAR_WRITTEN, ttl=PATIENCE)
    graph.session.store.timeouts.ttl, graph.session.store.timeouts.wait = PATIENCE, 0.2
    with pytest.raises(LeaseTimeoutError, match=str(writer.pid)):
        put(graph, ["hasty"])
    graph.session.store.leases = looks = FaultyStore(graph.session.store.leases)
    graph.session.store.timeouts.wait = PATIENCE

    def let_go() -> None:
        until(lambda: looks.count("get") > 3)
        writer.go_on()

    releaser = Thread(target=let_go)
    releaser.start()
    put(graph, ["patient"])
    releaser.join()
    children.wait(writer.pid).ok()
    assert ids(graph) == sorted([*SEED, "slow", "patient"])
    assert_whole(graph)


def test_a_long_write_keeps_its_lease(
    children: Children, graph: Graph, beaten_clock: Callable[[ObjectStore, float], None]
) -> None:
    """It takes several times as long as the lease."""
    writer = held_write(children, graph, Failpoint.TABLE_COMMITTED, ttl=0.2)
    graph.session.store.timeouts.ttl, graph.session.store.timeouts.wait = 0.2, 1.2
    beaten_clock(graph.session.store.leases, 0.19)
    with pytest.raises(LeaseTimeoutError):
        put(graph, ["other"])
    writer.go_on()
    children.wait(writer.pid).ok()
    assert graph.recovery.list() == []
    assert_whole(graph)


def test_a_killed_owner_is_replaced_at_once(children: Children, graph: Graph) -> None:
    """On the same machine, writers do not wait for the lease to expire."""
    writes = [("node:A", "append", ["slow"])]
    job = {"uri": graph.uri, "writes": writes}
    assert children.run("write", failpoint="before_publish=kill", **job).signal == signal.SIGKILL
    graph.session.store.timeouts.ttl, graph.session.store.timeouts.wait = PATIENCE, 0
    put(graph, ["next"])
    assert ids(graph) == sorted([*SEED, "slow", "next"])


def test_an_owner_without_a_heartbeat_is_replaced_after_the_lease_expires(children: Children, graph: Graph) -> None:
    held_write(children, graph, Failpoint.LEASED).fall_asleep()
    graph.session.store.timeouts.ttl, graph.session.store.timeouts.wait = TTL, PATIENCE
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
def test_a_paused_writer_that_was_replaced_cannot_publish(
    children: Children, graph: Graph, point: Failpoint, meanwhile: str
) -> None:
    """An owner that continues after it was replaced does not publish its staged write, and retries it."""
    writer = held_write(children, graph, point)
    writer.fall_asleep()
    graph.session.store.timeouts.ttl, graph.session.store.timeouts.wait = TTL, PATIENCE
    if meanwhile == "recovers":
        with graph.session.store.exclusive("main"):
            pass
        graph.refresh()
    else:
        put(graph, ["next"], PAIR if meanwhile.endswith("same tables") else ["node:C"])
    settled = graph.recovery.list()
    moved = SLEEPY.index(point) >= SLEEPY.index(Failpoint.TABLES_COMMITTED)
    assert [entry.kind for entry in settled] == (
        [] if point is Failpoint.LEASED else [RecoveryKind.ROLLED_FORWARD if moved else RecoveryKind.ROLLED_BACK]
    )
    writer.wake_up()
    ending = children.wait(writer.pid)
    if point is Failpoint.LEASED and meanwhile == "recovers":
        # No other commit was published: it finds the lost lease at its next check and fails. The next writer recovers.
        assert ending.error in ("LeaseLostError", "RecoveryRequiredError")
    elif point is Failpoint.LEASED:
        assert ending.ok(), "nothing of it had happened, so it began again, with a lease of its own"
    elif moved:
        assert ending.ok(), "the other writer finished it, so it is done"
    else:
        assert ending.ok(), "the other writer undid it, so it began again, with a lease of its own"
    graph.refresh()
    visible = ["slow"] * ("slow" in ids(graph))
    if ending.error in ("LeaseLostError", "ReadSetChangedError"):
        assert visible == [], "a refusal means that nothing happened"
    assert ids(graph) == ids(graph, "node:B"), "all or nothing"
    assert ids(graph).count("slow") <= 1, "never twice"
    assert visible == ["slow"] or ending.error is not None
    assert_whole(graph)
    put(graph, ["after"], PAIR, operation=Operation.UPSERT)
    assert_whole(graph)
    assert len({entry.operation_id for entry in graph.recovery.list()}) == len(graph.recovery.list())


@pytest.mark.parametrize("point", [Failpoint.SIDECAR_WRITTEN, Failpoint.TABLE_COMMITTED, Failpoint.TABLES_COMMITTED])
def test_a_paused_first_write_on_a_branch_survives_the_loss_of_its_forks(
    children: Children, graph: Graph, point: Failpoint
) -> None:
    """The first write on a branch: its forks were removed or taken over during the pause."""
    graph.branches.create("dev")
    writer = held_write(children, graph, point, branch="dev")
    writer.fall_asleep()
    graph.session.store.timeouts.ttl, graph.session.store.timeouts.wait = TTL, PATIENCE
    put(graph, ["next"], PAIR, branch="dev")
    writer.wake_up()
    assert children.wait(writer.pid).ok(), "it was finished by the other, or undone and run again"
    graph.refresh()
    for key in PAIR:
        assert ids(graph, key, "dev") == sorted([*SEED, "next", "slow"])
    assert ids(graph) == sorted(SEED)
    assert_whole(graph)


def test_a_writer_stops_when_its_lease_object_is_deleted(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer no longer has exclusive access, so it stops. The next writer completes its write."""
    stage = Store.stage_publish

    def careless(self: Store, *arguments: Any) -> StagedManifest:
        staged = stage(self, *arguments)
        self.objects.delete(lease_path("main"))
        return staged

    monkeypatch.setattr(Store, "stage_publish", careless)
    with pytest.raises(RecoveryRequiredError):
        put(graph, ["unlucky"], PAIR)
    monkeypatch.undo()
    put(graph, ["next"], PAIR)
    assert ids(graph) == ids(graph, "node:B") == sorted([*SEED, "unlucky", "next"])
    assert_whole(graph)


def test_the_owner_record_identifies_a_process(place: Path, graph: Graph) -> None:
    here = Owner.here()
    assert here.pid == os.getpid()
    assert not here.is_dead()
    assert Owner(here.host, 2**22 + 1, "1").is_dead()
    assert not Owner("elsewhere", 2**22 + 1, "1").is_dead()
    free = orjson.loads(graph.session.store.objects.get(lease_path("main")).data)
    assert free["owner"] is None


def test_a_process_that_cannot_be_seen_does_not_count_as_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may hide the processes of other users. Then only a missing heartbeat means that they are dead."""
    Owner.here()  # which is remembered
    monkeypatch.setattr(owner, "_start_time", lambda pid: None)
    assert not Owner(Owner.here().host, os.getppid(), "12345").is_dead()
    assert Owner(Owner.here().host, 2**22 + 1, "12345").is_dead()
