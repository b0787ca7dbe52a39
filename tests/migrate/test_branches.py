"""Branches from before a schema change: merges never mix up properties, and untouched types still merge."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.commit.graphs import assert_whole

import omnigraph
from omnigraph.errors import InputError, MergeSchemaError, NotFoundError
from omnigraph.graph import Graph

SCHEMA = "node P { name: String @key  a: String?  b: String? }\nnode Q { k: String @key }"
SWAPS = (
    SCHEMA.replace("a: String?", 't: String? @rename_from("a")'),
    SCHEMA.replace("a: String?", "t: String?").replace("b: String?", 'a: String? @rename_from("b")'),
    SCHEMA.replace("b: String?", 'b: String? @rename_from("t")'),
)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = omnigraph.init(tmp_path / "g", SCHEMA)
    rows = pa.table({"name": ["x", "y"], "a": ["ax", "ay"], "b": ["bx", "by"]})
    graph.load({"P": rows, "Q": pa.table({"k": ["q"]})}, mode="append")
    graph.branches.create("dev")
    return graph


def values(graph: Graph, branch: str = "main") -> dict[str, tuple[str, str]]:
    rows = graph.snapshot(branch=branch).scan("node:P").to_pylist()
    return {row["name"]: (row["a"], row["b"]) for row in rows}


def test_names_can_be_swapped_by_several_changes(graph: Graph) -> None:
    for source in SWAPS:
        graph.schema.apply(source)
    assert values(graph) == {"x": ("bx", "ax"), "y": ("by", "ay")}
    assert values(graph, "dev") == {"x": ("ax", "bx"), "y": ("ay", "by")}


def test_a_merge_does_not_mix_up_properties_whose_names_were_swapped(graph: Graph) -> None:
    for source in SWAPS:
        graph.schema.apply(source)
    graph.mutate('query q() { update P set { a: "new" } where name = "x" }', branch="dev")
    try:
        graph.merge("dev")
    except MergeSchemaError:
        assert values(graph) == {"x": ("bx", "ax"), "y": ("by", "ay")}
    else:  # a merge that follows identities
        assert values(graph) == {"x": ("bx", "new"), "y": ("by", "ay")}
    assert_whole(graph)


def test_a_type_that_the_change_did_not_touch_can_be_merged(graph: Graph) -> None:
    graph.schema.apply(SWAPS[0])
    graph.mutate('query q() { insert Q { k: "r" } }', branch="dev")
    graph.merge("dev")
    assert sorted(graph.snapshot().scan("node:Q")["id"].to_pylist()) == ["q", "r"]
    assert_whole(graph)


def test_a_branch_that_is_created_after_a_change_has_the_new_schema(graph: Graph) -> None:
    before = graph.snapshot().commit.id
    graph.schema.apply(SWAPS[0])
    graph.branches.create("new")
    graph.branches.create("old", commit=before)
    assert graph.schema.show(branch="new") == SWAPS[0]
    assert graph.schema.show(branch="old") == SCHEMA == graph.schema.show(branch="dev")
    graph.mutate('query q() { insert P { name: "z", t: "tz" } }', branch="new")
    graph.mutate('query q() { insert P { name: "z", a: "az" } }', branch="old")
    graph.merge("new")
    assert graph.snapshot().scan("node:P").num_rows == 3


def test_a_handle_on_another_branch_changes_main_only_if_it_is_named(graph: Graph) -> None:
    with omnigraph.open(graph.uri, branch="dev") as dev:
        with pytest.raises(InputError, match="schemas change on 'main'"):
            dev.schema.apply(SWAPS[0])
        assert dev.schema.apply(SWAPS[0], branch="main").applied
        assert dev.schema.source == SCHEMA
        assert dev.schema.show(branch="main") == SWAPS[0]


def test_a_new_blob_property_has_no_value_in_existing_rows(graph: Graph) -> None:
    graph.schema.apply(SCHEMA.replace("b: String?", "b: String?  pic: Blob?"))
    with pytest.raises(NotFoundError):
        graph.blob("P", "x", "pic")
    graph.load({"P": pa.table({"name": ["x"], "a": ["ax"], "pic": [b"picture"]})}, mode="merge")
    assert graph.blob("P", "x", "pic").read() == b"picture"
    graph.schema.apply(SCHEMA.replace("b: String?", 'b: String?  photo: Blob? @rename_from("pic")'))
    assert graph.blob("P", "x", "photo").read() == b"picture"
    graph.mutate('query q() { update P set { a: "new" } where name = "x" }')
    assert graph.blob("P", "x", "photo").read() == b"picture"
    graph.optimize()
    assert graph.blob("P", "x", "photo").read() == b"picture"
    with pytest.raises(NotFoundError):
        graph.blob("P", "y", "photo")


def test_a_large_blob_in_its_own_file_survives_column_changes(graph: Graph) -> None:
    large = bytes(range(256)) * (20 << 10)
    graph.schema.apply(SCHEMA.replace("b: String?", "b: String?  pic: Blob?"))
    graph.load({"P": pa.table({"name": ["x"], "pic": pa.array([large], pa.large_binary())})}, mode="merge")
    graph.schema.apply(SCHEMA.replace("b: String?", 'b: String?  pic: Blob?  c: String @default("c")'))
    assert b"".join(graph.blob("P", "x", "pic").iter()) == large
    graph.schema.apply(SCHEMA.replace("b: String?", 'b: String?  photo: Blob? @rename_from("pic")'))
    assert b"".join(graph.blob("P", "x", "photo").iter()) == large
    assert graph.verify().ok


def test_entities_and_blobs_of_old_states_are_found_by_their_old_type_names(tmp_path: Path) -> None:
    old = "node P { k: String @key  pic: Blob? }\nedge E: P -> P { w: I32?  pic: Blob? }"
    new = old.replace("node P", 'node Q @rename_from("P")').replace("P -> P {", "Q -> Q {")
    new = new.replace("edge E: Q -> Q {", 'edge F: Q -> Q @rename_from("E") {')
    with omnigraph.init(tmp_path / "old", old) as graph:
        graph.load({"P": pa.table({"k": ["x"], "pic": [b"node"]})}, mode="append")
        graph.load({"E": pa.table({"from": ["x"], "to": ["x"], "pic": [b"edge"]})}, mode="append")
        before = graph.snapshot().commit.id
        (edge,) = graph.snapshot().scan("edge:E")["id"].to_pylist()
        graph.branches.create("dev")
        graph.schema.apply(new)
        for at in (before, graph.snapshot(branch="dev")):
            assert graph.entity("E", edge, at=at) is not None
            assert graph.blob("E", edge, "pic", at=at).read() == b"edge"
            assert graph.blob("P", "x", "pic", at=at).read() == b"node"
        assert graph.branch("dev").entity("E", edge) is not None
        assert graph.blob("F", edge, "pic").read() == b"edge"
        assert graph.entity("F", edge) is not None
        exported = b"".join(graph.export(types="E", at=before))
        assert edge.encode() in exported
        assert graph.verify(commit=before).ok
        assert {index.type_key for index in graph.indexes(at=before)} == {"node:P", "edge:E"}
