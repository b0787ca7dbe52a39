"""`omnigraph version` says which version this is."""

from __future__ import annotations

import json

from tests.cli.shell import Shell

from omnigraph import __version__


def test_version(shell: Shell) -> None:
    assert shell.run("version").output == f"omnigraph {__version__}\n"
    assert shell.run("--version").output == f"omnigraph {__version__}\n"
    assert json.loads(shell.run("version", "--json").output)["version"] == __version__


def test_an_unknown_command_is_a_usage_error(shell: Shell) -> None:
    result = shell.run("frobnicate")
    assert result.exit_code == 2
