"""A lookup of one node by its key gives what the planned query gives, for keys and properties of all types."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.read import everything
from tests.read.storage_requests import asked

import omnigraph
from omnigraph import Graph, Result
from omnigraph.read.columns import entity_table
from omnigraph.read.execute import executor
from omnigraph.testing import thresholds

KEYS = {
    "String": "a",
    "I32": -3,
    "U64": 2**64 - 1,
    "Bool": True,
    "Date": "2026-03-14",
    "DateTime": "2026-03-14T09:30:00Z",
}


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with everything.full(tmp_path_factory.mktemp("things") / "graph") as graph:
        yield graph


def planned(graph: Graph, text: str, params: dict[str, object]) -> Result:
    """The result of the executor. It also runs point lookups while it logs plans."""
    log = logging.getLogger("omnigraph.read.plan")
    level = log.level
    log.setLevel(logging.DEBUG)
    try:
        return graph.query(text, params)
    finally:
        log.setLevel(level)


def both(
    graph: Graph, text: str, params: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, object]]:
    """The rows of a query, once looked up and once planned."""
    expected = planned(graph, text, params)
    with monkeypatch.context() as patch:
        patch.setattr(executor, "execute", None)  # a point lookup does not need it
        found = graph.query(text, params)
    assert found.to_arrow().schema == expected.to_arrow().schema
    assert found.to_arrow().equals(expected.to_arrow(), check_metadata=True) or found.to_json() == expected.to_json()
    return found.to_pylist()


@pytest.mark.parametrize("name", [*everything.things()["name"].to_pylist(), "unknown", ""])
def test_all_properties_are_the_same(things: Graph, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [each for each in things.catalog.nodes["Thing"].properties if each not in ("photo", "film")]
    columns = ", ".join(f"$t.{each}" for each in names)
    text = f"query one($n: String) {{ match {{ $t: Thing {{ name: $n }} }} return {{ {columns} }} }}"
    rows = both(things, text, {"n": name}, monkeypatch)
    assert [row["t.name"] for row in rows] == ([name] if name in everything.things()["name"].to_pylist() else [])


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_all_types_are_found(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"query one($k: {kind}?) {{ match {{ $t: T  $t.k = $k }} return {{ $t.k, $t.n }} }}"
    with omnigraph.init(tmp_path / "g", f"node T {{ k: {kind} @key  n: I32 }}") as graph:
        graph.mutate(f"query add($k: {kind}) {{ insert T {{ k: $k, n: 1 }} }}", {"k": KEYS[kind]})
        assert [row["t.n"] for row in both(graph, text, {"k": KEYS[kind]}, monkeypatch)] == [1]
        assert both(graph, text, {"k": None}, monkeypatch) == []


def test_literals_ids_and_reversed_sides(things: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    for condition in ('$t.name = "plain"', '"plain" = $t.name', '$t.id = "plain"'):
        text = f"query one() {{ match {{ $t: Thing  {condition} }} return {{ $t.id as id, $t.small as small }} }}"
        assert both(things, text, {}, monkeypatch) == [{"id": "plain", "small": 1}]


@pytest.mark.parametrize("rows", [1, 50_000], ids=["from-the-table", "from-memory"])
def test_it_follows_updates_and_deletions(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "query one($k: String) { match { $t: T { k: $k } } return { $t.n as n } }"
    with (
        thresholds(entity_table, SMALL_TABLE_ROWS=rows),
        omnigraph.init(tmp_path / "g", "node T { k: String @key  n: I32? }") as graph,
    ):
        graph.load({"T": [{"k": f"k{i}", "n": i} for i in range(100)]}, mode="append")
        graph.ensure_indexes()
        for _ in range(3):
            assert both(graph, text, {"k": "k7"}, monkeypatch) == [{"n": 7}]
        graph.load({"T": [{"k": "k7", "n": 70}]}, mode="merge")
        assert both(graph, text, {"k": "k7"}, monkeypatch) == [{"n": 70}]
        graph.mutate('query gone() { delete T where k = "k7" }')
        assert both(graph, text, {"k": "k7"}, monkeypatch) == []


@pytest.mark.parametrize(
    "text",
    [
        "query q($n: String) { match { $t: Thing { name: $n, small: 1 } } return { $t.small } }",
        "query q($n: String) { match { $t: Thing { name: $n } } return { count(*) as n } }",
        "query q($n: String) { match { $t: Thing { name: $n } } return { $t.small + 1 as n } }",
        "query q($n: String) { match { $t: Thing { text: $n } } return { $t.small } }",
        "query q($n: String) { match { $t: Thing { name: $n } } return { $t.small } limit 0 }",
        "query q($n: String) { match { $t: Thing { name: $n } $t near $p } return { $t.small } }",
    ],
)
def test_other_queries_are_planned(things: Graph, text: str) -> None:
    assert things.query(text, {"n": "plain"}).to_pylist() == planned(things, text, {"n": "plain"}).to_pylist()


def test_the_first_lookup_reads_one_row_and_later_ones_read_all_ids(tmp_path: Path) -> None:
    """A new process with one question does not read all ids. One with many questions does it once."""
    count = 2 * entity_table.LOOKUP_COST_ROWS
    text = "query one($k: String) { match { $t: T { k: $k } } return { $t.n as n, $t.n as again, $t.id as id } }"
    rows = pa.table({"k": [f"t{i}" for i in range(count)], "n": pa.array(range(count), pa.int32())})
    with omnigraph.init(tmp_path / "g", "node T { k: String @key  n: I32 }") as graph:
        graph.load({"T": rows}, mode="append")
        graph.mutate('query remove() { delete T where k = "t3" }')
        with asked() as requests:
            assert graph.query(text, {"k": "t7"}).to_pylist() == [{"n": 7, "again": 7, "id": "t7"}]
        assert [(how, columns) for how, _, columns in requests] == [("lookup", ("n", "id"))]
        with asked() as requests:
            for number in range(20):
                expected = [] if number == 3 else [{"n": number, "again": number, "id": f"t{number}"}]
                assert graph.query(text, {"k": f"t{number}"}).to_pylist() == expected
            assert graph.query(text, {"k": "none"}).to_pylist() == []
        assert ("batches", ("id",)) in [(how, columns) for how, _, columns in requests]
        assert len([how for how, _, _ in requests if how == "lookup"]) <= 4
        with asked() as requests:
            assert graph.query(text, {"k": "t9"}).to_pylist() == [{"n": 9, "again": 9, "id": "t9"}]
        assert not [columns for how, _, columns in requests if how == "lookup"]
