"""What the tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.shell import Shell


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here pulls the plug."""
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def graph(shell: Shell) -> str:
    """The address of a graph that has only been created."""
    return shell.init()
