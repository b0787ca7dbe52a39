"""The parent of a branch is an existing branch other than itself: the one that it was created from, or `main`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph
from omnigraph.commit import branches, manifest_rows, manifest_successor
from omnigraph.commit.refs import find_branch, replace_branch_ref
from omnigraph.errors import ConflictError
from omnigraph.graph import Graph

OLD, NEW = "node A { k: String @key }", "node A { k: String @key n: I32? }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "g", OLD) as graph:
        yield graph


def put(graph: Graph, key: str, branch: str = "main") -> str:
    graph.load([{"type": "A", "data": {"k": key}}], mode="append", branch=branch)
    return graph.branch(branch).head.id


def keys(graph: Graph, branch: str) -> list[str]:
    return sorted(row["k"] for row in graph.branch(branch).query("query q() { match { $a: A } return { $a.k as k } }"))


def parents(graph: Graph) -> dict[str, str | None]:
    return {branch.name: branch.parent for branch in graph.branches}


def clean(graph: Graph) -> None:
    graph.cleanup(keep=0, orphans_older_than=timedelta(0))


def reset(graph: Graph, branch: str, commit: str) -> None:
    """Reset a branch, without a tag for its previous head."""
    tag = graph.branches.reset(branch, commit).tag
    if tag is not None:
        graph.tags.delete(tag)


def delete_despite_children(graph: Graph, name: str) -> None:
    """Delete a branch as an earlier release did: it ignored the children of a branch that was reset."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(branches, "parent_of", lambda *_: "main")
        graph.branches.delete(name)


def forget_origins(graph: Graph, *names: str) -> None:
    """Write references as an earlier release did: without origins."""
    for name in names:
        found = find_branch(graph.session.store.objects, name)
        assert found is not None
        replace_branch_ref(graph.session.store.objects, replace(found, first_incarnation=None, parent_origin=None))


def test_a_branch_from_a_commit_of_its_deleted_namesake_is_a_child_of_main(graph: Graph) -> None:
    start = graph.branch().head.id
    graph.branches.create("c")
    head = put(graph, "one", "c")
    tag = graph.branches.reset("c", start).tag
    graph.branches.delete("c")
    assert graph.branches.create("c", commit=head).parent == "main"
    assert graph.branches.create("d", commit=tag).parent == "main"  # made from the deleted branch, not from the new one
    put(graph, "two")
    graph.schema.apply(NEW)
    for name in ("c", "d"):
        assert graph.branches.update(name).outcome == "merged"
        assert keys(graph, name) == ["one", "two"]
        assert "n: I32?" in graph.schema.show(branch=name)
    assert parents(graph) == {"main": None, "c": "main", "d": "main"}


def test_a_branch_from_a_tag_of_a_branch_that_was_reset_stays_its_child(graph: Graph) -> None:
    start = graph.branch().head.id
    graph.branches.create("c")
    put(graph, "one", "c")
    tag = graph.branches.reset("c", start).tag
    put(graph, "two", "c")
    assert graph.branches.create("d", commit=tag).parent == "c"
    assert graph.branches.update("d").outcome == "merged"
    assert keys(graph, "d") == ["one", "two"]
    graph.branches.reset("c", start)
    assert parents(graph) == {"main": None, "c": "main", "d": "c"}
    assert tag is not None
    graph.tags.delete(tag)


def test_a_child_that_was_reset_to_an_own_commit_keeps_its_parent(graph: Graph) -> None:
    graph.branches.create("p")
    graph.branches.create("c", source="p")
    first = put(graph, "one", "c")
    put(graph, "two", "c")
    graph.branches.reset("c", first)
    put(graph, "three", "p")
    assert parents(graph)["c"] == "p"
    assert graph.branches.update("c").outcome == "merged"
    assert keys(graph, "c") == ["one", "three"]


def test_two_branches_are_never_parents_of_each_other(graph: Graph) -> None:
    graph.branches.create("p")
    graph.branches.create("c", source="p")
    head = put(graph, "one", "c")
    put(graph, "two")
    graph.branches.reset("p", head)
    assert parents(graph) == {"main": None, "c": "main", "p": "main"}
    for name in ("p", "c"):
        assert graph.branches.update(name).outcome in ("merged", "fast_forward")
        assert keys(graph, name) == ["one", "two"]
    graph.branches.create("x", source="c")
    assert parents(graph)["x"] == "c"


def test_the_parent_of_a_branch_from_a_deleted_branch_is_main(graph: Graph) -> None:
    start = graph.branch().head.id
    graph.branches.create("c")
    put(graph, "one", "c")
    tag = graph.branches.reset("c", start).tag
    graph.branches.create("d", commit=tag)
    with pytest.raises(ConflictError, match="branches were created from it: d"):
        graph.branches.delete("c")
    delete_despite_children(graph, "c")
    assert parents(graph)["d"] == "main"
    graph.branches.create("c")
    assert parents(graph)["d"] == "main"
    put(graph, "of c", "c")
    put(graph, "of main")
    assert graph.branches.update("d").outcome == "merged"
    assert keys(graph, "d") == ["of main", "one"]


