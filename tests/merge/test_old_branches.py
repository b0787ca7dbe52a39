"""Merges that a wrong base would silently corrupt: deleted rows stay deleted, and newer values stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph import MergeReceipt
from omnigraph.errors import MergeConflictsError
from omnigraph.graph import Graph
from omnigraph.storage.table_ref import manifest_name

SCHEMA = """
node Person { name: String @key  age: I64?  mail: String?  @unique(mail) }
node City { name: String @key }
edge Knows: Person -> Person { since: I64? }
edge Lives: Person -> City @card(0..1)
"""


def _do(graph: Graph, text: str, branch: str = "main") -> None:
    graph.mutate(f"query q() {{ {text} }}", branch=branch)


def _add(graph: Graph, name: str, branch: str = "main", age: int = 1) -> None:
    _do(graph, f'insert Person {{ name: "{name}", age: {age} }}', branch)


def _set(graph: Graph, name: str, age: int, branch: str = "main") -> None:
    _do(graph, f'update Person set {{ age: {age} }} where name = "{name}"', branch)


def _drop(graph: Graph, name: str, branch: str = "main") -> None:
    _do(graph, f'delete Person where name = "{name}"', branch)


def _ages(graph: Graph, branch: str = "main") -> dict[str, int]:
    rows = graph.snapshot(branch=branch).scan("node:Person", columns=["name", "age"]).to_pylist()
    return {row["name"]: row["age"] for row in rows}


@pytest.fixture
def graph(place: Path) -> Graph:
    made = omnigraph.init(place, SCHEMA)
    made.load({"Person": pa.table({"name": list("abcd"), "age": [1] * 4})}, mode="append")
    made.load({"City": pa.table({"name": ["rome", "oslo"]})}, mode="append")
    return made


def test_merges_of_two_old_feature_branches_keep_deletions_and_newer_values(graph: Graph) -> None:
    """One is merged into `main` and one into `release`. By distance, their start is nearer than the release commit."""
    graph.branches.create("feature1")
    graph.branches.create("feature2")
    _add(graph, "one", "feature1")
    _add(graph, "two", "feature2")
    for i in range(5):
        _add(graph, f"m{i}")
    graph.branches.create("release")
    for i in range(4):
        _add(graph, f"r{i}", "release")
        _add(graph, f"n{i}")
    _drop(graph, "m0")  # existed when the release was created
    _drop(graph, "m1", "release")
    _set(graph, "m2", 7)
    graph.merge("feature1", "main")
    graph.merge("feature2", "release")
    receipt = graph.merge("release", "main")
    assert receipt.outcome == "merged"
    ages = _ages(graph)
    assert "m0" not in ages, "a row that main deleted returned"
    assert "m1" not in ages
    assert ages["m2"] == 7, "a newer value was overwritten"
    assert {f"n{i}" for i in range(4)} <= ages.keys(), "a row that main inserted went"
    assert {"one", "two", *(f"r{i}" for i in range(4))} <= ages.keys()


def test_a_hotfix_from_an_old_tag_keeps_deletions_and_newer_values(graph: Graph) -> None:
    graph.tags.create("v1")
    _add(graph, "x")
    graph.branches.create("dev")
    _drop(graph, "b")
    _set(graph, "c", 9)
    _add(graph, "d1", "dev")
    graph.branches.create("hotfix", commit="v1")
    _set(graph, "d", 5, "hotfix")
    graph.merge("hotfix", "main")
    graph.merge("hotfix", "dev", delete_branch=True)
    graph.tags.delete("v1")
    graph.merge("dev", "main")
    ages = _ages(graph)
    assert "b" not in ages, "a deleted row returned"
    assert ages["c"] == 9, "a newer value was overwritten"
    assert (ages["d"], ages["d1"], ages["x"]) == (5, 1, 1)


def _crossed(graph: Graph) -> None:
    """Merge `main` and `dev` into each other."""
    graph.branches.create("was-main")
    graph.merge("dev", "main", strategy="ours")
    graph.merge("was-main", "dev", strategy="ours")
    graph.branches.delete("was-main")


def test_a_criss_cross_merge_keeps_deletions_and_newer_values(graph: Graph) -> None:
    graph.branches.create("dev")
    _add(graph, "m")
    _add(graph, "d1", "dev")
    _crossed(graph)
    _drop(graph, "m", "dev")
    _drop(graph, "d1")
    _set(graph, "a", 3)
    receipt = graph.merge("dev", "main")
    assert len(receipt.base_commits) == 2
    assert receipt.base_commit is None
    assert _ages(graph) == {"a": 3, "b": 1, "c": 1, "d": 1}, "a delete came back"
    assert graph.merge("main", "dev").outcome == "fast_forward"
    assert _ages(graph, "dev") == _ages(graph)


def test_conflicting_bases_of_a_criss_cross_merge_are_undecided(graph: Graph) -> None:
    graph.branches.create("dev")
    _set(graph, "a", 2)
    _set(graph, "a", 3, "dev")
    _drop(graph, "b")
    _set(graph, "b", 3, "dev")
    _set(graph, "c", 2)
    _set(graph, "c", 3, "dev")
    _crossed(graph)  # each keeps its own value
    _set(graph, "c", 4)
    _set(graph, "c", 4, "dev")
    preview = graph.merge("dev", preview=True)
    assert [(one.kind.value, one.entity_id) for one in preview.conflicts] == [
        ("delete_vs_update", "b"),
        ("divergent_update", "a"),
    ], "c is the same on both sides, and stays"
    gone, both = preview.conflicts
    assert gone.to_json() == {
        "entity_kind": "node",
        "type_name": "Person",
        "entity_id": "b",
        "kind": "delete_vs_update",
        "message": "'dev' has it and 'main' does not, and the base value is unknown",
        "base": None,
        "ours": None,
        "theirs": {"age": 3, "mail": None, "name": "b"},
        "base_undecided": True,
    }
    assert (both.base, both.ours, both.theirs, both.base_undecided) == (None, {"age": 2}, {"age": 3}, True)
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("dev")
    assert caught.value.conflicts == preview.conflicts
    graph.merge("dev", resolutions={gone: "theirs", both: "ours"})
    assert _ages(graph) == {"a": 2, "b": 3, "c": 4, "d": 1}


def test_an_orphan_edge_of_a_criss_cross_merge_leaves_edge_and_node_undecided(graph: Graph) -> None:
    graph.branches.create("dev")
    _do(graph, 'insert Knows { from: "a", to: "b" }', "dev")
    _drop(graph, "b")
    _crossed(graph)
    assert _ages(graph).keys() == {"a", "c", "d"}, "main has neither"
    assert "b" in _ages(graph, "dev"), "dev has both"
    found = graph.merge("dev", preview=True).conflicts
    assert [
        (one.type_name, one.kind.value, one.base_undecided) for one in found if one.kind.value != "orphan_edge"
    ] == [
        ("Person", "delete_vs_update", True),
        ("Knows", "delete_vs_update", True),
    ]
    kept = graph.merge("dev", resolutions=dict.fromkeys(found, "theirs"), preview=True)
    assert kept.is_clean
    graph.merge("dev", resolutions=dict.fromkeys(reversed(found), "ours"))
    assert _ages(graph).keys() == {"a", "c", "d"}
    assert graph.verify().ok


def test_entities_that_share_a_unique_value_in_the_bases_are_undecided(graph: Graph) -> None:
    """Each ancestor gave the value to another entity, so the base does not decide which one has it."""
    graph.branches.create("dev")
    _do(graph, 'update Person set { mail: "m" } where name = "a"')
    _do(graph, 'update Person set { mail: "m" } where name = "b"', "dev")
    graph.branches.create("was-main")
    # Neither can merge the other as it is, so each removes the value first.
    _do(graph, 'update Person set { mail: "old" } where name = "a"')
    graph.merge("dev", "main")
    _do(graph, 'update Person set { mail: "old" } where name = "b"', "dev")
    graph.merge("was-main", "dev")
    found = graph.merge("dev", preview=True)
    assert len(found.base_commits) == 2
    assert {(one.entity_id, one.base_undecided) for one in found.conflicts if one.kind.value == "divergent_update"} == {
        ("a", True),
        ("b", True),
    }


def test_merging_an_unchanged_source_again_does_nothing(graph: Graph) -> None:
    graph.branches.create("side")
    _set(graph, "a", 2, "side")
    graph.merge("side")
    _set(graph, "a", 3)
    for _ in range(2):
        receipt = graph.merge("side")
        assert (receipt.outcome, receipt.commit) == ("already_up_to_date", None)
    # Also through another branch, and through a new branch at the same commit.
    graph.branches.create("other")
    _add(graph, "x", "other")
    assert graph.merge("side", "other").outcome == "already_up_to_date"
    graph.branches.create("again", commit=graph.branch("side").head.id)
    assert graph.merge("again").outcome == "already_up_to_date"
    assert _ages(graph)["a"] == 3, "an older value came back"


def test_a_deleted_branch_that_was_merged_into_two_others_is_their_base(graph: Graph) -> None:
    graph.branches.create("one")
    graph.branches.create("two")
    graph.branches.create("shared")
    _add(graph, "s1", "shared")
    _add(graph, "s2", "shared")
    _add(graph, "o", "one")
    _add(graph, "t", "two")
    graph.merge("shared", "one")
    graph.merge("shared", "two", delete_branch=True)
    _drop(graph, "s1", "two")
    _set(graph, "s2", 5, "two")
    receipt = graph.merge("one", "two")
    assert receipt.outcome == "merged"
    assert "s1" not in _ages(graph, "two"), "a deleted row came back"
    assert _ages(graph, "two")["s2"] == 5, "a newer value was overwritten"
    graph.branches.create("shared")  # a new branch with the old name
    _add(graph, "new", "shared")
    graph.merge("shared", "one")
    assert graph.merge("one", "two").outcome == "merged"
    assert _ages(graph, "two").keys() == {"a", "b", "c", "d", "o", "t", "s2", "new"}


def test_rows_that_differ_are_conflicts_if_the_base_cannot_be_read(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that differ are conflicts, equal rows stay, and choosing sides completes the merge."""
    graph.branches.create("side")
    begun = graph.branch("main").head.id
    _set(graph, "a", 2, "side")
    _drop(graph, "b", "side")
    _set(graph, "c", 3)
    store = graph.session.store
    plain = type(store).manifest_of

    def gone(self: object, commit: object) -> object:
        if getattr(commit, "id", None) == begun:
            raise omnigraph.errors.VersionReclaimedError("gone")
        return plain(self, commit)  # type: ignore[arg-type]

    monkeypatch.setattr(type(store), "manifest_of", gone)
    found = graph.merge("side", preview=True).conflicts
    assert [(one.entity_id, one.kind.value) for one in found] == [
        ("b", "delete_vs_update"),
        ("a", "divergent_update"),
        ("c", "divergent_update"),
    ]
    assert all(one.base is None and one.base_undecided for one in found)
    graph.merge("side", resolutions={("Person", "a"): "theirs", ("Person", "b"): "theirs", ("Person", "c"): "ours"})
    assert _ages(graph) == {"a": 2, "c": 3, "d": 1}
    monkeypatch.undo()
    assert graph.merge("side").outcome == "already_up_to_date"


