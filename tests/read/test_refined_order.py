"""Expensive joins are ordered with exact numbers of candidates and of their edges."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from tests.read.storage_requests import follows
from tests.thresholds import Thresholds

import omnigraph
from omnigraph import Budget
from omnigraph.graph import Graph
from omnigraph.read.match import candidates
from omnigraph.read.plan import refined_order

SCHEMA = """
node Person { name: String @key age: I64 }
edge Follows: Person -> Person
"""
COUNT, HUBS = 400, 10


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """The youngest persons are followed by all others. Nobody else is followed by more than one."""
    names = [f"p{i}" for i in range(COUNT)]
    ends = [(one, hub) for one in range(HUBS, COUNT) for hub in range(HUBS)]
    ends += [(one, one + 1) for one in range(HUBS, COUNT - 1)]
    with omnigraph.init(tmp_path_factory.mktemp("refined") / "graph", SCHEMA) as made:
        made.load(
            {
                "Person": pa.table({"name": names, "age": np.arange(COUNT)}),
                "Follows": follows([(names[a], names[b]) for a, b in ends]),
            },
            mode="append",
        )
        made.query("query q() { match { $a follows $b } return { count(*) as n } }")
        yield made


@pytest.fixture(autouse=True)
def large(thresholds: Thresholds) -> None:
    """Conditions are not evaluated while planning, as for many nodes."""
    thresholds(candidates, MAX_EXACT_COUNT_NODES=0)


HUB_EDGES = "match { $a follows $b  $b.age < 10  $a.age >= 10 } return { $a.age as a, $b.age as b }"


def test_edges_between_candidates_are_counted(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(refined_order, MIN_REFINED_COST_EDGES=0.0, MIN_COST_PER_NODE_EDGES=0.0, MIN_COST_PER_COUNTED_EDGE=0.01)
    text = str(graph.explain(f"query q() {{ {HUB_EDGES} }}", analyze=True))
    (line,) = [line for line in text.splitlines() if line.startswith("expand")]
    estimate, rows = line.split()[-6:-4]
    assert int(estimate) == int(rows) == (COUNT - HUBS) * HUBS


def test_edges_are_not_counted_if_they_do_not_fit_memory(graph: Graph, thresholds: Thresholds) -> None:
    """The 1,170 edges of the three hubs would take 46,800 bytes."""
    thresholds(refined_order, MIN_REFINED_COST_EDGES=0.0, MIN_COST_PER_NODE_EDGES=0.0, MIN_COST_PER_COUNTED_EDGE=0.01)
    text = (
        "match { $a follows $b  $b.age in [1, 4, 7]  $a.age >= 10 } return { $b.age as b count(distinct $a.name) as n }"
    )
    found = graph.query(f"query q() {{ {text} }}", budget=Budget(memory=40_000)).to_pylist()
    assert found == [{"b": age, "n": COUNT - HUBS} for age in (1, 4, 7)]


def test_cheap_joins_are_not_refined(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refined_order, "_evaluate", lambda *_: pytest.fail("this join is cheap"))
    assert graph.query(f"query q() {{ {HUB_EDGES} }}").to_arrow().num_rows == (COUNT - HUBS) * HUBS


@pytest.mark.parametrize("counted", [0.01, 1e9])
def test_the_order_avoids_candidates_with_many_edges(graph: Graph, thresholds: Thresholds, counted: float) -> None:
    """By average degrees, the ten hubs seem to be the best start."""
    text = "match { $a follows $b  $b.age < 10  $a.age >= 370 } return { $a.age as a, $b.age as b }"
    thresholds(
        refined_order, MIN_REFINED_COST_EDGES=0.0, MIN_COST_PER_NODE_EDGES=0.0, MIN_COST_PER_COUNTED_EDGE=counted
    )
    plan = str(graph.explain(f"query q() {{ {text} }}"))
    assert "from the right" not in plan
    assert graph.query(f"query q() {{ {text} }}").to_arrow().num_rows == 300
