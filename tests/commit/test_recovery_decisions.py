"""What recovery finds, what it decides, and what it writes down about it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest
from tests.commit import raw
from tests.commit.child import Children
from tests.commit.graphs import NODES, SEED, assert_whole, contents, drift, ids, put, sidecars, table_write
from tests.patience import until
from tests.storage.faults import FaultyStore

from omnigraph.commit import attempts, audit
from omnigraph.commit import store as store_module
from omnigraph.commit.audit import RecoveryKind, RecoveryRecord
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.recovery import RECOVERY_ACTOR
from omnigraph.commit.refs import branch_ref_path
from omnigraph.commit.sidecar import Sidecar, pending
from omnigraph.commit.writer import Operation, WriteRequest
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
    """A write that stops at a place as if its process had ended there. Returns the sidecar that it leaves."""
    with armed(point, "crash"), pytest.raises(SimulatedCrashError):
        put(graph, ["new"], keys, branch=branch, actor="act-kim")
    return pending(graph._store.objects)[-1]


def only(graph: Graph) -> RecoveryRecord:
    """The one row of the audit."""
    (record,) = graph.recovery.list()
    return record


def states(record: RecoveryRecord) -> dict[str, str]:
    return {table.key: table.state for table in record.tables}


# The states, and the decision


def test_no_movement_is_undone_too(graph: Graph, place: Path) -> None:
    """A request of the dead writer may still be on its way: the tables and the manifest take the versions it would."""
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
def test_all_moved_is_finished_as_intended(graph: Graph, place: Path, branch: str, point: Failpoint) -> None:
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


def test_some_moved_is_undone(graph: Graph, place: Path) -> None:
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
def test_moved_by_somebody_else_is_undone(graph: Graph, place: Path, commits: int, state: str) -> None:
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


def test_moved_further_than_intended_is_undone(graph: Graph, place: Path) -> None:
    """The write's own commit, and a foreign one on top of it."""
    crash(graph, Failpoint.TABLES_COMMITTED, keys=["node:A"])
    raw.append(graph, "node:A", ["foreign"])
    with open(place) as reopened:
        assert states(only(reopened)) == {"node:A": "UnexpectedMultistep"}
        assert ids(reopened) == sorted(SEED)
        assert_whole(reopened)


def test_a_table_behind_the_graph_stops_everything(graph: Graph, place: Path) -> None:
    sidecar = crash(graph, Failpoint.SIDECAR_WRITTEN)
    raw.lose_newest_version(graph, "node:A")
    with pytest.raises(CorruptionError, match="before the version that the graph points at") as caught:
        open(place)
    assert sidecar.path in str(caught.value.hint)
    with open(place, read_only=True) as reader:
        assert sidecars(reader) == [sidecar.path]
        assert ids(reader, "node:B") == sorted(SEED)
        assert reader.recovery.list() == []


def test_a_table_that_is_gone_stops_everything(graph: Graph, place: Path) -> None:
    sidecar = crash(graph, Failpoint.SIDECAR_WRITTEN)
    shutil.rmtree(raw.directory(graph, graph.snapshot().pin("node:A")))
    with pytest.raises(CorruptionError, match="node:A is gone"):
        open(place)
    with open(place, read_only=True) as reader:
        assert sidecars(reader) == [sidecar.path]


def test_a_table_behind_the_graph_is_no_drift(graph: Graph) -> None:
    raw.lose_newest_version(graph, "node:A")
    path = graph.snapshot().pin("node:A").ref.path
    with pytest.raises(CorruptionError, match=f"at {path} has lost version") as caught:
        put(graph, ["new"])
    assert "backup" in str(caught.value.hint)
    assert sidecars(graph) == []
    with pytest.raises(CorruptionError, match=f"at {path} has lost version"):
        graph.cleanup(keep=1)


