"""A declared pipeline loads once, checks its branch, and resumes where it stopped; without SQL it needs no Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.s3_server import S3Root

import omnigraph
from omnigraph.engine.engines import Engine
from omnigraph.errors import BadRowsError, ConstraintError, InputError, PipelineCheckError
from omnigraph.graph import Graph
from omnigraph.graph.collections import Branches
from omnigraph.pipeline.declared import Stage
from omnigraph.storage.objects import open_store

SCHEMA = """
node Ship { name: String @key  tons: I64? }
node Port { name: String @key }
edge Docked: Ship -> Port
"""
SHIPS = "name,tons\nargo,18\nbeagle,242\n"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    (tmp_path / "ships.csv").write_text(SHIPS)
    (tmp_path / "ports.csv").write_text("name\noban\n")
    (tmp_path / "docked.csv").write_text("from,to\nargo,oban\n")
    return omnigraph.init(tmp_path / "graph", SCHEMA)


def declared(tmp_path: Path, **more: Any) -> Path:
    """A pipeline without SQL."""
    members = {
        "pipeline": "fleet",
        "sources": {"ships": "ships.csv", "ports": "ports.csv", "docked": "docked.csv"},
        "load": {"nodes": {"Ship": "ships", "Port": "ports"}, "edges": {"Docked": "docked"}},
        "mode": "append",
        "branch": "nightly",
        "then": "review",
    } | more
    file = tmp_path / "fleet.yaml"
    file.write_text(json.dumps({name: value for name, value in members.items() if value is not None}))
    return file


def names(graph: Graph, branch: str) -> list[str]:
    found = graph.query("query all() { match { $s: Ship } return { $s.name } }", branch=branch)
    return [row["s.name"] for row in found.to_pylist()]


def test_all_types_are_one_commit_on_a_branch(graph: Graph, tmp_path: Path) -> None:
    before = graph.snapshot().commit
    receipt = graph.pipeline.run(declared(tmp_path, message="the fleet"))
    assert receipt.stage is Stage.REVIEW
    assert receipt.engine is Engine.LOCAL
    assert receipt.total == 4
    assert receipt.load is not None
    assert receipt.load.branch_created
    head = graph.branch("nightly").head
    assert head == receipt.commit
    assert head.message == "the fleet"
    assert [commit.id for commit in graph.branch("nightly").commits][1] == before.id, "one commit"
    assert graph.snapshot().commit == before, "main is as it was"
    labels = dict(head.labels)
    assert labels["pipeline"] == "fleet"
    assert labels["pipeline.run"] == receipt.run_id
    assert set(json.loads(labels["pipeline.sources"])) == {"ships", "ports", "docked"}


def test_a_repeated_run_loads_nothing(graph: Graph, tmp_path: Path) -> None:
    file = declared(tmp_path)
    first = graph.pipeline.run(file)
    again = graph.pipeline.run(file)
    assert again.run_id == first.run_id
    assert again.resumed
    assert not first.resumed
    assert again.load is None
    assert again.commit == first.commit
    assert graph.branch("nightly").head == first.commit
    assert again.to_json() | {"run": first.run_id, "resumed": True} == again.to_json()


def test_other_inputs_or_variables_start_a_new_run(graph: Graph, tmp_path: Path) -> None:
    file = declared(tmp_path, mode="merge", variables={"note": "a"})
    runs = {graph.pipeline.run(file).run_id, graph.pipeline.run(file, variables={"note": "b"}).run_id}
    (tmp_path / "ships.csv").write_text(SHIPS + "calypso,360\n")
    runs.add(graph.pipeline.run(file).run_id)
    file = declared(tmp_path, mode="merge", variables={"note": "a"}, message="another declaration")
    runs.add(graph.pipeline.run(file).run_id)
    assert len(runs) == 4
    assert names(graph, "nightly") == ["argo", "beagle", "calypso"]


def test_a_run_id_is_refused_for_other_inputs(graph: Graph, tmp_path: Path) -> None:
    file = declared(tmp_path, mode="merge")
    first = graph.pipeline.run(file, run_id="tuesday")
    assert first.run_id == "tuesday"
    assert graph.pipeline.run(file, run_id="tuesday").resumed
    (tmp_path / "ships.csv").write_text(SHIPS + "calypso,360\n")
    with pytest.raises(InputError, match="has the run id 'tuesday' with other inputs") as found:
        graph.pipeline.run(file, run_id="tuesday")
    assert found.value.hint == "use another run id, or omit it"
    assert not graph.pipeline.run(file, run_id="wednesday").resumed


def test_a_failed_check_shows_its_first_rows(graph: Graph, tmp_path: Path) -> None:
    query = "query all() { match { $s: Ship } return { $s.name, $s.tons } order { $s.name desc } }"
    file = declared(tmp_path, checks={"none": {"query": query}})
    (tmp_path / "ships.csv").write_text(SHIPS + "".join(f"s{i},{i or ''}\n" for i in range(3)))
    with pytest.raises(PipelineCheckError) as found:
        graph.pipeline.run(file)
    (failure,) = found.value.failures
    assert failure.endswith(
        "rows, expected none: s.name='s2', s.tons=2; s.name='s1', s.tons=1; s.name='s0', s.tons=null; …"
    )


def test_a_failed_check_keeps_the_branch(graph: Graph, tmp_path: Path) -> None:
    light = "query light() { match { $s: Ship  $s.tons < 20 } return { $s.name } }"
    known = "query known() { match { $s: Ship } return { $s.name } }"
    checks = {"no light ships": {"query": light}, "two": {"query": known, "expect": {"rows": 3}}}
    file = declared(tmp_path, checks=checks)
    with pytest.raises(PipelineCheckError, match=r"found 1 row, expected none: s\.name='argo' .and 1 more") as found:
        graph.pipeline.run(file)
    assert found.value.branch == "nightly"
    assert found.value.failures[1] == "two: found 2 rows, expected 3 rows: s.name='argo'; s.name='beagle'"
    assert names(graph, "nightly") == ["argo", "beagle"]
    head = graph.branch("nightly").head
    # The branch is corrected by hand; the run resumes from there.
    graph.mutate('query heavier() { update Ship set { tons: 20 } where name = "argo" }', branch="nightly")
    graph.mutate('query more() { insert Ship { name: "calypso" } }', branch="nightly")
    receipt = graph.pipeline.run(file)
    assert receipt.resumed
    assert receipt.commit == head
    assert [outcome.passed for outcome in receipt.checks] == [True, True]


def test_a_failed_load_removes_its_branch(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "docked.csv").write_text("from,to\nargo,atlantis\n")
    with pytest.raises(ConstraintError, match="'atlantis' not found in Port"):
        graph.pipeline.run(declared(tmp_path))
    assert [branch.name for branch in graph.branches] == ["main"]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_check_writes_nothing(read_only: bool, graph: Graph, tmp_path: Path) -> None:
    query = "query known() { match { $s: Ship } return { $s.name } }"
    file = declared(tmp_path, checks={"two": {"query": query, "expect": "some"}})
    handle = omnigraph.open(graph.uri, read_only=read_only)
    receipt = handle.pipeline.run(file, check=True)
    assert receipt.stage is Stage.CHECKED
    assert receipt.total == 4
    assert [(outcome.name, outcome.passed) for outcome in receipt.checks] == [("two", None)]
    assert [branch.name for branch in graph.branches] == ["main"]
    assert len(list(graph.commits)) == 1
    (tmp_path / "ships.csv").write_text("name,tons\nargo,heavy\n")
    with pytest.raises(BadRowsError, match=r"ships.csv, line 2: Ship.tons"):
        handle.pipeline.run(file, check=True)
    file = declared(tmp_path, checks={"two": {"query": "query q() { match { $s: Shp } return { $s.name } }"}})
    (tmp_path / "ships.csv").write_text(SHIPS)
    with pytest.raises(InputError, match=r"fleet.yaml: checks.two: .*Shp"):
        handle.pipeline.run(file, check=True)


def test_rows_can_be_loaded_directly_into_the_base(graph: Graph, tmp_path: Path) -> None:
    file = declared(tmp_path, branch="main", then=None)
    receipt = graph.pipeline.run(file)
    assert receipt.stage is Stage.LOADED
    assert names(graph, "main") == ["argo", "beagle"]
    assert graph.pipeline.run(file).resumed


def test_records_with_their_types_can_be_loaded(graph: Graph, tmp_path: Path) -> None:
    lines = [{"type": "Ship", "data": {"name": "argo"}}, {"type": "Port", "data": {"name": "oban"}}]
    (tmp_path / "all.ndjson").write_text("\n".join(map(json.dumps, lines)))
    file = declared(tmp_path, sources={"all": "all.ndjson"}, load={"records": "all"})
    assert graph.pipeline.run(file).total == 2


def test_a_type_of_another_graph_can_be_a_source(graph: Graph, tmp_path: Path) -> None:
    other = omnigraph.init(tmp_path / "other", "node Ship { name: String @key  tons: I64? }")
    other.load({"Ship": [{"name": "calypso", "tons": 360}]}, mode="append")
    source = {"graph": "other", "type": "Ship"}
    file = declared(tmp_path, sources={"ships": source}, load={"nodes": {"Ship": "ships"}})
    first = graph.pipeline.run(file)
    assert first.total == 1
    assert names(graph, "nightly") == ["calypso"]
    other.mutate('query more() { insert Ship { name: "dory" } }')
    file = declared(tmp_path, sources={"ships": source}, load={"nodes": {"Ship": "ships"}}, mode="merge")
    assert graph.pipeline.run(file).run_id != first.run_id, "another state is another input"
    assert names(graph, "nightly") == ["calypso", "dory"]


def test_a_run_that_reads_its_own_graph_is_resumed(graph: Graph, tmp_path: Path) -> None:
    graph.load({"Ship": [{"name": "argo"}], "Port": [{"name": "oban"}]}, mode="append")
    (tmp_path / "stays.csv").write_text("from,to\nargo,oban\n")
    file = declared(
        tmp_path,
        sources={"stays": "stays.csv", "ships": {"type": "Ship"}},
        load={"nodes": {"Ship": "ships"}, "edges": {"Docked": "stays"}},
        mode="merge",
        branch=None,
        then="merge",
    )
    first = graph.pipeline.run(file)
    again = graph.pipeline.run(file)
    assert (again.run_id, again.resumed, again.merge) == (first.run_id, True, first.merge)
    assert graph.snapshot().pin("edge:Docked").row_count == 1, "an edge without a key would be there twice"
    graph.mutate('query more() { insert Ship { name: "calypso" } }')
    assert graph.pipeline.run(file).run_id != first.run_id, "somebody else has changed what it reads"
    assert graph.snapshot().pin("edge:Docked").row_count == 2


def test_a_missing_source_is_named(graph: Graph, tmp_path: Path) -> None:
    file = declared(tmp_path, sources={"ships": "no.csv"}, load={"nodes": {"Ship": "ships"}})
    with pytest.raises(InputError, match=r"fleet.yaml: sources.ships: there is no .*no.csv"):
        graph.pipeline.run(file)


def test_a_pipeline_for_another_graph_is_refused(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"fleet.yaml: graph: the pipeline is for .*elsewhere"):
        graph.pipeline.run(declared(tmp_path, graph="elsewhere"))
    assert graph.pipeline.run(declared(tmp_path, graph="graph")).total == 4


def test_paths_of_a_python_declaration_are_relative_to_the_current_directory(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = json.loads(declared(tmp_path).read_text())
    assert graph.pipeline.run(given).total == 4


def test_a_rewritten_file_is_another_input(graph: Graph, tmp_path: Path) -> None:
    file = declared(tmp_path, mode="merge")
    first = graph.pipeline.run(file)
    os.utime(tmp_path / "ships.csv", ns=(0, 1))
    assert graph.pipeline.run(file).run_id != first.run_id


def test_a_run_with_passing_checks_is_merged(graph: Graph, tmp_path: Path) -> None:
    query = "query known() { match { $s: Ship } return { $s.name } }"
    checks = {"some": {"query": query, "expect": "some"}}
    file = declared(tmp_path, branch=None, then="merge", checks=checks, message="the fleet")
    receipt = graph.pipeline.run(file)
    assert receipt.stage is Stage.MERGED
    assert receipt.merge == graph.branch("main").head
    assert graph.branch("main").head.message == "the fleet"
    assert names(graph, "main") == ["argo", "beagle"]
    assert [branch.name for branch in graph.branches] == ["main"], "the branch of the run is gone"
    assert dict(graph.branch("main").head.labels)["pipeline.run"] == receipt.run_id
    again = graph.pipeline.run(file)
    assert (again.stage, again.merge, again.resumed) == (Stage.MERGED, receipt.merge, True)
    assert graph.branch("main").head == receipt.merge


def test_a_run_that_crashed_before_the_merge_is_resumed(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = declared(tmp_path, branch=None, then="merge")

    def dies(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("omnigraph.pipeline.declared.runs.merge", dies)
        with pytest.raises(KeyboardInterrupt):
            graph.pipeline.run(file)
    (branch,) = [branch.name for branch in graph.branches if branch.name != "main"]
    loaded = graph.branch(branch).head
    graph.load({"Port": [{"name": "leith"}]}, mode="append")  # a concurrent commit on the base
    receipt = graph.pipeline.run(file)
    assert receipt.resumed
    assert receipt.commit == loaded
    assert receipt.stage is Stage.MERGED
    assert names(graph, "main") == ["argo", "beagle"]
    ports = graph.query("query all() { match { $p: Port } return { $p.name } }").to_pylist()
    assert [row["p.name"] for row in ports] == ["leith", "oban"]


def test_a_run_that_crashed_after_the_merge_is_complete(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = declared(tmp_path, branch=None, then="merge")

    def dies(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Branches, "delete", dies)
        with pytest.raises(KeyboardInterrupt):
            graph.pipeline.run(file)
    head = graph.branch("main").head
    assert names(graph, "main") == ["argo", "beagle"]
    receipt = graph.pipeline.run(file)
    assert receipt.merge == head
    assert receipt.resumed
    assert [branch.name for branch in graph.branches] == ["main"]


@pytest.mark.parametrize("run_id", ["nightly-2026-03-14T02:00:00Z", "a..b", "ö" * 100])
def test_each_run_has_its_own_branch(run_id: str, graph: Graph, tmp_path: Path) -> None:
    file = declared(tmp_path, branch=None, mode="merge")
    branches = {graph.pipeline.run(file, run_id=run_id).branch, graph.pipeline.run(file, run_id=f"{run_id}2").branch}
    assert len(branches) == 2
    assert {branch.name for branch in graph.branches} == {"main", *branches}


def test_tables_can_be_loaded_with_a_mapping(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "boats.csv").write_text("boat,weight,port\nargo,18,oban\n")
    mapping = {
        "sources": [
            {"source": "boats", "node": "Ship", "properties": {"name": "boat", "tons": "weight"}, "ignore": "port"},
        ]
    }
    file = declared(
        tmp_path,
        sources={"boats": "boats.csv", "ports": "ports.csv"},
        mapping=mapping,
        load={"mapped": ["boats"], "nodes": {"Port": "ports"}},
    )
    receipt = graph.pipeline.run(file)
    assert receipt.total == 2
    argo = graph.branch("nightly").entity("Ship", "argo")
    assert argo == {"id": "argo", "name": "argo", "tons": 18}


@pytest.mark.slow
@pytest.mark.s3
def test_files_and_the_graph_can_be_in_s3(s3_root: S3Root) -> None:
    store = open_store(s3_root.uri, s3_root.options)
    store.put("in/ships.csv", SHIPS.encode())
    graph = omnigraph.init(f"{s3_root.uri}/graph", SCHEMA, storage_options=s3_root.options)
    given = {
        "pipeline": "fleet",
        "graph": f"{s3_root.uri}/graph",
        "sources": {"ships": f"{s3_root.uri}/in/*.csv"},
        "load": {"nodes": {"Ship": "ships"}},
        "mode": "merge",
        "then": "merge",
    }
    first = graph.pipeline.run(given)
    assert first.total == 2
    assert names(graph, "main") == ["argo", "beagle"]
    assert graph.pipeline.run(given).resumed
    store.put("in/ships.csv", (SHIPS + "calypso,360\n").encode())
    assert graph.pipeline.run(given).total == 3
