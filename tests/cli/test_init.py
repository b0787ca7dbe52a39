"""`omnigraph init`: creates a graph from a schema, or reports the reason why not."""

from __future__ import annotations

from pathlib import Path

from tests.cli.shell import SCHEMA, Shell

import omnigraph


def test_init_creates_a_graph(shell: Shell) -> None:
    result = shell.run("init", str(shell.root / "a" / ".." / "graph"), "--schema", shell.schema)
    assert result.exit_code == 0
    assert result.stdout == f"initialized {shell.root}/graph\n"
    assert result.stderr == ""
    with omnigraph.open(shell.root / "graph") as graph:
        assert graph.schema_source == SCHEMA
        assert sorted(graph.snapshot().tables) == ["edge:Knows", "node:Person"]


def test_a_graph_is_never_overwritten(shell: Shell, graph: str) -> None:
    shell.add_person(graph, "Ann")
    for extra in ([], ["--force"]):
        said = shell.fails("init", graph, "--schema", shell.schema, *extra)
        assert f"there is a graph at {graph}" in said
        assert "choose another location" in said
    with omnigraph.open(graph) as opened:
        assert opened.entity("Person", "Ann") is not None


def test_force_replaces_files_of_a_failed_creation(shell: Shell) -> None:
    shell.write("graph/_schema.pg", "node Old { name: String @key }")
    said = shell.fails("init", str(shell.root / "graph"), "--schema", shell.schema)
    assert "_schema.pg" in said
    assert "--force" in said
    assert shell.run("init", str(shell.root / "graph"), "--schema", shell.schema, "--force").exit_code == 0


def test_a_schema_that_does_not_compile_creates_no_graph(shell: Shell) -> None:
    broken = shell.write("broken.pg", "node A { x: Strin }\n")
    said = shell.fails("init", str(shell.root / "graph"), "--schema", broken)
    assert f"{broken}:1:13" in said
    assert not (shell.root / "graph").exists()


def test_a_schema_that_is_not_utf8_creates_no_graph(shell: Shell) -> None:
    broken = shell.write("latin.pg", b"// caf\xe9\nnode A { x: String @key }\n")
    assert "not UTF-8" in shell.fails("init", str(shell.root / "graph"), "--schema", broken)
    assert not (shell.root / "graph").exists()


def test_wrong_arguments_are_usage_errors(shell: Shell) -> None:
    assert "--schema" in shell.fails("init", str(shell.root / "graph"), code=2)
    assert "does not exist" in shell.fails("init", "x", "--schema", "nowhere.pg", code=2)
    said = shell.fails("--store", "x", "init", "x", "--schema", shell.schema, code=2)
    assert "'init' is a storage command; --store names the storage of an existing graph and does not apply." in said
    assert "does not apply" in shell.fails("init", "x", "--schema", shell.schema, "--as", "kim", code=2)


def test_a_server_url_is_refused(shell: Shell) -> None:
    said = shell.fails("init", "https://graph.example", "--schema", shell.schema)
    assert "https:// is the address of a server" in said
    assert "give a path or s3://bucket/prefix" in said


def test_an_unwritable_location_is_reported(shell: Shell) -> None:
    blocked = shell.write("file", "not a directory")
    said = shell.fails("init", str(Path(blocked) / "graph"), "--schema", shell.schema)
    assert blocked in said
