"""Where branches parted: the nearest commit that leads to both, whatever was merged before."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.commit import manifest
from omnigraph.commit.ancestors import merge_base
from omnigraph.errors import InputError
from omnigraph.graph import Graph


@pytest.fixture
def graph(place: Path) -> Graph:
    return omnigraph.init(place, "node Person { name: String @key  age: I64? }")


def _add(graph: Graph, name: str, branch: str = "main") -> str:
    graph.mutate(f'query q() {{ insert Person {{ name: "{name}" }} }}', branch=branch)
    return graph.branch(branch).head.id


def _base(graph: Graph, source: str, target: str = "main") -> str:
    store = graph._store
    return merge_base(store, store.capture(source), store.capture(target)).id


def test_a_branch_begins_where_it_was_made(graph: Graph) -> None:
    begun = _add(graph, "a")
    graph.branches.create("side")
    _add(graph, "b")
    assert _base(graph, "side") == begun
    _add(graph, "c", "side")
    assert _base(graph, "side") == _base(graph, "main", "side") == begun


def test_what_was_merged_is_the_base_of_what_follows(graph: Graph) -> None:
    graph.branches.create("side")
    _add(graph, "a")
    first = _add(graph, "b", "side")
    graph.merge("side")
    assert _base(graph, "side") == first
    _add(graph, "c", "side")
    assert _base(graph, "side") == first
    _add(graph, "d")
    second = graph.merge("main", into="side").commit
    assert second is not None
    assert _base(graph, "side") == graph.branch("main").head.id
    assert graph.merge("side").outcome == "fast_forward"


def test_a_third_branch_brings_two_together(graph: Graph) -> None:
    graph.branches.create("one")
    graph.branches.create("two")
    graph.branches.create("shared")
    _add(graph, "a", "one")
    _add(graph, "b", "two")
    shared = _add(graph, "c", "shared")
    graph.merge("shared", into="one")
    graph.merge("shared", into="two")
    assert _base(graph, "one", "two") == shared
    assert graph.merge("one", into="two").outcome == "merged"


def test_a_branch_that_is_gone_leads_nowhere(graph: Graph) -> None:
    begun = graph.branch("main").head.id
    graph.branches.create("keeps")
    graph.branches.create("goes")
    _add(graph, "a", "goes")
    _add(graph, "b")
    _add(graph, "c", "keeps")
    assert graph.merge("goes", delete_branch=True).branch_deleted is True
    assert _base(graph, "keeps") == begun
    assert graph.merge("keeps").outcome == "merged"


def test_what_came_with_a_branch_that_is_gone_is_new_to_whoever_does_not_have_it(graph: Graph) -> None:
    """As the guide says: nobody can tell that it was there when the two were last alike."""
    graph.branches.create("keeps")
    graph.branches.create("goes")
    _add(graph, "a", "goes")
    _add(graph, "b")
    _add(graph, "c", "keeps")
    graph.merge("goes", into="keeps")
    graph.merge("goes")
    graph.mutate('query q() { delete Person where name = "a" }')
    assert graph.merge("keeps", preview=True).changes["node:Person"].inserted == 1
    graph.branches.delete("goes")
    assert graph.merge("keeps", preview=True).changes["node:Person"].inserted == 2


def test_ties_go_to_the_higher_version(graph: Graph) -> None:
    """Two branches that have merged each other's heads have two bases at the same distance."""
    graph.branches.create("side")
    _add(graph, "a", "side")
    low = _add(graph, "b")
    high = _add(graph, "c", "side")
    high = _add(graph, "d", "side")
    heads = {"main": low, "side": high}
    store = graph._store
    versions = {name: store.capture(name).version for name in heads}
    assert versions["side"] > versions["main"]
    # Both merge what the other had before the other merged.
    graph.branches.create("old", commit=low)
    graph.merge("side", into="main")
    graph.merge("old", into="side")
    assert _base(graph, "main", "side") == high


def test_long_histories_are_read_as_far_as_needed(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "TAIL_COMMITS", 4)
    for name in "abcdefghij":
        _add(graph, name)
    begun = graph.branch("main").head.id
    graph.branches.create("side")
    for name in "klmnopqrst":
        _add(graph, name)
        _add(graph, f"{name}{name}", "side")
    assert _base(graph, "side") == begun
    assert graph.merge("side").outcome == "merged"


def test_a_branch_is_not_merged_into_itself(graph: Graph) -> None:
    with pytest.raises(InputError, match="cannot be merged into itself"):
        graph.merge("main", into=" main ")
