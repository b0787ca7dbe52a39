"""A damaged file never gives a wrong answer: the result is correct, or an error of the family names the file.

`make soak` tries other files and bits for `OMNIGRAPH_SOAK` seconds. `OMNIGRAPH_SOAK_SEED` repeats a failure; its
message names the value.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.damage.graphs import create, files
from tests.damage.matrix import DAMAGES, PAGE, run

SOAK = float(os.environ.get("OMNIGRAPH_SOAK", "60"))


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_reads_of_a_damaged_graph_are_right_or_name_the_file(tmp_path: Path, damage: str) -> None:
    result = run(tmp_path, seed=len(damage), flips=1, most=1, writes=False, only=damage)
    assert result.bad == []
    assert sum(counts["error"] for counts in result.counts.values()) > 0


@pytest.mark.slow
def test_writes_to_a_sample_of_damaged_graphs_are_right_or_name_the_file(tmp_path: Path) -> None:
    """A sample of the cases of the next test and the soak test."""
    assert run(tmp_path, seed=7, sample=12).bad == []


@pytest.mark.soak
@pytest.mark.parametrize("damage", DAMAGES)
def test_writes_to_a_damaged_graph_are_right_or_name_the_file(tmp_path: Path, damage: str) -> None:
    result = run(tmp_path, seed=100 + len(damage), flips=1, most=1, only=damage)
    assert result.bad == []


def test_the_damage_matrix_page_has_every_class_and_no_wrong_answer(tmp_path: Path) -> None:
    create(tmp_path / "graph")
    text = PAGE.read_text(encoding="utf-8")
    shown = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert set(shown) - {"class"} == set(files(tmp_path / "graph")), "run: python -m tests.damage.matrix"
    assert all(damage in text for damage in DAMAGES)
    assert "0 errors without a name, 0 wrong, 0 raw" in text


@pytest.mark.soak
def test_random_damage_gives_no_wrong_answer(tmp_path: Path) -> None:
    until, number = time.monotonic() + SOAK, int(os.environ.get("OMNIGRAPH_SOAK_SEED", time.time_ns()))
    while time.monotonic() < until:
        result = run(tmp_path / str(number), number, flips=10, most=3)
        assert result.bad == [], f"OMNIGRAPH_SOAK_SEED={number} repeats it"
        number += 1
