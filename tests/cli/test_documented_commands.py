"""Commands and options that other tools and scripts of this kind of system know: they exist, and are documented."""

from __future__ import annotations

import click
import pytest

from omnigraph.cli.main import cli

COMMANDS = {
    "init": "--schema --force",
    "query": "--query -e --query-string --params --params-file --branch --snapshot --format --json",
    "read": "--query -e --params --params-file --branch --snapshot --format --json",
    "mutate": "--query -e --params --params-file --branch --if-commit --json",
    "change": "--query -e --params --params-file --branch --if-commit --json",
    "load": "--data --mode --branch --from --json --yes --as --quiet",
    "ingest": "--data --branch --from --mode --json",
    "branch create": "--uri --from --json",
    "branch list": "--uri --json",
    "branch delete": "--uri --json --yes",
    "branch merge": "--uri --into --delete-branch --json",
    "snapshot": "--branch --json",
    "export": "--branch --type --jsonl",
    "blob get": "--branch --snapshot --offset --length --out",
    "blob stat": "--branch --snapshot --json",
    "commit list": "--branch --json",
    "commit show": "--uri --json",
    "commit changes": "--uri --limit --page-token --kind --type --op --json",
    "changes poll": "--uri --branch --cursor --start --limit --kind --type --op --json",
    "changes baseline": "--uri --branch --kind --type --op --out --json",
    "schema plan": "--schema --allow-data-loss --json",
    "schema apply": "--schema --allow-data-loss --json",
    "schema show": "--json",
    "schema get": "--json",
    "optimize": "--json",
    "repair": "--confirm --force --json",
    "cleanup": "--keep --older-than --confirm --json --yes",
    "lint": "--query --schema --json",
    "check": "--query --schema --json",
    "policy validate": "",
    "policy test": "--tests",
    "policy explain": "--actor --action --branch --target-branch",
    "embed": "--seed --input --output --spec --clean --reembed-all --type --select --json",
    "version": "",
}
"""The documented commands with their options. The commands of clusters are not part of this list."""

WITH_GRAPH = ("load", "ingest", "snapshot", "export", "commit list", "changes poll", "schema show", "optimize", "lint")
"""Commands that take the graph as their argument."""


def found(path: str) -> click.Command:
    command: click.Command = cli
    for name in path.split():
        assert isinstance(command, click.Group)
        command = command.commands[name]
    return command


@pytest.mark.parametrize("path", COMMANDS)
def test_a_documented_command_has_its_options(path: str) -> None:
    known = {option for parameter in found(path).params for option in parameter.opts}
    assert set(COMMANDS[path].split()) <= known


@pytest.mark.parametrize("path", WITH_GRAPH)
def test_a_command_takes_the_graph_as_its_argument(path: str) -> None:
    assert any(isinstance(parameter, click.Argument) and parameter.name == "uri" for parameter in found(path).params)
