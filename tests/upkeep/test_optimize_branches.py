"""Optimize works on any branch: the rows and the answers stay the same, on that branch and on all others."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from tests.commit.conftest import _no_fsync
from tests.upkeep.test_optimize import SCHEMA, fill, people, seen

import omnigraph
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.errors import BranchNotFoundError
from omnigraph.graph import Graph, open

__all__ = ["_no_fsync"]

NOW = timedelta(0)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return omnigraph.init(tmp_path / "g", SCHEMA)


def on(graph: Graph, branch: str) -> dict[str, object]:
    with open(graph.uri, branch=branch) as handle:
        return seen(handle)


def write(graph: Graph, branch: str, start: int, loads: int = 5) -> None:
    for load in range(loads):
        names = [f"b{start + load * 8 + i}" for i in range(8)]
        graph.load({"Person": people(names, load)}, mode="append", branch=branch)


def fragments(graph: Graph, branch: str) -> int:
    return len(graph.snapshot(branch=branch).table("node:Person").fragments())


@pytest.mark.slow
@pytest.mark.parametrize("indexed", [False, True], ids=["no index", "inherited indexes"])
def test_a_branch_is_compacted_and_indexed_without_a_change_of_answers(graph: Graph, indexed: bool) -> None:
    fill(graph)
    if indexed:
        graph.optimize()
    graph.branches.create("dev")
    write(graph, "dev", 0)
    graph.mutate('query q() { delete Person where name = "b3" }', branch="dev")
    graph.load({"Person": people(["p4", "p5"], 9)}, mode="merge", branch="dev")
    before, main = on(graph, "dev"), on(graph, "main")
    count = fragments(graph, "dev")
    receipt = graph.optimize(branch="dev")
    assert receipt.commit is not None
    assert receipt.commit.branch == "dev"
    assert fragments(graph, "dev") < count
    assert on(graph, "dev") == before
    assert on(graph, "main") == main
    coverage = graph.indexes(branch="dev")
    own = [index for index in coverage if index.type_key == "node:Person"]
    assert own
    assert all(index.uncovered == 0 for index in own)
    knows = next(table for table in receipt.tables if table.type_key == "edge:Knows")
    assert (knows.committed, knows.fragments_removed) == (False, 0), "it belongs to main"
    assert graph.optimize(branch="dev").commit is None
    assert graph.verify(branch="dev").ok


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_optimized_branches_merge_and_are_cleaned_up_like_others(graph: Graph, seed: int) -> None:
    chance = Random(seed)
    fill(graph, loads=3)
    branches = ["main"]
    for step in range(18):
        branch, act = chance.choice(branches), chance.randrange(7)
        if act == 0 and len(branches) < 4:
            branches.append(f"b{step}")
            graph.branches.create(branches[-1], source=branch)
        elif act < 3:
            write(graph, branch, step * 100, loads=2)
        elif act == 3:
            graph.load({"Person": people([f"p{chance.randrange(24)}"], step)}, mode="merge", branch=branch)
        elif act == 4:
            before = {name: on(graph, name) for name in branches}
            graph.optimize(branch=branch)
            assert {name: on(graph, name) for name in branches} == before
        elif act == 5 and branch != "main":
            graph.merge(branch, strategy="theirs")
        else:
            before = {name: on(graph, name) for name in branches}
            assert graph.cleanup(keep=1, orphans_older_than=NOW).errors == ()
            assert {name: on(graph, name) for name in branches} == before
    for name in branches:
        assert graph.verify(branch=name).ok


@pytest.mark.parametrize("point", [Failpoint.STAGED, Failpoint.TABLE_COMMITTED, Failpoint.PUBLISHED])
def test_an_interrupted_optimize_of_a_branch_is_completed_or_undone(graph: Graph, point: Failpoint) -> None:
    fill(graph, loads=2)
    graph.branches.create("dev")
    write(graph, "dev", 0)
    before = b"".join(graph.export(branch="dev"))
    with armed(point, "crash"), pytest.raises(SimulatedCrashError):
        graph.optimize(branch="dev")
    with open(graph.uri) as fresh:
        assert b"".join(fresh.export(branch="dev")) == before
        fresh.optimize(branch="dev")
        assert b"".join(fresh.export(branch="dev")) == before
        assert fresh.recovery.pending() == []
        assert fresh.verify(branch="dev").ok


def test_a_branch_without_own_tables_is_left_alone(graph: Graph) -> None:
    fill(graph)
    graph.branches.create("dev")
    receipt = graph.optimize(branch="dev")
    assert receipt.commit is None
    assert all(not table.committed and table.skipped is None for table in receipt.tables)
    with pytest.raises(BranchNotFoundError):
        graph.optimize(branch="nope")
