"""A plain `pip install omnigraph` has every command: those that need Spark print how to install it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.shell import Shell
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]

_RUN = """
from tests.no_extras import hide
hide()
import json, sys
from click.testing import CliRunner
from omnigraph.cli.main import cli
ended = [CliRunner().invoke(cli, args, prog_name="omnigraph") for args in json.loads(sys.argv[1])]
print(json.dumps([[each.exit_code, each.stdout, each.stderr, repr(each.exception)] for each in ended]))
"""

_HANDLE = """
from tests.no_extras import hide
hide()
import sys
import omnigraph
with omnigraph.open(sys.argv[1]) as graph:
    graph.pipeline.optimize(engine="local")
    graph.pipeline.analyse(engine="local").pagerank()
    for work in (
        lambda: graph.pipeline.load(sys.argv[2], mode="merge"),
        lambda: graph.pipeline.export(sys.argv[2] + ".out"),
        lambda: graph.pipeline.analyse(engine="spark").pagerank(),
    ):
        try:
            work()
        except omnigraph.errors.SparkUnavailableError as error:
            assert error.hint == "pip install 'omnigraph[spark]'", error.hint
        else:
            assert False, "Spark was not needed"
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMNIGRAPH_FSYNC": "0"}


@pytest.fixture
def people(shell: Shell, graph: str) -> str:
    lines = ('{"type": "Person", "data": {"name": "ann"}}', '{"edge": "Knows", "from": "ann", "to": "ann", "data": {}}')
    path = shell.write("people.ndjson", "\n".join(lines))
    assert shell.run("load", graph, "--data", path, "--mode", "merge").exit_code == 0
    assert shell.run("branch", "create", "side", "--uri", graph).exit_code == 0
    shell.add_person(graph, "bob", branch="side")
    return path


@pytest.mark.slow
def test_only_commands_that_need_spark_report_a_missing_package(shell: Shell, graph: str, people: str) -> None:
    declared = shell.write(
        "p.yaml", f"pipeline: p\ngraph: {graph}\nsources: {{rows: {{files: {people}}}}}\nload: {{rows: rows}}\n"
    )
    works = [
        ["optimize", graph],
        ["analytics", "pagerank", graph],
        ["analytics", "components", graph, "--json"],
        ["export", graph],
        ["export", graph, "--out", str(shell.root / "out.ndjson")],
        ["branch", "merge", "side", "--uri", graph],
        ["load", graph, "--data", people, "--mode", "merge"],
        ["query", "--uri", graph, "-e", "match { $p: Person } return { $p.name }"],
        ["verify", graph],
        ["indexes", graph],
        ["cleanup", graph, "--keep", "3"],
    ]
    needs = [
        ["load", graph, "--data", people, "--mode", "merge", "--engine", "spark"],
        ["export", graph, "--out", str(shell.root / "spark.ndjson"), "--engine", "spark"],
        ["branch", "merge", "side", "--uri", graph, "--engine", "spark"],
        ["analytics", "pagerank", graph, "--engine", "spark"],
    ]
    checks = [["pipeline", "check", declared], ["pipeline", "run", declared, "--check"]]
    program = [sys.executable, "-c", _RUN, json.dumps([*needs, *works, *checks])]
    ran = subprocess.run(program, env=environment(), capture_output=True, text=True, check=True, timeout=PATIENCE)
    answers = json.loads(ran.stdout)
    for args, (code, _, said, error) in zip(needs, answers, strict=False):
        assert (code, error) == (1, "SystemExit(1)"), (args, said)
        assert "pyspark is not installed\n  help: pip install 'omnigraph[spark]'" in said, args
    for args, (code, _, said, error) in zip(works, answers[len(needs) :], strict=False):
        assert (code, error) == (0, "None"), (args, said)
    for args, (code, _, said, error) in zip(checks, answers[len(needs) + len(works) :], strict=True):
        assert code in (0, 1), args
        assert "internal error" not in said, (args, error)


@pytest.mark.slow
def test_only_commands_that_decide_report_a_missing_cedar(shell: Shell) -> None:
    rule = "{id: r, allow: {actors: {group: crew}, actions: [read]}}"
    bundle = shell.write("policy.yaml", f"version: 1\ngroups: {{crew: [kim]}}\nrules: [{rule}]\n")
    needs = [["policy", "validate", "--policy", bundle]]
    works = [["policy", "denials", "--file", shell.write("denials.jsonl", "")]]
    program = [sys.executable, "-c", _RUN, json.dumps([*needs, *works])]
    ran = subprocess.run(program, env=environment(), capture_output=True, text=True, check=True, timeout=PATIENCE)
    missing, listed = json.loads(ran.stdout)
    assert missing[0] == 1
    assert "the package cedarpy, which is not installed\n  help: pip install 'omnigraph[policy]'" in missing[2]
    assert (listed[0], listed[3]) == (0, "None")


@pytest.mark.slow
def test_a_handle_reports_the_missing_package(graph: str, people: str) -> None:
    program = [sys.executable, "-c", _HANDLE, graph, people]
    ran = subprocess.run(program, env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.slow
def test_the_tests_of_the_command_line_pass_without_extras() -> None:
    program = [sys.executable, "-m", "pytest", "-q", "-p", "tests.no_extras", "-p", "no:cacheprovider", "tests/cli"]
    picked = ["-m", "not spark and not slow", "--ignore", "tests/cli/test_without_extras.py"]
    some = environment() | {"OMNIGRAPH_CASES": "2"}
    ran = subprocess.run(
        [*program, *picked], cwd=ROOT, env=some, capture_output=True, text=True, check=False, timeout=1200
    )
    assert ran.returncode == 0, ran.stdout[-5000:]