def test_an_unreadable_table_of_the_base_leaves_only_its_rows_undecided(graph: Graph) -> None:
    """Only its rows are undecided, and choosing sides completes the merge."""
    graph.branches.create("side")
    begun = graph.snapshot().pin("node:Person").ref
    _set(graph, "a", 2, "side")
    _do(graph, 'insert City { name: "bonn" }', "side")
    _set(graph, "b", 3)
    _do(graph, 'insert City { name: "kyiv" }')
    manifest = Path(graph.uri) / begun.path / "_versions" / manifest_name(begun.version)
    manifest.unlink()
    graph = omnigraph.open(graph.uri)
    found = graph.merge("side", preview=True)
    assert [(one.type_name, one.entity_id, one.base_undecided) for one in found.conflicts] == [
        ("Person", "a", True),
        ("Person", "b", True),
    ]
    assert found.changes["node:City"].inserted == 1
    assert graph.merge("side", resolutions={("Person", "a"): "theirs", ("Person", "b"): "ours"}).commit is not None
    assert _ages(graph) == {"a": 2, "b": 3, "c": 1, "d": 1}


@pytest.mark.parametrize("verb", ["merge", "update"])
def test_an_unreadable_table_of_the_base_does_not_block_states_with_different_schemas(graph: Graph, verb: str) -> None:
    _do(graph, 'insert Knows { from: "a", to: "b", since: 1 }')
    graph.branches.create("side")
    begun = [graph.snapshot().pin(key).ref for key in ("node:Person", "edge:Knows")]
    _set(graph, "a", 2, "side")
    _do(graph, 'insert Knows { from: "c", to: "d", since: 2 }', "side")
    _set(graph, "b", 3)
    _do(graph, 'delete Person where name = "a"')
    graph.schema.apply(graph.schema.source.replace("age: I64?", "age: I64?  email: String?"))
    for ref in begun:
        (Path(graph.uri) / ref.path / "_versions" / manifest_name(ref.version)).unlink()
    graph = omnigraph.open(graph.uri)

    def run(**options: Any) -> MergeReceipt:
        return graph.merge("side", **options) if verb == "merge" else graph.branches.update("side", **options)

    branch, main, side = ("main", "ours", "theirs") if verb == "merge" else ("side", "theirs", "ours")
    found = run(preview=True).conflicts
    assert [one.type_name for one in found] == ["Person", "Person", "Knows", "Knows"]
    assert [one.entity_id for one in found[:2]] == ["a", "b"]
    assert all(one.base_undecided for one in found)
    choices = {(one.type_name, one.entity_id): main if one.entity_id == "b" else side for one in found}
    assert run(resolutions=choices).commit is not None
    assert _ages(graph, branch) == {"a": 2, "b": 3, "c": 1, "d": 1}
    assert graph.snapshot(branch=branch).scan("edge:Knows").num_rows == 2


