"""Counts with inequalities and negated edges are the same by subtraction as from all rows."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pytest
from tests.read.storage_requests import follows
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.graph import Graph
from omnigraph.read.plan import plan_candidates, planner

SCHEMA = """
interface Named { name: String }
node Person implements Named { @key(name) age: I64 }
node City implements Named { @key(name) }
edge Follows: Person -> Person
edge LivesIn: Person -> City
"""
RANDOM = Random(5)
PEOPLE = [f"p{i}" for i in range(14)]
FOLLOWS = [(RANDOM.choice(PEOPLE), RANDOM.choice(PEOPLE)) for _ in range(60)]
LIVES = [(name, f"c{RANDOM.randrange(3)}") for name in PEOPLE for _ in range(RANDOM.randrange(3))]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with omnigraph.init(tmp_path_factory.mktemp("subtraction") / "graph", SCHEMA) as made:
        made.load(
            {
                "Person": pa.table({"name": PEOPLE, "age": [i % 5 for i in range(len(PEOPLE))]}),
                "City": pa.table({"name": [f"c{i}" for i in range(4)]}),
                "Follows": follows(FOLLOWS),
                "LivesIn": follows(LIVES),
            },
            mode="append",
        )
        yield made


TWO = "$a follows $b  $b follows $c"
MATCHES = [
    f"{TWO}  $a != $c",
    f"{TWO}  $a != $c  $a != $b",
    f"{TWO}  $a != $b  $b != $c  $a != $c",
    f"{TWO}  $c follows $d  $a != $c  $b != $d  $a != $d  $a != $b",
    f"{TWO}  not {{ $a follows $c }}",
    f"{TWO}  $a != $c  not {{ $a follows $c }}",
    f"{TWO}  $a != $c  not {{ $c follows $a }}  not {{ $a follows $c }}",
    f"{TWO}  $a.age < 3  $c.age > 1  $a != $c",
    f"{TWO}  $c livesIn $x  $a != $c",
    f"{TWO}  $a != $c  not {{ $b livesIn $x }}",
    f"{TWO}  $a != $c  optional {{ $c livesIn $x }}",
    "$a $e:follows $b  $b $f:follows $c  $a != $c",
    "$a follows $b  $c follows $b  $a != $c",
    "$a follows $b  $c: Person  $a != $c  not { $b follows $c }",
    f"{TWO}  not {{ $a <follows> $c }}",
    f'{TWO}  $a != $c  $x: Named  $a (follows | livesIn) $x  $x.name > "c1"',
    "$a: Person  $b: Person  $a != $b",
    "$a follows $b  $b livesIn $x  $a livesIn $x  $a != $b  not { $b follows $a }",
]
RETURNS = [
    "return { count(*) as n }",
    "return { $a.name as a, count(*) as n } order { a }",
    "return { $b.age as age, count(*) as n, max($a.age) as m } order { age }",
    "return { $a.name as a, $b.name as b, count(*) as n } order { a, b }",
    "return { $b.name as b, count(distinct $a) as n } order { b }",
]


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("returned", RETURNS)
def test_subtraction_and_enumeration_agree(graph: Graph, thresholds: Thresholds, match: str, returned: str) -> None:
    text = f"query q() {{ match {{ {match} }} {returned} }}"
    thresholds(planner, MIN_SUBTRACT_GAIN=10**9)
    thresholds(plan_candidates, MIN_EXCLUDE_GAIN=10**9)
    expected = graph.query(text).to_pylist()
    thresholds(planner, MIN_SUBTRACT_GAIN=0.0)
    thresholds(plan_candidates, MIN_EXCLUDE_GAIN=0.0)
    assert graph.query(text).to_pylist() == expected
    assert expected


OPTIONALS = [
    "$a: Person  optional { $a livesIn $x }",
    "$a: Person  optional { $a follows $b  $b livesIn $x }",
    "$a: Person  $a.age < 2  optional { $a follows $b  $b.age > 2 }  optional { $a livesIn $x }",
    "$a: Person  $z follows $a  optional { $a follows $b  not { $b livesIn $x } }",
    "$a: Person  $z follows $a  $a != $z  optional { $z livesIn $x }  not { $a livesIn $y }",
    "$a: Person  optional { $a follows{1,2} $b }",
    "$a: Person  optional { $a livesIn $x }  optional { $b livesIn $x }",
]
RETURNS_OF_ONE = [
    "return { count(*) as n }",
    "return { $a.name as a, count(*) as n } order { a }",
    "return { $a.age as age, count(*) as n, count(distinct $a) as m } order { age }",
    "return { $a.age as age, max($a.name) as m } order { age }",
]


@pytest.mark.parametrize("match", OPTIONALS)
@pytest.mark.parametrize("returned", RETURNS_OF_ONE)
def test_counted_optional_blocks_and_enumeration_agree(
    graph: Graph, thresholds: Thresholds, match: str, returned: str
) -> None:
    test_subtraction_and_enumeration_agree(graph, thresholds, match, returned)


def test_a_count_of_paths_without_returns_produces_no_rows_for_them(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(planner, SUBTRACT_PLAN_COST_EDGES=0.0)
    text = f"query q() {{ match {{ {TWO}  $a != $c }} return {{ count(*) as n }} }}"
    plan = graph.explain(text, analyze=True)
    assert plan.steps[0].action == "subtract"
    pairs = set(FOLLOWS)
    assert graph.query(text).to_pylist() == [{"n": sum(b == c and a != d for a, b in pairs for c, d in pairs)}]


def test_a_cheap_count_is_not_planned_as_a_subtraction(graph: Graph) -> None:
    text = f"query q() {{ match {{ {TWO}  $a != $c }} return {{ count(*) as n }} }}"
    assert "subtract" not in [step.action for step in graph.explain(text).steps]
