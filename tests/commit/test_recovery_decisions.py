"""The states that recovery finds, its decisions, and its audit records."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest
from tests.commit import raw
from tests.commit.child import Children
from tests.commit.graphs import NODES, SEED, Operation, assert_whole, contents, drift, ids, put, sidecars, table_write
from tests.patience import until
from tests.storage.faults import FaultyStore

from omnigraph.commit import attempts, audit
from omnigraph.commit import store as store_module
from omnigraph.commit.audit import RecoveryKind, RecoveryRecord
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.recovery import RECOVERY_ACTOR
from omnigraph.commit.refs import branch_ref_path
from omnigraph.commit.sidecar import Sidecar, pending
from omnigraph.commit.write_request import WriteRequest
from omnigraph.errors import (
    BranchNotFoundError,
    CorruptionError,
    DriftError,
    StorageError,
    StorageErrorKind,
)
from omnigraph.graph import Graph, open
from omnigraph.storage.objects import ObjectStore, open_store

PAIR = ("node:A", "node:B")


def crash(
    graph: Graph, point: Failpoint, keys: Sequence[str] = PAIR, branch: str = "main", reached: int = 1
) -> Sidecar:
    """Stop a write at a failpoint as if its process had crashed. Returns the sidecar that it leaves."""
    with armed(point, "crash"), pytest.raises(SimulatedCrashError):
        put(graph, ["new"], keys, branch=branch, actor="act-kim")
    return pending(graph.session.store.objects)[-1]


def only(graph: Graph) -> RecoveryRecord:
    """The one row of the audit."""
    (record,) = graph.recovery.list()
    return record


def states(record: RecoveryRecord) -> dict[str, str]:
    return {table.key: table.state for table in record.tables}


# States and decisions


def test_a_write_that_moved_no_table_is_rolled_back(graph: Graph, place: Path) -> None:
    """A request of the crashed writer may still arrive, so recovery uses up the version numbers that it would take."""
    before = graph.snapshot()
    sidecar = crash(graph, Failpoint.SIDECAR_WRITTEN)
    with open(place) as reopened:
        assert ids(reopened) == sorted(SEED)
        after = reopened.snapshot()
        assert (after.commit.parent, after.commit.actor) == (before.commit.id, RECOVERY_ACTOR)
        for key in PAIR:
            assert after.pin(key).ref.version == before.pin(key).ref.version + 1
        record = only(reopened)
        assert states(record) == dict.fromkeys(PAIR, "NoMovement")
        assert record.kind is RecoveryKind.ROLLED_BACK
        assert (record.operation_id, record.actor) == (sidecar.operation_id, "act-kim")
        assert record.commit_id == after.commit.id
        assert (record.writer, record.branch) == ("Load", "main")
        assert_whole(reopened)


@pytest.mark.parametrize("point", [Failpoint.TABLES_COMMITTED, Failpoint.BEFORE_PUBLISH, Failpoint.PUBLISHED])
@pytest.mark.parametrize("branch", ["main", "dev"])
def test_a_write_that_moved_all_tables_is_rolled_forward(
    graph: Graph, place: Path, branch: str, point: Failpoint
) -> None:
    """Roll-forward keeps the commit's id, actor, time and parent."""
    if branch == "dev":
        graph.branches.create("dev")
    sidecar = crash(graph, point, branch=branch)
    with open(place) as reopened:
        assert reopened.snapshot(branch=branch).commit == sidecar.commit
        assert sidecar.commit.actor == "act-kim"
        assert ids(reopened, branch=branch) == sorted([*SEED, "new"])
        record = only(reopened)
        assert (record.kind, record.commit_id) == (RecoveryKind.ROLLED_FORWARD, sidecar.commit.id)
        if point is not Failpoint.PUBLISHED:
            assert states(record) == dict.fromkeys(PAIR, "RolledPastExpected")
        assert_whole(reopened)


