"""A process can be paused right after it checked its lease, for longer than the lease lasts.

Each test stops a child (`SIGSTOP`) right after a check, lets another process do a conflicting action, and continues the
child. No acknowledged write is lost, and the graph stays consistent. The kill matrix page lists the cases.
"""

from __future__ import annotations

import ast
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import zip_longest
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commit import raw
from tests.commit.child import Children, Ending, end
from tests.commit.graphs import NODES, SCHEMA, SEED, assert_whole, create, evolve_to, ids, put
from tests.commit.matrix import BRANCH_CREATION_POINTS, BRANCH_RESET_POINTS, PAUSES
from tests.patience import PATIENCE, until
from tests.sampling import every_nth

import omnigraph
from omnigraph.commit import audit
from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint
from omnigraph.graph import Graph, init, open

pytestmark = pytest.mark.slow

TTL = 0.5
MANY = [f"row {number:03}" for number in range(100)]
WIDER = SCHEMA + "\nnode Extra { k: String @key }\n"


@pytest.fixture
def graph(place: Path) -> Iterator[Graph]:
    with create(place) as made:
        made.session.store.timeouts.ttl, made.session.store.timeouts.wait = TTL, PATIENCE
        yield made


@dataclass(slots=True)
class Paused:
    """A child that was stopped at a failpoint, and how it ended."""

    children: Children
    pid: int
    sign: Path
    ending: Ending | None = None

    def go_on(self) -> Ending:
        self.sign.unlink()
        end(self.pid, signal.SIGCONT)
        self.ending = self.children.wait(self.pid)
        return self.ending


@pytest.fixture
def paused(children: Children, place: Path) -> Callable[..., Paused]:
    """Starts a job and stops its whole process, including heartbeats, at a failpoint."""

    def start(job: str, point: Failpoint | str, **arguments: object) -> Paused:
        sign = Path(f"{place}.held")
        job_arguments = {"uri": str(place), "ttl": TTL, **arguments}
        pid = children.start(job, failpoint=f"{point}=hold:{sign}", **job_arguments)
        until(sign.exists)
        end(pid, signal.SIGSTOP)
        return Paused(children, pid, sign)

    return start


@contextmanager
def whole_afterwards(graph: Graph, branch: str = "main") -> Iterator[None]:
    """Check afterwards that the next write on the branch succeeds, and that all tables match the manifest."""
    yield
    graph.refresh()
    put(graph, ["after"], NODES, branch=branch)
    assert "after" in ids(graph, branch=branch)
    assert_whole(graph)


# Branches

CREATION = [point for point in BRANCH_CREATION_POINTS if point is not Failpoint.BRANCH_REF_CREATED]


@pytest.mark.parametrize("point", CREATION)
def test_a_paused_branch_creation_keeps_a_branch_that_another_process_created(
    paused: Callable[..., Paused], graph: Graph, point: Failpoint
) -> None:
    child = paused("create_branch", point, name="dev")
    graph.branches.create("dev")
    put(graph, MANY, NODES, branch="dev")
    assert child.go_on().error == "ConflictError"
    with whole_afterwards(graph, "dev"):
        assert ids(graph, branch="dev") == sorted([*SEED, *MANY])


@pytest.mark.parametrize("point", CREATION)
def test_a_paused_branch_creation_fails_below_a_branch_that_another_process_created(
    paused: Callable[..., Paused], graph: Graph, point: Failpoint
) -> None:
    child = paused("create_branch", point, name="dev/mine")
    graph.branches.create("dev")
    put(graph, MANY, NODES, branch="dev")
    assert child.go_on().error == "ConflictError"
    with whole_afterwards(graph, "dev"):
        assert [branch.name for branch in graph.branches] == ["main", "dev"]
        assert ids(graph, branch="dev") == sorted([*SEED, *MANY])


