"""The search benchmark generates the same documents for the same size, and checks that answers are exact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import search
from searching.cases import cases
from searching.data import DIMENSIONS, QUESTIONS, read_file, write_files

TINY = ["--quick", "--documents", "300"]


def test_the_generated_documents_are_deterministic(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_files(tmp_path / name, 120)
    for table in ("Doc", "Topic", "About", "Cites", "questions"):
        assert read_file(tmp_path / "one", table).equals(read_file(tmp_path / "two", table))
    docs, questions = read_file(tmp_path / "one", "Doc"), read_file(tmp_path / "one", "questions")
    assert docs.num_rows == 120
    assert questions.num_rows == QUESTIONS
    assert [docs.schema.field(f"v{dimension}").type.list_size for dimension in DIMENSIONS] == list(DIMENSIONS)
    texts = docs["text"].to_pylist()
    assert all(
        any(set(question.split()) <= set(text.split()) for text in texts) for question in questions["text"].to_pylist()
    )


def test_recall_is_the_fraction_of_expected_results_found() -> None:
    assert search.recall([["a", "b"], ["c"]], [["b", "x"], ["c", "d"]]) == 0.5


@pytest.mark.slow
def test_the_search_benchmark_runs_at_a_small_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Our answers are compared with the exact ones, even if no peer is installed."""
    monkeypatch.setattr(search, "PYTHON", tmp_path / "nowhere")
    with pytest.raises(SystemExit) as stop:
        search.main([*TINY, "--json", str(tmp_path / "out.json")])
    assert stop.value.code == 0
    assert "lancedb is not installed" in capfd.readouterr().out
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert [timing["name"] for timing in report["timings"]] == [case.name for case in cases()]
    assert all(goal["measured"] == 1.0 for goal in report["goals"])


def test_a_wrong_answer_fails_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PYTHON", tmp_path / "nowhere")
    monkeypatch.setattr(search.Truth, "of", lambda *_: ["doc-0"])
    with pytest.raises(SystemExit, match="not what is exact"):
        search.main([*TINY, "--only", "words"])
