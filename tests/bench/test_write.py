"""The write benchmark runs at any size, checks its goals, and reports a missing peer."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.json
import pyarrow.parquet
import pytest

import harness
import write
from bulk.data import write_files

TINY = ["--quick", "--rows", "20", "--commits", "2", "--nodes", "50", "--edges", "120"]


def test_both_formats_hold_the_same_rows(tmp_path: Path) -> None:
    write_files(tmp_path, 50, 120)
    for name, member in (("Person", "city"), ("Knows", "since")):
        table = pyarrow.parquet.read_table(tmp_path / "parquet" / f"{name}.parquet")
        lines = (tmp_path / "ndjson" / f"{name}.ndjson").read_text().splitlines()
        assert [json.loads(line)["data"][member] for line in lines] == [str(v) for v in table[member].to_pylist()]


@pytest.mark.slow
def test_the_write_benchmark_runs_at_a_small_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness, "SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(write, "LADYBUG", tmp_path / "nowhere")
    with pytest.raises(SystemExit) as stop:
        write.main([*TINY, "--json", str(tmp_path / "out.json")])
    assert stop.value.code == 0
    printed = capfd.readouterr().out
    assert "ladybug is not installed" in printed
    assert "rows/s" in printed
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert {timing["name"] for timing in report["timings"]} == {
        *(f"one {what}, 20 rows, 2 commits" for what in ("insert", "upsert", "update", "edge insert")),
        *(f"a transaction of {count} inserts" for count in (1, 8, 64)),
        "a load of 170 rows from parquet",
        "a load of 170 rows from ndjson",
    }
    assert [goal["name"] for goal in report["goals"]] == [
        "peak memory of a load from parquet",
        "peak memory of a load from ndjson",
    ]