@pytest.mark.parametrize("point", CREATION)
def test_a_paused_branch_creation_fails_if_cleanup_removes_its_commit(
    paused: Callable[..., Paused], graph: Graph, point: Failpoint
) -> None:
    """The branch was never visible, so no writer can have used it."""
    old = graph.snapshot().commit.id
    put(graph, MANY, NODES)
    child = paused("create_branch", point, name="dev", commit=old)
    graph.cleanup(keep=0, orphans_older_than=timedelta(0))
    assert "dev" not in graph.branches
    assert child.go_on().error in ("ConflictError", "VersionReclaimedError", "NotFoundError")
    with whole_afterwards(graph):
        assert [branch.name for branch in graph.branches] == ["main"]


def test_a_paused_branch_deletion_keeps_a_branch_that_was_created_again(
    paused: Callable[..., Paused], graph: Graph
) -> None:
    graph.branches.create("dev")
    put(graph, ["old"], NODES, branch="dev")
    child = paused("delete_branch", Failpoint.BRANCH_DELETE_CHECKED, name="dev")
    graph.branches.delete("dev")
    graph.branches.create("dev")
    put(graph, MANY, NODES, branch="dev")
    assert child.go_on().error == "BranchNotFoundError"
    with whole_afterwards(graph, "dev"):
        assert ids(graph, branch="dev") == sorted([*SEED, *MANY])


@pytest.mark.parametrize("point", [Failpoint.BRANCH_CLOSED, Failpoint.BRANCH_REF_DELETED])
def test_a_late_end_of_a_branch_deletion_keeps_a_branch_that_was_created_again(
    paused: Callable[..., Paused], graph: Graph, point: Failpoint
) -> None:
    graph.branches.create("dev")
    put(graph, ["old"], NODES, branch="dev")
    child = paused("delete_branch", point, name="dev")
    graph.branches.create("dev")
    put(graph, MANY, NODES, branch="dev")
    child.go_on().ok()
    with whole_afterwards(graph, "dev"):
        assert ids(graph, branch="dev") == sorted([*SEED, *MANY])


def test_a_paused_branch_deletion_keeps_a_branch_with_new_commits(paused: Callable[..., Paused], graph: Graph) -> None:
    """The deletion expects a head. The branch has new rows, so it stays."""
    graph.branches.create("dev")
    seen = put(graph, ["old"], NODES, branch="dev")
    child = paused("delete_branch", Failpoint.BRANCH_DELETE_CHECKED, name="dev", expect_head=seen.id)
    put(graph, MANY, NODES, branch="dev")
    assert child.go_on().error == "PreconditionFailedError"
    with whole_afterwards(graph, "dev"):
        assert ids(graph, branch="dev") == sorted([*SEED, "old", *MANY])


BEFORE_RESET = [
    point for point in BRANCH_RESET_POINTS if point.value.split("_")[-1] in ("created", "intended", "checked")
]


@dataclass(frozen=True, slots=True)
class Resetting:
    """A branch of two commits, and a process that is paused while it resets the branch to an earlier commit."""

    child: Paused
    first: str
    takes_effect: bool


@pytest.fixture(params=BRANCH_RESET_POINTS, ids=lambda point: point.value)
def resetting(request: pytest.FixtureRequest, paused: Callable[..., Paused], graph: Graph) -> Resetting:
    start = graph.snapshot().commit.id
    graph.branches.create("dev")
    first = put(graph, ["first"], NODES, branch="dev").id
    put(graph, ["second"], NODES, branch="dev")
    put(graph, ["later"], NODES)
    child = paused("reset_branch", request.param, name="dev", commit=start)
    return Resetting(child, first, request.param not in BEFORE_RESET)


def test_a_paused_reset_keeps_the_rows_of_other_writers(resetting: Resetting, graph: Graph) -> None:
    """A write before the reset refuses it. A write after the reset belongs to the new incarnation."""
    put(graph, MANY, NODES, branch="dev")
    ending = resetting.child.go_on()
    assert ending.error == (None if resetting.takes_effect else "LeaseLostError")
    with whole_afterwards(graph, "dev"):
        old = [] if resetting.takes_effect else ["first", "second"]
        assert ids(graph, branch="dev") == sorted([*SEED, *old, *MANY])