def test_a_write_that_moved_some_tables_is_rolled_back(graph: Graph, place: Path) -> None:
    sidecar = crash(graph, Failpoint.TABLE_COMMITTED)
    with open(place) as reopened:
        assert contents(reopened) == {key: sorted(SEED) for key in contents(reopened)}
        record = only(reopened)
        assert states(record) == {"node:A": "RolledPastExpected", "node:B": "NoMovement"}
        assert record.kind is RecoveryKind.ROLLED_BACK
        undo = reopened.snapshot().commit
        assert (undo.actor, undo.operation_id) == (RECOVERY_ACTOR, sidecar.operation_id)
        assert undo.id == record.commit_id != sidecar.commit.id
        assert_whole(reopened)
        assert [c.id for c in reopened.commits.list(actor=RECOVERY_ACTOR).commits] == [undo.id]


@pytest.mark.parametrize(("commits", "state"), [(1, "UnexpectedAtP1"), (2, "UnexpectedMultistep")])
def test_a_write_whose_table_was_moved_by_another_writer_is_rolled_back(
    graph: Graph, place: Path, commits: int, state: str
) -> None:
    crash(graph, Failpoint.SIDECAR_WRITTEN, keys=["node:A"])
    for number in range(commits):
        raw.append(graph, "node:A", [f"foreign-{number}"])
    with open(place) as reopened:
        assert ids(reopened) == sorted(SEED)
        record = only(reopened)
        assert states(record) == {"node:A": state}
        assert record.kind is RecoveryKind.ROLLED_BACK
        (table,) = record.tables
        assert table.to_version == (table.from_version or 0) + 1
        assert_whole(reopened)


def test_a_write_with_a_foreign_version_on_top_is_rolled_back(graph: Graph, place: Path) -> None:
    """A foreign commit lies on top of the write's own commit."""
    crash(graph, Failpoint.TABLES_COMMITTED, keys=["node:A"])
    raw.append(graph, "node:A", ["foreign"])
    with open(place) as reopened:
        assert states(only(reopened)) == {"node:A": "UnexpectedMultistep"}
        assert ids(reopened) == sorted(SEED)
        assert_whole(reopened)


def test_recovery_refuses_a_table_that_lost_its_manifest_version(graph: Graph, place: Path) -> None:
    sidecar = crash(graph, Failpoint.SIDECAR_WRITTEN)
    raw.lose_newest_version(graph, "node:A")
    with pytest.raises(CorruptionError, match="older than the version in the manifest") as caught:
        open(place)
    assert sidecar.path in str(caught.value.hint)
    with open(place, read_only=True) as reader:
        assert sidecars(reader) == [sidecar.path]
        assert ids(reader, "node:B") == sorted(SEED)
        assert reader.recovery.list() == []


def test_recovery_refuses_a_missing_table(graph: Graph, place: Path) -> None:
    sidecar = crash(graph, Failpoint.SIDECAR_WRITTEN)
    shutil.rmtree(raw.directory(graph, graph.snapshot().pin("node:A")))
    with pytest.raises(CorruptionError, match="node:A is missing"):
        open(place)
    with open(place, read_only=True) as reader:
        assert sidecars(reader) == [sidecar.path]


def test_a_table_that_lost_its_manifest_version_is_corruption_and_not_drift(graph: Graph) -> None:
    raw.lose_newest_version(graph, "node:A")
    path = graph.snapshot().pin("node:A").ref.path
    with pytest.raises(CorruptionError, match=f"at {path} lacks version") as caught:
        put(graph, ["new"])
    assert "backup" in str(caught.value.hint)
    assert sidecars(graph) == []
    with pytest.raises(CorruptionError, match=f"at {path} lacks version"):
        graph.cleanup(keep=1)


def test_repeated_roll_backs_leave_tables_at_their_manifest_versions(graph: Graph, place: Path) -> None:
    """After each of several failed writes, the table is at its manifest version."""
    for _ in range(3):
        crash(graph, Failpoint.TABLE_COMMITTED)
        with open(place) as reopened:
            assert_whole(reopened)
    put(graph, ["at last"], operation=Operation.OVERWRITE, replayable=False)
    assert ids(graph) == ["at last"]


