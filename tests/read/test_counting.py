"""Counts are computed without enumerating rows, and they are exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from tests.read.storage_requests import follows

import omnigraph
from omnigraph.errors import BudgetExceededError, ExecutionError
from omnigraph.graph import Graph
from omnigraph.read.budget import Budget

SCHEMA = """
node Person { name: String @key age: I64 }
node City { name: String @key }
edge Follows: Person -> Person
edge LivesIn: Person -> City
"""
PEOPLE = [f"p{i}" for i in range(40)]
RANDOM = Random(11)
FOLLOWS = [(RANDOM.choice(PEOPLE), RANDOM.choice(PEOPLE)) for _ in range(400)]
LIVES = [(name, f"c{RANDOM.randrange(4)}") for name in PEOPLE for _ in range(RANDOM.randrange(3))]
AGE = {name: 10 * i for i, name in enumerate(PEOPLE)}
OUT = sorted(set(FOLLOWS))
AT = sorted(set(LIVES))


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        made.load(
            {
                "Person": pa.table({"name": PEOPLE, "age": [AGE[name] for name in PEOPLE]}),
                "City": pa.table({"name": [f"c{i}" for i in range(5)]}),
                "Follows": follows(FOLLOWS),
                "LivesIn": follows(LIVES),
            },
            mode="append",
        )
        yield made


def rows(graph: Graph, text: str, budget: Budget | None = None) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in graph.query(f"query q() {{ {text} }}", budget=budget).to_pylist()]


def test_two_hops_are_counted_from_degrees(graph: Graph) -> None:
    expected = sum(b == c for _, b in OUT for c, _ in OUT)
    few = Budget(rows=3)
    found = rows(graph, "match { $a: Person $a follows $b $b follows $c } return { count($c) as n }", few)
    assert found == [(expected,)]
    # Enumerating the rows exceeds the budget.
    with pytest.raises(BudgetExceededError):
        rows(graph, "match { $a: Person $a follows $b $b follows $c } return { $a, $b, $c }", few)


def test_parallel_edges_count_only_with_an_edge_variable(graph: Graph) -> None:
    assert rows(graph, "match { $a: Person $a $e:follows $b } return { count($b) as n }") == [(len(FOLLOWS),)]
    assert rows(graph, "match { $a: Person $a follows $b } return { count($b) as n }") == [(len(OUT),)]


def test_only_grouping_variables_are_enumerated(graph: Graph) -> None:
    followers = Counter(b for _, b in OUT)
    expected = sorted((person, city, followers[person]) for person, city in AT if followers[person])
    text = "match { $f follows $p $p livesIn $c } return { $p.name as p, $c.name as c, count($f) as n } order { p, c }"
    assert rows(graph, text) == expected


def test_other_aggregates_beside_a_count_see_every_row_once(graph: Graph) -> None:
    text = """match { $f follows $p $p livesIn $c }
        return { $c.name as c, count($f) as n, min($p.age) as low, max($p.age) as high, count(distinct $p) as people }
        order { c }"""
    expected = []
    for city in sorted({city for _, city in AT}):
        rows_ = [(f, p) for f, p in OUT if (p, city) in AT]
        ages = [AGE[p] for _, p in rows_]
        if rows_:
            expected.append((city, len(rows_), min(ages), max(ages), len({p for _, p in rows_})))
    assert rows(graph, text) == expected


def test_counts_respect_conditions(graph: Graph) -> None:
    expected = sum(AGE[b] < 200 and AGE[c] > 100 for _, b in OUT for b2, c in OUT if b == b2)
    text = "match { $a follows $b $b follows $c $b.age < 200 $c.age > 100 } return { count($c) as n }"
    assert rows(graph, text) == [(expected,)]
    compared = sum(AGE[a] < AGE[c] for a, b in OUT for b2, c in OUT if b == b2)
    text = "match { $a follows $b $b follows $c $a.age < $c.age } return { count($c) as n }"
    assert rows(graph, text) == [(compared,)]


def test_few_candidates_of_a_counted_variable_are_used_for_the_join_order(graph: Graph) -> None:
    cycle = "$a follows $b  $b follows $c  $c follows $a"
    rows(graph, f"match {{ {cycle}  $a livesIn $d }} return {{ count(*) as n }}")
    text = f'match {{ $d: City {{ name: "none" }}  $a livesIn $d  {cycle} }} return {{ $a.name as a, count(*) as n }}'
    (count,) = (step for step in graph.explain(f"query q() {{ {text} }}").steps if step.steps)
    assert [step.estimate for step in count.steps] == [0, 0, 0]
    assert rows(graph, text) == []


def test_unconnected_variables_multiply_the_count(graph: Graph) -> None:
    assert rows(graph, "match { $a: Person $c: City } return { count($a) as n }") == [(40 * 5,)]
    expected = [(f"c{i}", len(OUT)) for i in range(5)]
    text = "match { $a follows $b $c: City } return { $c.name as c, count($a) as n } order { c }"
    assert rows(graph, text) == expected
    assert rows(graph, "match { $a: Person { age: -1 } $c: City } return { count($a) as n }") == [(0,)]


def test_variable_length_hops_are_counted(graph: Graph) -> None:
    def reached(start: str, most: int) -> set[str]:
        seen, frontier = {start}, {start}
        found = {start} if (start, start) in OUT else set()
        for _ in range(most):
            frontier = {b for a, b in OUT if a in frontier} - seen
            seen |= frontier
            found |= frontier
        return found

    expected = sum(len(reached(name, 2)) for name in PEOPLE if AGE[name] < 90)
    text = "match { $a: Person $a.age < 90 $a follows{1,2} $b } return { count($b) as n }"
    assert rows(graph, text) == [(expected,)]
    young = sum(AGE[b] < 100 for name in PEOPLE if AGE[name] < 90 for b in reached(name, 2))
    text = "match { $a: Person $a.age < 90 $a follows{1,2} $b $b.age < 100 } return { count($b) as n }"
    assert rows(graph, text) == [(young,)]


def test_deleted_nodes_have_no_optional_matches(graph: Graph) -> None:
    """A deleted node leaves an unused number, which must not be counted as a node without a match."""
    gone = {"p3", "p20"}
    graph.mutate("query q($names: [String]) { delete Person where name in $names }", {"names": sorted(gone)})
    left = [name for name in PEOPLE if name not in gone]
    homes = Counter(name for name, _ in AT)
    matched = sum(max(homes[name], 1) for name in left)
    text = "match { $a: Person  optional { $a livesIn $c } } return { count(*) as n }"
    assert rows(graph, text) == [(matched,)]
    text = "match { $a: Person  $b: City  optional { $a livesIn $c } } return { count(*) as n }"
    assert rows(graph, text) == [(5 * matched,)]


def test_cycles_are_counted_by_enumeration(graph: Graph) -> None:
    expected = sum((c, a) in OUT for a, b in OUT for b2, c in OUT if b == b2)
    text = "match { $a follows $b $b follows $c $c follows $a } return { count($a) as n }"
    assert rows(graph, text) == [(expected,)]


def test_a_count_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "star", "node N { k: I64 @key }\nedge E: N -> N") as graph:
        pairs = [(str(a), str(b)) for a in range(60) for b in range(60)]
        graph.load({"N": pa.table({"k": list(range(60))}), "E": follows(pairs)}, mode="append")

        def count(hops: int) -> int:
            steps = " ".join(f"$v{i} e $v{i + 1}" for i in range(hops))
            (row,) = graph.query(f"query q() {{ match {{ {steps} }} return {{ count($v0) as n }} }}").to_pylist()
            return int(row["n"])

        assert count(9) == 60**10
        with pytest.raises(ExecutionError, match="too large"):
            count(10)


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Twenty nodes, and an edge from each node to each node."""
    place = tmp_path_factory.mktemp("complete")
    with omnigraph.init(place / "graph", "node N { k: I64 @key }\nedge E: N -> N") as graph:
        pairs = [(str(a), str(b)) for a in range(20) for b in range(20)]
        graph.load({"N": pa.table({"k": list(range(20))}), "E": follows(pairs)}, mode="append")
        yield graph


