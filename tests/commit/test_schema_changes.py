"""A schema change and its rows are one commit: schema files, tables and manifest change together or not at all."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from tests.commit.child import Children
from tests.commit.graphs import SCHEMA, SEED, assert_whole, create, evolve_to, ids, put, sidecars

from omnigraph.commit import attempts, publish, staged_writes
from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.lease import LeaseRecord, lease_path
from omnigraph.commit.manifest import Manifest
from omnigraph.commit.schema_files import CONTRACT, STAGED
from omnigraph.commit.sidecar import Sidecar
from omnigraph.commit.store import Store
from omnigraph.commit.write_request import Prepared, SchemaChange, WriteRequest
from omnigraph.errors import CorruptionError, InputError, LeaseLostError, ReadSetChangedError, RecoveryRequiredError
from omnigraph.graph import Graph, open
from omnigraph.lang.schema import compile_schema, evolve, ir_hash

NEXT = """
node A { k: String @key n: I64? }
node Bee @rename_from("B") { k: String @key n: I64? }
node C { k: String @key n: I64? }
node D { k: String @key }
edge AB: A -> Bee
"""
KEYS = ["edge:AB", "node:A", "node:Bee", "node:C", "node:D"]


def staged(graph: Graph) -> list[str]:
    return [path.name for path in Path(graph.uri).glob(f"*{STAGED}")]


def check_next(graph: Graph) -> None:
    """Check that the new schema is active, with its tables and rows."""
    assert graph.schema_source == NEXT
    assert list(graph.snapshot().tables) == KEYS
    assert ids(graph) == sorted([*SEED, "new"])
    assert ids(graph, "node:Bee") == sorted(SEED)
    assert ids(graph, "node:D") == []
    assert staged(graph) == []
    assert_whole(graph)


def check_before(graph: Graph) -> None:
    """Check that nothing has changed, and that no files of the attempt are left."""
    assert graph.schema_source == SCHEMA
    assert ids(graph) == sorted(SEED)
    assert staged(graph) == []
    assert_whole(graph)


def test_a_schema_change_becomes_visible_with_its_commit(place: Path) -> None:
    with create(place) as graph:
        before = graph.snapshot()
        commit = evolve_to(graph, NEXT, ["new"])
        assert commit is not None
        assert commit.writer == "SchemaApply"
        assert sorted(before.tables) == ["edge:AB", "edge:BC", "node:A", "node:B", "node:C"]
        old = graph.snapshot(commit=before.commit.id)
        assert sorted(old.scan("node:B")["id"].to_pylist()) == sorted(SEED)
        assert old.scan("edge:BC").num_rows == len(SEED)
    with open(place) as reopened:
        check_next(reopened)
    with open(place, read_only=True) as reader:
        check_next(reader)


def test_applying_the_same_schema_makes_no_commit(place: Path) -> None:
    with create(place) as graph:
        assert evolve_to(graph, SCHEMA, []) is None


def test_a_schema_change_on_a_branch_is_refused(place: Path) -> None:
    with create(place) as graph:
        graph.branches.create("dev")
        accepted = graph.accepted_schema
        change = SchemaChange(NEXT, evolve(accepted, compile_schema(NEXT)), ir_hash(accepted))
        with pytest.raises(InputError, match="main"):
            graph.write_tables(WriteRequest(branch="dev", schema=change), lambda view: [])


def test_a_branch_keeps_the_schema_of_its_first_commit(place: Path) -> None:
    with create(place) as graph:
        graph.branches.create("dev")
        evolve_to(graph, NEXT, ["new"])
        put(graph, ["on dev"], ["node:B"], branch="dev")
        assert graph.schema_source == NEXT
        assert "on dev" in ids(graph, "node:B", "dev")
    with open(place, branch="dev") as dev:
        assert dev.schema_source == SCHEMA
        assert sorted(dev.catalog.nodes) == ["A", "B", "C"]
        put(dev, ["again"], ["edge:BC"], branch="dev")
    with open(place) as main:
        check_next(main)


def test_readers_see_a_published_schema_before_its_files_are_in_place(place: Path) -> None:
    """The writer crashes after its publish: the old schema files are still in place, and the new ones are staged."""
    with create(place) as graph:
        with armed(Failpoint.PUBLISHED, "crash"), pytest.raises(SimulatedCrashError):
            evolve_to(graph, NEXT, ["new"])
        assert len(staged(graph)) == 3
    with open(place, read_only=True) as reader:
        assert reader.schema_source == NEXT
        assert list(reader.snapshot().tables) == KEYS
    with open(place) as writer:
        check_next(writer)


def test_an_open_handle_sees_a_schema_change(place: Path) -> None:
    with create(place) as first, open(place) as second:
        evolve_to(first, NEXT, ["new"])
        put(second, ["more"], ["node:A"])
        assert second.schema_source == NEXT


def test_edited_schema_files_are_refused(place: Path) -> None:
    with create(place) as graph:
        evolve_to(graph, NEXT, ["new"])
        old = place.parent / "old"
        with create(old) as other:
            for path in CONTRACT:
                graph.session.store.objects.put(path, other.session.store.objects.get(path).data)
    with pytest.raises(CorruptionError, match="schema files"):
        open(place)


AFTER = {
    Failpoint.CAPTURED: None,
    Failpoint.STAGED: None,
    Failpoint.LEASED: None,
    Failpoint.SIDECAR_WRITTEN: RecoveryKind.ROLLED_BACK,
    Failpoint.TABLE_COMMITTED: RecoveryKind.ROLLED_FORWARD,
    Failpoint.TABLES_COMMITTED: RecoveryKind.ROLLED_FORWARD,
    Failpoint.BEFORE_PUBLISH: RecoveryKind.ROLLED_FORWARD,
    Failpoint.PUBLISHED: RecoveryKind.ROLLED_FORWARD,
}
"""The outcome of a schema change with rows whose process is killed at each failpoint."""


@pytest.mark.parametrize("rows", [["new"], []], ids=["with rows", "schema alone"])
@pytest.mark.parametrize("point", AFTER, ids=str)
def test_a_killed_schema_change_is_visible_completely_or_not_at_all(
    children: Children, place: Path, point: Failpoint, rows: list[str]
) -> None:
    if not rows and point is Failpoint.TABLE_COMMITTED:
        pytest.skip("no table is committed")
    with create(place) as graph:
        ending = children.run("change_schema", failpoint=f"{point.value}=kill", uri=str(place), source=NEXT, ids=rows)
        assert ending.signal == signal.SIGKILL
        assert bool(sidecars(graph)) is (AFTER[point] is not None)
    with open(place) as reopened:
        kinds = [record.kind for record in reopened.recovery.list()]
        assert kinds == ([AFTER[point]] if AFTER[point] else [])
        if AFTER[point] is RecoveryKind.ROLLED_FORWARD:
            assert reopened.schema_source == NEXT
            assert list(reopened.snapshot().tables) == KEYS
            assert ids(reopened) == sorted([*SEED, *rows])
            assert staged(reopened) == []
        else:
            check_before(reopened)
            evolve_to(reopened, NEXT, rows)
        assert_whole(reopened)
        put(reopened, ["next"], ["node:A"])


@pytest.mark.parametrize(
    "point", [Failpoint.RECOVERY_STARTED, Failpoint.RECOVERY_PUBLISHED, Failpoint.RECOVERY_AUDITED], ids=str
)
@pytest.mark.parametrize("first", [Failpoint.SIDECAR_WRITTEN, Failpoint.BEFORE_PUBLISH, Failpoint.PUBLISHED], ids=str)
def test_a_killed_recovery_of_a_schema_change_has_the_same_outcome_when_repeated(
    children: Children, place: Path, first: Failpoint, point: Failpoint
) -> None:
    create(place).close()
    children.run("change_schema", failpoint=f"{first.value}=kill", uri=str(place), source=NEXT, ids=["new"])
    assert children.run("reopen", failpoint=f"{point.value}=kill", uri=str(place)).signal == signal.SIGKILL
    with open(place) as reopened:
        (record,) = reopened.recovery.list()
        assert record.kind is AFTER[first]
        if record.kind is RecoveryKind.ROLLED_FORWARD:
            check_next(reopened)
        else:
            check_before(reopened)


OTHER = SCHEMA + "node E { k: String @key }\n"


def test_a_schema_change_based_on_an_outdated_schema_is_refused(place: Path) -> None:
    """Both handles changed the same schema. The second change would undo the first, and take over its table."""
    with create(place) as first, open(place) as second:
        evolve_to(first, NEXT, ["new"])
        with pytest.raises(ReadSetChangedError, match="schema"):
            evolve_to(second, OTHER, [])
        check_next(second)
        second.refresh()
        assert second.schema_source == NEXT


def change_elsewhere(children: Children, graph: Graph) -> None:
    """Another process takes over the lease, as if its owner was paused, and changes the schema."""
    store = graph.session.store
    store.leases.put(lease_path("main"), LeaseRecord(store.capture("main").fence + 1, None).dump())
    children.run("change_schema", uri=graph.uri, source=NEXT, ids=["new"]).ok()


@pytest.mark.parametrize("point", [Failpoint.CAPTURED, Failpoint.STAGED, Failpoint.LEASED, Failpoint.SIDECAR_WRITTEN])
def test_a_paused_writer_cannot_remove_a_table_of_another_writer(
    children: Children, place: Path, monkeypatch: pytest.MonkeyPatch, point: Failpoint
) -> None:
    """Both changes create their new table at the same path, and the first continues after the second is published."""

    def overtake(reached: Failpoint) -> None:
        if reached is point:
            for module in (attempts, staged_writes, publish):
                monkeypatch.setattr(module, "reach", lambda _: None)
            change_elsewhere(children, graph)

    with create(place) as graph:
        for module in (attempts, staged_writes, publish):
            monkeypatch.setattr(module, "reach", overtake)
        with pytest.raises((LeaseLostError, ReadSetChangedError, RecoveryRequiredError)):
            evolve_to(graph, OTHER, ["mine"])
    with open(place) as reopened:
        check_next(reopened)
        assert put(reopened, ["next"], ["node:A"]) is not None


def test_a_paused_write_to_a_table_that_was_renamed_is_rolled_back(
    children: Children, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was replaced just before it wrote its sidecar, and has moved a table that was renamed since."""
    make = publish._sidecar

    def late(store: Store, request: WriteRequest, prepared: Prepared, view: Manifest, staging: Any) -> Sidecar:
        change_elsewhere(children, graph)
        return make(store, request, prepared, view, staging)

    with create(place) as graph:
        monkeypatch.setattr(publish, "_sidecar", late)
        with pytest.raises(RecoveryRequiredError):
            put(graph, ["lost"], ["node:B"])
    monkeypatch.undo()
    with open(place) as reopened:
        (record,) = reopened.recovery.list()
        assert record.kind is RecoveryKind.ROLLED_BACK
        check_next(reopened)
