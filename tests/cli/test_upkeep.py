"""`omnigraph status` and `omnigraph upkeep`."""

from __future__ import annotations

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
