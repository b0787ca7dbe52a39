"""One grammar of options: the same word means the same in every command, and old spellings go on working."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from tests.cli.shell import Shell

from omnigraph.cli.files import _SourceFile
from omnigraph.cli.main import _graph_as_option, cli


def leaves(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from leaves(each, (*path, name))
    else:
        yield " ".join(path), command


COMMANDS = dict(leaves())


def options(command: click.Command) -> dict[str, click.Option]:
    """The options of a command by each of their spellings."""
    return {name: one for one in command.params if isinstance(one, click.Option) for name in one.opts}


def arguments(command: click.Command) -> list[click.Argument]:
    return [one for one in command.params if isinstance(one, click.Argument)]


WORDS = {
    "--json": None,
    "--yes": None,
    "--quiet": None,
    "--dry-run": None,
    "--confirm": None,
    "--store": "URI",
    "--uri": "URI",
    "--server": "NAME|URL",
    "--graph": "ID",
    "--profile": "NAME",
    "--as": "ACTOR",
    "--branch": "BRANCH",
    "--snapshot": "ID",
    "--at": "COMMIT|TAG|TIME",
    "--if-commit": "ID",
    "--unchanged-since": "ID",
    "--idempotency-key": "KEY",
    "--timeout": "SECONDS",
    "--message": "TEXT",
    "--schema": "FILE",
    "--params": "JSON",
    "--params-file": "FILE",
    "-e": "GQ",
    "--engine": None,
    "--master": "MASTER",
    "--color": None,
}
"""The value of each option that several commands have; None for flags and choices."""

OTHER_VALUES = {
    ("tag create", "--at"),  # a tag is that of a commit, never of a time
    ("query", "--query"),
}


@pytest.mark.parametrize("word", WORDS)
def test_a_word_has_the_same_value_in_every_command(word: str) -> None:
    found = defaultdict(set)
    for name, command in COMMANDS.items():
        option = options(command).get(word)
        if option is not None and (name, word) not in OTHER_VALUES:
            choices = tuple(option.type.choices) if isinstance(option.type, click.Choice) else None
            found[(option.metavar, option.is_flag, choices)].add(name)
    assert len(found) == 1, found
    ((metavar, is_flag, choices),) = found
    assert metavar == WORDS[word]
    assert is_flag == (WORDS[word] is None and choices is None)


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_eighty_columns(name: str) -> None:
    shown = CliRunner().invoke(cli, [*name.split(), "--help"], prog_name="omnigraph", terminal_width=80)
    assert shown.exit_code == 0
    assert [line for line in shown.stdout.splitlines() if len(line) > 80] == []


def test_every_command_whose_result_is_no_stream_prints_json() -> None:
    streams = {"shell", "serve", "export", "blob get"}
    assert {name for name, command in COMMANDS.items() if "--json" not in options(command)} == streams


GRAPHLESS = {"init", "import neo4j", "import kuzu", "import rdf", "restore", "check", "serve"}
"""Commands whose first argument is the graph by their own rules."""


@pytest.mark.parametrize("name", [name for name, one in COMMANDS.items() if "--store" in options(one)])
def test_the_graph_is_an_option_and_the_first_argument(name: str) -> None:
    command = COMMANDS[name]
    assert {"--store", "--uri"} <= set(options(command))
    needs_all = not name.startswith("queries")  # these have nothing to do in a graph without a directory
    required = [f"a{one.name}" for one in arguments(command) if one.required or not needs_all]
    given = [*name.split(), "some.omni", *required]
    if name in GRAPHLESS or any(one.name == "uri" for one in arguments(command)):
        assert arguments(command)[0].name in ("uri", "source", "given")
    else:
        assert _graph_as_option(cli, given) == [*name.split(), "--uri", "some.omni", *required]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_rehearsal_is_a_dry_run(name: str) -> None:
    """`fmt --check` is another thing: it tells whether files are formatted."""
    if name == "fmt":
        return
    taken = options(COMMANDS[name])
    for old in ("--preview", "--check"):
        assert old not in taken or taken[old].opts == ["--dry-run", old]
    assert ("--confirm" in taken) <= ("--dry-run" in taken)


READ_BY_THE_ENGINE = {
    ("load", "--data"),
    ("ingest", "--data"),
    ("embed", "--input"),
}
"""Options that take `-`, and whose files are opened by the engine."""

NO_STDIN = {
    ("serve", "--policy"),  # they are read again on SIGHUP
    ("serve", "--config"),
    ("policy denials", "--file"),  # a log that grows
    ("embed", "--output"),
    ("query", "--out"),
}


def test_every_file_to_read_can_be_stdin() -> None:
    missing = set()
    for name, command in COMMANDS.items():
        for spelling, option in options(command).items():
            is_file = (option.metavar or "").startswith(("FILE", "OLD.pg", "NEW.pg")) and "--out" not in option.opts
            if is_file and not isinstance(option.type, _SourceFile) and spelling.startswith("--"):
                missing.add((name, spelling))
    assert (
        missing
        - READ_BY_THE_ENGINE
        - NO_STDIN
        - {
            ("infer", "--columns"),  # FILE=A,B: the names of columns
            *((name, "--reads") for name in COMMANDS),  # a file, a query, or -
        }
        == set()
    )


PEOPLE = "query people($than: I32?) { match { $p: Person } return { $p.name as name } order { name } }\n"
ADD = "query add($n: String) { insert Person { name: $n } }"


def test_stdin_is_a_dash(shell: Shell, graph: str) -> None:
    head = shell.add_person(graph, "ann")
    schema = shell.run("schema", "show", graph).stdout
    people = shell.write("people.gq", PEOPLE)
    for args, text in [
        (["query", graph, "--query", "-"], PEOPLE),
        (["query", graph, "--query", people, "--params-file", "-"], "{}"),
        (["explain", graph, "--query", "-"], PEOPLE),
        (["mutate", graph, "-e", ADD, "--params", '{"n": "dan"}', "--unchanged-since", head, "--reads", "-"], PEOPLE),
        (["mutate", graph, "--query", "-", "--params", '{"n": "bob"}'], ADD),
        (["mutate", graph, "-e", ADD, "--params-file", "-"], '{"n": "cat"}'),
        (["lint", "--schema", "-", "--query", people], schema),
        (["lint", graph, "--query", "-"], PEOPLE),
        (["check", "--schema", shell.schema, "--query", "-"], PEOPLE),
        (["check", "--schema", "-", "--query", people], schema),
        (["schema", "plan", graph, "--schema", "-"], schema),
        (["schema", "apply", graph, "--schema", "-"], schema),
        (["init", str(shell.root / "made"), "--schema", "-", "--json"], schema),
        (["load", graph, "--data", "-", "--mode", "merge"], '{"type":"Person","data":{"name":"eve"}}'),
    ]:
        found = shell.run(*args, stdin=text)
        assert found.exit_code == 0, (args, found.output)
    for args in (["query", graph, "--query", "-", "--params-file", "-"], ["lint", "--schema", "-", "--query", "-"]):
        assert "two options name standard input (-)" in shell.fails(*args, code=2)
    said = shell.run("query", graph, "--query", "-", stdin="query q( {").stderr
    assert "<stdin>:1:" in said


def test_old_spellings_are_silent(shell: Shell, graph: str) -> None:
    head = shell.add_person(graph, "ann")
    shell.run("branch", "create", graph, "side")
    rows = '{"type":"Person","data":{"name":"eve"}}'
    for new, old in [
        (["branch", "merge", graph, "side", "--dry-run"], ["branch", "merge", "side", "--store", graph, "--preview"]),
        (["revert", graph, head, "--dry-run"], ["revert", head, "--uri", graph, "--preview"]),
        (["cleanup", graph, "--keep", "3", "--dry-run"], ["cleanup", graph, "--keep", "3"]),
        (["repair", graph, "--dry-run"], ["repair", graph]),
        (["snapshot", graph, "--at", head], ["snapshot", graph, "--snapshot", head]),
        (["query", graph, "-e", PEOPLE, "--at", head], ["query", "--uri", graph, "-e", PEOPLE, "--snapshot", head]),
        (["blame", graph, "Person", "ann"], ["blame", "Person", "ann", "--uri", graph]),
    ]:
        one, other = shell.run(*new), shell.run(*old)
        assert (one.exit_code, other.exit_code) == (0, 0), (new, one.stderr, other.stderr)
        assert (one.stdout, one.stderr) == (other.stdout, other.stderr)
    for option in ("--check", "--dry-run"):
        found = shell.run("load", graph, "--data", "-", "--mode", "append", option, "--quiet", stdin=rows)
        assert (found.exit_code, found.stderr) == (0, "")
        assert found.stdout.startswith("checked ")
    for option in ("--commit", "--at"):
        assert shell.run("tag", "create", graph, f"t{option}", option, head).exit_code == 0
    for command in (["cleanup", graph, "--keep", "3"], ["repair", graph]):
        assert "give --dry-run or --confirm, not both" in shell.fails(*command, "--dry-run", "--confirm", code=2)
    assert "give --branch or --at with a commit, not both" in shell.fails(
        "snapshot", graph, "--at", head, "--branch", "side", code=2
    )


def test_the_environment_names_the_graph_of_every_command(
    shell: Shell, graph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.add_person(graph, "ann")
    monkeypatch.setenv("OMNIGRAPH_STORE", graph)
    copy = str(shell.root / "copy")
    for args in (["backup", copy], ["backup", graph, copy], ["relocate"], ["verify"], ["status"], ["tag", "list"]):
        found = shell.run(*args)
        assert found.exit_code == 0, (args, found.output)
    assert "name the graphs once" in shell.fails("serve", copy, "--store", graph, code=2)


def test_a_master_means_spark(shell: Shell, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    people = shell.write("people.ndjson", '{"type":"Person","data":{"name":"ann"}}\n')
    load = ["load", graph, "--data", people, "--mode", "merge", "--master", "nonsense://x"]
    assert "--engine local uses none" in shell.fails(*load, "--engine", "local", code=2)
    assert shell.run(*load, "--engine", "auto").exit_code == 0  # a small load needs no Spark
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    said = shell.fails(*load)
    assert "Spark" in said or "Java" in said
    shell.write("omnigraph.toml", 'engine = "local"\n')
    monkeypatch.chdir(shell.root)
    assert "--engine local uses none" not in shell.fails(*load)
