"""A small graph in a directory, and other processes that use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.commit.child import Children, running
from tests.commit.graphs import create
from tests.patience import until

from omnigraph.commit import lease
from omnigraph.commit.lease import LeaseRecord, lease_path
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC
from omnigraph.storage.objects import ObjectStore


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


@pytest.fixture
def beaten_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[ObjectStore, float], None]:
    """Let time pass for lease waiters only with the heartbeats of the owner: a fixed amount per beat."""

    def record(store: ObjectStore) -> LeaseRecord:
        return LeaseRecord.load(store.get(lease_path("main")).data)

    def install(store: ObjectStore, seconds: float) -> None:
        now = 0.0

        def sleep(_: float) -> None:
            nonlocal now
            seen = record(store)
            until(lambda: (found := record(store)).beat > seen.beat or found.holder != seen.holder)
            now += seconds

        clock = SimpleNamespace(monotonic=lambda: now, sleep=sleep)
        monkeypatch.setattr(lease, "time", clock)

    return install
