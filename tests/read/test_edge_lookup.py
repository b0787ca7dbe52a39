"""The first hops need no topology: edges of a few nodes are looked up in the table, with the same result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from tests.read.storage_requests import View, asked, follows
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.graph import Graph
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.read.columns.derived_files import DerivedFiles
from omnigraph.read.context.trace import Trace
from omnigraph.read.topology import edge_lookup
from omnigraph.read.topology.adjacency import Adjacency
from omnigraph.read.topology.edge_lookup import EdgeAccess, IndexedEdges
from omnigraph.read.topology.topologies import Edges

SCHEMA = """
node Person { name: String @key }
node City { number: I64 @key }
edge Follows: Person -> Person
edge LivesIn: Person -> City
"""
PEOPLE = [f"p{i:03}" for i in range(200)]
NEXT = "query next($name: String) { match { $a: Person { name: $name } $a follows $b } return { $b.name } }"


@pytest.fixture
def graph(tmp_path: Path, thresholds: Thresholds) -> Iterator[Graph]:
    """A graph with indexes and without topologies. Lookups are made cheap, because the graph is small."""
    thresholds(
        edge_lookup,
        LOOKUP_COST_EDGES=10,
        LOOKUP_COST_EDGES_PER_NODE=1,
        LOOKUP_COST_EDGES_PER_RESULT=0,
        MAX_UNINDEXED_EDGES=3,
    )
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        random = Random(3)
        pairs = [(random.choice(PEOPLE), random.choice(PEOPLE)) for _ in range(1_000)]
        made.load(
            {
                "Person": pa.table({"name": PEOPLE}),
                "City": pa.table({"number": [1, 2, 3]}),
                "Follows": follows([*pairs, *pairs[:50], *((name, name) for name in PEOPLE[::9])]),
                "LivesIn": follows([(name, str(1 + i % 3)) for i, name in enumerate(PEOPLE)]),
            },
            mode="append",
        )
        made.ensure_indexes()
        yield made


def _both(graph: Graph, edge: str, *, inward: bool) -> tuple[View, IndexedEdges, Adjacency]:
    view = View(graph, None)
    found = view.topologies.edges(edge, inward=inward)
    assert isinstance(found, IndexedEdges)
    other = View(graph, None).topology(edge)
    return view, found, other.into if inward else other.out


def _ends(side: Edges, nodes: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    degree, places = side.walk(nodes)
    return degree.tolist(), side.far(places).tolist(), side.edges(places).tolist()


@pytest.mark.parametrize("inward", [False, True])
@pytest.mark.parametrize("edge", ["Follows", "LivesIn"])
@pytest.mark.parametrize("changed", [False, True])
def test_edge_lookups_agree_with_the_topology(graph: Graph, edge: str, inward: bool, changed: bool) -> None:
    if changed:
        graph.mutate('query q() { delete Person where name < "p020" }')
        graph.load({"Person": pa.table({"name": ["new"]}), "Follows": follows([("new", "p100")])}, mode="append")
        graph.ensure_indexes()
    view, found, whole = _both(graph, edge, inward=inward)
    random = np.random.default_rng(5)
    nodes = view.tables.nodes("City" if edge == "LivesIn" and inward else "Person").all_numbers()
    assert (found.nodes, found.size) == (whole.nodes, whole.size)
    for some in (nodes[:1], nodes[[2, 0, 2]], nodes[:0], random.choice(nodes, 20), random.choice(nodes, 40)):
        assert _ends(found, some) == _ends(whole, some)
        for distinct in (False, True):
            assert found.counts(some, distinct=distinct).tolist() == whole.counts(some, distinct=distinct).tolist()
        far = random.integers(0, whole.others, len(some))
        degree, first = found.between(some, far)
        expected, expected_first = whole.between(some, far)
        assert degree.tolist() == expected.tolist()
        there = degree > 0
        assert found.edges(first[there]).tolist() == whole.edges(expected_first[there]).tolist()
        if edge == "Follows":
            assert found.looping(some).tolist() == whole.looping(some).tolist()
    assert "whole" not in found.__dict__, "all of it was looked up"


def test_the_first_hop_reads_no_column_of_the_edges(graph: Graph) -> None:
    view = View(graph, None)
    with asked() as calls:
        side = view.topologies.edges("Follows", inward=False)
        _, places = side.walk(view.tables.nodes("Person").find(pa.array(["p007"])))
        side.far(places)
    assert [call for call in calls if call[1] == "edges"] == [("lookup", "edges", ("src", "dst", "_rowid"))]


def test_edge_positions_stay_valid_after_the_topology_is_built(graph: Graph, thresholds: Thresholds) -> None:
    _, found, whole = _both(graph, "Follows", inward=False)
    few, many = np.array([4, 8]), np.arange(200)
    degree, places = found.walk(few)
    thresholds(edge_lookup, LOOKUP_COST_EDGES_PER_NODE=10**6)
    _, later = found.walk(many)
    assert "whole" in found.__dict__
    assert found.far(later).tolist() == whole.far(whole.walk(many)[1]).tolist()
    assert found.far(places).tolist() == whole.far(whole.walk(few)[1]).tolist()
    assert found.edges(places).tolist() == whole.edges(whole.walk(few)[1]).tolist()
    assert int(degree.sum()) == len(places)


def test_a_lookup_of_many_nodes_builds_the_topology(graph: Graph, thresholds: Thresholds) -> None:
    view = View(graph, None)
    trace = Trace()
    with trace.step("few", "") as few:
        view.topologies.edges("Follows", inward=False, note=trace.note_access).walk(np.arange(3))
    thresholds(edge_lookup, LOOKUP_COST_EDGES_PER_NODE=10**6)
    with trace.step("many", "") as many:
        view.topologies.edges("Follows", inward=False, note=trace.note_access).walk(np.arange(150))
    assert (few.edge_access, many.edge_access) == ([EdgeAccess.LOOKUPS], [EdgeAccess.TOPOLOGY])


def test_repeated_lookups_switch_to_the_topology(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(edge_lookup, LOOKUP_COST_EDGES_PER_NODE=100)
    view = View(graph, None)
    ways = []
    for number in range(12):
        trace = Trace()
        with trace.step("one", "") as entry:
            view.topologies.edges("Follows", inward=False, note=trace.note_access).walk(np.array([number]))
        ways += entry.edge_access
    paid = view.tables.edges("Follows").count // 110
    assert ways == [EdgeAccess.LOOKUPS] * paid + [EdgeAccess.TOPOLOGY] * (12 - paid)


def test_lookups_of_high_degree_nodes_count_towards_the_topology(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(edge_lookup, LOOKUP_COST_EDGES_PER_RESULT=10**6)
    view = View(graph, None)
    assert view.topologies.access_path("Follows", 1, inward=False) is EdgeAccess.LOOKUPS
    view.topologies.edges("Follows", inward=False).walk(np.array([1, 2, 3]))
    assert view.topologies.access_path("Follows", 1, inward=False) is EdgeAccess.TOPOLOGY


def test_a_stored_topology_is_preferred_to_lookups(graph: Graph, tmp_path: Path) -> None:
    files = tmp_path / "files"
    assert View(graph, files).topologies.access_path("Follows", 1, inward=False) is EdgeAccess.LOOKUPS
    View(graph, files).topology("Follows")
    view = View(graph, files)
    assert view.topologies.access_path("Follows", 1, inward=False) is EdgeAccess.TOPOLOGY
    with asked() as calls:
        view.topologies.edges("Follows", inward=True).walk(np.arange(10))
    assert [call for call in calls if call[1] == "edges"] == []


def test_lookups_need_an_index_that_covers_nearly_all_edges(graph: Graph) -> None:
    graph.load({"Follows": follows([("p001", "p002")] * 3)}, mode="append")
    assert View(graph, None).topologies.access_path("Follows", 1, inward=False) is EdgeAccess.LOOKUPS
    graph.load({"Follows": follows([("p001", "p002")])}, mode="append")
    assert View(graph, None).topologies.access_path("Follows", 1, inward=False) is EdgeAccess.TOPOLOGY
    graph.ensure_indexes()
    assert View(graph, None).topologies.access_path("Follows", 1, inward=False) is EdgeAccess.LOOKUPS


def test_edges_that_the_index_does_not_cover_are_found(graph: Graph) -> None:
    graph.load({"Follows": follows([("p001", "p002"), ("p001", "p199")])}, mode="append")
    _, found, whole = _both(graph, "Follows", inward=False)
    assert _ends(found, np.array([1])) == _ends(whole, np.array([1]))


def test_explain_names_the_edge_lookups_that_a_query_uses(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, thresholds: Thresholds
) -> None:
    # As on another machine: empty caches in memory and on disk.
    monkeypatch.setattr("omnigraph.read.topology.topologies.process_files", lambda: DerivedFiles(None))
    monkeypatch.setattr("omnigraph.read.context.views.process_cache", ColumnCache)
    rows = graph.snapshot().scan("edge:Follows", columns=["src", "dst"]).to_pylist()
    expected = sorted({row["dst"] for row in rows if row["src"] == "p018"})
    with omnigraph.open(graph.uri, read_only=True) as reader:
        assert "by lookups" in str(reader.explain(NEXT, {"name": "p018"}))
        with asked() as calls:
            found = reader.query(NEXT, {"name": "p018"}).to_pylist()
        assert [call for call in calls if call[0] in ("scan", "batches") and call[1] == "edges"] == []
        assert sorted(row["b.name"] for row in found) == expected
        analyzed = reader.explain(NEXT, {"name": "p018"}, analyze=True)
        assert ["lookups"] in [step.to_json().get("edges_by") for step in analyzed.steps]
        thresholds(edge_lookup, LOOKUP_COST_EDGES_PER_NODE=10**6)
        assert "by topology" in str(reader.explain(NEXT, {"name": "p018"}))
        assert sorted(row["b.name"] for row in reader.query(NEXT, {"name": "p018"}).to_pylist()) == expected