def test_a_paused_reset_keeps_the_reset_of_another_process(resetting: Resetting, graph: Graph) -> None:
    done = graph.branches.reset("dev", resetting.first)
    assert done.tag is not None
    ending = resetting.child.go_on()
    assert ending.error in ((None,) if resetting.takes_effect else ("BranchNotFoundError", "ConflictError"))
    with whole_afterwards(graph, "dev"):
        assert ids(graph, branch="dev") == sorted([*SEED, "first"])
        tagged = graph.snapshot(commit=done.tag).scan("node:A")["id"].to_pylist()
        assert sorted(tagged) == sorted([*SEED, *([] if resetting.takes_effect else ["first", "second"])])


def test_a_paused_reset_keeps_a_branch_that_was_created_again(resetting: Resetting, graph: Graph) -> None:
    for tag in list(graph.tags):
        graph.tags.delete(tag.name)
    graph.branches.delete("dev")
    graph.branches.create("dev")
    put(graph, MANY, NODES, branch="dev")
    ending = resetting.child.go_on()
    assert ending.error in ((None,) if resetting.takes_effect else ("BranchNotFoundError", "ConflictError"))
    with whole_afterwards(graph, "dev"):
        assert ids(graph, branch="dev") == sorted([*SEED, "later", *MANY])


def test_a_paused_reset_and_a_cleanup_leave_a_readable_branch(resetting: Resetting, graph: Graph) -> None:
    graph.cleanup(keep=0, orphans_older_than=timedelta(0))
    ending = resetting.child.go_on()
    assert ending.error in (None, "VersionReclaimedError", "LeaseLostError")
    with whole_afterwards(graph, "dev"):
        assert ids(graph, branch="dev") == sorted([*SEED, *([] if ending.error is None else ["first", "second"])])
        graph.cleanup(keep=0, orphans_older_than=timedelta(0))
        assert graph.verify(branch="dev").ok


# Tags


def test_a_paused_tag_deletion_keeps_a_tag_that_was_created_again(paused: Callable[..., Paused], graph: Graph) -> None:
    graph.tags.create("v1")
    child = paused("delete_tag", Failpoint.TAG_DELETE_CHECKED, name="v1")
    graph.tags.delete("v1")
    put(graph, MANY, NODES)
    made = graph.tags.create("v1")
    assert child.go_on().error == "NotFoundError"
    with whole_afterwards(graph):
        assert [(tag.name, tag.commit_id) for tag in graph.tags] == [("v1", made.commit_id)]


def test_a_paused_tag_creation_keeps_a_tag_that_another_process_created(
    paused: Callable[..., Paused], graph: Graph
) -> None:
    child = paused("create_tag", Failpoint.TAG_CREATE_CHECKED, name="v1")
    put(graph, MANY, NODES)
    made = graph.tags.create("v1")
    assert child.go_on().error == "ConflictError"
    with whole_afterwards(graph):
        assert [(tag.name, tag.commit_id) for tag in graph.tags] == [("v1", made.commit_id)]


# Reverts and cherry-picks

PICK_POINTS = (Failpoint.CAPTURED, Failpoint.STAGED, Failpoint.LEASED)
"""Points before the sidecar. From then on, a revert is like any other write."""


@pytest.fixture(params=["revert", "cherry_pick"])
def picked(request: pytest.FixtureRequest, graph: Graph) -> dict[str, object]:
    """A commit to revert on `main`, or to pick from a branch, and the job that does it."""
    branch = "main"
    if request.param == "cherry_pick":
        graph.branches.create("dev")
        put(graph, ["before"], NODES, branch="dev")
        branch = "dev"
    commit = put(graph, ["picked"], NODES, branch=branch)
    put(graph, ["later"], NODES)
    return {"verb": request.param, "commit": commit.id, "branch": "main"}


def _wanted(picked: dict[str, object], *more: str) -> list[str]:
    return sorted([*SEED, "later", *more, *(["picked"] if picked["verb"] == "cherry_pick" else [])])


@pytest.mark.parametrize("point", PICK_POINTS)
def test_a_paused_revert_keeps_its_states_from_a_cleanup(
    paused: Callable[..., Paused], graph: Graph, picked: dict[str, object], point: Failpoint
) -> None:
    child = paused("pick", point, **picked)
    graph.cleanup(keep=0, orphans_older_than=timedelta(0))
    child.go_on().ok()
    with whole_afterwards(graph):
        assert ids(graph) == _wanted(picked)


