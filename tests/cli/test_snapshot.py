"""`omnigraph snapshot`: the version of every table on a branch."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tests.cli.shell import Shell


def test_the_version_of_every_table_is_printed(shell: Shell, graph: str) -> None:
    shell.add_person(graph, "Ann")
    lines = shell.run("snapshot", graph).stdout.splitlines()
    assert lines.pop(2).startswith("graph_commit_id: ")
    assert lines[:3] == ["graph_branch: main", "graph_manifest_version: 2", "internal_schema_version: 3"]
    assert re.fullmatch(r"edge:Knows entities=0 version=1 path=edges/[0-9a-f]{16}-[0-9a-f]{16}-[0-9a-z]{26}", lines[3])
    assert re.fullmatch(r"node:Person entities=1 version=2 path=nodes/[0-9a-f]{16}-[0-9a-f]{16}-[0-9a-z]{26}", lines[4])
    assert len(lines) == 5


def test_snapshot_prints_json(shell: Shell, graph: str) -> None:
    shell.run("branch", "create", "draft", "--uri", graph)
    shell.add_person(graph, "Ann", branch="draft")
    view = shell.json("snapshot", "--store", graph, "--branch", "draft")
    names = ["graph_branch", "graph_manifest_version", "graph_commit_id", "internal_schema_version", "datasets"]
    assert list(view) == names
    assert (view["graph_branch"], view["graph_manifest_version"], view["internal_schema_version"]) == ("draft", 2, 3)
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


def test_snapshot_and_verify_read_a_commit_a_tag_or_a_time(shell: Shell, graph: str) -> None:
    first = shell.add_person(graph, "Ann")
    shell.run("tag", "create", "v1", "--uri", graph)
    moment = datetime.now(UTC).isoformat()
    second = shell.add_person(graph, "Ben")
    for option in (("--snapshot", first), ("--snapshot", "v1"), ("--at", moment), ("--branch", "main", "--at", moment)):
        view = shell.json("snapshot", graph, *option)
        assert (view["graph_commit_id"], view["datasets"][1]["entity_count"]) == (first, 1)
        assert shell.json("verify", graph, *option)["entities"]["node:Person"] == 1
        assert len(shell.run("export", "--uri", graph, *option).stdout.splitlines()) == 1
        text = "query q() { match { $p: Person } return { $p.name } }"
        assert shell.json("query", "--uri", graph, "-e", text, *option)["rows"] == [{"p.name": "Ann"}]
    assert shell.json("snapshot", graph)["graph_commit_id"] == second
    assert "give --branch or --snapshot, not both" in shell.fails(
        "snapshot", graph, "--branch", "main", "--snapshot", first, code=2
    )
    assert "give --snapshot or --at" in shell.fails("verify", graph, "--at", moment, "--snapshot", first, code=2)
    assert "--all checks every branch" in shell.fails("verify", graph, "--all", "--at", moment, code=2)
    assert "is not a time" in shell.fails("snapshot", graph, "--at", "2026-3-14", code=2)
    assert "there is no commit or tag 'yesterday'" in shell.fails("snapshot", graph, "--at", "yesterday")
    assert "has no commit before that time" in shell.fails("snapshot", graph, "--at", "2001-01-01")


def test_a_missing_branch_or_graph_is_reported(shell: Shell, graph: str) -> None:
    said = shell.fails("snapshot", graph, "--branch", "mian")
    assert "there is no branch 'mian'\n  help: did you mean 'main'?" in said
    assert "there is no graph at" in shell.fails("snapshot", str(shell.root / "nowhere"))
