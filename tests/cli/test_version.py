"""`omnigraph version` prints the version."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.cli.shell import Shell

from omnigraph import __version__


def test_the_version_is_printed_as_text_and_json(shell: Shell) -> None:
    assert shell.run("version").output == f"omnigraph {__version__}\ninternal-schema 3\n"
    assert shell.run("--version").output == f"omnigraph {__version__}\n"
    printed = shell.run("version", "--json").output
    members = json.loads(printed)
    assert printed == json.dumps(members, indent=2) + "\n"
    assert (members["version"], members["internal_schema_version"]) == (__version__, 3)


def test_an_unknown_command_is_a_usage_error(shell: Shell) -> None:
    result = shell.run("frobnicate")
    assert result.exit_code == 2


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "omnigraph"]
    found = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert found.stdout == f"omnigraph {__version__}\n"
    wrong = subprocess.run([*command, "frobnicate"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