@pytest.mark.parametrize("point", PICK_POINTS)
def test_a_paused_revert_keeps_the_rows_of_other_writers(
    paused: Callable[..., Paused], graph: Graph, picked: dict[str, object], point: Failpoint
) -> None:
    child = paused("pick", point, **picked)
    put(graph, MANY, NODES)
    child.go_on().ok()
    with whole_afterwards(graph):
        assert ids(graph) == _wanted(picked, *MANY)


@pytest.mark.parametrize("point", PICK_POINTS)
def test_a_paused_revert_is_refused_after_another_change_of_its_rows(
    paused: Callable[..., Paused], graph: Graph, picked: dict[str, object], point: Failpoint
) -> None:
    """The row was compared before the pause. The change of the other process is not overwritten."""
    child = paused("pick", point, **picked)
    graph.load({"A": pa.table({"k": ["picked"], "n": [7]})}, mode="merge")
    assert child.go_on().error == "PickConflictsError"
    with whole_afterwards(graph):
        found = graph.entity("A", "picked")
        assert found is not None
        assert found["n"] == 7


# Schemas

SCHEMA_POINTS = (
    Failpoint.LEASED,
    Failpoint.SIDECAR_WRITTEN,
    Failpoint.TABLES_COMMITTED,
    Failpoint.BEFORE_PUBLISH,
    Failpoint.PUBLISHED,
)


@pytest.mark.parametrize("point", every_nth(SCHEMA_POINTS, 2))
def test_a_paused_schema_change_keeps_the_schema_change_of_another_process(
    paused: Callable[..., Paused], graph: Graph, point: Failpoint
) -> None:
    """The other process publishes a new table with rows. None of it is removed."""
    child = paused("change_schema", point, source=WIDER, ids=["late"])
    graph.refresh()  # recovers the child's interrupted change
    if "Extra" not in graph.catalog.nodes:
        evolve_to(graph, WIDER, ["mine"])
    with open(graph.uri) as other:
        other.session.store.timeouts.ttl = TTL  # otherwise it waits 30 seconds for the lease of the paused process
        put(other, MANY, ["node:Extra"])
    child.go_on()
    with open(graph.uri) as after:
        assert sorted(after.snapshot().scan("node:Extra")["id"].to_pylist()) == MANY
        put(after, ["more"], ["node:Extra"])
        assert len(ids(after)) == len(set(ids(after)))
        assert_whole(after)


CHANGED = SCHEMA.replace(
    "node A { k: String @key n: I64? }", 'node A { k: String @key m: I64? @rename_from("n") s: String @default("x") }'
)


@pytest.mark.parametrize("point", every_nth([Failpoint.TABLE_COMMITTED, *SCHEMA_POINTS], 2))
def test_a_paused_column_change_keeps_later_writes_of_another_process(
    paused: Callable[..., Paused], graph: Graph, point: Failpoint
) -> None:
    """The other process recovers the change of columns, and then applies it itself if it was undone."""
    child = paused("apply_schema", point, source=CHANGED)
    graph.refresh()  # recovers the child's interrupted change
    graph.schema.apply(CHANGED)
    with open(graph.uri) as other:
        other.load({"A": pa.table({"k": MANY, "m": range(len(MANY))})}, mode="append")
    child.go_on()
    with open(graph.uri) as after:
        assert after.schema.source == CHANGED
        after.mutate('query add() { insert A { k: "last", m: 1 } }')
        rows = after.snapshot().scan("node:A").to_pylist()
        assert sorted(row["id"] for row in rows) == sorted([*SEED, *MANY, "last"])
        assert {row["s"] for row in rows} == {"x"}
        assert {row["id"]: row["m"] for row in rows}[MANY[7]] == 7
        assert after.schema.apply(CHANGED).applied is False
        assert after.verify().ok
        assert_whole(after)


# Branch updates

UPDATE_POINTS = (
    Failpoint.CAPTURED,
    Failpoint.STAGED,
    Failpoint.LEASED,
    Failpoint.SIDECAR_WRITTEN,
    Failpoint.TABLES_COMMITTED,
    Failpoint.BEFORE_PUBLISH,
    Failpoint.PUBLISHED,
)


