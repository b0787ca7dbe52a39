"""Merges by property: changes of different properties are combined, and dependent properties stay together."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import InputError, MergeConflictsError
from omnigraph.graph import Graph
from omnigraph.merge.choices import Choice, Strategy
from omnigraph.merge.property_level import compare_rows

SCHEMA = """
node Doc @merge(property) {
    name: String @key
    a: I64?
    b: I64?
    text: String?
    vec: Vector(2)? @embed("text")
    photo: Blob?
    scan: Blob?
    @unique(a, b)
}
node Whole { name: String @key  a: I64?  b: I64? }
edge Links: Doc -> Doc @merge(property) { weight: I64?  kind: String? }
"""
DOC = {"a": 1, "b": 1, "text": "t", "vec": [0.0, 0.0], "photo": "base64:cDA=", "scan": "base64:czA="}


@pytest.fixture
def graph(place: Path) -> Graph:
    made = omnigraph.init(place, SCHEMA)
    _put(made, "main", {"x": {}, "y": {"a": 2}, "z": {"a": 3}})
    made.load([_link("x", "y")], mode="merge")
    made.branches.create("side")
    return made


def _put(graph: Graph, branch: str, docs: dict[str, dict[str, Any]]) -> None:
    rows = [{"type": "Doc", "data": {"name": name, **DOC, **values}} for name, values in docs.items()]
    graph.load(rows, mode="merge", branch=branch, embed=False)


def _link(start: str, end: str, **values: Any) -> dict[str, Any]:
    return {"edge": "Links", "from": start, "to": end, "data": {"id": "l", "weight": 1, "kind": "k", **values}}


def _doc(graph: Graph, name: str, branch: str = "main") -> dict[str, Any]:
    found = graph.branch(branch).entity("Doc", name)
    assert found is not None
    blobs = {p: graph.branch(branch).blob("Doc", name, p).read() for p in ("photo", "scan")}
    return {**{p: found[p] for p in ("a", "b", "text", "vec")}, **blobs}


def test_changes_of_different_properties_are_combined(graph: Graph) -> None:
    _put(graph, "side", {"x": {"a": 5, "photo": "base64:cDE="}})
    _put(graph, "main", {"x": {"b": 6, "scan": "base64:czE="}})
    receipt = graph.merge("side")
    assert (receipt.outcome, receipt.changes["node:Doc"].updated) == ("merged", 1)
    assert _doc(graph, "x") == {"a": 5, "b": 6, "text": "t", "vec": [0.0, 0.0], "photo": b"p1", "scan": b"s1"}
    assert graph.verify().ok


def test_only_the_property_that_both_changed_is_in_conflict(graph: Graph) -> None:
    _put(graph, "side", {"x": {"a": 5, "b": 5}})
    _put(graph, "main", {"x": {"a": 6, "photo": "base64:cDE="}})
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("side")
    (conflict,) = caught.value.conflicts
    assert (conflict.base, conflict.ours, conflict.theirs) == ({"a": 1}, {"a": 6}, {"a": 5})
    for side, a in (("ours", 6), ("theirs", 5)):
        graph.branches.create(side)
        assert graph.merge("side", side, strategy=side).resolved == 1
        found = _doc(graph, "x", side)
        assert (found["a"], found["b"], found["photo"]) == (a, 5, b"p1"), "the other properties are combined"


def test_an_equal_change_on_both_sides_is_no_conflict(graph: Graph) -> None:
    _put(graph, "side", {"x": {"a": 5}})
    _put(graph, "main", {"x": {"a": 5, "b": 6}})
    receipt = graph.merge("side")
    assert (receipt.total_conflicts, receipt.changes) == (0, {}), "the row of the target already has both changes"


def test_a_vector_and_its_text_come_from_the_same_side(graph: Graph) -> None:
    _put(graph, "side", {"x": {"text": "new", "vec": [1.0, 1.0]}, "y": {"a": 2, "text": "new", "vec": [1.0, 1.0]}})
    _put(graph, "main", {"x": {"vec": [2.0, 2.0]}, "y": {"a": 2, "b": 9}})
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("side")
    (conflict,) = caught.value.conflicts
    assert (conflict.entity_id, set(conflict.ours or {})) == ("x", {"text", "vec"})
    graph.merge("side", strategy="ours")
    assert (_doc(graph, "x")["text"], _doc(graph, "x")["vec"]) == ("t", [2.0, 2.0])
    found = _doc(graph, "y")
    assert (found["text"], found["vec"], found["b"]) == ("new", [1.0, 1.0], 9)


def test_both_ends_of_an_edge_come_from_the_same_side(graph: Graph) -> None:
    graph.load([_link("z", "y")], mode="merge", branch="side")
    graph.load([_link("x", "z", weight=7)], mode="merge")
    with pytest.raises(MergeConflictsError) as caught:
        graph.merge("side")
    (conflict,) = caught.value.conflicts
    assert (conflict.ours, conflict.theirs) == ({"src": "x", "dst": "z"}, {"src": "z", "dst": "y"})
    graph.merge("side", strategy="theirs")
    found = graph.entity("Links", "l")
    assert found is not None
    assert (found["src"], found["dst"], found["weight"]) == ("z", "y", 7)


ORPHANS = [
    # The branch that moves the edge to z, the values that it and the other branch set, and the side that wins.
    ("main", {}, {"weight": 9}, "ours", ("x", "z", 9, "k")),
    ("main", {}, {"weight": 9}, "theirs", ("x", "y", 9, "k")),
    ("main", {"kind": "m"}, {"weight": 9}, "theirs", ("x", "y", 9, "m")),
    ("side", {"kind": "s"}, {"weight": 7}, "ours", ("x", "y", 7, "s")),
    ("side", {"kind": "s"}, {"weight": 7}, "theirs", ("x", "z", 7, "s")),
    ("side", {"weight": 9}, {}, "ours", ("x", "y", 9, "k")),
    ("side", {}, {}, "ours", ("x", "y", 1, "k")),
    ("side", {}, {"weight": 7}, "ours", ("x", "y", 7, "k")),
]


@pytest.mark.parametrize("by", ["strategy", "edge", "node"])
@pytest.mark.parametrize(("mover", "moved", "values", "side", "expected"), ORPHANS)
def test_a_choice_for_an_orphan_edge_decides_only_its_endpoints(
    graph: Graph, mover: str, moved: dict[str, Any], values: dict[str, Any], side: str, expected: Any, by: str
) -> None:
    """One branch moves an edge to a node that the other deletes, and both set properties of the edge."""
    other = "main" if mover == "side" else "side"
    graph.load([_link("x", "z", **moved)], mode="merge", branch=mover)
    if values:
        graph.load([_link("x", "y", **values)], mode="merge", branch=other)
    _put(graph, mover, {"z": {"a": 7}})  # so that the node is in conflict, too, and has a choice
    graph.mutate('query q() { delete Doc where name = "z" }', branch=other)
    listed = {(c.type_name, str(c.entity_id)) for c in graph.merge("side", preview=True).conflicts}
    assert ("Doc", "z") in listed
    if by == "strategy":
        graph.merge("side", strategy=side)
    else:
        names = listed if by == "edge" else {("Doc", "z")}
        graph.merge("side", resolutions=dict.fromkeys(names, side))
    found = graph.entity("Links", "l")
    assert found is not None
    assert (found["src"], found["dst"], found["weight"], found["kind"]) == expected
    assert (graph.entity("Doc", "z") is not None) == (expected[1] == "z")
    assert graph.verify().ok


def test_an_orphan_edge_of_both_sides_can_be_resolved_alone(graph: Graph) -> None:
    graph.load([_link("x", "z")], mode="merge")
    graph.load([_link("x", "y", weight=9)], mode="merge", branch="side")
    graph.mutate('query q() { delete Doc where name = "z" }', branch="side")
    (conflict,) = graph.merge("side", preview=True).conflicts
    assert (conflict.kind.value, conflict.ours, conflict.theirs) == (
        "orphan_edge",
        {"src": "x", "dst": "z"},
        {"src": "x", "dst": "y"},
    )
    receipt = graph.merge("side", resolutions={conflict: "theirs"})
    assert {key: (c.inserted, c.updated, c.deleted) for key, c in receipt.changes.items()} == {
        "node:Doc": (0, 0, 1),
        "edge:Links": (0, 1, 0),
    }
    found = graph.entity("Links", "l")
    assert found is not None
    assert (found["src"], found["dst"], found["weight"]) == ("x", "y", 9)


def test_constraints_are_checked_on_the_combined_row(graph: Graph) -> None:
    """Each side is valid, but the combined row has the values of another one."""
    _put(graph, "side", {"x": {"a": 2, "b": 8}})
    _put(graph, "main", {"x": {"b": 1, "text": "other"}, "y": {"a": 2, "b": 8}})
    with pytest.raises(MergeConflictsError, match="unique_violation"):
        graph.merge("side")


def test_the_call_overrides_the_schema(graph: Graph) -> None:
    for branch, a, b in (("side", 5, 1), ("main", 1, 6)):
        _put(graph, branch, {"x": {"a": a, "b": b}})
        rows = [{"type": "Whole", "data": {"name": "w", "a": a, "b": b}}]
        graph.load(rows, mode="merge", branch=branch)
    by_row = graph.merge("side", preview=True, level="row")
    assert {(c.type_name, c.kind.value) for c in by_row.conflicts} >= {("Doc", "divergent_update")}
    assert [c.type_name for c in graph.merge("side", preview=True).conflicts] == ["Whole"]
    with pytest.raises(InputError, match="is not a merge level"):
        graph.merge("side", level="column")


def test_a_row_that_both_sides_created_is_a_whole_row(graph: Graph) -> None:
    _put(graph, "side", {"new": {"a": 10}})
    _put(graph, "main", {"new": {"b": 10}})
    with pytest.raises(MergeConflictsError, match="divergent_insert"):
        graph.merge("side", level="property")


def test_reverts_and_cherry_picks_work_by_property(graph: Graph) -> None:
    _put(graph, "main", {"x": {"a": 5}})
    wrong = graph.branch("main").head
    _put(graph, "main", {"x": {"a": 5, "b": 6}})
    assert graph.revert(wrong.id, preview=True, level="row").total_conflicts == 1
    graph.revert(wrong.id)
    found = _doc(graph, "x")
    assert (found["a"], found["b"]) == (1, 6)
    graph.cherry_pick(wrong.id, "side")
    assert _doc(graph, "x", "side")["a"] == 5


def test_a_transaction_merges_whole_rows(graph: Graph) -> None:
    """Two transactions that change the same row conflict, also if they change different properties."""
    transaction = graph.branch("main").transaction()
    tx = transaction.__enter__()
    tx.mutate('query q() { update Doc set { a: 5 } where name = "x" }')
    graph.mutate('query q() { update Doc set { b: 6 } where name = "x" }')
    with pytest.raises(MergeConflictsError):
        transaction.__exit__(None, None, None)


def test_an_unchanged_schema_keeps_whole_rows(place: Path) -> None:
    with omnigraph.init(place, "node P { k: String @key  a: I64?  b: I64? }") as graph:
        graph.mutate('query q() { insert P { k: "x" } }')
        graph.branches.create("side")
        graph.mutate('query q() { update P set { a: 1 } where k = "x" }', branch="side")
        graph.mutate('query q() { update P set { b: 1 } where k = "x" }')
        with pytest.raises(MergeConflictsError):
            graph.merge("side")
        assert graph.merge("side", level="property").resolved == 0


def test_random_rows_agree_with_a_loop_over_properties() -> None:
    """The relation gives the same rows as a plain loop, for every choice of sides."""
    names, groups = ("p", "q", "r"), (("p",), ("q", "r"))
    for seed in range(200):
        rand = random.Random(seed)
        rows = [{str(i): {n: rand.randrange(3) for n in names} for i in range(6)} for _ in range(3)]
        tables = [
            pa.table({"id": list(one), **{n: pa.array([row[n] for row in one.values()], pa.int64()) for n in names}})
            for one in rows
        ]
        side = rand.choice([None, Strategy.OURS, Strategy.THEIRS])
        base, source, target = tables
        found = compare_rows(base, source, target, Choice(side), groups)
        taken = {row["id"]: {n: row[n] for n in names} for row in found.done.to_pylist()}
        conflicts = {row["id"]: {names[i] for i in row["__differs"]} for row in found.conflict_rows.to_pylist()}
        for entity, (b, s, t) in ((e, [one[e] for one in rows]) for e in rows[0]):
            wanted, torn = dict(t), set()
            for group in groups:
                pick = [[row[n] for n in group] for row in (b, s, t)]
                if pick[1] == pick[0]:
                    continue
                if pick[2] == pick[0] or side is Strategy.THEIRS:
                    wanted |= {n: s[n] for n in group}
                if pick[2] not in (pick[0], pick[1]):
                    torn |= {n for n in group if s[n] != t[n]}
            if side is None and torn:
                assert conflicts.pop(entity) == torn
                assert entity not in taken
            else:
                assert taken.pop(entity, t) == wanted
        assert not taken
        assert not conflicts


def test_blob_contents_are_told_apart_by_hash(graph: Graph) -> None:
    """Many rows take one blob from each side, in their order."""

    def text(prefix: str, i: int) -> str:
        return "base64:" + base64.b64encode(f"{prefix}{i}".encode()).decode()

    names = [f"n{i:03d}" for i in range(60)]
    _put(graph, "main", {n: {"a": None} for n in names})
    graph.merge("main", "side")
    _put(graph, "side", {n: {"a": None, "photo": text("p", i)} for i, n in enumerate(names)})
    _put(graph, "main", {n: {"a": None, "scan": text("s", i)} for i, n in enumerate(names) if i % 3})
    graph.merge("side")
    for i, name in enumerate(names):
        found = _doc(graph, name)
        assert (found["photo"], found["scan"]) == (f"p{i}".encode(), f"s{i}".encode() if i % 3 else b"s0")
