"""The receipt and the commit of a merge, repeated requests, and deletion of the merged branch."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.commit.manifest import commit_json
from omnigraph.errors import BranchNotFoundError, InputError, PreconditionFailedError, ReadOnlyError
from omnigraph.graph import Graph


@pytest.fixture
def graph(place: Path) -> Graph:
    made = omnigraph.init(place, "node Person { name: String @key  age: I64? }", actor="act-kim")
    made.branches.create("side")
    _add(made, "ann", "side")
    return made


def _add(graph: Graph, name: str, branch: str = "main") -> None:
    graph.mutate(f'query q() {{ insert Person {{ name: "{name}" }} }}', branch=branch)


def test_the_receipt_shows_outcome_commits_and_changes(graph: Graph) -> None:
    side, main = graph.branch("side").head, graph.branch("main").head
    receipt = graph.merge("side", message="review is done", labels={"ticket": "7"})
    commit = graph.branch("main").head
    assert receipt.to_json() == {
        "source": "side",
        "target": "main",
        "outcome": "fast_forward",
        "source_commit_id": side.id,
        "base_commit_id": main.id,
        "base_commit_ids": [main.id],
        "preview": False,
        "changes": {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}},
        "resolved": 0,
        "edges_kept": 0,
        "left_out": [],
        "merge_conflicts": [],
        "total_conflicts": 0,
        "engine": "local",
        "actor_id": "act-kim",
        "commit": commit_json(commit),
    }
    assert (commit.parent, commit.merged_parent, commit.writer) == (main.id, side.id, "BranchMerge")
    assert (commit.message, dict(commit.labels)["ticket"]) == ("review is done", "7")
    again = graph.merge("side")
    assert (again.outcome, again.commit, again.changes) == ("already_up_to_date", None, {})


def test_a_repeated_merge_request_returns_the_first_receipt(graph: Graph) -> None:
    first = graph.merge("side", idempotency_key="merge 1")
    _add(graph, "bob", "side")
    assert graph.merge("side", idempotency_key="merge 1") == first
    assert graph.merge("side", idempotency_key="merge 2").changes["node:Person"].inserted == 1
    with pytest.raises(InputError, match="another merge of 'side'"):
        graph.merge("side", strategy="ours", idempotency_key="merge 1")
    with pytest.raises(InputError, match="BranchMerge"):
        graph.mutate('query q() { insert Person { name: "x" } }', idempotency_key="merge 1")


def test_a_wrong_expected_head_or_branch_is_refused(graph: Graph) -> None:
    with pytest.raises(PreconditionFailedError):
        graph.merge("side", expect_head="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    with pytest.raises(PreconditionFailedError):
        graph.merge("side", expect_head="01ARZ3NDEKTSV4RRFFQ69G5FAV", preview=True)
    graph.merge("side", expect_head=graph.branch("main").head.id)
    with pytest.raises(BranchNotFoundError):
        graph.merge("sid")
    with pytest.raises(BranchNotFoundError):
        graph.merge("side", into="nowhere")
    with omnigraph.open(graph.uri, read_only=True) as reader, pytest.raises(ReadOnlyError):
        reader.merge("side")


def test_a_merge_can_delete_its_source(graph: Graph) -> None:
    assert graph.merge("side", delete_branch=True).branch_deleted is True
    assert "side" not in graph.branches
    graph.branches.create("same")
    receipt = graph.merge("same", delete_branch=True)
    assert (receipt.outcome, receipt.branch_deleted) == ("already_up_to_date", True)


def test_a_repeated_merge_deletes_the_source_that_the_first_request_left(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request was interrupted between its commit and the deletion."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("omnigraph.engine.merge.remove_branch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            graph.merge("side", delete_branch=True, idempotency_key="merge 1")
    assert "side" in graph.branches
    for _ in range(2):
        assert graph.merge("side", delete_branch=True, idempotency_key="merge 1").branch_deleted is True
        assert "side" not in graph.branches
    graph.branches.create("side")
    assert graph.merge("side", delete_branch=True, idempotency_key="merge 1").branch_deleted is False
    assert "side" in graph.branches, "another branch of the same name was deleted"


def test_a_repeated_merge_does_not_delete_a_new_branch_with_the_same_head(graph: Graph) -> None:
    graph.branches.create("release")
    _add(graph, "bob")
    graph.branches.create("dev")

    def repeated() -> omnigraph.MergeReceipt:
        return graph.merge("dev", into="release", delete_branch=True, idempotency_key="merge 1")

    first = repeated()
    assert first.branch_deleted is True
    graph.branches.create("dev")
    assert graph.branch("dev").head.id == first.source_commit
    again = repeated()
    assert (again.commit, again.branch_deleted) == (first.commit, False)
    assert again.branch_delete_error == "'dev' was created again or reset since the merge"
    assert "dev" in graph.branches


def test_a_failed_deletion_of_the_source_does_not_undo_the_merge(graph: Graph) -> None:
    graph.branches.create("child", source="side")
    receipt = graph.merge("side", delete_branch=True)
    assert (receipt.outcome, receipt.branch_deleted) == ("fast_forward", False)
    assert receipt.branch_delete_error == "branch 'side' cannot be deleted: branches were created from it: child"
    assert receipt.to_json()["branch_deleted"] is False
    assert graph.entity("Person", "ann") is not None


def test_a_branch_handle_can_merge(graph: Graph) -> None:
    _add(graph, "bob")
    assert graph.branch("side").merge("main").outcome == "merged"
    assert graph.branch("side").entity("Person", "bob") is not None
    assert graph.entity("Person", "ann") is None