def test_several_sidecars_are_recovered_independently(graph: Graph, place: Path) -> None:
    """Each branch has its own sidecar, and recovery decides for each one."""
    graph.branches.create("dev")
    forward = crash(graph, Failpoint.TABLES_COMMITTED)
    back = crash(graph, Failpoint.TABLE_COMMITTED, branch="dev")
    assert forward.branch == "main"
    with open(place) as reopened:
        assert (ids(reopened), ids(reopened, branch="dev")) == (sorted([*SEED, "new"]), sorted(SEED))
        assert {r.operation_id: r.kind for r in reopened.recovery.list()} == {
            forward.operation_id: RecoveryKind.ROLLED_FORWARD,
            back.operation_id: RecoveryKind.ROLLED_BACK,
        }
        assert_whole(reopened)


def test_a_write_to_one_branch_does_not_recover_another_branch(graph: Graph) -> None:
    graph.branches.create("dev")
    sidecar = crash(graph, Failpoint.TABLES_COMMITTED, branch="dev")
    put(graph, ["other"])
    assert sidecars(graph) == [sidecar.path]
    put(graph, ["other"], branch="dev")
    assert ids(graph, branch="dev") == sorted([*SEED, "new", "other"])
    assert_whole(graph)


# Deleted branches


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "deleted and made again"])
@pytest.mark.parametrize("point", [Failpoint.SIDECAR_WRITTEN, Failpoint.TABLE_COMMITTED, Failpoint.TABLES_COMMITTED])
def test_the_sidecar_of_a_deleted_branch_is_discarded(graph: Graph, place: Path, point: Failpoint, again: bool) -> None:
    graph.branches.create("dev")
    crash(graph, point, branch="dev")
    graph.session.store.objects.delete(branch_ref_path("dev"))
    if again:
        graph.branches.create("dev")
        put(graph, ["mine"], branch="dev")
    with open(place) as reopened:
        record = only(reopened)
        assert (record.kind, record.commit_id) == (RecoveryKind.ORPHANED_BRANCH_DISCARDED, None)
        assert states(record) == dict.fromkeys(PAIR, "BranchGone")
        assert_whole(reopened)
        if again:
            assert ids(reopened, branch="dev") == sorted([*SEED, "mine"])
        else:
            with pytest.raises(BranchNotFoundError):
                ids(reopened, branch="dev")
        left = [
            fork for key in PAIR for fork in reopened.session.store.tables.forks(reopened.snapshot().pin(key).ref.path)
        ]
        assert len(left) == (1 if again else 0), "the fork of the interrupted write is removed"


def test_a_discarded_sidecar_is_audited_once(graph: Graph, place: Path) -> None:
    """The first attempt cannot remove the sidecar. The next attempt only removes it."""
    graph.branches.create("dev")
    crash(graph, Failpoint.TABLES_COMMITTED, branch="dev")
    graph.session.store.objects.delete(branch_ref_path("dev"))
    faults = FaultyStore(graph.session.store.objects)
    graph.session.store.objects = faults
    faults.fail_before("delete")
    with pytest.raises(StorageError):
        graph.refresh()
    assert len(sidecars(graph)) == 1
    graph.refresh()
    assert sidecars(graph) == []
    assert only(graph).kind is RecoveryKind.ORPHANED_BRANCH_DISCARDED


def test_deleting_a_branch_recovers_its_interrupted_writes(graph: Graph) -> None:
    graph.branches.create("dev")
    crash(graph, Failpoint.TABLES_COMMITTED, branch="dev")
    graph.branches.delete("dev")
    assert only(graph).kind is RecoveryKind.ROLLED_FORWARD
    assert_whole(graph)


# Sidecars that cannot be read or listed


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"sidecar_version": 99}', b'{"sidecar_version": 1}', b"\x00\xff"], ids=repr
)
def test_an_unreadable_sidecar_is_an_error(graph: Graph, place: Path, content: bytes) -> None:
    path = "__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json"
    graph.session.store.objects.put(path, content)
    for attempt in (lambda: open(place), lambda: put(graph, ["new"]), graph.refresh):
        with pytest.raises(CorruptionError, match=path):
            attempt()
    assert graph.session.store.objects.get(path).data == content, "it is kept for a person"
    with open(place, read_only=True) as reader:
        assert ids(reader) == sorted(SEED)
        reader.refresh()
    graph.session.store.objects.delete(path)
    put(graph, ["new"])
    assert_whole(graph)


