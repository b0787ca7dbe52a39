"""No command ends in a traceback: closed streams, broken input, paths that are not graphs, and internal errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.shell import Shell
from tests.patience import PATIENCE, until

from omnigraph.cli import query as queries
from omnigraph.settings import DEBUG

READ = "match { $p: Person } return { $p.name }"
CODED = "\x1b[31mred\x1b[0m"


@pytest.fixture
def filled(shell: Shell, graph: str) -> str:
    shell.add_person(graph, CODED)
    return graph


def run(*args: str, redirect: str = "", **options: object) -> subprocess.CompletedProcess[bytes]:
    """Run the command in its own process, started by a shell."""
    program = ["sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, "-m", "omnigraph.cli.main", *args]
    return subprocess.run(program, capture_output=True, check=False, timeout=PATIENCE, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("redirect", ["<&-", "0>/dev/null"], ids=["closed", "for writing"])
def test_an_unreadable_stdin_is_reported(graph: str, redirect: str) -> None:
    for args in (["load", graph, "--data", "-", "--mode", "merge", "--quiet"], ["fmt", "-", "--language", "pg"]):
        ended = run(*args, redirect=redirect)
        assert (ended.returncode, ended.stdout) == (1, b"")
        assert ended.stderr.startswith(b"cannot read stdin: ")


@pytest.mark.slow
def test_a_shell_without_stdin_is_reported(graph: str) -> None:
    ended = run("shell", graph, redirect="<&-")
    assert (ended.returncode, ended.stderr.splitlines()[0]) == (1, b"cannot read stdin: it is closed")


@pytest.mark.slow
def test_closed_stdout_and_stderr_are_handled(filled: str) -> None:
    ended = run("query", "--uri", filled, "-e", READ, redirect=">&-")
    assert (ended.returncode, ended.stderr) == (1, b"cannot write to stdout: it is closed\n")
    ended = run("query", "--uri", filled, "-e", READ, "--format", "csv", redirect="2>&-")
    assert (ended.returncode, ended.stdout) == (0, f"p.name\n{CODED}\n".encode())
    assert run("query", "--uri", "nowhere", "-e", READ, redirect=">&- 2>&- <&-").returncode == 1


@pytest.mark.slow
def test_a_write_without_output_is_refused_or_reported_as_done(filled: str) -> None:
    def insert(name: str, redirect: str) -> subprocess.CompletedProcess[bytes]:
        query = f'insert Person {{ name: "{name}" }}'
        return run("mutate", "--uri", filled, "-e", query, "--quiet", redirect=redirect)

    def count() -> bytes:
        return run("query", "--uri", filled, "-e", READ, "--format", "csv").stdout

    before = count()
    ended = insert("closed", ">&-")
    assert (ended.returncode, b"nothing was written" in ended.stderr, count()) == (1, True, before)
    if Path("/dev/full").exists():
        ended = insert("full", ">/dev/full")
        assert (ended.returncode, b"the write is done" in ended.stderr) == (1, True)
        assert b"full" in count()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device on this system")
def test_help_on_a_full_disk_is_an_error(filled: str) -> None:
    for args in (["--help"], ["load", "--help"], ["version"]):
        ended = run(*args, redirect=">/dev/full")
        assert (ended.returncode, ended.stderr) == (1, b"cannot use the output: No space left on device\n"), args


@pytest.mark.slow
@pytest.mark.parametrize("format", ["csv", "json", "jsonl"])
def test_piped_data_is_not_escaped(filled: str, format: str) -> None:
    ended = run("query", "--uri", filled, "-e", READ, "--format", format)
    shown = CODED if format == "csv" else CODED.replace("\x1b", "\\u001b")
    assert shown.encode() in ended.stdout


def test_fmt_keeps_every_byte(shell: Shell) -> None:
    text = f'node A @description("{CODED}") {{\n    a: String\n}}\n'.encode()
    ended = run("fmt", "-", "--language", "pg", input=text)
    assert (ended.returncode, ended.stdout) == (0, text)


@pytest.mark.parametrize("args", [["snapshot"], ["verify"], ["optimize", "--quiet"], ["export"]], ids=" ".join)
def test_a_file_given_as_graph_is_reported(shell: Shell, args: list[str]) -> None:
    file = shell.write("file", "x")
    assert f"{file} is not a directory; a local graph is a directory" in shell.fails(args[0], file, *args[1:])


def test_init_refuses_an_existing_file(shell: Shell) -> None:
    assert "is not a directory" in shell.fails("init", shell.write("file", "x"), "--schema", shell.schema)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_directory_without_permission_is_reported(shell: Shell, graph: str) -> None:
    Path(graph).chmod(0)
    try:
        assert "Permission denied" in shell.fails("snapshot", graph)
    finally:
        Path(graph).chmod(0o700)


def test_a_directory_with_a_read_error_is_reported(shell: Shell, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: object) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("omnigraph.storage.uri.os.listdir", refused)
    assert f"cannot read {graph}: Permission denied" in shell.fails("snapshot", graph)


def test_an_internal_error_is_reported_in_one_line(shell: Shell, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        """A Rust panic, as Python receives it."""

    for error in (KeyError("x"), RecursionError("too deep"), Panic("index out of bounds\n  at lib.rs"), MemoryError()):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(queries, "budget", fail)
        said = shell.fails("query", "--uri", graph, "-e", READ)
        if isinstance(error, MemoryError):
            assert said == "out of memory\n"
        else:
            first, second = said.splitlines()
            assert first.startswith(f"internal error: {type(error).__name__}: ")
            assert "please report it" in second
    monkeypatch.setenv(DEBUG.name, "1")
    assert "Traceback (most recent call last):" in shell.fails("query", "--uri", graph, "-e", READ)


def test_explain_in_the_shell_explains_the_query_on_its_line(shell: Shell, filled: str) -> None:
    def asked(text: str) -> str:
        return shell.run("shell", filled, stdin=text).output

    first = "match { $k: Person  $k knows $o } return { $o.age }"
    one = asked(f":explain {READ}\n")
    assert "Person" in one
    assert asked(f"{first};\n:explain {READ}\n").endswith(one)
    assert asked(f":explain {READ};\n") == one
    assert asked(f":explain {READ.replace('return', chr(10) + 'return')};\n") == one
    assert asked(f":explain query shell() {{\n{READ}\n}}\n").count("\n") == one.count("\n")
    assert asked(f"{READ};\n:explain\n").endswith(one)


def test_the_shell_continues_after_invalid_lines(shell: Shell, filled: str) -> None:
    ended = shell.run("shell", filled, stdin=":nope\n:set\n:params {\nmatch nonsense;\n:format zz\n" + READ + ";\n")
    assert ended.exit_code == 1
    assert "1 row" in ended.output


INTERRUPTED_IN_EXEC = """
import sys

