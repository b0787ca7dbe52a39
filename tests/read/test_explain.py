"""Output of explain: the operators, the reasons for their choice, and estimated and actual rows."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.read.storage_requests import follows
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.graph import Graph
from omnigraph.read.context.trace import Entry
from omnigraph.read.match import candidates
from omnigraph.read.plan import join_order, plan_portions, planner
from omnigraph.read.plan.explanation import Explanation

SCHEMA = """
interface Named { name: String }
node Person implements Named { name: String @key  age: I64?  kind: enum(good, bad)? }
node City implements Named { name: String @key }
edge Follows: Person -> Person { since: I64? }
edge LivesIn: Person -> City
"""
PEOPLE = [f"p{i:03}" for i in range(60)]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        pairs = [(PEOPLE[i], PEOPLE[(i * k + k) % 60]) for i in range(60) for k in (1, 7, 11)]
        made.load(
            {
                "Person": pa.table({"name": PEOPLE, "age": [i % 10 for i in range(60)]}),
                "City": pa.table({"name": ["c0", "c1", "c2"]}),
                "Follows": follows(pairs),
                "LivesIn": follows([(name, f"c{i % 3}") for i, name in enumerate(PEOPLE)]),
            },
            mode="append",
        )
        yield made


def explained(graph: Graph, body: str, *, analyze: bool = False) -> Explanation:
    return graph.explain(f"query q() {{ {body} }}", analyze=analyze)


def operators(steps: tuple[Entry, ...] | list[Entry]) -> list[str]:
    return [name for step in steps for name in (str(step.action), *operators(step.steps))]


ONE = '$p: Person { name: "p001" }'

NAMED = {
    "lookup": (f"match {{ {ONE} }} return {{ $p.age }}", ["lookup", "scan", "sort", "project"]),
    "where": ("match { $p: Person { age: 3 } } return { $p.name }", ["where", "scan", "sort", "project"]),
    "expand": (
        f"match {{ {ONE}  $p follows $f }} return {{ $f.name }}",
        ["lookup", "scan", "expand", "sort", "project"],
    ),
    "close": (
        "match { $p: Person  $p follows $f  $f follows $p } return { $p.name }",
        ["scan", "close", "sort", "project"],
    ),
    "membership": (
        "match { $p: Person  $p follows $f  $f $e:follows $p } return { $p.name }",
        ["scan", "expand", "membership", "sort", "project"],
    ),
    "reach": (
        f"match {{ {ONE}  $p follows{{1,3}} $f }} return {{ $f.name }}",
        ["lookup", "scan", "reach", "sort", "project"],
    ),
    "shortest": (
        f"match {{ {ONE}  shortest $way: $p follows{{1,3}} $f }} return {{ length($way) as n }}",
        ["lookup", "scan", "shortest", "sort", "project"],
    ),
    "exclude": (
        "match { $p: Person  not { $p livesIn $c } } return { $p.name }",
        ["exclude", "count", "scan", "scan", "sort", "project"],
    ),
    "anti join": (
        "match { $p: Person  $p follows $q  not { $p livesIn $c  $q livesIn $c } } return { $p.name }",
        ["scan", "expand", "anti join", "close", "sort", "project"],
    ),
    "anti join of an edge": (
        "match { $p: Person  $p follows $q  not { $q follows $p } } return { $p.name }",
        ["scan", "expand", "anti join", "sort", "project"],
    ),
    "subtract": (
        "match { $p: Person  $p follows $q  $q follows $r  $p != $r } return { count(*) as n }",
        ["subtract", "count", "scan", "close", "aggregate", "sort", "project"],
    ),
    "left join": (
        "match { $p: Person  optional { $p livesIn $c } } return { $p.name, $c.name }",
        ["scan", "left join", "expand", "sort", "project"],
    ),
    "product": (
        "match { $p: City  $q: City } return { $p.name, $q.name as other }",
        ["scan", "product", "sort", "project"],
    ),
    "filter": (
        "match { $p: City  $q: City  $p.name < $q.name } return { $p.name }",
        ["scan", "product", "filter", "sort", "project"],
    ),
    "early condition": (
        "match { $p: Person  $p follows $q  $p.age < $q.age } return { $p.name }",
        ["scan", "expand", "sort", "project"],
    ),
    "count": (
        "match { $p: Person  $p follows $f } return { count(*) as n }",
        ["count", "aggregate", "sort", "project"],
    ),
    "aggregate": (
        "match { $p: Person } return { $p.age as age, sum($p.age) as n } having { n > 3 }",
        ["scan", "aggregate", "having", "sort", "project"],
    ),
    "distinct": ("match { $p: Person } return distinct { $p.age }", ["scan", "distinct", "sort", "project"]),
    "top": ("match { $p: Person } return { $p.name } limit 3", ["scan", "top", "project"]),
}


@pytest.mark.parametrize("name", NAMED)
def test_explain_names_every_operator(graph: Graph, name: str, thresholds: Thresholds) -> None:
    thresholds(planner, SUBTRACT_PLAN_COST_EDGES=0.0)
    body, expected = NAMED[name]
    assert operators(explained(graph, body).steps) == expected
    done = explained(graph, body, analyze=True)
    assert set(operators(done.steps)) == set(expected)


@pytest.mark.parametrize("name", NAMED)
def test_every_step_has_estimated_and_actual_rows(graph: Graph, name: str) -> None:
    done = explained(graph, NAMED[name][0], analyze=True)

    def check(steps: tuple[Entry, ...] | list[Entry]) -> None:
        for step in steps:
            assert step.calls >= 1
            assert step.seconds is not None
            assert step.rows is not None
            check(step.steps)

    check(done.steps)
    assert done.steps[-1].rows == done.returned
    json.dumps(done.to_json())  # all values are plain


def test_explain_shows_pushed_down_conditions(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(candidates, MAX_EXACT_COUNT_NODES=0)
    thresholds(join_order, LATE_TEST_COST_EDGES=0.0)
    steps = explained(graph, f"match {{ {ONE}  $p follows $f  $f.age > 3 }} return {{ $f.name }}").steps
    expand = next(step for step in steps if step.action == "expand")
    assert expand.pushed == ("($f.age > 3)",)
    assert expand.columns == ("$f.age",)
    assert expand.reason == "conditions are evaluated on reached nodes"
    assert expand.to_json()["pushed"] == ["($f.age > 3)"]


def test_late_conditions_do_not_read_whole_columns(graph: Graph, thresholds: Thresholds) -> None:
    body = f"match {{ {ONE}  $p follows $f  $f.age > 3 }} return {{ $f.name }}"
    before = graph.query(f"query q() {{ {body} }}").to_pylist()
    thresholds(candidates, MAX_EXACT_COUNT_NODES=0)
    thresholds(join_order, LATE_TEST_COST_EDGES=0.0)
    done = explained(graph, body, analyze=True)
    assert graph.query(f"query q() {{ {body} }}").to_pylist() == before
    assert "where" not in operators(done.steps)
    assert done.spent is not None
    assert done.spent.rows < len(PEOPLE)


def test_bytes_and_requests_are_counted_once(graph: Graph) -> None:
    body = "match { $p: Person } return { $p.age }"
    first_time = explained(graph, body, analyze=True)
    assert first_time.spent is not None
    assert first_time.spent.requests >= 1
    assert sum(step.read for step in first_time.steps) == first_time.spent.read > 0
    again = explained(graph, body, analyze=True)
    assert again.spent is not None
    assert (again.spent.read, again.spent.requests) == (0, 0)


def test_explain_shows_the_statistics(graph: Graph) -> None:
    body = (
        'match { $p: Person { kind: "good" }  $p $e:follows $q  $e.since > 3  $p follows{1,2} $r } return { $q.name }'
    )
    graph.query(f"query q() {{ {body} }}")
    (known,) = explained(graph, body).to_json()["statistics"]
    assert known["variables"]["p"] == {"nodes": 60, "rows": 0.0, "counted": True}
    assert known["nodes"] == {"Person": 60}
    assert known["edges"]["Follows"]["edges"] == 180
    assert known["edges"]["Follows"]["sources"] == 60
    assert known["edges"]["Follows"]["most_out"] == 3


# ---- estimated and actual rows


def test_estimated_and_actual_rows_are_logged(graph: Graph, caplog: pytest.LogCaptureFixture) -> None:
    text = "query q() { match { $p: Person  $p livesIn $c } return { $c.name as c, sum($p.age) as n } order { c } }"
    with caplog.at_level(logging.DEBUG, "omnigraph.read.plan"):
        found = graph.query(text).to_pylist()
    told: list[dict[str, Any]] = [record.__dict__["step"] for record in caplog.records]
    assert [(step["action"], step["estimated_rows"], step["rows"]) for step in told] == [
        ("scan", 3, 3),
        ("expand", 60.0, 60),
        ("aggregate", 3.0, 3),
        ("sort", 3.0, 3),
        ("project", 3.0, 3),
    ]
    assert "60 rows expected, 60 found" in caplog.text
    caplog.clear()
    assert graph.query(text).to_pylist() == found
    assert not caplog.records


def test_a_block_that_runs_in_portions_is_one_step(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(plan_portions, MIN_FULL_MATCH_COST_EDGES=-1.0, MIN_GAIN=0.0, FIRST_PORTION_ROWS=1)
    done = explained(
        graph,
        "match { $p: Person  $p follows $q  $p.age + $q.age > 17 } return { $p.name } limit 3",
        analyze=True,
    )
    portions = done.steps[0]
    assert portions.action == "portions"
    expand = next(step for step in portions.steps if step.action == "expand")
    assert expand.calls > 1


# ---- the same plan in every process


FRESH = """
import json, sys, omnigraph
with omnigraph.open(sys.argv[1], read_only=True) as graph:
    found = graph.explain(sys.argv[2])
    print(json.dumps([found.to_json()["steps"], found.to_json()["statistics"]]))
"""


@pytest.mark.slow
def test_another_process_makes_the_same_plan(graph: Graph) -> None:
    text = """query q() {
        match { $p: Person { name: "p001" }  $p follows $f  $f follows $g  $g livesIn $c  $g.age > 3 }
        return { $c.name as c, $g.name as g } order { c } limit 5 }"""
    for _ in range(3):
        graph.query(text)
    warm = graph.explain(text).to_json()
    done = subprocess.run([sys.executable, "-c", FRESH, graph.uri, text], capture_output=True, text=True, check=True)
    steps, statistics = json.loads(done.stdout)
    assert statistics == warm["statistics"]
    for step in (*steps, *warm["steps"]):
        # Costs and estimates of conditions differ, because the values are in memory in only one of the processes.
        # Conditions on single variables run before planning, so the plan depends on their result.
        for name in (
            "milliseconds",
            "bytes_read",
            "requests",
            *(["estimated_rows"] if "where" in step["what"] else []),
        ):
            step.pop(name, None)
    assert steps == warm["steps"]
