"""A whole graph as networkx, numpy and PyTorch Geometric: the same nodes, edges and values as an export."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.read.result.arrays import as_numbers
from omnigraph.settings import FSYNC

SCHEMA = """
node Person { name: String @key  age: I32?  ok: Bool?  score: F32?  at: DateTime?  day: Date?  vec: Vector(2)?
              tags: [String]?  photo: Blob? }
node Boat { name: String @key  tons: I64 }
edge Knows: Person -> Person { since: Date? }
edge Owns: Person -> Boat { share: F64 }
"""


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setenv(FSYNC.name, "0")
    opened = omnigraph.init(tmp_path / "g", SCHEMA)
    opened.load(
        {
            "Person": [
                {"name": "ann", "age": 41, "ok": True, "score": 0.5, "at": "2024-01-02T03:04:05Z", "vec": [1.0, 2.0]},
                {"name": "bob", "age": None, "day": "2020-02-03", "tags": ["x", "y"], "photo": "base64:aGk="},
            ],
            "Boat": [{"name": "argo", "tons": 120}],
            "Knows": [{"from": "bob", "to": "ann", "since": "2001-01-01"}],
            "Owns": [{"from": "ann", "to": "argo", "share": 0.25}],
        },
        mode="append",
    )
    return opened


def test_networkx_has_every_node_and_edge(graph: Graph) -> None:
    drawn = graph.to_networkx()
    assert set(drawn.nodes) == {("Person", "ann"), ("Person", "bob"), ("Boat", "argo")}
    assert drawn.nodes["Boat", "argo"] == {"name": "argo", "tons": 120}
    assert drawn.nodes["Person", "ann"]["at"] == dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert "photo" not in drawn.nodes["Person", "bob"]
    ((source, target, key, values),) = drawn.edges(("Person", "bob"), keys=True, data=True)
    assert (source, target, key[0]) == (("Person", "bob"), ("Person", "ann"), "Knows")
    assert values == {"since": dt.date(2001, 1, 1)}


def test_types_branches_and_states_can_be_chosen(graph: Graph) -> None:
    start = graph.snapshot().commit.id
    graph.branches.create("draft")
    graph.mutate('query q() { insert Boat { name: "beagle", tons: 9 } }', branch="draft")
    assert set(graph.to_networkx("Boat", branch="draft").nodes) == {("Boat", "argo"), ("Boat", "beagle")}
    assert set(graph.to_networkx(["Boat"], at=start).nodes) == {("Boat", "argo")}
    owners = graph.to_networkx("Owns")
    assert set(owners.nodes) == {("Person", "ann"), ("Person", "bob"), ("Boat", "argo")}
    assert owners.number_of_edges() == 1
    with pytest.raises(InputError, match="there is no type 'Ownes'"):
        graph.to_numpy("Ownes")


def test_arrays_have_the_exact_values(graph: Graph) -> None:
    arrays = graph.to_numpy()
    person = arrays.nodes["Person"]
    assert person["id"].tolist() == ["ann", "bob"]
    assert person["age"].dtype == np.float64
    assert person["age"][0] == 41
    assert np.isnan(person["age"][1])
    assert np.isnan(person["ok"][1])
    assert person["score"].dtype == np.float32
    assert person["at"].astype(str).tolist() == ["2024-01-02T03:04:05.000", "NaT"]
    assert person["day"].tolist() == [None, dt.date(2020, 2, 3)]
    assert person["vec"].shape == (2, 2)
    assert person["vec"].dtype == np.float32
    assert person["vec"][0].tolist() == [1.0, 2.0]
    assert np.isnan(person["vec"][1]).all()
    assert "photo" not in person
    assert arrays.nodes["Boat"]["tons"].dtype == np.int64
    knows = arrays.edges["Person", "Knows", "Person"]
    assert knows["edge_index"].dtype == np.int64
    assert knows["edge_index"].tolist() == [[1], [0]]
    assert arrays.edges["Person", "Owns", "Boat"]["share"].tolist() == [0.25]


def test_types_without_rows_have_empty_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FSYNC.name, "0")
    with omnigraph.init(tmp_path / "empty", SCHEMA) as graph:
        arrays = graph.to_numpy()
    assert arrays.nodes["Person"]["vec"].shape == (0, 2)
    assert arrays.edges["Person", "Owns", "Boat"]["edge_index"].shape == (2, 0)
    assert arrays.edges["Person", "Owns", "Boat"]["edge_index"].dtype == np.int64


def test_many_edges_have_the_numbers_of_their_nodes(graph: Graph) -> None:
    names = [f"n{i:05}" for i in range(5_000)]
    graph.load({"Person": pa.table({"name": names})}, mode="append")
    ends = np.random.default_rng(7).integers(0, 5_000, (2, 20_000))
    knows = pa.table({"from": [names[i] for i in ends[0]], "to": [names[i] for i in ends[1]]})
    graph.load({"Knows": knows}, mode="append")
    arrays = graph.to_numpy("Knows")
    ids = arrays.nodes["Person"]["id"]
    index = arrays.edges["Person", "Knows", "Person"]["edge_index"]
    found = sorted(zip(ids[index[0]], ids[index[1]], strict=True))
    assert found == sorted([*zip(knows["from"].to_pylist(), knows["to"].to_pylist(), strict=True), ("bob", "ann")])


def test_values_become_numbers_for_tensors() -> None:
    assert as_numbers(np.array(["a"], object)) is None
    times = as_numbers(np.array(["1970-01-02", "NaT"], "datetime64[D]"))
    assert times is not None
    assert times[0] == 86_400
    assert np.isnan(times[1])
    large = as_numbers(np.array([5], np.uint32))
    assert large is not None
    assert large.dtype == np.int64
    assert as_numbers(np.array([2**63], np.uint64)) is None


def test_pyg_needs_its_package(graph: Graph) -> None:
    try:
        import torch_geometric  # noqa: F401
    except ImportError:
        with pytest.raises(InputError, match=r"torch(_geometric)? is not installed") as caught:
            graph.to_pyg()
        assert str(caught.value.hint).startswith("pip install torch")
    else:
        data = graph.to_pyg()
        assert data["Person", "Knows", "Person"].edge_index.tolist() == [[1], [0]]
        assert data["Boat"].tons.tolist() == [120]
