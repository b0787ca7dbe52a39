"""Fixtures of the tests of the embedded API."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync: no test here simulates a power failure."""
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
