"""The patterns benchmark generates the same data each time, has every question for every engine, and runs alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import harness
import patterns
from matching.data import MEMBERS, PAIRS, small_network
from matching.on_duckdb import TEXTS as SQL
from matching.ours import QUERIES
from matching.questions import NOT_IN_SQL, QUESTIONS
from study.contender import Contender

HERE = Path(sys.executable)
DUCKDB, LADYBUG = patterns.RIVALS


def test_the_small_network_is_deterministic() -> None:
    first, second = small_network(60), small_network(60)
    assert all(first[name].equals(second[name]) for name in first)


def test_the_small_network_has_the_published_size_and_skew() -> None:
    network = small_network()
    knows = network["Knows"]
    assert network["Member"].num_rows == MEMBERS
    assert knows.num_rows == 2 * PAIRS
    pairs = set(zip(knows["from"].to_pylist(), knows["to"].to_pylist(), strict=True))
    assert {(two, one) for one, two in pairs} == pairs
    degrees = np.bincount(knows["from"].to_numpy())
    assert 2.0e6 < (degrees**2).sum() < 2.9e6


def test_every_engine_has_every_question() -> None:
    assert {*SQL, *NOT_IN_SQL} == set(QUESTIONS)
    assert all(f"query {name}(" in QUERIES for name in QUESTIONS)


@pytest.mark.slow
def test_the_patterns_benchmark_compares_all_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness, "SAMPLE_SECONDS", 0.0)
    here = Contender(DUCKDB.name, DUCKDB.script, HERE, DUCKDB.module)
    missing = Contender(LADYBUG.name, LADYBUG.script, tmp_path / "nowhere", LADYBUG.module)
    flags = ["--quick", "--persons", "400", "--rounds", "1", "--json", str(tmp_path / "out.json")]
    with pytest.raises(SystemExit) as stop:
        patterns.main(flags, (here, missing))
    assert stop.value.code == 0
    printed = capfd.readouterr().out
    assert "ladybug is not installed" in printed
    assert "geometric mean" in printed
    timings = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["timings"]
    asked = {(timing["name"].split(":")[0], timing["contender"]) for timing in timings}
    assert asked == {(name, "ours") for name in QUESTIONS} | {(name, "duckdb") for name in SQL}


@pytest.mark.slow
def test_some_questions_are_asked_of_this_engine_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    flags = ["--quick", "--persons", "400", "--rounds", "1", "--ours", "--only", "mutual,shortest"]
    for _ in range(2):  # the second run uses the data that the first one stored
        with pytest.raises(SystemExit) as stop:
            patterns.main([*flags, "--data", str(tmp_path / "kept")])
        assert stop.value.code == 0
    printed = capfd.readouterr().out
    assert printed.count("mutual: ") == printed.count("shortest: ") == 2
    assert "triangles" not in printed
