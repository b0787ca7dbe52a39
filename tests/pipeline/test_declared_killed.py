"""A crashed run resumes where it stopped: at every failpoint, the rows are loaded once and merged into the base."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.graph import Graph
from omnigraph.pipeline.declared import Stage
from omnigraph.settings import FAILPOINT

SCHEMA = "node Ship { name: String @key }  edge Follows: Ship -> Ship"
PIPELINE = """
pipeline: fleet
graph: graph
sources: {ships: ships.csv, follows: follows.csv}
load: {nodes: {Ship: ships}, edges: {Follows: follows}}
mode: append
then: merge
"""
MOMENTS = [
    (point, reached)
    for point in (
        Failpoint.CAPTURED,
        Failpoint.STAGED,
        Failpoint.SIDECAR_WRITTEN,
        Failpoint.TABLE_COMMITTED,
        Failpoint.TABLES_COMMITTED,
        Failpoint.BEFORE_PUBLISH,
        Failpoint.PUBLISHED,
        Failpoint.SIDECAR_REMOVED,
    )
    for reached in (1, 2)
] + [(Failpoint.BRANCH_REF_CREATED, 1), (Failpoint.BRANCH_REF_DELETED, 1)]
"""The first time is in the load, the second in the merge, or in the load if it has several tables."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "ships.csv").write_text("name\nargo\nbeagle\n")
    (tmp_path / "follows.csv").write_text("from,to\nargo,beagle\n")
    made = tmp_path / "fleet.yaml"
    made.write_text(PIPELINE)
    omnigraph.init(tmp_path / "graph", SCHEMA).close()
    return made


def rows(graph: Graph) -> dict[str, int]:
    return {key: pin.row_count for key, pin in graph.snapshot(branch="main").tables.items()}


def finished(file: Path, *, died: bool) -> None:
    """Check that a resumed run gives the same result as an uninterrupted one."""
    with omnigraph.open(file.parent / "graph") as graph:
        receipt = graph.pipeline.run(file)
        assert receipt.stage is Stage.MERGED
        assert rows(graph) == {"edge:Follows": 1, "node:Ship": 2}
        assert [branch.name for branch in graph.branches] == ["main"]
        keys = [commit.idempotency_key for commit in graph.commits if commit.idempotency_key is not None]
        assert keys.count(f"pipeline:fleet:{receipt.run_id}:merge") == 1
        assert died
        assert graph.verify().violations == ()


@pytest.mark.parametrize(("point", "reached"), MOMENTS, ids=lambda value: str(value))
def test_a_crashed_run_can_be_resumed_at_every_failpoint(point: Failpoint, reached: int, file: Path) -> None:
    died = False
    try:
        with armed(point, "crash", reached=reached), omnigraph.open(file.parent / "graph") as graph:
            graph.pipeline.run(file)
    except SimulatedCrashError:
        died = True
    finished(file, died=died)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["tables_committed=kill", "published=kill", "published#2=kill"])
def test_a_killed_run_can_be_resumed(moment: str, file: Path) -> None:
    command = [sys.executable, "-m", "omnigraph.cli.main", "pipeline", "run", str(file), "--quiet"]
    environment = os.environ | {FAILPOINT.name: moment, "OMNIGRAPH_FSYNC": "0"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    finished(file, died=True)
