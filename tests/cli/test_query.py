"""`omnigraph query`: its arguments, and every output format."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import pyarrow as pa
import pytest
from tests.cli.shell import Shell
from tests.patience import PATIENCE

import omnigraph

PEOPLE = "query people() { match { $p: Person } return { $p.name as name, $p.age as age } order { name } }"
NOBODY = 'query nobody() { match { $p: Person { name: "zoe" } } return { $p.name as name } }'


@pytest.fixture
def people(shell: Shell, graph: str) -> str:
    """A graph of three people, one of whom has a name that is hard to print."""
    with omnigraph.open(graph) as opened:
        opened.load(
            {
                "Person": pa.table({"name": ["ann", 'b,"o"\nb', "cid"], "age": pa.array([41, 27, None], pa.int32())}),
                "Knows": [{"from": "ann", "to": "cid"}],
            },
            mode="append",
        )
    return graph


def printed(shell: Shell, *args: str) -> list[str]:
    result = shell.run("query", *args)
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


# ---- arguments


def test_a_query_of_a_file_is_selected_by_name(shell: Shell, people: str) -> None:
    found = shell.json("query", "friends", "--uri", people, "--query", shell.queries, "--params", '{"name": "ann"}')
    assert found["rows"] == [{"friend.name": "cid"}]
    params = shell.write("params.json", '{"name": "cid"}')
    assert shell.json("query", "--store", people, "--query", shell.queries, "--params-file", params)["rows"] == []
    assert "no query" in shell.fails("query", "foes", "--uri", people, "--query", shell.queries)


def test_the_query_and_the_state_must_be_given_once(shell: Shell, people: str) -> None:
    assert "give the query once" in shell.fails("query", "--uri", people, code=2)
    assert "give the query once" in shell.fails(
        "query", "--uri", people, "-e", PEOPLE, "--query", shell.queries, code=2
    )
    both = ("--branch", "main", "--snapshot", "x")
    assert "not both" in shell.fails("query", "--uri", people, "-e", PEOPLE, *both, code=2)
    assert "name a graph as the first argument, or with --store URI" in shell.fails("query", "-e", PEOPLE, code=2)
    assert "(graph.omni); the graph is the first argument" in shell.fails("query", "people", "graph.omni", code=2)


@pytest.mark.parametrize(
    "lost", ["match { : Person } return { .name }", "match { :Person  .age > 3 } return { count(*) }"]
)
def test_a_text_whose_variables_the_shell_has_replaced_is_explained(shell: Shell, people: str, lost: str) -> None:
    assert "in double quotes, the shell replaces $names" in shell.fails("query", people, "-e", lost)
    assert "the shell" not in shell.fails("query", people, "-e", lost.replace(":", "$p:"))


def test_a_query_may_be_given_without_its_head(shell: Shell, people: str) -> None:
    body = "// who\nmatch { $p: Person } return { count(*) as n } // all"
    assert printed(shell, "--uri", people, "-e", body) == ["1 row from branch main via given", "n", "-", "3"]
    assert shell.run("mutate", "--uri", people, "-e", 'insert Person { name: "dan" }').exit_code == 0
    assert printed(shell, "--uri", people, "-e", body)[-1] == "4"
    assert "qeury" in shell.fails("query", "--uri", people, "-e", "qeury q() { match { $p: Person } }")


def test_errors_name_the_query_file(shell: Shell, people: str) -> None:
    path = shell.write("wrong.gq", "query q() {\n    match { $p: Peson } return { $p.name }\n}")
    for command in ("query", "explain"):
        assert f"--> {path}:2:17" in shell.fails(command, "--uri", people, "--query", path)
    path = shell.write("wrong2.gq", 'query q() { insert Peson { name: "x" } }')
    assert f"--> {path}:1:20" in shell.fails("mutate", "--uri", people, "--query", path)


def test_a_missing_tag_is_reported(shell: Shell, people: str) -> None:
    assert shell.run("tag", "create", "v1", "--uri", people).exit_code == 0
    message = shell.fails("query", "--uri", people, "-e", PEOPLE, "--snapshot", "v2")
    assert "there is no commit or tag 'v2'" in message
    assert "'v1'" in message or "known: v1" in message


def test_an_interrupted_query_prints_stopped(shell: Shell, people: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(omnigraph.graph.Graph, "query", interrupt)
    assert shell.fails("query", "--uri", people, "-e", PEOPLE, code=130) == "stopped\n"


def test_branches_and_snapshots_can_be_read(shell: Shell, people: str) -> None:
    before = shell.json("query", "--uri", people, "-e", PEOPLE)
    shell.run("branch", "create", "dev", "--uri", people)
    shell.add_person(people, "dan", branch="dev")
    on_branch = shell.json("query", "--uri", people, "-e", PEOPLE, "--branch", "dev")
    assert (on_branch["row_count"], on_branch["target"]) == (4, {"branch": "dev", "snapshot": None})
    commit = before["graph_commit_id"]
    at_commit = shell.json("query", "--uri", people, "-e", PEOPLE, "--snapshot", commit)
    assert (at_commit["row_count"], at_commit["target"]) == (3, {"branch": None, "snapshot": commit})
    assert (
        printed(shell, "--uri", people, "-e", PEOPLE, "--snapshot", commit)[0]
        == f"3 rows from snapshot {commit} via people"
    )


def test_a_mutation_is_refused_with_a_hint(shell: Shell, people: str) -> None:
    message = shell.fails("query", "--uri", people, "-e", 'query add() { insert Person { name: "x" } }')
    assert "'add' is a query that writes" in message
    assert "mutate" in message


def test_budgets_are_command_line_options(shell: Shell, people: str) -> None:
    assert "its budget is 0 seconds" in shell.fails("query", "--uri", people, "-e", PEOPLE, "--seconds", "0")
    assert "its budget is 1 byte of memory" in shell.fails("query", "--uri", people, "-e", PEOPLE, "--memory", "1 B")
    assert "its budget is 1 row\n" in shell.fails("query", "--uri", people, "-e", PEOPLE, "--rows", "1")
    assert "its budget is 2 rows of result" in shell.fails("query", "--uri", people, "-e", PEOPLE, "--returned", "2")
    assert "--memory: 'much' is not an amount" in shell.fails(
        "query", "--uri", people, "-e", PEOPLE, "--memory", "much"
    )


def test_warnings_are_written_to_stderr(shell: Shell, people: str) -> None:
    text = "query two() { match { $a: Person  $b: Person } return { count(*) as n } }"
    result = shell.run("query", "--uri", people, "-e", text, "--format", "csv")
    assert result.stdout == "n\n9\n"
    assert result.stderr == "warning: {$a} and {$b} are not connected, so the result is a cross product\n"
    assert "help: {$a} and {$b} are not connected" in shell.fails(
        "query", "--uri", people, "-e", text.replace("count(*) as n", "$a.name, $b.name"), "--rows", "5"
    )


def test_read_is_a_deprecated_alias_of_query(shell: Shell, people: str) -> None:
    result = shell.run("read", "--uri", people, "-e", NOBODY, "--format", "csv")
    assert (result.exit_code, result.stdout) == (0, "name\n")
    assert "'read' is deprecated, use 'query'" in result.stderr


def test_an_option_of_writes_is_refused(shell: Shell, people: str) -> None:
    assert "'query' is a data command" in shell.fails("query", "--uri", people, "-e", PEOPLE, "--as", "me", code=2)


# ---- output formats


def test_rows_are_printed_as_a_table(shell: Shell, people: str) -> None:
    assert printed(shell, "--uri", people, "-e", PEOPLE) == [
        "3 rows from branch main via people",
        "name     | age",
        "---------+-----",
        "ann      | 41",
        'b,"o"\\nb | 27',
        "cid      | null",
    ]


def test_an_empty_result_has_a_header(shell: Shell, people: str) -> None:
    assert printed(shell, "--uri", people, "-e", NOBODY) == ["0 rows from branch main via nobody", "name", "----"]


def test_wide_values_are_truncated_and_wide_letters_take_two_columns(shell: Shell, people: str) -> None:
    shell.add_person(people, "x" * 100)
    shell.add_person(people, "漢字")
    lines = printed(shell, "--uri", people, "-e", PEOPLE)
    assert lines[1].startswith("name" + " " * 76 + " | age")
    assert ("x" * 79 + "… | null") in lines
    assert ("漢字" + " " * 76 + " | null") in lines


def test_control_characters_in_values_are_escaped(shell: Shell, people: str) -> None:
    shell.add_person(people, "\x1b[31mred\x07")
    result = shell.run("query", "--uri", people, "-e", PEOPLE)
    assert "\x1b" not in result.stdout
    assert "\x07" not in result.stdout


def test_rows_are_printed_as_keys_and_values(shell: Shell, people: str) -> None:
    assert printed(shell, "--uri", people, "-e", PEOPLE, "--format", "kv") == [
        "3 rows from branch main via people",
        "row 1",
        "name: ann",
        "age: 41",
        "",
        "row 2",
        'name: b,"o"\\nb',
        "age: 27",
        "",
        "row 3",
        "name: cid",
        "age: null",
    ]
    assert printed(shell, "--uri", people, "-e", NOBODY, "--format", "kv")[1:] == ["(no rows)"]


def test_rows_are_printed_as_csv(shell: Shell, people: str) -> None:
    text = shell.run("query", "--uri", people, "-e", PEOPLE, "--format", "csv").stdout
    assert text == 'name,age\nann,41\n"b,""o""\nb",27\ncid,null\n'
    assert list(csv.reader(io.StringIO(text)))[2] == ['b,"o"\nb', "27"]


def test_rows_are_printed_as_json_lines(shell: Shell, people: str) -> None:
    head, *rows = map(json.loads, printed(shell, "--uri", people, "-e", PEOPLE, "--format", "jsonl"))
    assert head == {
        "kind": "metadata",
        "query_name": "people",
        "target": {"branch": "main", "snapshot": None},
        "row_count": 3,
    }
    assert rows == [{"name": "ann", "age": 41}, {"name": 'b,"o"\nb', "age": 27}, {"name": "cid", "age": None}]


def test_query_prints_json(shell: Shell, people: str) -> None:
    found = json.loads("\n".join(printed(shell, "--uri", people, "-e", PEOPLE, "--format", "json")))
    assert list(found) == ["query_name", "target", "row_count", "columns", "rows", "graph_commit_id"]
    assert found["columns"] == ["name", "age"]
    assert found == shell.json("query", "--uri", people, "-e", PEOPLE, "--format", "csv")  # --json wins


@pytest.mark.slow
def test_rows_are_written_as_an_arrow_stream(shell: Shell, people: str) -> None:
    command = [sys.executable, "-m", "omnigraph.cli.main", "query", "--uri", people, "-e", PEOPLE, "--format", "arrow"]
    done = subprocess.run(command, capture_output=True, check=True)
    table = pa.ipc.open_stream(done.stdout).read_all()
    assert table.column_names == ["name", "age"]
    assert table["age"].to_pylist() == [41, 27, None]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["table", "csv", "jsonl", "arrow"])
def test_a_closed_pipe_is_not_an_error(shell: Shell, people: str, format: str) -> None:
    with omnigraph.open(people) as opened:
        opened.load({"Person": pa.table({"name": [f"p{i:05}" for i in range(20_000)]})}, mode="append")
    command = [sys.executable, "-m", "omnigraph.cli.main", "query", "--uri", people, "-e", PEOPLE, "--format", format]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) in (0, 1)


def test_an_unknown_format_is_refused(shell: Shell, people: str) -> None:
    message = shell.fails("query", "--uri", people, "-e", PEOPLE, "--format", "yaml", code=2)
    assert "'yaml' is not one of 'table', 'kv', 'csv', 'tsv', 'json', 'jsonl'" in message


def test_lists_dates_and_letters_of_any_width_are_aligned(shell: Shell, people: str) -> None:
    columns = '"é 👩‍👩‍👧 漢" as a, [1, 2] as b, date("2026-01-02") as c'
    text = f"query q() {{ match {{ $p: Person }} return {{ {columns} }} limit 1 }}"
    _, names, rule, row = printed(shell, "--uri", people, "-e", text)
    assert (names, rule) == ("a       | b     | c", "--------+-------+-----------")
    assert row == "é 👩‍👩‍👧 漢 | [1,2] | 2026-01-02"
