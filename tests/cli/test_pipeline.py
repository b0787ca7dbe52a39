"""`omnigraph pipeline`: the output of a run, for people and for programs."""

from __future__ import annotations

import pytest
from tests.cli.shell import Shell

_VALID = "  the file is valid; 'pipeline run --dry-run' also checks the graph, the SQL and the rows\n"

PIPELINE = """\
pipeline: people
graph: graph
variables: {day: null}
sources:
  people: people-${day}.csv
load:
  nodes: {Person: people}
mode: append
checks:
  somebody:
    query: "query all() { match { $p: Person } return { $p.name } }"
    expect: some
then: merge
"""


@pytest.fixture
def file(shell: Shell, graph: str) -> str:
    shell.write("people-mon.csv", "name,age\nann,41\nbob,27\n")
    return shell.write("people.yaml", PIPELINE)


def test_a_run_prints_its_result_and_checks(shell: Shell, graph: str, file: str) -> None:
    result = shell.run("pipeline", "run", file, "--var", "day=mon", "--run-id", "r1")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "pipeline people, run r1: loaded 2 entities and merged people-r1 into main",
        "  ok: somebody",
    ]
    assert result.stderr.splitlines() == [
        f"omnigraph pipeline run → {graph} (direct, local)",
        "loading in this process: 0.0 MiB of input; Spark is used from 4.0 GiB",
        "checking people-r1",
        "merging people-r1 into main in this process: 0.0 MiB in tables; Spark is used from 4.0 GiB",
    ]
    again = shell.run("pipeline", "run", file, "--var", "day=mon", "--run-id", "r1", "--quiet")
    assert again.stdout == "pipeline people, run r1: loaded rows of an earlier attempt and merged people-r1 into main\n"
    assert again.stderr == ""


def test_pipeline_run_prints_json(shell: Shell, graph: str, file: str) -> None:
    told = shell.json("pipeline", "run", file, "--var", "day=mon", "--as", "ann")
    assert told["uri"] == graph
    assert told["stage"] == "merged"
    assert told["load"]["total_entities"] == 2
    assert told["checks"] == [{"name": "somebody", "passed": True, "rows": 2, "detail": None}]
    newest = shell.json("commit", "show", told["merge"], "--uri", graph)
    assert newest["labels"]["pipeline"] == "people"
    assert newest["labels"]["pipeline.run"] == told["run"]
    assert shell.json("pipeline", "run", file, "--var", "day=mon")["resumed"] is True


def test_a_check_writes_nothing(shell: Shell, graph: str, file: str) -> None:
    result = shell.run("pipeline", "run", file, "--var", "day=mon", "--check", "--run-id", "r1")
    assert result.stdout.splitlines() == [
        "pipeline people, run r1: checked 2 entities; nothing was written",
        "  later: somebody: runs after the load",
    ]
    assert len(shell.json("commit", "list", graph)["commits"]) == 1
    checked = shell.run("pipeline", "check", file, "--var", "day=mon")
    assert checked.stdout == f"{file}: pipeline people with 1 sources, 0 steps, 1 types, 1 checks\n{_VALID}"
    assert shell.json("pipeline", "check", file, "--var", "day=tue")["then"] == "merge", "no source is opened"


def test_wrong_declarations_and_rows_are_reported(shell: Shell, graph: str, file: str) -> None:
    assert "people.yaml, line 3: variables.day: this variable has no value" in shell.fails("pipeline", "run", file)
    assert "sources.people: there is no" in shell.fails("pipeline", "run", file, "--var", "day=tue", "--quiet")
    assert "write NAME=VALUE" in shell.fails("pipeline", "check", file, "--var", "day", code=2)
    shell.write("people-mon.csv", "name,age\nann,old\n")
    assert "people-mon.csv, line 2: Person.age" in shell.fails("pipeline", "run", file, "--var", "day=mon", "--quiet")
    other = shell.init("other")
    said = shell.fails("pipeline", "run", file, "--var", "day=mon", "--uri", other, "--quiet")
    assert "the pipeline is for" in said


def test_a_failed_check_is_reported(shell: Shell, graph: str, file: str) -> None:
    shell.write("people.yaml", PIPELINE.replace("expect: some", "expect: {rows: 3}"))
    said = shell.fails("pipeline", "run", file, "--var", "day=mon", "--run-id", "r1", "--quiet")
    assert said.splitlines() == [
        "somebody: found 2 rows, expected 3 rows: p.name='ann'; p.name='bob'",
        "  help: nothing was merged: the rows are on branch 'people-r1'; "
        "correct the branch or the input, and run it again",
    ]
    assert shell.json("branch", "list", graph)["branches"] == ["main", "people-r1"]


def test_the_graph_comes_from_the_file_or_the_option(shell: Shell, graph: str) -> None:
    shell.write("people-mon.csv", "name,age\nann,41\n")
    file = shell.write("people.yaml", PIPELINE.replace("graph: graph\n", ""))
    assert "name a graph" in shell.fails("pipeline", "run", file, "--var", "day=mon", code=2)
    assert shell.json("pipeline", "run", file, "--var", "day=mon", "--store", graph)["stage"] == "merged"
