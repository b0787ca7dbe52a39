"""`omnigraph shell`: queries one after another, from a pipe and at a terminal."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import signal
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
from omnigraph.cli.shell_input import Entry, entries_of
from omnigraph.cli.shell_session import ShellSession
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
    person, knows = "node Person\n    age: I32?\n    name: String @key\n", "edge Knows: Person -> Person\n"
    assert said(shell, people, ":schema") == person + knows + "    since: Date?\n    @key(dst, src)\n"
    assert said(shell, people, ":schema Person") == person + knows
    assert said(shell, people, ":schema Knows") == knows + "    since: Date?\n    @key(dst, src)\n"


def test_hints_of_the_shell_name_commands_that_exist(shell: Shell, people: str) -> None:
    refused = shell.run("shell", people, stdin=':explain insert Person { name: "x" };\n').stderr
    assert refused.startswith("this is a query that writes\n  help: only a query that reads has a plan\n")
    many = "\n".join(f'insert Person {{ name: "p{number}" }}' for number in range(120))
    shown = said(shell, people, f"query many() {{ {many} }}", ":diff").splitlines()[-1]
    assert re.fullmatch(r"… and 20 more changes; omnigraph diff \w{26} \w{26} --limit N shows more", shown)


def test_branches_can_be_listed_and_selected(shell: Shell, people: str) -> None:
    shell.run("branch", "create", "dev", "--uri", people)
    shell.add_person(people, "cid", branch="dev")
    lines = ":branch", ":format csv", ALL, ":branch dev", ALL, ":branch nowhere", ALL
    result = shell.run("shell", people, stdin="\n".join(lines))
    everybody = "name\nann\nbob\ncid\n"
    assert result.stdout == "* main\n  dev\nname\nann\nbob\non branch dev\n" + everybody * 2
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


# ---- writes

INSERT = 'insert Person { name: "cid", age: 7 };'


def test_queries_that_write_are_commits_on_the_current_branch(shell: Shell, people: str) -> None:
    shell.run("branch", "create", "dev", "--uri", people)
    text = said(
        shell,
        people,
        ":format csv",
        ":branch dev",
        INSERT,
        "query older($to: I32) {",
        '  update Person set { age: $to } where name = "cid"',
        "}",
        ":set to 8",
        'query older($to: I32) { update Person set { age: $to } where name = "cid" }',
        'delete Person where name = "ann";',
        "match { $p: Person } return { $p.name as n, $p.age as a } order { n };",
        ":branch main",
        "match { $p: Person } return { $p.name as n } order { n };",
        code=1,
        args=("--as", "eve"),
    )
    assert "n,a\nbob,null\ncid,8\non branch main\nn\nann\nbob\n" in text
    assert [line.split(":")[0] for line in text.splitlines() if line.startswith("changed")] == [
        "changed dev via shell",
        "changed dev via older",
        "changed dev via shell",
    ]
    assert "actor_id: eve" in text
    commits = shell.json("commit", "list", people, "--branch", "dev")["commits"]
    assert [commit["actor_id"] for commit in commits[:3]] == ["eve"] * 3


def test_a_read_only_shell_refuses_writes(shell: Shell, people: str) -> None:
    data = shell.write("more.ndjson", '{"type": "Person", "data": {"name": "dan"}}\n')
    result = shell.run("shell", people, "--read-only", stdin=f"{INSERT}\n:load append {data}\n{ALL}\n")
    assert result.exit_code == 1
    assert (
        result.stderr.count("the shell is read-only, so nothing was written\n  help: start it without --read-only") == 2
    )
    assert "2 rows from branch main" in result.stdout


def test_a_shell_that_only_reads_opens_the_graph_read_only(shell: Shell, people: str) -> None:
    session = ShellSession(people, "main", None, "csv")
    with session:
        session.run(one_entry(ALL))
        assert session.graph.read_only
        session.run(one_entry(INSERT))
        assert not session.graph.read_only


def test_a_snapshot_cannot_be_changed(shell: Shell, people: str) -> None:
    commit = shell.json("commit", "list", people)["commits"][0]["graph_commit_id"]
    result = shell.run("shell", people, "--snapshot", commit, stdin=INSERT)
    assert result.exit_code == 1
    assert f"the shell reads the state {commit}, which cannot change" in result.stderr
    assert ":branch NAME switches to the head of a branch" in result.stderr


def test_files_can_be_loaded_and_run(shell: Shell, people: str) -> None:
    data = shell.write("my rows.ndjson", '{"type": "Person", "data": {"name": "dan"}}\n')
    script = shell.write("tour.txt", f':load append "{data}"\nmatch {{ $p: Person }}\nreturn {{ count(*) as n }}\n')
    text = said(shell, people, ":format csv", f":run {script}")
    assert text.endswith("n\n3\n")
    assert f"loaded {people} on branch main with append: 1 " in text
    again = shell.run(
        "shell", people, stdin=f":load append '{data}'\n:load replace x\n:load append\n:run a b\n:run nope\n"
    )
    assert again.exit_code == 1
    assert again.stderr.count(":load needs a mode and a file") == 2
    assert ":run needs a file" in again.stderr
    assert "cannot read nope: No such file or directory" in again.stderr


def test_a_file_that_runs_itself_is_refused(shell: Shell, people: str) -> None:
    script = shell.write("loop.txt", f":run {shell.root / 'loop.txt'}\n")
    result = shell.run("shell", people, stdin=f":run {script}\n")
    assert result.exit_code == 1
    assert "a file must not run itself" in result.stderr


def test_changes_are_shown(shell: Shell, people: str) -> None:
    shell.run("branch", "create", "dev", "--uri", people)
    first = shell.json("commit", "list", people)["commits"][-1]["graph_commit_id"]
    text = said(shell, people, ":diff", INSERT, ":diff", f":diff {first}", ":branch dev", ":diff", ":diff main main")
    last, added = shell.json("commit", "list", people)["commits"][1]["graph_commit_id"], '+ cid  age: 7, name: "cid"'
    head = shell.json("commit", "list", people)["commits"][0]["graph_commit_id"]
    _, after = text.split(f"{last} → {head}\n")
    one, after = after.split(f"{first} → main\n")
    whole, after = after.split("on branch dev\nmain → dev\n")
    branch, same = after.split("main → main\n")
    assert one.startswith("1 change: 1 inserted")
    assert added in one
    assert whole.startswith("4 changes: 4 inserted")
    assert added in whole
    assert branch.startswith("1 change: 0 inserted, 0 updated, 1 deleted")
    assert same == "no changes\n"
    refused = shell.run("shell", people, "--snapshot", first, stdin=":diff\n:diff a b c\n:diff nowhere\n")
    assert "needs a state to compare with" in refused.stderr
    assert ":diff compares two states" in refused.stderr
    assert "nowhere" in refused.stderr


# ---- errors of scripts


@pytest.mark.parametrize(
    ("script", "place", "line"),
    [
        ("match { $p: Persn } return { $p.name }", "stdin:1:13", "1 | match { $p: Persn } return"),
        ("\n\n  match { $p: Persn } return { $p.name };", "stdin:3:15", "3 |   match { $p: Persn } return"),
        ("match { $p: Person }\nreturn { $p.nam };", "stdin:2:13", "2 | return { $p.nam };"),
        ("query a() {\n  match { $p: Persn }\n  return { $p.name } }", "stdin:2:15", "2 |   match { $p: Persn }"),
        (":explain match { $p: Persn } return { $p.name }", "stdin:1:22", "1 | :explain match { $p: Persn }"),
        ('insert Persn { name: "é" };', "stdin:1:8", "1 | insert Persn"),
        ('insert Person { name: "é", agee: 1 };', "stdin:1:28", "agee: 1 };"),
        ("match { $p: Person } return { $p.name", "stdin:1:38", "return { $p.name"),
        (
            "query a() { match { $p: Person } return { 1 as n } } match { $p: Persn } return { 1 as n };",
            "stdin:1:66",
            "",
        ),
    ],
)
def test_errors_show_the_line_as_it_was_typed(shell: Shell, people: str, script: str, place: str, line: str) -> None:
    result = shell.run("shell", people, stdin=script)
    assert result.exit_code == 1
    assert f"--> {place}\n" in result.stderr
    assert line in result.stderr
    assert "query shell" not in result.stderr


def test_errors_without_a_position_show_the_line_of_the_script(shell: Shell, people: str) -> None:
    result = shell.run(
        "shell",
        people,
        stdin=f"{ALL}\n:nope\n\nquery q($x: I32) {{\nmatch {{ $p: Person {{ age: $x }} }} return {{ 1 as n }} }}\n",
    )
    assert "there is no command :nope\n  help: :help lists the commands\n  --> stdin:2\n" in result.stderr
    assert "  --> stdin:4\n" in result.stderr


def test_a_script_can_stop_at_the_first_error(shell: Shell, people: str) -> None:
    result = shell.run("shell", people, "--stop-on-error", stdin=f":nope\n{ALL}\n")
    assert (result.exit_code, result.stdout) == (1, "")


def test_errors_on_the_command_line_show_the_text_as_it_was_given(shell: Shell, people: str) -> None:
    for command in ("query", "explain"):
        error = shell.fails(command, "--store", people, "-e", "match { $p: Persn } return { $p.name }")
        assert "--> -e:1:13\n" in error
        assert "1 | match { $p: Persn } return { $p.name }\n" in error
    error = shell.fails("mutate", "--store", people, "-e", "insert Persn {}")
    assert "--> -e:1:8\n" in error
    assert "1 | insert Persn {}\n" in error


def test_comments_before_a_command_are_skipped(shell: Shell, people: str) -> None:
    assert said(shell, people, "// the schema", "/* all", "of it */", ":schema Knows").startswith("edge Knows")


def test_timing_is_on_demand_and_on_stderr(shell: Shell, people: str) -> None:
    result = shell.run("shell", people, stdin=f"{ALL}\n:timing on\n{ALL}\n:timing\n:timing maybe\n")
    assert re.findall(r"(?m)^[\d.]+ m?s$", result.stderr)
    assert len(re.findall(r"(?m)^[\d.]+ m?s$", result.stderr)) == 1
    assert "timing is on\n" in result.stdout
    assert "timing is off\n" in result.stdout
    assert "'maybe' is neither on nor off" in result.stderr


def one_entry(line: str) -> Entry:
    (entry,) = entries_of([line.encode()], "test")
    return entry


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

    def __init__(self, uri: str, home: Path, environ: dict[str, str] | None = None) -> None:
        self._here, there = pty.openpty()
        command = [sys.executable, "-c", AT_A_TERMINAL, "shell", uri]
        variables = os.environ | {"OMNIGRAPH_HOME": str(home), "TERM": "dumb", "COLUMNS": "200"} | (environ or {})
        self.process = subprocess.Popen(command, stdin=there, stdout=there, stderr=there, env=variables)
        os.close(there)
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # a read may end in the middle of a character

    def send(self, text: str) -> None:
        os.write(self._here, text.encode())

    def waits_for(self, text: str) -> str:
        """Read until a text is on the screen; returns the output since the last call."""
        until(lambda: text in self.text or not self._read())
        before, found, self.text = self.text.partition(text)
        assert found, f"{before!r} came instead of {text!r}"
        return before

    def says(self, line: str, answer: str) -> str:
        """Send a line after the prompt, and wait for an answer and the next prompt."""
        self.send(f"{line}\n")
        before = self.waits_for(answer)
        return before + self.waits_for("> ")

    def _read(self) -> bool:
        ready, _, _ = select.select([self._here], [], [], 0.1)
        try:
            self.text += self._decoder.decode(os.read(self._here, 65_536)) if ready else ""
        except OSError:  # the other end is closed
            return False
        return True

    def cpu_seconds(self) -> float:
        """The CPU time of the process so far, which does not depend on other processes."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def leaves(self) -> int:
        """Send Ctrl-D, and return the exit code."""
        self.send("\x04")
        until(lambda: not self._read())
        return self.process.wait(PATIENCE)

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
    terminal.waits_for(" ms")  # timing is on
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
    assert terminal.leaves() == 0
    history = tmp_path / "home" / "shell_history"
    one_line = "query all() { match { $p: Person } return { $p.name as name } }"
    assert history.read_text().splitlines() == [one_line, ":schema"]
    assert history.stat().st_mode & 0o777 == 0o600
    again = Terminal(people, tmp_path / "home")
    try:
        again.waits_for("main> ")
        again.send("\x10\x10\n")  # Ctrl-P twice: the input before the last
        again.waits_for("2 rows from branch main via all")
        again.waits_for("main> ")
        assert again.leaves() == 0
    finally:
        again.end()
    assert history.read_text().splitlines() == [one_line, ":schema", one_line]