from omnigraph.cli.failures import report

try:
    exec("raise KeyboardInterrupt")
except KeyboardInterrupt as error:
    sys.exit(report(error))
"""


def test_an_interrupt_inside_exec_has_the_same_exit_code(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_IN_EXEC)
    ended = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"stopped\n")


REPLACED_INTERRUPTS = {
    "by an error of a class": """
class Descriptor:
    def __set_name__(self, owner, name):
        interrupt()

class Owner:
    member = Descriptor()
""",
    "by an error of the library": """
try:
    interrupt()
except KeyboardInterrupt:
    raise RuntimeError("the connection is closed") from None
""",
    "by an unrelated error": """
with suppress(KeyboardInterrupt):
    interrupt()
raise ImportError("multiarray failed to import")
""",
    "by a handler": """
def handle(number, frame):
    raise ValueError("cannot cancel the jobs")

signal.signal(signal.SIGINT, handle)
interrupt()
""",
    "not at all": "interrupt()",
}

INTERRUPTED_COMMAND = """
import os, signal, sys, time
from contextlib import suppress

from omnigraph.cli import main as command

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

@command.cli.command()
def work():
    exec({source!r}, globals())

command.main(["work"])
"""


@pytest.mark.parametrize("source", REPLACED_INTERRUPTS.values(), ids=REPLACED_INTERRUPTS)
def test_an_interrupt_that_is_replaced_by_another_error_stops_a_command(tmp_path: Path, source: str) -> None:
    """Whatever a library makes of Ctrl-C, the command reports the interrupt, and not an internal error."""
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_COMMAND.format(source=source))
    ended = subprocess.run([sys.executable, "interrupted.py"], cwd=tmp_path, capture_output=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"stopped\n")


def test_an_error_of_the_work_after_an_interrupt_is_reported_too(tmp_path: Path) -> None:
    source = """
