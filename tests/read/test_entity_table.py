"""Entities keep their numbers, and a number always maps to the values of its entity, by any access path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.patience import until
from tests.read.cached import cached
from tests.read.storage_requests import asked
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.commit.snapshots import Snapshot
from omnigraph.errors import BudgetExceededError, InputError
from omnigraph.evaluate import Request
from omnigraph.graph import Graph
from omnigraph.lang.query import ir
from omnigraph.lang.query.compile import compile_query
from omnigraph.lang.schema.catalog import IndexKind
from omnigraph.read.budget import Budget, Spending
from omnigraph.read.columns import entity_table
from omnigraph.read.columns.cache import ColumnCache, Slot, cache_memory
from omnigraph.read.columns.entity_table import EntityTable, EntityTables, as_one_array
from omnigraph.read.columns.id_index import NumberIndex, TextIndex, id_index
from omnigraph.read.columns.numbering import Numbering
from omnigraph.read.columns.numbers import NOTHING
from omnigraph.read.context import Context
from omnigraph.read.execute.run import run
from omnigraph.read.match import index_lookup
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.topology.topologies import Topologies
from omnigraph.storage.indexes import IndexSpec
from omnigraph.storage.staging import stage_indexes

SCHEMA = """
node Person { name: String @key age: I64? tags: [String]? spot: Vector(2)? born: DateTime? photo: Blob? }
node City { number: I64 @key title: String? }
edge Knows: Person -> Person { since: I64? }
"""
COLUMNS = ("id", "name", "age", "tags", "spot", "born")
NAMES = [f"p{i:03}" for i in range(200)]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        people = {
            "name": NAMES,
            "age": [i if i % 7 else None for i in range(200)],
            "tags": [[f"t{i % 3}"] * (i % 4) for i in range(200)],
            "spot": [[i, -i] if i % 5 else None for i in range(200)],
            "born": [f"2020-01-{1 + i % 28:02}T00:00:00Z" for i in range(200)],
            "photo": [b"x" * i for i in range(200)],
        }
        made.load(
            {"Person": pa.table(people), "City": pa.table({"number": [7, -3, 900_000], "title": ["a", None, "c"]})},
            mode="append",
        )
        yield made


def person(snapshot: Snapshot, cache: ColumnCache | None = None) -> EntityTable:
    return EntityTables(snapshot, cache or ColumnCache()).nodes("Person")


def rows_by_id(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """Read the table without the engine."""
    table = snapshot.scan("node:Person", columns=list(COLUMNS))
    return {row["id"]: row for row in table.to_pylist()}


def always_ask(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(entity_table, "SMALL_TABLE_ROWS", 0)
    patch.setattr(ColumnCache, "should_defer", lambda *_: True)


def assert_right(snapshot: Snapshot, space: EntityTable) -> None:
    expected = rows_by_id(snapshot)
    numbers = space.all_numbers()
    assert space.count == len(numbers) == len(expected)
    assert space.live is None or np.flatnonzero(space.live).tolist() == numbers.tolist()
    assert (np.diff(numbers) > 0).all()
    ids = space.take("id", numbers).to_pylist()
    assert sorted(ids) == sorted(expected)
    for name in COLUMNS:
        values = space.take(name, numbers).to_pylist()
        assert values == [expected[id_][name] for id_ in ids]
        # Some of them in another order, with gaps.
        some = np.array([NOTHING, *Random(1).sample(numbers.tolist(), min(9, len(numbers))), NOTHING])
        whole = dict(zip(numbers.tolist(), values, strict=True))
        assert space.take(name, some).to_pylist() == [whole.get(number) for number in some.tolist()]
    assert space.find(pa.array(ids, pa.utf8())).tolist() == numbers.tolist()
    wanted = pa.array(["nobody", *ids[:3], None, ids[-1] if ids else "x"], pa.utf8())
    by_id = dict(zip(ids, numbers.tolist(), strict=True))
    assert space.find(wanted).tolist() == [by_id.get(id_, NOTHING) for id_ in wanted.to_pylist()]
    assert space.numbers(space.row_ids(numbers)).tolist() == numbers.tolist()


# Changes of a table


def _nothing(graph: Graph) -> None:
    pass


def _some_go(graph: Graph) -> None:
    graph.mutate("query q() { delete Person where age > 20 and age < 60 }")


def _the_first_go(graph: Graph) -> None:
    graph.mutate("query q() { delete Person where age < 30 }")


def _most_go(graph: Graph) -> None:
    graph.mutate('query q() { delete Person where name != "p003" and name != "p199" }')


def _all_go(graph: Graph) -> None:
    graph.mutate('query q() { delete Person where name != "" }')


def _some_are_written(graph: Graph) -> None:
    graph.mutate("query q() { update Person set { age: 5 } where age > 100 }")


def _some_come(graph: Graph) -> None:
    graph.load({"Person": pa.table({"name": ["new", "newer"], "age": [1, None]})}, mode="append")


def _all_are_replaced(graph: Graph) -> None:
    graph.load({"Person": pa.table({"name": NAMES[::-2], "age": list(range(100))})}, mode="overwrite")


CHANGES: list[Callable[[Graph], None]] = [
    _nothing,
    _some_go,
    _the_first_go,
    _most_go,
    _all_go,
    _some_are_written,
    _some_come,
    _all_are_replaced,
]


@pytest.mark.parametrize("ask", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_entity_numbers_map_to_the_stored_values_after_every_change(
    graph: Graph, change: Callable[[Graph], None], ask: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ask:
        always_ask(monkeypatch)
    before, cache = graph.snapshot(), ColumnCache()
    assert_right(before, person(before, cache))
    change(graph)
    changed = graph.snapshot()
    assert_right(changed, person(changed, cache))
    graph.load({"Person": pa.table({"name": ["the last"]})}, mode="append")
    after = graph.snapshot()
    assert_right(after, person(after, cache))
    assert_right(before, person(before, cache))


def test_entity_numbers_survive_updates(graph: Graph) -> None:
    before = person(graph.snapshot())
    _some_are_written(graph)
    _some_come(graph)
    after = person(graph.snapshot())
    ids = before.take("id", before.all_numbers())
    assert after.find(ids).tolist() == before.all_numbers().tolist()


def test_branches_have_their_own_values(graph: Graph) -> None:
    graph.branches.create("other")
    graph.mutate("query q() { update Person set { age: 1 } where age > 100 }", branch="other")
    graph.mutate("query q() { update Person set { age: 2 } where age > 100 }")
    cache = ColumnCache()
    for branch in ("main", "other", "main"):
        snapshot = graph.snapshot(branch=branch)
        assert_right(snapshot, person(snapshot, cache))


def test_a_recreated_graph_shares_no_cache_entries(tmp_path: Path) -> None:
    """Same location, path and version number, other values: cache entries are not mixed up."""
    cache = ColumnCache()
    for declared, values in (("I64", [1, 2]), ("String", ["a", "b"])):
        place = tmp_path / "again"
        with omnigraph.init(place, f"node N {{ k: String @key v: {declared} }}") as graph:
            empty = EntityTables(graph.snapshot(), cache).nodes("N")
            assert empty.column("v").type == graph.snapshot().table("node:N").schema().field("v").type
            graph.load({"N": pa.table({"k": ["x", "y"], "v": values})}, mode="append")
            space = EntityTables(graph.snapshot(), cache).nodes("N")
            assert space.take("v", space.all_numbers()).to_pylist() == values
        place.rename(tmp_path / f"gone {declared}")


# Numberings


@given(st.lists(st.integers(0, 40), unique=True))
def test_numberings_are_dense_and_sorted_by_row_id(row_ids: list[int]) -> None:
    known = Numbering.of(np.array(row_ids, np.int64))
    if known.row_ids is not None:
        assert known.row_ids.tolist() == sorted(row_ids)
        assert known.slots == len(row_ids)
    elif row_ids:
        assert known.base == min(row_ids)
        assert known.slots == max(row_ids) - min(row_ids) + 1 <= 4 * len(row_ids)
    places = np.arange(known.slots) if known.positions is None else known.positions
    there = [place for place in places.tolist() if place != NOTHING]
    # Numbers ascend with row ids, and each maps back to its row.
    assert [row_ids[place] for place in there] == sorted(row_ids)
    assert known.live is None or np.count_nonzero(known.live) == len(row_ids)


def test_sparse_row_ids_are_numbered_without_holes(graph: Graph) -> None:
    _most_go(graph)
    space = person(graph.snapshot())
    assert (space.slots, space.live) == (2, None)
    assert space.take("name", space.all_numbers()).to_pylist() == ["p003", "p199"]


# Ids


IDS = st.lists(st.one_of(st.text(max_size=3), st.integers(-(10**19), 10**19).map(str)), unique=True)


@pytest.mark.slow
@given(
    st.one_of(IDS, st.lists(st.integers(-300, 300).map(str), unique=True)),
    st.lists(
        st.one_of(
            st.text(max_size=3),
            st.integers(-400, 400).map(str),
            st.sampled_from(["007", "-0", "+1", "", "0x1F", "0X5", "-", "--5"]),
        )
    ),
    st.integers(0, 3),
)
def test_an_id_index_finds_exactly_the_stored_ids(ids: list[str], others: list[str], holes: int) -> None:
    stored: list[str | None] = [*ids, *[None] * holes]
    Random(3).shuffle(stored)
    wanted: list[str | None] = [*others, *ids, None]
    expected = [NOTHING if id_ is None or id_ not in stored else stored.index(id_) for id_ in wanted]
    column = pa.array(stored, pa.utf8())
    assert id_index(column).find(pa.array(wanted, pa.utf8())).tolist() == expected
    assert [id_index(column).find(pa.array([id_], pa.utf8()))[0] for id_ in wanted] == expected


def test_another_spelling_of_a_number_is_another_id() -> None:
    index = id_index(pa.array(["1048575", "5"]))
    assert index.find(pa.array(["0xFFFFF", "5"])).tolist() == [NOTHING, 1]
    assert [index.find(pa.array([text]))[0] for text in ("0xFFFFF", "--5", "5")] == [NOTHING, NOTHING, 1]


def test_integer_ids_use_a_number_index() -> None:
    assert isinstance(id_index(pa.array(["1", "-5", None, "20"])), NumberIndex)
    assert isinstance(id_index(pa.array(["1", "05"])), TextIndex)
    assert isinstance(id_index(pa.array(["1", "a"])), TextIndex)
    assert isinstance(id_index(pa.array([], pa.utf8())), TextIndex)


# Requests to storage


def with_index(graph: Graph, column: str, kind: IndexKind = IndexKind.BTREE) -> Snapshot:
    """The graph with an index on a column of persons."""
    store = graph.session.store
    pin = graph.snapshot().pin("node:Person")
    staged = stage_indexes(store.tables.at(pin.ref), [IndexSpec(column, kind)])
    assert staged is not None
    ref = store.tables.commit_staged(staged)
    manifest = graph.snapshot().manifest
    return Snapshot(store, replace(manifest, tables={**manifest.tables, pin.key: replace(pin, ref=ref)}))


def test_a_few_values_of_a_large_table_are_taken_by_row_id(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(entity_table, SMALL_TABLE_ROWS=10, LOOKUP_COST_ROWS=10, LOOKUP_COST_ROWS_PER_VALUE=10)
    space = person(graph.snapshot())
    space.all_numbers()
    with asked() as calls:
        assert space.take("age", np.array([4, 2])).to_pylist() == [4, 2]
    assert [(name, columns) for name, _, columns in calls] == [("take_rows", ("age",))]
    with asked() as calls:
        for _ in range(20):
            space.take("age", np.array([4, 2]))
    # Many single reads switch to the whole column, which is read once.
    assert [name for name, *_ in calls].count("batches") == 1
    assert len(calls) < 10


@pytest.mark.parametrize(("name", "reads"), [("age", 0), ("name", 1)])
def test_a_column_too_large_for_the_cache_is_not_reread_for_each_value(
    graph: Graph, name: str, reads: int, thresholds: Thresholds
) -> None:
    """The width of numbers is known in advance; the length of texts only after they were read."""
    thresholds(entity_table, SMALL_TABLE_ROWS=10, LOOKUP_COST_ROWS=10, LOOKUP_COST_ROWS_PER_VALUE=10)
    space = person(graph.snapshot(), ColumnCache(500))
    expected = space.whole(name).to_pylist()[4]
    with asked() as calls:
        for _ in range(50):
            assert space.take(name, np.array([4])).to_pylist() == [expected]
    assert [columns for called, _, columns in calls if called == "batches"].count((name,)) == reads


def test_a_column_that_fits_neither_cache_nor_budget_is_not_read_whole(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(entity_table, SMALL_TABLE_ROWS=10, LOOKUP_COST_ROWS=10, LOOKUP_COST_ROWS_PER_VALUE=10)
    spending = Spending(Budget(memory=400))
    for cache, is_read in ((ColumnCache(500), False), (ColumnCache(), True)):
        for name in ("age", "name"):
            space = person(graph.snapshot(), cache)
            with spending.running():
                if is_read:
                    assert len(space.whole(name)) == 200
                    continue
                with pytest.raises(BudgetExceededError, match="OMNIGRAPH_CACHE_MEMORY"):
                    space.take(name, space.all_numbers())
                with pytest.raises(BudgetExceededError, match="OMNIGRAPH_CACHE_MEMORY"):
                    space.whole(name)
                cache.record_cost(space._name(name), 10**9)
                assert len(space.take(name, np.array([4]))) == 1, "a few values are still asked for"


def test_ids_that_fit_neither_cache_nor_budget_are_looked_up(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(entity_table, SMALL_TABLE_ROWS=10, LOOKUP_COST_ROWS=10, LOOKUP_COST_ROWS_PER_VALUE=10)
    cache = ColumnCache(500)
    space = person(with_index(graph, "id"), cache)
    cache.record_cost(space._name("id"), 10**9)
    with Spending(Budget(memory=400)).running():
        assert space.find(pa.array(["p007", "nobody"])).tolist() == [7, NOTHING]


def test_more_text_than_one_array_holds_is_refused() -> None:
    size = 1 << 30
    buffers = [None, pa.py_buffer(np.array([0, size], np.int32)), pa.py_buffer(np.zeros(size, np.uint8))]
    text = pa.Array.from_buffers(pa.utf8(), 1, buffers)
    with pytest.raises(BudgetExceededError, match="2 GiB"):
        as_one_array(pa.chunked_array([text] * 3))


@pytest.mark.parametrize("rest", ["limit 7", "limit 150"])
def test_distances_of_vectors_beyond_the_memory_budget_are_streamed(
    graph: Graph, rest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _some_go(graph)
    snapshot = graph.snapshot()
    query = "nearest($p.spot, [3.0, 1.0])"
    text = f"query q() {{ match {{ $p: Person }} return {{ $p.name as n, {query} as d }} order {{ {query} }} {rest} }}"
    read = compile_query(text, graph.catalog, None).body
    assert isinstance(read, ir.Read)
    whole: list[str] = []
    slot = EntityTable.slot

    def noted(space: EntityTable, label: str) -> Slot:
        whole.append(label)
        return slot(space, label)

    monkeypatch.setattr(EntityTable, "slot", noted)
    found = []
    for limit in (1 << 30, 500):
        whole.clear()
        spaces = EntityTables(snapshot, ColumnCache(limit))
        topologies = partial(Topologies, spaces, graph.catalog)
        context = Context(snapshot, graph.accepted_schema, Request({}, 0), spaces, topologies, Spending())
        found.append(run(ReadQuery(read), context).to_pylist())
        assert ("vectors of spot" in whole) == (limit > 500)
    assert found[0] == found[1]
    assert len(found[0]) > 5


def test_many_values_are_read_at_once(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(entity_table, SMALL_TABLE_ROWS=10)
    space = person(graph.snapshot())
    with asked() as calls:
        space.take("age", space.all_numbers())
        space.take("age", np.array([4]))
    assert [(name, columns) for name, _, columns in calls] == [("batches", ("_rowid",)), ("batches", ("age",))]


def test_an_id_is_looked_up_in_an_index(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    always_ask(monkeypatch)
    snapshot = with_index(graph, "id")
    space = person(snapshot)
    with asked() as calls:
        assert space.find(pa.array(["p007", "nobody"])).tolist() == [7, NOTHING]
    assert [(name, columns) for name, _, columns in calls if columns != ("_rowid",)] == [("lookup", ("id", "_rowid"))]
    assert_right(snapshot, space)


def test_a_blob_is_not_taken_by_row_id(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    always_ask(monkeypatch)
    space = person(graph.snapshot())
    with asked() as calls:
        space.take("photo", np.array([3]))
    assert "take_rows" not in [name for name, *_ in calls]


READS = [
    ('query q() { match { $p: Person { name: "p007" } } return { $p.age } }', [{"p.age": None}]),
    ('query q() { match { $p: Person $p.id = "p008" } return { $p.age } }', [{"p.age": 8}]),
    ('query q() { match { $p: Person $p.name in ["p008", "x", "p009"] } return { $p.age } }', [8, 9]),
    ('query q() { match { $p: Person { name: "p009" } $p.age > 100 } return { $p.age } }', []),
    ('query q() { match { $p: Person { name: "nobody" } } return { $p.age } }', []),
]


@pytest.mark.parametrize(("query", "expected"), READS)
def test_a_key_is_looked_up(graph: Graph, query: str, expected: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    always_ask(monkeypatch)
    with asked() as calls:
        found = graph.query(query).to_pylist()
    wanted = [row["p.age"] if isinstance(row, dict) else row for row in expected]
    assert [row["p.age"] for row in found] == wanted
    assert ("batches", "nodes", ("name",)) not in calls


def test_numbers_of_other_types_match_by_value(graph: Graph) -> None:
    for text, count in (("7", 1), ("7.0", 1), ("7.5", 0), ("-3", 1), ("900000", 1), ("8", 0)):
        query = f"query q() {{ match {{ $c: City $c.number = {text} }} return {{ count($c) as n }} }}"
        assert graph.query(query).to_pylist() == [{"n": count}]


def test_a_range_condition_uses_the_index(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, thresholds: Thresholds
) -> None:
    always_ask(monkeypatch)
    thresholds(index_lookup, SMALL_TABLE_ROWS=0)
    snapshot = with_index(graph, "age")
    space = person(snapshot)
    assert space.indexed == {"age"}
    spaces = EntityTables(snapshot, ColumnCache())
    text = "query q() { match { $p: Person $p.age > 195 $p.age != 197 } return { $p.age as a } order { a } }"
    read = compile_query(text, graph.catalog, None).body
    assert isinstance(read, ir.Read)
    context = Context(
        snapshot, graph.accepted_schema, Request({}, 0), spaces, lambda: Topologies(spaces, graph.catalog), Spending()
    )
    with asked() as calls:
        assert run(ReadQuery(read), context).to_pydict() == {"a": [198, 199]}
    assert ("scan", "nodes", ("_rowid",)) in calls
    assert ("batches", "nodes", ("age",)) not in calls


# The cache


def test_the_cache_evicts_least_recently_used_entries() -> None:
    cache = ColumnCache(1_000)

    def values(n: int) -> pa.Array:
        return pa.array(np.zeros(n, np.int64))

    first = cached(cache, "a", lambda: values(50))
    cached(cache, "b", lambda: values(50))
    assert cached(cache, "a", lambda: values(1)) is first
    cached(cache, "c", lambda: values(50))
    assert cache.holds("a")
    assert not cache.holds("b")
    assert cache.size <= 1_000
    cached(cache, "too large", lambda: values(1_000))
    assert not cache.holds("too large")
    assert cache.holds("a")


def test_a_failure_is_not_cached() -> None:
    cache = ColumnCache()

    def fails() -> pa.Array:
        raise OSError("no")

    for _ in range(2):
        with pytest.raises(OSError, match="no"):
            cached(cache, "a", fails)
    assert len(cached(cache, "a", lambda: pa.array([1]))) == 1


def test_lookups_stop_when_their_cost_reaches_that_of_loading() -> None:
    cache = ColumnCache()
    assert [cache.should_defer("a", 30, 100) for _ in range(5)] == [True, True, True, False, False]
    assert not cache.should_defer("b", 101, 100)


def test_the_cost_of_lookups_accumulates() -> None:
    cache = ColumnCache()
    assert [cache.would_defer("a", 60, 100) for _ in range(3)] == [True, True, True], "asking costs nothing"
    assert cache.should_defer("a", 60, 100)
    assert not cache.would_defer("a", 60, 100)
    cache.record_cost("b", 10**9)
    assert not cache.should_defer("b", 1, 100)


def test_loading_or_evicting_an_entry_resets_its_lookup_cost() -> None:
    cache = ColumnCache(100)
    assert [cache.should_defer("a", 60, 100) for _ in range(2)] == [True, False]
    cached(cache, "a", lambda: np.zeros(80, np.int8))
    cache.record_cost("a", 60)
    cached(cache, "b", lambda: np.zeros(80, np.int8))
    assert not cache.holds("a")
    assert cache.should_defer("a", 60, 100)


def test_entries_too_large_for_the_cache_are_looked_up_if_that_is_cheaper() -> None:
    cache = ColumnCache(100)
    assert all(cache.should_defer("wide", 60, 100, 101) for _ in range(5))
    assert not cache.should_defer("wide", 101, 100, 101)
    cached(cache, "long", lambda: np.zeros(101, np.int8))
    assert all(cache.should_defer("long", 60, 100) and cache.would_defer("long", 60, 100) for _ in range(5))


def test_a_replaced_cache_entry_is_counted_once() -> None:
    cache = ColumnCache(1_000)

    def make() -> pa.Array:
        cache.keep("a", pa.array([1, 2, 3]))
        return pa.array([4])

    cached(cache, "a", make)
    assert cache.size == cached(cache, "a", make).nbytes == 8


def test_the_number_of_cached_values_is_limited() -> None:
    cache = ColumnCache(10_000)
    for number in range(10_000):
        cache.keep(number, np.zeros(0, np.int8))
    assert [cache.holds(number) for number in (0, 5_000, 9_000, 9_999)] == [False, False, True, True]
    assert len(cache._held) == 4_096


def test_waiting_threads_retry_a_failed_build_one_at_a_time() -> None:
    cache = ColumnCache()
    makes: list[int] = []
    most: list[int] = []

    def waiting(count: int) -> bool:
        turn = cache._building.get("a")
        return turn is not None and turn.wanted == count

    def fails() -> pa.Array:
        until(lambda: waiting(2))
        raise OSError("no")

    def make() -> pa.Array:
        makes.append(1)
        if len(makes) == 1:
            threads.submit(cached, cache, "a", make)
            until(lambda: waiting(2) or len(makes) == 2)
        most.append(len(makes))
        return pa.array([1])

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(cached, cache, "a", fails)
        until(lambda: waiting(1))
        second = threads.submit(cached, cache, "a", make)
        with pytest.raises(OSError, match="no"):
            first.result()
        second.result()
    assert most == [1]
    assert not cache._building


def test_many_threads_build_a_cache_entry_once() -> None:
    cache, made = ColumnCache(), []

    def make() -> pa.Array:
        made.append(1)
        return pa.array(range(1000))

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: cached(cache, "a", make), range(64)))
    assert len(made) == 1
    assert all(values is found[0] for values in found)


def test_eight_threads_read_one_entity_table(graph: Graph) -> None:
    snapshot = graph.snapshot()
    _some_go(graph)
    changed = graph.snapshot()
    cache = ColumnCache(20_000)  # too small for all columns, so that they are evicted and loaded again
    spaces = [person(snapshot, cache), person(changed, cache)]

    def read(n: int) -> None:
        assert_right((snapshot, changed)[n % 2], spaces[n % 2])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read, range(32)))


def test_the_environment_sets_the_cache_size() -> None:
    assert cache_memory({}) == 1 << 30
    assert cache_memory({"OMNIGRAPH_CACHE_MEMORY": "1.5 MiB"}) == 3 << 19
    with pytest.raises(InputError, match="OMNIGRAPH_CACHE_MEMORY"):
        cache_memory({"OMNIGRAPH_CACHE_MEMORY": "much"})
