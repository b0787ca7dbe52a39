"""A merge copies rows and no schema. It is refused if the schemas of changed types differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.commit.graphs import evolve_to

import omnigraph
from omnigraph.errors import MergeSchemaError
from omnigraph.graph import Graph

SCHEMA = "node Person { name: String @key  age: I64? }\nnode City { name: String @key }\n"


@pytest.fixture
def graph(place: Path) -> Graph:
    made = omnigraph.init(place, SCHEMA)
    made.branches.create("side")
    return made


def _add(graph: Graph, type_name: str, name: str, branch: str) -> None:
    graph.mutate(f'query q() {{ insert {type_name} {{ name: "{name}" }} }}', branch=branch)


def test_rows_of_types_with_equal_schemas_are_merged(graph: Graph) -> None:
    _add(graph, "Person", "ann", "side")
    evolve_to(graph, SCHEMA + "node Ship { name: String @key }\n", [])
    assert graph.merge("side").outcome == "merged"
    assert graph.entity("Person", "ann") is not None
    assert graph.merge("side").outcome == "already_up_to_date"


def test_a_source_with_another_schema_is_refused(graph: Graph) -> None:
    evolve_to(graph, SCHEMA + "node Ship { name: String @key }\n", [])
    before = graph.branch("side").head
    with pytest.raises(MergeSchemaError, match="'main' has a schema that 'side' does not have"):
        graph.merge("main", into="side")
    assert graph.branch("side").head == before


def test_rows_of_a_type_that_the_target_has_dropped_are_refused(graph: Graph) -> None:
    _add(graph, "City", "rome", "side")
    evolve_to(graph, "node Person { name: String @key  age: I64? }\n", [])
    with pytest.raises(MergeSchemaError, match="has changed City, which 'main' does not have") as caught:
        graph.merge("side")
    assert caught.value.types == ("node:City",)
