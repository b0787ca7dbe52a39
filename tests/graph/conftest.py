"""What the tests of the embedded API share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here pulls the plug."""
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
