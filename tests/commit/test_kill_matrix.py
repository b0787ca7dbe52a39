"""A killed write is visible completely or not at all, for every writer and every failpoint."""

from __future__ import annotations

import signal
from dataclasses import replace
from datetime import timedelta
from inspect import isabstract, isclass
from pathlib import Path

import pytest
from tests.commit import raw
from tests.commit.child import Children
from tests.commit.graphs import (
    NODES,
    SCHEMA,
    SEED,
    TABLES,
    Operation,
    assert_whole,
    contents,
    create,
    ids,
    put,
    sidecars,
    table_write,
)
from tests.commit.matrix import (
    BRANCH_CREATION_POINTS,
    BRANCH_DELETION_POINTS,
    BRANCH_RESET_POINTS,
    CLEANUP_POINTS,
    COPY_POINTS,
    ELSEWHERE,
    INIT_POINTS,
    LATE_VERSION_POINTS,
    MIGRATION_POINTS,
    OPTIMIZE_POINTS,
    PAGE,
    PLACE_POINTS,
    RECOVERY_POINTS,
    REPAIR_POINTS,
    TAG_POINTS,
    TRANSACTION_POINTS,
    WRITE_POINTS,
    Kill,
    Outcome,
    Write,
    kills,
    outcome,
    page,
    writes,
)
from tests.sampling import sampled

from omnigraph.commit import table_writes
from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.recovery import RECOVERY_ACTOR
from omnigraph.commit.sidecar import WriterKind
from omnigraph.errors import AlreadyInitializedError, BranchNotFoundError, NotFoundError
from omnigraph.graph import Graph, init, open

CORE = [Write(WriterKind.LOAD, Operation.APPEND, TABLES, forks) for forks in (False, True)]

DELETE = Write(WriterKind.MUTATION, Operation.DELETE, NODES, forks=False)


def _every() -> list[object]:
    """All writes at all failpoints. The core set always runs; of the others, one in three outside `make soak`."""
    pairs = [(write, kill) for write in writes() for kill in kills(write)]
    return [
        pytest.param(write, kill, id=f"{write}-{kill}", marks=() if write in CORE else sampled(number, 3))
        for number, (write, kill) in enumerate(pairs)
    ]


def _kill(children: Children, graph: Graph, write: Write, kill: Kill) -> None:
    """Run a write in a child process and kill it."""
    branch = "dev" if write.forks else "main"
    if write.forks:
        graph.branches.create("dev")
    ending = children.run(
        "write",
        failpoint=kill.setting,
        uri=graph.uri,
        branch=branch,
        kind=write.kind.value,
        actor="act-kim",
        writes=[(key, write.operation.value, write.ids) for key in write.tables],
    )
    assert ending.signal == signal.SIGKILL, f"{kill} was not reached: {ending}"


def _check(graph: Graph, write: Write, expected: Outcome) -> None:
    branch = "dev" if write.forks else "main"
    shown = contents(graph, branch)
    after = write.after if expected.visible else sorted(SEED)
    assert shown == {key: after if key in write.tables else sorted(SEED) for key in TABLES}
    if write.forks:
        assert contents(graph) == {key: sorted(SEED) for key in TABLES}, "main is as it was"
    assert_whole(graph)
    kinds = [record.kind for record in graph.recovery.list()]
    settled = RecoveryKind.ROLLED_FORWARD if expected.visible else RecoveryKind.ROLLED_BACK
    assert kinds == ([settled] if expected.audited else [])
    head = graph.snapshot(branch=branch).commit
    if expected.visible:
        assert (head.actor, head.writer) == ("act-kim", write.kind.value)
    put(graph, ["next"], TABLES, branch=branch)
    assert_whole(graph)
    assert contents(graph, branch) == {key: sorted([*shown[key], "next"]) for key in TABLES}


@pytest.mark.slow
@pytest.mark.parametrize(("write", "kill"), _every())
def test_a_killed_write_is_visible_completely_or_not_at_all(
    children: Children, place: Path, write: Write, kill: Kill
) -> None:
    expected = outcome(write, kill)
    with create(place) as graph:
        _kill(children, graph, write, kill)
        assert bool(sidecars(graph)) is expected.audited
    with open(place) as reopened:
        _check(reopened, write, expected)


@pytest.mark.parametrize("forks", [False, True], ids=["main", "branch"])
@pytest.mark.parametrize("kill", list(kills(DELETE)), ids=str)
def test_the_next_write_of_an_open_handle_runs_recovery(
    children: Children, place: Path, kill: Kill, forks: bool
) -> None:
    """The graph need not be opened again."""
    write = replace(DELETE, forks=forks)
    expected = outcome(write, kill)
    with create(place) as graph:
        branch = "dev" if forks else "main"
        _kill(children, graph, write, kill)
        put(graph, ["next"], ["edge:AB"], branch=branch, operation=Operation.OVERWRITE, replayable=False)
        after = write.after if expected.visible else sorted(SEED)
        wanted = {key: after if key in NODES else sorted(SEED) for key in TABLES} | {"edge:AB": ["next"]}
        assert contents(graph, branch) == wanted
        assert_whole(graph)
        assert len(graph.recovery.list()) == expected.audited


