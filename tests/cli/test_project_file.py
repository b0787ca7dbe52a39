"""The graph of a command: the first argument, the environment, or the project file, which also fills in options."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.shell import Shell

QUERIES = """
query people() { match { $p: Person } return { $p.name as name } order { name } }
query add($name: String) { insert Person { name: $name } }
"""


@pytest.fixture
def project(shell: Shell, graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A project with a graph, in a directory below which the commands run."""
    shell.add_person(graph, "ann")
    shell.run("branch", "create", "dev", "--store", graph)
    shell.write("queries/people.gq", QUERIES)
    shell.write("queries/other.gq", "query count() { match { $p: Person } return { count($p) as n } }")
    shell.write("omnigraph.toml", 'graph = "graph"\nqueries = "queries"\nbranch = "dev"\noutput = "csv"\n')
    (tmp_path / "below" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "below" / "deep")
    return shell


def test_the_graph_can_be_the_first_argument(shell: Shell, graph: str) -> None:
    head = shell.add_person(graph, "ann")
    people = shell.write("people.gq", QUERIES)
    text = "match { $p: Person } return { $p.name as name }"
    for args in (
        ["query", graph, "people", "--query", people],
        ["query", graph, "-e", text],
        ["query", "-e", text, graph],
        ["query", "--format", "table", graph, "people", "--query", people],
        ["mutate", graph, "-e", 'query q() { insert Person { name: "bob" } }', "--message", "/not/a/graph"],
        ["branch", "create", graph, "feature/x"],
        ["branch", "merge", graph, "feature/x"],
        ["branch", "merge", "feature/x", "--uri", graph],
        ["branch", "delete", "--yes", graph, "feature/x"],
        ["diff", graph, head, "main"],
        ["commit", "show", graph, head],
        ["tag", "create", graph, "v1"],
        ["log", graph, "Person", "ann"],
        ["explain", graph, "people", "--query", people],
        ["revert", graph, head],
    ):
        found = shell.run(*args)
        assert found.exit_code == 0, (args, found.stderr)
    assert "name the graph once" in shell.fails("query", graph, "people", "--store", graph, "--query", people, code=2)
    assert "there is no graph at" in shell.fails("query", "./none", "people", "--query", people)
    assert "there is no query 'nobody'" in shell.fails("query", "nobody", "--query", people, "--store", graph)
    assert "Got unexpected extra argument" in shell.fails("query", graph, "a", "b", "--query", people, code=2)


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("query", "[OPTIONS] [GRAPH] [NAME]"),
        ("diff", "[OPTIONS] [GRAPH] A B"),
        ("branch create", "[OPTIONS] [GRAPH] NAME"),
        ("status", "[OPTIONS] [GRAPH]"),
        ("check", "[OPTIONS] [GRAPH] [FILE|DIR]..."),
        ("serve", "[OPTIONS] [GRAPH]"),
        ("fmt", "[OPTIONS] [FILE|DIR|-]..."),
    ],
)
def test_usage_lines_show_where_the_graph_goes(shell: Shell, command: str, usage: str) -> None:
    help = shell.run(*command.split(), "--help").stdout
    assert help.splitlines()[0] == f"Usage: omnigraph {command} {usage}"


def test_the_environment_names_the_graph(shell: Shell, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_STORE", graph)
    assert shell.run("branch", "list").stdout == "main\n"
    assert shell.run("optimize", "--quiet").exit_code == 0
    assert "there is no graph at" in shell.fails("branch", "list", "--store", str(shell.root / "none"))
    monkeypatch.setenv("OMNIGRAPH_STORE", "http://127.0.0.1:1")
    assert "OMNIGRAPH_STORE is the address of a server" in shell.fails("branch", "list", code=2)


def test_a_project_fills_in_graph_queries_branch_and_output(project: Shell, graph: str) -> None:
    assert project.run("mutate", "add", "--params", '{"name": "dan"}').stdout.startswith("changed dev via add: 1 node")
    assert project.run("query", "people").stdout == "name\nann\ndan\n"
    assert project.run("query", "people", "--branch", "main").stdout == "name\nann\n"
    assert project.run("query", "count", "--format", "jsonl").stdout.splitlines()[1:] == ['{"n":2}']
    head = project.json("commit", "list", "--branch", "main")["commits"][0]["graph_commit_id"]
    assert project.run("query", "people", "--snapshot", head).stdout == "name\nann\n"
    assert "give --branch or --snapshot, not both" in project.fails(
        "query", "people", "--snapshot", head, "--branch", "main", code=2
    )
    assert project.run("branch", "list").stdout == "dev\nmain\n"
    assert project.run("branch", "create", "more").stdout == "created branch more from main\n"
    assert "there is no query 'nobody' in" in project.fails("query", "nobody")
    assert project.run("query", "-e", "match { $p: Person } return { count($p) as n }").stdout == "n\n2\n"


def test_options_and_the_environment_come_before_the_project(
    project: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = project.init("other")
    assert project.run("branch", "list", other).stdout == "main\n"
    monkeypatch.setenv("OMNIGRAPH_STORE", other)
    assert project.run("branch", "list").stdout == "main\n"
    monkeypatch.delenv("OMNIGRAPH_STORE")
    project.write("below/omnigraph.toml", f'graph = "{other}"\n')
    assert project.run("branch", "list").stdout == "main\n"
    project.write("below/omnigraph.toml", 'graph = "http://127.0.0.1:1/graphs/g"\n')
    assert "the server cannot be reached" in project.fails("branch", "list")
    assert "omnigraph.toml is bound to a server. Give --store URI." in project.fails("optimize", code=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph = 3", "graph: expected a text"),
        ("graf = 'x'", "unknown name 'graf'"),
        ("graph = ", "is not TOML"),
        ("engine = 'gpu'", "engine: 'gpu' is not one of auto, local, spark"),
        ("output = 'xml'", "output: 'xml' is not one of table"),
        ("\xff", "is not TOML"),
    ],
)
def test_a_project_file_that_is_not_valid(project: Shell, text: str, message: str) -> None:
    (project.root / "below" / "omnigraph.toml").write_bytes(text.encode("latin-1"))
    said = project.fails("branch", "list")
    assert message in said
    assert "omnigraph.toml" in said
