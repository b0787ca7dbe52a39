"""`omnigraph version` prints the version."""

from __future__ import annotations

import json

from tests.cli.shell import Shell

from omnigraph import __version__


def test_the_version_is_printed_as_text_and_json(shell: Shell) -> None:
    assert shell.run("version").output == f"omnigraph {__version__}\ninternal-schema 2\n"
    assert shell.run("--version").output == f"omnigraph {__version__}\n"
    printed = shell.run("version", "--json").output
    members = json.loads(printed)
    assert printed == json.dumps(members, indent=2) + "\n"
    assert (members["version"], members["internal_schema_version"]) == (__version__, 2)


def test_an_unknown_command_is_a_usage_error(shell: Shell) -> None:
    result = shell.run("frobnicate")
    assert result.exit_code == 2
