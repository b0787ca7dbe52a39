"""`omnigraph check`: every error of every file, and the matching exit status."""

from __future__ import annotations

import json

from tests.cli.shell import Shell

BAD_QUERY = "query q() { match { $p: Persn } return { $p.name } }\n"


def test_valid_files_pass(shell: Shell) -> None:
    result = shell.run("check", shell.schema, shell.queries)
    assert result.exit_code == 0
    assert result.output == f"OK    {shell.schema}\nOK    {shell.queries}\n"


def test_a_single_schema_is_used_for_all_queries(shell: Shell) -> None:
    assert shell.run("check", str(shell.root)).exit_code == 0
    shell.write("other.pg", "node Other { name: String @key }\n")
    result = shell.run("check", str(shell.root))
    assert result.exit_code == 1
    assert "2 were given" in result.stderr
    assert "--schema" in result.stderr


def test_queries_need_a_schema(shell: Shell) -> None:
    result = shell.run("check", shell.queries)
    assert result.exit_code == 1
    assert "none was given" in result.stderr


def test_an_error_shows_its_location_and_a_hint(shell: Shell) -> None:
    bad = shell.write("bad.gq", BAD_QUERY)
    result = shell.run("check", "--schema", shell.schema, bad)
    assert result.exit_code == 1
    assert "T1" in result.output
    assert f"{bad}:1:25" in result.output
    assert "^^^^^" in result.output
    assert "did you mean 'Person'?" in result.output


def test_all_errors_are_reported(shell: Shell) -> None:
    bad = shell.write("bad.gq", BAD_QUERY + BAD_QUERY.replace("query q", "query r"))
    schema = shell.write("worse.pg", "node A { x: Strin }\n")
    result = shell.run("check", "--schema", shell.schema, bad, schema)
    assert result.exit_code == 1
    assert result.output.count("T1") == 2
    assert "worse.pg:1:13" in result.output


def test_queries_are_skipped_if_the_schema_does_not_compile(shell: Shell) -> None:
    schema = shell.write("broken.pg", "node A { x: Nope }\n")
    result = shell.run("check", "--schema", schema, shell.queries)
    assert result.exit_code == 1
    assert f"SKIP  {shell.queries}" in result.output


def test_check_prints_json(shell: Shell) -> None:
    bad = shell.write("bad.gq", BAD_QUERY)
    result = shell.run("check", "--json", "--schema", shell.schema, bad)
    assert result.exit_code == 1
    report = json.loads(result.output)
    assert report["status"] == "error"
    (error,) = report["files"][0]["errors"]
    assert error["diagnostic"] == "T1"
    assert (error["line"], error["column"]) == (1, 25)
    assert BAD_QUERY[slice(*error["span"])] == "Persn"


def test_check_without_files_is_a_usage_error(shell: Shell) -> None:
    assert shell.run("check").exit_code == 2
    assert shell.run("check", "no-such-file.pg").exit_code == 2


def test_other_files_are_refused(shell: Shell) -> None:
    other = shell.write("notes.txt", "hello")
    result = shell.run("check", other)
    assert result.exit_code == 1
    assert "neither a .pg file, a .gq file nor a directory" in result.stderr


def test_a_query_file_given_as_schema_is_reported(shell: Shell) -> None:
    for command in (
        ("check", "--schema", shell.queries, shell.schema),
        ("lint", "--schema", shell.queries, "--query", shell.queries),
        ("schema", "plan", "--from", shell.queries, "--to", shell.schema),
        ("init", str(shell.root / "g"), "--schema", shell.queries),
    ):
        result = shell.run(*command)
        assert result.exit_code == 1
        assert "is a query file" in result.stderr


def test_files_inside_a_graph_are_skipped(shell: Shell) -> None:
    shell.run("init", str(shell.root / "my.omni"), "--schema", shell.schema)
    assert (shell.root / "my.omni" / "_schema.pg").exists()
    assert shell.run("check", str(shell.root)).exit_code == 0
    assert "2 files" in shell.run("fmt", "--check", str(shell.root)).output


def test_queries_are_checked_against_the_schema_of_a_graph(shell: Shell, graph: str) -> None:
    bad = shell.write("bad.gq", BAD_QUERY)
    shell.write("other.pg", "node Other { name: String @key }\n")
    for address in ((graph,), ("--store", graph), ("--uri", graph)):
        result = shell.run("check", *address, shell.queries, bad)
        assert result.exit_code == 1
        assert result.output.startswith(f"OK    {shell.queries}\nERROR type error: T1")
    assert shell.run("check", f"file://{graph}", shell.queries).output == f"OK    {shell.queries}\n"
    assert (
        f"ERROR type error: T1: there is no node type Persn\n --> {bad}"
        in shell.run("check", graph, str(shell.root)).output
    )


def test_a_graph_is_the_only_schema(shell: Shell, graph: str) -> None:
    message = "give a graph or --schema, not both"
    assert message in shell.fails("check", graph, shell.queries, "--schema", shell.schema, code=2)
    assert "name a file or a directory to check" in shell.fails("check", graph, code=2)
    assert "there are no .gq files here" in shell.fails("check", graph, shell.schema)
    assert "name the graph once" in shell.fails("check", graph, "--store", graph, shell.queries, code=2)
