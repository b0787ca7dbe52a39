"""More than 200 careless acts, each with its one-line message and exit code, without a traceback.

The acts are in `tests/fixtures/careless_acts.txt`: a command, and below it its exit code and message. UPDATE_FIXTURES=1
writes the actual messages there; read the difference before you commit it. The run without extras runs them, too.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.careless import outcome, prepare
from tests.patience import PATIENCE

from omnigraph.cli.main import cli

ACTS = Path(__file__).parents[1] / "fixtures" / "careless_acts.txt"
ALL = "match { $p: Person } return { $p.name }"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the acts. It is the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "own"))
    for name in ("OMNIGRAPH_BEARER_TOKEN", "OMNIGRAPH_PROFILE", "OMNIGRAPH_STORE"):
        monkeypatch.delenv(name, raising=False)
    prepare(tmp_path)
    return tmp_path


def acts() -> Iterator[tuple[str, str]]:
    """The commands and what they print."""
    command = ""
    for line in ACTS.read_text(encoding="utf-8").splitlines():
        if line.startswith("$ "):
            command = line.removeprefix("$ omnigraph ")
        elif line:
            yield command, line


def test_careless_acts_have_one_message_and_an_exit_code(place: Path) -> None:
    """One test, so that the run without extras, which runs few cases of each test, runs all acts."""
    before = {path: path.read_bytes() for path in place.iterdir() if path.is_file()}
    listed = list(acts())
    assert len({command for command, _ in listed}) == len(listed) >= 200
    actual = []
    for command, _ in listed:
        code, message = outcome(shlex.split(command), place)
        assert code in (1, 2), command
        actual.append((command, f"[{code}] {message}"))
    if os.environ.get("UPDATE_FIXTURES") == "1":
        ACTS.write_text("\n".join(f"$ omnigraph {command}\n{shown}\n" for command, shown in actual), encoding="utf-8")
    assert actual == listed
    assert {path: path.read_bytes() for path in place.iterdir() if path.is_file()} == before
    left = CliRunner().invoke(cli, ["query", "--uri", "g", "-e", ALL, "--format", "csv"])
    assert left.stdout == "p.name\nann\nbob\n"


def test_careless_acts_with_json_print_one_object(place: Path) -> None:
    for command, shown in acts():
        args = shlex.split(command)
        if args[0] not in ("query", "load", "mutate", "branch") or "rows.xls" in args:  # --json is a format
            continue
        ended = CliRunner().invoke(cli, [*args, "--json"], prog_name="omnigraph")
        body = json.loads(ended.stdout)
        assert (body["exit_code"], f"[{ended.exit_code}]") == (ended.exit_code, shown.partition(" ")[0]), command


@pytest.mark.parametrize(
    ("args", "stdin", "message"),
    [
        (["load", "g", "--data", "-", "--mode", "append"], b"name,age\nkim,7\n", "line 1: input: not JSON"),
        (["load", "g", "--data", "-", "--mode", "append"], b"\xff\n", "line 1: input: the text is not UTF-8"),
        (["fmt", "-", "--language", "gq"], b"qeury q() {}", "parse error: expected 'query' or the end of the text"),
        (["fmt", "-", "--language", "pg"], b"\xff\xfe", "parse error: "),
        (["shell", "g"], b"match { $p: Persn } return { $p.name };\n", "type error: T1: there is no node type Persn"),
        (["shell", "g"], b":nonsense\n", "there is no command :nonsense"),
        (["shell", "g"], b"\xff\n", "line 1 of stdin is not UTF-8"),
    ],
)
def test_careless_input_has_one_message(place: Path, args: list[str], stdin: bytes, message: str) -> None:
    code, shown = outcome(args, place, stdin)
    assert code == 1
    assert message in shown


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_files_without_permission_are_reported(place: Path) -> None:
    (place / "queries.gq").chmod(0)
    assert outcome(["query", "--uri", "g", "--query", "queries.gq"], place)[1].endswith("Permission denied")


@pytest.mark.slow
def test_a_reader_that_stops_is_not_an_error(place: Path) -> None:
    program = [sys.executable, "-m", "omnigraph.cli.main"]
    rows = "\n".join(f"p{number},{number}" for number in range(50_000))
    (place / "Person.csv").write_text(f"name,age\n{rows}\n")
    subprocess.run([*program, "load", "g", "--data", "Person.csv", "--mode", "append"], check=True, capture_output=True)
    for rest in (["query", "--uri", "g", "-e", ALL, "--format", "ndjson"], ["export", "g"]):
        with subprocess.Popen([*program, *rest], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ended:
            assert ended.stdout is not None
            assert ended.stderr is not None
            assert ended.stdout.read(5)
            ended.stdout.close()
            assert ended.stderr.read() == b""
            assert ended.wait(PATIENCE) in (0, 1)


def test_a_port_in_use_and_a_wrong_address_are_reported(place: Path) -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        address = f"127.0.0.1:{used.getsockname()[1]}"
        code, shown = outcome(["serve", "--store", "g", "--unauthenticated", "--bind", address], place)
    assert code == 1
    assert address in shown or "not installed" in shown, shown
    with socket.socket() as silent:  # nobody listens there, and nobody else gets the port
        silent.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        code, shown = outcome(["query", "--server", server, "-e", ALL], place)
    assert code == 1
    assert shown.endswith("Connection refused") or "not installed" in shown, shown


@pytest.mark.slow
def test_a_wrong_token_is_reported(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("uvicorn")
    program = [sys.executable, "-m", "omnigraph.cli.main", "serve", "--store", "g", "--bind", "127.0.0.1:0"]
    settings = {**os.environ, "OMNIGRAPH_SERVER_BEARER_TOKEN": "right"}
    with subprocess.Popen(
        program, env=settings, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip().partition("=")[2]
            assert address
            monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", "wrong")
            code, shown = outcome(["query", "--server", f"http://{address}", "-e", ALL], place)
            assert (code, "token" in shown) == (1, True), shown
            monkeypatch.delenv("OMNIGRAPH_BEARER_TOKEN")
            code, shown = outcome(["query", "--server", f"http://{address}", "-e", ALL], place)
            assert (code, "token" in shown) == (1, True), shown
        finally:
            server.terminate()
            server.wait(PATIENCE)
