"""Values that a merge leaves out, because its target does not have the property, are never lost by later merges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import Graph, MergeConflictsError, MergeSchemaError

OLD = "node P { k: String @key  n: I64? }"
NEW = "node P { k: String @key  n: I64?  p: String? }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """`old` lacks the property p of `main` and `new`."""
    made = omnigraph.init(tmp_path / "graph", OLD)
    made.load([{"type": "P", "data": {"k": key, "n": 1}} for key in ("a", "b")], mode="append")
    made.branches.create("old")
    made.schema.apply(NEW)
    made.branches.create("new")
    return made


def write(graph: Graph, text: str, branch: str = "main") -> None:
    graph.mutate(f"query q() {{ {text} }}", branch=branch)


def rows(graph: Graph, branch: str = "main") -> dict[str, dict[str, Any]]:
    return {row.pop("id"): row for row in graph.snapshot(branch=branch).scan("node:P").to_pylist()}


def refused(graph: Graph, source: str, target: str, message: str) -> MergeSchemaError:
    head = graph.branch(target).head.id
    for preview in (True, False):
        with pytest.raises(MergeSchemaError, match=message) as caught:
            graph.merge(source, into=target, preview=preview)
    assert graph.branch(target).head.id == head
    return caught.value


@pytest.mark.parametrize("diverged", [False, True])
def test_a_branch_that_left_out_values_does_not_pass_on_its_ancestors(graph: Graph, *, diverged: bool) -> None:
    if diverged:
        write(graph, 'insert P { k: "new" }', "new")
        write(graph, 'insert P { k: "old" }', "old")
    write(graph, 'update P set { p: "x" } where k = "a"')
    assert graph.merge("main", into="old").left_out == ("P.p",)
    error = refused(graph, "old", "new", "without the values of P.p, which 'new' has")
    assert "merge 'main'" in str(error.hint)
    graph.merge("main", into="new")
    graph.merge("old", into="new")
    graph.merge("new")
    assert {branch: rows(graph, branch)["a"]["p"] for branch in ("new", "main")} == {"new": "x", "main": "x"}
    assert rows(graph).keys() == {"a", "b", *(("new", "old") if diverged else ())}


def test_an_updated_branch_has_the_values_again(graph: Graph) -> None:
    write(graph, 'update P set { p: "x" } where k = "a"')
    graph.merge("main", into="old")
    refused(graph, "old", "new", "P.p")
    graph.branches.update("old")
    graph.merge("old", into="new")
    graph.merge("new")
    assert rows(graph)["a"]["p"] == rows(graph, "new")["a"]["p"] == "x"


def test_values_of_a_branch_that_were_left_out_are_merged_from_it_first(graph: Graph) -> None:
    write(graph, 'insert P { k: "c", p: "y" }', "new")
    graph.merge("new", into="old")
    refused(graph, "old", "main", "of 'new' without the values of P.p")
    with pytest.raises(MergeSchemaError, match=r"of 'new' without the values of P\.p"):
        graph.branches.update("old")
    graph.merge("new")
    graph.merge("old")
    graph.branches.update("old")
    assert rows(graph)["c"]["p"] == rows(graph, "old")["c"]["p"] == "y"


def test_left_out_values_are_found_behind_another_branch(graph: Graph) -> None:
    graph.branches.create("older", source="old")
    write(graph, 'update P set { p: "x" } where k = "a"')
    graph.merge("main", into="old")
    graph.merge("old", into="older")
    refused(graph, "older", "new", "P.p")
    graph.merge("older")
    assert rows(graph)["a"]["p"] == "x"


def test_values_that_the_target_lacks_too_do_not_matter(graph: Graph) -> None:
    write(graph, 'update P set { n: 2 } where k = "b"', "new")
    graph.schema.apply(NEW.replace("}", " q: String? }"))
    write(graph, 'update P set { q: "x" } where k = "a"')
    graph.branches.create("older", source="old")
    graph.merge("main", into="new")
    graph.merge("new", into="old")
    graph.merge("old", into="older")
    assert rows(graph, "older")["b"]["n"] == 2


def test_a_type_that_was_left_out_is_not_lost(graph: Graph) -> None:
    graph.schema.apply(NEW + "\nnode T { k: String @key }")
    graph.branches.create("newest")
    write(graph, 'insert T { k: "t" }')
    assert "T" in graph.merge("main", into="old").left_out
    refused(graph, "old", "newest", r"without the values of .*T, which 'newest' has")
    graph.merge("old", into="main")
    assert graph.snapshot().scan("node:T").num_rows == 1


def test_an_update_does_not_hide_the_values_that_a_branch_had_before(graph: Graph) -> None:
    graph.branches.create("third", source="new")
    write(graph, 'update P set { p: "x" } where k = "a"', "new")
    before = graph.branch("new").head.id
    graph.schema.apply(OLD, allow="drops")
    assert graph.branches.update("new").left_out == ("P.p",)
    error = refused(graph, "new", "third", f"commit {before} of 'new' without the values of P.p")
    assert f"create a branch at commit {before}" in str(error.hint)
    graph.branches.create("kept", commit=before)
    graph.merge("kept", into="third")
    graph.merge("new", into="third")
    assert rows(graph, "third")["a"]["p"] == "x"


_ADDED = {
    "nullable": ("q: String?", 'q: "red"'),
    "default": ("q: I32 @default(7)", "q: 8"),
    "time": ("q: DateTime @default(now())", 'q: datetime("2020-01-01T00:00:00Z")'),
    "enum": ("q: enum(calm, wild) @default(calm)", 'q: "wild"'),
    "list": ("q: [String]?", 'q: ["x"]'),
}
"""New properties, and how `main` changes them."""


@pytest.fixture(params=_ADDED)
def deleting(tmp_path: Path, request: pytest.FixtureRequest) -> Graph:
    """`main` sets a new property of 'a'. `old`, which lacks the property, deletes 'a' and 'b'."""
    column, change = _ADDED[request.param]
    made = omnigraph.init(tmp_path / "graph", OLD)
    made.load([{"type": "P", "data": {"k": key, "n": 1}} for key in ("a", "b", "c")], mode="append")
    made.branches.create("old")
    made.schema.apply(f"node P {{ k: String @key  n: I64?  {column} }}")
    write(made, f'update P set {{ {change} }} where k = "a"')
    for key in ("a", "b"):
        write(made, f'delete P where k = "{key}"', "old")
    return made


@pytest.mark.parametrize("level", ["row", "property"])
def test_a_delete_conflicts_with_a_change_of_a_property_that_the_target_lacks(deleting: Graph, level: str) -> None:
    found = deleting.merge("main", into="old", preview=True, level=level)
    assert [(one.kind.value, one.entity_id) for one in found.conflicts] == [("delete_vs_update", "a")]
    with pytest.raises(MergeConflictsError):
        deleting.merge("main", into="old", level=level)
    before = rows(deleting)["a"]
    deleting.merge("main", into="old", strategy="theirs", level=level)
    assert rows(deleting, "old").keys() == {"a", "c"}
    deleting.merge("old", level=level)
    assert rows(deleting).keys() == {"a", "c"}
    assert rows(deleting)["a"] == before


def test_a_delete_that_wins_over_a_change_of_a_property_that_the_target_lacks(deleting: Graph) -> None:
    assert deleting.merge("main", into="old", resolutions={("P", "a"): "ours"}).resolved == 1
    assert rows(deleting, "old").keys() == {"c"}
    deleting.merge("old")
    assert rows(deleting).keys() == {"c"}


def test_a_delete_does_not_conflict_with_the_filled_value_of_a_property_that_the_target_lacks(graph: Graph) -> None:
    graph.schema.apply(NEW.replace("}", "q: I32 @default(7)  t: DateTime @default(now()) }"))
    write(graph, 'update P set { n: 2 } where k = "b"')
    write(graph, 'delete P where k = "a"', "old")
    graph.optimize()
    graph.merge("main", into="old")
    graph.merge("old")
    assert rows(graph).keys() == {"b"}


def test_a_delete_does_not_conflict_with_a_renamed_enum_value_that_the_target_lacks(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "enums", OLD)
    graph.load([{"type": "P", "data": {"k": key}} for key in ("a", "b", "c")], mode="append")
    graph.branches.create("old")
    graph.schema.apply("node P { k: String @key  n: I64?  e: enum(x, y) @default(x) }")
    write(graph, 'update P set { e: "y" } where k = "b"')
    graph.merge("main", into="old")
    graph.schema.apply('node P { k: String @key  n: I64?  e: enum(x, z @rename_from("y")) @default(x) }')
    write(graph, 'update P set { e: "x" } where k = "c"')
    write(graph, 'update P set { e: "z" } where k = "a"')
    for key in "abc":
        write(graph, f'delete P where k = "{key}"', "old")
    found = graph.merge("main", into="old", preview=True)
    assert [one.entity_id for one in found.conflicts] == ["a"]
