"""A reset moves a branch to another commit, and a tag keeps its previous head."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.commit.graphs import NODES, SEED, assert_whole, create, ids, put

from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.commit.refs import find_branch
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    InputError,
    NotFoundError,
    PreconditionFailedError,
    ReadOnlyError,
    ReadSetChangedError,
    VersionReclaimedError,
)
from omnigraph.graph import Graph, open


@pytest.fixture
def graph(place: Path) -> Graph:
    made = create(place)
    made.branches.create("dev")
    for name in ("first", "second"):
        put(made, [name], NODES, branch="dev")
    return made


def test_the_later_commits_leave_the_branch_and_keep_a_tag(graph: Graph) -> None:
    head, first = graph.branch("dev").head, list(graph.branch("dev").commits)[1]
    preview = graph.branches.reset("dev", first.id, preview=True)
    assert (preview.preview, graph.branch("dev").head.id) == (True, head.id)
    done = graph.branches.reset("dev", first.id, expect_head=head.id)
    assert done.to_json() == {**preview.to_json(), "preview": False}
    assert (done.head, done.previous_head, done.commits_removed) == (first.id, head.id, 1)
    assert done.tag == f"dev-before-reset-{head.id}"
    assert ids(graph, branch="dev") == sorted([*SEED, "first"])
    assert sorted(graph.snapshot(commit=done.tag).scan("node:A")["id"].to_pylist()) == sorted(
        [*SEED, "first", "second"]
    )
    assert graph.commits.get(head.id) == head, "a tag keeps the history readable"
    put(graph, ["third"], NODES, branch="dev")
    assert_whole(graph)
    assert graph.branches.reset("dev", done.tag).head == head.id, "a reset can be undone"
    assert ids(graph, branch="dev") == sorted([*SEED, "first", "second"])


def test_a_lost_commit_can_be_picked_after_the_reset(graph: Graph) -> None:
    head = graph.branch("dev").head
    graph.branches.reset("dev", graph.branch("main").head.id)
    graph.cherry_pick(head.id, "dev")
    assert ids(graph, branch="dev") == sorted([*SEED, "second"])


def test_a_reset_to_the_head_does_nothing(graph: Graph) -> None:
    head = graph.branch("dev").head.id
    done = graph.branches.reset("dev", head)
    assert (done.is_changed, done.tag, list(graph.tags)) == (False, None, [])


def test_main_and_unknown_names_are_refused(graph: Graph) -> None:
    head = graph.branch("dev").head.id
    with pytest.raises(InputError, match="'main' cannot be reset") as refused:
        graph.branches.reset("main", head)
    assert "revert" in (refused.value.hint or "")
    with pytest.raises(BranchNotFoundError):
        graph.branches.reset("nowhere", head)
    with pytest.raises(NotFoundError):
        graph.branches.reset("dev", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    for preview in (True, False):
        with pytest.raises(PreconditionFailedError):
            graph.branches.reset(
                "dev", graph.branch("main").head.id, expect_head="01ARZ3NDEKTSV4RRFFQ69G5FAV", preview=preview
            )
    with open(graph.uri, read_only=True) as reader, pytest.raises(ReadOnlyError):
        reader.branches.reset("dev", head)


def test_children_of_the_old_branch_stay_whole(graph: Graph) -> None:
    graph.branches.create("child", source="dev")
    put(graph, ["third"], NODES, branch="child")
    done = graph.branches.reset("dev", graph.branch("main").head.id)
    assert done.tag is not None
    graph.tags.delete(done.tag)
    graph.cleanup(keep=0, orphans_older_than=timedelta(0))
    assert ids(graph, branch="child") == sorted([*SEED, "first", "second", "third"])
    put(graph, ["fourth"], NODES, branch="child")
    assert graph.merge("child", "dev").outcome == "fast_forward"
    assert ids(graph, branch="dev") == sorted([*SEED, "first", "second", "third", "fourth"])
    with pytest.raises(ConflictError, match="branches were created from it: child"):
        graph.branches.delete("dev")
    assert graph.verify(branch="child").ok


def test_a_transaction_that_began_before_the_reset_is_refused(graph: Graph) -> None:
    transaction = graph.branch("dev").transaction()
    tx = transaction.__enter__()
    tx.mutate('query q() { insert A { k: "late" } }')
    graph.branches.reset("dev", graph.branch("main").head.id)
    with pytest.raises(ReadSetChangedError):
        transaction.__exit__(None, None, None)
    assert ids(graph, branch="dev") == sorted(SEED)


def test_an_idempotency_key_of_the_old_branch_does_not_count(graph: Graph) -> None:
    add = 'query q() { insert A { k: "x" } }'
    first = graph.mutate(add, branch="dev", idempotency_key="k").commit
    graph.branches.reset("dev", graph.branch("main").head.id)
    again = graph.mutate(add, branch="dev", idempotency_key="k").commit
    assert first is not None
    assert again is not None
    assert first.id != again.id


@pytest.mark.parametrize("reopen", [False, True])
def test_an_interrupted_reset_is_completed_by_the_next_change(graph: Graph, reopen: bool) -> None:
    """The reference still names the old incarnation, but every reader and writer uses the new one."""
    start = graph.branch("main").head.id
    with armed(Failpoint.BRANCH_RESET_CLOSED, "crash"), pytest.raises(SimulatedCrashError):
        graph.branches.reset("dev", start)
    stored = find_branch(graph.session.store.objects, "dev")
    assert stored is not None
    assert stored.successors
    reader = open(graph.uri) if reopen else graph
    assert ids(reader, branch="dev") == sorted(SEED)
    put(reader, ["new"], NODES, branch="dev")
    assert [(branch.name, branch.parent) for branch in reader.branches] == [("main", None), ("dev", "main")]
    reader.branches.reset("dev", start)
    stored = find_branch(graph.session.store.objects, "dev")
    assert stored is not None
    assert not stored.successors
    assert ids(reader, branch="dev") == sorted(SEED)


def test_a_branch_whose_reset_was_interrupted_can_be_deleted_copied_and_merged(graph: Graph, tmp_path: Path) -> None:
    start = graph.branch("main").head.id
    with armed(Failpoint.BRANCH_RESET_CLOSED, "crash"), pytest.raises(SimulatedCrashError):
        graph.branches.reset("dev", start)
    graph.backup(tmp_path / "copy")
    with open(tmp_path / "copy") as copy:
        assert ids(copy, branch="dev") == sorted(SEED)
        put(copy, ["there"], NODES, branch="dev")
        assert_whole(copy)
    put(graph, ["new"], NODES, branch="dev")
    assert graph.merge("dev").outcome == "fast_forward"
    graph.branches.delete("dev")
    assert [branch.name for branch in graph.branches] == ["main"]
    graph.branches.create("dev")
    assert ids(graph, branch="dev") == sorted([*SEED, "new"])
    assert_whole(graph)


def test_a_long_branch_name_gets_a_shorter_tag(graph: Graph) -> None:
    name = "feature/" + "x" * 180
    graph.branches.create(name, source="dev")
    put(graph, ["third"], NODES, branch=name)
    done = graph.branches.reset(name, graph.branch("main").head.id)
    assert done.tag == f"before-reset-{done.previous_head}"


def test_a_reset_to_a_commit_that_cleanup_has_removed_is_refused_and_leaves_no_tag(graph: Graph) -> None:
    first = graph.branch("dev").head.id
    put(graph, ["later"], NODES, branch="dev")
    put(graph, ["last"], NODES, branch="dev")
    head = graph.branch("dev").head.id
    graph.cleanup(keep=0, orphans_older_than=timedelta(0))
    with pytest.raises(VersionReclaimedError):
        graph.branches.reset("dev", first)
    assert graph.branch("dev").head.id == head
    assert list(graph.tags) == []
