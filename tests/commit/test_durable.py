"""With fsync on, the default, a write is acknowledged only after its files are on disk."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from lance import LanceDataset
from tests.commit.graphs import NODES, SEED, Operation, assert_whole, create, ids, put

from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.graph import Graph, open
from omnigraph.settings import FSYNC
from omnigraph.storage.objects.local import LocalObjectStore
from omnigraph.storage.table_ref import manifest_name, table_directory

IGNORED = ("__lease", "__recovery", ".og-")
"""Leases need not be durable. The object store flushes its own files."""


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The flushed files that Lance wrote, by path below the root."""
    monkeypatch.setenv(FSYNC.name, "1")
    seen: set[str] = set()
    sync = LocalObjectStore.sync_files

    def recording(self: LocalObjectStore, paths: Iterable[str], *, levels: int | None = None) -> None:
        paths = list(paths)
        sync(self, paths, levels=levels)
        for path in paths:
            place = Path(self.uri.path) / path
            found = [file for file in place.rglob("*") if file.is_file()] if place.is_dir() else [place]
            seen.update(str(file.relative_to(self.uri.path)) for file in found)

    monkeypatch.setattr(LocalObjectStore, "sync_files", recording)
    return seen


def files(place: Path) -> set[str]:
    """Every file that must be durable."""
    found = (str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    return {path for path in found if not any(part in path for part in (*IGNORED, "latest_version_hint.json"))}


def by_lance(paths: set[str]) -> set[str]:
    return {path for path in paths if "_transactions" not in path and path.split("/")[0] in LANCE}


LANCE = ("__manifest", "nodes", "edges", "_graph_commit_recoveries.lance")


@pytest.mark.parametrize("operation", list(Operation))
@pytest.mark.parametrize("branch", ["main", "x/y"])
def test_an_acknowledged_commit_is_flushed(flushed: set[str], place: Path, operation: Operation, branch: str) -> None:
    with create(place) as graph:
        assert by_lance(files(place)) <= flushed, "creating"
        if branch != "main":
            graph.branches.create(branch)
            assert by_lance(files(place)) <= flushed, "branching"
        put(graph, ["s1"] if operation is Operation.DELETE else ["new"], NODES, branch=branch, operation=operation)
        assert by_lance(files(place)) <= flushed
        graph.tags.create("v1", branch=branch)
        assert by_lance(files(place)) <= flushed, "tagging"


def test_an_acknowledged_optimize_is_flushed(flushed: set[str], place: Path) -> None:
    """Both commits that optimize makes to a table are flushed."""
    with create(place) as graph:
        put(graph, ["new"], NODES)
        done = graph.optimize()
        assert any(table.fragments_removed for table in done.tables)
        assert by_lance(files(place)) <= flushed


def test_tables_are_flushed_before_the_manifest_is_published(flushed: set[str], place: Path) -> None:
    with create(place) as graph:
        with armed(Failpoint.BEFORE_PUBLISH, "crash"), pytest.raises(SimulatedCrashError):
            put(graph, ["new"], NODES, operation=Operation.UPSERT)
        assert by_lance(files(place)) <= flushed


@pytest.mark.parametrize("point", [Failpoint.TABLE_COMMITTED, Failpoint.TABLES_COMMITTED])
@pytest.mark.parametrize("branch", ["main", "dev"])
def test_recovery_flushes_the_files_of_an_interrupted_write(
    flushed: set[str], place: Path, branch: str, point: Failpoint
) -> None:
    """Recovery does not know which files the crashed writer has flushed, so it flushes all of them."""
    with create(place) as graph:
        if branch != "main":
            graph.branches.create(branch)
        with armed(point, "crash"), pytest.raises(SimulatedCrashError):
            put(graph, ["new"], NODES, branch=branch)
    with open(place) as reopened:
        finished = point is Failpoint.TABLES_COMMITTED
        assert ids(reopened, branch=branch) == sorted([*SEED, *(["new"] if finished else [])])
        pinned = _pinned(reopened, branch)
        assert pinned <= flushed
        assert_whole(reopened)


@pytest.mark.parametrize("branch", ["main", "dev"])
def test_recovery_flushes_the_manifest_of_a_crashed_writer(flushed: set[str], place: Path, branch: str) -> None:
    """The writer may have crashed before it flushed the manifest, so recovery flushes it."""
    with create(place) as graph:
        if branch != "main":
            graph.branches.create(branch)
        with armed(Failpoint.PUBLISHED, "crash"), pytest.raises(SimulatedCrashError):
            put(graph, ["new"], branch=branch)
    flushed.clear()
    with open(place) as reopened:
        version = reopened.snapshot(branch=branch).manifest_version
        directory = table_directory("__manifest", reopened.session.store.capture(branch).ledger.branch)
    assert f"{directory}/_versions/{manifest_name(version)}" in flushed
    assert any(path.startswith(f"{directory}/data/") for path in flushed)


def test_manifest_data_is_flushed_before_the_manifest_version(
    flushed: set[str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = LanceDataset.commit

    def checking(target: object, *arguments: Any, **more: Any) -> LanceDataset:
        if "__manifest" in (target if isinstance(target, str) else target.uri):  # type: ignore[attr-defined]
            assert {path for path in files(place) if path.startswith("__manifest/data/")} <= flushed
        return commit(target, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(LanceDataset, "commit", staticmethod(checking))
    with create(place) as graph:
        put(graph, ["new"])


def _pinned(graph: Graph, branch: str) -> set[str]:
    """The version files of all tables in the manifest, and of the manifest itself."""
    pins = graph.snapshot(branch=branch).tables.values()
    return {
        f"{table_directory(pin.ref.path, pin.ref.branch)}/_versions/{manifest_name(pin.ref.version)}" for pin in pins
    }
