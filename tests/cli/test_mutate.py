"""`omnigraph mutate`: a query that writes, from a file or a text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.shell import Shell

QUERIES = """\
query add($name: String, $age: I32?) {
    insert Person { name: $name, age: $age }
}
query meet($a: String, $b: String) {
    insert Person { name: $a }
    insert Person { name: $b }
    insert Knows { from: $a, to: $b }
}
query forget($name: String) {
    delete Person where name = $name
}
query look() {
    match { $p: Person }
    return { $p.name }
}
"""
ADD = "query add($name: String) { insert Person { name: $name } }"


@pytest.fixture
def queries(shell: Shell) -> str:
    return shell.write("changes.gq", QUERIES)


def people(shell: Shell, graph: str) -> int:
    datasets = shell.json("snapshot", graph)["datasets"]
    return int(next(found["entity_count"] for found in datasets if found["type_name"] == "Person"))


def test_a_query_of_a_file_can_be_run(shell: Shell, graph: str, queries: str) -> None:
    params = '{"a": "ann", "b": "bob"}'
    result = shell.run("mutate", "meet", "--query", queries, "--params", params, "--store", graph, "--as", "act-kim")
    assert (result.exit_code, result.stderr) == (0, "")  # a mutation prints no target, because its text names the types
    assert result.stdout == "changed main via meet: 2 nodes, 1 edge (3 created)\nactor_id: act-kim\n"
    result = shell.run("mutate", "forget", "--query", queries, "--params", '{"name": "ann"}', "--uri", graph)
    assert result.stdout == "changed main via forget: 1 node, 1 edge (2 deleted)\n"


def test_a_query_text_and_a_parameter_file_can_be_given(shell: Shell, graph: str) -> None:
    params = shell.write("params.json", '{"name": "Zoë", "extra": 1}')
    result = shell.run("mutate", "-e", ADD, "--params-file", params, "--store", graph)
    assert result.stdout == "changed main via add: 1 node, 0 edges (1 created)\n"
    assert result.stderr == "warning: 'add' has no parameter 'extra'; known: name\n"


def test_an_undeclared_parameter_is_warned_about(shell: Shell, graph: str, queries: str) -> None:
    params = '{"name": "ann", "age": 3, "agee": 4}'
    result = shell.run("mutate", "add", "--query", queries, "--params", params, "--store", graph)
    assert (result.exit_code, result.stderr) == (0, "warning: 'add' has no parameter 'agee'; did you mean 'age'?\n")


def test_all_violations_are_listed(shell: Shell, graph: str) -> None:
    edges = " ".join(f'insert Knows {{ from: "a{i}", to: "b{i}" }}' for i in range(2))
    said = shell.fails("mutate", "-e", f"query q() {{ {edges} }}", "--store", graph).splitlines()
    assert len(said) == 5
    assert all("not found in Person" in line for line in said[:4])
    assert said[4].startswith("  help: nothing was written")


@pytest.mark.parametrize("option", ["--params", "--as", "--message", "--idempotency-key", "--branch", "--if-commit"])
def test_arguments_that_are_not_utf8_are_refused(shell: Shell, graph: str, option: str) -> None:
    said = shell.fails("mutate", "-e", ADD, "--store", graph, option, "x\udcff", code=2)
    assert "argument 7 is not UTF-8" in said


def test_mutate_prints_json(shell: Shell, graph: str, queries: str) -> None:
    given = ["--params", '{"name": "ann", "age": "31"}', "--store", graph, "--message", "hello", "--as", "act-kim"]
    done = shell.json("mutate", "add", "--query", queries, *given)
    commit = shell.json("commit", "list", graph)["commits"][0]
    assert done == {
        "branch": "main",
        "query_name": "add",
        "affected_nodes": 1,
        "affected_edges": 0,
        "actor_id": "act-kim",
        "commit": commit,
    }
    assert (commit["message"], commit["actor_id"]) == ("hello", "act-kim")
    nothing = shell.json("mutate", "forget", "--query", queries, "--params", '{"name": "x"}', "--store", graph)
    assert (nothing["affected_nodes"], nothing["commit"], nothing["actor_id"]) == (0, None, None)


def test_a_mutation_can_write_to_a_branch(shell: Shell, graph: str) -> None:
    shell.run("branch", "create", "draft", "--uri", graph)
    result = shell.run("mutate", "-e", ADD, "--params", '{"name": "a"}', "--store", graph, "--branch", "draft")
    assert result.stdout == "changed draft via add: 1 node, 0 edges (1 created)\n"
    assert people(shell, graph) == 0


def test_an_outdated_expected_commit_is_refused(shell: Shell, graph: str) -> None:
    head = shell.json("commit", "list", graph)["commits"][0]["graph_commit_id"]
    first = ["mutate", "-e", ADD, "--store", graph, "--if-commit", head, "--params"]
    assert shell.run(*first, '{"name": "a"}').exit_code == 0
    now = shell.json("commit", "list", graph)["commits"][0]["graph_commit_id"]
    said = shell.fails(*first, '{"name": "b"}', code=4)
    assert f"the head of 'main' is {now}, not {head}" in said
    lost = shell.run(*first, '{"name": "b"}', "--json")
    assert lost.exit_code == 4
    body = json.loads(lost.stdout)
    assert body["error"] == f"the head of 'main' is {now}, not {head}"
    assert body["precondition_failure"] == {"expected": head, "actual": now}
    assert (body["kind"], body["exit_code"], "code" in body) == ("precondition_failed", 4, False)
    assert people(shell, graph) == 1


def test_unchanged_since_refuses_only_changes_of_the_read_set(shell: Shell, graph: str, tmp_path: Path) -> None:
    head = shell.json("commit", "list", graph)["commits"][0]["graph_commit_id"]
    call = ["mutate", "-e", ADD, "--store", graph, "--timeout", "30", "--unchanged-since", head, "--params"]
    assert shell.run(*call, '{"name": "a"}').exit_code == 0
    assert shell.run(*call, '{"name": "b"}').exit_code == 0, "commits elsewhere do not matter"
    assert f"node:Person 'a' has changed since commit {head}" in shell.fails(*call, '{"name": "a"}', code=4)
    reads = tmp_path / "reads.gq"
    reads.write_text("query n() { match { $p: Person } return { count($p) as n } }")
    for given in (str(reads), reads.read_text()):
        said = shell.fails(*call, '{"name": "c"}', "--reads", given, code=4)
        assert "the result of read 1 ('n') has changed" in said
    assert "unchanged_since" in shell.fails("mutate", "-e", ADD, "--store", graph, "--reads", str(reads))
    assert people(shell, graph) == 2


def test_a_repeated_mutation_with_a_key_returns_the_first_receipt(shell: Shell, graph: str) -> None:
    call = ["mutate", "-e", ADD, "--store", graph, "--idempotency-key", "k", "--params", '{"name": "a"}']
    first = shell.json(*call)
    assert shell.json(*call) == first
    assert len(shell.json("commit", "list", graph)["commits"]) == 2


def test_change_is_a_deprecated_alias_of_mutate(shell: Shell, graph: str) -> None:
    result = shell.run("change", "-e", ADD, "--params", '{"name": "a"}', "--store", graph)
    assert result.exit_code == 0
    assert result.stdout == "changed main via add: 1 node, 0 edges (1 created)\n"
    assert result.stderr == "'change' is deprecated, use 'mutate'\n"
    assert "change" not in shell.run("--help").stdout.split("Commands:")[1].split("Capabilities:")[0].split()


def test_wrong_arguments_are_reported(shell: Shell, graph: str, queries: str) -> None:
    store = ["--store", graph]
    assert "give the query once" in shell.fails("mutate", "add", *store, code=2)
    assert "give the query once" in shell.fails("mutate", "-e", ADD, "--query", queries, *store, code=2)
    both = ["--params", "{}", "--params-file", shell.write("p.json", "{}")]
    assert "give the parameters once" in shell.fails("mutate", "-e", ADD, *both, *store, code=2)
    assert "name a graph" in shell.fails("mutate", "-e", ADD, code=2)
    for params in ("[1]", "{", "NaN", '{"name": NaN}', "null"):
        assert "--params: " in shell.fails("mutate", "-e", ADD, "--params", params, *store)
    for params, said in (
        ('{"name": "a", "name": "b"}', "duplicate member 'name'"),
        ('{"name": {"a": 1, "a": 2}}', "duplicate member 'a'"),
        (f'{{"name": {"9" * 6000}}}', "a number has 6,000 digits"),
        ("[" * 50_000, "nested too deeply"),
    ):
        wrong = shell.write("wrong.json", params)
        assert said in shell.fails("mutate", "-e", ADD, "--params", params, *store)
        assert said in shell.fails("mutate", "-e", ADD, "--params-file", wrong, *store)
    assert "is a schema" in shell.fails("mutate", "--query", shell.schema, *store)
    latin = shell.write("latin.gq", "query é() {}".encode("latin-1"))
    assert "is not UTF-8" in shell.fails("mutate", "--query", latin, *store)
    assert people(shell, graph) == 0


def test_wrong_queries_are_reported(shell: Shell, graph: str, queries: str) -> None:
    def says(*args: str) -> str:
        return shell.fails("mutate", *args, "--store", graph)

    assert "changes.gq has 4 queries, and no query name is given" in says("--query", queries)
    assert "there is no query 'ad'" in says("ad", "--query", queries)
    assert "'look' is a query that reads" in says("look", "--query", queries)
    assert "$name: not given" in says("add", "--query", queries)
    assert "Person has no property 'nmae'" in says("-e", 'query q() { insert Person { nmae: "a" } }')
    assert "'b' not found in Person" in says("-e", 'query q() { insert Knows { from: "b", to: "b" } }')
    assert people(shell, graph) == 0
