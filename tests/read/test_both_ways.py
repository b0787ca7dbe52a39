"""Searches from both ends find the same nodes and paths as walks from one end, and walk few edges."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from random import Random

import pytest
from tests.thresholds import Thresholds

import omnigraph
from omnigraph import Budget
from omnigraph.errors import BudgetExceededError
from omnigraph.graph import Graph
from omnigraph.lang.query.ir import HopRange
from omnigraph.read.match import both_ways, hops, marks
from omnigraph.settings import FSYNC

SCHEMA = """
node P { k: String @key  n: I64 }
node Q { k: String @key  n: I64 }
edge Knows: P -> P
edge Likes: P -> P
edge Has: P -> Q
edge Of: Q -> P
edge Next: Q -> Q
"""
COUNT = 24
CHAIN = 400
ONE_END, BOTH_ENDS = 10.0**12, 0.0
WORDS = ("knows", "<knows>", "(knows | likes)", "(knows | has | of)", "next")
SETTINGS = ((1 << 26, 32), (1, 32), (2_000, 1), (1 << 26, 10**9), (200, 32))
"""Maximum number of marked pairs, and the ratio that decides how distinct keys are found."""
RANGES = ("{1,}", "{1,1}", "{1,2}", "{2,3}", "{3,}", "{1,4}", "{2,2}")


def _edge(name: str, source: str, target: str) -> dict[str, object]:
    return {"edge": name, "from": source, "to": target}


def _edges(rng: Random, name: str, source: str, target: str, count: int, width: int) -> list[dict[str, object]]:
    ends = [(rng.randrange(COUNT), rng.randrange(width)) for _ in range(count)]
    return [_edge(name, f"{source}{left:02}", f"{target}{right:02}") for left, right in ends]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    rng = Random(5)
    nodes: list[dict[str, object]] = [
        {"type": kind, "data": {"k": f"{kind.lower()}{n:02}", "n": n}} for kind in "PQ" for n in range(COUNT)
    ]
    nodes += [{"type": "Q", "data": {"k": f"chain{n:04}", "n": 1_000 + n}} for n in range(CHAIN)]
    edges: list[dict[str, object]] = [
        *_edges(rng, "Knows", "p", "p", 40, COUNT),
        *_edges(rng, "Knows", "p", "p", 8, 3),
        *_edges(rng, "Likes", "p", "p", 20, COUNT),
        *_edges(rng, "Has", "p", "q", 20, COUNT),
        *_edges(rng, "Of", "q", "p", 20, COUNT),
        *_edges(rng, "Next", "q", "q", 30, COUNT),
        *(_edge("Knows", f"p{n:02}", f"p{n:02}") for n in (1, 4, 7)),
        *(_edge("Knows", "p02", "p03") for _ in range(3)),
        *(_edge("Next", f"chain{n:04}", f"chain{n + 1:04}") for n in range(CHAIN - 1)),
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(FSYNC.name, "0")
        with omnigraph.init(tmp_path_factory.mktemp("both") / "graph", SCHEMA) as made:
            made.load([*nodes, *edges], mode="append")
            yield made


def _ask(graph: Graph, body: str) -> list[dict[str, object]]:
    return graph.query(f"query q() {{ {body} }}").to_pylist()


def _pattern(word: str, few: bool) -> str:
    left, right = ("P", "P") if word != "next" else ("Q", "Q")
    ends = "$a.n < 5  $b.n < 7  $b.n > 2" if few else "$a.n < 20  $b.n < 20"
    return f"$a: {left}  $b: {right}  {ends}"


def _bodies(word: str, most: str) -> list[str]:
    found = []
    for few in (True, False):
        ends, walk = _pattern(word, few), f"$a {word}{most} $b"
        found += [
            f"match {{ {ends}  {walk} }} return {{ $a.k as a, $b.k as b }}",
            f"match {{ {ends}  {walk} }} return {{ $a.k as a, count(*) as n }}",
            f"match {{ {ends}  shortest $p: {walk} }} return {{ $a.k as a, nodes($p) as nodes, edges($p) as edges }}",
        ]
    if word != "next":
        # Both ends are bound before the walk.
        tied = f"$a: P  $b: P  $a likes $b  shortest $p: $b {word}{most} $a"
        found.append(f"match {{ {tied} }} return {{ nodes($p) as nodes, edges($p) as edges }}")
        found.append(f"match {{ $a: P  $a likes $b  $b {word}{most} $a }} return {{ $a.k as a, $b.k as b }}")
    return found


@pytest.mark.parametrize("most", RANGES)
@pytest.mark.parametrize("word", WORDS)
def test_both_ends_agree_with_one_end(graph: Graph, thresholds: Thresholds, word: str, most: str) -> None:
    for body, (pairs, sparse) in zip(_bodies(word, most), cycle(SETTINGS), strict=False):
        thresholds(both_ways, PAIR_COST_RATIO=ONE_END)
        expected = _ask(graph, body)
        thresholds(both_ways, PAIR_COST_RATIO=BOTH_ENDS)
        thresholds(both_ways, MAX_MARKED_PAIRS=pairs)
        thresholds(marks, SPARSE_RATIO=sparse)
        assert _ask(graph, body) == expected, (body, pairs, sparse)


def test_a_walk_between_two_nodes_shows_that_it_starts_at_both(graph: Graph) -> None:
    body = 'match { $a: P { k: "p00" }  $b: P { k: "p11" }  shortest $p: $a knows{1,} $b } return { length($p) as n }'
    assert "search from both ends" in str(graph.explain(f"query q() {{ {body} }}", analyze=True))
    open_ = 'match { $a: P { k: "p00" }  shortest $p: $a knows{1,} $b } return { length($p) as n }'
    assert "search from both ends" not in str(graph.explain(f"query q() {{ {open_} }}", analyze=True))


def test_a_long_path_is_found_from_both_ends(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(both_ways, PAIR_COST_RATIO=BOTH_ENDS)
    ends = f'$a: Q {{ k: "chain0000" }}  $b: Q {{ k: "chain{CHAIN - 1:04}" }}'
    (found,) = _ask(graph, f"match {{ {ends}  shortest $p: $a next{{1,}} $b }} return {{ nodes($p) as nodes }}")
    assert found["nodes"] == [f"chain{n:04}" for n in range(CHAIN)]
    none = _ask(graph, f"match {{ {ends}  $b next{{1,}} $a }} return {{ $a.k as a }}")
    assert none == []


def test_a_search_from_both_ends_walks_few_edges(graph: Graph, thresholds: Thresholds) -> None:
    """The chain is 400 edges long. Between two neighbours, only one edge at each end is walked."""
    ends = '$a: Q { k: "chain0200" }  $b: Q { k: "chain0201" }'
    body = f"match {{ {ends}  shortest $p: $a next{{1,}} $b }} return {{ length($p) as n }}"
    text, tight = f"query q() {{ {body} }}", Budget(rows=40)
    thresholds(both_ways, PAIR_COST_RATIO=ONE_END)
    with pytest.raises(BudgetExceededError):
        graph.query(text, budget=tight)
    thresholds(both_ways, PAIR_COST_RATIO=BOTH_ENDS)
    assert graph.query(text, budget=tight).to_pylist() == [{"n": 1}]


def test_marks_of_a_search_are_reset(graph: Graph, thresholds: Thresholds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_mark_pool", marks.MarkPool())
    thresholds(both_ways, PAIR_COST_RATIO=BOTH_ENDS)
    thresholds(hops, MAX_BATCHED_EDGES_PER_START=0.0)
    for body in (*_bodies("knows", "{1,}"), *_bodies("<knows>", "{2,3}")):
        _ask(graph, body)
    kept = [array for pair in marks._mark_pool._marks for array in pair]
    assert kept
    assert not any(array.any() for array in kept)


@pytest.mark.parametrize(
    ("pairs", "starts", "most", "cheaper"),
    [(1, 1, None, True), (1, 1, 4, True), (1, 1, 1, False), (100_000, 1, None, False), (24, 1, 2, False)],
)
def test_few_pairs_are_searched_from_both_ends(pairs: int, starts: int, most: int | None, cheaper: bool) -> None:
    assert both_ways.is_cheaper(pairs, starts, 24.0, 2_400_000, HopRange(1, most)) == cheaper
