"""An algorithm gives the same table on Spark as in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.sampling import every_nth

import omnigraph
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.pipeline.analytics import Engine, analyse
from omnigraph.pipeline.analytics.analysis import Analysis
from omnigraph.pipeline.analytics.outcome import Outcome
from omnigraph.pipeline.spark.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = """\
node B { name: String @key  rank: F64? }
node A { name: String @key  rank: F64? }
edge Ab: A -> B { w: F64? }
edge Bb: B -> B { w: F64? }
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Two types, parallel edges, self-loops, isolated nodes, and ids that both types have."""
    random = np.random.default_rng(5)
    made = omnigraph.init(tmp_path_factory.mktemp("analytics") / "g", SCHEMA)
    rows: list[dict[str, object]] = []
    for kind, count in (("A", 12), ("B", 20)):
        rows += [{"type": kind, "data": {"name": f"n{i}"}} for i in range(count)]
    for kind, lows, highs, count in (("Ab", 10, 15, 14), ("Bb", 15, 15, 24)):
        for a, b in zip(random.integers(0, lows, count), random.integers(0, highs, count), strict=True):
            weight = int(random.integers(0, 4)) / 2
            rows.append({"edge": kind, "from": f"n{a}", "to": f"n{b}", "data": {"w": weight}})
    rows.append({"edge": "Bb", "from": "n3", "to": "n3", "data": {"w": 1}})
    made.load(rows, mode="append")
    return made


ALGORITHMS: dict[str, Callable[[Analysis], Outcome]] = {
    "pagerank": lambda analysis: analysis.pagerank(iterations=2, tolerance=0),
    "components": lambda analysis: analysis.components(),
    "labels": lambda analysis: analysis.labels(iterations=2),
    "triangles": lambda analysis: analysis.triangles(),
    "paths": lambda analysis: analysis.shortest_paths(["A:n0", "B:n3"]),
    "paths by weight": lambda analysis: analysis.shortest_paths("B:n3", direction="both"),
}


@pytest.mark.parametrize("name", every_nth(ALGORITHMS, 2))
def test_spark_and_local_analytics_agree(session: Session, graph: Graph, name: str) -> None:
    weight = "w" if "weight" in name else None
    run = ALGORITHMS[name]
    here = run(analyse(graph, weight=weight, engine=Engine.LOCAL)).table
    there = run(analyse(graph, weight=weight, engine=Engine.SPARK, session=session)).table
    assert there.schema == here.schema
    exact = [column for column in here.column_names if not pa.types.is_floating(here[column].type)]
    assert there.select(exact) == here.select(exact)
    for column in set(here.column_names) - set(exact):
        assert there[column].to_pylist() == pytest.approx(here[column].to_pylist(), abs=1e-12)


def test_a_spark_result_can_be_written(session: Session, graph: Graph) -> None:
    analyse(graph, engine="spark", session=session).pagerank(iterations=1).write("rank", branch="ranked")
    expected = analyse(graph).pagerank(iterations=1).table["rank"][0].as_py()
    entity = graph.entity("A", "n0", at=graph.snapshot(branch="ranked"))
    assert entity is not None
    assert entity["rank"] == pytest.approx(expected)


def test_tasks_write_a_result_and_keep_all_other_values(session: Session, tmp_path: Path) -> None:
    schema = "node A { name: String @key  n: U32?  u: U64?  us: [U64]?  v: Vector(2)?  seen: DateTime?  photo: Blob? }"
    graph = omnigraph.init(tmp_path / "g", f"{schema} edge Aa: A -> A")
    people = [
        {"name": f"n{i}", "u": 2**64 - 1 - i, "us": [2**64 - 1], "v": [0.1, i], "seen": "2024-05-01T00:00:00.001Z"}
        for i in range(9)
    ]
    photo = pa.table({"name": ["empty", "x"], "photo": pa.array([None, b"\0\1"])})
    graph.load({"A": people}, mode="append")
    graph.load({"A": photo}, mode="append")
    graph.load([{"edge": "Aa", "from": f"n{a}", "to": f"n{b}"} for a, b in ("01", "12", "20", "34")], mode="append")
    analyse(graph, engine="local").triangles().write("n", branch="here")
    found = analyse(graph, engine="spark", session=session).triangles()
    receipt = found.write("n", branch="there", message="triangles")
    assert (receipt.total, graph.snapshot(branch="there").commit.message) == (11, "triangles")
    assert "table" not in vars(found)
    assert b"".join(graph.export(branch="there")) == b"".join(graph.export(branch="here"))


def test_a_local_result_can_become_a_data_frame(session: Session, graph: Graph) -> None:
    found = analyse(graph).triangles()
    frame = found.frame(session.spark)
    assert frame.columns == ["type", "id", "triangles"]
    assert frame.count() == found.table.num_rows


def test_a_missing_weight_is_refused_on_spark(session: Session, tmp_path: Path) -> None:
    made = omnigraph.init(tmp_path / "g", SCHEMA)
    made.load([{"type": "B", "data": {"name": "x"}}], mode="append")
    made.load([{"edge": "Bb", "from": "x", "to": "x"}], mode="append")
    with pytest.raises(InputError, match="property 'w' is null or negative"):
        analyse(made, edges="Bb", weight="w", engine="spark", session=session).shortest_paths("x")