@pytest.mark.parametrize("forks", [False, True], ids=["main", "branch"])
@pytest.mark.parametrize("first", [Kill(Failpoint.TABLE_COMMITTED), Kill(Failpoint.TABLES_COMMITTED)], ids=str)
@pytest.mark.parametrize("point", RECOVERY_POINTS)
def test_a_killed_recovery_has_the_same_outcome_when_it_is_repeated(
    children: Children, place: Path, point: Failpoint, first: Kill, forks: bool
) -> None:
    """Recovery that is killed any number of times has the same outcome, with one row in the audit."""
    write = Write(WriterKind.MUTATION, Operation.UPSERT, NODES[:2], forks)
    expected = outcome(write, first)
    with create(place) as graph:
        _kill(children, graph, write, first)
        for _ in range(2):
            ending = children.run("reopen", failpoint=f"{point}=kill", uri=str(place))
            passes = point is not Failpoint.RECOVERY_RESTORED or not expected.visible
            assert ending.signal == (signal.SIGKILL if passes else 0)
            if not passes:
                break
    with open(place) as reopened:
        undone = [commit for commit in reopened.commits.list().commits if commit.actor == RECOVERY_ACTOR]
        assert len(undone) <= 2 if point is Failpoint.RECOVERY_RESTORED else len(undone) <= 1
        _check(reopened, write, expected)


@pytest.mark.parametrize("point", INIT_POINTS)
def test_a_killed_init_leaves_a_graph_or_a_place_for_one(children: Children, place: Path, point: Failpoint) -> None:
    assert children.run("create", failpoint=f"{point}=kill", uri=str(place)).signal == signal.SIGKILL
    if point is Failpoint.INIT_COMMITTED:
        with pytest.raises(AlreadyInitializedError):
            init(place, SCHEMA, force=True)
    else:
        with pytest.raises(NotFoundError):
            open(place)
        if point is not Failpoint.INIT_CLAIMED:
            with pytest.raises(AlreadyInitializedError, match="but no graph"):
                init(place, SCHEMA)
        init(place, SCHEMA, force=point is not Failpoint.INIT_CLAIMED).close()
    with open(place) as graph:
        put(graph, SEED, TABLES)
        assert contents(graph) == {key: sorted(SEED) for key in TABLES}
        assert_whole(graph)


@pytest.mark.parametrize("point", BRANCH_CREATION_POINTS)
def test_a_killed_branch_creation_leaves_a_working_branch_or_none(
    children: Children, place: Path, point: Failpoint
) -> None:
    with create(place) as graph:
        job = {"uri": str(place), "name": "dev"}
        assert children.run("create_branch", failpoint=f"{point}=kill", **job).signal == signal.SIGKILL
        if point is Failpoint.BRANCH_REF_CREATED:
            assert "dev" in graph.branches
        else:
            assert "dev" not in graph.branches
            graph.branches.create("dev")
        assert contents(graph, "dev") == contents(graph)
        put(graph, ["again"], NODES, branch="dev")
        assert_whole(graph)


@pytest.mark.parametrize("written", [False, True], ids=["fresh", "written"])
@pytest.mark.parametrize("point", BRANCH_DELETION_POINTS)
def test_a_killed_branch_deletion_leaves_a_working_branch_or_none(
    children: Children, place: Path, point: Failpoint, written: bool
) -> None:
    with create(place) as graph:
        graph.branches.create("dev")
        if written:
            put(graph, ["mine"], NODES, branch="dev")
        before = contents(graph, "dev")
        job = {"uri": str(place), "name": "dev"}
        assert children.run("delete_branch", failpoint=f"{point}=kill", **job).signal == signal.SIGKILL
        if point is Failpoint.BRANCH_DELETE_CHECKED:
            assert contents(graph, "dev") == before
            graph.branches.delete("dev")
        with pytest.raises(BranchNotFoundError):
            graph.snapshot(branch="dev")
        assert "dev" not in graph.branches
        graph.branches.create("dev")
        assert contents(graph, "dev") == contents(graph)
        put(graph, ["again"], NODES, branch="dev")
        assert_whole(graph)
    with open(place) as reopened:
        assert_whole(reopened)
        assert reopened.recovery.list() == []


