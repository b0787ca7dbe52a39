"""The load benchmark runs at any size, and rejects a load with a different result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import load
from bulk.processes import descendants
from harness import Benchmark

RUN = {"seconds": 1.0, "peak": 1, "rows": {"node:Person": 10, "edge:Knows": 50}, "commits": 1, "digest": {"a": "1"}}
SPARK, LOCAL = load.Contender(load.SPARK, "ndjson"), load.Contender(load.LOCAL, "ndjson")


@pytest.mark.slow
@pytest.mark.spark
def test_the_load_benchmark_runs_at_a_small_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(load, "LADYBUG", tmp_path / "nowhere")
    with pytest.raises(SystemExit) as stop:
        load.main(["--quick", "--rows", "600", "--formats", "ndjson", "--json", str(tmp_path / "out.json")])
    printed = capfd.readouterr().out
    assert stop.value.code == 0, printed
    assert "ladybug is not installed" in printed
    assert "start of the session" in printed
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert [(timing["name"], timing["contender"]) for timing in report["timings"]] == [
        ("a load of 600 rows from ndjson", contender)
        for contender in ("Spark from ndjson", "in process from ndjson", "no checks from ndjson")
    ]
    assert [goal["name"] for goal in report["goals"]] == ["memory of the driver, 600 rows from ndjson"]


@pytest.mark.parametrize(
    "other", [{"rows": {"node:Person": 10, "edge:Knows": 49}}, {"commits": 2}, {"digest": {"a": "2"}}]
)
def test_a_load_with_a_different_result_fails_the_benchmark(other: dict[str, object]) -> None:
    size = load.Size(60, {SPARK: [RUN]})
    load.agree(size, LOCAL, RUN)
    with pytest.raises(AssertionError, match="in process from ndjson"):
        load.agree(size, LOCAL, {**RUN, **other})


def test_goals_apply_to_full_sizes_only(capsys: pytest.CaptureFixture[str]) -> None:
    bench = Benchmark("load", [], load.flags)
    ways = [load.SPARK, load.LOCAL, load.COPY]
    sizes = [
        load.Size(
            rows,
            {
                load.Contender(way, kind): [{"seconds": rows / 1e6 * (2 + ways.index(way)), "peak": 1, "java": 1 << 30}]
                for way in ways
                for kind in ("ndjson", "parquet")
            },
        )
        for rows in load.FULL
    ]
    load.goals(bench, sizes)
    assert [(goal.name.partition(",")[0], round(goal.measured, 2)) for goal in bench.goals] == [
        *[("memory of the driver", 1.0)] * 4,
        ("Spark against one process", 0.67),
        ("Spark against one process", 0.67),
        ("Spark against ladybug's COPY", 0.5),
        ("Spark from ndjson", 1.0),
        ("Spark from parquet", 1.0),
    ]


def test_descendants_of_a_process_are_found() -> None:
    assert all(isinstance(name, str) for _, name in descendants(1))
