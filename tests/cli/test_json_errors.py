"""With --json, every failed command prints one JSON object of one shape to stdout, and its text to stderr."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from tests.cli.shell import Shell
from tests.patience import PATIENCE

from omnigraph.cli import query as queries
from omnigraph.cli.main import cli
from omnigraph.errors import REPORTS
from omnigraph.errors.body import CODES

MEMBERS = {"error", "code", "kind", "disposition", "hint", "diagnostic", "span", "location", "exit_code"}
DETAILS = {"precondition_failure", "key_conflict", "resource_limit", "merge_conflicts", "total_conflicts"}
KINDS = {error.code for error in REPORTS} | {"usage", "io", "interrupted", "internal"}


def failed(shell: Shell, *args: str, code: int = 1) -> dict[str, Any]:
    ended = shell.run(*args)
    assert ended.exit_code == code, ended.output
    body: dict[str, Any] = json.loads(ended.stdout)
    assert body.keys() <= MEMBERS | DETAILS
    assert body["exit_code"] == code
    assert body.get("code", "internal") in CODES
    assert body["kind"] in KINDS
    assert ended.stderr.strip()
    assert body["error"].splitlines()[0] in ended.stderr
    return body


def with_json(command: click.Command, path: list[str]) -> list[list[str]]:
    """All commands with the option --json."""
    if isinstance(command, click.Group):
        return [found for name, sub in command.commands.items() for found in with_json(sub, [*path, name])]
    return [path] if any("--json" in param.opts for param in command.params) else []


@pytest.mark.parametrize("command", with_json(cli, []), ids=" ".join)
def test_every_command_reports_wrong_arguments_as_json(shell: Shell, command: list[str]) -> None:
    body = failed(shell, *command, "--json", "--no-such-option", code=2)
    assert body["kind"] == "usage"
    assert "--no-such-option" in body["error"]


def test_arguments_of_the_program_are_reported_too(shell: Shell) -> None:
    assert failed(shell, "--nope", "--json", code=2)["error"] == "No such option '--nope'."
    assert "Did you mean 'query'?" in failed(shell, "qeury", "--json", code=2)["error"]
    assert failed(shell, "load", "--json", code=2)["kind"] == "usage"
    assert "stdout" not in shell.fails("--nope", code=2)


def test_errors_of_commands_have_the_members_of_http(shell: Shell, graph: str) -> None:
    body = failed(shell, "query", "--uri", graph, "-e", "match { $p: Persn } return { $p.name }", "--json")
    assert body == {
        "error": "type error: T1: there is no node type Persn",
        "code": "bad_request",
        "kind": "type",
        "disposition": "fix",
        "hint": "did you mean 'Person'?",
        "diagnostic": "T1",
        "span": {"start": 12, "end": 17},
        "location": {"file": "-e", "line": 1, "column": 13},
        "exit_code": 1,
    }
    assert failed(shell, "snapshot", str(shell.root / "none"), "--json")["kind"] == "not_found"
    assert failed(shell, "branch", "delete", "x", "--uri", graph, "--json")["kind"] == "branch_not_found"
    add_person = ["mutate", "--uri", graph, "-e", 'insert Person { name: "a" }']
    assert shell.run(*add_person).exit_code == 0
    read = ["query", "--uri", graph, "-e", "match { $p: Person } return { $p.name }", "--format", "json"]
    limit = failed(shell, *read, "--rows", "0")["resource_limit"]
    assert limit == {"resource": "rows", "limit": 0, "actual": 1}


def test_a_lost_precondition_keeps_its_shape(shell: Shell, graph: str) -> None:
    add = ["mutate", "--uri", graph, "-e", 'insert Person { name: "a" }', "--if-commit", "0" * 26, "--json"]
    body = failed(shell, *add, code=4)
    assert set(body["precondition_failure"]) == {"expected", "actual"}
    assert body["kind"] == "precondition_failed"


def test_reports_are_printed_alone(shell: Shell) -> None:
    wrong = shell.write("wrong.gq", "query q() { match { $p: Nobody } return { $p.name } }")
    ended = shell.run("lint", "--schema", shell.schema, "--query", wrong, "--json")
    assert ended.exit_code == 1
    assert json.loads(ended.stdout)["status"] == "error"


def test_a_value_that_looks_like_the_option_asks_for_nothing(shell: Shell) -> None:
    assert shell.run("query", "--nope", "--", "--json").stdout == ""


def test_unexpected_errors_are_json_too(shell: Shell, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, kind in (
        (KeyError("x"), "internal"),
        (MemoryError(), "internal"),
        (PermissionError(13, "no", "f"), "io"),
    ):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(queries, "budget", fail)
        body = failed(shell, "query", "--uri", graph, "-e", "match { $p: Person } return { $p.name }", "--json")
        assert body["kind"] == kind

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(queries, "budget", interrupt)
    body = failed(shell, "query", "--uri", graph, "-e", "match { $p: Person } return { $p.name }", "--json", code=130)
    assert body["error"] == "stopped"


def test_an_error_after_a_part_of_the_result_adds_nothing(
    shell: Shell, graph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.changes.diff import Diff

    def broken(*_: object) -> Any:
        yield b'{"part": 1'
        raise OSError(5, "Input/output error", "table")

    monkeypatch.setattr(Diff, "json_chunks", broken)
    ended = shell.run("diff", "main", "main", "--uri", graph, "--json")
    assert (ended.exit_code, ended.stdout) == (1, '{"part": 1')
    assert "Input/output error" in ended.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device on this system")
def test_a_full_disk_leaves_the_text() -> None:
    program = [sys.executable, "-m", "omnigraph.cli.main", "snapshot", "nowhere", "--json"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, check=False, timeout=PATIENCE)
    assert ended.returncode == 1
    assert b"Traceback" not in ended.stderr
    assert b"nowhere" in ended.stderr
