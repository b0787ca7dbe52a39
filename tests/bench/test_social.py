"""The social benchmark generates the same data each time, compares all answers, and runs without peers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import harness
import social
from social import DifferentError, agree
from study.contender import RIVALS, Contender
from study.cypher import TEXTS as CYPHER
from study.data import tables
from study.ours import QUERIES
from study.questions import QUESTIONS, WALKS, many
from study.sql import texts

HERE = Path(sys.executable)
PRESENT = tuple(Contender(r.name, r.script, HERE, r.module) for r in RIVALS if r.module in ("polars", "datafusion"))
"""Peers that are installed where the tests run."""


def test_the_generated_data_is_deterministic() -> None:
    first, second = tables(200), tables(200)
    assert first.keys() == second.keys()
    assert all(first[name].equals(second[name]) for name in first)


def test_follows_edges_have_no_duplicates_and_no_self_loops() -> None:
    follows = tables(500)["Follows"]
    pairs = list(zip(follows["from"].to_pylist(), follows["to"].to_pylist(), strict=True))
    assert len(pairs) > 500
    assert len(set(pairs)) == len(pairs)
    assert all(left != right for left, right in pairs)
    assert pairs == sorted(pairs)


def test_edges_have_existing_endpoints() -> None:
    made = tables(300)
    ends = {
        "Follows": ("Person", "Person"),
        "LivesIn": ("Person", "City"),
        "HasInterest": ("Person", "Interest"),
        "CityIn": ("City", "State"),
        "StateIn": ("State", "Country"),
    }
    for edge, kinds in ends.items():
        for end, kind in zip(("from", "to"), kinds, strict=True):
            assert set(made[edge][end].to_pylist()) <= set(made[kind]["num"].to_pylist())
    assert made["LivesIn"]["from"].to_pylist() == made["Person"]["num"].to_pylist()


def test_every_contender_has_every_query() -> None:
    assert set(WALKS) <= set(QUESTIONS)
    assert texts(300).keys() == QUESTIONS.keys()
    assert CYPHER.keys() == QUESTIONS.keys()
    assert all(f"query {name}(" in QUERIES for name in QUESTIONS)


def test_sampled_persons_are_spread_evenly() -> None:
    assert many(100_000)[:3] == [0, 1000, 2000]
    assert len(many(100_000)) == len(many(150)) == 100
    assert many(3) == [0, 1, 2]


def test_answers_are_compared_as_sets_of_rows() -> None:
    one = pa.table({"num": pa.array([1, 2], pa.int32()), "age": [0.5, 1.5], "name": ["a", "b"]})
    other = pa.table({"name": pa.array(["b", "a"], pa.large_utf8()), "age": [1.5, 0.5], "num": [2, 1]})
    agree("q1", {"ours": one, "other": other})


@pytest.mark.parametrize(
    "wrong",
    [
        pa.table({"num": [1, 2, 2]}),
        pa.table({"num": [1, 3]}),
        pa.table({"num": [1, None]}),
        pa.table({"other": [1, 2]}),
    ],
)
def test_a_wrong_answer_is_detected(wrong: pa.Table) -> None:
    with pytest.raises(DifferentError, match="q1: ours and other differ"):
        agree("q1", {"ours": pa.table({"num": [1, 2]}), "other": wrong})


@pytest.mark.slow
def test_all_contenders_give_the_same_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness, "SAMPLE_SECONDS", 0.0)
    missing = Contender("ladybug", "on_ladybug.py", tmp_path / "nowhere", "ladybug")
    with pytest.raises(SystemExit) as stop:
        social.main(
            ["--quick", "--persons", "400", "--rounds", "1", "--json", str(tmp_path / "out.json")],
            (*PRESENT, missing),
        )
    assert stop.value.code == 0
    printed = capfd.readouterr().out
    assert "ladybug is not installed" in printed
    assert "in the geometric mean of 15 questions" in printed
    timings = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["timings"]
    contenders = {timing["contender"] for timing in timings}
    assert contenders == {"ours", "numpy", "polars", "datafusion"}
    assert {timing["name"].split(":")[0] for timing in timings} >= {*QUESTIONS, "a new process, q8"}
