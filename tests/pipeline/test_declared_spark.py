"""SQL over the sources of a pipeline: every format, earlier steps and the graph itself, checked and merged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import omnigraph
from omnigraph.engine.engines import Engine
from omnigraph.errors import InputError, PipelineCheckError, SparkError
from omnigraph.graph import Graph
from omnigraph.pipeline.declared import Stage
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.pipeline.spark.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = """
node Ship { name: String @key  tons: U64?  flag: String? }
node Port { name: String @key }
edge Docked: Ship -> Port { days: I32? }
"""
LARGE = 2**64 - 1


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = omnigraph.init(tmp_path / "graph", SCHEMA)
    made.load({"Port": [{"name": "oban"}, {"name": "leith"}]}, mode="append")
    ships = pa.table({"name": ["argo", "beagle"], "tons": pa.array([LARGE, 242], pa.uint64())})
    pyarrow.parquet.write_table(ships, tmp_path / "ships.parquet")
    pyarrow.feather.write_feather(pa.table({"ship": ["argo"], "flag": ["gr"]}), str(tmp_path / "flags.arrow"))
    (tmp_path / "stays.csv").write_text('ship,port,days\nargo,oban,3\nbeagle,"le\nith",4\nbeagle,leith,\n')
    logs = [{"ship": "argo", "seen": ["oban"]}, {"ship": "beagle", "seen": ["leith", "oban"]}]
    (tmp_path / "logs.ndjson").write_text("".join(json.dumps(line) + "\n" for line in logs))
    return made


def declared(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {
        "pipeline": "fleet",
        "variables": {"least": "0"},
        "sources": {
            "ships": str(tmp_path / "ships.parquet"),
            "flags": str(tmp_path / "flags.arrow"),
            "stays": str(tmp_path / "stays.csv"),
            "logs": {"path": str(tmp_path / "logs.ndjson"), "columns": {"ship": "string", "seen": "array<string>"}},
            "ports": {"type": "Port"},
        },
        "steps": {
            "flagged": "SELECT s.name, s.tons, f.flag FROM ships s LEFT JOIN flags f ON f.ship = s.name",
            "known": "SELECT * FROM stays WHERE port IN (SELECT name FROM ports)"
            " AND coalesce(CAST(days AS INT), 1) > :least",
            "docked": "SELECT ship AS `from`, port AS `to`, CAST(days AS INT) AS days FROM known"
            " UNION ALL SELECT ship, explode(seen), 0 FROM logs",
        },
        "load": {"nodes": {"Ship": "flagged"}, "edges": {"Docked": "docked"}},
        "mode": "append",
        "then": "merge",
        "checks": {
            "known ships": "SELECT `from` FROM docked WHERE `from` NOT IN (SELECT name FROM flagged)",
            "every ship docked": "SELECT s.id FROM node_Ship s LEFT ANTI JOIN edge_Docked d ON d.from = s.id",
            "two ships": {"query": "query q() { match { $s: Ship } return { $s.name } }", "expect": {"rows": 2}},
        },
    } | more


def test_sql_steps_read_every_format(graph: Graph, session: Session, tmp_path: Path) -> None:
    pipeline = Pipeline(graph, session)
    given = declared(tmp_path)
    checked = pipeline.run(given, check=True)
    assert checked.stage is Stage.CHECKED
    assert [outcome.passed for outcome in checked.checks] == [True, None, None]
    assert len(list(graph.commits)) == 2

    receipt = pipeline.run(given)
    assert receipt.stage is Stage.MERGED
    assert receipt.engine is Engine.SPARK
    assert [(outcome.name, outcome.passed) for outcome in receipt.checks] == [
        ("known ships", True),
        ("every ship docked", True),
        ("two ships", True),
    ]
    assert graph.entity("Ship", "argo") == {"id": "argo", "name": "argo", "tons": LARGE, "flag": "gr"}
    found = graph.query("query q() { match { $s: Ship  $s $d:docked $p } return { $s.name, $p.name, $d.days } }")
    rows = sorted((row["s.name"], row["p.name"], row["d.days"] or 0) for row in found.to_pylist())
    assert rows == [
        ("argo", "oban", 0),
        ("argo", "oban", 3),
        ("beagle", "leith", 0),
        ("beagle", "leith", 0),
        ("beagle", "oban", 0),
    ]

    again = pipeline.run(given)
    assert (again.resumed, again.merge) == (True, receipt.merge), "it reads what it has left itself"


def test_errors_in_sql_name_the_step(graph: Graph, session: Session, tmp_path: Path) -> None:
    pipeline = Pipeline(graph, session)
    with pytest.raises(InputError, match=r"the pipeline: steps.bad: .*cannot be resolved") as found:
        pipeline.run(
            declared(tmp_path, steps={"bad": "SELECT nam FROM ships"}, load={"nodes": {"Ship": "bad"}}, checks={})
        )
    assert found.value.hint == "correct the SQL"
    with pytest.raises(InputError, match=r"the pipeline: steps.bad: Syntax error"):
        pipeline.run(declared(tmp_path, steps={"bad": "SELEC 1"}, load={"nodes": {"Ship": "bad"}}, checks={}))
    with pytest.raises(InputError, match=r"the pipeline: sources.logs: SQL needs the columns of NDJSON"):
        pipeline.run(
            declared(
                tmp_path,
                sources={"logs": str(tmp_path / "logs.ndjson")},
                steps={"a": "SELECT * FROM logs"},
                load={"nodes": {"Ship": "a"}},
                checks={},
            )
        )
    steps = {"a": "SELECT ship AS name, CAST(days AS INT) AS tons FROM stays"}
    (tmp_path / "stays.csv").write_text("ship,port,days\nargo,oban,three\n")
    with pytest.raises(SparkError, match=r"three"):
        pipeline.run(declared(tmp_path, steps=steps, load={"nodes": {"Ship": "a"}}, checks={}))
    with pytest.raises(InputError, match=r"the pipeline has SQL, which needs Spark"):
        pipeline.run(declared(tmp_path), engine="local")
    assert [branch.name for branch in graph.branches] == ["main"]


def test_a_failed_sql_check_can_be_corrected_and_resumed(graph: Graph, session: Session, tmp_path: Path) -> None:
    pipeline = Pipeline(graph, session)
    given = declared(tmp_path, branch="nightly", checks={"no giants": "SELECT name FROM node_Ship WHERE tons > 1000"})
    with pytest.raises(PipelineCheckError, match=r"no giants: found 1 row, expected none: name='argo'"):
        pipeline.run(given)
    graph.mutate('query lighter() { update Ship set { tons: 18 } where name = "argo" }', branch="nightly")
    receipt = pipeline.run(given)
    assert receipt.resumed
    assert receipt.stage is Stage.MERGED
    assert graph.entity("Ship", "argo") == {"id": "argo", "name": "argo", "tons": 18, "flag": "gr"}


def test_a_declaration_without_sql_can_run_on_spark(graph: Graph, session: Session, tmp_path: Path) -> None:
    given = declared(tmp_path, steps={}, load={"nodes": {"Ship": "ships"}}, checks={})
    receipt = Pipeline(graph, session).run(given, engine="spark")
    assert receipt.engine is Engine.SPARK
    assert receipt.why == "as requested"
    assert graph.entity("Ship", "argo") == {"id": "argo", "name": "argo", "tons": LARGE, "flag": None}
