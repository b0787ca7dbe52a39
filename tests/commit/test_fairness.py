"""Writers do not starve: the lease goes in order of request, and only a changed read set makes a write retry."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from tests.commit.child import Children
from tests.commit.graphs import SEED, Operation, assert_whole, ids, put, table_write
from tests.patience import PATIENCE, until

import omnigraph
from omnigraph.commit import lease, table_writes
from omnigraph.commit.lease import LeaseRecord, Owner, Waiter, lease_path
from omnigraph.commit.manifest import Manifest
from omnigraph.commit.process_locks import FairLock
from omnigraph.commit.table_writes import TableWrite
from omnigraph.commit.write_request import WriteRequest
from omnigraph.errors import (
    ConstraintError,
    LeaseTimeoutError,
    PreconditionFailedError,
    ReadSetChangedError,
    WriteTimeoutError,
)
from omnigraph.graph import Graph, open
from omnigraph.storage.objects import ObjectStore, open_store
from omnigraph.storage.table_view import TableView

HERE = Owner.here()
ELSEWHERE = Owner("another machine", 1, "1")
DEAD = Owner(HERE.host, 2**22 + 1, "1")


@pytest.fixture
def store() -> ObjectStore:
    return open_store(f"memory://{uuid4().hex}")


def record(store: ObjectStore, branch: str = "main") -> LeaseRecord:
    return LeaseRecord.load(store.get(lease_path(branch)).data)


def running(work: Callable[[], object]) -> Thread:
    thread = Thread(target=work, daemon=True)
    thread.start()
    return thread


# The queue of waiters


def test_the_lease_goes_to_the_longest_waiting_writer(store: ObjectStore) -> None:
    """A writer that requests the lease again is queued behind the waiting writers."""
    order: list[tuple[str, int]] = []

    def take(name: str) -> None:
        with lease.acquire(store, "main", wait=PATIENCE) as held:
            order.append((name, held.fence))

    held = lease.acquire(store, "main")
    threads = []
    for number, name in enumerate(("first", "second", "third"), 1):
        threads.append(running(lambda name=name: take(name)))  # type: ignore[misc]
        until(lambda number=number: len(record(store).waiters) == number)  # type: ignore[misc]
    held.release()
    take("again")
    for thread in threads:
        thread.join(PATIENCE)
    assert order == [("first", 2), ("second", 3), ("third", 4), ("again", 5)]
    assert record(store) == LeaseRecord(5, None), "nobody is left in line"


def test_a_waiter_that_times_out_leaves_the_queue(store: ObjectStore) -> None:
    with lease.acquire(store, "main"):
        with pytest.raises(LeaseTimeoutError):
            lease.acquire(store, "main", wait=0.1)
        assert record(store).waiters == ()
        with pytest.raises(LeaseTimeoutError):
            lease.acquire(store, "main", wait=0)


def test_an_interrupted_waiter_releases_the_lease_it_was_given(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waiter is interrupted at the moment it gets the lease."""
    held = lease.acquire(store, "main")

    def interrupt(self: object, place: int, now: float) -> None:
        held.release()
        raise KeyboardInterrupt

    monkeypatch.setattr(lease._Acquisition, "_sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lease.acquire(store, "main", wait=PATIENCE)
    assert record(store).owner is None
    monkeypatch.undo()
    with lease.acquire(store, "main", wait=0) as next_:
        assert next_.fence == 3, "the number that was handed over is not used again"


def test_dead_waiters_are_skipped(store: ObjectStore) -> None:
    held = lease.acquire(store, "main")
    alive = Waiter("alive", ELSEWHERE)
    waiting = LeaseRecord(held.fence, HERE, 0, record(store).holder, (Waiter("dead", DEAD), alive))
    store.put(lease_path("main"), waiting.dump())
    held.release()
    assert record(store) == LeaseRecord(held.fence + 1, ELSEWHERE, 0, "alive", ())


def test_waiters_without_a_heartbeat_are_skipped(
    store: ObjectStore, beaten_clock: Callable[[ObjectStore, float], None]
) -> None:
    """A process on another machine that stopped waiting: its heartbeat has not changed for too long."""
    held = lease.acquire(store, "main", ttl=0.5)
    silent = LeaseRecord(held.fence, HERE, 0, record(store).holder, (Waiter("silent", ELSEWHERE, 7),))
    store.put(lease_path("main"), silent.dump())
    beaten_clock(store, 0.2)
    got: list[int] = []

    def take() -> None:
        with lease.acquire(store, "main", wait=PATIENCE, ttl=0.5) as taken:
            got.append(taken.fence)

    thread = running(take)
    until(lambda: [waiter.owner for waiter in record(store).waiters] == [HERE])
    held.release()
    thread.join(PATIENCE)
    assert got == [held.fence + 1]


def test_a_waiter_that_stops_its_heartbeat_after_it_got_the_lease_is_replaced(store: ObjectStore) -> None:
    store.put(lease_path("main"), LeaseRecord(5, ELSEWHERE, 3, "silent", (Waiter("also silent", ELSEWHERE),)).dump())
    began = time.monotonic()
    with lease.acquire(store, "main", wait=PATIENCE, ttl=0.3) as held:
        assert held.fence == 6
        assert time.monotonic() - began >= 0.3
        assert record(store).waiters == ()


def test_a_waiter_renews_its_heartbeat(store: ObjectStore, beaten_clock: Callable[[ObjectStore, float], None]) -> None:
    with lease.acquire(store, "main", ttl=0.3):
        beaten_clock(store, 0.1)
        thread = running(lambda: lease.acquire(store, "main", wait=PATIENCE, ttl=0.3).release())
        until(lambda: bool(record(store).waiters) and record(store).waiters[0].beat >= 3)
    thread.join(PATIENCE)


def test_all_of_many_waiters_get_the_lease(store: ObjectStore) -> None:
    """All waiters change the same object at once, and none loses its place."""
    turns: list[int] = []

    def work() -> None:
        for _ in range(10):
            with lease.acquire(store, "main", wait=PATIENCE, ttl=PATIENCE) as held:
                turns.append(held.fence)

    threads = [running(work) for _ in range(6)]
    for thread in threads:
        thread.join(PATIENCE)
    assert turns == sorted(set(turns)), "numbers only grow"
    assert len(turns) == 60


def test_an_uncontended_lease_takes_one_read_and_two_writes(store: ObjectStore) -> None:
    from tests.storage.faults import FaultyStore

    with lease.acquire(store, "main"):
        pass
    counted = FaultyStore(store)
    with lease.acquire(counted, "main"):
        pass
    assert (counted.count("get"), counted.count("replace"), counted.count("create")) == (1, 2, 0)


# The queue of threads in a process


def test_threads_of_a_process_write_in_order_of_request() -> None:
    gate, order = FairLock(), []
    first = gate.turn()
    assert first.take(0)

    def take(number: int) -> None:
        turn = gate.turn()
        assert turn.take(PATIENCE)
        order.append(number)
        turn.end()

    threads = []
    for number in range(5):
        threads.append(running(lambda number=number: take(number)))  # type: ignore[misc]
        until(lambda number=number: len(gate._waiting) == number + 1)  # type: ignore[misc]
    assert not gate.turn().take(0)
    assert not gate.turn().take(0.05), "those who give up are not handed the gate"
    first.end()
    for thread in threads:
        thread.join(PATIENCE)
    assert order == list(range(5))
    assert gate.turn().take(0)


def test_a_turn_that_nobody_ends_passes_the_lock_on() -> None:
    """As after an interrupt between the call that takes the lock and the block that ends the turn."""
    gate = FairLock()
    lost, waits = gate.turn(), gate.turn()
    assert lost.take(0)
    thread = running(lambda: waits.take(PATIENCE))
    until(lambda: len(gate._waiting) == 1)
    del lost
    thread.join(PATIENCE)
    assert gate._holder is waits._handed
    waits.end()
    waits.end()
    assert gate.turn().take(0)


def test_the_heartbeats_of_a_lease_that_nobody_has_end(store: ObjectStore) -> None:
    """Its writer was interrupted before it could release it. Another writer of the process takes the lease at once."""
    held = lease.acquire(store, "main", ttl=0.3)
    record = lease.LeaseRecord.load(store.get(lease.lease_path("main")).data)
    until(lambda: lease.LeaseRecord.load(store.get(lease.lease_path("main")).data).beat > record.beat)
    del held
    lease.acquire(store, "main", wait=PATIENCE).release()
    assert lease.LeaseRecord.load(store.get(lease.lease_path("main")).data).owner is None


@pytest.mark.slow
def test_many_threads_do_not_starve_another_process(children: Children, graph: Graph, tmp_path: Path) -> None:
    """The other process does not starve the threads, either."""
    stop = threading.Event()
    done = [0] * 6

    def work(number: int) -> None:
        while not stop.is_set():
            put(graph, [f"t{number}-{done[number]}"])
            done[number] += 1

    threads = [running(lambda number=number: work(number)) for number in range(6)]  # type: ignore[misc]
    job = {"uri": graph.uri, "log": str(tmp_path / "log"), "name": "w", "keys": ("node:B",), "commits": 10}
    began = sum(done)
    children.wait(children.start("commit_many", failpoint=None, **job)).ok()
    meanwhile = sum(done) - began
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert meanwhile >= 5, "the threads went on"
    assert len(ids(graph, "node:B")) == len(SEED) + 10
    assert_whole(graph)


# Read sets


@contextmanager
def overtaken(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> Iterator[None]:
    """Make another commit after a write has prepared and before it has the lease."""
    exclusive = type_of_store().exclusive
    done: list[bool] = []

    def late(self: Any, *arguments: Any, **named: Any) -> Any:
        if not done:
            done.append(True)
            other()
        return exclusive(self, *arguments, **named)

    monkeypatch.setattr(type_of_store(), "exclusive", late)
    yield
    assert done


def type_of_store() -> Any:
    from omnigraph.commit.store import Store

    return Store


def prepared_times(graph: Graph, prepare: Callable[[Manifest], list[TableWrite]], **said: Any) -> int:
    """Count how often a write is prepared."""
    calls: list[int] = []

    def counted(view: Manifest) -> list[TableWrite]:
        calls.append(1)
        return prepare(view)

    assert graph.write_tables(WriteRequest(**said), counted) is not None
    return len(calls)


OPERATIONS = [Operation.APPEND, Operation.INSERT, Operation.UPSERT, Operation.CHANGE, Operation.DELETE]


@pytest.mark.parametrize("branch", ["main", "dev"])
@pytest.mark.parametrize("operation", [*OPERATIONS, Operation.OVERWRITE])
def test_a_commit_to_other_tables_causes_no_retry(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, operation: Operation, branch: str
) -> None:
    if branch == "dev":
        graph.branches.create("dev")
    with overtaken(monkeypatch, lambda: put(graph, ["other"], ["node:B"], branch=branch)):
        writes = [table_write("node:A", operation, ["s1" if operation is Operation.DELETE else "mine"])]
        assert prepared_times(graph, lambda view: writes, branch=branch, replayable=False) == 1
    assert "other" in ids(graph, "node:B", branch)
    assert ("mine" in ids(graph, "node:A", branch)) is (operation is not Operation.DELETE)
    assert_whole(graph)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_two_first_writes_on_a_branch_to_other_rows_cause_no_retry(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, operation: Operation
) -> None:
    """Both writes fork the table. The second is staged again on the fork of the first, and not prepared again."""
    graph.branches.create("dev")
    with overtaken(monkeypatch, lambda: put(graph, ["other"], operation=Operation.UPSERT, branch="dev")):
        writes = [table_write("node:A", operation, ["s1" if operation is Operation.DELETE else "mine"])]
        assert prepared_times(graph, lambda view: writes, branch="dev", replayable=False) == 1
    assert "other" in ids(graph, "node:A", "dev")
    assert ("mine" in ids(graph, "node:A", "dev")) is (operation is not Operation.DELETE)
    assert_whole(graph)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_commit_to_other_rows_causes_no_retry(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, operation: Operation
) -> None:
    """Rows are staged once: the staged transaction is rebased onto the new version of its table."""
    put(graph, ["x"], operation=Operation.UPSERT)
    with overtaken(monkeypatch, lambda: put(graph, ["s3"], operation=Operation.UPSERT)):
        name = "s1" if operation is Operation.DELETE else "mine"
        assert prepared_times(graph, lambda view: [table_write("node:A", operation, [name], n=5)]) == 1
    found = {row["id"]: row["n"] for row in graph.snapshot().scan("node:A", columns=["id", "n"]).to_pylist()}
    assert ("s1" in found) is (operation is not Operation.DELETE)
    assert found.get("mine") == (None if operation is Operation.DELETE else 5)
    assert ("s2" in found) is (operation is not Operation.CHANGE)
    assert graph.snapshot().pin("node:A").row_count == len(found)
    assert_whole(graph)


def test_an_overwrite_of_a_table_that_changed_is_refused(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"A": pa.table({"k": ["mine", *SEED]})}
    version = graph.snapshot().pin("node:A").ref.version
    with overtaken(monkeypatch, lambda: put(graph, ["other"])), pytest.raises(ReadSetChangedError) as caught:
        graph.load(rows, mode="overwrite")
    assert (caught.value.table_key, caught.value.expected, caught.value.actual) == ("node:A", version, version + 1)
    assert "other" in ids(graph)


def test_an_overwrite_is_retried_if_a_table_it_reads_has_changed(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces edges, and reads the nodes at their ends."""
    rows = {"AB": pa.table({"id": ["e"], "from": ["s1"], "to": ["s2"]})}
    gone = 'query gone() { delete B where k = "s2" }'
    with overtaken(monkeypatch, lambda: graph.mutate(gone)), pytest.raises(ConstraintError, match="s2"):
        graph.load(rows, mode="overwrite")
    assert graph.verify().total == 0


def test_expected_head_is_checked_under_the_lease(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    head = graph.branch().head.id
    with (
        overtaken(monkeypatch, lambda: put(graph, ["other"], ["node:B"])),
        pytest.raises(PreconditionFailedError),
    ):
        put(graph, ["mine"], expect_head=head)
    assert "mine" not in ids(graph)


EDGE = 'query link() { insert AB { from: "s1", to: "s2" } }'
GONE = 'query gone() { delete B where k = "s2" }'


@pytest.mark.parametrize(("first", "second"), [(EDGE, GONE), (GONE, EDGE)], ids=["delete", "insert"])
def test_concurrent_writes_leave_no_orphan_edge(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    """An edge is inserted while its node is deleted: the later of the two sees the other."""
    with overtaken(monkeypatch, lambda: graph.mutate(first)):
        if second == EDGE:
            with pytest.raises(ConstraintError, match="s2"):
                graph.mutate(second)
        else:
            assert graph.mutate(second).affected_edges == 1, "the one that came meanwhile"
    assert graph.verify().total == 0


def test_concurrent_writes_never_duplicate_a_unique_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = "node P { name: String @key  mail: String? @unique }"
    add = "query add($n: String, $m: String) { insert P { name: $n, mail: $m } }"
    with omnigraph.init(tmp_path / "g", schema) as graph:
        graph.mutate(add, {"n": "a", "m": "a@x"})
        with overtaken(monkeypatch, lambda: graph.mutate(add, {"n": "b", "m": "b@x"})):
            assert graph.mutate(add, {"n": "c", "m": "c@x"}).commit is not None
        monkeypatch.undo()
        with (
            overtaken(monkeypatch, lambda: graph.mutate(add, {"n": "d", "m": "same"})),
            pytest.raises(ConstraintError, match="same"),
        ):
            graph.mutate(add, {"n": "e", "m": "same"})
        assert graph.verify().total == 0


def test_concurrent_writes_never_exceed_a_cardinality(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = "node P { name: String @key } edge Owns: P -> P @card(0..1)"
    add = 'query add() { insert Owns { from: "a", to: "b" } }'
    with omnigraph.init(tmp_path / "g", schema) as graph:
        graph.load({"P": pa.table({"name": ["a", "b"]})}, mode="append")
        with overtaken(monkeypatch, lambda: graph.mutate(add)), pytest.raises(ConstraintError, match="has 2 edges"):
            graph.mutate(add)
        assert graph.verify().total == 0


# Rows are written once


def test_a_retried_load_reuses_its_staged_rows(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes that its edges were checked against have changed: the edges are checked again, but not staged again."""
    appended: list[int] = []
    append = table_writes.Append.stage

    def counted(self: table_writes.Append, table: TableView) -> Any:
        appended.append(self.rows.num_rows)
        return append(self, table)

    change = 'query change() { update B set { n: 9 } where k = "s2" }'
    with overtaken(monkeypatch, lambda: graph.mutate(change)):
        monkeypatch.setattr(table_writes.Append, "stage", counted)
        graph.load({"AB": pa.table({"from": ["s1"] * 7, "to": ["s2"] * 7})}, mode="append")
    assert appended.count(7) == 1
    assert len(ids(graph, "edge:AB")) == len(SEED) + 7
    assert graph.verify().total == 0


# The deadline


def test_an_exceeded_write_timeout_is_reported_as_a_conflict(graph: Graph) -> None:
    with graph.session.store.exclusive("main"):
        began = time.monotonic()
        with pytest.raises(WriteTimeoutError) as caught:
            graph.mutate('query q() { insert A { k: "x" } }', timeout=0.3)
        assert 0.2 < time.monotonic() - began < PATIENCE
    assert omnigraph.errors.report_for(caught.value).http_status == 409
    assert ids(graph) == sorted(SEED)


# Idempotency keys


def test_a_new_branch_does_not_inherit_idempotency_keys(graph: Graph) -> None:
    first = put(graph, ["one"], idempotency_key="k")
    assert put(graph, ["one"], idempotency_key="k") == first
    graph.branches.create("dev")
    second = put(graph, ["two"], branch="dev", idempotency_key="k")
    assert second.id != first.id
    assert put(graph, ["two"], branch="dev", idempotency_key="k") == second
    assert put(graph, ["three"], idempotency_key="k") == first
    graph.branches.delete("dev")
    graph.branches.create("dev")
    assert put(graph, ["four"], branch="dev", idempotency_key="k").id not in (first.id, second.id)


# Starvation


def steadily(stop: threading.Event, graph: Graph, key: str) -> Iterator[Thread]:
    def work() -> None:
        number = 0
        while not stop.is_set():
            put(graph, [f"steady-{number}"], [key], operation=Operation.UPSERT)
            number += 1

    yield running(work)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["node:A", "node:C"], ids=["same table", "other table"])
def test_all_kinds_of_writes_succeed_beside_a_constant_inserter(place: Path, graph: Graph, key: str) -> None:
    """Transactions, updates, conditional writes and optimize of another handle all succeed at the first attempt."""
    stop = threading.Event()
    set_n = 'query set_n($n: I64) { update A set { n: $n } where k = "s1" }'
    with open(place) as other:
        (inserter,) = steadily(stop, other, key)
        try:
            for number in range(8):
                with graph.branch().transaction() as tx:
                    tx.mutate("query add($k: String) { insert A { k: $k } }", {"k": f"tx-{number}"})
                    tx.mutate("query add($k: String) { insert B { k: $k } }", {"k": f"tx-{number}"})
                assert tx.commit is not None
                seen = graph.branch().head.id
                assert graph.mutate(set_n, {"n": number}, unchanged_since=seen).affected_nodes == 1
                assert graph.mutate(set_n, {"n": number}).affected_nodes == 1
            graph.optimize()
            graph.ensure_indexes()
        finally:
            stop.set()
            inserter.join(PATIENCE)
    assert [name for name in ids(graph) if name.startswith("tx")] == sorted(f"tx-{number}" for number in range(8))
    assert len([name for name in ids(graph, key) if name.startswith("steady")]) > 8
    assert_whole(graph)
