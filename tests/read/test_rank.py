"""A search with traversals ranks nodes first. It enumerates few rows, and they are the first of all rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.read.searching import library
from tests.thresholds import Thresholds

from omnigraph.graph import Graph
from omnigraph.read.context.trace import Entry
from omnigraph.read.plan import plan_rank

NEAR, WORDS = "nearest($d.near, [0.5, 0.0, 1.0])", 'bm25($d.text, "graph engine fox")'
RRF = f"rrf({NEAR}, {WORDS})"
DEFAULTS = {name: getattr(plan_rank, name) for name in ("MIN_FULL_MATCH_COST_EDGES", "MIN_GAIN")}


@pytest.fixture
def graph(tmp_path: Path, thresholds: Thresholds) -> Iterator[Graph]:
    # Cheap queries enumerate all rows, and every query of this small graph is cheap.
    thresholds(plan_rank, MIN_FULL_MATCH_COST_EDGES=-1.0, MIN_GAIN=0.0)
    with library(tmp_path, docs=200) as made:
        yield made


def asked(match: str, order: str, columns: str = "") -> str:
    return f"match {{ $d: Doc  {match} }} return {{ $d.slug as d {columns} }} order {{ {order} }}"


CITED = ", $c.slug as c"
ASKED = {
    "fused": asked("$d cites $c", RRF, CITED),
    "with scores": asked("$d cites $c", RRF, f"{CITED}, {RRF} as score, rrf({NEAR}, {NEAR} * 2.0) as other"),
    "nearest": asked("$d cites $c", NEAR, f"{CITED}, {NEAR} as far"),
    "words": asked("$d cites $c", WORDS, f"{CITED}, {WORDS} as score"),
    "ties": asked("$d cites $c", 'bm25($d.text, "graph")', CITED),
    "two hops": asked("$d cites $c  $c cites $e", RRF, f"{CITED}, $e.slug as e"),
    "edges have names": asked("$d $e:cites $c", RRF, f"{CITED}, $e.id as e"),
    "cited by": asked("$c cites $d  $d about $t", RRF, f"{CITED}, $t.slug as t"),
    "reached": asked("$d cites{1,2} $c", RRF, CITED),
    "with a path": asked("shortest $p: $d cites{1,2} $c", RRF, f"{CITED}, length($p) as n"),
    "conditions": asked("$d cites $c  $c.year = 2001  $d.year is not null", RRF, CITED),
    "conditions on several": asked("$d cites $c  $d.year < $c.year  $c about $t", RRF, f"{CITED}, $t.slug as t"),
    "optional": asked("$d about $t  optional { $d cites $c  $c.year = 2001 }", RRF, f"{CITED}, $t.slug as t"),
    "optional with a condition": asked("optional { $d cites $c }  $c.year = 2001  $d about $t", RRF, CITED),
    "not": asked("$d cites $c  not { $d about $t }", RRF, CITED),
    "cross product": asked("$t: Topic", RRF, ", $t.slug as t"),
    "an alias": asked("$d cites $c", "far nulls last, c desc", f"{CITED}, {NEAR} as far"),
    "few have a rank": asked("$d cites $c", "score desc nulls last, c", f'{CITED}, bm25($d.text, "Straße") as score'),
    "a fused alias": asked("$d cites $c", "score desc nulls last, c", f"{CITED}, {RRF} as score"),
}
WINDOWS = ("limit 1", "limit 7", "offset 5 limit 4", "limit 40", "limit 100000")


def rows(graph: Graph, body: str) -> list[dict[str, Any]]:
    return graph.query(f"query q() {{ {body} }}").to_pylist()


def steps(graph: Graph, body: str) -> list[Entry]:
    return list(graph.explain(f"query q() {{ {body} }}", analyze=True).steps)


@pytest.mark.parametrize("name", ASKED)
def test_ranking_nodes_first_gives_the_same_rows(graph: Graph, name: str, thresholds: Thresholds) -> None:
    found = {window: rows(graph, f"{ASKED[name]} {window}") for window in WINDOWS}
    assert "rank" in {step.action for step in steps(graph, f"{ASKED[name]} limit 7")}
    thresholds(plan_rank, MIN_FULL_MATCH_COST_EDGES=float("inf"))
    assert "rank" not in {step.action for step in steps(graph, f"{ASKED[name]} limit 7")}
    for window in WINDOWS:
        assert found[window] == rows(graph, f"{ASKED[name]} {window}"), window
    assert len(found["limit 40"]) > 10


@pytest.mark.parametrize("name", ["fused", "nearest", "words", "two hops", "optional", "an alias"])
def test_ranking_nodes_first_enumerates_few_rows(graph: Graph, name: str, thresholds: Thresholds) -> None:
    body = f"{ASKED[name]} limit 3"
    first, *others = steps(graph, body)
    assert first.action == "rank"
    assert first.rows is not None
    # Each node has at least one row, and some ranks are equal.
    assert first.rows <= 10
    listed = max(step.rows or 0 for step in others)
    thresholds(plan_rank, MIN_FULL_MATCH_COST_EDGES=float("inf"))
    assert listed * 5 < max(step.rows or 0 for step in steps(graph, body))


def test_fewer_nodes_are_ranked_if_each_has_many_rows(graph: Graph) -> None:
    # Each document has one row for each other document.
    first = steps(graph, f"{asked('$c: Doc', NEAR, CITED)} limit 150")[0]
    alone = steps(graph, f"{asked('$d about $t', NEAR)} limit 150")[0]
    assert first.action == alone.action == "rank"
    assert first.rows is not None
    assert alone.rows is not None
    assert first.rows * 5 < alone.rows


def test_explain_shows_the_ranking(graph: Graph) -> None:
    text = str(graph.explain(f"query q() {{ {ASKED['nearest']} limit 3 }}"))
    assert "rank $d by nearest($d.near" in text
    assert "until there are 3 rows" in text
    assert "count $c for each $d" in text


@pytest.mark.parametrize(
    "body",
    [
        f"{ASKED['fused']} limit 0",
        f"{asked('', RRF)} limit 3",
        f"match {{ $d: Doc  $d cites $c }} return {{ $c.slug as c, {NEAR} as far }} order {{ c, far }} limit 3",
        f"match {{ $d: Doc  $d cites $c }} return {{ $c.slug as c, {NEAR} as far }} order {{ far desc }} limit 3",
        'match { $d: Written  $c: Topic } return { $d.title as d } order { bm25($d.title, "fox") } limit 3',
        f"match {{ $c: Doc  optional {{ $c cites $d }} }} return {{ $c.slug as c }} order {{ {RRF} }} limit 3",
        "match { $d: Doc  $d cites $c } return { $d.slug as d, rrf(nearest($c.near, [0.5, 0.0, 1.0]), "
        f'bm25($c.text, "fox")) as other }} order {{ {NEAR} }} limit 3',
    ],
)
def test_queries_that_cannot_rank_nodes_first_enumerate_all_rows(graph: Graph, body: str) -> None:
    assert "rank" not in {step.action for step in steps(graph, body)}


def test_a_cheap_query_enumerates_all_rows(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(plan_rank, **DEFAULTS)
    assert "rank" not in {step.action for step in steps(graph, f"{ASKED['fused']} limit 3")}
