"""`omnigraph shell`: queries one after another, from a pipe and at a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.shell import SCHEMA, Shell
from tests.patience import PATIENCE, until

import omnigraph
from omnigraph.cli.completion import Completer
from omnigraph.cli.statements import Statements
from omnigraph.lang.schema import compile_schema

ALL = "query all() { match { $p: Person } return { $p.name as name } order { name } }"


@pytest.fixture
def people(shell: Shell, graph: str) -> str:
    with omnigraph.open(graph) as opened:
        opened.load(
            {"Person": pa.table({"name": ["ann", "bob"]}), "Knows": [{"from": "ann", "to": "bob"}]}, mode="append"
        )
    return graph


def said(shell: Shell, uri: str, *lines: str, code: int = 0, args: tuple[str, ...] = ()) -> str:
    """The output of a session that reads lines from a pipe."""
    result = shell.run("shell", uri, *args, stdin="".join(f"{line}\n" for line in lines))
    assert result.exit_code == code, result.output
    return result.stdout


# ---- from a pipe


def test_queries_from_a_pipe_are_run_in_order(shell: Shell, people: str) -> None:
    assert said(
        shell, people, "query all() {", "    match { $p: Person }", "    return { $p.name as name }", "}", ALL
    ) == ("2 rows from branch main via all\nname\n----\nann\nbob\n" * 2)


def test_a_query_may_be_given_without_its_head(shell: Shell, people: str) -> None:
    text = said(
        shell,
        people,
        ":format csv",
        "match { $p: Person } return { $p.name as a }; match { $p: Person } return { count(*) as b };",
        "match { $p: Person }",
        "return { max($p.name) as c }",
        "",
        "match { $p: Person } return { min($p.name) as d }",
    )
    assert text == "a\nann\nbob\nb\n2\nc\nbob\nd\nann\n"


def test_parameters_can_be_set(shell: Shell, people: str) -> None:
    friends = "query f($who: String) { match { $p: Person { name: $who }  $p knows $f } return { $f.name as name } }"
    assert said(shell, people, ":set who ann", ":set n 3", ":params", friends, args=("--format", "csv")) == (
        '$who: "ann"\n$n: 3\nname\nbob\n'
    )
    assert said(shell, people, ":params", ":set n 3", ':params {"who": "ann"}', ":params") == 'none\n$who: "ann"\n'
    assert ":params: not valid JSON" in shell.run("shell", people, stdin=":params {who\n").stderr


def test_an_error_is_reported_and_the_session_continues(shell: Shell, people: str) -> None:
    lines = (
        "query q() { match { $p: Persn } return { $p.name } }",
        ":nope",
        ":format x",
        ":set a",
        ":schema Persom",
        ALL,
    )
    result = shell.run("shell", people, stdin="\n".join(lines))
    assert result.exit_code == 1
    assert "2 rows from branch main via all" in result.stdout
    for message in (
        "there is no node type Persn",
        "there is no command :nope",
        "'x' is not an output format",
        ":set needs a parameter and its value",
        "there is no type Persom\n  help: did you mean 'Person'?",
    ):
        assert message in result.stderr


def test_the_schema_can_be_shown(shell: Shell, people: str) -> None:
    person = "node Person\n    age: I32?\n    name: String\n"
    assert said(shell, people, ":schema") == person + "edge Knows: Person -> Person\n    since: Date?\n"
    assert said(shell, people, ":schema Person") == person


def test_branches_can_be_listed_and_selected(shell: Shell, people: str) -> None:
    shell.run("branch", "create", "dev", "--uri", people)
    shell.add_person(people, "cid", branch="dev")
    lines = ":branch", ":format csv", ALL, ":branch dev", ALL, ":branch nowhere", ALL
    result = shell.run("shell", people, stdin="\n".join(lines))
    everybody = "name\nann\nbob\ncid\n"
    assert result.stdout == "* main\n  dev\nname\nann\nbob\nreading dev\n" + everybody * 2
    assert "nowhere" in result.stderr


def test_a_session_on_a_snapshot_does_not_change(shell: Shell, people: str) -> None:
    commit = shell.json("commit", "list", people)["commits"][0]["graph_commit_id"]
    shell.add_person(people, "cid")
    text = said(shell, people, ALL, args=("--snapshot", commit))
    assert text.startswith(f"2 rows from snapshot {commit} via all\n")


def test_the_last_query_can_be_explained(shell: Shell, people: str) -> None:
    text = said(shell, people, ALL, ":explain", ":analyze")
    assert text.count("scan $p: Person") == 2
    assert "2 rows in" in text
    assert "there is no earlier query" in shell.run("shell", people, stdin=":explain\n").stderr


def test_help_and_quit_work(shell: Shell, people: str) -> None:
    text = said(shell, people, ":help", ":quit", ALL)
    assert ":branch [NAME]" in text
    assert "rows" not in text.partition("Ctrl-C")[2]


@pytest.mark.parametrize("word", ["exit", "quit", "Quit;", ":exit"])
def test_help_and_quit_work_without_a_colon(shell: Shell, people: str, word: str) -> None:
    assert ":branch [NAME]" in said(shell, people, "help", word)
    assert said(shell, people, word, ALL) == ""


# ---- at a terminal


AT_A_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # now Ctrl-C interrupts this process
from omnigraph.cli.main import main
main(sys.argv[1:])
"""


