"""The benchmark harness: fair rotation, exact goal lines, and an exit code that reports missed goals."""

from __future__ import annotations

import doctest
import json
import platform
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

import harness
from harness import Benchmark, Comparison, Goal, Machine, Timing, interleave


@pytest.fixture(autouse=True)
def _instant_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "SAMPLE_SECONDS", 0.0)


def test_a_goal_is_printed_in_the_documented_form() -> None:
    assert str(Goal("parse", 277.4, 300, "µs")) == "GOAL parse: measured 277 µs, goal at most 300 µs: met"
    assert str(Goal("parse", 301, 300, "µs")) == "GOAL parse: measured 301 µs, goal at most 300 µs: missed"
    assert str(Goal("speedup", 4.0, 3, at_least=True)) == "GOAL speedup: measured 4, goal at least 3: met"


@pytest.mark.parametrize(
    ("measured", "at_least", "met"),
    [(9, False, True), (10, False, True), (11, False, False), (9, True, False), (10, True, True), (11, True, True)],
)
def test_a_goal_is_met_up_to_and_including_its_limit(measured: float, at_least: bool, met: bool) -> None:
    assert Goal("g", measured, 10, at_least=at_least).met is met


def test_contenders_run_in_rotating_order() -> None:
    calls: list[str] = []
    work = {name: (lambda name=name: calls.append(name)) for name in ("a", "b", "c")}
    timings = interleave(work, rounds=3)
    timed = calls[-9:]
    assert timed == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert {name: len(timing.samples) for name, timing in timings.items()} == {"a": 3, "b": 3, "c": 3}


def test_contenders_are_warmed_up_before_the_first_round() -> None:
    calls: list[str] = []
    interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=1)
    assert Counter(calls[:-2]) == {"a": 2, "b": 2}


def test_short_work_is_repeated_until_it_can_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0

    def work() -> None:
        nonlocal clock
        clock += 0.00001

    monkeypatch.setattr(harness, "SAMPLE_SECONDS", 0.002)
    monkeypatch.setattr(harness, "time", SimpleNamespace(perf_counter=lambda: clock))
    assert 200 <= harness.warm_up(work) < 400


def test_median_ignores_an_outlier() -> None:
    assert Timing("t", (1.0, 1.0, 1.0, 50.0, 1.0)).median == 1.0


def test_speedup_is_theirs_over_ours() -> None:
    comparison = Comparison("c", Timing("ours", (2.0,)), {"peer": Timing("peer", (5.0,))})
    assert comparison.speedup("peer") == 2.5


def test_a_peer_cannot_shadow_ours() -> None:
    with pytest.raises(ValueError, match="ours"):
        Benchmark("b", []).compare("c", ours=int, peers={"ours": int})


def test_quick_takes_fewer_rounds() -> None:
    result = Benchmark("b", ["--quick"]).compare("c", ours=int, rounds=15)
    assert len(result.ours.samples) == 3


@pytest.mark.parametrize(("limit", "code"), [(10, 0), (1, 1)])
def test_exit_code_says_whether_all_goals_are_met(limit: float, code: int) -> None:
    bench = Benchmark("b", [])
    bench.goal("easy", 1, 10)
    bench.goal("g", 5, limit)
    with pytest.raises(SystemExit) as stop:
        bench.finish()
    assert stop.value.code == code


def test_json_holds_timings_goals_and_machine(tmp_path: Path) -> None:
    bench = Benchmark("b", ["--json", str(tmp_path / "out.json")])
    bench.compare("c", ours=int, peers={"float": float}, rounds=2)
    bench.goal("g", 5, 10, "ms")
    with pytest.raises(SystemExit):
        bench.finish()
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert [timing["contender"] for timing in report["timings"]] == ["ours", "float"]
    assert report["goals"] == [
        {"name": "g", "measured": 5, "limit": 10, "unit": "ms", "at_least": False, "met": True},
    ]
    assert report["machine"]["cores"] >= 1


def test_the_host_name_is_not_reported() -> None:
    assert platform.node() not in str(Machine.here()).split()


def test_doctests_of_the_harness_pass() -> None:
    assert doctest.testmod(harness).failed == 0
