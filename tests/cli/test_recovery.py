"""`omnigraph recovery list`: the outcome of interrupted writes."""

from __future__ import annotations

import pytest
from tests.cli.shell import Shell

import omnigraph
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed


def crash(shell: Shell, graph: str, point: Failpoint) -> None:
    with armed(point, "crash"), pytest.raises(SimulatedCrashError):
        shell.add_person(graph, "Ann", actor="kim")


def test_a_graph_without_interrupted_writes_lists_none(shell: Shell, graph: str) -> None:
    assert shell.run("recovery", "list", graph).stdout == "(no interrupted writes)\n"
    assert shell.json("recovery", "list", graph) == {"recoveries": [], "pending": []}


def test_listing_does_not_recover_pending_writes(shell: Shell, graph: str) -> None:
    crash(shell, graph, Failpoint.TABLES_COMMITTED)
    for _ in range(2):
        (waiting,) = shell.json("recovery", "list", graph)["pending"]
    assert (waiting["graph_branch"], waiting["actor_id"], waiting["sidecar_writer_kind"]) == ("main", "kim", "Load")
    said = shell.run("recovery", "list", "--uri", graph).stdout
    assert said == f"{waiting['operation_id']} pending graph_branch=main writer=Load\n"


def test_completed_and_undone_writes_are_listed(shell: Shell, graph: str) -> None:
    crash(shell, graph, Failpoint.TABLES_COMMITTED)
    omnigraph.open(graph).close()
    crash(shell, graph, Failpoint.SIDECAR_WRITTEN)
    omnigraph.open(graph).close()
    report = shell.json("recovery", "list", graph)
    assert report["pending"] == []
    finished, undone = report["recoveries"]
    assert (finished["recovery_kind"], finished["recovery_for_actor"]) == ("RolledForward", "kim")
    assert shell.json("commit", "show", finished["graph_commit_id"], "--uri", graph)["actor_id"] == "kim"
    assert finished["per_table_outcomes"] == [
        {"key": "node:Person", "state": "RolledPastExpected", "from_version": 1, "to_version": 2}
    ]
    assert undone["recovery_kind"] == "RolledBack"
    assert shell.json("commit", "show", undone["graph_commit_id"], "--uri", graph)["actor_id"] == "omnigraph:recovery"
    lines = shell.run("recovery", "list", graph).stdout.splitlines()
    assert lines == [
        f"{finished['operation_id']} RolledForward graph_branch=main writer=Load "
        f"commit={finished['graph_commit_id']} actor=kim",
        "  node:Person RolledPastExpected version 1 → version 2",
        f"{undone['operation_id']} RolledBack graph_branch=main writer=Load "
        f"commit={undone['graph_commit_id']} actor=kim",
        "  node:Person NoMovement version 2 → version 3",
    ]
