"""`make bench` runs every benchmark, and reports every failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import run

MET = "b.goal('easy', 1, 2)"
MISSED = "b.goal('hard', 3, 2)"
BROKEN = "raise RuntimeError('no such file')"


def folder_with(folder: Path, **bodies: str) -> Path:
    source = Path(run.__file__).with_name("harness.py")
    (folder / "harness.py").write_bytes(source.read_bytes())
    for name, body in bodies.items():
        script = f"from harness import Benchmark\nb = Benchmark({name!r})\n{body}\nb.finish()\n"
        (folder / f"{name}.py").write_text(script, encoding="utf-8")
    return folder


@pytest.mark.parametrize(("body", "code"), [(MET, 0), (MISSED, 1), (BROKEN, 1)])
def test_the_exit_code_reports_failures(tmp_path: Path, body: str, code: int) -> None:
    assert run.main([], folder_with(tmp_path, one=body)) == code


def test_the_run_continues_after_a_missed_goal_and_a_broken_benchmark(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = folder_with(tmp_path, a=BROKEN, b=MISSED, c=MET)
    assert run.main(["--quick", "--json", str(tmp_path / "all.json")], folder) == 1
    printed = capfd.readouterr().out
    assert "GOAL easy: measured 1, goal at most 2: met" in printed
    assert "missed: b: hard" in printed
    assert "failed: a" in printed
    reports = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert [report["benchmark"] for report in reports] == ["b", "c"]


def test_helper_modules_are_not_run_as_benchmarks() -> None:
    names = {path.name for path in run.benchmarks(run.HERE)}
    assert not names & {"harness.py", "run.py"}
