"""`omnigraph backup`, `restore` and `relocate`."""

from __future__ import annotations

import shutil

import orjson
from tests.cli.shell import Shell


def test_a_backup_can_be_restored(shell: Shell, graph: str) -> None:
    shell.run("branch", "create", "x", "--uri", graph)
    kept, back = str(shell.root / "kept"), str(shell.root / "back")
    said = shell.run("backup", graph, kept)
    assert f"backup {graph} → {kept} — " in said.stdout
    assert "main at commit" in said.stdout
    assert f"omnigraph backup → {graph}" in said.stderr
    again = orjson.loads(shell.run("backup", graph, kept, "--read-only", "--keep", "1", "--json").stdout)
    assert (again["files_copied"], sorted(again["branches"])) == (0, ["main", "x"])
    assert "copied" in shell.run("restore", kept, back).stdout
    assert shell.run("branch", "list", back).stdout == shell.run("branch", "list", graph).stdout
    assert "is not empty" in shell.fails("restore", kept, back)
    assert "is not empty" in shell.fails("backup", graph, back)


def test_a_moved_graph_can_be_relocated(shell: Shell, graph: str) -> None:
    shell.run("branch", "create", "x", "--uri", graph)
    moved = str(shell.root / "moved")
    shutil.move(graph, moved)
    assert "1 of 1 version files named another location" in shell.run("relocate", moved).stdout
    assert orjson.loads(shell.run("relocate", moved, "--json").stdout)["rewritten"] == 0
    assert "there is no graph" in shell.fails("relocate", graph)
