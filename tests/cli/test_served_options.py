"""Which flags commands take, and what they say about the others."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from tests.cli.shell import Shell

from omnigraph.cli.main import CAPABILITIES, capability, cli

ANY = {
    *("query", "mutate", "load", "ingest", "export", "snapshot", "blob get", "blob stat"),
    *("branch create", "branch list", "branch delete", "branch merge", "commit list", "commit show", "commit changes"),
    *("changes poll", "changes baseline", "schema show", "schema get", "schema apply", "read", "change"),
}
WRITES = {
    *("mutate", "change", "load", "ingest", "branch create", "branch delete", "branch merge", "schema apply"),
}
"""The commands of any capability that take an actor."""


def leaves(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from leaves(each, (*path, name))
    else:
        yield " ".join(path), command


LEAVES = dict(leaves())


def flags(command: click.Command) -> set[str]:
    return {option for param in command.params for option in param.opts}


def kinds() -> dict[str, str]:
    return {name: capability(name.split(), command) for name, command in LEAVES.items()}


def test_the_commands_of_each_capability() -> None:
    found = kinds()
    assert {name for name, kind in found.items() if kind == "any"} == ANY
    assert [name for name, kind in found.items() if kind == "served"] == ["graphs list"]
    assert {name.split()[0] for name, kind in found.items() if kind == "control"} == {"policy", "queries"}
    local = {name for name, kind in found.items() if kind == "local"}
    assert local >= {"alias", "login", "logout", "profile list", "profile show", "version", "fmt"}
    assert {"init", "optimize", "repair", "cleanup", "schema plan", "lint", "diff"} <= {
        name for name, kind in found.items() if kind == "direct"
    }


@pytest.mark.parametrize("name", LEAVES)
def test_flags_follow_the_capability(name: str) -> None:
    kind, taken = kinds()[name], flags(LEAVES[name])
    if name == "serve" or name.startswith("queries"):
        return
    assert ("--server" in taken) == (kind in ("any", "served"))
    assert ("--graph" in taken) == (kind == "any")
    if kind == "any":
        assert {"--store", "--profile"} <= taken
        assert ("--as" in taken) == (name in WRITES)
    if kind == "served":
        assert "--profile" in taken
        assert "--store" not in taken
    if kind == "local" or name == "init" or name.startswith("policy"):
        assert "--profile" not in taken
    if kind == "direct" and "--store" in taken:
        assert "--profile" in taken


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["optimize", "g", "--server", "x"],
            "'optimize' is a storage command; --server addresses a graph of a server and does not apply."
            " Give --store URI.",
        ),
        (
            ["--graph", "x", "schema", "plan", "g"],
            "'schema plan' is a storage command; --graph selects a graph of a server and does not apply. Omit it.",
        ),
        (
            ["fmt", "--profile", "x", "--store", "y"],
            "'fmt' is a local command; --store names the storage of an existing graph and does not apply. Omit it.",
        ),
        (
            ["graphs", "list", "--as", "kim", "--store", "x", "--graph=y"],
            "'graphs list' is a server command; --graph selects a graph of a server and does not apply. Omit it.",
        ),
        (
            ["policy", "test", "--profile", "x"],
            "'policy test' is a control command; --profile names what commands work on and does not apply. Omit it.",
        ),
        (
            ["query", "--as", "kim"],
            "'query' is a data command; --as names the actor of a write and does not apply. Omit it.",
        ),
    ],
)
def test_flags_that_do_not_apply_are_errors_in_a_fixed_order(shell: Shell, args: list[str], message: str) -> None:
    assert message in shell.fails(*args, code=2)


def test_a_graph_is_named_once(shell: Shell, graph: str) -> None:
    server = "http://127.0.0.1:1"
    for args, message in [
        (["--store", graph, "--server", server], "--server and --store exclude each other"),
        ([graph, "--uri", graph], "name the graph once"),
        ([graph, "--graph", "x"], "--graph selects a graph of a server, and the address names one graph"),
        ([server], f"{server} is the address of a server: give --server {server}"),
        (["--store", server.upper()], "is the address of a server"),
        (["--server", server, "--graph", ""], "--graph is empty"),
        (["--profile", ""], "--profile is empty"),
        (["--store="], "--store is empty"),
        (["--server", server, "--server", server], "give --server once"),
        ([], "name a graph as the first argument, or with --store URI, --server NAME|URL, or --profile NAME"),
    ]:
        assert message in shell.fails("branch", "list", *args, code=2)
    assert "there is no server 'harbour' in" in shell.fails("branch", "list", "--server", "harbour")
    assert "name a server: --server NAME|URL" in shell.fails("graphs", "list", code=2)


def test_what_needs_the_storage_is_refused_before_anything_is_sent(shell: Shell, graph: str) -> None:
    people = shell.write("people.csv", "name\nann\n")
    served = ["--server", "http://127.0.0.1:1", "--graph", "g"]
    insert = 'query q() { insert Person { name: "ann" } }'
    for args, option in [
        (["load", "--data", people, "--mode", "merge", "--engine", "local"], "--engine"),
        (["load", "--data", people, "--mode", "merge", "--check"], "--dry-run"),
        (["load", "--data", people, "--mode", "merge", "--if-commit", "x"], "--if-commit"),
        (["mutate", "-e", insert, "--timeout", "1"], "--timeout"),
        (["mutate", "-e", insert, "--unchanged-since", "x"], "--unchanged-since"),
        (["branch", "merge", "x", "--master", "local"], "--master"),
        (["commit", "show", "x", "--changes"], "--changes"),
        (["changes", "poll", "--wait", "1"], "--wait"),
        (["schema", "apply", "--schema", shell.schema, "--branch", "main"], "--branch"),
        (["export", "--engine", "local"], "--engine"),
    ]:
        said = shell.fails(*args, *served, code=2)
        assert f"{option} needs the storage of the graph, and does not apply to a graph of a server" in said
    said = shell.fails("load", "--data", people, "--mode", "merge", *served, "--quiet")
    assert "people.csv is not NDJSON, and a server loads NDJSON only" in said
    assert "a server exports ndjson only" in shell.fails(
        "export", "--format", "parquet", "--out", str(shell.root / "out"), *served, code=2
    )
    for args in (["mutate", "-e", insert], ["branch", "create", "x"], ["branch", "delete", "x", "--yes"]):
        said = shell.fails(*args, *served, "--as", "kim", code=2)
        assert "the actor comes from the token, and --as does not apply" in said
    said = shell.fails("branch", "delete", "x", *served)
    assert "deleting branch 'x' on http://127.0.0.1:1/graphs/g cannot be undone\n  help: add --yes to consent" in said
    assert "the server cannot be reached" in shell.fails("branch", "list", *served)
    misspelt = ["--server", "http://graphs..example:8080", "--graph", "g"]
    assert "the server cannot be reached: 'graphs..example' is not" in shell.fails("branch", "list", *misspelt)


def test_the_help_lists_every_command_by_its_capability(shell: Shell) -> None:
    legend = shell.run("--help").stdout.partition("Capabilities")[2]
    for name in CAPABILITIES:
        assert f"\n    {name} " in legend
    assert "branch create|list|delete|merge" in legend
