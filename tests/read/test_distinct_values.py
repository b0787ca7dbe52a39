"""Conditions on texts that are tested once per distinct value select the nodes that they select one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.graph import Graph
from omnigraph.read.columns import distinct_values

SCHEMA = "node Person { name: String @key  kind: String?  status: enum(open, closed)  age: I64 }"
KINDS = [None, "", "a", "b", "ä", "B"]


@pytest.fixture
def graph(tmp_path: Path, thresholds: Thresholds) -> Iterator[Graph]:
    thresholds(distinct_values, MIN_ENTITIES=0)
    rng = Random(3)
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        people = {
            "name": [f"p{number}" for number in range(200)],
            "kind": [rng.choice(KINDS) for _ in range(200)],
            "status": [rng.choice(["open", "closed"]) for _ in range(200)],
            "age": [rng.randrange(5) for _ in range(200)],
        }
        made.load({"Person": pa.table(people)}, mode="append")
        made.mutate("query d() { delete Person where age = 4 }")
        yield made


CONDITIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    '$p.kind = "a"': lambda row: row["kind"] == "a",
    '$p.kind != "a"': lambda row: row["kind"] not in ("a", None),
    '"b" < $p.kind': lambda row: row["kind"] is not None and row["kind"] > "b",
    '$p.kind in ["a", "", "x"]': lambda row: row["kind"] in ("a", ""),
    '$p.kind not in ["a"]': lambda row: row["kind"] not in ("a", None),
    "$p.kind is null": lambda row: row["kind"] is None,
    "$p.kind is not null": lambda row: row["kind"] is not None,
    '$p.kind = "nowhere"': lambda _: False,
    '$p.status = "open"': lambda row: row["status"] == "open",
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_nodes_are_selected_by_their_values(graph: Graph, condition: str) -> None:
    everything = graph.query("query q() { match { $p: Person } return { $p.* } }").to_pylist()
    expected = [row["p.name"] for row in everything if CONDITIONS[condition]({k[2:]: v for k, v in row.items()})]
    text = f"query q() {{ match {{ $p: Person  {condition} }} return {{ $p.name as n }} }}"
    young = f"query q() {{ match {{ $p: Person  {condition}  $p.age < 2 }} return {{ $p.name as n }} }}"
    ages = {row["p.name"]: row["p.age"] for row in everything}
    for _ in range(4):  # from the third time on, distinct values are cached
        assert sorted(graph.query(text).to_arrow()["n"].to_pylist()) == sorted(expected)
        found = graph.query(young).to_arrow()["n"].to_pylist()
        assert sorted(found) == sorted(name for name in expected if ages[name] < 2)


def test_parameters_are_tested_by_value(graph: Graph) -> None:
    text = "query q($k: String) { match { $p: Person  $p.kind = $k } return { count(*) as n } }"
    counts = [[graph.query(text, {"k": kind}).to_pylist()[0]["n"] for kind in ("a", "b", "x")] for _ in range(4)]
    assert counts[0] == counts[-1]
    assert counts[0][0] > 0
    assert counts[0][2] == 0


def test_a_column_with_many_values_is_compared_as_texts(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(distinct_values, MAX_DISTINCT_VALUES=3)
    text = 'query q() { match { $p: Person  $p.kind = "a" } return { count(*) as n } }'
    assert len({graph.query(text).to_pylist()[0]["n"] for _ in range(4)}) == 1
