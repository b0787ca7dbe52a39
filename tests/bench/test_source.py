"""The source benchmark runs at any size, and compares the rows before it measures time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import harness
import source


@pytest.mark.slow
@pytest.mark.spark
def test_the_source_benchmark_runs_at_a_small_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(harness, "QUICK_ROUNDS", 1)
    with pytest.raises(SystemExit):
        source.main(["--quick", "--rows", "300", "--json", str(tmp_path / "out.json")])
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert {timing["contender"] for timing in report["timings"]} == {"ours", "parquet"}
    assert [goal["name"] for goal in report["goals"]] == [
        "a full read, against Parquet",
        "few rows by a condition, against Parquet",
        "few rows by an index, against Parquet",
    ]
