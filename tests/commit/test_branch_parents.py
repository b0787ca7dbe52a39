"""The parent of a branch is an existing branch other than itself: the one that it was created from, or `main`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
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
    graph.branches.delete("c")
    assert parents(graph)["d"] == "main"
    graph.branches.create("c")
    assert parents(graph)["d"] == "main"
    put(graph, "of c", "c")
    put(graph, "of main")
    assert graph.branches.update("d").outcome == "merged"
    assert keys(graph, "d") == ["of main", "one"]
