"""A merge on Spark gives the graph, the receipt and the conflicts that a merge in process gives, however it is cut."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.merge.model import SCHEMA, World, empty
from tests.pipeline.in_process import InProcess

import omnigraph
from omnigraph.errors import MergeConflictsError
from omnigraph.graph import Graph
from omnigraph.graph.merging import MergeRequest
from omnigraph.pipeline.merge import MergeOptions, merge, on_spark
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.pipeline.session import Session

SEEDS = range(8)


def _world(place: Path, seed: int) -> World:
    random = Random(seed)
    world = World(omnigraph.init(place, SCHEMA))
    world.record("main", empty())
    for _ in range(8):
        world.write("main", random)
    world.branch("side", "main")
    for _ in range(5):
        world.write("side", random)
        if seed % 4:
            world.write("main", random)
    return world


def _told(graph: Graph, how: Any) -> object:
    """What a merge says, and what it leaves."""
    try:
        receipt = replace(how(graph), commit=None, engine="")
    except MergeConflictsError as error:
        receipt = (error.conflicts, error.total)
    assert not list(Path(graph.uri).glob("__staging/*")), "nothing is left lying about"
    return receipt, b"".join(graph.export())


def _copy(world: World, place: Path) -> Graph:
    """The same graph once more. A graph with branches cannot be moved, so it takes the place of the first."""
    shutil.rmtree(world.graph.uri)
    shutil.copytree(place, world.graph.uri)
    return omnigraph.open(world.graph.uri)


@pytest.mark.parametrize("strategy", [None, "theirs"])
@pytest.mark.parametrize("seed", SEEDS)
def test_same_graph(tmp_path: Path, seed: int, strategy: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    world = _world(tmp_path / "graph", seed)
    kept = tmp_path / "kept"
    shutil.copytree(world.graph.uri, kept)
    wanted = _told(world.graph, lambda graph: graph.merge("side", strategy=strategy))
    request = MergeRequest("side", "main", strategy)
    for tasks in (1, 2, 7):
        monkeypatch.setattr(on_spark, "_SIFTED", 0 if tasks == 2 else 1_000_000)
        options = MergeOptions(InProcess(), tasks=tasks)
        found = _told(_copy(world, kept), lambda graph, options=options: merge(graph, request, options))
        assert found == wanted, f"{tasks} tasks"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_same_graph_on_spark(tmp_path: Path, session: Session, seed: int) -> None:
    world = _world(tmp_path / "graph", seed)
    kept = tmp_path / "kept"
    shutil.copytree(world.graph.uri, kept)
    wanted = _told(world.graph, lambda graph: graph.merge("side", strategy="theirs"))
    for tasks in (1, 2, 7):
        options = MergeOptions(session, tasks=tasks)
        request = MergeRequest("side", "main", "theirs")
        found = _told(_copy(world, kept), lambda graph, o=options, r=request: merge(graph, r, o))
        assert found == wanted, f"{tasks} tasks"
    graph = _copy(world, kept)
    receipt = Pipeline(graph, session).merge("side", strategy="theirs", delete_branch=True, message="by tasks")
    assert (receipt.engine, receipt.branch_deleted) == ("spark", True)
    assert receipt.commit is not None
    assert receipt.commit.message == "by tasks"
    assert receipt.commit.merged_parent == receipt.source_commit
