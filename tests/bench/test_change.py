"""The benchmark of changes runs at a small size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import change
from changing import commits, turns


@pytest.mark.slow
def test_the_benchmark_of_changes_runs_at_a_small_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "QUICK_ROUNDS", 1)
    monkeypatch.setattr(change, "QUICK_SMALL", 300)
    monkeypatch.setattr(change, "QUICK_CHANGED", (10, 200))
    monkeypatch.setattr(commits, "FEW", 5)
    monkeypatch.setattr(commits, "MANY", 200)
    monkeypatch.setattr(commits, "ROUNDS", 1)
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
        "add a nullable property, 2,000 rows",
        "rename it, 2,000 rows",
        "drop it, 2,000 rows",
        "add a property with a default, 2,000 rows, compared with bare Lance",
        "a merge of 10 changed rows, compared with a bare upsert",
        "a merge of 200 changed rows, compared with a bare upsert",
        "commit after 20 commits, compared with 5",
        "open after 20 commits, compared with 5",
    ]


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(SystemExit, match="there is no part merges; the parts are diff, feed, schema, merge, commits"):
        change.main(["merges"])
