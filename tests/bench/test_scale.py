"""The scale benchmark runs at any size, compares all answers, and sets goals for full sizes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import scale
from scaling import data, questions


def test_the_generated_graph_is_deterministic() -> None:
    first, second = (list(data.portions(5_000)) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first[0], second[0], strict=True))
    assert sum(len(source) for source, _ in first) == 5_000
    assert data.names(5_000)[7].as_py() == data.name_of(7)
    assert questions.starts(5_000) == questions.starts(5_000)


@pytest.mark.slow
def test_the_scale_benchmark_runs_at_a_small_size(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        scale.main(["--quick", "--edges", "3000", "--json", str(tmp_path / "out.json")])
    assert stop.value.code == 0
    assert "memory at 3,000 edges" in capfd.readouterr().out
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert {timing["name"].partition(" (")[0] for timing in found["timings"]} == {
        "topology of 3,000 edges",
        "first answer of a process, 3,000 edges, topology on disk: 1 hop, names",
        "first answer of a process, 3,000 edges, topology on disk: 3 hops, reach",
        "first answer of a process, 3,000 edges, indexes only: 1 hop, names",
        "first answer of a process, 3,000 edges, indexes only: 3 hops, reach",
        "1 hop, names, 3,000 edges",
        "2 hops, names, 3,000 edges",
        "3 hops, reach, 3,000 edges",
    }
    assert found["goals"] == []


def test_a_wrong_answer_fails_the_benchmark() -> None:
    with pytest.raises(AssertionError, match="not the expected answer"):
        scale.agree(False, "1 hop")