LEAVES = " ".join(f"$b e $c{i}" for i in range(14))
"""For each node of `$b`, there are 20 ** 14 matches. This is less than the largest I64, and 20 ** 15 is more."""

JOINED = f"$a e $b $a.k + $b.k >= 0 {LEAVES}"


@pytest.mark.parametrize(
    "text",
    [
        f"match {{ $a: N }} return {{ $a.k as k count {{ {JOINED} }} as n }}",
        f"match {{ $a: N count {{ {JOINED} }} > 1 }} return {{ $a.k as k }}",
        f"match {{ $a: N }} with {{ $a }} match {{ {JOINED} }} return {{ $a.k as k count(*) as n }}",
    ],
)
def test_a_sum_of_counts_that_is_too_large_is_an_error(complete: Graph, text: str) -> None:
    with pytest.raises(ExecutionError, match="the result of count is too large"):
        complete.query(f"query q() {{ {text} }}")


@pytest.mark.parametrize("memory", [1500, 2500, 10_000])
def test_a_count_over_several_chunks_that_is_too_large_is_an_error(complete: Graph, memory: int) -> None:
    text = f"query q() {{ match {{ $a: N $b: N {JOINED} }} return {{ $a.k as k count(*) as n }} }}"
    with pytest.raises(ExecutionError, match="the result of count is too large"):
        complete.query(text, budget=Budget(memory=memory))
