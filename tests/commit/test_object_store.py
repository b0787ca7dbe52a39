"""A graph in an object store has the same guarantees as one on disk."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
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
)
from tests.s3_server import S3Root

from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.refs import branch_ref_path
from omnigraph.errors import BranchNotFoundError, ConflictError, NotFoundError, StorageError
from omnigraph.graph import Graph, init, open

pytestmark = pytest.mark.s3


@pytest.fixture
def graph(s3_root: S3Root) -> Iterator[Graph]:
    with create(s3_root.uri, s3_root.options) as made:
        yield made


def test_every_operation_works_in_an_object_store(graph: Graph) -> None:
    """On `main` and on a branch, through cached dataset handles of earlier commits."""
    graph.branches.create("x/y")
    for branch in ("main", "x/y"):
        put(graph, ["a"], NODES, branch=branch)
        put(graph, ["a", "b"], NODES, branch=branch, operation=Operation.UPSERT)
        put(graph, ["c"], NODES, branch=branch, operation=Operation.INSERT)
        put(graph, ["s1"], NODES, branch=branch, operation=Operation.DELETE)
        assert ids(graph, branch=branch) == ["a", "b", "c", "s2", "s3"]
        put(graph, ["z"], ["edge:AB"], branch=branch, operation=Operation.OVERWRITE)
    assert_whole(graph)


@pytest.mark.slow
@pytest.mark.parametrize("point", [Failpoint.SIDECAR_WRITTEN, Failpoint.TABLE_COMMITTED, Failpoint.BEFORE_PUBLISH])
@pytest.mark.parametrize("branch", ["main", "dev"])
def test_an_interrupted_write_in_an_object_store_is_recovered(
    graph: Graph, s3_root: S3Root, branch: str, point: Failpoint
) -> None:
    if branch == "dev":
        graph.branches.create("dev")
    with armed(point, "crash"), pytest.raises(SimulatedCrashError):
        put(graph, ["new"], NODES, branch=branch)
    assert len(sidecars(graph)) == 1
    with open(s3_root.uri, storage_options=s3_root.options) as reopened:
        finished = point is Failpoint.BEFORE_PUBLISH
        assert ids(reopened, branch=branch) == sorted([*SEED, *(["new"] if finished else [])])
        assert len(reopened.recovery.list()) == 1
        put(reopened, ["next"], TABLES, branch=branch)
        assert_whole(reopened)


@pytest.mark.slow
def test_a_killed_writer_in_an_object_store_is_recovered(children: Children, graph: Graph, s3_root: S3Root) -> None:
    job = {"uri": s3_root.uri, "options": s3_root.options, "writes": [(key, "append", ["new"]) for key in NODES]}
    assert children.run("write", failpoint="tables_committed=kill", **job).signal == signal.SIGKILL
    put(graph, ["next"], NODES)
    assert contents(graph)["node:C"] == sorted([*SEED, "new", "next"])
    assert_whole(graph)


@pytest.mark.slow
def test_branches_work_in_an_object_store(graph: Graph) -> None:
    graph.branches.create("dev")
    head = put(graph, ["own"], NODES, branch="dev")
    graph.tags.create("v1", branch="dev")
    graph.branches.create("é", commit=head.id)
    put(graph, ["more"], branch="é")
    assert ids(graph, branch="é") == sorted([*SEED, "own", "more"])
    with pytest.raises(ConflictError):
        graph.branches.delete("dev")
    with pytest.raises(ConflictError):
        graph.tags.create("v1")
    graph.branches.delete("é")
    graph.tags.delete("v1")
    graph.branches.delete("dev")
    with pytest.raises(BranchNotFoundError):
        graph.snapshot(branch="dev")
    graph.branches.create("dev")
    assert ids(graph, branch="dev") == sorted(SEED)
    assert_whole(graph)


@pytest.mark.slow
def test_files_without_a_reference_are_not_a_branch(graph: Graph) -> None:
    graph.branches.create("dev")
    put(graph, ["old"], branch="dev")
    graph.session.store.objects.delete(branch_ref_path("dev"))
    with pytest.raises(BranchNotFoundError):
        graph.snapshot(branch="dev")
    graph.branches.create("dev")
    put(graph, ["new"], branch="dev")
    assert ids(graph, branch="dev") == sorted([*SEED, "new"])
    assert_whole(graph)


def test_an_unreachable_store_does_not_count_as_empty(graph: Graph, s3_root: S3Root) -> None:
    """Otherwise `init` would overwrite an existing graph."""
    options = {**s3_root.options, "endpoint": "http://127.0.0.1:9", "max_retries": "0"}
    attempts: list[Callable[[], object]] = [
        lambda: open(s3_root.uri, read_only=True, storage_options=options),
        lambda: open(s3_root.uri, storage_options=options),
        lambda: init(s3_root.uri, SCHEMA, storage_options=options, force=True),
    ]
    for attempt in attempts:
        with pytest.raises(StorageError):
            attempt()
    with pytest.raises(NotFoundError):
        open(f"{s3_root.uri}/nothing-here", storage_options=s3_root.options)
    assert ids(graph) == sorted(SEED)


@pytest.mark.parametrize("point", [None, Failpoint.BRANCH_RESET_INTENDED, Failpoint.BRANCH_RESET_CLOSED])
def test_a_branch_in_an_object_store_is_reset(graph: Graph, s3_root: S3Root, point: Failpoint | None) -> None:
    start = graph.snapshot().commit.id
    graph.branches.create("dev")
    put(graph, ["mine"], NODES, branch="dev")
    if point is None:
        graph.branches.reset("dev", start)
    else:
        with armed(point, "crash"), pytest.raises(SimulatedCrashError):
            graph.branches.reset("dev", start)
    with open(s3_root.uri, storage_options=s3_root.options) as other:
        done = point is not Failpoint.BRANCH_RESET_INTENDED
        assert ids(other, branch="dev") == sorted([*SEED, *([] if done else ["mine"])])
        put(other, ["next"], NODES, branch="dev")
        head = other.branch("dev").head.id
        assert other.branches.reset("dev", start).previous_head == head
        assert ids(other, branch="dev") == sorted(SEED)
        assert_whole(other)
