"""`omnigraph status` and `omnigraph upkeep`."""

from __future__ import annotations

import pytest
from tests.cli.shell import Shell


def test_status_shows_tables_and_what_to_run(shell: Shell, graph: str) -> None:
    assert shell.run("status", graph).stdout.splitlines()[-1] == "nothing to do"
    for name in ("Ann", "Ben", "Cas"):
        shell.add_person(graph, name)
    shell.run("tag", "create", "v1", "--uri", graph)
    lines = shell.run("status", graph).stdout.splitlines()
    assert any(line.startswith("  node:Person: 3 rows, 3 files (") for line in lines)
    assert any(line.startswith("branch main: 4 commits, holds ") for line in lines)
    assert "tag v1: holds 0 B" in lines
    found = shell.json("status", graph)
    assert found["branches"][0]["tables"][1]["rows"] == 3
    assert found["advice"] == []


def test_upkeep_runs_what_is_due(shell: Shell, graph: str) -> None:
    for name in ("Ann", "Ben", "Cas"):
        shell.add_person(graph, name)
    options = ("--fragments", "2", "--keep", "1", "--older-than", "0s", "--versions", "1")
    said = shell.run("upkeep", graph, *options).stdout
    assert "optimized main: 3 files → 1" in said
    assert "cleaned up: " in said
    assert shell.run("upkeep", graph, *options).stdout == "nothing to do\n"
    assert shell.json("upkeep", graph, *options) == {
        "optimized": {},
        "cleanup": None,
        "hard_drops": [],
        "error": None,
    }
    assert shell.fails("upkeep", graph, "--keep", "-1", code=2)


def test_the_time_between_rounds_needs_watch(shell: Shell, graph: str) -> None:
    assert "give --watch, too" in shell.fails("upkeep", graph, "--every", "5s", code=2)


def test_the_age_is_read_from_the_environment(shell: Shell, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Ann", "Ben", "Cas"):
        shell.add_person(graph, name)
    monkeypatch.setenv("OMNIGRAPH_UPKEEP_KEEP", "1")
    monkeypatch.setenv("OMNIGRAPH_UPKEEP_VERSIONS", "1")
    for age, is_due in (("7d", False), ("604800", False), ("0s", True), ("0", True)):
        monkeypatch.setenv("OMNIGRAPH_UPKEEP_OLDER_THAN", age)
        assert (shell.json("status", graph)["advice"] != []) == is_due
    monkeypatch.setenv("OMNIGRAPH_UPKEEP_OLDER_THAN", "7 days")
    assert "OMNIGRAPH_UPKEEP_OLDER_THAN: '7 days' is not an age" in shell.fails("upkeep", graph)
