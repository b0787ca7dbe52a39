"""The kinds of stores that the contract tests run on."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from tests.storage.places import Place

from omnigraph.storage.objects import ObjectStore

KINDS = [
    pytest.param("local", id="local"),
    pytest.param("local-fsync", id="local-fsync"),
    pytest.param("memory", id="memory"),
    pytest.param("s3", id="s3", marks=pytest.mark.s3),
]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty root of each kind."""
    if request.param == "s3":
        root = request.getfixturevalue("s3_root")
        return Place(root.uri, root.options, fsync=True)
    if request.param == "memory":
        return Place(f"memory://{uuid4().hex}", {}, fsync=True)
    return Place(str(tmp_path / "graph"), {}, fsync=request.param == "local-fsync")


@pytest.fixture
def store(place: Place) -> ObjectStore:
    return place.open()
