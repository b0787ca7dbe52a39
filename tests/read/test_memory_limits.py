"""The memory of a read is estimated before it is allocated: long texts, long paths, and reachable nodes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from tests.read.test_sorting import Counting
from tests.read.test_spilled_queries import fill
from tests.thresholds import Thresholds

import omnigraph
from omnigraph import Budget
from omnigraph.errors import BudgetExceededError, InputError
from omnigraph.graph import Graph
from omnigraph.read.budget import chunks
from omnigraph.read.columns import sorting
from omnigraph.read.execute import executor
from omnigraph.read.match import hops, parts, pipeline, scan
from omnigraph.read.match.shortest_paths import PathSearch
from omnigraph.read.shape import grouping, query_sort_keys, result_columns, sort
from omnigraph.settings import FSYNC

SCHEMA = """
node P { k: String @key  t: String?  tags: [String]? }
node Q { k: String @key }
node Person { name: String @key  age: I32?  score: F64  city: String? }
edge Knows: Person -> Person { since: I32? }
edge Next: Q -> Q
"""
COUNT = 100
LONG = 20_000
SMALL = Budget(memory=16 << 20)
"""The texts of all P fit eight times; those of all pairs of a P and a Q need two hundred times as much."""
LARGE = Budget(memory=None)
DEPTH = 500
PAIRS = '$a: P  $b: Q  $b.k < "q0100"'

_POOLS: list[pa.MemoryPool] = []
"""Memory is returned to its pool, possibly much later, so the pools stay referenced."""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(FSYNC.name, "0")
        with omnigraph.init(tmp_path_factory.mktemp("refused") / "graph", SCHEMA) as made:
            texts = [None if n % 10 == 3 else f"{n * 7 % 20:05}" + "x" * LONG for n in range(COUNT)]
            tags = [None if text is None else [text[:5], "y" * LONG] for text in texts]
            keys = [f"p{n:04}" for n in range(COUNT)]
            made.load(pa.table({"k": keys, "t": texts, "tags": tags}), mode="append", type_name="P")
            keys = [f"q{n:04}" for n in range(DEPTH)]
            made.load(pa.table({"k": keys}), mode="append", type_name="Q")
            made.load(pa.table({"from": keys[:-1], "to": keys[1:]}), mode="append", type_name="Next")
            fill(made)
            yield made


@contextmanager
def allocated() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the peak of allocated bytes."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield lambda: int(pool.max_memory()) + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


def ask(graph: Graph, body: str, budget: Budget = LARGE, **others: Any) -> pa.Table:
    return graph.query(f"query q() {{ {body} }}", budget=budget, **others).to_arrow()


FITTING = {
    "sort": "return { $a.k as a, $b.k as b } order { $a.t desc }",
    "sort by a column": "return { $a.k as a, $b.k as b, $a.t as t } order { t } limit 5 offset 3",
    "least and greatest": "return { $b.k as b, min($a.t) as m, max($a.t) as n } limit 3",
    "count": "return { $b.k as b, count($a.t) as m, count(distinct $a.t) as n, count($a.tags) as o }",
    "distinct": "return distinct { $a.t as t, $b.k as b } limit 5",
}


@pytest.mark.parametrize("name", FITTING)
def test_compared_texts_are_not_copied_to_every_row(graph: Graph, name: str) -> None:
    body = f"match {{ {PAIRS} }} {FITTING[name]}"
    ask(graph, "match { $a: P } return { count($a.t) as n, count($a.tags) as m }")
    with allocated() as most:
        found = ask(graph, body, SMALL)
        taken = most()
    assert taken < (SMALL.memory or 0)
    with pytest.MonkeyPatch.context() as patched:
        # As values instead of numbers.
        for home in (grouping, query_sort_keys, result_columns):
            patched.setattr(home, "value_ranks", lambda *_: None)
        assert found.to_pylist() == ask(graph, body).to_pylist()


def test_long_texts_of_many_rows_are_spilled(graph: Graph) -> None:
    with allocated() as most:
        found = ask(graph, f"match {{ {PAIRS} }} return {{ $a.t as t, $b.k as b }}", SMALL)
        taken = most()
    assert found.num_rows == COUNT * COUNT
    assert found.nbytes > 8 * (SMALL.memory or 0)
    assert taken < 2 * (SMALL.memory or 0)


@pytest.mark.parametrize(
    "body",
    [
        "return { $a.k as a, $b.k as b } order { lower($a.t) }",
        "return { collect($a.t) as t }",
    ],
)
def test_texts_beyond_the_budget_are_refused_before_they_are_built(graph: Graph, body: str) -> None:
    ask(graph, "match { $a: P } return { count($a.t) as n }")
    with allocated() as most:
        with pytest.raises(BudgetExceededError, match="of memory") as caught:
            ask(graph, f"match {{ {PAIRS} }} {body}", SMALL)
        taken = most()
    assert caught.value.resource == "bytes"
    assert taken < 2 * (SMALL.memory or 0)


@pytest.mark.slow
def test_a_condition_on_long_texts_stays_within_the_budget(graph: Graph) -> None:
    body = f"match {{ {PAIRS}  $c: P  $a.t < $c.t }} return {{ count(*) as n }}"
    with allocated() as most:
        found = ask(graph, body, SMALL)
        taken = most()
    assert taken < 2 * (SMALL.memory or 0)
    assert found.to_pylist() == ask(graph, body).to_pylist()


# Paths


CHAIN = 'match { $a: Q  $b: Q  $a.k = "q0000"  shortest $p: $a next{1,} $b }'


@pytest.mark.slow
def test_paths_beyond_the_budget_are_refused_before_they_are_built(graph: Graph) -> None:
    """Each node of a chain ends a path; together they are hundreds of times longer than the chain."""
    small = Budget(memory=512 * 1024)
    body = f"{CHAIN} return {{ count(*) as n, max(length($p)) as m }}"
    assert ask(graph, body).to_pylist() == [{"n": DEPTH - 1, "m": DEPTH - 1}]
    with allocated() as most:
        with pytest.raises(BudgetExceededError, match="of memory") as caught:
            ask(graph, body, small)
        taken = most()
    assert caught.value.actual > 8 * DEPTH * DEPTH
    assert taken < 2 * (small.memory or 0)


def test_paths_of_all_lengths_are_complete(graph: Graph) -> None:
    found = ask(graph, CHAIN.replace("{1,}", "{1,40}") + " return { nodes($p) as p, length($p) as n, $b.k as b }")
    ids = dict(ask(graph, "match { $a: Q } return { $a.k as k, $a.id as i }").select(["k", "i"]).to_pandas().values)
    for row in found.to_pylist():
        assert row["p"] == [ids[f"q{n:04}"] for n in range(row["n"] + 1)]
        assert row["p"][-1] == ids[row["b"]]
    assert sorted(found["n"].to_pylist()) == list(range(1, 41))


# Reachability


@pytest.mark.parametrize("way", ["one by one", "together"])
def test_reached_nodes_count_against_the_budget_during_the_walk(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, thresholds: Thresholds, way: str
) -> None:
    thresholds(hops, MAX_BATCHED_EDGES_PER_START=0.0 if way == "one by one" else float("inf"), MAX_MARKED_PAIRS=1_000)
    small = Budget(memory=256 * 1024)
    given: list[int] = []
    refused: list[float] = []
    reach = hops.Walk.reach

    def watched(walk: hops.Walk, *args: Any) -> Any:
        try:
            pairs = reach(walk, *args)
        except BudgetExceededError as error:
            refused.append(error.actual)
            raise
        given.append(sum(part.nbytes for part in pairs))
        return pairs

    monkeypatch.setattr(hops.Walk, "reach", watched)
    body = "match { $a: Person  $a knows{1,4} $b } return { $a.name as a, $b.name as b }"
    expected = ask(graph, body)
    assert given.pop() > (small.memory or 0)
    assert ask(graph, body, small).to_pylist() == expected.to_pylist()
    assert refused
    # One chunk beyond the budget is detected at once.
    assert max(refused) < 1.5 * (small.memory or 0)
    assert max(given) <= (small.memory or 0)


# Errors


def test_allocation_failures_are_reported_as_exceeded_budgets(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(error: Exception) -> None:
        def fail(*_: object) -> None:
            raise error

        for name in ("_in_memory", "_in_chunks"):
            monkeypatch.setattr(executor, name, fail)

    body = "match { $a: Q } return { $a.k as k }"
    for error in (
        pa.ArrowInvalid("Take operation overflowed binary array capacity"),
        pa.ArrowInvalid("offset overflow while concatenating arrays"),
        pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes"),
        pa.ArrowMemoryError("malloc of size 1 failed"),
        MemoryError(),
    ):
        for budget in (LARGE, SMALL):
            fails(error)
            with pytest.raises(BudgetExceededError) as caught:
                ask(graph, body, budget)
            assert caught.value.__cause__ is error
    for other in (pa.ArrowInvalid("Could not convert"), ValueError("no"), KeyError("k")):
        fails(other)
        with pytest.raises(type(other)):
            ask(graph, body)


def test_arrow_overflow_errors_are_recognised_by_their_message() -> None:
    """The messages are those of the Arrow library."""
    texts = pa.array(["x" * (1 << 20)])
    with pytest.raises((pa.ArrowInvalid, pa.ArrowCapacityError)) as caught:
        pa.concat_arrays([texts] * 2_049)
    assert any(said in str(caught.value) for said in executor.OVERFLOW_MESSAGES)


@pytest.mark.parametrize("limit", ["seconds", "memory", "rows", "returned", "disk"])
@pytest.mark.parametrize("value", ["a", -1, True, [1], float("nan")])
def test_budget_limits_must_be_valid_numbers(limit: str, value: object) -> None:
    with pytest.raises(InputError, match=f"'{limit}' of a budget is"):
        Budget(**{limit: value})  # type: ignore[arg-type]


def test_arguments_of_a_wrong_type_are_named(graph: Graph) -> None:
    text = "query q() { match { $a: Q } return { $a.k as k } }"
    wrong: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("a query must be a text or a path, not 123 of type int", (123,), {}),
        (r"params is \['a'\], of type list", (text, ["a"]), {}),
        ("name is 7, of type int", (text,), {"name": 7}),
        ("budget is 5, of type int", (text,), {"budget": 5}),
        ("cancel is true, of type bool", (text,), {"cancel": True}),
    ]
    for said, args, others in wrong:
        for ask_ in (graph.query, graph.explain):
            with pytest.raises(InputError, match=said):
                ask_(*args, **others)


# How often a query checks for cancellation

_STEP = 64
TWO_HOPS = "match { $a: Person  $b: Person  $c: Person  $a knows $b  $b knows $c }"
CHECKED: dict[str, tuple[object, str, str]] = {
    "sorting": (sort, "in_order", f"{TWO_HOPS} return {{ $a.name as a }} order {{ $b.score, $c.city desc }}"),
    "expansion": (pipeline, "run_parts", f"{TWO_HOPS} return {{ $a.name as a, $c.name as c }}"),
    "shortest": (PathSearch, "run", "match { $a: Person  shortest $p: $a knows{1,3} $b } return { length($p) as n }"),
}


@pytest.mark.parametrize("name", CHECKED)
def test_a_query_checks_for_cancellation_between_chunks(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, thresholds: Thresholds, name: str
) -> None:
    """Work is split into chunks of bounded size, with a check between any two of them."""
    thresholds(chunks, CHUNK_ROWS=_STEP)
    thresholds(sorting, SORT_CHUNK_ROWS=_STEP, RANK_CHUNK_ROWS=_STEP)
    thresholds(parts, PART_ROWS=_STEP)
    thresholds(scan, CHUNK_ROWS=_STEP)
    cancel = Counting(10**9)
    home_, function, body = CHECKED[name]
    real, looks = getattr(home_, function), []

    def watched(*args: Any, **others: Any) -> Any:
        before = cancel.asked
        found = real(*args, **others)
        rows = found.count if name == "expansion" else len(found if name == "sorting" else found.node)
        looks.append((rows, cancel.asked - before))
        return found

    monkeypatch.setattr(home_, function, watched)
    ask(graph, body, cancel=cancel)
    assert max(rows for rows, _ in looks) > 20 * _STEP
    for rows, looked in looks:
        assert looked >= rows // _STEP, f"{looked} looks for {rows} rows"


def test_path_reconstruction_checks_for_cancellation_at_each_step(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel = Counting(10**9)
    real, looks = PathSearch._paths, []

    def watched(*args: Any) -> Any:
        before = cancel.asked
        found = real(*args)
        looks.append(cancel.asked - before)
        return found

    monkeypatch.setattr(PathSearch, "_paths", watched)
    ask(graph, f"{CHAIN} return {{ count(*) as n, max(length($p)) as m }}", cancel=cancel)
    assert len(looks) == 1
    assert DEPTH - 1 <= looks[0] < 2 * DEPTH