from omnigraph.errors import ConflictError

try:
    interrupt()
finally:
    raise ConflictError("the rollback failed")
"""
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_COMMAND.format(source=source))
    ended = subprocess.run([sys.executable, "interrupted.py"], cwd=tmp_path, capture_output=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout) == (130, b"")
    assert ended.stderr.splitlines()[:2] == [b"stopped", b"the rollback failed"]


def test_an_interrupt_while_the_arguments_are_read_stops_a_command(tmp_path: Path) -> None:
    source = INTERRUPTED_COMMAND.format(source="").replace(
        "command.main(", "command._check_text = lambda *given: interrupt()\ncommand.main("
    )
    (tmp_path / "interrupted.py").write_text(source)
    ended = subprocess.run([sys.executable, "interrupted.py"], cwd=tmp_path, capture_output=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"stopped\n")


INTERRUPTED_IMPORT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "omnigraph.cli.query":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from omnigraph.cli.entry import main
sys.argv = ["omnigraph", "--help"]
main()
"""


def test_an_interrupt_while_the_commands_are_imported_stops_without_a_traceback(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT], cwd=tmp_path, capture_output=True, timeout=PATIENCE
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"stopped\n")


def commands_below(process: int) -> bytes:
    """The commands of the processes that a process has started, and of those that these have started."""
    found = b""
    with suppress(FileNotFoundError, ProcessLookupError):
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            for child in children.read_text().split():
                found += Path(f"/proc/{child}/cmdline").read_bytes() + commands_below(int(child))
    return found


@pytest.mark.spark
@pytest.mark.slow
def test_an_interrupt_ends_a_load_on_spark(shell: Shell, graph: str, tmp_path: Path) -> None:
    rows = "".join(f'{{"type": "Person", "data": {{"name": "p{i}"}}}}\n' for i in range(200_000))
    path = shell.write("many.ndjson", rows)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "omnigraph", "load", graph, "--data", path, "--mode", "merge"]
    for sign in (b"java", b"pyspark.daemon"):  # Spark is starting; tasks are running
        process = subprocess.Popen(
            [*command, "--engine", "spark", "--master", "local[2,4]", "--quiet"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        until(lambda process=process, sign=sign: sign in commands_below(process.pid) or process.poll() is not None)  # type: ignore[misc]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        if process.returncode == 0:
            continue  # it had finished before
        assert (process.returncode, out, err) == (130, b"", b"stopped\n")
        assert not list(tmp_path.glob("omnigraph-spark-*"))


@pytest.mark.parametrize("option", ["--uri", "--store"])
def test_a_repeated_graph_option_is_refused(shell: Shell, option: str) -> None:
    """A write must not go to the last of two graphs without a message."""
    refused = shell.run("mutate", "-e", "insert Person { name: 1 }", option, "one", option, "two")
    assert refused.exit_code == 2
    assert f"give {option} once" in refused.stderr