def test_a_preview_of_a_virtual_base_writes_nothing(graph: Graph) -> None:
    graph.branches.create("dev")
    _set(graph, "a", 2)
    _set(graph, "a", 3, "dev")
    _crossed(graph)
    before = sorted(str(path) for path in Path(graph.uri).rglob("*") if path.is_file())
    with omnigraph.open(graph.uri, read_only=True) as reader:
        assert reader.merge("dev", preview=True).total_conflicts == 1
    assert sorted(str(path) for path in Path(graph.uri).rglob("*") if path.is_file()) == before


# Keeping a node keeps its edges


def _with_edges(graph: Graph) -> None:
    """Make edges of `a`, and a branch that deletes `a` while the other changes it."""
    _do(graph, 'insert Knows { from: "a", to: "b", since: 1 }')
    _do(graph, 'insert Knows { from: "c", to: "a", since: 2 }')
    _do(graph, 'insert Knows { from: "a", to: "d", since: 3 }')
    _do(graph, 'insert Lives { from: "a", to: "rome" }')
    graph.branches.create("side")


def _edges(graph: Graph) -> list[tuple[str, str]]:
    view = graph.snapshot()
    found = [
        (row["src"], row["dst"])
        for key in ("edge:Knows", "edge:Lives")
        for row in view.scan(key, columns=["src", "dst"]).to_pylist()
    ]
    return sorted(found)


