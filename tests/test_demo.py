"""The promise of `make demo`: every command of the tour works as shown."""

from __future__ import annotations

import pytest

import demo


def test_tour_runs(capfd: pytest.CaptureFixture[str]) -> None:
    assert demo.main() == 0
    printed = capfd.readouterr().out
    for _, command in demo.TOUR:
        assert f"$ {command}\n" in printed
