"""Each commit adds to the caches of a process. They have limits, so that a process may write for a long time."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.session import Session
from omnigraph.storage import datasets, file_checks, ledger, ledger_seal

LIMIT = 8 * 16 * 1024
COMMITS = 40
SCHEMA = "node A { name: String @key }"
INSERT = "query q($name: String) { insert A { name: $name } }"


def written(path: Path) -> Session:
    """The session of a new graph after many commits."""
    graph = omnigraph.init(path, SCHEMA)
    for number in range(COMMITS):
        graph.mutate(INSERT, {"name": f"a{number}"})
    return graph.session


def test_cached_manifests_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = written(tmp_path / "default")
    assert session.store.tables.datasets._session.size_bytes() > 100_000
    session.close()
    monkeypatch.setenv("OMNIGRAPH_CACHE_MEMORY", str(LIMIT))
    session = written(tmp_path / "limited")
    assert session.store.tables.datasets._session.size_bytes() < 2 * LIMIT // 8
    session.close()


def test_cached_versions_of_the_history_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = written(tmp_path / "default")
    assert session.store.capture("main").ledger._dataset.session().size_bytes() > 200_000
    session.close()
    monkeypatch.setattr(ledger, "_CACHE_BYTES", 32 * 1024)
    session = written(tmp_path / "limited")
    assert session.store.capture("main").ledger._dataset.session().size_bytes() <= 2 * 32 * 1024
    session.close()


def test_the_fragments_of_cached_handles_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = written(tmp_path / "default")
    assert len(session.store.tables.datasets._handles._held) >= COMMITS, "small handles are all cached"
    session.close()
    monkeypatch.setattr(datasets, "_FRAGMENTS", 10 * COMMITS)
    session = written(tmp_path / "limited")
    handles = session.store.tables.datasets._handles._held
    newest = session.store.capture("main").tables["node:A"].ref
    assert list(handles) == [newest.at(version) for version in range(newest.version - 9, newest.version + 1)]
    session.close()


def test_few_checked_files_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_checks, "_REMEMBERED", 10)
    monkeypatch.setattr(ledger_seal, "_REMEMBERED", 10)
    session = written(tmp_path / "graph")
    with omnigraph.open(tmp_path / "graph") as graph:
        assert len(graph.query("query q() { match { $a: A } return { $a.name as name } }")) == COMMITS
        checks = graph.session.store.tables.datasets._checks
    assert checks is not None
    remembered = [checks._sound, checks._known, session.store.manifest._parts._sound]
    assert [len(each._held) for each in remembered] == [10, 10, 10]
    session.close()


def test_cached_topologies_do_not_keep_old_snapshots(tmp_path: Path) -> None:
    """Otherwise each commit with a read would leave a snapshot with its handles, and a closed graph would stay open."""
    graph = omnigraph.init(tmp_path / "graph", f"{SCHEMA}\nedge Next: A -> A")
    for number in range(COMMITS):
        graph.mutate(INSERT, {"name": f"a{number}"})
        assert len(graph.query("query q() { match { $a: A  $a next $b } return { $b.name as name } }")) == 0
    graph.close()
    del graph
    gc.collect()
    root = str(tmp_path / "graph")
    assert not [one for one in gc.get_objects() if isinstance(one, datasets.Datasets) and one.root == root]
