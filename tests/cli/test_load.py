"""`omnigraph load`: rows from files, as one commit."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from tests.cli.shell import Shell

import omnigraph
from omnigraph.cli.load import print_receipt as print_receipt
from omnigraph.cli.main import cli
from omnigraph.cli.progress import progress_display
from omnigraph.engine.engines import JobProgress
from omnigraph.write.load import LoadPhase, LoadProgress
from omnigraph.write.receipt import LoadMode, LoadReceipt, MergedType, MergeWay

PEOPLE = """\
{"type": "Person", "data": {"name": "ann", "age": 31}}
{"type": "Person", "data": {"name": "bob"}}
{"edge": "Knows", "from": "ann", "to": "bob", "data": {"since": "2020-01-31"}}
"""


@pytest.fixture
def people(shell: Shell) -> str:
    return shell.write("people.ndjson", PEOPLE)


def names(uri: str, branch: str = "main") -> list[str]:
    with omnigraph.open(uri, read_only=True) as graph:
        found: list[str] = graph.snapshot(branch=branch).scan("node:Person")["id"].to_pylist()
    return sorted(found)


def test_a_load_prints_the_target_and_the_counts(shell: Shell, graph: str, people: str) -> None:
    result = shell.run("load", graph, "--data", people, "--mode", "append")
    assert result.exit_code == 0
    assert (
        result.stdout == f"loaded {graph} on branch main with append: 3 entities across 1 node type and 1 edge type\n"
    )
    assert result.stderr == f"omnigraph load → {graph} (direct, local)\n"
    assert names(graph) == ["ann", "bob"]


def test_load_prints_json(shell: Shell, graph: str, people: str) -> None:
    result = shell.json("load", graph, "--data", people, "--mode", "merge", "--as", "kim", "--message", "first")
    commit = result.pop("commit")
    assert commit["actor_id"] == "kim"
    assert result.pop("why") == "0.0 MiB of input; Spark is used from 4.0 GiB"
    assert result == {
        "uri": graph,
        "branch": "main",
        "base_branch": None,
        "branch_created": False,
        "mode": "merge",
        "nodes": [{"name": "Person", "entities_loaded": 2}],
        "edges": [{"name": "Knows", "entities_loaded": 1}],
        "total_entities": 3,
        "coerced": [],
        "actor_id": "kim",
        "engine": "local",
    }
    shown = shell.json("commit", "show", commit["graph_commit_id"], "--uri", graph)
    assert shown["message"] == "first"


def test_files_of_several_formats_can_be_loaded_together(shell: Shell, graph: str, people: str) -> None:
    csv = shell.write("Person.csv", "name,age\ncid,4\n")
    odd = shell.write("odd.csv", "name,age\ndee,5\n")
    assert "3 entities" in shell.run("load", graph, "--data", people, "--mode", "append").stdout
    assert (
        "2 entities"
        in shell.run("load", graph, "--data", csv, "--data", odd, "--type", "Person", "--mode", "append").stdout
    )
    assert names(graph) == ["ann", "bob", "cid", "dee"]
    pattern = str(shell.root / "*.csv")
    assert "there is no type 'odd'" in shell.fails("load", graph, "--data", pattern, "--mode", "merge", "--quiet")


def test_stdin_can_be_loaded_once(shell: Shell, graph: str) -> None:
    result = shell.run("load", graph, "--data", "-", "--mode", "append", stdin=PEOPLE)
    assert result.exit_code == 0, result.stderr
    assert names(graph) == ["ann", "bob"]
    assert "--data - was given more than once, but standard input can be read only once" in shell.fails(
        "load", graph, "--data", "-", "--data", "-", "--mode", "merge", code=2
    )


def test_a_missing_branch_is_created_from_its_base(shell: Shell, graph: str, people: str) -> None:
    args = ("load", graph, "--data", people, "--branch", "draft")
    assert "there is no branch 'draft'" in shell.fails(*args, "--mode", "append", "--quiet")
    made = shell.run(*args, "--mode", "append", "--from", "main")
    assert made.stdout.endswith("\ncreated branch draft from main\n")
    assert (names(graph), names(graph, "draft")) == ([], ["ann", "bob"])
    again = shell.run(*args, "--mode", "merge", "--from", "main")
    assert "created" not in again.stdout


def test_errors_name_files_as_the_user_wrote_them(shell: Shell, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shell.root)
    (shell.root / "data").mkdir()
    (shell.root / "data" / "Person.csv").write_text("name,age\nkim,old\n")
    for written, named in (
        ("data/Person.csv", "data/Person.csv"),
        ("./data/Person.csv", "data/Person.csv"),
        ("data", "data/Person.csv"),
        ("data/*.csv", "data/Person.csv"),
        (str(shell.root / "data"), "Person.csv"),
    ):
        said = shell.fails("load", graph, "--data", written, "--mode", "append", "--quiet")
        assert said.startswith(f"{named}, line 2: Person.age: expected a whole number, found 'old'\n"), written


def test_a_wrong_file_changes_nothing(shell: Shell, graph: str) -> None:
    wrong = shell.write("wrong.ndjson", PEOPLE + '{"type": "Person", "data": {"name": "cid", "age": "old"}}\n')
    said = shell.fails("load", graph, "--data", wrong, "--mode", "append", "--quiet")
    assert said == (
        "wrong.ndjson, line 4: Person.age: expected a whole number, found a text\n"
        "  help: nothing was written; correct the input and send it again\n"
    )
    assert names(graph) == []
    assert "there is no" in shell.fails(
        "load", graph, "--data", str(shell.root / "none.csv"), "--mode", "append", "--quiet"
    )


def test_the_mode_has_no_default(shell: Shell, graph: str, people: str) -> None:
    assert "--mode" in shell.fails("load", graph, "--data", people, code=2)
    assert "--data" in shell.fails("load", graph, "--mode", "merge", code=2)
    assert "'replace' is not one of" in shell.fails("load", graph, "--data", people, "--mode", "replace", code=2)


def test_a_lenient_load_reports_coercions(shell: Shell, graph: str) -> None:
    odd = shell.write("odd.ndjson", '{"type": "Person", "data": {"name": "ann", "age": "31", "hat": 1}}\n')
    result = shell.run("load", graph, "--data", odd, "--mode", "append", "--lenient", "--quiet")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == (
        "lenient: Person.hat: ignored property (1), first at odd.ndjson, record 1\n"
        "lenient: Person.age: nulled value (1), first at odd.ndjson, record 1: '31'\n"
    )
    found = shell.json("load", graph, "--data", odd, "--mode", "merge", "--lenient", "--quiet")
    assert found["coerced"][1] == {
        "kind": "nulled_value",
        "subject": "Person.age",
        "count": 1,
        "example": "odd.ndjson, record 1",
        "found": "'31'",
    }


@pytest.mark.parametrize("variable", ["OMNIGRAPH_LOAD_MEMORY", "OMNIGRAPH_BLOB_SOURCES"])
def test_wrong_environment_variables_are_named(
    shell: Shell, graph: str, people: str, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "none://much")
    said = shell.fails("load", graph, "--data", people, "--mode", "append", "--quiet")
    assert said.startswith(f"{variable}: ")
    assert "none://much" in said


def test_ingest_is_a_deprecated_alias_of_load(shell: Shell, graph: str) -> None:
    odd = shell.write("odd.ndjson", '{"type": "Person", "data": {"name": "ann", "age": "31"}}\n')
    result = shell.run("ingest", graph, "--data", odd, "--branch", "inbox")
    assert result.exit_code == 0, result.stderr
    assert "load --lenient" in result.stderr
    assert "with merge: 1 entity" in result.stdout
    assert "created branch inbox from main" in result.stdout
    assert "ingest" not in shell.run("--help").stdout


def test_an_outdated_expected_commit_is_refused(shell: Shell, graph: str, people: str) -> None:
    head = shell.json("commit", "list", graph)["commits"][0]["graph_commit_id"]
    args = ("load", graph, "--data", people, "--mode", "merge", "--if-commit", head, "--quiet")
    assert shell.run(*args).exit_code == 0
    assert shell.run(*args).exit_code == 4
    lost = shell.run(*args, "--json")
    assert lost.exit_code == 4
    assert json.loads(lost.stdout)["precondition_failure"]["expected"] == head


def test_a_repeated_load_with_a_key_returns_the_first_commit(shell: Shell, graph: str, people: str) -> None:
    args = ("load", graph, "--data", people, "--mode", "append", "--idempotency-key", "monday", "--quiet")
    assert shell.json(*args)["commit"] == shell.json(*args)["commit"]


def test_overwriting_a_remote_graph_needs_consent(shell: Shell, people: str) -> None:
    args = ("load", "memory://nowhere", "--data", people, "--mode")
    said = shell.fails(*args, "overwrite")
    assert "overwriting on memory://nowhere cannot be undone" in said
    assert "--yes" in said
    assert "there is no graph" in shell.fails(*args, "overwrite", "--yes", "--quiet")
    assert "there is no graph" in shell.fails(*args, "merge", "--quiet")


# ---- progress bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watched(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal that receives stderr."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return screen


def test_a_terminal_shows_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched(monkeypatch)
    with progress_display(shown=True) as shown:
        assert shown.rows is not None
        assert shown.tasks is not None
        shown.rows(LoadProgress(LoadPhase.READING, 12_345, 0, {}))
        shown.tasks(JobProgress("comparing ids", 3, 1, 40, 17))
        shown.rows(LoadProgress(LoadPhase.WRITING, 23_456, 0, {}))
    assert "writing" in terminal.getvalue()
    assert "23,456 rows" in terminal.getvalue()


def test_there_is_no_progress_bar_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    watched(monkeypatch)
    with progress_display(shown=False) as shown:
        assert (shown.rows, shown.tasks, shown.notes) == (None, None, False)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_display(shown=True) as shown:
        assert (shown.rows, shown.tasks, shown.notes) == (None, None, True)


@pytest.mark.parametrize("flag", ["--quiet", "--json"])
def test_a_pipe_gets_no_escape_sequences(graph: str, people: str, flag: str) -> None:
    result = CliRunner().invoke(cli, ["load", graph, "--data", people, "--mode", "merge", flag], prog_name="omnigraph")
    assert result.exit_code == 0
    assert "\x1b" not in result.output


def test_an_empty_file_loads_nothing(shell: Shell, graph: str, tmp_path: Path) -> None:
    empty = shell.write("empty.ndjson", "")
    result = shell.run("load", graph, "--data", empty, "--mode", "append", "--quiet")
    assert (
        result.stdout == f"loaded {graph} on branch main with append: 0 entities across 0 node types and 0 edge types\n"
    )
    assert shell.json("load", graph, "--data", empty, "--mode", "append", "--quiet")["commit"] is None


def test_an_id_outside_of_the_data_is_refused_with_a_hint(shell: Shell, graph: str) -> None:
    data = shell.write("people.ndjson", '{"type": "Person", "id": "ann", "data": {"name": "ann"}}\n')
    message = shell.fails("load", graph, "--data", data, "--mode", "append", "--quiet")
    assert "unknown member 'id' of the envelope; put it inside 'data'" in message


def test_a_check_writes_nothing(shell: Shell, graph: str, people: str) -> None:
    said = shell.run("load", graph, "--data", people, "--mode", "append", "--check", "--engine", "local").stdout
    assert said.startswith(f"checked {graph} on branch main with append: 3 entities")
    result = shell.json("load", graph, "--data", people, "--mode", "append", "--check")
    assert (result["commit"], result["total_entities"]) == (None, 3)
    assert "3 entities" in shell.run("load", graph, "--data", people, "--mode", "append").stdout
    assert "exists already" in shell.fails("load", graph, "--data", people, "--mode", "append", "--check", "--quiet")


@pytest.mark.spark
def test_a_missing_java_is_reported(
    shell: Shell, graph: str, people: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from omnigraph.pipeline.spark import session

    monkeypatch.setattr(session, "_session", session.Session())  # an earlier test may have started one in this process
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    said = shell.fails("load", graph, "--data", people, "--mode", "append", "--engine", "spark", "--quiet")
    assert "Spark needs Java" in said


def test_an_invalid_merge_threshold_is_refused_by_every_engine(shell: Shell, graph: str, people: str) -> None:
    result = shell.run("load", graph, "--data", people, "--mode", "append", "--merge-threshold", "much")
    assert result.exit_code == 1
    assert "merge_threshold: 'much' is not an amount" in result.stderr
    assert names(graph) == []


def test_the_receipt_shows_types_merged_by_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    merges = (
        MergedType("node:Person", MergeWay.TASKS, "much"),
        MergedType("node:Town", MergeWay.PROCESS, "little"),
    )
    receipt = LoadReceipt("main", LoadMode.MERGE, (("Person", 2), ("Town", 1)), (), None, merges=merges)
    print_receipt("place", receipt, checked=False)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "merged node:Person by tasks on Spark: much",
        "merged node:Town by one process: little",
    ]


CSV = "name,age\nann,31\nbob,\n"


def test_a_format_is_given_for_any_file_name(shell: Shell, graph: str) -> None:
    file = shell.write("export.2024.dat", CSV)
    assert "--format (format=) sets the format" in shell.fails("load", graph, "--data", file, "--mode", "append")
    run = shell.run("load", graph, "--data", file, "--format", "csv", "--type", "Person", "--mode", "append")
    assert run.exit_code == 0, run.output
    assert names(graph) == ["ann", "bob"]


def test_a_format_is_given_for_stdin(shell: Shell, graph: str) -> None:
    given = ("load", graph, "--data", "-", "--mode", "merge", "--format", "csv")
    assert shell.run(*given, "--type", "Person", stdin=CSV).exit_code == 0
    assert names(graph) == ["ann", "bob"]
    error = shell.run(*given, stdin=CSV)
    assert error.exit_code == 1
    assert "there is no type" in error.stderr
    assert "unless --type (type_name=) or a mapping gives the type" in error.stderr


@pytest.mark.parametrize("format", [None, "ndjson", "csv", "parquet", "arrow"])
def test_pipes_and_descriptors_are_read(shell: Shell, graph: str, format: str | None) -> None:
    table = pa.table({"name": ["ann", "bob"], "age": pa.array([31, None], pa.int32())})
    path = shell.root / f"Person.{format}"
    if format == "parquet":
        pa.parquet.write_table(table, path)
    elif format == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        path.write_text(CSV if format == "csv" else PEOPLE)
    read, write = os.pipe()
    os.write(write, path.read_bytes())
    os.close(write)
    kind = ["--type", "Person"] if format not in (None, "ndjson") else []
    given = ["--format", format] if format is not None else []
    run = shell.run("load", graph, "--data", f"/dev/fd/{read}", *given, *kind, "--mode", "append")
    os.close(read)
    assert run.exit_code == 0, run.output
    assert names(graph) == ["ann", "bob"]


@pytest.mark.slow
def test_process_substitution_and_stdin_in_a_shell(shell: Shell, graph: str, people: str) -> None:
    command = f"{sys.executable} -m omnigraph load {graph} --mode merge --quiet"
    for data in (f"--data <(cat {people})", f"--data /dev/stdin < {people}", f"--data - < {people}"):
        run = subprocess.run(["bash", "-c", f"{command} {data}"], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert "3 entities" in run.stdout
    text = shell.write("people.txt", CSV)
    piped = f"cat {text} | {command} --data /dev/stdin --format csv --type Person"
    run = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=False)
    assert "2 entities" in run.stdout, run.stderr
