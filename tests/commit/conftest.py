"""A small graph in a directory, and other processes that use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commit.child import Children, running
from tests.commit.graphs import create

from omnigraph.graph import Graph
from omnigraph.settings import FSYNC


@pytest.fixture(scope="session", autouse=True)
def _no_fsync() -> Iterator[None]:
    """Skip fsync: these tests kill processes and never the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FSYNC.name, "0")
        yield


@pytest.fixture(scope="session")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    with running(tmp_path_factory.mktemp("children")) as started:
        yield started


@pytest.fixture
def children(parent: Children) -> Iterator[Children]:
    """Child processes that end with the test."""
    yield parent
    parent.end_all()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "graph"


@pytest.fixture
def graph(place: Path) -> Iterator[Graph]:
    with create(place) as made:
        yield made
