"""Each operator for traversals and joins, on a graph that is small enough to check by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.read.test_hard_reads import edge, loaded, node, rows

from omnigraph.graph import Graph

SCHEMA = """
interface Named { label: String }
node P implements Named { label: String  age: I64? }
node Q implements Named { label: String }
edge Knows: P -> P { since: I64? }
edge Likes: P -> P
edge Owns: P -> Q
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """Here a knows b twice, b knows a, b likes c, c knows itself, a and c own q, and no other age equals that of c."""
    with loaded(
        tmp_path,
        SCHEMA,
        node("P", "a", label="one", age=1),
        node("P", "b", label="two"),
        node("P", "c", label="one", age=3),
        node("Q", "a", label="one"),
        node("Q", "q", label="two"),
        edge("Knows", "k1", "a", "b", since=1),
        edge("Knows", "k2", "a", "b", since=2),
        edge("Knows", "k3", "b", "a"),
        edge("Knows", "k4", "c", "c"),
        edge("Likes", "l1", "b", "c"),
        edge("Owns", "o1", "a", "q"),
        edge("Owns", "o2", "c", "q"),
    ) as made:
        yield made


ASKED: dict[str, tuple[str, list[list[Any]]]] = {
    "interface matches all of its types": (
        'match { $x: Named { label: "one" } } return { $x, type($x) as t }',
        [["a", "P"], ["a", "Q"], ["c", "P"]],
    ),
    "a scan with a condition": ("match { $x: P  $x.age > 1 } return { $x }", [["c"]]),
    "distinct neighbours": ("match { $x: P  $x knows $y } return { $x, $y }", [["a", "b"], ["b", "a"], ["c", "c"]]),
    "one row per edge": (
        "match { $x: P  $x $e:knows $y } return { $e.id as e, $x }",
        [["k1", "a"], ["k2", "a"], ["k3", "b"], ["k4", "c"]],
    ),
    "both directions, distinct neighbours": (
        "match { $x: P  $x <knows> $y } return { $x, $y }",
        [["a", "b"], ["b", "a"], ["c", "c"]],
    ),
    "both directions, one row per edge": (
        'match { $x: P { id: "a" }  $x $e:<knows> $y } return { $e.id as e, $y }',
        [["k1", "b"], ["k2", "b"], ["k3", "b"]],
    ),
    "self-loop in both directions": ('match { $x: P { id: "c" }  $x $e:<knows> $y } return { $e.id as e }', [["k4"]]),
    "one of several edges": (
        "match { $x: P  $x (knows | likes) $y } return { $x, $y }",
        [["a", "b"], ["b", "a"], ["b", "c"], ["c", "c"]],
    ),
    "any edge": (
        'match { $x: P { id: "a" }  $x $e:(*) $y } return { type($e) as t, $y }',
        [["Knows", "b"], ["Knows", "b"], ["Owns", "q"]],
    ),
    "any edge over hops": ('match { $x: P { id: "a" }  $x (knows | likes){1,2} $y } return { $y }', [["b"], ["c"]]),
    "both ends bound": (
        "match { $x: P  $x knows $y  $y knows $x } return { $x, $y }",
        [["a", "b"], ["b", "a"], ["c", "c"]],
    ),
    "a triangle with edges of several types": (
        "match { $x: P  $x knows $y  $y likes $z  $x owns $q  $z owns $q } return { $x, $y, $z, $q }",
        [["a", "b", "c", "q"]],
    ),
    "from the right end": ('match { $y: Q { id: "q" }  $x owns $y } return { $x }', [["a"], ["c"]]),
    "not": ("match { $x: P  not { $x owns $y } } return { $x }", [["b"]]),
    "nested not": ("match { $x: P  not { $x knows $y  not { $y owns $z } } } return { $x }", [["b"], ["c"]]),
    "optional": (
        "match { $x: P  optional { $x owns $y } } return { $x, $y }",
        [["a", "q"], ["b", None], ["c", "q"]],
    ),
    "cross product": (
        "match { $x: Q  $y: Q } return { $x, $y }",
        [["a", "a"], ["a", "q"], ["q", "a"], ["q", "q"]],
    ),
    "null is not true": ("match { $x: P  $x.age != 1 } return { $x }", [["c"]]),
    "null is not false": ("match { $x: P  not ($x.age = 1) } return { $x }", [["c"]]),
    "null or true": ('match { $x: P  $x.age > 5 or $x.label = "two" } return { $x }', [["b"]]),
    "groups": (
        "match { $x: Named } return { $x.label as label, count(*) as n, collect($x.id) as ids } having { n > 2 }",
        [["one", 3, ["a", "a", "c"]]],
    ),
    "aggregate of no rows": ('match { $x: P { label: "no" } } return { count(*) as n, max($x.age) as m }', [[0, None]]),
    "distinct rows": ("match { $x: Named } return distinct { $x.label as l }", [["one"], ["two"]]),
    "ties are ordered by id": ("match { $x: P } return { $x } order { $x.label }", [["a"], ["c"], ["b"]]),
    "offset and limit": ("match { $x: P } return { $x } order { $x.age desc } offset 1 limit 1", [["a"]]),
}


@pytest.mark.parametrize("name", ASKED)
def test_each_operator_gives_the_expected_rows(graph: Graph, name: str) -> None:
    body, expected = ASKED[name]
    assert rows(graph, body) == expected


def test_closing_edges_are_tested_while_edges_are_walked(graph: Graph) -> None:
    plan = graph.explain("query q() { match { $x: P  $x knows $y  $y knows $x } return { $x, $y } }")
    assert "close" in str(plan)
    assert "membership" not in str(plan)


def test_a_cross_product_is_warned_about(graph: Graph) -> None:
    result = graph.query("query q() { match { $x: Q  $y: Q } return { $x, $y } }")
    assert result.warnings == ("{$x} and {$y} are not connected, so the result is a cross product",)