@pytest.mark.parametrize("written", [False, True], ids=["fresh", "written"])
@pytest.mark.parametrize("point", [*TAG_POINTS[:2], *BRANCH_RESET_POINTS])
def test_a_killed_reset_leaves_the_old_branch_or_the_new_one(
    children: Children, place: Path, point: Failpoint, written: bool
) -> None:
    """The branch is readable and writable at once, without recovery, and its old head has a tag before it moves."""
    with create(place) as graph:
        start = graph.snapshot().commit.id
        put(graph, ["later"], NODES)
        graph.branches.create("dev")
        if written:
            put(graph, ["mine"], NODES, branch="dev")
        before, head = contents(graph, "dev"), graph.branch("dev").head.id
        view = graph.snapshot(commit=start)
        after = {key: sorted(view.scan(key)["id"].to_pylist()) for key in TABLES}
        job = {"uri": str(place), "name": "dev", "commit": start}
        assert children.run("reset_branch", failpoint=f"{point}=kill", **job).signal == signal.SIGKILL
        done = point in (Failpoint.BRANCH_RESET_CLOSED, Failpoint.BRANCH_RESET_DONE)
        assert contents(graph, "dev") == (after if done else before)
        with open(place, read_only=True) as reader:
            assert contents(reader, "dev") == (after if done else before)
            assert [branch.name for branch in reader.branches] == ["main", "dev"]
        assert [tag.commit_id for tag in graph.tags] == ([] if point is Failpoint.TAG_CREATE_CHECKED else [head])
        graph.cleanup(keep=0, orphans_older_than=timedelta(0))
        assert contents(graph, "dev") == (after if done else before)
        put(graph, ["again"], NODES, branch="dev")
        shown = after if done else before
        assert contents(graph, "dev") == {k: sorted([*v, *(["again"] if k in NODES else [])]) for k, v in shown.items()}
        assert_whole(graph)
        again = graph.branches.reset("dev", head)
        assert (again.head, contents(graph, "dev")) == (head, before)
        assert_whole(graph)
    with open(place) as reopened:
        assert contents(reopened, "dev") == before
        assert reopened.recovery.list() == []


@pytest.mark.parametrize("point", TAG_POINTS)
def test_a_killed_tag_operation_is_done_completely_or_not_at_all(
    children: Children, place: Path, point: Failpoint
) -> None:
    with create(place) as graph:
        job = {"uri": str(place), "name": "v1"}
        if point is Failpoint.TAG_DELETE_CHECKED:
            graph.tags.create("v1")
        verb = "delete_tag" if point is Failpoint.TAG_DELETE_CHECKED else "create_tag"
        assert children.run(verb, failpoint=f"{point}=kill", **job).signal == signal.SIGKILL
        assert [tag.name for tag in graph.tags] == ([] if point is Failpoint.TAG_CREATE_CHECKED else ["v1"])
        assert_whole(graph)


@pytest.mark.parametrize("point", LATE_VERSION_POINTS)
def test_a_killed_roll_back_of_a_late_version_can_be_repeated(
    children: Children, place: Path, point: Failpoint
) -> None:
    with create(place) as graph:
        put(graph, ["kept"])
        raw.restore_late(graph, "node:A", 1)
        job = {"uri": str(place), "writes": [("node:A", "append", ["died"])]}
        assert children.run("write", failpoint=f"{point}=kill", **job).signal == signal.SIGKILL
        put(graph, ["after"])
        assert ids(graph) == sorted([*SEED, "kept", "after"])
        assert_whole(graph)


def test_every_failpoint_is_exercised() -> None:
    """Each test above, and that of cleanup, asserts that its child was killed at the named failpoint."""
    exercised = {kill.point for write in CORE for kill in kills(write)}
    assert exercised == set(WRITE_POINTS)
    others = {*RECOVERY_POINTS, *INIT_POINTS, *TRANSACTION_POINTS, *CLEANUP_POINTS, *OPTIMIZE_POINTS}
    others |= {*BRANCH_CREATION_POINTS, *BRANCH_DELETION_POINTS, *TAG_POINTS, *MIGRATION_POINTS, *REPAIR_POINTS}
    others |= {*PLACE_POINTS, *COPY_POINTS, *LATE_VERSION_POINTS, *BRANCH_RESET_POINTS}
    assert exercised | others == set(Failpoint)


def test_every_writer_kind_is_killed() -> None:
    assert {write.kind for write in writes()} == set(WriterKind)
    assert {write.operation for write in writes()} == set(Operation)
    made = {type(table_write("node:A", operation, ["x"])) for operation in Operation}
    kinds = {
        kind for kind in vars(table_writes).values() if isclass(kind) and issubclass(kind, table_writes.TableWrite)
    }
    assert made | set(ELSEWHERE) == {kind for kind in kinds if not isabstract(kind)}


def test_the_kill_matrix_page_is_up_to_date() -> None:
    print(page())  # noqa: T201 - the table, for whoever runs this with -s
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.commit.matrix"
