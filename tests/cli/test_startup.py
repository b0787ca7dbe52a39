"""The command line starts quickly: help does not load the engine."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"pyarrow", "lance", "datafusion", "pyspark", "obstore", "numpy", "re2", "omnigraph.lang", "rich", "pandas"}

_LOADED = """
import sys
from omnigraph.cli.main import cli
try:
    cli.main(args={args!r}, prog_name="omnigraph")
except SystemExit:
    pass
import json
print("LOADED" + json.dumps(sorted(sys.modules)))
"""


def loaded_by(*args: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", _LOADED.format(args=list(args))], capture_output=True, text=True, check=True
    )
    return set(json.loads(run.stdout.partition("LOADED")[2]))


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["--version"],
        ["version"],
        ["lint", "--help"],
        ["schema", "plan", "--help"],
        ["init", "--help"],
        ["branch", "create", "--help"],
        ["commit", "list", "--help"],
        ["load", "--help"],
        ["pipeline", "run", "--help"],
        ["analytics", "pagerank", "--help"],
        ["snapshot", "--help"],
        ["branch", "list"],
    ],
    ids=" ".join,
)
def test_help_loads_no_engine(args: list[str]) -> None:
    assert not loaded_by(*args) & HEAVY


def test_check_loads_no_engine() -> None:
    modules = loaded_by("check", "examples/papers/schema.pg", "examples/papers/queries.gq")
    assert "omnigraph.lang" in modules
    assert not modules & (HEAVY - {"re2", "omnigraph.lang"})


def test_help_takes_under_100_ms_of_cpu(tmp_path: Path) -> None:
    """CPU time, the best of several runs, relative to the start of Python itself on this machine.

    Starting Python takes 11 ms on the reference machine, and the limit is nine times that.
    """
    # With compiled bytecode, as on a machine with default settings.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)

    def cpu(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)

    rounds = [(cpu("-m", "omnigraph.cli.main", "--help"), cpu("-c", "pass")) for _ in range(7)]
    ours, python = (min(times) for times in zip(*rounds, strict=True))
    assert ours < max(0.1, 9 * python)
