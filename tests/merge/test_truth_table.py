"""The result of a merge for each pair of changes of two branches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import omnigraph
from omnigraph.errors import MergeConflictsError
from omnigraph.graph import Graph

SCHEMA = """
node Person { name: String @key  age: I64? }
edge Knows: Person -> Person { since: I64? }
"""

UP_TO_DATE, FAST_FORWARD, MERGED = "already_up_to_date", "fast_forward", "merged"


def _do(text: str) -> Callable[[Graph, str], None]:
    return lambda graph, branch: void(graph.mutate(f"query q() {{ {text} }}", branch=branch))


def void(_: object) -> None:
    pass


def _net_zero(graph: Graph, branch: str) -> None:
    _do('insert Person { name: "zero" }')(graph, branch)
    _do('delete Person where name = "zero"')(graph, branch)


OPERATIONS: dict[str, Callable[[Graph, str], None]] = {
    "nothing": lambda graph, branch: None,
    "add node": _do('insert Person { name: "N", age: 1 }'),
    "delete node": _do('delete Person where name = "P"'),
    "add edge": _do('insert Knows { from: "P", to: "Q", since: 7 }'),
    "delete edge": _do("delete Knows where since = 1"),
    "update": _do('update Person set { age: 5 } where name = "P"'),
    "net-zero": _net_zero,
}
OTHERWISE: dict[str, Callable[[Graph, str], None]] = {
    "add node": _do('insert Person { name: "N", age: 2 }'),
    "update": _do('update Person set { age: 6 } where name = "P"'),
}
"""The same operation on the same entity, with other values."""

COLUMNS = ("nothing", "add node", "delete node", "add edge", "delete edge", "update", "net-zero")
TABLE: dict[str, tuple[str, ...]] = {
    "nothing": (UP_TO_DATE,) * 7,
    "add node": (FAST_FORWARD, MERGED, MERGED, MERGED, MERGED, MERGED, MERGED),
    "delete node": (FAST_FORWARD, MERGED, MERGED, "orphan_edge", MERGED, "delete_vs_update", MERGED),
    "add edge": (FAST_FORWARD, MERGED, "orphan_edge", MERGED, MERGED, MERGED, MERGED),
    "delete edge": (FAST_FORWARD, MERGED, MERGED, MERGED, MERGED, MERGED, MERGED),
    "update": (FAST_FORWARD, MERGED, "delete_vs_update", MERGED, MERGED, MERGED, MERGED),
    "net-zero": (FAST_FORWARD, MERGED, MERGED, MERGED, MERGED, MERGED, MERGED),
}
CELLS = [(source, target, found) for source, row in TABLE.items() for target, found in zip(COLUMNS, row, strict=True)]


@pytest.fixture
def graph(place: Path) -> Graph:
    made = omnigraph.init(place, SCHEMA)
    for name in ("P", "Q"):
        _do(f'insert Person {{ name: "{name}" }}')(made, "main")
    _do('insert Knows { from: "P", to: "Q", since: 1 }')(made, "main")
    made.branches.create("side")
    return made


def _content(graph: Graph, branch: str = "main") -> tuple[list[Any], list[Any]]:
    view = graph.snapshot(branch=branch)
    people = view.scan("node:Person", columns=["id", "age"]).to_pylist()
    knows = view.scan("edge:Knows", columns=["src", "dst", "since"]).to_pylist()
    return sorted(tuple(row.values()) for row in people), sorted(tuple(row.values()) for row in knows)


def _expected(source: str, target: str) -> tuple[list[Any], list[Any]]:
    done = {source, target}
    people: dict[str, int | None] = {"P": 5 if "update" in done else None, "Q": None}
    if "add node" in done:
        people["N"] = 1
    edges = [("P", "Q", 1)] if "delete edge" not in done else []
    edges += [("P", "Q", 7)] * [source, target].count("add edge")
    if "delete node" in done:
        del people["P"]
        edges = []
    return sorted(people.items()), sorted(edges)


@pytest.mark.parametrize(("source", "target", "found"), CELLS, ids=[f"{s} / {t}" for s, t, _ in CELLS])
def test_each_pair_of_changes_has_its_outcome(graph: Graph, source: str, target: str, found: str) -> None:
    OPERATIONS[source](graph, "side")
    OPERATIONS[target](graph, "main")
    before, heads = _content(graph), (graph.branch("main").head, graph.branch("side").head)
    if found not in (UP_TO_DATE, FAST_FORWARD, MERGED):
        with pytest.raises(MergeConflictsError) as caught:
            graph.merge("side")
        assert [conflict.kind for conflict in caught.value.conflicts] == [found]
        assert (_content(graph), graph.branch("main").head) == (before, heads[0]), "the target is as it was"
        return
    receipt = graph.merge("side")
    assert receipt.outcome == found
    if found == UP_TO_DATE:
        assert (receipt.commit, graph.branch("main").head) == (None, heads[0])
        assert _content(graph) == before
        return
    assert receipt.commit == graph.branch("main").head
    assert (receipt.commit.parent, receipt.commit.merged_parent) == (heads[0].id, heads[1].id)
    assert _content(graph) == _expected(source, target)
    assert graph.verify().ok
    assert graph.merge("side").outcome == UP_TO_DATE
    assert graph.merge("main", into="side").outcome == FAST_FORWARD
    assert _content(graph, "side") == _content(graph)


@pytest.mark.parametrize(("operation", "kind"), [("add node", "divergent_insert"), ("update", "divergent_update")])
def test_different_values_of_the_same_entity_are_a_conflict(graph: Graph, operation: str, kind: str) -> None:
    OPERATIONS[operation](graph, "side")
    OTHERWISE[operation](graph, "main")
    before = _content(graph)
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("side")
    (conflict,) = caught.value.conflicts
    assert (conflict.kind, conflict.entity_kind, conflict.type_name) == (kind, "node", "Person")
    assert conflict.entity_id == {"add node": "N", "update": "P"}[operation]
    assert conflict.message.endswith("and differ in age")
    assert _content(graph) == before


def test_an_orphan_edge_conflict_names_the_edge(graph: Graph) -> None:
    OPERATIONS["delete node"](graph, "side")
    OPERATIONS["add edge"](graph, "main")
    (edge,) = graph.snapshot().scan("edge:Knows", columns=["id"], filter=pc.field("since") == 7).to_pylist()
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("side")
    (conflict,) = caught.value.conflicts
    assert (conflict.entity_kind, conflict.type_name, conflict.entity_id) == ("edge", "Knows", edge["id"])
    assert conflict.message == "src 'P' not found in Person"
