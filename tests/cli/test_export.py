"""`export`: the graph on stdout, or in files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from tests.cli.shell import Shell
from tests.s3_server import S3Root

import omnigraph
from omnigraph.engine.requests import ExportRequest
from omnigraph.errors import SparkUnavailableError
from omnigraph.pipeline import backend
from omnigraph.pipeline.backend import SparkBackend
from omnigraph.settings import SPARK_THRESHOLD


@pytest.fixture
def filled(shell: Shell, graph: str) -> str:
    shell.add_person(graph, "bob")
    shell.add_person(graph, "ann")
    return graph


LINES = [
    '{"type":"Person","data":{"id":"ann","age":null,"name":"ann"}}',
    '{"type":"Person","data":{"id":"bob","age":null,"name":"bob"}}',
]


def test_ndjson_is_written_to_stdout(shell: Shell, filled: str) -> None:
    for args in ([filled], ["--uri", filled], ["--store", filled], [filled, "--jsonl"], [filled, "--format", "ndjson"]):
        result = shell.run("export", *args)
        assert result.exit_code == 0
        assert result.stdout.splitlines() == LINES
        assert result.stderr == ""
    assert "--jsonl" not in shell.run("export", "--help").stdout


def test_types_branches_and_snapshots_can_be_selected(shell: Shell, filled: str) -> None:
    with omnigraph.open(filled) as graph:
        first = next(commit for commit in graph.commits if commit.labels == (("step", "bob"),)).id
        graph.branches.create("work")
    shell.add_person(filled, "cid", branch="work")
    assert shell.run("export", filled, "--type", "Knows").stdout == ""
    assert shell.run("export", filled, "--type", "Knows", "--type", "Person").stdout.splitlines() == LINES
    assert shell.run("export", filled, "--snapshot", first).stdout.splitlines() == LINES[1:]
    assert len(shell.run("export", filled, "--branch", "work").stdout.splitlines()) == 3
    assert "did you mean 'Person'?" in shell.fails("export", filled, "--type", "Persn")
    assert "not both" in shell.fails("export", filled, "--branch", "work", "--snapshot", first, code=2)
    assert "there is no branch" in shell.fails("export", filled, "--branch", "nope")


def test_an_export_can_be_written_to_files(shell: Shell, filled: str) -> None:
    out = shell.root / "people.ndjson"
    result = shell.run("export", filled, "--out", str(out))
    assert (result.exit_code, result.output) == (0, "")
    assert out.read_text().splitlines() == LINES
    directory = shell.root / "people.parquet"
    assert shell.run("export", filled, "--format", "parquet", "--out", str(directory)).exit_code == 0
    rows = pyarrow.parquet.read_table(directory / "node.Person.parquet")
    assert rows["id"].to_pylist() == ["ann", "bob"]
    assert "add --out" in shell.fails("export", filled, "--format", "arrow", code=2)
    assert "is not an empty directory" in shell.fails("export", filled, "--format", "arrow", "--out", str(directory))


@pytest.mark.slow
def test_a_closed_pipe_is_not_an_error(shell: Shell, filled: str, tmp_path: Path) -> None:
    rows = "".join(f'{{"type":"Person","data":{{"name":"p{number}"}}}}\n' for number in range(20_000))
    with omnigraph.open(filled) as graph:
        graph.load(shell.write("more.ndjson", rows), mode="append")
    command = [sys.executable, "-m", "omnigraph.cli.main", "export", filled]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == LINES[0] + "\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        process.wait()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device on this system")
@pytest.mark.parametrize("command", [["export"], ["snapshot", "--json"]])
def test_a_full_disk_is_reported_in_one_line(filled: str, command: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        run = [sys.executable, "-m", "omnigraph.cli.main", *command, filled]
        ended = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "cannot use the output: No space left on device\n")


def test_a_dash_means_stdout(shell: Shell, filled: str) -> None:
    assert shell.run("export", filled, "--out", "-").stdout == shell.run("export", filled).stdout != ""
    assert not Path("-").exists()


@pytest.mark.slow
def test_a_closed_stdout_is_reported(filled: str) -> None:
    run = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "omnigraph.cli.main", "export", filled]
    ended = subprocess.run(run, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr.splitlines()[0]) == (1, "cannot write to stdout: it is closed")


def test_the_engine_is_chosen_by_size(shell: Shell, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[object, ...]] = []

    def export(self: SparkBackend, session: object, view: object, parts: object, request: ExportRequest) -> None:
        made.append((request.target, request.format, request.types, request.branch, request.at))

    monkeypatch.setattr(SparkBackend, "write_export", export)
    monkeypatch.setattr(backend, "check_available", lambda: None)
    out = str(shell.root / "out")
    assert shell.run("export", filled, "--out", out).stderr == ""
    assert made == []
    monkeypatch.setenv(SPARK_THRESHOLD.name, "1")
    said = shell.run("export", filled, "--out", out, "--type", "Person", "--format", "parquet").stderr
    assert said.startswith("exporting on Spark: 0.0 MiB in tables; Spark is used from 0.0 MiB")
    assert made == [(out, "parquet", ["Person"], None, None)]
    assert shell.run("export", filled, "--out", out, "--engine", "local").stderr == ""
    assert shell.run("export", filled).stdout.splitlines() == LINES, "stdout is written here"
    assert "--engine spark writes files: add --out PATH" in shell.fails("export", filled, "--engine", "spark", code=2)

    def missing() -> None:
        raise SparkUnavailableError("Spark needs Java")

    monkeypatch.setattr(backend, "check_available", missing)
    assert shell.run("export", filled, "--out", str(shell.root / "here.ndjson")).exit_code == 0
    assert shell.read("here.ndjson").splitlines() == LINES


@pytest.mark.s3
def test_s3_options_are_read_from_the_environment(
    shell: Shell, filled: str, s3_root: S3Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_root.options.items():
        monkeypatch.setenv({"endpoint": "AWS_ENDPOINT_URL"}.get(name, f"AWS_{name.upper()}"), value)
    target = f"{s3_root.uri}/people"
    result = shell.run("export", filled, "--format", "parquet", "--out", target)
    assert (result.exit_code, result.output) == (0, "")
    with omnigraph.open(filled) as graph:
        loaded = graph.load(target, mode="merge", check=True)
    assert loaded.total == 2
    assert "is not an empty directory" in shell.fails("export", filled, "--format", "parquet", "--out", target)
    assert "the bucket does not exist" in shell.fails("export", filled, "--out", "s3://there-is-none/x")