@pytest.mark.slow
def test_a_user_writes_and_switches_branches_at_a_terminal(terminal: Terminal, shell: Shell, people: str) -> None:
    shell.run("branch", "create", "dev", "--uri", people)
    terminal.waits_for("main> ")
    terminal.send(":branch d\t\n")
    terminal.waits_for("on branch dev")
    terminal.waits_for("dev> ")
    terminal.says(INSERT, "changed dev via shell: 1 ")
    terminal.says(":diff", "1 inserted")
    script = shell.write("script.gq", ALL)
    terminal.send(f":run {script[:-5]}\t\n")
    terminal.waits_for("3 rows from branch dev via all")
    terminal.waits_for("dev> ")
    terminal.says("match { $p: Persn } return { 1 as n };", "--> input:1:13")
    assert terminal.leaves() == 0  # errors that a user has seen do not change the exit code


@pytest.mark.slow
def test_a_terminal_shows_the_first_rows_and_all_on_demand(shell: Shell, graph: str, tmp_path: Path) -> None:
    with omnigraph.open(graph) as opened:
        opened.load({"Person": pa.table({"name": [f"p{n:03}" for n in range(80)]})}, mode="append")
    terminal = Terminal(graph, tmp_path / "home")
    try:
        terminal.waits_for("main> ")
        terminal.says(":all", "all rows of the last query were printed")
        shown = terminal.says("match { $p: Person } return { $p.name as n } order { n };", " ms")
        assert "p049" in shown
        assert "p050" not in shown
        assert ":all shows them" in shown
        assert "p079" in terminal.says(":all", "80 rows")
        assert terminal.leaves() == 0
    finally:
        terminal.end()


