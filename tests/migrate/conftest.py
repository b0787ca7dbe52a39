"""A garden that is created once and copied for each test, and child processes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commit.child import Children, running
from tests.migrate.garden import create

from omnigraph.graph import Graph, open
from omnigraph.settings import EMBEDDINGS_MOCK, FSYNC


@pytest.fixture(scope="session", autouse=True)
def _no_fsync() -> Iterator[None]:
    """Skip fsync: these tests kill processes and never the machine. Vectors need no provider."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FSYNC.name, "0")
        patch.setenv(EMBEDDINGS_MOCK.name, "1")
        yield


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("template") / "garden"
    create(place).close()
    return place


@pytest.fixture
def place(template: Path, tmp_path: Path) -> Path:
    """The directory of a garden."""
    found = tmp_path / "garden"
    shutil.copytree(template, found)
    return found


@pytest.fixture
def graph(place: Path) -> Iterator[Graph]:
    with open(place) as opened:
        yield opened


@pytest.fixture(scope="session")
def _children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    with running(tmp_path_factory.mktemp("children")) as children:
        yield children


@pytest.fixture
def children(_children: Children) -> Iterator[Children]:
    yield _children
    _children.end_all()
