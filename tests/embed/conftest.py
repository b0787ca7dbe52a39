"""Fixtures of the embedding tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.embed.provider import Provider, running_provider


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the providers, keys and proxies of the machine, and the cached vectors of other tests."""
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    for name in list(os.environ):
        if name.startswith("OMNIGRAPH_EMBED") or name.endswith("_API_KEY") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running
