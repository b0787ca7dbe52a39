"""All conflicts are listed in a fixed order, and can be resolved by a strategy or one by one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.errors import InputError, MergeConflictsError
from omnigraph.graph import Graph
from omnigraph.merge import compare, conflicts

SCHEMA = """
node Person { name: String @key  age: I64?  mail: String?  @unique(mail) }
node City { name: String @key }
edge Knows: Person -> Person { since: I64? }
edge Lives: Person -> City @card(0..1)
"""


def _do(graph: Graph, text: str, branch: str = "main") -> None:
    graph.mutate(f"query q() {{ {text} }}", branch=branch)


@pytest.fixture
def graph(place: Path) -> Graph:
    made = omnigraph.init(place, SCHEMA)
    made.load({"Person": pa.table({"name": list("abcdef"), "age": [1] * 6})}, mode="append")
    made.load({"City": pa.table({"name": ["rome", "oslo"]})}, mode="append")
    made.branches.create("side")
    return made


def _ages(graph: Graph) -> dict[str, int]:
    rows = graph.snapshot().scan("node:Person", columns=["name", "age"]).to_pylist()
    return {row["name"]: row["age"] for row in rows}


def _disagree(graph: Graph) -> None:
    """Make one conflict of each kind of row conflict."""
    _do(graph, 'update Person set { age: 2 } where name = "a"', "side")
    _do(graph, 'update Person set { age: 3 } where name = "a"')
    _do(graph, 'delete Person where name = "b"', "side")
    _do(graph, 'update Person set { age: 3 } where name = "b"')
    _do(graph, 'update Person set { age: 2 } where name = "c"', "side")
    _do(graph, 'delete Person where name = "c"')
    _do(graph, 'insert Person { name: "new", age: 2 }', "side")
    _do(graph, 'insert Person { name: "new", age: 3 }')
    _do(graph, 'update Person set { age: 2 } where name = "d"', "side")


KINDS = [
    ("delete_vs_update", "b"),
    ("delete_vs_update", "c"),
    ("divergent_insert", "new"),
    ("divergent_update", "a"),
]


def test_all_conflicts_are_listed_in_a_fixed_order(graph: Graph) -> None:
    _disagree(graph)
    before = graph.branch("main").head
    with pytest.raises(MergeConflictsError, match="and 1 more") as caught:
        graph.merge("side")
    assert [(c.kind.value, c.entity_id) for c in caught.value.conflicts] == KINDS
    assert [c.message for c in caught.value.conflicts] == [
        "'side' has deleted it, and 'main' has changed it",
        "'main' has deleted it, and 'side' has changed it",
        "'side' and 'main' have both created it, and differ in age",
        "'side' and 'main' have both changed it, and differ in age",
    ]
    assert graph.branch("main").head == before
    assert caught.value.render().count("\n") == 5
    assert caught.value.conflicts[0].to_json() == {
        "entity_kind": "node",
        "type_name": "Person",
        "entity_id": "b",
        "kind": "delete_vs_update",
        "message": "'side' has deleted it, and 'main' has changed it",
        "base": {"age": 1},
        "ours": {"age": 3},
        "theirs": None,
        "base_undecided": False,
    }


def test_a_preview_writes_nothing(graph: Graph) -> None:
    _disagree(graph)
    before = {branch.name: branch.head for branch in graph.branches}
    with omnigraph.open(graph.uri, read_only=True) as reader:
        found = reader.merge("side", preview=True)
    assert (found.preview, found.commit, found.total_conflicts, found.is_clean) == (True, None, 4, False)
    assert found.changes["node:Person"].updated == 1, "what is taken beside the conflicts"
    assert {branch.name: branch.head for branch in graph.branches} == before


@pytest.mark.parametrize(
    ("strategy", "ages"),
    [
        ("ours", {"a": 3, "b": 3, "d": 2, "e": 1, "f": 1, "new": 3}),
        ("theirs", {"a": 2, "c": 2, "d": 2, "e": 1, "f": 1, "new": 2}),
    ],
)
def test_a_strategy_resolves_all_conflicts(graph: Graph, strategy: str, ages: dict[str, int]) -> None:
    _disagree(graph)
    receipt = graph.merge("side", strategy=strategy)
    assert (receipt.outcome, receipt.resolved) == ("merged", 4)
    assert _ages(graph) == ages
    assert graph.merge("side").outcome == "already_up_to_date"


def test_each_conflict_can_be_resolved_by_itself(graph: Graph) -> None:
    _disagree(graph)
    conflicts = graph.merge("side", preview=True).conflicts
    said = {conflict: "theirs" for conflict in conflicts if conflict.entity_id in ("a", "b")}
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("side", resolutions=said)  # type: ignore[arg-type]
    assert [c.entity_id for c in caught.value.conflicts] == ["c", "new"]
    graph.merge("side", resolutions={**said, ("Person", "c"): "ours"}, strategy="theirs")  # type: ignore[dict-item]
    assert _ages(graph) == {"a": 2, "d": 2, "e": 1, "f": 1, "new": 2}


def test_a_resolution_of_something_else_than_a_conflict_is_refused(graph: Graph) -> None:
    _disagree(graph)
    with pytest.raises(InputError, match="there is no conflict about Person 'e'"):
        graph.merge("side", strategy="ours", resolutions={("Person", "e"): "ours"})
    with pytest.raises(InputError, match="'mine' is not a strategy"):
        graph.merge("side", strategy="mine")
    with pytest.raises(InputError, match="is not a conflict"):
        graph.merge("side", resolutions={"a": "ours"})  # type: ignore[dict-item]


# Orphan edges


def _orphans(graph: Graph) -> None:
    _do(graph, 'delete Person where name = "a"', "side")
    _do(graph, 'insert Knows { from: "a", to: "b", since: 1 }')
    _do(graph, 'insert Knows { from: "c", to: "d", since: 2 }', "side")
    _do(graph, 'delete Person where name = "d"')


def _knows(graph: Graph) -> set[tuple[str, str]]:
    return {(row["src"], row["dst"]) for row in graph.snapshot().scan("edge:Knows").to_pylist()}


def test_orphan_edges_on_both_sides_are_conflicts(graph: Graph) -> None:
    _orphans(graph)
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("side")
    assert sorted(c.message for c in caught.value.conflicts) == [
        "dst 'd' not found in Person",
        "src 'a' not found in Person",
    ]
    assert {c.kind for c in caught.value.conflicts} == {"orphan_edge"}


@pytest.mark.parametrize(
    ("strategy", "people", "knows"),
    [("ours", "abcef", {("a", "b")}), ("theirs", "bcdef", {("c", "d")})],
)
def test_a_strategy_resolves_orphan_edges(
    graph: Graph, strategy: str, people: str, knows: set[tuple[str, str]]
) -> None:
    _orphans(graph)
    receipt = graph.merge("side", strategy=strategy)
    assert receipt.resolved == 2
    assert sorted(_ages(graph)) == list(people)
    assert _knows(graph) == knows
    assert graph.verify().ok


def test_choosing_the_source_for_an_orphan_edge_restores_its_node(graph: Graph) -> None:
    """Also if no other row of its type is merged, and its edge is the only conflict that is resolved this way."""
    _do(graph, 'insert Knows { from: "c", to: "d" }', "side")
    _do(graph, 'delete Person where name = "d"')
    (conflict,) = graph.merge("side", preview=True).conflicts
    receipt = graph.merge("side", resolutions={conflict: "theirs"})
    assert _ages(graph) == dict.fromkeys("abcdef", 1)
    assert {key: change.inserted for key, change in receipt.changes.items()} == {"node:Person": 1, "edge:Knows": 1}


# Constraints across branches


def test_duplicate_unique_values_across_branches_are_a_conflict(graph: Graph) -> None:
    _do(graph, 'update Person set { mail: "m" } where name = "a"', "side")
    _do(graph, 'update Person set { mail: "m" } where name = "b"')
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("side", strategy="theirs")
    (conflict,) = caught.value.conflicts
    assert (conflict.kind, conflict.entity_kind, conflict.type_name) == ("unique_violation", "node", "Person")
    assert conflict.message == "Person.mail: 'b': has 'm', and so has 'a'"


def test_a_cardinality_violation_across_branches_is_a_conflict(graph: Graph) -> None:
    _do(graph, 'insert Lives { from: "a", to: "rome" }', "side")
    _do(graph, 'insert Lives { from: "a", to: "oslo" }')
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("side")
    (conflict,) = caught.value.conflicts
    assert (conflict.kind, conflict.type_name, conflict.entity_id) == ("cardinality_violation", "Lives", None)
    assert conflict.message == "Lives @card: 'a': has 2 edges, allowed are 0..1"
    with pytest.raises(InputError, match="cannot be resolved by choosing a side"):
        graph.merge("side", resolutions={conflict: "ours"})


def test_conflicts_beyond_the_limit_are_counted(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(compare, MAX_CONFLICTS=3)
    thresholds(conflicts, MAX_CONFLICTS=3)
    people = pa.table({"name": list("abcdef"), "age": [2] * 6})
    graph.load({"Person": people}, mode="merge", branch="side")
    graph.load({"Person": people.set_column(1, "age", pa.array([3] * 6))}, mode="merge")
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("side")
    assert caught.value.total == 6
    assert [c.entity_id for c in caught.value.conflicts] == ["a", "b", "c"]
    assert "and 3 more" in caught.value.render()


# The changes of a preview


def _edges(graph: Graph, type_: str, branch: str, *edges: tuple[str, str, str]) -> None:
    rows = [{"edge": type_, "from": start, "to": end, "data": {"id": name}} for name, start, end in edges]
    graph.load(rows, mode="append", branch=branch)


def _break(graph: Graph) -> None:
    """Let both branches break each constraint together. Besides, `side` updates `f`, and inserts an edge and `new`."""
    _edges(graph, "Knows", "side", ("orphan", "a", "b"), ("fine", "e", "f"))
    _do(graph, 'delete Person where name = "b"')
    _do(graph, 'delete Person where name = "c"', "side")
    _edges(graph, "Knows", "main", ("stranded", "a", "c"))
    _edges(graph, "Lives", "side", ("there", "d", "rome"))
    _edges(graph, "Lives", "main", ("here", "d", "oslo"))
    _do(graph, 'update Person set { mail: "m" } where name = "d"', "side")
    _do(graph, 'update Person set { mail: "m" } where name = "e"')
    _do(graph, 'update Person set { age: 9 } where name = "f"', "side")
    _do(graph, 'insert Person { name: "new" }', "side")


BROKEN = ["unique_violation", "orphan_edge", "orphan_edge", "cardinality_violation"]


@pytest.mark.parametrize("most", [10_000, 1])
def test_a_preview_does_not_count_entities_with_conflicts(graph: Graph, thresholds: Thresholds, most: int) -> None:
    _break(graph)
    thresholds(compare, MAX_CONFLICTS=most)
    thresholds(conflicts, MAX_CONFLICTS=most)
    found = graph.merge("side", preview=True)
    assert found.total_conflicts == 4
    assert [c.kind.value for c in found.conflicts] == BROKEN[:most]
    assert {key: counts.to_json() for key, counts in found.changes.items()} == {
        "node:Person": {"inserted": 1, "updated": 1, "deleted": 0},
        "edge:Knows": {"inserted": 1, "updated": 0, "deleted": 0},
    }
    assert [(c.entity_id, c.op) for c in found.previewed] == [("fine", "insert"), ("f", "update"), ("new", "insert")]


@pytest.mark.parametrize("most", [10_000, 1])
def test_the_preview_of_a_branch_update_does_not_count_entities_with_conflicts(
    graph: Graph, thresholds: Thresholds, most: int
) -> None:
    _break(graph)
    for name in ("x", "y", "z"):
        _do(graph, f'insert Person {{ name: "{name}", age: 1 }}', "side")
        _do(graph, f'insert Person {{ name: "{name}", age: 2 }}')
    _do(graph, 'update Person set { age: 9 } where name = "a"')
    graph.schema.apply(SCHEMA.replace("age: I64?", "age: I64?  note: String?"))
    thresholds(compare, MAX_CONFLICTS=most)
    thresholds(conflicts, MAX_CONFLICTS=most)
    found = graph.branches.update("side", preview=True)
    assert (found.total_conflicts, len(found.conflicts)) == (7, min(most, 7))
    assert {key: counts.to_json() for key, counts in found.changes.items()} == {
        "node:Person": {"inserted": 0, "updated": 1, "deleted": 0},
    }
    assert [(c.entity_id, c.op) for c in found.previewed] == [("a", "update")]


def test_a_preview_does_not_count_deleted_edges_that_a_node_needs(place: Path) -> None:
    with omnigraph.init(place, "node N { k: String @key }\nedge E: N -> N @card(2..)") as graph:
        graph.load([{"type": "N", "data": {"k": name}} for name in "ab"], mode="append")
        _edges(graph, "E", "main", *((f"{start}{i}", start, "a") for start in "ab" for i in range(3)))
        graph.branches.create("side")
        _do(graph, 'delete E where id = "a0"')
        for name in ("a1", "b0"):
            _do(graph, f'delete E where id = "{name}"', "side")
        found = graph.merge("side", preview=True)
        assert [c.kind.value for c in found.conflicts] == ["cardinality_violation"]
        assert found.changes["edge:E"].to_json() == {"inserted": 0, "updated": 0, "deleted": 1}
        assert [(c.entity_id, c.op) for c in found.previewed] == [("b0", "delete")]
