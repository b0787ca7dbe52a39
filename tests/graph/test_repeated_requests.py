"""A request that is sent again with its idempotency key has its first answer, also after a change of the schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph
from omnigraph.errors import BadRowsError, InputError, TypeCheckError
from omnigraph.graph import Graph

BEFORE = "node Person { name: String @key  age: I32?  email: String? }"
AFTER = "node Person { name: String @key  email: String? }"
INSERT = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", BEFORE) as made:
        yield made


def _insert(graph: Graph, age: int = 30) -> omnigraph.MutationReceipt:
    return graph.mutate(INSERT, {"name": "ann", "age": age}, idempotency_key="insert")


def _load(graph: Graph, name: str = "bob") -> omnigraph.LoadReceipt:
    rows = [{"type": "Person", "data": {"name": name, "age": 7}}]
    return graph.load(rows, mode="append", idempotency_key="load")


@pytest.mark.parametrize("request_of", [_insert, _load])
def test_a_repeated_request_has_its_receipt_although_the_schema_has_changed(
    graph: Graph, request_of: Callable[[Graph], omnigraph.MutationReceipt | omnigraph.LoadReceipt]
) -> None:
    first = request_of(graph)
    assert graph.schema.apply(AFTER).applied
    assert request_of(graph) == first
    with omnigraph.open(graph.uri) as reopened:
        assert request_of(reopened) == first


def test_a_key_is_refused_for_another_request_although_the_schema_has_changed(graph: Graph) -> None:
    _insert(graph)
    _load(graph)
    graph.schema.apply(AFTER)
    with pytest.raises(InputError, match="other parameters"):
        _insert(graph, age=31)
    with pytest.raises(InputError, match="other rows"):
        _load(graph, "eve")


def test_a_request_with_a_new_key_has_to_fit_the_new_schema(graph: Graph) -> None:
    graph.schema.apply(AFTER)
    with pytest.raises(TypeCheckError):
        _insert(graph)
    with pytest.raises(BadRowsError):
        _load(graph)


def test_a_request_whose_state_was_removed_is_compared_with_the_new_schema(graph: Graph) -> None:
    _insert(graph)
    graph.schema.apply(AFTER)
    for number in range(4):
        graph.mutate("query q($n: String) { insert Person { name: $n } }", {"n": str(number)})
    graph.cleanup(keep=1, older_than=timedelta(0))
    with pytest.raises(TypeCheckError):
        _insert(graph)
