"""A garden that is created once and copied for each test, and child processes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.commit.child import Children, running
from tests.migrate.garden import create

from omnigraph.graph import Graph, open
from omnigraph.settings import EMBEDDINGS_MOCK


@contextmanager
def _mock_vectors() -> Iterator[None]:
    """Vectors need no provider. Tests of other packages must not see this setting."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(EMBEDDINGS_MOCK.name, "1")
        yield


@pytest.fixture(scope="module", autouse=True)
def _settings() -> Iterator[None]:
    with _mock_vectors():
        yield


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("template") / "garden"
    with _mock_vectors():
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
    with ExitStack() as started:
        with _mock_vectors():  # child processes inherit the environment
            children = started.enter_context(running(tmp_path_factory.mktemp("children")))
        yield children


@pytest.fixture
def children(_children: Children) -> Iterator[Children]:
    yield _children
    _children.end_all()
