"""A diff of two states in which one name means different types."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import omnigraph
from omnigraph.changes.diff import ChangeCounts
from omnigraph.cli.main import cli
from omnigraph.errors import InputError
from omnigraph.graph import Graph


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """At the tag `before`, A has two entities. Then A becomes B, and a new type A gets one entity."""
    with omnigraph.init(tmp_path / "g", "node A { k: String @key }") as graph:
        graph.load([{"type": "A", "data": {"k": key}} for key in ("one", "two")], mode="append")
        graph.tags.create("before")
        graph.schema.apply('node B @rename_from("A") { k: String @key }')
        graph.schema.apply("node B { k: String @key } node A { k: String @key }")
        graph.load([{"type": "A", "data": {"k": "three"}}], mode="append")
        graph.mutate('query q() { delete B where k = "one" }')
        yield graph


def test_a_name_of_two_types_is_refused(graph: Graph) -> None:
    for states, shown in (
        (("before", "main"), "node A, node B .was A."),
        (("main", "before"), "node A .was B., node A .dropped."),
    ):
        diff = graph.diff(*states)
        for name in ("A", "node:A"):
            with pytest.raises(InputError, match=f"'{name}' is the name of several types: {shown}"):
                diff[name]
    assert graph.diff("before", "main")["B"].deleted()["id"].to_pylist() == ["one"]
    assert graph.diff("main", "before")["B"].inserted()["id"].to_pylist() == ["one"]


def test_each_type_is_counted_under_its_own_key(graph: Graph) -> None:
    forward, back = graph.diff("before", "main"), graph.diff("main", "before")
    inserted, deleted = ChangeCounts(inserts=1), ChangeCounts(deletes=1)
    assert forward.stat().types == (("node:A", inserted), ("node:B", deleted))
    assert back.stat().types == (("node:A", inserted), ("node:A (dropped)", deleted))
    assert [one.label for one in back] == ["node A (was B)", "node A (dropped)"]
    found = {one.label: (one.inserted()["id"].to_pylist(), one.deleted()["id"].to_pylist()) for one in back}
    assert found == {"node A (was B)": (["one"], []), "node A (dropped)": ([], ["three"])}
    printed = CliRunner().invoke(cli, ["diff", "main", "before", "--uri", graph.uri]).output.splitlines()
    assert printed[:3] == [
        "2 changes: 1 inserted, 0 updated, 1 deleted",
        "  node:A            +1",
        "  node:A (dropped)  -1",
    ]


def test_a_dropped_type_without_namesake_keeps_its_key(graph: Graph) -> None:
    graph.tags.create("both")
    graph.schema.apply("node B { k: String @key }")
    assert graph.diff("both", "main").stat().types == (("node:A", ChangeCounts(deletes=1)),)
    assert graph.diff("both", "main")["A"].deleted()["id"].to_pylist() == ["three"]


def test_a_node_type_and_an_edge_type_with_one_name_are_told_apart(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "both", "node Link { k: String @key } edge Link: Link -> Link") as graph:
        graph.tags.create("before")
        graph.load([{"type": "Link", "data": {"k": "a"}}], mode="append")
        diff = graph.diff("before", "main")
        with pytest.raises(InputError, match="several types: edge Link, node Link") as caught:
            diff["Link"]
        assert caught.value.hint == "use node:Link or edge:Link"
        assert diff["node:Link"].inserted()["id"].to_pylist() == ["a"]
        assert diff["edge:Link"].inserted().num_rows == 0