SLOW_QUERY = (
    "match { $a: Person  $b: Person  $c: Person  $d: Person  $a.age + $b.age + $c.age = $d.age } "
    "return { count(*) as n };"
)


@pytest.mark.slow
def test_ctrl_c_stops_a_query_and_not_the_shell(shell: Shell, graph: str, tmp_path: Path) -> None:
    with omnigraph.open(graph) as opened:
        names = [f"p{n}" for n in range(3_000)]
        opened.load({"Person": pa.table({"name": names, "age": pa.array(range(3_000), pa.int32())})}, mode="append")
    terminal = Terminal(graph, tmp_path / "home")
    try:
        terminal.waits_for("main> ")
        for _ in range(3):
            terminal.send(f"{SLOW_QUERY}\n")
            began = terminal.cpu_seconds()
            until(lambda began=began: terminal.cpu_seconds() > began + 0.5)  # type: ignore[misc]  # the query runs
            terminal.send("\x03")
            began = terminal.cpu_seconds()
            terminal.waits_for("stopped")
            assert terminal.cpu_seconds() - began < 10
            terminal.waits_for("main> ")
            terminal.says("match { $p: Person } return { count(*) as n };", "3000")
        assert terminal.leaves() == 0
    finally:
        terminal.end()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "message", "names"),
    [
        ("leased", "stopped: nothing was written", ["ann", "bob"]),
        ("published", "stopped: the branch has a new commit, ", ["ann", "bob", "cid"]),
    ],
)
def test_ctrl_c_during_a_write_reports_its_outcome(
    shell: Shell, people: str, tmp_path: Path, point: str, message: str, names: list[str]
) -> None:
    held = tmp_path / "held"
    terminal = Terminal(people, tmp_path / "home", environ={"OMNIGRAPH_FAILPOINT": f"{point}#1=hold:{held}"})
    try:
        terminal.waits_for("main> ")
        terminal.send(f"{INSERT}\n")
        until(held.exists)
        terminal.send("\x03")
        terminal.waits_for(message)
        terminal.waits_for("main> ")
        terminal.says("match { $p: Person } return { count(*) as n };", f"\r\n{len(names)}\r\n")
        terminal.says('insert Person { name: "eve" };', "changed main via shell: 1 ")
        assert terminal.leaves() == 0
    finally:
        terminal.end()
    with omnigraph.open(people) as opened:
        rows = opened.query("query q() { match { $p: Person } return { $p.name as n } order { n } }").to_pylist()
    assert [row["n"] for row in rows] == [*names, "eve"]


