"""A merge carries rows and no schema: where the schemas of two branches differ in its way, it is refused."""

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


def test_rows_of_types_that_stayed_the_same_are_merged(graph: Graph) -> None:
    _add(graph, "Person", "ann", "side")
    evolve_to(graph, SCHEMA + "node Ship { name: String @key }\n", [])
    assert graph.merge("side").outcome == "merged"
    assert graph.entity("Person", "ann") is not None
    assert graph.merge("side").outcome == "already_up_to_date"


def test_the_schema_of_the_source_is_not_brought(graph: Graph) -> None:
    evolve_to(graph, SCHEMA + "node Ship { name: String @key }\n", [])
    before = graph.branch("side").head
    with pytest.raises(MergeSchemaError, match="'main' has a schema that 'side' does not have"):
        graph.merge("main", into="side")
    assert graph.branch("side").head == before


def test_a_type_that_is_gone_refuses_its_rows(graph: Graph) -> None:
    _add(graph, "City", "rome", "side")
    evolve_to(graph, "node Person { name: String @key  age: I64? }\n", [])
    with pytest.raises(MergeSchemaError, match="has changed City, which 'main' does not have") as caught:
        graph.merge("side")
    assert caught.value.types == ("node:City",)
