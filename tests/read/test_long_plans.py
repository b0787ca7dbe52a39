"""Planning obeys the budget, too: queries with hundreds of variables come from programs, and from attackers."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

import omnigraph
from omnigraph.errors import BudgetExceededError
from omnigraph.errors.body import error_body
from omnigraph.graph import Graph
from omnigraph.read.budget import Budget

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = omnigraph.init(tmp_path / "graph", SCHEMA)
    graph.load({"Person": [{"name": f"p{n}"} for n in range(50)]}, mode="append")
    return graph


def unconnected(count: int) -> str:
    nodes = " ".join(f"$p{n}: Person" for n in range(count))
    return f"query q() {{ match {{ {nodes} }} return {{ $p0.name }} }}"


def star(count: int) -> str:
    edges = " ".join(f"$p knows $q{n}" for n in range(count))
    return f"query q() {{ match {{ $p: Person {edges} }} return {{ count(*) as n }} }}"


@pytest.mark.parametrize("text", [unconnected(600), star(2_000)])
def test_a_plan_that_takes_long_ends_with_its_time(text: str, graph: Graph) -> None:
    with pytest.raises(BudgetExceededError) as exceeded:
        graph.query(text, budget=Budget(seconds=0.5))
    assert exceeded.value.resource == "seconds"
    assert exceeded.value.actual < 30  # without a limit, both take minutes


@pytest.mark.parametrize("count", [20, 150])
def test_an_estimate_that_no_number_can_express_is_an_error_of_the_budget(count: int, graph: Graph) -> None:
    """The product of so many types has more rows than a number of JSON, or a float, can have."""
    with pytest.raises(BudgetExceededError) as exceeded:
        graph.query(unconnected(count), budget=Budget(seconds=None))
    assert exceeded.value.actual == 2**63 - 1
    assert orjson.loads(orjson.dumps(error_body(exceeded.value)))["resource_limit"]["resource"] == "bytes"
