"""The benchmark of changes runs at a small size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import change
import harness


@pytest.mark.slow
def test_the_benchmark_of_changes_runs_at_a_small_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(harness, "QUICK_ROUNDS", 1)
    monkeypatch.setattr(change, "QUICK_SMALL", 300)
    monkeypatch.setattr(change, "QUICK_CHANGED", (10, 200))
    with pytest.raises(SystemExit):
        change.main(["--quick", "--rows", "2000", "--json", str(tmp_path / "out.json")])
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert [goal["name"] for goal in report["goals"]] == [
        "a diff of 10 changed rows, by the size of the table",
        "a diff of 10 changed rows",
        "a diff of 200 changed rows, by the size of the table",
        "the feed of 10 changed rows, by the size of the table",
        "the feed of 10 changed rows",
        "the feed of 200 changed rows, by the size of the table",
    ]