@pytest.mark.parametrize("cleaned", [False, True])
@pytest.mark.parametrize("old_references", [False, True])
def test_a_new_branch_with_the_name_of_a_deleted_parent_is_not_the_parent(
    graph: Graph, cleaned: bool, old_references: bool
) -> None:
    start = put(graph, "zero")
    graph.branches.create("x")
    put(graph, "one", "x")
    graph.branches.create("y", source="x")
    reset(graph, "x", start)
    assert parents(graph)["y"] == "x"
    if old_references:
        forget_origins(graph, "x", "y")
    delete_despite_children(graph, "x")
    if cleaned:
        clean(graph)
    graph.branches.create("x")
    put(graph, "of the new x", "x")
    assert parents(graph) == {"main": None, "x": "main", "y": "main"}
    put(graph, "of main")
    assert graph.branches.update("y").source == "main"
    assert keys(graph, "y") == ["of main", "one", "zero"]
    graph.branches.delete("x")


@pytest.mark.parametrize("to_own_commits", [False, True])
def test_a_child_keeps_its_parent_if_the_manifests_between_two_resets_are_gone(
    graph: Graph, to_own_commits: bool
) -> None:
    start = put(graph, "zero")
    graph.branches.create("x")
    own = put(graph, "one", "x")
    graph.branches.create("y", source="x")
    for number in range(3):
        put(graph, f"next {number}", "x")
        reset(graph, "x", own if to_own_commits else start)
        clean(graph)
    last = put(graph, "last", "x")
    assert parents(graph) == {"main": None, "x": "main", "y": "x"}
    assert graph.branches.update("y").source == "x"
    assert keys(graph, "y") == ["last", "one", "zero"]
    assert graph.branches.create("late", commit=own).parent == "x"  # a commit of the first incarnation
    put(graph, "in y", "y")
    reset(graph, "y", last)  # an own commit of x
    assert parents(graph) == {"main": None, "late": "x", "x": "main", "y": "x"}
    with pytest.raises(ConflictError, match="branches were created from it: late, y"):
        graph.branches.delete("x")
    for name in ("late", "y", "x"):
        graph.branches.delete(name)
    clean(graph)
    assert graph.verify().ok


def test_a_child_that_was_reset_to_an_own_commit_has_no_new_branch_as_its_parent(graph: Graph) -> None:
    graph.branches.create("p")
    graph.branches.create("c", source="p")
    first = put(graph, "one", "c")
    put(graph, "two", "c")
    reset(graph, "c", first)
    with pytest.raises(ConflictError, match="branches were created from it: c"):
        graph.branches.delete("p")
    delete_despite_children(graph, "p")
    graph.branches.create("p")
    put(graph, "of the new p", "p")
    assert parents(graph)["c"] == "main"
    assert graph.branches.update("c", preview=True).source == "main"


def test_references_without_origins_follow_the_resets(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier releases wrote no origins, neither into references nor into closed manifests."""
    start = put(graph, "zero")
    graph.branches.create("x")
    own = put(graph, "one", "x")
    graph.branches.create("y", source="x")
    graph.branches.create("z", source="y")
    kept = put(graph, "two", "z")
    put(graph, "three", "z")
    with monkeypatch.context() as patch:
        write = manifest_rows.state_rows
        patch.setattr(manifest_successor, "state_rows", lambda *args, origin=None, **kw: write(*args, **kw))
        graph.tags.create("start", commit=own)
        graph.branches.reset("x", start)
    forget_origins(graph, "x", "y", "z")
    assert parents(graph) == {"main": None, "x": "main", "y": "x", "z": "y"}
    reset(graph, "z", kept)
    for number in range(2):  # from now on, resets record the origin
        put(graph, f"next {number}", "x")
        graph.branches.reset("x", start)
    assert parents(graph) == {"main": None, "x": "main", "y": "x", "z": "y"}
    assert graph.branches.create("late", commit="start").parent == "x"
    with pytest.raises(ConflictError, match="branches were created from it: late, y"):
        graph.branches.delete("x")


def test_each_of_two_branches_that_were_reset_to_each_other_can_be_deleted(graph: Graph) -> None:
    for first, second in (("p", "c"), ("c", "p")):
        graph.branches.create("p")
        graph.branches.create("c", source="p")
        reset(graph, "p", put(graph, f"one of {first}", "c"))
        graph.branches.delete(first)
        clean(graph)
        assert parents(graph) == {"main": None, second: "main"}
        put(graph, f"two of {first}", second)
        assert graph.verify(branch=second).ok
        assert graph.merge(second).is_clean
        graph.branches.delete(second)
        clean(graph)
        assert graph.verify().ok