@dataclass(frozen=True, slots=True)
class Updating:
    """A branch with a row of its own, and a process that is paused while it brings a new schema and rows into it."""

    child: Paused
    is_recovered: bool
    """Whether other writers complete or undo the update, because it has a sidecar."""


@pytest.fixture(params=UPDATE_POINTS, ids=lambda point: point.value)
def updating(request: pytest.FixtureRequest, paused: Callable[..., Paused], graph: Graph) -> Updating:
    graph.branches.create("dev")
    put(graph, ["own"], NODES, branch="dev")
    graph.schema.apply(WIDER)
    put(graph, ["of the parent"], NODES)
    put(graph, ["extra"], ["node:Extra"])
    child = paused("update_branch", request.param, branch="dev")
    return Updating(child, UPDATE_POINTS.index(request.param) > UPDATE_POINTS.index(Failpoint.LEASED))


def assert_updated(graph: Graph, *more: str) -> None:
    """Check that the next update brings what is missing, and that nothing is lost."""
    graph.branches.update("dev")
    with whole_afterwards(graph, "dev"):
        for key in NODES:
            assert ids(graph, key, "dev") == sorted([*SEED, "own", "of the parent", *more])
        assert ids(graph, "node:Extra", "dev") == ["extra"]
        assert graph.schema.show(branch="dev") == WIDER
        assert graph.verify(branch="dev").ok
    assert graph.branches.update("dev").outcome == "already_up_to_date"


def test_a_paused_branch_update_keeps_the_rows_of_other_writers(updating: Updating, graph: Graph) -> None:
    put(graph, MANY, NODES, branch="dev")
    ending = updating.child.go_on()
    assert ending.error is None or updating.is_recovered
    assert set(ids(graph, branch="dev")) >= {*SEED, "own", *MANY}
    assert_updated(graph, *MANY)


def test_a_paused_branch_update_keeps_the_update_of_another_process(updating: Updating, graph: Graph) -> None:
    graph.branches.update("dev")
    put(graph, MANY, NODES, branch="dev")
    updating.child.go_on()
    assert graph.schema.show(branch="dev") == WIDER
    assert_updated(graph, *MANY)


def test_a_paused_branch_update_keeps_its_states_from_a_cleanup(updating: Updating, graph: Graph) -> None:
    put(graph, ["later"], NODES)
    graph.cleanup(keep=0, orphans_older_than=timedelta(0))
    ending = updating.child.go_on()
    assert ending.error is None or updating.is_recovered
    assert_updated(graph, "later")


def test_a_paused_branch_update_keeps_a_branch_that_was_created_again(updating: Updating, graph: Graph) -> None:
    graph.branches.delete("dev")
    graph.branches.create("dev")
    put(graph, MANY, NODES, branch="dev")
    updating.child.go_on()
    with whole_afterwards(graph, "dev"):
        assert ids(graph, branch="dev") == sorted([*SEED, "of the parent", *MANY])
        assert graph.schema.show(branch="dev") == WIDER


def test_a_paused_branch_update_keeps_a_later_schema_of_its_parent(updating: Updating, graph: Graph) -> None:
    later = WIDER + "\nnode Later { k: String @key }\n"
    graph.schema.apply(later)
    put(graph, ["later"], NODES)
    updating.child.go_on()
    graph.branches.update("dev")
    with whole_afterwards(graph, "dev"):
        assert graph.schema.show(branch="dev") == later == graph.schema.show(branch="main")
        assert ids(graph, branch="dev") == sorted([*SEED, "own", "of the parent", "later"])
        assert ids(graph) == sorted([*SEED, "of the parent", "later"])


# Publishing