def test_undoing_does_not_grow_with_retries(graph: Graph, place: Path) -> None:
    """A write that fails the same way again and again leaves the table where the graph points each time."""
    for _ in range(3):
        crash(graph, Failpoint.TABLE_COMMITTED)
        with open(place) as reopened:
            assert_whole(reopened)
    put(graph, ["at last"], operation=Operation.OVERWRITE, replayable=False)
    assert ids(graph) == ["at last"]


def test_several_sidecars(graph: Graph, place: Path) -> None:
    """Each branch has its own, and each is settled by itself."""
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


def test_a_write_to_one_branch_leaves_the_sidecar_of_another(graph: Graph) -> None:
    graph.branches.create("dev")
    sidecar = crash(graph, Failpoint.TABLES_COMMITTED, branch="dev")
    put(graph, ["other"])
    assert sidecars(graph) == [sidecar.path]
    put(graph, ["other"], branch="dev")
    assert ids(graph, branch="dev") == sorted([*SEED, "new", "other"])
    assert_whole(graph)


# Branches that are gone


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "deleted and made again"])
@pytest.mark.parametrize("point", [Failpoint.SIDECAR_WRITTEN, Failpoint.TABLE_COMMITTED, Failpoint.TABLES_COMMITTED])
def test_sidecar_of_a_branch_that_is_gone(graph: Graph, place: Path, point: Failpoint, again: bool) -> None:
    graph.branches.create("dev")
    crash(graph, point, branch="dev")
    graph._store.objects.delete(branch_ref_path("dev"))
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
        left = [fork for key in PAIR for fork in reopened._store.tables.forks(reopened.snapshot().pin(key).ref.path)]
        assert len(left) == (1 if again else 0), "the fork of the interrupted write is removed"


def test_discarding_is_written_down_once(graph: Graph, place: Path) -> None:
    """The sidecar could not be removed at first: the next attempt only does that."""
    graph.branches.create("dev")
    crash(graph, Failpoint.TABLES_COMMITTED, branch="dev")
    graph._store.objects.delete(branch_ref_path("dev"))
    faults = FaultyStore(graph._store.objects)
    graph._store.objects = faults
    faults.fail_before("delete")
    with pytest.raises(StorageError):
        graph.refresh()
    assert len(sidecars(graph)) == 1
    graph.refresh()
    assert sidecars(graph) == []
    assert only(graph).kind is RecoveryKind.ORPHANED_BRANCH_DISCARDED


def test_deleting_a_branch_settles_its_writes(graph: Graph) -> None:
    graph.branches.create("dev")
    crash(graph, Failpoint.TABLES_COMMITTED, branch="dev")
    graph.branches.delete("dev")
    assert only(graph).kind is RecoveryKind.ROLLED_FORWARD
    assert_whole(graph)


# Sidecars that cannot be read, or not be listed


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"sidecar_version": 99}', b'{"sidecar_version": 1}', b"\x00\xff"], ids=repr
)
def test_unreadable_sidecar_is_refused_loudly(graph: Graph, place: Path, content: bytes) -> None:
    path = "__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json"
    graph._store.objects.put(path, content)
    for attempt in (lambda: open(place), lambda: put(graph, ["new"]), graph.refresh):
        with pytest.raises(CorruptionError, match=path):
            attempt()
    assert graph._store.objects.get(path).data == content, "it is kept for a person"
    with open(place, read_only=True) as reader:
        assert ids(reader) == sorted(SEED)
        reader.refresh()
    graph._store.objects.delete(path)
    put(graph, ["new"])
    assert_whole(graph)