class Terminal:
    """A session at its own terminal."""

    def __init__(self, uri: str, home: Path) -> None:
        self._here, there = pty.openpty()
        command = [sys.executable, "-c", AT_A_TERMINAL, "shell", uri]
        environ = os.environ | {"OMNIGRAPH_HOME": str(home), "TERM": "dumb", "COLUMNS": "200"}
        self.process = subprocess.Popen(command, stdin=there, stdout=there, stderr=there, env=environ)
        os.close(there)
        self.text = ""

    def send(self, text: str) -> None:
        os.write(self._here, text.encode())

    def waits_for(self, text: str) -> str:
        """Read until a text is on the screen; returns the output since the last call."""
        until(lambda: text in self.text or not self._read())
        before, found, self.text = self.text.partition(text)
        assert found, f"{before!r} came instead of {text!r}"
        return before

    def _read(self) -> bool:
        ready, _, _ = select.select([self._here], [], [], 0.1)
        try:
            self.text += os.read(self._here, 65_536).decode() if ready else ""
        except OSError:  # the other end is closed
            return False
        return True

    def end(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        os.close(self._here)


@pytest.fixture
def terminal(people: str, tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(people, tmp_path / "home")
    yield made
    made.end()


@pytest.mark.slow
def test_a_session_at_a_terminal_supports_completion_and_history(
    terminal: Terminal, people: str, tmp_path: Path
) -> None:
    terminal.waits_for("main> ")
    terminal.send("query all() {\n")
    terminal.waits_for("… ")
    terminal.send("match { $p: Person } return { $p.name as name } }\n")
    terminal.waits_for("2 rows from branch main via all")
    terminal.waits_for("main> ")
    terminal.send("match { $p: Pers\t")
    terminal.waits_for("Person")
    terminal.send("\x03")  # Ctrl-C discards the current input
    terminal.waits_for("main> ")
    terminal.send(":sch\t")
    terminal.waits_for(":schema")
    terminal.send("\n")
    terminal.waits_for("edge Knows: Person -> Person")
    terminal.waits_for("main> ")
    terminal.send("\x04")  # Ctrl-D
    until(lambda: not terminal._read())
    assert terminal.process.wait(PATIENCE) == 0
    history = tmp_path / "home" / "shell_history"
    assert "query all() {" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
    again = Terminal(people, tmp_path / "home")
    try:
        again.waits_for("main> ")
        again.send("\x10")  # Ctrl-P: the previous input
        again.waits_for(":schema")
    finally:
        again.end()


# ---- completion and statements


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (":br", [":branch"]),
        (":branch d", ["dev"]),
        ("que", ["query"]),
        ("match { $p: P", ["Person"]),
        ("match { $p: Person  $p.", ["$p.age", "$p.id", "$p.name"]),
        ("match { $p: Person  $p kn", ["knows"]),
        ("match { $p: Person  $p $k:kn", ["$k:knows"]),
        ("match { $p knows $friend  $friend.a", ["$friend.age"]),
        ("match { $p: Person  $p $k:knows $f  $k.", ["$k.from", "$k.id", "$k.since", "$k.to"]),
        ("match { $person: Person } return { $per", ["$person"]),
        ("match { $p: Person } return { cou", ["count"]),
        ("match { $p: Robot  $p.na", ["$p.name"]),
        ("xyz", []),
    ],
)
def test_names_and_keywords_are_completed(before: str, expected: list[str]) -> None:
    completer = Completer(compile_schema(SCHEMA), {":branch": ["main", "dev"], ":help": []})
    assert completer.complete(before) == expected


@pytest.mark.parametrize(
    ("lines", "expected", "left"),
    [
        (["query a() { match { $p: P } return { $p.x } }"], ["query a() { match { $p: P } return { $p.x } }"], None),
        (["query a() {", "}", "query b() {"], ["query a() {\n}"], "query b() {"),
        (['query a() { "}" }'], ['query a() { "}" }'], None),
        (['query a() { "\\"}" }'], ['query a() { "\\"}" }'], None),
        (["query a() { // }", "}"], ["query a() { // }\n}"], None),
        (["query a() { /* }", "} */ }"], ["query a() { /* }\n} */ }"], None),
        (["// query", "match { x }", ""], ["// query\nmatch { x }"], None),
        (["match { a } return { b }; match { c }"], ["match { a } return { b }"], "match { c }"),
        (["match {", "", "a }", "   ", "more"], ["match {\n\na }"], "more"),
        (["", "  ", ";"], [], None),
        (["match { $a knows{1,2} $b } limit 3;"], ["match { $a knows{1,2} $b } limit 3"], None),
    ],
)
def test_lines_are_split_into_statements(lines: list[str], expected: list[str], left: str | None) -> None:
    statements = Statements()
    assert [statement for line in lines for statement in statements.add(line)] == expected
    assert statements.finish() == left
