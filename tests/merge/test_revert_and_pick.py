"""Reverts and cherry-picks: their states, their commits, their conflicts, and the commits that they refuse."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.commit.graphs import evolve_to

import omnigraph
from omnigraph.commit.manifest import Commit, commit_json
from omnigraph.errors import (
    ConflictKind,
    InputError,
    MergeSchemaError,
    NotFoundError,
    PickConflictsError,
    PreconditionFailedError,
    ReadOnlyError,
    VersionReclaimedError,
)
from omnigraph.graph import Graph

SCHEMA = """
node Person { name: String @key  age: I64?  mail: String? @unique }
edge Knows: Person -> Person { since: I64? }
"""


@pytest.fixture
def graph(place: Path) -> Graph:
    return omnigraph.init(place, SCHEMA, actor="act-kim")


def _do(graph: Graph, text: str, branch: str = "main", **options: str) -> Commit:
    commit = graph.mutate(f"query q() {{ {text} }}", branch=branch, **options).commit  # type: ignore[arg-type]
    assert commit is not None
    return commit


def _ages(graph: Graph, branch: str = "main") -> dict[str, int | None]:
    rows = graph.snapshot(branch=branch).scan("node:Person", columns=["id", "age"])
    return dict(zip(rows["id"].to_pylist(), rows["age"].to_pylist(), strict=True))


def _edges(graph: Graph, branch: str = "main") -> set[tuple[str, str]]:
    rows = graph.snapshot(branch=branch).scan("edge:Knows", columns=["src", "dst"])
    return set(zip(rows["src"].to_pylist(), rows["dst"].to_pylist(), strict=True))


def test_a_revert_undoes_one_commit_and_keeps_later_ones(graph: Graph) -> None:
    _do(graph, 'insert Person { name: "ann", age: 1 }')
    wrong = _do(graph, 'update Person set { age: 2 } where name = "ann"', message="make ann older\n\nmore")
    last = _do(graph, 'insert Person { name: "bob", age: 5 }')
    receipt = graph.revert(wrong.id, labels={"ticket": "7"})
    head = graph.branch("main").head
    assert _ages(graph) == {"ann": 1, "bob": 5}
    assert receipt.to_json() == {
        "commit_id": wrong.id,
        "parent_id": wrong.parent,
        "branch": "main",
        "outcome": "reverted",
        "preview": False,
        "changes": {"node:Person": {"inserted": 0, "updated": 1, "deleted": 0}},
        "resolved": 0,
        "edges_kept": 0,
        "edges_omitted": 0,
        "left_out": [],
        "merge_conflicts": [],
        "total_conflicts": 0,
        "engine": "local",
        "actor_id": "act-kim",
        "commit": commit_json(head),
    }
    assert (head.parent, head.merged_parent, head.writer) == (last.id, None, "Revert")
    labels = dict(head.labels)
    assert (head.message, labels["reverted_commit"], labels["ticket"]) == ('Revert "make ann older"', wrong.id, "7")


def test_a_revert_of_a_revert_applies_the_commit_again(graph: Graph) -> None:
    added = _do(graph, 'insert Person { name: "ann" }', message="add ann")
    once = graph.revert(added.id).commit
    assert once is not None
    twice = graph.revert(once.id).commit
    assert twice is not None
    assert (_ages(graph), twice.message) == ({"ann": None}, 'Reapply "add ann"')
    third = graph.revert(twice.id).commit
    assert third is not None
    assert (_ages(graph), third.message) == ({}, 'Revert "Reapply "add ann""')


def test_a_revert_without_an_effect_makes_no_commit(graph: Graph) -> None:
    added = _do(graph, 'insert Person { name: "ann" }')
    head = _do(graph, 'delete Person where name = "ann"')
    receipt = graph.revert(added.id)
    assert (receipt.outcome, receipt.commit, receipt.changes) == ("nothing_to_do", None, {})
    assert graph.branch("main").head.id == head.id


def test_a_restored_node_gets_its_edges_back_if_their_other_nodes_exist(graph: Graph) -> None:
    for name in ("ann", "bob", "cid"):
        _do(graph, f'insert Person {{ name: "{name}" }}')
    _do(graph, 'insert Knows { from: "ann", to: "bob" }')
    _do(graph, 'insert Knows { from: "cid", to: "ann" }')
    dropped = _do(graph, 'delete Person where name = "ann"')
    _do(graph, 'delete Person where name = "cid"')
    preview = graph.revert(dropped.id, preview=True)
    assert (preview.total_conflicts, preview.edges_omitted) == (0, 1)
    receipt = graph.revert(dropped.id)
    assert (_edges(graph), receipt.edges_omitted) == ({("ann", "bob")}, 1)
    assert graph.verify().ok


def test_a_reverted_insertion_with_later_edges_is_a_conflict_about_the_edges(graph: Graph) -> None:
    added = _do(graph, 'insert Person { name: "ann" }')
    _do(graph, 'insert Person { name: "bob" }')
    _do(graph, 'insert Knows { from: "ann", to: "bob" }')
    with pytest.raises(PickConflictsError, match=f"commit {added.id} cannot be reverted on 'main'") as caught:
        graph.revert(added.id)
    (conflict,) = caught.value.conflicts
    assert (conflict.kind, conflict.ours, conflict.base) == (
        ConflictKind.ORPHAN_EDGE,
        {"src": "ann", "dst": "bob"},
        None,
    )
    assert caught.value.commit == added.id
    assert graph.revert(added.id, strategy="ours").commit is None
    assert graph.revert(added.id, resolutions={conflict: "theirs"}).resolved == 1
    assert (_ages(graph), _edges(graph)) == ({"bob": None}, set())


def test_a_later_change_of_the_same_row_is_a_conflict_with_all_values(graph: Graph) -> None:
    _do(graph, 'insert Person { name: "ann", age: 1 }')
    wrong = _do(graph, 'update Person set { age: 2 } where name = "ann"')
    head = _do(graph, 'update Person set { age: 3 } where name = "ann"')
    (conflict,) = graph.revert(wrong.id, preview=True).conflicts
    assert (conflict.kind, conflict.base, conflict.ours, conflict.theirs) == (
        ConflictKind.DIVERGENT_UPDATE,
        {"age": 2},
        {"age": 3},
        {"age": 1},
    )
    with pytest.raises(PickConflictsError):
        graph.revert(wrong.id)
    assert graph.branch("main").head.id == head.id
    assert graph.revert(wrong.id, strategy="theirs").resolved == 1
    assert _ages(graph) == {"ann": 1}


def test_a_revert_that_breaks_a_constraint_is_refused(graph: Graph) -> None:
    _do(graph, 'insert Person { name: "ann", mail: "m" }')
    dropped = _do(graph, 'delete Person where name = "ann"')
    _do(graph, 'insert Person { name: "bob", mail: "m" }')
    with pytest.raises(PickConflictsError) as caught:
        graph.revert(dropped.id, strategy="theirs")
    assert [one.kind for one in caught.value.conflicts] == [ConflictKind.UNIQUE_VIOLATION]


def test_a_merge_is_reverted_relative_to_a_chosen_parent(graph: Graph) -> None:
    graph.branches.create("side")
    _do(graph, 'insert Person { name: "ann" }', "side")
    _do(graph, 'insert Person { name: "bob" }')
    merge = graph.merge("side").commit
    assert merge is not None
    with pytest.raises(InputError, match="is a merge") as refused:
        graph.revert(merge.id)
    assert merge.parent is not None
    assert merge.parent in (refused.value.hint or "")
    for wrong in (0, 3, True):
        with pytest.raises(InputError, match="has no parent"):
            graph.revert(merge.id, parent=wrong)
    assert graph.revert(merge.id, parent=2, preview=True).changes["node:Person"].deleted == 1
    graph.revert(merge.id, parent=1)
    assert _ages(graph) == {"bob": None}
    assert graph.merge("side").outcome == "already_up_to_date", "as in git, the merge still counts"


def test_the_first_commit_and_unknown_commits_are_refused(graph: Graph) -> None:
    first = graph.branch("main").head
    with pytest.raises(InputError, match="is the first of the graph"):
        graph.revert(first.id)
    with pytest.raises(InputError, match="has no parent 2"):
        graph.revert(_do(graph, 'insert Person { name: "ann" }').id, parent=2)
    with pytest.raises(NotFoundError):
        graph.revert("01ARZ3NDEKTSV4RRFFQ69G5FAV")
    with pytest.raises(InputError, match="is not a commit"):
        graph.revert(7)  # type: ignore[arg-type]


def test_a_schema_change_is_neither_reverted_nor_picked(place: Path) -> None:
    from tests.commit.graphs import SCHEMA as TABLES_SCHEMA
    from tests.commit.graphs import create

    graph = create(place)
    commit = evolve_to(graph, TABLES_SCHEMA + "\nnode Extra { k: String @key }\n", ["more"])
    assert commit is not None
    with pytest.raises(MergeSchemaError, match="changed the schema of 'main', so it cannot be reverted") as refused:
        graph.revert(commit.id)
    assert "omnigraph schema show --snapshot" in (refused.value.hint or "")
    with pytest.raises(MergeSchemaError, match="cannot be picked"):
        graph.cherry_pick(commit.id)


def test_a_commit_that_cleanup_removed_is_refused(graph: Graph) -> None:
    _do(graph, 'insert Person { name: "ann" }')
    wrong = _do(graph, 'update Person set { age: 2 } where name = "ann"')
    _do(graph, 'insert Person { name: "bob" }')
    graph.cleanup(keep=2, orphans_older_than=timedelta(0))
    with pytest.raises(VersionReclaimedError, match="no longer exists"):
        graph.revert(wrong.id)
    with pytest.raises(VersionReclaimedError):
        graph.revert(wrong.id, preview=True)


def test_a_cherry_pick_applies_only_the_changes_of_the_commit(graph: Graph) -> None:
    graph.branches.create("side")
    _do(graph, 'insert Person { name: "ann" }', "side")
    fix = _do(graph, 'insert Person { name: "bob", age: 4 }', "side", message="fix")
    receipt = graph.cherry_pick(fix.id)
    assert (_ages(graph), receipt.outcome) == ({"bob": 4}, "picked")
    assert receipt.commit is not None
    commit = receipt.commit
    assert (commit.message, commit.merged_parent, commit.writer) == ("fix", None, "CherryPick")
    assert dict(commit.labels)["picked_commit"] == fix.id
    assert graph.cherry_pick(fix.id).outcome == "nothing_to_do"
    assert graph.merge("side").outcome == "merged"
    assert _ages(graph) == {"ann": None, "bob": 4}


def test_a_picked_edge_without_its_node_is_a_conflict(graph: Graph) -> None:
    graph.branches.create("side")
    for name in ("ann", "bob"):
        _do(graph, f'insert Person {{ name: "{name}" }}', "side")
    edge = _do(graph, 'insert Knows { from: "ann", to: "bob" }', "side")
    with pytest.raises(PickConflictsError, match="cannot be picked on 'main'") as caught:
        graph.cherry_pick(edge.id)
    assert {one.kind for one in caught.value.conflicts} == {ConflictKind.ORPHAN_EDGE}
    graph.cherry_pick(edge.id, strategy="theirs")
    assert (_edges(graph), set(_ages(graph))) == ({("ann", "bob")}, {"ann", "bob"})


def test_a_commit_of_a_deleted_branch_is_found_in_the_history(graph: Graph) -> None:
    graph.branches.create("side")
    added = _do(graph, 'insert Person { name: "ann" }', "side")
    _do(graph, 'insert Person { name: "bob" }', "side")
    graph.merge("side", delete_branch=True)
    graph.revert(added.id)
    assert _ages(graph) == {"bob": None}


def test_a_repeated_request_returns_the_first_receipt(graph: Graph) -> None:
    added = _do(graph, 'insert Person { name: "ann" }')
    other = _do(graph, 'insert Person { name: "bob" }')
    first = graph.revert(added.id, idempotency_key="undo 1")
    _do(graph, 'insert Person { name: "ann" }')
    assert graph.revert(added.id, idempotency_key="undo 1") == first
    with pytest.raises(InputError, match=f"another revert of commit {added.id}"):
        graph.revert(other.id, idempotency_key="undo 1")
    with pytest.raises(InputError, match="a write of kind Revert"):
        graph.cherry_pick(other.id, idempotency_key="undo 1")


def test_preconditions_and_read_only_handles(graph: Graph) -> None:
    added = _do(graph, 'insert Person { name: "ann" }')
    for options in ({}, {"preview": True}):
        with pytest.raises(PreconditionFailedError):
            graph.revert(added.id, expect_head=str(added.parent), **options)  # type: ignore[arg-type]
    with omnigraph.open(graph.uri, read_only=True) as reader:
        with pytest.raises(ReadOnlyError):
            reader.revert(added.id)
        assert reader.revert(added.id, preview=True).changes["node:Person"].deleted == 1
    graph.branch("main").revert(added.id, expect_head=added.id)
    assert _ages(graph) == {}


def test_a_revert_is_an_ordinary_commit_for_later_merges(graph: Graph) -> None:
    """The branch of the reverted commit stays merged: a later merge brings only its later commits."""
    graph.branches.create("side")
    _do(graph, 'insert Person { name: "ann" }', "side")
    merge = graph.merge("side").commit
    assert merge is not None
    graph.revert(merge.id, parent=1)
    _do(graph, 'insert Person { name: "bob" }', "side")
    assert graph.merge("side").outcome == "merged"
    assert _ages(graph) == {"bob": None}
    graph.cleanup(keep=1, orphans_older_than=timedelta(0))
    assert graph.merge("main", "side").outcome == "fast_forward"
    assert _ages(graph, "side") == {"bob": None}


def test_a_preview_does_not_count_entities_with_conflicts(graph: Graph) -> None:
    graph.branches.create("side")
    _do(graph, 'insert Person { name: "ann" }  insert Person { name: "bob" }', "side")
    added = _do(graph, 'insert Knows { from: "ann", to: "bob" }', "side")
    found = graph.cherry_pick(added.id, into="main", preview=True)
    assert {conflict.kind for conflict in found.conflicts} == {ConflictKind.ORPHAN_EDGE}
    assert (dict(found.changes), found.previewed) == ({}, ())

    _do(graph, 'insert Person { name: "cyd", mail: "m" }  insert Person { name: "dan", age: 1 }')
    left = _do(graph, 'update Person set { mail: null, age: 2 } where name = "cyd" or name = "dan"')
    _do(graph, 'insert Person { name: "eve", mail: "m" }')
    found = graph.revert(left.id, preview=True)
    assert [conflict.kind for conflict in found.conflicts] == [ConflictKind.UNIQUE_VIOLATION]
    assert found.changes["node:Person"].to_json() == {"inserted": 0, "updated": 1, "deleted": 0}
    assert [change.entity_id for change in found.previewed] == ["dan"]
    with pytest.raises(PickConflictsError):
        graph.revert(left.id)
