"""The threads benchmark runs at a small size."""

from __future__ import annotations

from pathlib import Path

import pytest

import threads


@pytest.mark.slow
def test_the_threads_benchmark_runs_at_a_small_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        threads.main(["--quick", "--questions", "2", "--data", str(tmp_path / "kept")])
    printed = capsys.readouterr().out
    assert ended.value.code == 0, printed
    assert "triangles with 512 MiB: other answers: measured 0" in printed
