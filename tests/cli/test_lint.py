"""`omnigraph lint`: a report for people and one for programs."""

from __future__ import annotations

import json

from tests.cli.shell import Shell


def test_warnings_do_not_fail(shell: Shell) -> None:
    queries = shell.write("q.gq", "query q($x: I32) { match { $p: Person } return { $p.name } limit 3 }\n")
    result = shell.run("lint", "--schema", shell.schema, "--query", queries)
    assert result.exit_code == 0
    assert "OK    q (read)" in result.output
    assert f"WARN  L202 q: parameter $x is not used ({queries}:1:9)" in result.output
    assert "WARN  L205" in result.output
    assert result.output.endswith("1 query: 0 errors, 2 warnings, 0 remarks\n")


def test_a_finding_about_a_property_names_its_queries(shell: Shell) -> None:
    queries = shell.write("q.gq", 'query q() { match { $p: Person  $p.name contains "x" } return { $p.name } }\n')
    result = shell.run("lint", "--schema", shell.schema, "--query", queries)
    assert (
        'INFO  L206 no index supports the condition or rank on Person.name; add @index(name, kind="ngram") (q)'
        in result.output
    )


def test_an_error_in_one_query_does_not_hide_the_others(shell: Shell) -> None:
    queries = shell.write(
        "q.gq",
        "query bad() { match { $p: Person } return { $p.nam } }\n"
        "query good() { match { $p: Person } return { $p.name } }\n",
    )
    result = shell.run("lint", "--schema", shell.schema, "--query", queries)
    assert result.exit_code == 1
    assert "ERROR bad: type error: T6" in result.output
    assert "OK    good (read)" in result.output


def test_a_file_that_does_not_parse_is_one_error(shell: Shell) -> None:
    queries = shell.write("q.gq", "query q( { }")
    result = shell.run("lint", "--schema", shell.schema, "--query", queries)
    assert result.exit_code == 1
    assert "ERROR Q000 parse error" in result.output


def test_lint_prints_json(shell: Shell) -> None:
    result = shell.run("lint", "--json", "--schema", shell.schema, "--query", shell.queries)
    report = json.loads(result.output)
    assert list(report) == [
        *("status", "schema_source", "query_path", "queries_processed"),
        *("errors", "warnings", "infos", "results", "findings"),
    ]
    assert report["schema_source"] == {"kind": "file", "path": shell.schema}
    assert report["results"][0]["operation"]["result"] == [{"name": "friend.name", "kind": "string", "nullable": False}]


def test_a_schema_can_be_linted_alone(shell: Shell) -> None:
    lonely = shell.write("lonely.pg", "node Island { name: String @key }\n")
    result = shell.run("lint", "--schema", lonely)
    assert result.exit_code == 0
    assert "WARN  L210" in result.output
    assert f"({lonely}:1:1)" in result.output
    report = json.loads(shell.run("lint", "--json", "--schema", lonely).output)
    assert (report["warnings"], report["findings"][0]["code"]) == (1, "L210")


def test_a_schema_that_does_not_compile_is_reported(shell: Shell) -> None:
    broken = shell.write("broken.pg", "node A { id: String }\n")
    result = shell.run("lint", "--schema", broken, "--query", shell.queries)
    assert result.exit_code == 1
    assert "broken.pg:1:10" in result.stderr


def test_queries_are_linted_against_the_schema_of_a_graph(shell: Shell, graph: str) -> None:
    queries = shell.write("q.gq", "query q() { match { $p: Persn } return { $p.name } }\n")
    result = shell.run("lint", graph, "--query", queries)
    assert result.exit_code == 1
    assert "did you mean 'Person'?" in result.output
    for address in ((graph,), ("--store", graph), ("--uri", graph)):
        report = shell.json("lint", *address, "--query", shell.queries)
        assert report["schema_source"] == {"kind": "graph", "uri": graph}
        assert (report["status"], report["queries_processed"]) == ("ok", 1)
    assert shell.json("lint", graph)["schema_source"] == {"kind": "graph", "uri": graph}
    assert "1 node type, 1 edge type: 0 warnings, 0 remarks\n" in shell.run("lint", graph).output


def test_the_schema_of_a_state_is_used(shell: Shell, graph: str) -> None:
    first = shell.json("commit", "list", graph)["commits"][0]["graph_commit_id"]
    changed = shell.write("new.pg", shell.read("people.pg").replace("age: I32?", "years: I32?"))
    assert shell.run("schema", "apply", graph, "--schema", changed, "--quiet").exit_code == 0
    queries = shell.write("q.gq", "query q() { match { $p: Person } return { $p.age } limit 1 }\n")
    assert shell.run("lint", graph, "--query", queries).exit_code == 1
    assert shell.run("lint", graph, "--query", queries, "--snapshot", first).exit_code == 0


def test_one_schema_is_needed(shell: Shell, graph: str) -> None:
    assert "name a schema: give the URI of a graph, or --schema FILE" in shell.fails("lint", code=2)
    assert "give a graph or --schema, not both" in shell.fails("lint", graph, "--schema", shell.schema, code=2)
    assert "--schema names a file" in shell.fails("lint", "--schema", shell.schema, "--branch", "dev", code=2)


def test_the_old_names_of_lint_still_work(shell: Shell, graph: str) -> None:
    for words in (("query", "lint"), ("query", "check")):
        result = shell.run(*words, "--schema", shell.schema, "--query", shell.queries)
        assert result.exit_code == 0
        assert result.stderr == f"'{' '.join(words)}' is deprecated, use 'lint'\n"
        assert "OK    friends (read)" in result.stdout
        assert shell.run(*words, graph, "--query", shell.queries, "--json").exit_code == 0


def test_a_file_in_the_place_of_a_graph_is_refused_with_its_option(shell: Shell) -> None:
    refused = shell.run("lint", shell.queries)
    assert refused.exit_code == 2
    said = " ".join(refused.stderr.split())
    assert f"is a file, not a graph: give --query {shell.queries}, and the URI of a graph or --schema FILE" in said
    refused = shell.run("lint", shell.schema)
    assert f"is a file, not a graph: give --schema {shell.schema}" in " ".join(refused.stderr.split())
    refused = shell.run("lint", shell.queries, "--schema", shell.schema)
    assert " ".join(refused.stderr.split()).endswith(f"is a file, not a graph: give --query {shell.queries}")