@pytest.mark.parametrize("how", ["strategy", "resolution"])
@pytest.mark.parametrize("deleter", ["side", "main"])
def test_keeping_a_node_keeps_its_edges(graph: Graph, deleter: str, how: str) -> None:
    _with_edges(graph)
    keeper, right = ("main", "ours") if deleter == "side" else ("side", "theirs")
    _drop(graph, "a", deleter)
    _drop(graph, "d", deleter)
    _set(graph, "a", 9, keeper)
    said = {"strategy": right} if how == "strategy" else {"resolutions": {("Person", "a"): right}}
    preview = graph.merge("side", preview=True, **said)
    assert preview.is_clean
    assert preview.edges_kept == 3
    receipt = graph.merge("side", **said)
    assert receipt.edges_kept == 3
    assert receipt.to_json()["edges_kept"] == 3
    assert _ages(graph) == {"a": 9, "b": 1, "c": 1}
    assert _edges(graph) == [("a", "b"), ("a", "rome"), ("c", "a")], "the other end of one is gone"
    assert graph.verify().ok


def test_an_edge_that_keeps_its_node_restores_its_other_edges(graph: Graph) -> None:
    _with_edges(graph)
    _drop(graph, "a", "side")
    _do(graph, 'insert Knows { from: "b", to: "a", since: 9 }')
    (conflict,) = graph.merge("side", preview=True).conflicts
    assert conflict.kind.value == "orphan_edge"
    assert (conflict.base, conflict.ours, conflict.theirs) == (None, {"src": "b", "dst": "a"}, None)
    assert graph.merge("side", resolutions={conflict: "ours"}).edges_kept == 4
    assert _edges(graph) == [("a", "b"), ("a", "d"), ("a", "rome"), ("b", "a"), ("c", "a")]


