"""Stages: groups of groups, bags of rows, limits, nulls, chunks, budgets, search and `explain`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.read.test_hard_reads import edge, loaded, node, rows
from tests.thresholds import Thresholds

from omnigraph import Budget, Cancellation
from omnigraph.errors import BudgetExceededError, CancelledError, InputError
from omnigraph.graph import Graph
from omnigraph.read.execute import executor

SCHEMA = """
interface Named { name: String? }
node P implements Named { n: I64?  text: String?  vec: Vector(2)? }
node Q implements Named { n: I64? }
edge Knows: P -> P { since: I64? }
edge Likes: P -> Q
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Edges: a → b twice, a → c, b → c, c → c; a and b like x. Node d is alone."""
    edges = ["ab", "ab", "ac", "bc", "cc"]
    words = {"a": "red fox", "b": "fox fox", "c": "dog", "d": None}
    return loaded(
        tmp_path_factory.mktemp("graph"),
        SCHEMA,
        *(
            node("P", name, n=None if name == "d" else number, text=words[name], vec=[float(number), 0.0])
            for number, name in enumerate("abcd")
        ),
        node("Q", "x", n=7),
        node("Q", "a", n=8),
        *(edge("Knows", f"e{i}", ends[0], ends[1], since=i) for i, ends in enumerate(edges)),
        edge("Likes", "l", "a", "x"),
        edge("Likes", "m", "b", "x"),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # groups of groups
        ("match { $p knows $q } with { $p, count($q) as n } return { sum(n) as s, max(n) as m }", [[4, 2]]),
        ("match { $p: P } with { avg($p.n) as m } match { $q: P  $q.n > m } return { $q.id, m }", [["c", 1.0]]),
        (
            "match { $p knows $q } with { $q, count($p) as n } with { n, count($q) as k } return { n, k }",
            [[1, 1], [3, 1]],
        ),
        # a bag: equal rows stay separate
        ("match { $p $e:knows $q } with { $q } return { $q.id, count(*) as n }", [["b", 2], ["c", 3]]),
        ("match { $p knows $q } with { 1 as one } return { one }", [[1]] * 4),
        # a limit, then a match
        (
            "match { $p: P } with { $p } order { $p.n desc nulls last } limit 2 match { $p knows $q }"
            " return { $p.id, $q.id as q }",
            [["b", "c"], ["c", "c"]],
        ),
        ("match { $p: P } with { $p } limit 0 match { $p knows $q } return { count(*) as n }", [[0]]),
        # having
        ("match { $p knows $q } with { $p, count($q) as n } having { n > 1  max($q.n) = 2 } return { $p.id }", [["a"]]),
        # values in filters, blocks and columns
        (
            "match { $p knows $q } with { $q, collect($p.id) as who } match { $r: P  $r.id in who }"
            " return { $q.id, $r.id as r }",
            [["b", "a"], ["c", "a"], ["c", "b"], ["c", "c"]],
        ),
        (
            "match { $p: P } with { $p, $p.n as n } match { exists { $p knows $q  $q.n > n } }"
            " return { $p.id, n * 2 as m }",
            [["a", 0], ["b", 2]],
        ),
        ("match { $p: P } with { $p.n as n } match { count { $q: P  $q.n < n } > 0 } return { n }", [[1], [2]]),
        (
            "match { $p: P } with { $p, count { $p knows $_ } as n } match { n = 0 or $p.n = 0 } return { $p.id, n }",
            [["a", 2], ["d", 0]],
        ),
        # optional, and null variables that go on
        (
            "match { $p: P  optional { $p likes $x } } with { $x, count($p) as n } return { $x.id, n }",
            [[None, 2], ["x", 2]],
        ),
        (
            "match { $p: P  optional { $p likes $x } } with { $p, $x } match { $x.n = 7 } return { $p.id }",
            [["a"], ["b"]],
        ),
        (
            "match { $p: P  optional { $p likes $x } } with { $p, $x } match { optional { $y likes $x } }"
            " return { $p.id, $y.id as y }",
            [["a", "a"], ["a", "b"], ["b", "a"], ["b", "b"], ["c", None], ["d", None]],
        ),
        (
            "match { $p: P  optional { $p likes $x } } with { $p, $x } match { $y likes $x } return { count(*) as n }",
            [[4]],
        ),
        ("match { $p: P } with { $p } match { not { $p knows $q } } return { $p.id }", [["d"]]),
        # edge variables
        (
            "match { $p $e:knows $q } with { $e } order { $e.since desc } limit 2 return { $e.id, $e.from, $e.to }",
            [["e3", "b", "c"], ["e4", "c", "c"]],
        ),
        (
            "match { $p $e:(knows | likes) $q } with { $e, count(*) as n } return { type($e) as t, count(*) as k }",
            [["Knows", 5], ["Likes", 2]],
        ),
        # nodes of several types with equal ids stay apart
        (
            "match { $x: Named } with { $x, count(*) as n } return { $x.id, type($x) as t, n }",
            [["a", "P", 1], ["a", "Q", 1], ["b", "P", 1], ["c", "P", 1], ["d", "P", 1], ["x", "Q", 1]],
        ),
        ("match { $x: Named } with { $x } match { $x: Q } return { $x.id }", [["a"], ["x"]]),
        (
            "match { $x: Named } with { $x } match { $x likes $y } return { type($x) as t, count(*) as n }",
            [["P", 2], ["Q", 2]],
        ),
        # hops and paths
        (
            "match { shortest $s: $p knows{1,3} $q } with { $p, max(length($s)) as far } match { far = 1 }"
            " return { $p.id }",
            [["a"], ["b"], ["c"]],
        ),
        (
            "match { $p: P } with { $p } match { $p knows{1,} $q } return { $p.id, count($q) as n }",
            [["a", 2], ["b", 1], ["c", 1]],
        ),
        # no rows
        ("match { $p: P  $p.n > 99 } with { $p, $p.n as n } match { $p knows $q  $q.n > n } return { $q.id, n }", []),
        (
            "match { $p: P  $p.n > 99 } with { count(*) as n } match { $q: P } return { count(*) as k, sum(n) as s }",
            [[4, 0]],
        ),
        ("match { $p: P  $p.n > 99 } with { $p, count(*) as n } match { $q: P } return { count(*) as k }", [[0]]),
        # a name that ended is another variable
        ("match { $p knows $q } with { $q } match { $q knows $p } return { $p.id, count(*) as n }", [["c", 4]]),
        # distinct and order by a value
        ("match { $p knows $q } with { $q, $p.n as n } return distinct { n } order { n desc }", [[2], [1], [0]]),
        ("match { $p knows $q } with { $q, $p.n as n } return { $q.id } order { n desc, $q.id } limit 1", [["c"]]),
        # three stages
        (
            "match { $p knows $q } with { $q, count($p) as n }"
            " match { $r knows $q } with { $r, sum(n) as s } match { s > 3 }"
            " with { max(s) as m } return { m }",
            [[4]],
        ),
    ],
)
def test_stages(graph: Graph, text: str, expected: list[list[object]]) -> None:
    assert rows(graph, text) == expected


def test_parameters_of_stages(graph: Graph) -> None:
    text = "match { $p: P  $p.n >= $least } with { $p, $least as l } order { $p.n } limit $k return { $p.id, l }"
    assert rows(graph, text, "($least: I64, $k: I64)", {"least": 1, "k": 1}) == [["b", 1]]
    with pytest.raises(InputError, match="limit"):
        rows(graph, text, "($least: I64, $k: I64)", {"least": 1, "k": -1})


def test_ranks_in_stages(graph: Graph) -> None:
    text = (
        'match { $p: P } with { $p } order { bm25($p.text, "fox") } limit 1'
        " match { $p knows $q } return { $p.id, $q.id as q }"
    )
    assert rows(graph, text) == [["b", "c"]]
    text = (
        "match { $p: P } with { $p, nearest($p.vec, [2.1, 0.0]) as far } order { far } limit 2"
        " return { $p.id, far < 0.5 as near }"
    )
    assert rows(graph, text) == [["c", True], ["d", False]]
    text = 'match { $p knows $q } with { $p } match { search($p.text, "fox") } return { $p.id, count(*) as n }'
    assert rows(graph, text) == [["a", 2], ["b", 1]]
    text = (
        "match { $p knows $q } with { $q } match { $q: P }"
        " return { $q.id } order { nearest($q.vec, [0.0, 0.0]) } limit 1"
    )
    assert rows(graph, text) == [["b"]]
    text = (
        "match { $p: P } with { $p } return { $p.id }"
        ' order { rrf(bm25($p.text, "fox"), nearest($p.vec, [3.0, 0.0])) } limit 1'
    )
    assert rows(graph, text) == [["b"]]


def test_search_in_a_property_that_only_one_type_of_the_variable_has(graph: Graph) -> None:
    start = "match { $x: Named } with { $x } match { $x: P }"
    assert rows(graph, start + ' return { $x.id } order { bm25($x.text, "fox") }') == [["b"], ["a"]]
    assert rows(graph, start + " return { $x.id } order { nearest($x.vec, [3.0, 0.0]) } limit 1") == [["d"]]
    text = 'match { $x: Named  not { $x: P  search($x.text, "fox") } } return { $x.id, type($x) as t }'
    assert rows(graph, text) == [["a", "Q"], ["c", "P"], ["d", "P"], ["x", "Q"]]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Six hundred nodes, each with edges to the next ten."""
    lines = [node("P", f"{i:04}", n=i % 50) for i in range(600)]
    lines += [edge("Knows", f"{i}-{k}", f"{i:04}", f"{(i + k) % 600:04}") for i in range(600) for k in range(1, 11)]
    return loaded(tmp_path_factory.mktemp("many"), SCHEMA, *lines)