def test_a_write_fails_if_sidecars_cannot_be_listed(graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a list of sidecars, pending writes are unknown."""
    crash(graph, Failpoint.TABLES_COMMITTED)
    stores: list[FaultyStore] = []

    def faulty(*arguments: object, **more: object) -> ObjectStore:
        made = FaultyStore(open_store(*arguments, **more))  # type: ignore[arg-type]
        made.fail_before("list", path="__recovery")
        stores.append(made)
        return made

    monkeypatch.setattr(store_module, "open_store", faulty)
    with pytest.raises(StorageError, match="injected"):
        open(place)
    monkeypatch.undo()
    graph.session.store.objects = FaultyStore(graph.session.store.objects)
    for attempt in (lambda: put(graph, ["next"]), graph.refresh):
        graph.session.store.objects.fail_before("list", path="__recovery")
        with pytest.raises(StorageError, match="injected"):
            attempt()
    with open(place) as reopened:
        assert ids(reopened) == sorted([*SEED, "new"])
        assert_whole(reopened)


# Live writers


def test_recovery_skips_the_sidecar_of_a_live_writer(children: Children, graph: Graph, place: Path) -> None:
    """Opening and refreshing skip a running writer, and its write succeeds."""
    writes = [(key, "append", ["slow"]) for key in PAIR]
    held = place.with_name("held")
    writer = children.start("write", failpoint=f"table_committed=hold:{held}", uri=str(place), writes=writes)
    until(held.exists)
    with open(place) as other:
        other.refresh()
        assert len(sidecars(other)) == 1
        assert other.recovery.list() == []
        assert ids(other) == sorted(SEED)
    held.unlink()
    commit = children.wait(writer).ok()
    assert graph.snapshot().commit.id == commit
    assert graph.recovery.list() == []
    assert_whole(graph)


# Recovery through an open handle


@pytest.mark.parametrize("point", [Failpoint.SIDECAR_WRITTEN, Failpoint.TABLE_COMMITTED, Failpoint.TABLES_COMMITTED])
def test_refresh_runs_recovery(graph: Graph, point: Failpoint) -> None:
    crash(graph, point)
    graph.refresh()
    assert ids(graph) == sorted([*SEED, "new"] if point is Failpoint.TABLES_COMMITTED else SEED)
    assert_whole(graph)


def test_a_write_sees_the_rows_that_it_recovered(graph: Graph) -> None:
    """The next write is checked against the recovered state, even if that write is not replayable."""
    crash(graph, Failpoint.TABLES_COMMITTED)
    put(graph, ["new"], operation=Operation.DELETE, replayable=False)
    assert ids(graph) == sorted(SEED)
    assert ids(graph, "node:B") == sorted([*SEED, "new"])
    assert_whole(graph)


def test_a_retry_with_the_same_idempotency_key_returns_the_recovered_write(graph: Graph) -> None:
    with armed(Failpoint.BEFORE_PUBLISH, "crash"), pytest.raises(SimulatedCrashError):
        put(graph, ["new"], idempotency_key="once")
    again = put(graph, ["new"], idempotency_key="once")
    assert ids(graph) == sorted([*SEED, "new"])
    assert again == graph.snapshot().commit


@pytest.mark.parametrize("point", [Failpoint.TABLES_COMMITTED, Failpoint.TABLE_COMMITTED])
def test_a_repeated_recovery_is_audited_once(graph: Graph, point: Failpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery that fails after its publish is repeated, without a second publish or audit row."""
    crash(graph, point)
    whole, calls = audit.append, 0

    def failing(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise StorageError("no room", kind=StorageErrorKind.PERMANENT, uri="here")
        whole(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(audit, "append", failing)
    with pytest.raises(StorageError, match="no room"):
        graph.refresh()
    version = graph.snapshot().manifest_version
    assert len(sidecars(graph)) == 1
    graph.refresh()
    assert graph.snapshot().manifest_version == version
    assert only(graph).commit_id == graph.snapshot().commit.id
    assert_whole(graph)


# Failures around the sidecar itself


def test_a_sidecar_that_cannot_be_written_stops_the_write(graph: Graph) -> None:
    before = graph.snapshot()
    graph.session.store.objects = faults = FaultyStore(graph.session.store.objects)
    faults.fail_before("create")
    with pytest.raises(StorageError, match="injected"):
        put(graph, ["new"], NODES)
    assert drift(graph.session.store.capture("main"), graph) == {}
    assert graph.snapshot().commit == before.commit
    put(graph, ["new"], NODES)
    assert graph.recovery.list() == []
    assert_whole(graph)


def test_a_sidecar_that_cannot_be_removed_does_not_fail_the_write(graph: Graph) -> None:
    graph.session.store.leases = faults = FaultyStore(graph.session.store.leases)
    faults.fail_before("delete")
    commit = put(graph, ["new"])
    assert len(sidecars(graph)) == 1
    put(graph, ["next"])
    assert ids(graph) == sorted([*SEED, "new", "next"])
    assert (only(graph).kind, only(graph).commit_id) == (RecoveryKind.ROLLED_FORWARD, commit.id)
    assert_whole(graph)


# Drift without a sidecar


@pytest.mark.parametrize("branch", ["main", "dev"])
def test_a_drift_error_names_the_repair_command(graph: Graph, place: Path, branch: str) -> None:
    if branch == "dev":
        graph.branches.create("dev")
        put(graph, ["own"], branch="dev")
    before = ids(graph, branch=branch)
    version = raw.append(graph, "node:A", ["foreign"], branch)
    pinned = graph.snapshot(branch=branch).pin("node:A").ref.version
    for handle in (graph, open(place)):
        with pytest.raises(DriftError) as caught:
            put(handle, ["new"], branch=branch)
        assert (caught.value.table_key, caught.value.expected, caught.value.actual) == ("node:A", pinned, version)
        assert "omnigraph repair" in str(caught.value.hint)
        assert ids(handle, branch=branch) == before, "readers never see it"
        put(handle, [f"other-{id(handle)}"], ["node:B"], branch=branch)
    assert sidecars(graph) == []


def test_a_sidecar_of_another_branch_does_not_explain_drift(graph: Graph) -> None:
    graph.branches.create("dev")
    crash(graph, Failpoint.SIDECAR_WRITTEN, keys=["node:A"], branch="dev")
    raw.append(graph, "node:A", ["foreign"])
    with pytest.raises(DriftError) as caught:
        put(graph, ["new"])
    assert "omnigraph repair" in str(caught.value.hint)


@pytest.mark.parametrize("listable", [True, False])
def test_drift_with_a_late_sidecar_suggests_to_open_the_graph_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, listable: bool
) -> None:
    """A paused writer that was replaced can write its sidecar after the next writer has listed sidecars."""
    left = crash(graph, Failpoint.TABLE_COMMITTED)

    def look(*arguments: object) -> list[object]:
        if not listable:
            monkeypatch.setattr(attempts, "pending", refuse)
        return []

    def refuse(*arguments: object) -> list[Sidecar]:
        raise StorageError("no", kind=StorageErrorKind.TRANSIENT, uri="")

    monkeypatch.setattr(attempts, "recover_branch", look)
    with pytest.raises(DriftError) as caught:
        put(graph, ["new"], [table.key for table in left.tables])
    hint = str(caught.value.hint)
    assert "open the graph again" in hint
    assert ("omnigraph repair" in hint) is not listable


def test_a_delete_without_matches_changes_no_table(graph: Graph) -> None:
    """Also if the same write changes another table."""
    before = graph.snapshot()
    nothing = table_write("edge:AB", Operation.DELETE, ["nobody"])
    assert graph.write_tables(WriteRequest(), lambda view: [nothing]) is None
    graph.write_tables(WriteRequest(), lambda view: [nothing, table_write("node:A", Operation.DELETE, ["s1"])])
    assert graph.snapshot().pin("edge:AB") == before.pin("edge:AB")
    assert_whole(graph)


def test_a_sidecar_is_read_as_it_was_written(graph: Graph) -> None:
    sidecar = crash(graph, Failpoint.SIDECAR_WRITTEN)
    data = graph.session.store.objects.get(sidecar.path).data
    assert orjson.loads(data)["sidecar_version"] == 1
    assert Sidecar.load(sidecar.path, data) == sidecar
    assert sidecar.dump() == data