@pytest.mark.parametrize("deleter", ["side", "main"])
def test_choosing_the_deletion_of_a_node_deletes_its_new_edges(graph: Graph, deleter: str) -> None:
    """The side that changed the node also has a new edge of it. Choosing the deletion resolves both."""
    _with_edges(graph)
    keeper, right = ("main", "theirs") if deleter == "side" else ("side", "ours")
    _drop(graph, "a", deleter)
    _set(graph, "a", 9, keeper)
    _do(graph, 'insert Knows { from: "b", to: "a", since: 9 }', keeper)
    listed = graph.merge("side", preview=True).conflicts
    merged = graph.merge("side", resolutions=dict.fromkeys(listed, right))
    assert merged.is_clean
    assert _ages(graph).keys() == {"b", "c", "d"}
    assert _edges(graph) == []
    assert graph.verify().ok


def test_a_resolution_that_is_implied_by_another_one_is_accepted(graph: Graph) -> None:
    _with_edges(graph)
    _drop(graph, "a")
    _set(graph, "a", 9, "side")
    _do(graph, 'insert Knows { from: "b", to: "a", since: 9 }', "side")
    node, edge = graph.merge("side", preview=True).conflicts
    assert (node.kind.value, edge.kind.value) == ("delete_vs_update", "orphan_edge")
    for order in ([node, edge], [edge, node]):
        preview = graph.merge("side", preview=True, resolutions=dict.fromkeys(order, "theirs"))
        assert preview.is_clean
    # With its node restored, the edge is no longer an orphan.
    receipt = graph.merge("side", resolutions={edge: "ours", node: "theirs"})
    assert receipt.is_clean
    assert ("b", "a") in _edges(graph)


def test_constraint_conflicts_show_the_values_of_each_side(graph: Graph) -> None:
    graph.branches.create("side")
    _do(graph, 'update Person set { mail: "m" } where name = "a"')
    _do(graph, 'update Person set { mail: "m" } where name = "b"', "side")
    _do(graph, 'insert Lives { from: "c", to: "rome" }')
    _do(graph, 'insert Lives { from: "c", to: "oslo" }', "side")
    unique, card = graph.merge("side", preview=True).conflicts
    assert unique.entity_id == "b"
    assert (unique.base, unique.ours, unique.theirs) == ({"mail": None}, {"mail": None}, {"mail": "m"})
    assert (card.base, card.ours, card.theirs) == ({"edges": 0}, {"edges": 1}, {"edges": 1})