@pytest.mark.slow
def test_ctrl_c_ends_a_script(shell: Shell, people: str, tmp_path: Path) -> None:
    held = tmp_path / "held"
    environ = os.environ | {"OMNIGRAPH_FAILPOINT": f"before_publish#1=hold:{held}"}
    script = shell.write("script.gq", f"{INSERT}\n:schema\n")
    command = [sys.executable, "-m", "omnigraph", "shell", people]
    with (
        open(script, "rb") as lines,
        subprocess.Popen(
            command, stdin=lines, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, text=True
        ) as process,
    ):
        until(held.exists)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, "", "stopped\n")


# ---- completion and statements


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (":br", [":branch"]),
        (":branch d", ["dev"]),
        (":explain match { $p: P", ["Person"]),
        ("insert P", ["Person"]),
        ("insert Person { na", ["name"]),
        ('insert Person { name: "x", a', ["age"]),
        ("insert Knows { fr", ["from"]),
        ("update Person set { a", ["age"]),
        ("update Person set { age: 1 } where na", ["name"]),
        ("delete Person wh", ["where"]),
        ("match { $p: Person { a", ["age"]),
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
    words = {":branch": lambda _: ["main", "dev"], ":help": lambda _: [], ":explain": lambda _: []}
    completer = Completer(compile_schema(SCHEMA), words)
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
    assert [statement.text for line in lines for statement in statements.add(line)] == expected
    rest = statements.finish()
    assert (None if rest is None else rest.text) == left
