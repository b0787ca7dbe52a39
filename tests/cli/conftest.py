"""Fixtures of the command line tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.shell import Shell


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync: no test here simulates a power failure."""
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def graph(shell: Shell) -> str:
    """The path of a new graph."""
    return shell.init()
