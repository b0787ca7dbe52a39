"""A limit is reached without computing all rows, and the rows are the first of all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from tests.read.storage_requests import follows
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.graph import Graph
from omnigraph.read.budget import Budget
from omnigraph.read.plan import plan_portions

SCHEMA = """
interface Named { name: String }
node Person implements Named { name: String @key  age: I64? }
node City implements Named { name: String @key }
edge Follows: Person -> Person
edge LivesIn: Person -> City
"""


@pytest.fixture
def graph(tmp_path: Path, thresholds: Thresholds) -> Iterator[Graph]:
    # Cheap queries run at once, and every query of this small graph is cheap.
    thresholds(plan_portions, MIN_FULL_MATCH_COST_EDGES=-1.0, FIRST_PORTION_ROWS=1)
    rng = Random(5)
    people = [f"p{i:03}" for i in range(300)]
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        made.load(
            {
                "Person": pa.table(
                    {"name": people, "age": pa.array([rng.choice([None, 1, 2, 3]) for _ in people], pa.int64())}
                ),
                "City": pa.table({"name": ["p000", "p001", "zz"]}),
                "Follows": follows([(rng.choice(people), rng.choice(people)) for _ in range(3000)]),
                "LivesIn": follows([(name, rng.choice(["p000", "p001"])) for name in people[::2]]),
            },
            mode="append",
        )
        yield made


ASKED = {
    "no order": """match { $a: Person  $a follows $b  $b follows $c }
        return { $a.name as a, $b.name as b, $c.name as c }""",
    "a key": "match { $a: Person  $a follows $b } return { $a.name as a, $b.name as b } order { a desc }",
    "ties and nulls": "match { $a: Person  $a follows $b } return { $a.age as a, $b.name as b } order { a, b }",
    "nulls last": """match { $a: Person  $a follows $b }
        return { $a.age as a, $b.name as b } order { a nulls last, b desc }""",
    "not": "match { $a: Person  not { $a livesIn $c } } return { $a.name as a }",
    "optional": """match { $a: Person  optional { $a livesIn $c }  $a follows $b }
        return { $a.name as a, $c.name as c, $b.name as b }""",
    "several types": "match { $a: Named  $b: Person } return { $a.name as a, type($a) as t, $b.name as b }",
    "distinct": """match { $a: Person  $a follows $b  $b follows $c }
        return distinct { $a.age as a, $c.name as c } order { a desc nulls last, c }""",
    "distinct without order": "match { $a: Person  $a follows $b } return distinct { $b.name as b, $a.age as a }",
    "distinct in another order": """match { $a: Person  $a follows $b }
        return distinct { $a.name as a, $b.age as b } order { b, a }""",
    "conditions": """match { $a: Person  $a follows $b  $a.age < $b.age  $b.age = 3 }
        return { $a.name as a, $b.name as b }""",
}


@pytest.mark.parametrize("name", ASKED)
def test_rows_with_a_limit_are_a_prefix_of_all_rows(graph: Graph, name: str) -> None:
    everything = graph.query(f"query q() {{ {ASKED[name]} }}").to_pylist()
    assert len(everything) > 40
    for window in ("limit 1", "limit 7", "offset 33 limit 4", "limit 100000"):
        found = graph.query(f"query q() {{ {ASKED[name]} {window} }}").to_pylist()
        offset = 33 if "offset" in window else 0
        assert found == everything[offset : offset + int(window.split()[-1])], window


def test_a_small_limit_reads_few_rows(graph: Graph) -> None:
    few = Budget(rows=5_000)
    text = f"query q() {{ {ASKED['no order']} limit 3 }}"
    assert "portions by $a.id, until there are 3 rows" in str(graph.explain(text))
    assert graph.query(text, budget=few).row_count == 3


def test_queries_that_need_every_row_do_not_run_in_portions(graph: Graph) -> None:
    for body in (
        "match { $a: Person  $a follows $b } return distinct { $b.age + 1 as b } limit 3",
        "match { $a: Person  $a follows $b } return { $b.age as b, sum($a.age) as n } limit 3",
        "match { $a: Person  shortest $p: $a follows{1,2} $b } return { length($p) as n } limit 3",
        "match { $a: Person  $a $e:follows $b } return { $a.name as a } order { $e.id } limit 3",
        "match { $a: Person  $a follows $b } return { $a.name as a } limit 0",
    ):
        assert "portions" not in str(graph.explain(f"query q() {{ {body} }}"))
