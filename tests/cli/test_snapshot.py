"""`omnigraph snapshot`: the version of every table on a branch."""

from __future__ import annotations

import re

from tests.cli.shell import Shell


def test_the_version_of_every_table_is_printed(shell: Shell, graph: str) -> None:
    shell.add_person(graph, "Ann")
    lines = shell.run("snapshot", graph).stdout.splitlines()
    assert lines[:3] == ["graph_branch: main", "graph_manifest_version: 2", "internal_schema_version: 2"]
    assert re.fullmatch(r"edge:Knows entities=0 version=1 path=edges/[0-9a-f]{16}-[0-9a-f]{16}-[0-9a-z]{26}", lines[3])
    assert re.fullmatch(r"node:Person entities=1 version=2 path=nodes/[0-9a-f]{16}-[0-9a-f]{16}-[0-9a-z]{26}", lines[4])
    assert len(lines) == 5


def test_snapshot_prints_json(shell: Shell, graph: str) -> None:
    shell.run("branch", "create", "draft", "--uri", graph)
    shell.add_person(graph, "Ann", branch="draft")
    view = shell.json("snapshot", "--store", graph, "--branch", "draft")
    assert list(view) == ["graph_branch", "graph_manifest_version", "internal_schema_version", "datasets"]
    assert (view["graph_branch"], view["graph_manifest_version"], view["internal_schema_version"]) == ("draft", 2, 2)
    knows, person = view["datasets"]
    assert list(person) == [
        *("entity_kind", "type_name", "dataset_path"),
        *("published_dataset_version", "native_dataset_branch", "entity_count"),
    ]
    assert (knows["entity_kind"], knows["type_name"], knows["native_dataset_branch"]) == ("edge", "Knows", None)
    assert (person["entity_kind"], person["type_name"], person["entity_count"]) == ("node", "Person", 1)
    assert person["native_dataset_branch"] is not None
    assert "native_branch=" in shell.run("snapshot", graph, "--branch", "draft").stdout
    assert shell.json("snapshot", graph)["datasets"][1]["entity_count"] == 0


def test_a_missing_branch_or_graph_is_reported(shell: Shell, graph: str) -> None:
    said = shell.fails("snapshot", graph, "--branch", "mian")
    assert "there is no branch 'mian'\n  help: did you mean 'main'?" in said
    assert "there is no graph at" in shell.fails("snapshot", str(shell.root / "nowhere"))