@pytest.mark.parametrize("point", [Failpoint.LEASED, Failpoint.TABLES_COMMITTED, Failpoint.BEFORE_PUBLISH])
def test_a_paused_write_leaves_a_branch_that_was_created_again_consistent(
    paused: Callable[..., Paused], graph: Graph, point: Failpoint
) -> None:
    graph.branches.create("dev")
    writes = [(key, "append", ["slow"]) for key in NODES]
    child = paused("write", point, branch="dev", writes=writes)
    graph.branches.delete("dev")
    graph.branches.create("dev")
    ending = child.go_on()
    with whole_afterwards(graph, "dev"):
        shown = ids(graph, branch="dev")
        if point is Failpoint.LEASED:  # no sidecar yet, so it is retried on the new branch, or refused
            assert shown in (sorted(SEED), sorted([*SEED, "slow"]))
            assert (ending.error is None) is ("slow" in shown), ending
        else:  # the deletion recovered it first: it was removed with the old branch
            assert shown == sorted(SEED)
            kinds = [record.kind for record in audit.records(graph.session.store.audit)]
            assert kinds == [RecoveryKind.ROLLED_FORWARD]
        assert ids(graph) == sorted(SEED)


# Recovery


@pytest.mark.parametrize("forks", [False, True], ids=["main", "forks"])
@pytest.mark.parametrize("killed", [Failpoint.TABLE_COMMITTED, Failpoint.TABLES_COMMITTED])
@pytest.mark.parametrize("point", [p for p in Failpoint if p.value.startswith("recovery_")])
def test_a_paused_recovery_keeps_later_writes_of_another_process(
    paused: Callable[..., Paused], children: Children, graph: Graph, point: Failpoint, killed: Failpoint, forks: bool
) -> None:
    forward = killed is Failpoint.TABLES_COMMITTED
    if point is Failpoint.RECOVERY_RESTORED and forward:
        pytest.skip("nothing is restored")
    branch = "dev" if forks else "main"
    if forks:
        graph.branches.create("dev")
    job = {"uri": graph.uri, "branch": branch, "writes": [(key, "append", ["died"]) for key in NODES]}
    assert children.run("write", failpoint=f"{killed}=kill", **job).signal == signal.SIGKILL
    child = paused("reopen", point)
    put(graph, MANY, NODES, branch=branch)
    child.go_on()
    expected = sorted([*SEED, *MANY, *(["died"] if forward else [])])
    with whole_afterwards(graph, branch):
        for key in NODES:
            assert ids(graph, key, branch) == expected
    assert ids(graph, branch=branch) == sorted([*expected, "after"])


def test_a_paused_roll_back_of_a_late_version_keeps_later_writes(paused: Callable[..., Paused], graph: Graph) -> None:
    raw.restore_late(graph, "node:A", 1)
    writes = [("node:A", "append", ["slow"])]
    child = paused("write", Failpoint.LATE_VERSION_CHECKED, writes=writes)
    put(graph, MANY)
    child.go_on()
    with whole_afterwards(graph):
        assert set(ids(graph)) - {"slow"} == {*SEED, *MANY}


# Repair

TABLE_POINTS = (
    Failpoint.REPAIR_TABLE_CHECKED,
    Failpoint.REPAIR_RESTORED,
    Failpoint.REPAIR_PUBLISH_CHECKED,
    Failpoint.REPAIR_PUBLISHED,
)
FILE_POINTS = (Failpoint.REPAIR_FILE_CHECKED, Failpoint.TORN_COPIED, Failpoint.REPAIR_SET_ASIDE)


def assert_repaired(graph: Graph, expected: Sequence[str], key: str = "node:A") -> None:
    """Check that all rows exist, that the next write succeeds, and that a forced repair removes nothing."""
    with whole_afterwards(graph):
        assert ids(graph, key) == sorted(expected)
    graph.repair(confirm=True, force=True)
    assert graph.repair().ok
    assert ids(graph, key) == sorted([*expected, "after"])


@pytest.mark.parametrize("point", TABLE_POINTS)
def test_a_paused_table_repair_keeps_later_writes(
    paused: Callable[..., Paused], graph: Graph, point: Failpoint
) -> None:
    raw.damage_data(graph)
    child = paused("repair_all", point)
    graph.repair(confirm=True, force=True)
    put(graph, MANY, NODES)
    child.go_on()
    assert_repaired(graph, [*SEED, *MANY])


