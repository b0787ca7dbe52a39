"""`make demo`: every step of the tour works as shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import demo

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_the_tour_runs(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", "")  # writing Java's class archive takes longer than the load
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
    (main, review) = re.findall(r"^(?:main|review) +(\d+) nodes +(\d+) edges +(\d+) commits$", printed, re.MULTILINE)
    assert [int(after) - int(before) for before, after in zip(main, review, strict=True)] == [2, 4, 3]


def test_without_java_the_tour_runs_in_one_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    stops = demo.tour()
    assert demo.LOAD_HERE in stops
    assert demo.LOAD not in stops
    assert len(stops) == len(demo.TOUR)
    printed = capsys.readouterr().out
    assert "# Spark needs Java, and " in printed
    assert "So the tour goes on without Spark, in one process" in printed
    assert "install Java 17 or newer" in printed


def test_a_stop_that_fails_ends_the_tour(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    broken = (demo.Step("Broken.", "omnigraph check missing.pg"), demo.Step("Never seen.", "omnigraph version"))
    monkeypatch.setattr(demo, "TOUR", broken)
    assert demo.main() == 1
    printed, errors = capfd.readouterr()
    assert "demo: that ended with exit code" in errors
    assert "Never seen." not in printed
