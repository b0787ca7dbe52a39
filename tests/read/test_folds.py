"""Aggregates that are folded along edges are equal to aggregates of rows."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from tests.read.storage_requests import follows

import omnigraph
from omnigraph.errors import ExecutionError
from omnigraph.graph import Graph
from omnigraph.read.budget import Budget
from omnigraph.read.match import fold, node_weights
from omnigraph.read.plan import planner
from omnigraph.testing import thresholds

SCHEMA = """
node Person {
    name: String @key  age: I64?  size: I32  born: Date?  seen: DateTime?  big: U64?  rate: F64?  nick: String?
}
node City { name: String @key  people: I64? }
edge Follows: Person -> Person
edge LivesIn: Person -> City
"""
PEOPLE = [f"p{number}" for number in range(60)]
CITIES = [f"c{number}" for number in range(6)]
ALWAYS = {"MIN_FOLD_COST_EDGES": -1.0, "MIN_FOLD_GAIN": 0.0}

PATTERNS = (
    "$a: Person  $a follows $b",
    "$b: Person  $a follows $b",
    "$a: Person  $a $e:follows $b",
    "$c: City  $a livesIn $c  $a follows $b",
    "$a: Person  $a follows $b  $b follows $x",
    "$a: Person  $a follows $b  $a follows $x",
    "$a: Person  $x follows $a  $a follows $b  $b livesIn $c",
    "$a: Person  $a livesIn $c  $b livesIn $c",
    "$a: Person  $a follows $b  $b follows $x  $x livesIn $c",
    "$a: Person  $a follows $b  $b follows $a",
    "$a: Person  $a follows $b  optional { $b livesIn $c }",
    "$a: Person  $a follows $b  optional { $b follows $x }",
    "$a: Person  $a follows $b  optional { $a follows $x  $x livesIn $c }",
    "$a: Person  optional { $a follows $b }  optional { $x follows $a  $x.size < 9 }",
    "$a: Person  $a follows $b  not { $b livesIn $_ }",
    "$a: Person  $a follows $b  $b follows $x  optional { $x livesIn $c }",
    "$a: Person  $a follows $b  $x follows $a  optional { $x livesIn $c  $c.people < 4 }",
    "$a: Person  $a follows $b  $b follows{1,2} $x  optional { $x livesIn $c  $c.people > 1 }",
    "$a: Person  $a follows $b  optional { $b follows $x  $x.size > 20 }  not { $a livesIn $y  $y.people < 3 }",
)
CONDITIONS = ("", "$a.size > 20", "$b.size < 30", "$b.age is null", "$a.size < 6", "$b.size = 7", "$a.age < $b.age")
KEYS = ("$a.name", "$a.size", "$b.name", "$c.name", "$x.name")
PROPERTIES = ("age", "size", "born", "seen", "big", "rate", "nick")
FUNCTIONS = ("count", "sum", "avg", "min", "max")


def some(rng: Random, *values: object) -> object:
    return None if rng.random() < 0.2 else rng.choice(values)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    rng = Random(5)
    born = [dt.date(1970, 1, 1) + dt.timedelta(days=rng.randrange(-999, 999)) for _ in PEOPLE]
    people = {
        "name": PEOPLE,
        "age": pa.array([some(rng, *range(-40, 90)) for _ in PEOPLE], pa.int64()),
        "size": pa.array([rng.randrange(40) for _ in PEOPLE], pa.int32()),
        "born": pa.array([some(rng, *born) for _ in PEOPLE], pa.date32()),
        "seen": pa.array(
            [some(rng, *(dt.datetime(2026, 1, 1 + day, tzinfo=dt.UTC) for day in range(9))) for _ in PEOPLE]
        ),
        "big": pa.array([some(rng, 2**62, 2**62 + 1, 3) for _ in PEOPLE], pa.uint64()),
        "rate": pa.array([some(rng, 0.5, -0.0, 0.0, 2.5) for _ in PEOPLE], pa.float64()),
        "nick": pa.array([some(rng, "x", "y") for _ in PEOPLE], pa.string()),
    }
    edges = [(rng.choice(PEOPLE), rng.choice(PEOPLE[:50])) for _ in range(500)]
    homes = [(name, rng.choice(CITIES[:5])) for name in PEOPLE for _ in range(rng.randrange(3))]
    place = tmp_path_factory.mktemp("folds") / "graph"
    with omnigraph.init(place, SCHEMA) as made:
        made.load(
            {
                "Person": pa.table(people),
                "City": pa.table({"name": CITIES, "people": list(range(6))}),
                "Follows": follows(edges),
                "LivesIn": follows(homes),
            },
            mode="append",
        )
        made.mutate("query d() { delete Person where size = 11 }")
        yield made


def answer(graph: Graph, text: str) -> list[dict[str, object]] | str:
    try:
        return graph.query(text).to_pylist()
    except ExecutionError as error:
        return str(error)


def some_query(rng: Random) -> str:
    pattern = rng.choice(PATTERNS)
    variables = [name for name in "abcx" if f"${name}" in pattern]
    condition = rng.choice(
        [each for each in CONDITIONS if all(f"${name}" in pattern for name in "ab" if f"${name}" in each)]
    )
    keys = [rng.choice([k for k in KEYS if k[1] in variables])] if rng.random() < 0.8 else []
    columns = [f"{key} as k" for key in keys]
    for number in range(rng.choice((1, 2, 3))):
        function, name = rng.choice(FUNCTIONS), rng.choice(variables)
        names: tuple[str, ...] = PROPERTIES if function in ("count", "min", "max") else ("age", "size", "big")
        names = ("people",) if name == "c" else names
        argument = f"${name}" if function == "count" and rng.random() < 0.4 else f"${name}.{rng.choice(names)}"
        columns.append(f"{function}({argument}) as v{number}")
    if rng.random() < 0.3:
        columns.append("count(*) as n")
    order = "order { k }" if keys else ""
    return f"query q() {{ match {{ {pattern}  {condition} }} return {{ {', '.join(columns)} }} {order} }}"


@pytest.mark.parametrize(
    "cases", [120, pytest.param(400, marks=pytest.mark.slow), pytest.param(5_000, marks=pytest.mark.soak)]
)
def test_folded_aggregates_are_those_of_rows(graph: Graph, cases: int) -> None:
    rng, folded, large = Random(cases), 0, 0
    for _ in range(cases):
        text = some_query(rng)
        with thresholds(planner, MIN_FOLD_COST_EDGES=math.inf):
            expected = answer(graph, text)
        sparse, safe = rng.choice((0, 8, 10**6)), rng.choice((50.0, 2.0**62, 2.0**62))
        with thresholds(planner, **ALWAYS), thresholds(node_weights, SPARSE_RATIO=sparse):
            folded += "fold $" in str(graph.explain(text))
            with thresholds(fold, SAFE_SUM=safe):
                found = answer(graph, text)
        assert found == expected, text
        large += isinstance(expected, str)
    assert folded > cases / 4
    assert large < cases / 4


def test_no_rows_are_produced_for_the_arguments(graph: Graph) -> None:
    match = "match { $a: Person $a follows $b $b follows $x }"
    text = f"query q() {{ {match} return {{ $a.name as n, avg($x.age) as m }} order {{ n }} }}"
    expected = answer(graph, text)
    with thresholds(planner, **ALWAYS):
        analyzed = graph.explain(text, analyze=True)
        assert "count $x for each $b, $b for each $a, fold $x.age" in str(analyzed)
        assert answer(graph, text) == expected
    with thresholds(planner, **ALWAYS):
        assert len(graph.query(text, budget=Budget(rows=1_000)).to_pylist()) == len(expected)


def test_small_reads_do_not_fold(graph: Graph) -> None:
    text = 'query q() { match { $a: Person { name: "p1" } $a follows $b } return { $a.name as n, avg($b.age) as m } }'
    assert "fold" not in str(graph.explain(text))


def test_a_sum_that_may_not_fit_is_computed_from_rows(tmp_path: Path) -> None:
    large = 2**61
    with omnigraph.init(tmp_path / "graph", "node A { name: String @key  x: I64 }\nedge E: A -> A") as graph:
        names = [f"a{number}" for number in range(6)]
        graph.load(
            {
                "A": pa.table({"name": names, "x": [large, large, -large, large, -large, 1]}),
                "E": follows([("a0", name) for name in names[1:]] + [("a1", name) for name in names[:2]]),
            },
            mode="append",
        )
        text = (
            "query q() { match { $a: A $a e $b } return { $a.name as n, sum($b.x) as s, avg($b.x) as m } order { n } }"
        )
        expected = [
            {"n": "a0", "s": 1, "m": 1 / 5},
            {"n": "a1", "s": 2**62, "m": float(2**61)},
        ]
        with thresholds(planner, **ALWAYS):
            assert "fold $b.x" in str(graph.explain(text))
            assert answer(graph, text) == expected
            # The rows were produced, so the plan that ran has no fold.
            analyzed = str(graph.explain(text, analyze=True))
        assert "fold" not in analyzed
        assert "expand $a to $b" in analyzed