@pytest.mark.parametrize("point", [Failpoint.REPAIR_TABLE_CHECKED, Failpoint.REPAIR_PUBLISH_CHECKED])
def test_a_paused_table_restore_keeps_later_writes(
    paused: Callable[..., Paused], graph: Graph, point: Failpoint
) -> None:
    raw.restore(graph, "node:A", 1)
    child = paused("repair_all", point)
    graph.repair(confirm=True, force=True)
    put(graph, MANY, NODES)
    child.go_on()
    assert_repaired(graph, [*SEED, *MANY])


def test_a_paused_adoption_of_drift_keeps_later_writes(paused: Callable[..., Paused], graph: Graph) -> None:
    raw.append(graph, "node:A", ["theirs"])
    child = paused("repair_all", Failpoint.REPAIR_PUBLISH_CHECKED)
    graph.repair(confirm=True, force=True)
    put(graph, MANY, NODES)
    assert child.go_on().error in ("LeaseLostError", "ReadSetChangedError")
    assert_repaired(graph, [*SEED, "theirs", *MANY])


@pytest.mark.parametrize("point", [Failpoint.REPAIR_MANIFEST_CHECKED, *FILE_POINTS])
def test_a_paused_manifest_repair_keeps_later_writes(
    paused: Callable[..., Paused], graph: Graph, point: Failpoint
) -> None:
    """The new versions of the other process have the names of those that the paused repair was about to quarantine."""
    put(graph, ["kept"], NODES)
    raw.tear(raw.newest_manifest(graph))
    graph.session.store.forget("main")
    child = paused("repair_all", point)
    graph.repair(confirm=True, force=True)
    put(graph, MANY, NODES)
    child.go_on()
    assert_repaired(graph, [*SEED, "kept", *MANY])


@pytest.mark.parametrize("point", FILE_POINTS)
def test_a_paused_quarantine_of_a_version_keeps_a_new_version_of_the_same_name(
    paused: Callable[..., Paused], graph: Graph, point: Failpoint
) -> None:
    raw.append(graph, "node:A", ["theirs"])
    raw.tear(raw.newest_version(graph))
    child = paused("repair_all", point)
    graph.repair(confirm=True, force=True)
    put(graph, MANY, NODES)
    child.go_on()
    assert_repaired(graph, [*SEED, *MANY])


@pytest.mark.parametrize("point", FILE_POINTS)
def test_a_paused_quarantine_of_a_reference_keeps_a_branch_that_was_created_again(
    paused: Callable[..., Paused], graph: Graph, place: Path, point: Failpoint
) -> None:
    graph.branches.create("dev")
    (file,) = (place / "__refs").glob("*.json")
    file.write_bytes(b"")
    child = paused("repair_all", point)
    graph.repair(confirm=True, force=True)
    graph.branches.create("dev")
    put(graph, MANY, NODES, branch="dev")
    child.go_on().ok()
    with whole_afterwards(graph, "dev"):
        assert ids(graph, branch="dev") == sorted([*SEED, *MANY])


def test_a_paused_quarantine_of_a_sidecar_keeps_the_recovery_of_another_process(
    paused: Callable[..., Paused], children: Children, graph: Graph
) -> None:
    """The other process restores the missing file after the paused repair has given up the write."""
    _, file, data = raw.undo_without_a_way_back(children, graph)
    child = paused("repair_all", Failpoint.REPAIR_SIDECAR_CHECKED)
    file.write_bytes(data)
    put(graph, MANY, NODES)
    child.go_on().ok()
    assert_repaired(graph, [*SEED, "seen", *MANY])


# Creating a graph


@pytest.mark.parametrize(
    "point", [Failpoint.INIT_CLAIMED, Failpoint.INIT_SCHEMA_WRITTEN, Failpoint.INIT_TABLES_CREATED]
)
def test_a_paused_init_keeps_a_graph_that_another_process_created(
    paused: Callable[..., Paused], place: Path, point: Failpoint
) -> None:
    """A user took the claim of the paused process for that of a dead one, and removed it."""
    child = paused("create", point)
    (place / "__init_claim.json").unlink()
    with init(place, SCHEMA, force=True) as graph:
        put(graph, MANY, NODES)
    assert child.go_on().error in ("AlreadyInitializedError", "InitializationCommittedError")
    with open(place) as after:
        assert ids(after) == MANY
        put(after, ["more"], NODES)
        assert_whole(after)