def test_recovery_is_never_skipped_silently(graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cannot list the sidecars does not know what is pending."""
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
    graph._store.objects = FaultyStore(graph._store.objects)
    for attempt in (lambda: put(graph, ["next"]), graph.refresh):
        graph._store.objects.fail_before("list", path="__recovery")
        with pytest.raises(StorageError, match="injected"):
            attempt()
    with open(place) as reopened:
        assert ids(reopened) == sorted([*SEED, "new"])
        assert_whole(reopened)


# Live writers


def test_a_live_writer_keeps_its_sidecar(children: Children, graph: Graph, place: Path) -> None:
    """Opening and refreshing go around a writer that is at work, and its write ends as it should."""
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


# Healing without opening again


@pytest.mark.parametrize("point", [Failpoint.SIDECAR_WRITTEN, Failpoint.TABLE_COMMITTED, Failpoint.TABLES_COMMITTED])
def test_refresh_heals(graph: Graph, point: Failpoint) -> None:
    crash(graph, point)
    graph.refresh()
    assert ids(graph) == sorted([*SEED, "new"] if point is Failpoint.TABLES_COMMITTED else SEED)
    assert_whole(graph)


def test_a_write_sees_what_it_healed(graph: Graph) -> None:
    """The interrupted write is part of what the next one is checked against, even if that one may not be replayed."""
    crash(graph, Failpoint.TABLES_COMMITTED)
    put(graph, ["new"], operation=Operation.DELETE, replayable=False)
    assert ids(graph) == sorted(SEED)
    assert ids(graph, "node:B") == sorted([*SEED, "new"])
    assert_whole(graph)


def test_a_retry_with_its_key_finds_the_interrupted_write(graph: Graph) -> None:
    with armed(Failpoint.BEFORE_PUBLISH, "crash"), pytest.raises(SimulatedCrashError):
        put(graph, ["new"], idempotency_key="once")
    again = put(graph, ["new"], idempotency_key="once")
    assert ids(graph) == sorted([*SEED, "new"])
    assert again == graph.snapshot().commit


@pytest.mark.parametrize("point", [Failpoint.TABLES_COMMITTED, Failpoint.TABLE_COMMITTED])
def test_audit_is_exactly_once(graph: Graph, point: Failpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery that fails after it published starts again, and neither publishes nor writes a second time."""
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
    graph._store.objects = faults = FaultyStore(graph._store.objects)
    faults.fail_before("create")
    with pytest.raises(StorageError, match="injected"):
        put(graph, ["new"], NODES)
    assert drift(graph._store.capture("main"), graph) == {}
    assert graph.snapshot().commit == before.commit
    put(graph, ["new"], NODES)
    assert graph.recovery.list() == []
    assert_whole(graph)


def test_a_sidecar_that_cannot_be_removed_does_not_fail_the_write(graph: Graph) -> None:
    graph._store.objects = faults = FaultyStore(graph._store.objects)
    faults.fail_before("delete")
    commit = put(graph, ["new"])
    assert len(sidecars(graph)) == 1
    put(graph, ["next"])
    assert ids(graph) == sorted([*SEED, "new", "next"])
    assert (only(graph).kind, only(graph).commit_id) == (RecoveryKind.ROLLED_FORWARD, commit.id)
    assert_whole(graph)


# Drift that nothing explains


@pytest.mark.parametrize("branch", ["main", "dev"])
def test_drift_names_the_remedy(graph: Graph, place: Path, branch: str) -> None:
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
def test_drift_by_a_write_that_is_not_settled(graph: Graph, monkeypatch: pytest.MonkeyPatch, listable: bool) -> None:
    """A writer that was overtaken in its sleep can leave its sidecar after the next one has looked for it."""
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


def test_a_delete_that_matches_nothing_moves_nothing(graph: Graph) -> None:
    """Not even a table that another part of the same write does not need."""
    before = graph.snapshot()
    nothing = table_write("edge:AB", Operation.DELETE, ["nobody"])
    assert graph.write_tables(WriteRequest(), lambda view: [nothing]) is None
    graph.write_tables(WriteRequest(), lambda view: [nothing, table_write("node:A", Operation.DELETE, ["s1"])])
    assert graph.snapshot().pin("edge:AB") == before.pin("edge:AB")
    assert_whole(graph)


def test_sidecar_round_trip(graph: Graph) -> None:
    sidecar = crash(graph, Failpoint.SIDECAR_WRITTEN)
    data = graph._store.objects.get(sidecar.path).data
    assert orjson.loads(data)["sidecar_version"] == 1
    assert Sidecar.load(sidecar.path, data) == sidecar
    assert sidecar.dump() == data
