"""Every step of `make demo` works as shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import demo

README = Path(__file__).parents[1] / "README.md"

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_the_demo_runs(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", "")  # writing the class archive of Java takes longer than the load
    assert demo.main() == 0
    printed, errors = capfd.readouterr()
    for stop in demo.TOUR:
        assert f"# {stop.why}\n$ " in printed
        if isinstance(stop, demo.Step):
            assert f"$ {stop.command}\n" in printed
    assert "dst 'nowhere' not found in Institution" in errors
    assert "loading on Spark: as requested" in errors
    assert "The file of a paper." in printed
    assert "Surface code" in printed, "what an author should read"
    assert "papers: 23" in printed, "what an expert has written"
    (shown,) = re.findall(
        r"^```text\n.*\n((?:.*\n)+?)```", README.read_text(encoding="utf-8").partition("## Two")[0], re.M
    )
    assert shown in printed
    (main, review) = re.findall(r"^(?:main|review) +(\d+) nodes +(\d+) edges +(\d+) commits$", printed, re.MULTILINE)
    assert [int(after) - int(before) for before, after in zip(main, review, strict=True)] == [2, 4, 3]


def test_without_java_the_demo_runs_in_one_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    stops = demo.tour()
    assert demo.LOAD_HERE in stops
    assert demo.LOAD not in stops
    assert len(stops) == len(demo.TOUR)
    printed = capsys.readouterr().out
    assert "# Spark needs Java, and " in printed
    assert "The demo runs in one process, without Spark" in printed
    assert "install Java 17 or newer" in printed


def test_a_failing_step_ends_the_demo(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    broken = (demo.Step("Broken.", "omnigraph check missing.pg"), demo.Step("Never seen.", "omnigraph version"))
    monkeypatch.setattr(demo, "TOUR", broken)
    assert demo.main() == 1
    printed, errors = capfd.readouterr()
    assert "demo: that ended with exit code" in errors
    assert "Never seen." not in printed