# Every lease check is followed by a failpoint

HARMLESS = {
    ("commit/attempts.py", "_attempt"): "nothing follows but a decision; the publish is refused for a lower fence",
    ("commit/attempts.py", "_check_heads"): "`settle_late_versions` follows, which checks again before each table",
    ("commit/recovery.py", "recover_branch"): "files are set aside by etag: only those that were looked at go",
    ("commit/publish.py", "commit_staged"): "the files are named by the operation; whoever settles that removes them",
    ("commit/publish.py", "_finish"): "`settle` follows, which passes `recovery_started` first",
    (
        "commit/location.py",
        "adopt_location",
    ): "leases go by etag, and records by unique names; all write the same stamp",
    ("upkeep/backup.py", "_exclusive_copy"): "whoever has the lease by then finds it lost at its next check, and stops",
    ("upkeep/backup.py", "run"): "references go by etag, if no later copy has begun; the rest is only added to a copy",
}
"""Lease checks without a failpoint after them, and why a late action is harmless there."""


def _unpaused(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    """The lease checks in a function that are not followed at once by a failpoint."""
    for node in ast.walk(function):
        for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            if not isinstance(body, list):
                continue
            for statement, following in zip_longest(body, body[1:]):
                called = statement.value if isinstance(statement, ast.Expr) else None
                if isinstance(called, ast.Call) and _is_check(called):
                    follows = "" if following is None else ast.unparse(following)
                    if not follows.startswith("reach(Failpoint."):
                        yield called


def _is_check(node: ast.AST) -> bool:
    """Whether a node is `held.check()`, or a call of `check` on an attribute named `held`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "check":
        return False
    holder = node.func.value
    return (isinstance(holder, ast.Name) and holder.id == "held") or (
        isinstance(holder, ast.Attribute) and holder.attr == "held"
    )


def test_every_lease_check_is_followed_by_a_failpoint() -> None:
    """A new check needs a failpoint right after it and a test here, or a reason why a late action is harmless."""
    source = Path(omnigraph.__file__).parent
    checks, statements, unpaused = 0, 0, set()
    for file in sorted(source.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "held" not in text:
            continue
        module = ast.parse(text)
        checks += sum(_is_check(node) for node in ast.walk(module))
        statements += sum(isinstance(node, ast.Expr) and _is_check(node.value) for node in ast.walk(module))
        for function in ast.walk(module):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(_unpaused(function)):
                unpaused.add((str(file.relative_to(source)), function.name))
    assert checks == statements > 0, "a check is a statement of its own, so that a place can follow it"
    assert unpaused == set(HARMLESS)


def test_the_kill_matrix_page_lists_every_pause() -> None:
    """Each failpoint right after a check has a case here or in the tests of cleanup."""
    checked = {point for point in Failpoint if point.value.endswith("_checked")}
    assert checked | set(_after_checks()) <= set(PAUSES)


def _after_checks() -> Iterator[Failpoint]:
    """The failpoints that follow lease checks."""
    for file in Path(omnigraph.__file__).parent.rglob("*.py"):
        for name in re.findall(r"held\.check\(\)\n\s*reach\(Failpoint\.(\w+)\)", file.read_text(encoding="utf-8")):
            yield Failpoint[name]


def test_a_paused_writer_that_lost_its_lease_waits_for_the_next_one(
    paused: Callable[..., Paused], children: Children, graph: Graph, tmp_path: Path
) -> None:
    """The current lease owner has moved a table and not published yet: that does not count as drift."""
    slow = paused("write", Failpoint.LEASED, writes=[("node:A", "append", ["slow"])])
    sign = tmp_path / "other"
    other = children.start(
        "write",
        failpoint=f"{Failpoint.TABLES_COMMITTED}=hold:{sign}",
        uri=graph.uri,
        ttl=TTL,
        writes=[("node:A", "append", ["other"])],
    )
    until(sign.exists)
    threading.Timer(2, sign.unlink).start()
    ending = slow.go_on()
    children.wait(other).ok()
    ending.ok()
    with whole_afterwards(graph):
        assert ids(graph) == sorted([*SEED, "slow", "other"])
