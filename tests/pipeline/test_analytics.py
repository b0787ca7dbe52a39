"""Algorithms agree with networkx, on graphs with parallel edges, self-loops and isolated nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python  # the other one needs scipy
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.errors import InputError, NotFoundError, PreconditionFailedError
from omnigraph.graph import Graph
from omnigraph.pipeline.analytics import Engine, algorithms, analyse
from omnigraph.pipeline.analytics import analysis as analysing
from omnigraph.pipeline.analytics import network as networks
from omnigraph.pipeline.analytics.algorithms import Direction
from omnigraph.pipeline.analytics.network import Network

SEEDS = range(12)


def random_network(seed: int, *, weighted: bool = False) -> Network:
    """A small graph with all special cases."""
    random = np.random.default_rng(seed)
    nodes = int(random.integers(1, 40))
    edges = int(random.integers(0, 4 * nodes))
    ends = random.integers(0, max(1, nodes - 3), (2, edges)).astype(np.int32)
    weight = random.integers(0, 5, edges) / 2 if weighted else None
    return Network((("P", nodes),), ends[0], ends[1], weight)


def peer(network: Network, kind: Any = nx.MultiDiGraph) -> Any:
    made = kind()
    made.add_nodes_from(range(network.nodes))
    for number, (a, b) in enumerate(zip(network.source.tolist(), network.target.tolist(), strict=True)):
        weight = 1 if network.weight is None else float(network.weight[number])
        made.add_edge(a, b, weight=weight)
    return made


@pytest.fixture(params=[1 << 22, 3])
def _portions(request: pytest.FixtureRequest, thresholds: Thresholds) -> None:
    """All edges at once, or three at a time."""
    thresholds(networks, CHUNK_EDGES=request.param)
    thresholds(algorithms, CHUNK_EDGES=request.param)


pytestmark = pytest.mark.usefixtures("_portions")


@pytest.mark.parametrize("seed", SEEDS)
def test_pagerank_agrees_with_networkx(seed: int) -> None:
    network = random_network(seed)
    found = algorithms.pagerank(network, 0.85, 1000, 1e-12)
    expected = _pagerank_python(_summed(network), tol=1e-12, max_iter=1000)
    assert found == pytest.approx([expected[node] for node in range(network.nodes)], abs=1e-9)
    assert found.sum() == pytest.approx(1)


def _summed(network: Network) -> Any:
    """Parallel edges as one edge with their summed weight."""
    made = nx.DiGraph()
    made.add_nodes_from(range(network.nodes))
    for (a, b), count in Counter(zip(network.source.tolist(), network.target.tolist(), strict=True)).items():
        made.add_edge(a, b, weight=count)
    return made


@pytest.mark.parametrize("seed", SEEDS)
def test_components_agree_with_networkx(seed: int) -> None:
    network = random_network(seed)
    expected = {}
    for members in nx.weakly_connected_components(peer(network)):
        expected.update(dict.fromkeys(members, min(members)))
    assert algorithms.components(network).tolist() == [expected[node] for node in range(network.nodes)]


def test_components_of_a_long_path_are_found() -> None:
    random = np.random.default_rng(1)
    line = random.permutation(500)
    network = Network((("P", 500),), line[:-1].astype(np.int32), line[1:].astype(np.int32))
    assert set(algorithms.components(network).tolist()) == {0}


@pytest.mark.parametrize("seed", SEEDS)
def test_triangles_agree_with_networkx(seed: int) -> None:
    network = random_network(seed)
    simple = nx.Graph(peer(network))
    simple.remove_edges_from(list(nx.selfloop_edges(simple)))
    expected = nx.triangles(simple)
    assert algorithms.triangles(network).tolist() == [expected[node] for node in range(network.nodes)]


@pytest.mark.parametrize("seed", SEEDS)
def test_label_propagation_agrees_with_a_plain_loop(seed: int) -> None:
    network = random_network(seed)
    neighbours = peer(network, nx.MultiGraph)
    own = list(range(network.nodes))
    for _ in range(7):
        own = [_most_frequent(neighbours, own, node) for node in range(network.nodes)]
    assert algorithms.labels(network, 7).tolist() == own


def _most_frequent(neighbours: Any, own: Sequence[int], node: int) -> int:
    seen: Counter[int] = Counter()
    for _, other in neighbours.edges(node):
        seen[own[other]] += 2 if other == node else 1
    return own[node] if not seen else min(seen, key=lambda label: (-seen[label], label))


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_distances_agree_with_networkx(seed: int, weighted: bool, direction: Direction) -> None:
    network = random_network(seed, weighted=weighted)
    walked = peer(network, nx.MultiGraph if direction is Direction.BOTH else nx.MultiDiGraph)
    if direction is Direction.IN:
        walked = walked.reverse()
    source = network.nodes // 2
    expected = nx.single_source_dijkstra_path_length(walked, source)
    found = algorithms.distances(network, source, direction)
    assert found.tolist() == [expected.get(node, math.inf) for node in range(network.nodes)]


def test_an_empty_graph_has_empty_results() -> None:
    nothing = Network((), np.empty(0, np.int32), np.empty(0, np.int32))
    assert len(algorithms.pagerank(nothing, 0.85, 5, 0)) == 0
    assert len(algorithms.components(nothing)) == len(algorithms.triangles(nothing)) == 0
    assert len(algorithms.labels(nothing, 3)) == 0


# On a graph

SCHEMA = """\
node City { name: String @key  rank: F64?  group: String?  corners: I32? }
node Person { name: String @key  age: I32?  photo: Blob?  rank: F64?  group: String?  corners: I32? }
edge Knows: Person -> Person { days: U32? }
edge Lives: Person -> City
"""
PEOPLE = [("ann", "bob"), ("bob", "cid"), ("cid", "ann"), ("cid", "ann"), ("dan", "dan")]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = omnigraph.init(tmp_path / "g", SCHEMA)
    rows: list[dict[str, object]] = [{"type": "City", "data": {"name": name}} for name in ("ann", "rome")]
    rows += [
        {"type": "Person", "data": {"name": name, "age": 7}} for name in ("zoe", "dan", "cid", "bob", "ann", "eve")
    ]
    rows += [{"edge": "Knows", "from": a, "to": b, "data": {"days": i}} for i, (a, b) in enumerate(PEOPLE)]
    rows += [{"edge": "Lives", "from": "zoe", "to": "rome"}]
    made.load(rows, mode="append")
    made.mutate('query x() { delete Person where name = "eve" }')
    return made


def values(table: pa.Table, name: str) -> dict[str, object]:
    keys = [f"{row['type']}:{row['id']}" for row in table.to_pylist()]
    return dict(zip(keys, table[name].to_pylist(), strict=True))


def test_all_types_of_a_graph_are_analysed_by_default(graph: Graph) -> None:
    found = analyse(graph).components().table
    assert found.column_names == ["type", "id", "component"]
    assert values(found, "component") == {
        "City:ann": "City:ann",
        "City:rome": "City:rome",
        "Person:ann": "Person:ann",
        "Person:bob": "Person:ann",
        "Person:cid": "Person:ann",
        "Person:dan": "Person:dan",
        "Person:zoe": "City:rome",
    }


def test_types_can_be_selected(graph: Graph) -> None:
    assert list(values(analyse(graph, edges="Knows").triangles().table, "triangles")) == [
        f"Person:{name}" for name in ("ann", "bob", "cid", "dan", "zoe")
    ]
    assert values(analyse(graph, edges="Knows").triangles().table, "triangles")["Person:bob"] == 1
    only = analyse(graph, nodes="City").components().table
    assert values(only, "component") == {"City:ann": "City:ann", "City:rome": "City:rome"}


def test_paths_name_their_source(graph: Graph) -> None:
    found = analyse(graph).shortest_paths(["bob", "Person:zoe"]).table.to_pylist()
    assert [(row["source"], row["type"], row["id"], row["distance"]) for row in found] == [
        ("Person:bob", "Person", "ann", 2),
        ("Person:bob", "Person", "bob", 0),
        ("Person:bob", "Person", "cid", 1),
        ("Person:zoe", "City", "rome", 1),
        ("Person:zoe", "Person", "zoe", 0),
    ]
    far = analyse(graph, edges="Knows", weight="days").shortest_paths("bob", direction="in").table
    assert values(far, "distance") == {"Person:ann": 0, "Person:bob": 0, "Person:cid": 2}
    assert analyse(graph).shortest_paths([]).table.num_rows == 0


def test_invalid_arguments_are_refused(graph: Graph) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"nodes": "Persn"}, "there is no node type 'Persn'"),
        ({"edges": ["Know"]}, "there is no edge type 'Know'"),
        ({"nodes": "City", "edges": "Lives"}, "the edge type Lives has an end of type Person"),
        ({"edges": "Knows", "weight": "weeks"}, "Knows has no property 'weeks'"),
        ({"engine": "cloud"}, "'cloud' is not an engine"),
    ]
    for said, message in cases:
        with pytest.raises(InputError, match=message):
            analyse(graph, **said)
    with pytest.raises(NotFoundError, match="there is no node 'nobody'"):
        analyse(graph).shortest_paths("nobody")
    with pytest.raises(InputError, match="City and Person have a node 'ann'"):
        analyse(graph).shortest_paths("ann")
    with pytest.raises(InputError, match="not a direction"):
        analyse(graph).shortest_paths("bob", direction="up")
    with pytest.raises(InputError, match="damping"):
        analyse(graph).pagerank(damping=1)
    with pytest.raises(InputError, match="iterations must be at least 1"):
        analyse(graph).labels(iterations=0)


def test_a_missing_weight_is_refused(graph: Graph) -> None:
    graph.load([{"edge": "Knows", "from": "ann", "to": "zoe"}], mode="append")
    with pytest.raises(InputError, match="the weight property 'days' is null on some edges of Knows"):
        analyse(graph, edges="Knows", weight="days").shortest_paths("bob")


def test_an_earlier_commit_can_be_analysed(graph: Graph) -> None:
    before = graph.snapshot().commit.id
    graph.load([{"edge": "Knows", "from": "dan", "to": "zoe"}], mode="append")
    now, then = (values(analyse(graph, at=at).components().table, "component") for at in (None, before))
    assert now["Person:dan"] == "City:rome"
    assert then["Person:dan"] == "Person:dan"


def test_a_graph_beyond_the_memory_limit_runs_on_spark(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    assert analyse(graph).engine is Engine.LOCAL
    monkeypatch.setattr(analysing, "query_memory", lambda: 100)
    assert analyse(graph).engine is Engine.SPARK


# Results as properties


def test_a_result_can_be_written_to_a_property(graph: Graph) -> None:
    content = pa.table({"name": ["ann"], "age": [7], "photo": [b"a picture"]})
    graph.load(content, mode="merge", type_name="Person")
    found = analyse(graph).pagerank()
    receipt = found.write("rank", branch="ranked", message="ranks")
    assert receipt.total == 7
    ranks = values(found.table, "rank")
    for name in ("ann", "rome"):
        entity = graph.entity("City", name, at=graph.snapshot(branch="ranked"))
        assert entity is not None
        assert entity["rank"] == ranks[f"City:{name}"]
    ann = graph.entity("Person", "ann", at=graph.snapshot(branch="ranked"))
    assert ann is not None
    assert (ann["age"], ann["rank"]) == (7, ranks["Person:ann"])
    assert graph.blob("Person", "ann", "photo", branch="ranked").read() == b"a picture"
    before = graph.entity("Person", "ann")
    assert before is not None
    assert before["rank"] is None


def test_integer_and_string_results_can_be_written(graph: Graph) -> None:
    analyse(graph, edges="Knows").triangles().write("corners", branch="main")
    analyse(graph, edges="Knows").components().write("group", branch="main")
    bob = graph.entity("Person", "bob")
    assert bob is not None
    assert (bob["corners"], bob["group"]) == (1, "Person:ann")


def test_a_result_is_not_written_to_a_changed_branch(graph: Graph) -> None:
    found = analyse(graph).pagerank()
    graph.load([{"type": "City", "data": {"name": "oslo"}}], mode="append")
    with pytest.raises(PreconditionFailedError):
        found.write("rank", branch="main")


def test_a_property_of_another_type_is_refused(graph: Graph) -> None:
    found = analyse(graph).pagerank()
    for name, message in [("rnk", "City has no property 'rnk'"), ("group", "City.group has type String?")]:
        with pytest.raises(InputError, match=message.replace("?", r"\?")):
            found.write(name, branch="elsewhere")
    assert "elsewhere" not in graph.branches
    with pytest.raises(InputError, match="a node has one distance per source"):
        analyse(graph).shortest_paths("bob").write("rank", branch="main")