BIG = [
    "match { $p knows $q  $q knows $r } with { $p, max($r.n) as m, count(*) as k }"
    " match { $p knows $s  $s.n < m }"
    " return { count(*) as n, sum(k) as k, sum(m) as m }",
    "match { $p $e:knows $q } with { $p, $e, $q.n as n } match { $p knows $r  $r.n < n }"
    " return { $e.to, count(*) as n }",
    "match { $p knows $q } with { $p, $q, $p.n + $q.n as n } match { $q knows $r }"
    " return { n, count(*) as k } order { n }",
    "match { $p knows $q } with { $p, $q } match { $q knows $r }"
    " return { $p.id, $r.id as r } order { r, $p.id } limit 7",
]


@pytest.mark.parametrize("text", BIG)
def test_a_small_budget_does_not_change_the_answer(many: Graph, text: str) -> None:
    query, budget = f"query q() {{ {text} }}", Budget()
    whole = many.query(query, budget=budget).to_pylist()
    for memory in (600_000, 300_000):
        assert many.query(query, budget=replace(budget, memory=memory)).to_pylist() == whole


@pytest.mark.parametrize("in_chunks", [False, True])
def test_rows_of_a_stage_are_not_rows_of_the_result(many: Graph, thresholds: Thresholds, in_chunks: bool) -> None:
    if in_chunks:
        thresholds(executor, MEMORY_RATIO=10**12)
    text = "query q() { match { $p knows $q } with { $p, $q } return { count(*) as n } }"
    assert many.query(text, budget=Budget(returned=10)).to_pylist() == [{"n": 6_000}]
    text = "query q() { match { $p knows $q } with { $p, $p.n as n } return { n, $p.id } order { n, $p.id } limit 10 }"
    assert len(many.query(text, budget=Budget(returned=10))) == 10
    with pytest.raises(BudgetExceededError, match="rows of result"):
        many.query(text, budget=Budget(returned=9))


def test_stages_count_in_the_budget_and_can_be_cancelled(many: Graph) -> None:
    with pytest.raises(BudgetExceededError):
        many.query(f"query q() {{ {BIG[0]} }}", budget=Budget(rows=9_000))
    cancel = Cancellation()
    cancel.cancel()
    with pytest.raises(CancelledError):
        many.query(f"query q() {{ {BIG[0]} }}", cancel=cancel)


def test_explain_shows_stages(many: Graph) -> None:
    for analyze in (False, True):
        explained = many.explain(f"query q() {{ {BIG[0]} }}", analyze=analyze)
        assert [step.action for step in explained.steps if step.action == "stage"] == ["stage"]
        assert "stage $p, m, k" in str(explained)
        assert "pass on p, m, k" in str(explained)
        assert len(explained.statistics) >= 2
